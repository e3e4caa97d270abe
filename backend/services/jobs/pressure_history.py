"""Answers requests for a job's backpressure over time, with the suspects at the end of the range."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.analysis.measures import pressure as analysis
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.verdict import barrier as verdict_barrier
from backend.analysis.verdict import case as cases
from backend.analysis.words.thresholds import PRESSURE_WINDOW_S
from backend.contracts.pressure_history import PressureHistoryOut, SubtaskHistoryOut, SuspectOut, VertexHistoryOut
from backend.domain.clock import Clock
from backend.domain.errors import UnknownEntityError
from backend.domain.ids import RunId, VertexId
from backend.domain.pressure import PressureMeasure
from backend.domain.topology import Topology
from backend.services.jobs.evidence import run_at
from backend.services.jobs.large_jobs import SUBTASKS_MAX, is_large_job
from backend.services.jobs.reader import TimeRange, bounded
from backend.store.jobs.pressure import newest_reading_at, readings_between, since_within
from backend.store.jobs.pressure_history import (
    HistoryRange,
    VertexBucket,
    last_run_between,
    reading_counts,
    subtask_buckets,
    vertex_buckets,
)
from backend.store.jobs.reader import JobRecord, get_job, newest_shapes, runs_between
from backend.store.postgres.connections import reading

BUCKETS_MAX: Final = 120
"""A range has at most about this many buckets."""
BUCKETS_MIN: Final = 30
"""The range of a job with many subtasks has fewer buckets, but at least about this many."""
VALUES_MAX: Final = 1_000_000
"""About this many values of subtasks are read for each measure, which limits the time of a request."""
_STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
RUNS_MAX: Final = 200
"""At most this many runs of a range are read."""
# A reading may be somewhat older than the observation that stored it.
_SLACK = timedelta(hours=1)


class PressureHistoryService:
    """Handles requests for backpressure over time."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def of_job(
        self, job_id: str, wanted: TimeRange, *, vertex_id: str | None, measure: PressureMeasure
    ) -> PressureHistoryOut:
        """Return the backpressure of each vertex and, if ``vertex_id`` is given, of each of its subtasks.

        The range and the result are on the engine's clock. A range without an end ends at the newest reading or, if it
        begins after that, now. A range without a start begins one hour before its end.

        Raises:
            UnknownEntityError: there is no such job, or ``vertex_id`` is not one of its vertices.
            InvalidInputError: the range ends before it begins.
        """
        async with reading(self._engine) as connection:
            job = await get_job(connection, job_id)
            offset = job.reading_offset
            since, until = bounded(wanted, await self._end(connection, job, wanted.since))
            begin, end = since - offset, until - offset
            slack = _SLACK + abs(timedelta(milliseconds=job.clock_offset_ms or 0))
            found = await runs_between(connection, job_id, begin - slack, end + slack, limit=RUNS_MAX + 1)
            runs = {r.id: r for r in found[:RUNS_MAX]}
            oldest = min((r.first_observed_at for r in runs.values()), default=None)
            left_out_before = None if oldest is None or len(found) <= RUNS_MAX else oldest + offset
            window = timedelta(seconds=PRESSURE_WINDOW_S)
            last = await last_run_between(connection, list(runs), end - window, end)
            run = job.run if last is None else runs[RunId(last)]
            shapes = await newest_shapes(connection, {run.id, job.run.id})
            topology = shapes[run.id].topology
            stored = _range(list(runs), topology, begin, end)
            buckets = await vertex_buckets(connection, stored)
            counts = await reading_counts(connection, stored)
            names = _names((topology, shapes[job.run.id].topology), buckets)
            if vertex_id is not None and vertex_id not in names:
                raise UnknownEntityError(kind="vertex", id=vertex_id)
            subtasks = {}
            if vertex_id is not None:
                subtasks = await subtask_buckets(connection, stored, vertex_id, measure)
            is_large = is_large_job(topology)
            recent = end - window
            if is_large and last is not None:
                recent = await since_within(connection, last, recent, end, most=SUBTASKS_MAX)
            readings = await readings_between(
                connection, [] if last is None else [last], recent, end, is_large=is_large
            )
        evidence = run_at(job, run, shapes[run.id]).evidence(now=until, readings=readings.get(run.id, ()), ahead=offset)
        begins = sorted({b.begin for b in buckets})
        vertices = _vertices(names, buckets, begins, topology)
        return PressureHistoryOut(
            since=since,
            until=until,
            bucket_s=stored.bucket_s,
            buckets=[b + offset for b in begins],
            vertices=vertices,
            subtasks=None if vertex_id is None else _subtasks(vertex_id, measure, subtasks, vertices, begins),
            suspects=None if last is None else await anyio.to_thread.run_sync(suspects_out, evidence),
            readings_count=counts.found,
            readings_used_count=counts.used,
            left_out_before=None if left_out_before is None or left_out_before <= since else left_out_before,
            as_of=self._clock.now(),
        )

    async def _end(self, connection: AsyncConnection, job: JobRecord, since: datetime | None) -> datetime:
        """Return the end of a range for which the request states no end. The result is on the engine's clock."""
        newest = (await newest_reading_at(connection, {job.run.id: job.run.observed_at})).get(job.run.id)
        end = (newest or job.run.observed_at) + timedelta(milliseconds=1)
        if since is not None and since >= end + job.reading_offset:
            end = max(end, self._clock.now())
        return end + job.reading_offset


