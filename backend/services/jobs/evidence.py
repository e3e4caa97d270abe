"""Reads ``JobEvidence`` of many jobs with a fixed number of queries, and caches findings.

A finding is cached for at most ``_KEPT_S``, and until its input changes: the run, an ended checkpoint, the settings,
a restart, or a newer reading of backpressure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.advisor import advise
from backend.advisor.advice import Advice
from backend.analysis import micro_batches, verdict_micro_batch
from backend.analysis.critical_path import critical_path
from backend.analysis.evidence import JobEvidence
from backend.analysis.pressure import backpressured_max, vertex_loads
from backend.analysis.verdict import diagnose
from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.clock import Clock
from backend.domain.ids import JobId
from backend.domain.verdict import Diagnosis, Phase
from backend.services.jobs.silent_jobs import as_heard
from backend.store.checkpoints.micro_batches import batches_of
from backend.store.checkpoints.reader import CheckpointRecord, details_of, late_barriers_of, list_around, recent_of_runs
from backend.store.jobs.pressure import Readings, newest_reading_at, readings_between, readings_since
from backend.store.jobs.reader import (
    JobRecord,
    RunRecord,
    RunShape,
    config_since,
    newest_exceptions,
    newest_shapes,
    shape_at,
)
from backend.store.schema.partitions import day_of

# The rules use the newest ten that ended. More are read, because some are open or savepoints.
_CHECKPOINTS_COUNT = 16
# An open checkpoint that its run has not reported for this long is lost: its end will never be reported.
_LOST_AFTER = timedelta(seconds=60)
_PRESSURE_WINDOW = timedelta(seconds=150)
_PRESSURE_NEAR = timedelta(seconds=60)
_LOOK_BACK = timedelta(days=8)
_KEPT_S = 300.0
_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SettingsTaken:
    """When settings were first seen in force (our clock), and the first trigger under them (the engine's)."""

    seen_at: datetime
    first_trigger_at: datetime


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of the analysis of one job, the number of terminal checkpoints it used, and the advice.

    ``settings`` is when the settings in force were taken; None if they did not change while the job ran.
    """

    diagnosis: Diagnosis
    dominant_phase: Phase | None
    backpressured_max_ratio: float | None
    checkpoint_count: int
    advice: Advice
    settings: SettingsTaken | None
    interval_ms: int | None = None
    """Spark: the trigger's interval, reported by the job or inferred from its batches."""


@dataclass(frozen=True, slots=True)
class JobCase:
    """A job with its newest checkpoints (oldest first), its graph and settings, and the finding."""

    record: JobRecord
    shape: RunShape
    headers: tuple[CheckpointRecord, ...]
    finding: Finding

    @property
    def open_checkpoint(self) -> CheckpointRecord | None:
        """The newest checkpoint in progress, if there is one."""
        opened = (h for h in reversed(self.headers) if not h.header.status.is_terminal)
        return next((h for h in opened if not is_lost(h, self.record.run)), None)


_Token = tuple[object, ...]


def settings_taken_at(records: Sequence[CheckpointRecord], changed_at: datetime | None) -> SettingsTaken | None:
    """Return the first trigger under the settings in force, which were first seen at ``changed_at``; None without it.

    The engine's clock may differ from ours, and drift. Therefore the checkpoints count whose end was seen after the
    change was seen, except the first of these, which may have begun before the change.
    """
    if changed_at is None:
        return None
    ended = [r for r in records if r.header.status.is_terminal and r.observed_at > changed_at]
    first = min((r.header.triggered_at for r in ended[1:]), default=_NEVER)
    return SettingsTaken(changed_at, first)


def is_lost(record: CheckpointRecord, run: RunRecord) -> bool:
    """Whether the end of an open checkpoint will never be reported: its run ended or no longer reports it."""
    if record.header.status.is_terminal:
        return False
    return run.ended_at is not None or record.observed_at < run.observed_at - _LOST_AFTER


class EvidenceReader:
    """Reads evidence and analyses it; one instance per process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[JobId, tuple[_Token, float, Finding]] = {}

    async def cases(self, connection: AsyncConnection, records: Sequence[JobRecord]) -> list[JobCase]:
        """Return the case of each job, in the order of ``records``."""
        run_ids = [r.run.id for r in records]
        since = day_of(min((r.run.observed_at for r in records), default=self._clock.now()) - _LOOK_BACK)
        headers = await recent_of_runs(connection, run_ids, limit=_CHECKPOINTS_COUNT, since=since)
        shapes = await newest_shapes(connection, run_ids)
        read_at = await newest_reading_at(connection, run_ids)
        tokens = {r.id: _token(r, shapes[r.run.id], headers[r.run.id], read_at.get(r.run.id)) for r in records}
        stale = [r for r in records if not self._is_known(r.id, tokens[r.id])]
        if stale:
            evidence = await _evidence(connection, stale, headers, shapes, read_at, self._clock.now())
            changed = await config_since(connection, [r.run.id for r in stale])
            asked = {
                r.id: (evidence[r.id], r, settings_taken_at(headers[r.run.id], changed.get(r.run.id))) for r in stale
            }
            # The analysis takes some milliseconds per job, so it runs outside the event loop.
            for job_id, finding in (await anyio.to_thread.run_sync(_findings, asked)).items():
                self._kept[job_id] = (tokens[job_id], self._clock.monotonic_s(), finding)
        now = self._clock.now()
        return [
            _case_now(JobCase(r, shapes[r.run.id], tuple(headers[r.run.id]), self._kept[r.id][2]), now) for r in records
        ]

    async def of_checkpoint(
        self, connection: AsyncConnection, job: JobRecord, run: RunRecord, record: CheckpointRecord
    ) -> JobEvidence:
        """Read the evidence on one checkpoint: it, those before it, and the readings taken while it was open."""
        header = record.header
        around = await list_around(connection, record, before=_CHECKPOINTS_COUNT, after=0)
        late = await late_barriers_of(connection, [run.id], around[0].header.triggered_at)
        end = header.triggered_at + timedelta(milliseconds=header.end_to_end_duration_ms or 0)
        if not header.status.is_terminal:
            end = self._clock.now()
        near = await readings_between(connection, [run.id], header.triggered_at - _PRESSURE_NEAR, end + _PRESSURE_NEAR)
        readings = near.get(run.id, ())
        if not readings:
            read_at = await newest_reading_at(connection, [run.id])
            readings = (await _newest_readings(connection, read_at)).get(run.id, ())
        shape = await shape_at(connection, run.id, header.triggered_at)
        details = await details_of(connection, [r.place for r in around])
        batches = await batches_of(connection, [r.place for r in around] if run.engine.is_micro_batched else [])
        exceptions = await newest_exceptions(connection, [run.id])
        return JobEvidence(
            topology=shape.topology,
            now=job.engine_now(self._clock.now()),
            config=shape.config,
            counts=run.counts,
            checkpoints=tuple(
                Checkpoint(r.header, details.get(r.place, ()), batches.get(r.place))
                for r in around
                if not is_lost(r, run)
            ),
            pressure=readings,
            placements=run.placements,
            late_barriers=late.get(run.id, {}),
            exceptions=exceptions.get(run.id, ()),
            restart_count=run.restart_count,
            is_micro_batched=run.engine.is_micro_batched,
        )

    def forget_others(self, job_ids: Iterable[JobId]) -> None:
        """Forget the findings of all other jobs."""
        wanted = set(job_ids)
        self._kept = {job_id: kept for job_id, kept in self._kept.items() if job_id in wanted}

    def _is_known(self, job_id: JobId, token: _Token) -> bool:
        kept = self._kept.get(job_id)
        return kept is not None and kept[0] == token and self._clock.monotonic_s() - kept[1] <= _KEPT_S


def _case_now(case: JobCase, now: datetime) -> JobCase:
    """Return the case as of now. A silent job gets a verdict of its own: its last state may no longer hold."""
    record = as_heard(case.record, now)
    if record is case.record:
        return case
    diagnosis = verdict_micro_batch.silent(record.run.observed_at)
    return replace(case, record=record, finding=replace(case.finding, diagnosis=diagnosis))


def _token(record: JobRecord, shape: RunShape, headers: Sequence[CheckpointRecord], read_at: datetime | None) -> _Token:
    ended = tuple((h.header.checkpoint_id, h.triggered_on) for h in headers if h.header.status.is_terminal)
    run = record.run
    return run.id, run.state, run.restart_count, run.failed_unlisted_count, shape.config, ended, read_at


async def _evidence(
    connection: AsyncConnection,
    records: Sequence[JobRecord],
    headers: Mapping[str, Sequence[CheckpointRecord]],
    shapes: Mapping[str, RunShape],
    read_at: Mapping[str, datetime],
    now: datetime,
) -> dict[JobId, JobEvidence]:
    run_ids = [r.run.id for r in records]
    usable = {r.run.id: [h for h in headers[r.run.id] if not is_lost(h, r.run)] for r in records}
    places = [h.place for rows in usable.values() for h in rows]
    details = await details_of(connection, places)
    batched = {r.run.id for r in records if r.run.engine.is_micro_batched}
    batches = await batches_of(connection, [p for p in places if p.run_id in batched])
    oldest = min((h.header.triggered_at for rows in usable.values() for h in rows), default=now)
    late = await late_barriers_of(connection, run_ids, oldest)
    readings = await _newest_readings(connection, {r: at for r, at in read_at.items() if r in usable})
    exceptions = await newest_exceptions(connection, run_ids)
    return {
        r.id: JobEvidence(
            topology=shapes[r.run.id].topology,
            now=r.engine_now(now),
            config=shapes[r.run.id].config,
            counts=r.run.counts,
            checkpoints=tuple(
                Checkpoint(h.header, details.get(h.place, ()), batches.get(h.place)) for h in usable[r.run.id]
            ),
            pressure=readings.get(r.run.id, ()),
            placements=r.run.placements,
            late_barriers=late.get(r.run.id, {}),
            exceptions=exceptions.get(r.run.id, ()),
            restart_count=r.run.restart_count,
            is_micro_batched=r.run.engine.is_micro_batched,
        )
        for r in records
    }


async def _newest_readings(connection: AsyncConnection, read_at: Mapping[str, datetime]) -> Mapping[str, Readings]:
    return await readings_since(connection, {run: at - _PRESSURE_WINDOW for run, at in read_at.items()})


_Asked = tuple[JobEvidence, JobRecord, SettingsTaken | None]


def _findings(asked: Mapping[JobId, _Asked]) -> dict[JobId, Finding]:
    return {job_id: _finding(*one) for job_id, one in asked.items()}


def _finding(evidence: JobEvidence, record: JobRecord, settings: SettingsTaken | None) -> Finding:
    completed = [c for c in evidence.checkpoints if c.header.status is CheckpointStatus.COMPLETED and c.details]
    path = None
    if completed:
        last = completed[-1]
        path = critical_path(last, evidence.topology, evidence.config, evidence.late(last.header.checkpoint_id))
    interval = (
        micro_batches.report(evidence.checkpoints, evidence.config).interval if evidence.is_micro_batched else None
    )
    most = backpressured_max(vertex_loads(evidence.pressure))
    return Finding(
        diagnosis=diagnose(evidence),
        dominant_phase=path.dominant_phase if path is not None else None,
        backpressured_max_ratio=most[1] if most is not None else None,
        checkpoint_count=sum(c.header.status.is_terminal for c in evidence.checkpoints),
        interval_ms=round(interval.ms) if interval is not None else None,
        advice=advise(
            evidence,
            engine=record.run.engine,
            version=record.engine_version,
            settings_since=None if settings is None else settings.first_trigger_at,
        ),
        settings=settings,
    )
