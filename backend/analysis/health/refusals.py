"""Finds out whether the coordinator of a running job refuses every checkpoint, or the tasks decline every one at once.

A checkpoint that is refused before it starts gets no id, so the engine's history does not list it. Only the counters
show it: they grow, and no checkpoint begins. A checkpoint that a task declines because it has ended, or is not ready,
has an id. Such failures are no fault of the job as long as others complete (``failures``). If nothing else happens any
more, the job has no checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.words.thresholds import (
    CHECKPOINTS_MAX,
    REFUSED_MIN_COUNT,
    REFUSED_MIN_RATIO,
    REFUSED_MIN_S,
    REFUSED_TIMES,
    UNCOUNTED_TIMES,
)
from backend.domain.checkpoint import CheckpointHeader, CheckpointStatus
from backend.domain.engines import release_of
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.observation import JobState

ENDED: Final = frozenset({"FINISHED"})
# Flink before this version counts no refused checkpoint, and takes none after a task has finished.
_COUNTS_REFUSED_SINCE = (1, 14)
STARTING: Final = frozenset({"CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RECONCILING"})
_DECLINED = frozenset(
    {
        FailureReason.DECLINED_INPUT_END_OF_STREAM,
        FailureReason.DECLINED_TASK_NOT_READY,
        FailureReason.DECLINED_TASK_CLOSING,
        FailureReason.NOT_ALL_TASKS_RUNNING,
        FailureReason.BLOCKING_OUTPUT,
    }
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """No checkpoint has begun since ``since``, although one was due in every interval.

    ``refused_count`` failed without starting, and ``declined_count`` were declined by a task, for ``declined_for``.
    Both are 0 if the engine does not count refused checkpoints. ``completed`` is the newest completed checkpoint or
    savepoint that is known.
    """

    since: datetime
    silent_ms: float
    refused_count: int
    declined_count: int
    declined_for: FailureReason | None
    is_about: bool
    """Whether ``refused_count`` follows from the interval, because the engine also counts earlier failures."""
    completed: CheckpointHeader | None

    @property
    def is_counted(self) -> bool:
        """Whether the engine counted or listed the failures."""
        return self.refused_count + self.declined_count > 0


def refusal_of(evidence: JobEvidence) -> Refusal | None:
    """Return how long no checkpoint has begun, if the job runs and all are refused; None otherwise.

    A job whose tasks are still starting has as long as the timeout of a checkpoint, because that is no fault yet.
    """
    config, read_at = evidence.config, evidence.counted_at
    if (
        evidence.is_micro_batched
        or evidence.state is not JobState.RUNNING
        or config is None
        or not config.interval_ms
        or read_at is None
    ):
        return None
    headers = [c.header for c in evidence.checkpoints]
    is_open = any(not h.status.is_terminal for h in headers)
    if is_open or (evidence.counts is not None and evidence.counts.in_progress):
        return None
    begun = [h for h in headers if not _is_declined(h)]
    times = [*map(ended_at, begun), *(at for at, _ in evidence.exceptions)]
    restored_at = None if evidence.counts is None else evidence.counts.restored_at
    times += [at for at in (evidence.started_at, restored_at) if at is not None]
    if not times:
        return None
    since = max(times)
    silent_s = (read_at - since).total_seconds()
    every_s = max(config.interval_ms, config.min_pause_ms or 0) / 1000
    limit_s = max(REFUSED_MIN_S, REFUSED_TIMES * every_s)
    declined = [h for h in headers if _is_declined(h) and h.triggered_at >= since]
    due_count = silent_s / every_s
    unlisted, due_max = _unlisted_count(evidence, headers), round(due_count) + 1
    refused = min(unlisted, due_max)
    is_counted = refused + len(declined) >= REFUSED_MIN_COUNT
    if not is_counted or not (declined or refused >= REFUSED_MIN_RATIO * due_count):
        refused, declined = 0, []
        limit_s *= UNCOUNTED_TIMES
        if not tasks_in(evidence, ENDED) or not _ends_with_first_task(evidence):
            return None
    if tasks_in(evidence, STARTING):
        limit_s = max(limit_s, (config.timeout_ms or 0) / 1000)
    if silent_s < limit_s:
        return None
    completed = [h for h in headers if h.status is CheckpointStatus.COMPLETED]
    return Refusal(
        since,
        silent_s * 1000,
        refused,
        len(declined),
        declined[-1].failure_reason if declined else None,
        unlisted > due_max,
        completed[-1] if completed else None,
    )


def _ends_with_first_task(evidence: JobEvidence) -> bool:
    """Return whether it is known that the job takes no checkpoint once a task has finished.

    Any other silence may be on purpose, such as that of a source that reads its backlog with an interval of 0.
    """
    if evidence.config is not None and evidence.config.ends_with_first_task:
        return True
    release = release_of(evidence.flink_version)
    return release is not None and release < _COUNTS_REFUSED_SINCE


def _is_declined(header: CheckpointHeader) -> bool:
    return header.status is CheckpointStatus.FAILED and header.failure_reason in _DECLINED


def ended_at(header: CheckpointHeader) -> datetime:
    """Return when an ended checkpoint ended, or when it was triggered if its duration is not known."""
    return header.triggered_at + timedelta(milliseconds=header.end_to_end_duration_ms or 0)


def tasks_in(evidence: JobEvidence, statuses: frozenset[str]) -> list[tuple[VertexId, tuple[int, ...]]]:
    """Return the vertices with subtasks in one of these states of the engine, each with these subtasks."""
    tasks = [(p.vertex_id, tuple(i for i, s in enumerate(p.statuses) if s in statuses)) for p in evidence.placements]
    return [(vertex_id, subtasks) for vertex_id, subtasks in tasks if subtasks]


def _unlisted_count(evidence: JobEvidence, headers: Sequence[CheckpointHeader]) -> int:
    """Return how many failures the engine counted but did not list. It may include earlier ones, as of the job's start.

    If the engine's history does not reach back to the first checkpoint, failures that it has dropped are left out as
    far as they are known.
    """
    counts = evidence.counts
    if counts is None:
        return 0
    failed = sum(h.status is CheckpointStatus.FAILED for h in headers)
    unlisted_count = max(0, counts.failed - failed)
    if evidence.failed_unlisted_count is not None:
        # Counters of an earlier coordinator are of another time.
        unlisted_count = min(evidence.failed_unlisted_count, counts.failed)
    newest = max((h.checkpoint_id for h in headers), default=0)
    if len(headers) >= CHECKPOINTS_MAX and not counts.restored and newest <= counts.total:
        # The ids of such a run begin with 1, and what is refused gets none.
        unlisted_count = min(unlisted_count, counts.total - newest)
    return unlisted_count
