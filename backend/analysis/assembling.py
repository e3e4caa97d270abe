"""The one way from what is known of a run to the evidence on it: which checkpoints and readings count, and how old.

The service reads PostgreSQL, the backtest goes through a history, a model of a fleet is built in Spark, and
``diagnose`` reads an engine itself. Each of them describes the run as it is known at a moment (``RunAt``), and gets its
evidence from there, so that the same run gives the same verdict whoever asks.

Invariant: nothing here is computed from the values. They are chosen by number, age and state only. A value that was not
reported stays None or absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from backend.analysis.health.failures import without_aborted
from backend.analysis.measures.evidence import JobEvidence, OtherRun
from backend.domain.checkpoint import (
    Checkpoint,
    CheckpointConfig,
    CheckpointCounts,
    CheckpointHeader,
    ClusterSettings,
    LateBarrier,
)
from backend.domain.checkpoint_files import CheckpointFiles
from backend.domain.engines import FLINK, EngineCapabilities
from backend.domain.losses import Loss
from backend.domain.observation import JobState
from backend.domain.pod_ends import PodEnd
from backend.domain.pressure import VertexPressure, on_clock
from backend.domain.topology import Placement, Topology

EVIDENCE_COUNT: Final = 26
"""So many checkpoints are evidence: more than the rules use, because some may be savepoints or in progress."""
EXCEPTIONS_COUNT: Final = 10
"""So many exceptions are evidence, the newest."""
LOSSES_COUNT: Final = 100
"""So many losses are evidence, the newest. A sink with many subtasks has one for each of them and each checkpoint."""
FOLDER_WITHIN: Final = timedelta(hours=1)
"""The newest reading of a checkpoint folder is evidence if it is at most so old.

After a reading, the folder is left alone for 20 times as long. So this covers the pause after one of 3 minutes.
"""
POD_ENDS_COUNT: Final = 20
"""The newest ends of pods of a run are evidence."""
NEWEST_READINGS: Final = timedelta(seconds=150)
"""The readings of pressure of this time before the newest one are evidence on the job as it is."""
READ_WITHIN: Final = timedelta(seconds=300)
"""In a history, the newest reading counts at a moment if it is at most so old."""
READINGS_NEAR: Final = timedelta(seconds=60)
"""The readings of pressure from so long before a checkpoint to so long after it are evidence on this checkpoint."""
MODEL_WINDOW: Final = timedelta(minutes=30)
"""A model of a job is built from the readings of pressure of this time. A verdict needs only the newest ones."""
LOST_AFTER: Final = timedelta(seconds=60)
"""An open checkpoint that the engine has not reported for this long is lost: its end will never be reported."""
NEVER: Final = datetime.max.replace(tzinfo=UTC)
"""The first trigger under settings under which no checkpoint has begun yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAt:
    """One run of a job as it is known at a moment, apart from its checkpoints and readings.

    Its times are on the engine's clock. What is known only of a later moment is None or empty.
    """

    topology: Topology
    config: CheckpointConfig | None = None
    cluster_settings: ClusterSettings | None = None
    counts: CheckpointCounts | None = None
    counted_at: datetime | None = None
    failed_unlisted_count: int | None = None
    placements: tuple[Placement, ...] = ()
    exceptions: tuple[tuple[datetime, str], ...] = ()
    losses: tuple[Loss, ...] = ()
    pod_ends: tuple[PodEnd, ...] = ()
    other_runs: tuple[OtherRun, ...] = ()
    restart_count: int | None = None
    state: JobState | None = None
    engine_state: str | None = None
    started_at: datetime | None = None
    engine: EngineCapabilities = FLINK
    engine_version: str | None = None

    def evidence(
        self,
        *,
        now: datetime,
        checkpoints: Iterable[Checkpoint] = (),
        readings: Iterable[VertexPressure] = (),
        late: Mapping[int, tuple[LateBarrier, ...]] | None = None,
        ahead: timedelta = timedelta(),
    ) -> JobEvidence:
        """Return the evidence of this run with these checkpoints and readings, both oldest first.

        ``now`` is on the engine's clock, which is ``ahead`` of the clock of the readings.
        """
        return JobEvidence(
            topology=self.topology,
            now=now,
            config=self.config,
            counts=self.counts,
            checkpoints=tuple(checkpoints),
            pressure=on_clock(readings, ahead),
            placements=self.placements,
            late_barriers=late or {},
            exceptions=self.exceptions,
            losses=self.losses,
            pod_ends=self.pod_ends,
            other_runs=self.other_runs,
            restart_count=self.restart_count,
            cluster_settings=self.cluster_settings,
            state=self.state,
            engine_state=self.engine_state,
            started_at=self.started_at,
            counted_at=self.counted_at,
            failed_unlisted_count=self.failed_unlisted_count,
            flink_version=self.engine_version if self.engine.is_flink_release else None,
            is_micro_batched=self.engine.is_micro_batched,
        )

    def evidence_on_job(
        self,
        *,
        now: datetime,
        checkpoints: Iterable[Checkpoint] = (),
        readings: Iterable[VertexPressure] = (),
        late: Mapping[int, tuple[LateBarrier, ...]] | None = None,
        ahead: timedelta = timedelta(),
    ) -> JobEvidence:
        """Return the evidence on the job as a whole.

        Unlike in ``evidence``, which serves the verdict on one checkpoint, the checkpoints are left out that failed
        only because the run or one of their tasks ended.
        """
        return without_aborted(
            self.evidence(now=now, checkpoints=checkpoints, readings=readings, late=late, ahead=ahead)
        )