def _range(run_ids: Sequence[str], topology: Topology, since: datetime, until: datetime) -> HistoryRange:
    subtask_count = max(1, sum(v.parallelism for v in topology.vertices))
    bucket_count = min(BUCKETS_MAX, max(BUCKETS_MIN, VALUES_MAX // subtask_count))
    step_s = bucket_s(until - since, bucket_count)
    used_max = max(1, VALUES_MAX // subtask_count // bucket_count)
    return HistoryRange(run_ids, since, until, step_s, used_max)


def bucket_s(length: timedelta, count: int) -> int:
    """Return the length of a bucket in seconds: the smallest round length that gives at most ``count`` buckets."""
    wanted_s = length.total_seconds() / count
    return next((step for step in _STEPS_S if step >= wanted_s), _STEPS_S[-1])


def suspects_out(evidence: JobEvidence) -> list[SuspectOut]:
    """Return the suspects that the readings alone show, most likely culprit first, with the reasons of a verdict."""
    case = cases.of_job(evidence)
    ranked = analysis.ranked(evidence.topology, analysis.suspects(evidence.topology, case.loads))
    return [
        SuspectOut(
            vertex_id=s.vertex_id,
            vertex=evidence.vertex_name(s.vertex_id),
            subtasks=list(s.full),
            kind=s.kind,
            reason=verdict_barrier.reason(case, s),
        )
        for s in ranked
    ]


def _names(graphs: Iterable[Topology], buckets: Sequence[VertexBucket]) -> dict[VertexId, str]:
    """Return the names of all vertices: those of the graphs in their order, then those that another graph had."""
    names: dict[VertexId, str] = {}
    for graph in graphs:
        names |= {v.id: v.name for v in graph.vertices if v.id not in names}
    return names | {b.vertex_id: b.vertex_id for b in buckets if b.vertex_id not in names}


def _vertices(
    names: Mapping[VertexId, str], buckets: Sequence[VertexBucket], begins: Sequence[datetime], topology: Topology
) -> list[VertexHistoryOut]:
    found: dict[VertexId, dict[datetime, VertexBucket]] = {}
    for bucket in buckets:
        found.setdefault(bucket.vertex_id, {})[bucket.begin] = bucket
    vertices = []
    for vertex_id, name in names.items():
        if vertex_id not in found:
            continue
        row = [found[vertex_id].get(b) for b in begins]
        senders = [found.get(v, {}) for v in topology.upstream(vertex_id)]
        vertices.append(
            VertexHistoryOut(
                vertex_id=vertex_id,
                vertex=name,
                is_source=topology.vertex(vertex_id) is not None and not topology.inputs(vertex_id),
                parallelism=max(b.subtask_count for b in found[vertex_id].values()),
                busy_ratio=[None if b is None else b.busy for b in row],
                backpressured_ratio=[None if b is None else b.backpressured for b in row],
                idle_ratio=[None if b is None else b.idle for b in row],
                busy_max_ratio=[None if b is None else b.busy_max for b in row],
                backpressured_max_ratio=[None if b is None else b.backpressured_max for b in row],
                queued_bytes=[None if b is None else b.queued_bytes for b in row],
                queued_max_bytes=[None if b is None else b.queued_max_bytes for b in row],
                time_to_consume_s=[
                    None if b is None else time_to_consume_s(b, [sent.get(b.begin) for sent in senders]) for b in row
                ],
                records_in_skew_ratio=[None if b is None else b.records_in_skew for b in row],
            )
        )
    return vertices


def time_to_consume_s(bucket: VertexBucket, senders: Sequence[VertexBucket | None]) -> float | None:
    """Return the time in seconds in which a vertex reads what is queued before it, at the rate of the bucket.

    ``senders`` are the buckets of its upstream vertices. Return None if a part is missing or the rate is 0. An empty
    queue takes no time at any rate.
    """
    parts = [bucket.queued_in_bytes, *(None if s is None else s.queued_out_bytes for s in senders)]
    known = [part for part in parts if part is not None]
    if not senders or len(known) < len(parts) or bucket.intake_bytes_per_s is None:
        return None
    if sum(known) == 0:
        return 0.0
    return round(sum(known) / bucket.intake_bytes_per_s, 3) if bucket.intake_bytes_per_s > 0 else None


def _subtasks(
    vertex_id: str,
    measure: PressureMeasure,
    values: Mapping[tuple[datetime, int], float],
    vertices: Sequence[VertexHistoryOut],
    begins: Sequence[datetime],
) -> SubtaskHistoryOut:
    count = next((v.parallelism for v in vertices if v.vertex_id == vertex_id), 0)
    rows = [[values.get((begin, i)) for begin in begins] for i in range(count)]
    return SubtaskHistoryOut(vertex_id=vertex_id, measure=measure, values=rows)
