"""Answers API requests about one job: its detail, verdict, runs, events and backpressure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import cast

import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.contracts import api
from backend.contracts.backpressure import BackpressureOut, PressurePointOut, VertexPressureOut
from backend.domain.clock import Clock
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Topology
from backend.domain.verdict import Basis
from backend.services.jobs.bounded_pressure import bounded_pressure
from backend.services.jobs.evidence import EvidenceReader, JobCase
from backend.services.jobs.fleet import FleetService
from backend.services.jobs.freshness import read_at
from backend.services.jobs.growth import GrowthReader, growth_out
from backend.services.jobs.large_jobs import SUBTASKS_MAX, is_large_job
from backend.services.jobs.replay_debt import debt_fields
from backend.services.micro_batches import batch_out, channels_out, folders_out, reported, signs_out, with_batches
from backend.services.paging import decode_cursor, page_of
from backend.services.presenting import counts_out, graph_out
from backend.store.jobs.pressure import newest_reading_at, readings_since, series, since_within
from backend.store.jobs.reader import get_job, list_events, list_runs, newest_exceptions, newest_shapes
from backend.store.jobs.restored import taken_by
from backend.store.postgres.connections import reading

_EXCEPTIONS_SHOWN = 10
_SERIES_POINTS_MAX = 500
_SERIES_DEFAULT = timedelta(hours=1)
# A rate is computed from two readings of a vertex, so the window must be long enough for two.
_LATEST_WINDOW = timedelta(seconds=90)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A time range from ``since`` (inclusive) to ``until`` (exclusive).

    If ``since`` or ``until`` is None, the range has no limit on that side.
    """

    since: datetime | None = None
    until: datetime | None = None


class JobService:
    """Answers API requests, each of which is about one job."""

    def __init__(self, engine: AsyncEngine, clock: Clock, evidence: EvidenceReader, fleet: FleetService) -> None:
        self._engine = engine
        self._clock = clock
        self._evidence = evidence
        self._fleet = fleet
        self._growth = GrowthReader(clock)

    async def detail(self, job_id: str, vertex_id: str | None = None) -> api.JobDetailOut:
        """Return the job with its graph, settings and counters.

        Of a very large job, only the vertex ``vertex_id`` has the hosts of its subtasks.

        Raises:
            UnknownEntityError: there is no such job.
        """
        async with reading(self._engine) as connection:
            record = await get_job(connection, job_id)
            (case,) = await self._evidence.cases(connection, [record])
            row = await self._fleet.row(connection, case)
            exceptions = await newest_exceptions(connection, [record.run.id], limit=_EXCEPTIONS_SHOWN)
            has_batches = record.run.engine.is_micro_batched
            batches = await with_batches(connection, case.headers if has_batches else ())
            of_channels = await reported(connection, [r for r, _ in batches], run=record.run)
            channels = await channels_out(connection, record, read_at(record))
            folders = await folders_out(connection, record.run)
            growth = await self._growth.of_job(connection, case)
            counts = record.run.counts
            origin = None if counts is None else counts.restored_from
            taken = None if counts is None or origin is None else await taken_by(connection, origin, counts.restored_at)
        record = case.record
        # The layout of a graph of a thousand vertices takes a tenth of a second.
        place = partial(graph_out, case.shape.topology, record.run.placements, vertex_id=vertex_id)
        vertices, edges = await anyio.to_thread.run_sync(place)
        return api.JobDetailOut.of(
            row,
            run=record.run,
            vertices=vertices,
            edges=edges,
            config=case.shape.config,
            counts=counts_out(record.run, taken),
            exceptions=[words for _, words in exceptions.get(record.run.id, ())],
            problems=list(record.run.problems),
            clock_offset_ms=record.clock_offset_ms,
            read_at_engine=record.read_at_engine,
            batches=[batch_out(r, batch, of_channels) for r, batch in batches],
            channels=channels,
            signs=signs_out(batches, case.shape.config),
            growth=growth_out(growth),
            folders=folders,
        )

    async def verdict(self, job_id: str) -> api.DiagnosisOut:
        """Return the diagnosis that ``barrierscope diagnose`` would print.

        Raises:
            UnknownEntityError: there is no such job.
        """
        async with reading(self._engine) as connection:
            record = await get_job(connection, job_id)
            (case,) = await self._evidence.cases(connection, [record])
        return diagnosis_out(case, self._clock.now())

    async def runs(self, job_id: str, *, cursor: str | None, limit: int) -> api.Page[api.RunOut]:
        """Return one page of the job's runs, newest first.

        Raises:
            UnknownEntityError: there is no such job.
            InvalidInputError: the cursor does not belong to this list.
        """
        before = cast("tuple[datetime, str] | None", decode_cursor(cursor, (datetime, str)))
        async with reading(self._engine) as connection:
            await get_job(connection, job_id)
            rows = await list_runs(connection, job_id, before=before, limit=limit + 1)
        items, following = page_of(rows, limit, lambda r: (r.started_at, r.id))
        return api.Page[api.RunOut].of(items=items, next=following, as_of=self._clock.now())

    async def events(self, job_id: str, *, cursor: str | None, limit: int) -> api.Page[api.JobEventOut]:
        """Return one page of the job's events, newest first.

        Raises:
            UnknownEntityError: there is no such job.
            InvalidInputError: the cursor does not belong to this list.
        """
        before = cast("tuple[datetime, str, str, str] | None", decode_cursor(cursor, (datetime, str, str, str)))
        async with reading(self._engine) as connection:
            await get_job(connection, job_id)
            rows = await list_events(connection, job_id, before=before, limit=limit + 1)
        items, following = page_of(rows, limit, lambda e: (e.at, e.run_id, e.kind, e.key))
        return api.Page[api.JobEventOut].of(items=items, next=following, as_of=self._clock.now())

    async def backpressure(self, job_id: str, wanted: TimeRange, vertex_id: str | None = None) -> BackpressureOut:
        """Return the latest backpressure reading of each vertex, or only of the vertex ``vertex_id``.

        If ``wanted`` has a start or an end, also return a series of means over the subtasks of each vertex in that
        range. The range and the series are on the engine's clock.

        Raises:
            UnknownEntityError: there is no such job.
            InvalidInputError: the range ends before it begins.
        """
        now = self._clock.now()
        async with reading(self._engine) as connection:
            record = await get_job(connection, job_id)
            run_id = record.run.id
            shapes = await newest_shapes(connection, [run_id])
            newest = await newest_reading_at(connection, {run_id: record.run.observed_at})
            windows = {
                run: await since_within(connection, run, at - _LATEST_WINDOW, at, most=SUBTASKS_MAX)
                for run, at in newest.items()
            }
            is_large = is_large_job(shapes[run_id].topology)
            readings = (await readings_since(connection, windows, is_large=is_large)).get(run_id, ())
            points = []
            if wanted.since is not None or wanted.until is not None:
                # The range is on the engine's clock, like the times of checkpoints. The times of readings may be on
                # another clock, so they are converted.
                since, until = bounded(wanted, record.engine_now(now))
                offset = record.reading_offset
                found = await series(connection, [run_id], since - offset, until - offset, limit=_SERIES_POINTS_MAX)
                points = [replace(p, at=p.at + offset) for p in found]
        topology = shapes[run_id].topology

        def newest_of_each() -> list[VertexPressureOut]:
            return bounded_pressure(latest_pressure(topology, readings, vertex_id), vertex_id)

        return BackpressureOut(
            vertices=await anyio.to_thread.run_sync(newest_of_each),
            series=[PressurePointOut.model_validate(p) for p in points],
            as_of=now,
        )