def is_lost(header: CheckpointHeader, *, has_run_ended: bool, unseen_for: timedelta = timedelta()) -> bool:
    """Return whether an open checkpoint is lost: its end will never be reported.

    This is so if its run ended, although the engine still reports it as in progress then, or if the run was read
    without it for ``LOST_AFTER``.
    """
    return not header.status.is_terminal and (has_run_ended or unseen_for > LOST_AFTER)


def newest_readings(readings: Sequence[VertexPressure]) -> tuple[VertexPressure, ...]:
    """Return those of these readings, oldest first, that are evidence on the job as it is at the newest of them."""
    begin = readings[-1].observed_at - NEWEST_READINGS if readings else NEVER
    return tuple(r for r in readings if r.observed_at >= begin)


def readings_around(header: CheckpointHeader, now: datetime) -> tuple[datetime, datetime]:
    """Return the begin and the end of the time whose readings of pressure count for the verdict on a checkpoint.

    ``now`` and the result are on the engine's clock.
    """
    end = header.triggered_at + timedelta(milliseconds=header.end_to_end_duration_ms or 0)
    if not header.status.is_terminal:
        end = now
    return header.triggered_at - READINGS_NEAR, end + READINGS_NEAR


def with_earlier(
    evidence: JobEvidence, readings: Iterable[VertexPressure], config_before: CheckpointConfig | None = None
) -> JobEvidence:
    """Return the evidence with the readings of earlier spans, oldest first, and the settings of their time.

    The spans may share an end with each other and with the evidence's own readings. Each reading counts once.
    """
    newest = min((r.observed_at for r in evidence.pressure), default=evidence.now)
    earlier = {(r.observed_at, r.vertex_id): r for r in readings if r.observed_at < newest}
    return replace(evidence, earlier_pressure=tuple(earlier.values()), config_before=config_before)


def with_folders(
    evidence: JobEvidence, readings: Iterable[tuple[datetime, CheckpointFiles]], now: datetime
) -> JobEvidence:
    """Return the evidence with the readings of checkpoint folders that are not old. All times are on our clock."""
    return replace(evidence, folders=tuple((at, files) for at, files in readings if is_folder_new(at, now)))


def is_folder_new(read_at: datetime, now: datetime) -> bool:
    """Return whether a reading of a checkpoint folder is not too old to be evidence. Both are on our clock."""
    return now - read_at <= FOLDER_WITHIN


def first_trigger_under(changed_at: datetime | None, ended: Iterable[tuple[datetime, datetime]]) -> datetime | None:
    """Return the first trigger under the settings that were first seen at ``changed_at``, or None if that is None.

    ``ended`` has, for each ended checkpoint, when its end was known, on the clock of ``changed_at``, and its trigger.
    The engine's clock may differ from that clock, and may drift, so triggers are not compared with ``changed_at``. The
    first checkpoint whose end was known later is left out, because it may have begun before the change.
    """
    if changed_at is None:
        return None
    after = sorted(triggered_at for known_at, triggered_at in ended if known_at > changed_at)
    return after[1] if len(after) > 1 else NEVER


def is_governed(header: CheckpointHeader, first_trigger_at: datetime | None) -> bool:
    """Return whether a checkpoint began under the settings whose first trigger this is; None if they never changed."""
    return first_trigger_at is None or header.triggered_at >= first_trigger_at


def model_readings_since(oldest: CheckpointHeader, newest_reading_at: datetime) -> datetime:
    """Return from when on readings of pressure count for a model, given the oldest of its checkpoints."""
    return max(oldest.triggered_at - READINGS_NEAR, newest_reading_at - MODEL_WINDOW)
