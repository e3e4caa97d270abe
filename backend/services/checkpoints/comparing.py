"""Compares two checkpoints, and chooses the healthy checkpoint that one is compared with by default.

They may be of two jobs. The second one is then read as if its vertices had the ids of the first one's graph, so that
everything below compares vertices by id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.analysis.health.health import slow_limit_ms
from backend.analysis.measures.comparison import (
    MeasureDifference,
    Side,
    batch_parts,
    cause_of,
    headline,
    slowest_of,
    subtask_differences,
    vertex_differences,
)
from backend.analysis.measures.matching import Matched, matched
from backend.analysis.measures.phases import VertexPhases, checkpoint_phases
from backend.analysis.numbers.statistics import median
from backend.analysis.words import sentences as say
from backend.contracts import api
from backend.contracts.comparing import (
    BatchPartDifferenceOut,
    CauseOut,
    CheckpointComparisonOut,
    ComparedOut,
    LoadPairOut,
    MeasureDifferenceOut,
    OpenedVertexOut,
    SettingPairOut,
    SubtaskDifferenceOut,
    VertexDifferenceOut,
)
from backend.contracts.freshness import FreshnessOut
from backend.contracts.subtask_matrix import MatrixUnit
from backend.domain.checkpoint import (
    Checkpoint,
    CheckpointConfig,
    CheckpointHeader,
    CheckpointKind,
    CheckpointStatus,
    SubtaskMeasure,
)
from backend.domain.clock import Clock
from backend.domain.errors import FieldProblem, InvalidInputError, UnknownEntityError
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.topology import Placement, Topology, Vertex
from backend.domain.verdict import Phase
from backend.services.checkpoints.compared_jobs import (
    LOAD_READINGS_MAX,
    ComparedJob,
    job_out,
    load_out,
    names_of,
    settings_out,
)
from backend.services.checkpoints.reader import CheckpointKey
from backend.services.jobs.evidence import EvidenceReader, is_lost
from backend.services.jobs.freshness import FINAL, freshness_now
from backend.services.micro_batches import Reported, batch_out
from backend.services.presenting import checkpoint_out, host_of
from backend.store.checkpoints.reader import (
    CheckpointFilter,
    CheckpointRecord,
    get_checkpoint,
    last_completed_before,
    list_around,
    list_checkpoints,
    live_of,
)
from backend.store.jobs.pressure import WindowLoad, window_loads
from backend.store.jobs.reader import JobRecord, RunRecord, get_job, get_run, shape_at
from backend.store.postgres.connections import reading

# Readings up to this long before the trigger and after the end count as the load of a checkpoint.
_LOAD_NEAR: Final = timedelta(seconds=15)
# The range of a job's normal durations is that of its newest completed checkpoints.
_USUAL_COUNT: Final = 100


@dataclass(frozen=True, slots=True)
class ComparedCheckpoint:
    """Everything that was read about one of the two checkpoints."""

    job: JobRecord
    run: RunRecord
    record: CheckpointRecord
    checkpoint: Checkpoint
    topology: Topology
    config: CheckpointConfig | None
    phases: Mapping[VertexId, VertexPhases]
    loads: Mapping[VertexId, WindowLoad]
    previous_id: int | None = None
    next_id: int | None = None
    freshness: FreshnessOut | None = None

    @property
    def side(self) -> ComparedJob:
        """The job at the time of the checkpoint."""
        return ComparedJob.of(self.job, self.run, self.config, self.topology)

    def under(self, ids: Mapping[VertexId, VertexId]) -> ComparedCheckpoint:
        """Return the same with other ids of vertices. A vertex that ``ids`` does not have keeps its own."""
        if all(old == new for old, new in ids.items()):
            return self

        def new(vertex_id: VertexId) -> VertexId:
            return ids.get(vertex_id, vertex_id)

        topology = replace(
            self.topology,
            vertices=tuple(replace(v, id=new(v.id)) for v in self.topology.vertices),
            edges=tuple(replace(e, source=new(e.source), target=new(e.target)) for e in self.topology.edges),
        )
        placements = tuple(replace(p, vertex_id=new(p.vertex_id)) for p in self.run.placements)
        return replace(
            self,
            run=replace(self.run, placements=placements),
            topology=topology,
            phases={new(v): phases for v, phases in self.phases.items()},
            loads={new(v): load for v, load in self.loads.items()},
        )


class ComparisonService:
    """Handles requests to compare checkpoints."""

    def __init__(self, engine: AsyncEngine, clock: Clock, evidence: EvidenceReader) -> None:
        self._engine = engine
        self._clock = clock
        self._evidence = evidence

    async def of(
        self,
        a: CheckpointKey,
        b: CheckpointKey | None,
        *,
        other: str | None = None,
        vertex_id: str | None = None,
        measure: SubtaskMeasure = SubtaskMeasure.DURATION,
        limit: int = 20,
    ) -> CheckpointComparisonOut:
        """Return the comparison of two checkpoints.

        Without ``b``, it is the last healthy checkpoint before ``a`` of the job ``other``, or else of its own job. With
        ``vertex_id``, the result includes the ``limit`` subtasks of that vertex that differ most in ``measure``.

        Raises:
            UnknownEntityError: there is no such job, run, checkpoint or vertex.
            InvalidInputError: both are the same checkpoint.
        """
        if a == b:
            raise InvalidInputError(
                [FieldProblem("b", "is the same checkpoint as `a`", "another checkpoint of the job")], what="query"
            )
        async with reading(self._engine) as connection:
            job = await get_job(connection, a.job_id)
            name = (other or a.job_id) if b is None else b.job_id
            beside = job if name == a.job_id else await get_job(connection, name)
            first = await self._read(connection, job, a)
            choice = None
            if b is None:
                chosen, choice = await _healthy_before(connection, first, beside)
                b = None if chosen is None else CheckpointKey(beside.id, chosen.run_id, chosen.header.checkpoint_id)
            second = None if b is None else await self._read(connection, beside, b)
        return await anyio.to_thread.run_sync(
            lambda: compared(
                first,
                second,
                choice=choice,
                opened=None if vertex_id is None else (VertexId(vertex_id), measure, limit),
                as_of=self._clock.now(),
            )
        )

    async def _read(self, connection: AsyncConnection, job: JobRecord, key: CheckpointKey) -> ComparedCheckpoint:
        run = await get_run(connection, key.job_id, key.run_id)
        record = await get_checkpoint(connection, key.run_id, key.checkpoint_id)
        header = record.header
        evidence = await self._evidence.of_checkpoint(connection, job, run, record, is_judged=True)
        own = next((c for c in evidence.checkpoints if c.header == header), Checkpoint(header))
        if not header.status.is_terminal and not own.details:
            live = await live_of(connection, run.id, key.checkpoint_id)
            own = own if live is None else Checkpoint(header, live.details)
        late = evidence.late(header.checkpoint_id)
        around = await list_around(connection, record, before=1, after=1)
        ids = [r.header.checkpoint_id for r in around]
        at = next(i for i, r in enumerate(around) if r.place == record.place)
        since, until = _load_window(header, job.engine_now(self._clock.now()))
        offset = job.reading_offset
        is_open = not header.status.is_terminal and not is_lost(record, run)
        return ComparedCheckpoint(
            job=job,
            run=run,
            record=record,
            checkpoint=own,
            topology=evidence.topology,
            config=evidence.config,
            phases=checkpoint_phases(own, evidence.config, late),
            loads=await window_loads(connection, run.id, since - offset, until - offset, limit=LOAD_READINGS_MAX),
            previous_id=ids[at - 1] if at > 0 else None,
            next_id=ids[at + 1] if at + 1 < len(ids) else None,
            freshness=await freshness_now(connection, job, self._clock.now()) if is_open else FINAL,
        )


def _load_window(header: CheckpointHeader, now: datetime) -> tuple[datetime, datetime]:
    took_ms = header.end_to_end_duration_ms
    end = now if took_ms is None else header.triggered_at + timedelta(milliseconds=took_ms)
    return header.triggered_at - _LOAD_NEAR, max(end, header.triggered_at) + _LOAD_NEAR


async def _healthy_before(
    connection: AsyncConnection, a: ComparedCheckpoint, job: JobRecord
) -> tuple[CheckpointRecord | None, str]:
    """Return the last healthy checkpoint of ``job`` before ``a``, and why it was chosen or why there is none.

    Of another job without one, it is the newest checkpoint that has ended.
    """
    at, before, of = a.record.header.triggered_at, f"before #{a.record.header.checkpoint_id}", ""
    is_own = job.id == a.job.id
    if not is_own:
        # The clocks of two engines may differ.
        at += timedelta(milliseconds=(job.clock_offset_ms or 0) - (a.job.clock_offset_ms or 0))
        is_named = job.name != a.job.name
        of = f" of {job.name}" if is_named else f" on {job.target_name}"
        # The numbers of two jobs have no order, so the sentence states that of their triggers.
        before = f"triggered earlier than #{a.record.header.checkpoint_id}"
        before += f" of {a.job.name}" if is_named else f" on {a.job.target_name}"
    wanted = CheckpointFilter(CheckpointStatus.COMPLETED, until=at)
    newest = await list_checkpoints(connection, job.id, wanted, before=None, limit=_USUAL_COUNT)
    limit = slow_limit_ms(
        a.config if is_own else (await shape_at(connection, job.run.id, at - job.reading_offset)).config
    )
    deeper = None
    # A deeper search follows the runs of the job of ``a``.
    if is_own and limit is not None and not any(_is_shorter(r, limit) for r in newest):
        deeper = await last_completed_before(connection, a.record, faster_than_ms=int(limit))
    found, why = healthy_among(newest, before, of=of, limit_ms=limit, deeper=deeper)
    if found is None and not is_own:
        # Two jobs can be compared even if the other one never was healthy.
        any_newest = await list_checkpoints(connection, job.id, CheckpointFilter(), before=None, limit=_USUAL_COUNT)
        found = next((r for r in any_newest if r.header.status.is_terminal), None)
        if found is not None:
            chosen = f"#{found.header.checkpoint_id}{of} was chosen: the newest one that has ended."
            why = f"{chosen} None {before} completed."
    return found, why


def healthy_among(
    newest: Sequence[CheckpointRecord],
    before: str,
    *,
    of: str = "",
    limit_ms: float | None,
    deeper: CheckpointRecord | None = None,
) -> tuple[CheckpointRecord | None, str]:
    """Choose the healthy checkpoint, and state why.

    ``newest`` are the newest completed checkpoints before the other side, newest first. ``before`` says so in words,
    such as *before #4*, and ``of`` names the job of ``newest`` if it is another one. ``limit_ms`` is the duration from
    which the job's checkpoints count as slow. ``deeper`` is an older checkpoint that was not slow.
    """
    usual = [r for r in newest if r.header.kind is CheckpointKind.CHECKPOINT]
    if limit_ms is not None:
        fast = next((r for r in usual if _is_shorter(r, limit_ms)), deeper)
        if fast is not None:
            words = f"the newest completed one {before} that was not slow (shorter than {say.duration(limit_ms)})"
            return fast, f"#{fast.header.checkpoint_id}{of} was chosen: {words}."
    middle = median(r.header.end_to_end_duration_ms for r in usual)
    near = None if middle is None else next((r for r in usual if _is_shorter(r, middle + 1)), None)
    if near is None or middle is None:
        return None, f"No completed checkpoint {before} is known, so there is none to compare it with."
    slow = "" if limit_ms is None else f" None {before} was shorter than {say.duration(limit_ms)}."
    return near, (
        f"#{near.header.checkpoint_id}{of} was chosen: the newest completed one {before} that took at most the median "
        f"of the last {len(usual)}, {say.duration(middle)}.{slow}"
    )


def _is_shorter(record: CheckpointRecord, limit_ms: float) -> bool:
    took = record.header.end_to_end_duration_ms
    return record.header.kind is CheckpointKind.CHECKPOINT and took is not None and took < limit_ms


# --- the response -------------------------------------------------------------------------------------------------


def compared(
    a: ComparedCheckpoint,
    b: ComparedCheckpoint | None,
    *,
    choice: str | None,
    opened: tuple[VertexId, SubtaskMeasure, int] | None,
    as_of: datetime,
) -> CheckpointComparisonOut:
    """Compare two checkpoints that were read. ``opened`` is a vertex, a measure and a number of subtasks.

    Raises:
        UnknownEntityError: neither checkpoint has the opened vertex.
    """
    if b is None:
        return CheckpointComparisonOut(
            job_id=a.job.id,
            job=a.job.name,
            capabilities=a.run.engine,
            headline=choice or "",
            choice=choice,
            a=_compared_out(a, ()),
            b=None,
            difference_ms=None,
            cause=None,
            as_of=as_of,
        )
    pairs = matched(a.topology, b.topology, is_same_job=a.job.id == b.job.id)
    settings = _settings_out(a, b, pairs)
    b = b.under(pairs.ids)
    sides = _side(a, b), _side(b, a)
    cause, differences = cause_of(*sides), vertex_differences(*sides)
    late = _latest(a, b, [v.vertex_id for v in differences])
    took = a.record.header.end_to_end_duration_ms, b.record.header.end_to_end_duration_ms
    are_cut = all(s.record.header.failure_reason is FailureReason.EXPIRED for s in (a, b))
    is_batch = a.checkpoint.batch is not None or b.checkpoint.batch is not None
    return CheckpointComparisonOut(
        job_id=a.job.id,
        job=a.job.name,
        capabilities=a.run.engine,
        headline=headline(*sides, cause),
        choice=choice,
        a=_compared_out(a, pairs.only_first),
        b=_compared_out(b, pairs.only_second),
        difference_ms=None if took[0] is None or took[1] is None or are_cut else took[0] - took[1],
        cause=None if cause is None else CauseOut.model_validate(cause),
        vertices=[
            VertexDifferenceOut(
                vertex_id=v.vertex_id,
                vertex=v.vertex,
                a_subtask_count=_count(a, v.vertex_id),
                b_subtask_count=_count(b, v.vertex_id),
                a_slowest=_slowest(a, v.vertex_id) if v.vertex_id in late else None,
                b_slowest=_slowest(b, v.vertex_id) if v.vertex_id in late else None,
                measures=_measures(v.measures),
            )
            for v in differences
        ],
        opened=None if opened is None else _opened(a, b, sides, *opened),
        batch_parts=[
            BatchPartDifferenceOut(
                phase=phase,
                a_ms=mine,
                b_ms=yours,
                difference_ms=None if mine is None or yours is None else mine - yours,
            )
            for phase, mine, yours in (batch_parts(*sides) if is_batch else ())
        ],
        settings=settings,
        loads=_loads(a, b),
        as_of=as_of,
    )


# Vertices whose slowest subtasks are shown, so that the comparison of a thousand vertices is not too large.
_SLOWEST_MAX = 100


def _latest(a: ComparedCheckpoint, b: ComparedCheckpoint, vertices: Sequence[VertexId]) -> Set[VertexId]:
    """Return the vertices whose slowest subtasks are shown: those that acknowledged last, or not at all."""

    def latest_ms(one: ComparedCheckpoint, vertex_id: VertexId) -> float:
        phases = one.phases.get(vertex_id)
        if phases is None:
            return 0.0
        slowest = phases.slowest_subtask
        return float("inf") if slowest is None or phases.pending else float(phases.ack_ms[slowest])

    return set(sorted(vertices, key=lambda v: -max(latest_ms(a, v), latest_ms(b, v)))[:_SLOWEST_MAX])


def _side(one: ComparedCheckpoint, other: ComparedCheckpoint) -> Side:
    record, number = one.record, one.record.header.checkpoint_id
    is_ambiguous = number == other.record.header.checkpoint_id
    noun = "batch " if one.checkpoint.batch is not None else "#"
    whose = names_of(one.side, other.side)
    if whose is not None:
        more = f" of {whose[0]}" if one.job.name != other.job.name else f" on {whose[0]}"
    else:
        more = f" of run {record.run_id}" if is_ambiguous else ""
    return Side(
        name=f"{noun}{number}{more}",
        checkpoint=one.checkpoint,
        topology=one.topology,
        phases=one.phases,
        maxima_ms={
            Phase.START_DELAY: record.start_delay_max_ms,
            Phase.ALIGNMENT: record.alignment_max_ms,
            Phase.SYNC: record.sync_max_ms,
            Phase.ASYNC: record.async_max_ms,
        },
    )


def _compared_out(one: ComparedCheckpoint, only: Sequence[Vertex]) -> ComparedOut:
    batch = one.checkpoint.batch
    return ComparedOut(
        job=job_out(one.side, only),
        checkpoint=checkpoint_out(one.record, is_lost=is_lost(one.record, one.run), config=one.config),
        previous_id=one.previous_id,
        next_id=one.next_id,
        are_arrays_removed=one.record.has_maxima and not one.checkpoint.details,
        batch=None if batch is None else batch_out(one.record, batch, Reported()),
        freshness=one.freshness,
    )


def _measures(differences: Sequence[MeasureDifference]) -> list[MeasureDifferenceOut]:
    return [
        MeasureDifferenceOut.of(m, unit=MatrixUnit.BYTES if m.measure.is_bytes else MatrixUnit.MS) for m in differences
    ]


def _count(one: ComparedCheckpoint, vertex_id: VertexId) -> int | None:
    phases = one.phases.get(vertex_id)
    return None if phases is None else len(phases)


def _slowest(one: ComparedCheckpoint, vertex_id: VertexId) -> api.SubtaskPhasesOut | None:
    phases = one.phases.get(vertex_id)
    return None if phases is None else _subtask(one, vertex_id, slowest_of(phases))


def _subtask(one: ComparedCheckpoint, vertex_id: VertexId, subtask: int | None) -> api.SubtaskPhasesOut | None:
    phases = one.phases.get(vertex_id)
    if phases is None or subtask is None or subtask >= len(phases):
        return None
    placements: Sequence[Placement] = one.run.placements
    return api.SubtaskPhasesOut.of(phases[subtask], host=host_of(placements, vertex_id, subtask))


def _opened(
    a: ComparedCheckpoint,
    b: ComparedCheckpoint,
    sides: tuple[Side, Side],
    vertex_id: VertexId,
    measure: SubtaskMeasure,
    limit: int,
) -> OpenedVertexOut:
    counts = [n for n in (_count(a, vertex_id), _count(b, vertex_id)) if n is not None]
    vertex = a.topology.vertex(vertex_id) or b.topology.vertex(vertex_id)
    if vertex is None and not counts:
        raise UnknownEntityError(kind="vertex", id=vertex_id)
    return OpenedVertexOut(
        vertex_id=vertex_id,
        vertex=vertex_id if vertex is None else vertex.name,
        measure=measure,
        subtask_count=max(counts, default=0),
        subtasks=[
            SubtaskDifferenceOut(
                subtask=s.subtask,
                a=_subtask(a, vertex_id, s.subtask),
                b=_subtask(b, vertex_id, s.subtask),
                measures=_measures(s.measures),
            )
            for s in subtask_differences(*sides, vertex_id, measure, limit=limit)
        ],
    )


def _settings_out(a: ComparedCheckpoint, b: ComparedCheckpoint, pairs: Matched) -> list[SettingPairOut]:
    return settings_out(a.side, b.side, (pairs.only_first, pairs.only_second))


def _loads(a: ComparedCheckpoint, b: ComparedCheckpoint) -> list[LoadPairOut]:
    names = {v.id: v.name for side in (b, a) for v in side.topology.vertices}
    order = dict.fromkeys([v.id for side in (a, b) for v in side.topology.vertices] + [*a.loads, *b.loads])
    return [
        LoadPairOut(vertex_id=v, vertex=names.get(v, v), a=load_out(a.loads.get(v)), b=load_out(b.loads.get(v)))
        for v in order
        if v in a.loads or v in b.loads
    ]