def diagnosis_out(case: JobCase, now: datetime) -> api.DiagnosisOut:
    """Convert a job's diagnosis to the API's shape."""
    return api.DiagnosisOut(
        job=case.record.name,
        job_id=case.record.id,
        health=case.finding.diagnosis.health,
        verdict=api.VerdictOut.model_validate(case.finding.diagnosis.verdict),
        as_of=now,
        checkpoints_considered=case.finding.checkpoint_count,
        **debt_fields(case, case.finding, now),
    )


def latest_pressure(
    topology: Topology, readings: Sequence[VertexPressure], vertex_id: str | None = None
) -> list[VertexPressureOut]:
    """Return the latest reading of each vertex, or of one, sources first, with its rates in records per second.

    ``readings`` must be sorted oldest first. The rates are the engine's own. If it reports none, they are those since
    the previous reading of the same vertex, and reconstructed.
    """
    latest: dict[VertexId, VertexPressure] = {}
    before: dict[VertexId, VertexPressure] = {}
    for reading_ in readings:
        if vertex_id not in (None, reading_.vertex_id):
            continue
        if reading_.vertex_id in latest:
            before[reading_.vertex_id] = latest[reading_.vertex_id]
        latest[reading_.vertex_id] = reading_
    names = {v.id: v.name for v in topology.vertices}
    order = [v for v in names if v in latest] + [v for v in latest if v not in names]
    sources = {v for v in names if not topology.upstream(v)}
    return [_pressure_out(names.get(v, v), latest[v], before.get(v), is_source=v in sources) for v in order]


def _pressure_out(
    name: str, now: VertexPressure, before: VertexPressure | None, *, is_source: bool
) -> VertexPressureOut:
    metered = now.records_out_per_s if is_source else now.records_in_per_s
    is_metered = any(rate is not None for rate in metered)
    rates = list(metered) if is_metered else _counted_rates(now, before, is_source=is_source)
    basis = Basis.MEASURED if is_metered else Basis.RECONSTRUCTED
    is_known = any(rate is not None for rate in rates)
    return VertexPressureOut.of(
        now,
        vertex=name,
        is_source=is_source,
        records_per_s=rates,
        records_per_s_basis=basis if is_known else None,
    )


def _counted_rates(now: VertexPressure, before: VertexPressure | None, *, is_source: bool) -> list[float | None]:
    if before is None:
        return []
    earlier, counts = (r.records_out_count if is_source else r.records_in_count for r in (before, now))
    if len(earlier) != len(counts):
        return []
    elapsed_s = (now.observed_at - before.observed_at).total_seconds()
    if elapsed_s <= 0:
        return []
    # A counter decreases only if the task restarted. The rate is then unknown.
    return [
        None if a is None or b is None or b < a else (b - a) / elapsed_s for a, b in zip(earlier, counts, strict=True)
    ]


def bounded(wanted: TimeRange, now: datetime) -> tuple[datetime, datetime]:
    """Return the limits of a range. Without an end it ends ``now``; without a start it is one hour long.

    Raises:
        InvalidInputError: the range ends before it begins.
    """
    until = wanted.until or now
    since = wanted.since or until - _SERIES_DEFAULT
    if since >= until:
        problem = FieldProblem(
            "from", f"{since.isoformat()} is not before {until.isoformat()}", "an instant before `to`"
        )
        raise InvalidInputError([problem], what="query")
    return since, until
