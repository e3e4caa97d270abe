"""Returns one checkpoint (its subtasks' phases, critical path, verdict and barriers), and lists of checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeAlias, cast

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.analysis.assembling import readings_around
from backend.analysis.health.health import slow_limit_ms
from backend.analysis.measures.critical_path import CriticalPath, Phases, critical_path, kept_pace_ms, with_persistence
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.measures.phases import checkpoint_phases
from backend.analysis.numbers.arrays import highest_of
from backend.analysis.numbers.statistics import highest
from backend.analysis.verdict.verdict import checkpoint_verdict
from backend.contracts import api
from backend.contracts.barriers import BarrierEventOut, BarriersOut
from backend.contracts.causes import CriticalPathOut
from backend.domain.barriers import BarrierEvent
from backend.domain.checkpoint import Checkpoint, CheckpointStatus, LateBarrier, largest
from backend.domain.clock import Clock
from backend.domain.errors import StoreUnavailableError, TooLargeError, UnknownEntityError
from backend.domain.verdict import Basis, Verdict
from backend.services.checkpoints.document_subtasks import in_document
from backend.services.checkpoints.reconstruction import check_events, reconstructed_events
from backend.services.checkpoints.restoring import restoring_out
from backend.services.jobs.evidence import EvidenceReader, is_lost
from backend.services.jobs.freshness import FINAL, freshness_now
from backend.services.jobs.large_jobs import SUBTASKS_MAX
from backend.services.long_work import LongWork
from backend.services.micro_batches import batch_out, reported
from backend.services.paging import decode_cursor, page_of
from backend.services.presenting import checkpoint_link, checkpoint_out, phases_out
from backend.store.checkpoints.reader import (
    CheckpointFilter,
    CheckpointRecord,
    LiveRecord,
    barriers_of,
    get_checkpoint,
    has_barriers,
    last_completed_before,
    list_around,
    list_checkpoints,
    live_of,
)
from backend.store.checkpoints.verdicts import keep_verdict, verdict_of
from backend.store.jobs.reader import JobRecord, RunRecord, get_job, get_run, newest_configs
from backend.store.postgres.connections import reading, writing

_NOT_MEASURED = (
    "reconstructed from what this engine's REST reports of each subtask (first barrier, snapshot, acknowledgement);"
    " it does not report channels"
)


# A verdict is not final before this time after the end of the checkpoint. Readings of backpressure up to a minute after
# the end count for the verdict, and details may be stored some polls after the end.
SETTLED_AFTER = timedelta(seconds=150)
# A collector that falls behind reads details last. Details that are not stored after this time are not expected any
# more.
_ALL_WITHIN = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class CheckpointKey:
    """Identifies a checkpoint in the API."""

    job_id: str
    run_id: str
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class JudgedCheckpoint:
    """The verdict on one checkpoint, and its critical path if its subtasks are known."""

    critical_path: CriticalPathOut | None
    verdict: api.VerdictOut


class Stage(StrEnum):
    """How final a stored verdict is."""

    EARLY = "early"
    """More evidence is expected: readings, details, or both. A verdict from as much evidence or more replaces it."""
    WITHOUT_DETAILS = "without_details"
    """Only the checkpoint's details may still come. Only a verdict from more evidence replaces it."""
    FINAL = "final"
    """Nothing replaces it."""


Weight: TypeAlias = tuple[bool, int, int]
"""How much evidence a verdict was computed from. More evidence has a greater weight."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A stored verdict. ``document`` is what is stored; ``judged`` is None if it has an unknown form.

    Later, retention removes readings and the arrays of checkpoints. The verdict must not change because of that, and a
    new version of the analysis does not change it either.
    """

    judged: JudgedCheckpoint | None
    weight: Weight
    stage: Stage
    document: Mapping[str, Any]

    def is_replaced_by(self, weight: Weight) -> bool:
        """Return whether a new verdict from evidence of this weight replaces the stored one."""
        if self.stage is Stage.FINAL:
            return False
        return weight > self.weight or (weight == self.weight and self.stage is Stage.EARLY)


@dataclass(frozen=True, slots=True)
class Opened:
    """A checkpoint with its job, its run, its last live reading and the evidence for its verdict."""

    job: JobRecord
    run: RunRecord
    record: CheckpointRecord
    checkpoint: Checkpoint
    live: LiveRecord | None
    evidence: JobEvidence
    kept: Kept | None = None
    """The stored verdict, if there is one."""

    @property
    def judged(self) -> JudgedCheckpoint | None:
        """The stored verdict if it is final. ``evidence`` then usually has only this checkpoint and no readings."""
        return self.kept.judged if self.kept is not None and self.kept.stage is Stage.FINAL else None

    @property
    def late(self) -> tuple[LateBarrier, ...]:
        """The known first barriers of subtasks that had not acknowledged."""
        return self.evidence.late(self.record.header.checkpoint_id)


class CheckpointService:
    """Handles requests for checkpoints."""

    def __init__(
        self, engine: AsyncEngine, clock: Clock, evidence: EvidenceReader, work: LongWork | None = None
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._evidence = evidence
        self.work = work or LongWork()

    async def page(
        self, job_id: str, wanted: CheckpointFilter, *, cursor: str | None, limit: int
    ) -> api.Page[api.CheckpointOut]:
        """Return one page of the checkpoints of all runs of a job, newest first.

        Raises:
            UnknownEntityError: there is no such job.
            InvalidInputError: the cursor does not belong to this list.
        """
        before = cast("tuple[datetime, int, str] | None", decode_cursor(cursor, (datetime, int, str)))
        async with reading(self._engine) as connection:
            await get_job(connection, job_id)
            records = await list_checkpoints(connection, job_id, wanted, before=before, limit=limit + 1)
            items, following = page_of(records, limit, lambda r: r.cursor)
            found = await shown(connection, items)
        return api.Page[api.CheckpointOut](items=found, next=following, as_of=self._clock.now())

    async def latest(self, job_id: str, status: CheckpointStatus | None) -> api.CheckpointOut:
        """Return a job's newest checkpoint, or its newest with ``status`` if that is set.

        Raises:
            UnknownEntityError: there is no such job, or it has no such checkpoint.
        """
        async with reading(self._engine) as connection:
            await get_job(connection, job_id)
            records = await list_checkpoints(connection, job_id, CheckpointFilter(status), before=None, limit=1)
            if not records:
                raise UnknownEntityError(kind="checkpoint", id=f"latest {status.value}" if status else "latest")
            return (await shown(connection, records))[0]

    async def detail(self, key: CheckpointKey) -> api.CheckpointDetailOut:
        """Return one checkpoint with its subtasks; of a large one, only with those that matter for the verdict.

        Raises:
            UnknownEntityError: there is no such job, run or checkpoint.
            TooLargeError: the checkpoint has too many subtasks.
        """
        async with reading(self._engine) as connection:
            opened = await self.open(connection, key)
            check_size(opened.record)
            has_events = await has_barriers(connection, opened.record.place)
            around = await list_around(connection, opened.record, before=1, after=1)
            of_channels = await reported(
                connection, [] if opened.checkpoint.batch is None else [opened.record], run=opened.run
            )
            # A checkpoint that has ended, or whose run has, does not change any more.
            is_open = not opened.record.header.status.is_terminal and not is_lost(opened.record, opened.run)
            dated = await freshness_now(connection, opened.job, self._clock.now()) if is_open else FINAL
            limit = slow_limit_ms(opened.evidence.config)
            healthy = await last_completed_before(
                connection, opened.record, faster_than_ms=int(limit) if limit is not None else None
            )
        judged = await self._judged(opened)
        config = opened.evidence.config
        ids = [r.header.checkpoint_id for r in around]
        at = next(i for i, r in enumerate(around) if r.place == opened.record.place)
        vertices, start_delay_max_ms = await self.work.run(_vertices, opened, judged)
        return api.CheckpointDetailOut(
            **(
                dict(checkpoint_out(opened.record, is_lost=is_lost(opened.record, opened.run), config=config))
                | {"start_delay_max_ms": start_delay_max_ms}
            ),
            job=opened.job.name,
            timeout_ms=config.timeout_ms if config is not None else None,
            aligned_timeout_ms=config.aligned_timeout_ms if config is not None else None,
            vertices=vertices,
            critical_path=judged.critical_path,
            verdict=judged.verdict,
            has_barriers=has_events,
            are_arrays_removed=opened.record.has_maxima and not opened.checkpoint.details,
            engine=opened.run.engine.kind,
            capabilities=opened.run.engine,
            batch=(
                None
                if opened.checkpoint.batch is None
                else batch_out(opened.record, opened.checkpoint.batch, of_channels)
            ),
            restoring=restoring_out(
                opened.checkpoint,
                opened.run.engine,
                opened.evidence.topology,
                # Flink reports at-least-once for a job without periodic checkpoints, which says nothing of others.
                None if config is None or config.is_off else config.guarantee,
            ),
            last_healthy_link=_link(healthy),
            previous_id=ids[at - 1] if at > 0 else None,
            next_id=ids[at + 1] if at + 1 < len(ids) else None,
            observed_at=opened.record.observed_at,
            freshness=dated,
            clock_offset_ms=opened.job.clock_offset_ms,
        )

    async def verdict(self, key: CheckpointKey) -> api.VerdictOut:
        """Return the verdict on one checkpoint, which says what delayed it.

        Raises:
            UnknownEntityError: there is no such job, run or checkpoint.
        """
        async with reading(self._engine) as connection:
            opened = await self.open(connection, key)
        return (await self._judged(opened)).verdict

    async def barriers(self, key: CheckpointKey, vertex: str | None = None) -> BarriersOut:
        """Return a checkpoint's barrier events, or those at the subtasks of one vertex.

        They are measured if the engine reports barrier events, and otherwise reconstructed from what its REST API
        reports.

        Raises:
            UnknownEntityError: there is no such job, run or checkpoint.
            TooLargeError: there are too many events for one answer.
        """
        vertices = () if vertex is None else (vertex,)
        async with reading(self._engine) as connection:
            opened = await self.open(connection, key, is_alone=True, vertices=vertices)
            if vertex is None:
                check_size(opened.record)
            events = await barriers_of(connection, opened.record.place)
        return await self.work.run(_barriers, opened, events, vertex)

    async def open(
        self,
        connection: AsyncConnection,
        key: CheckpointKey,
        *,
        is_whole: bool = False,
        is_alone: bool = False,
        vertices: Sequence[str] = (),
    ) -> Opened:
        """Read a checkpoint, its live reading, and its verdict if one is stored, or else the evidence for it.

        If ``is_whole``, read all evidence in any case. If ``is_alone``, read nothing of other checkpoints, and of this
        one only ``vertices``, unless these are empty.

        Raises:
            UnknownEntityError: there is no such job, run or checkpoint.
        """
        job = await get_job(connection, key.job_id)
        run = await get_run(connection, key.job_id, key.run_id)
        record = await get_checkpoint(connection, key.run_id, key.checkpoint_id)
        kept = _kept_from(await verdict_of(connection, record.place))
        is_judged = kept is not None and kept.stage is Stage.FINAL
        evidence = await self._evidence.of_checkpoint(
            connection, job, run, record, is_judged=is_alone or (is_judged and not is_whole), vertices=vertices
        )
        live = await live_of(connection, run.id, key.checkpoint_id)
        own = next((c for c in evidence.checkpoints if c.header == record.header), Checkpoint(record.header))
        if not record.header.status.is_terminal and not own.details and live is not None:
            own = Checkpoint(record.header, live.details)
        return Opened(job, run, record, own, live, evidence, kept)

    async def _judged(self, opened: Opened) -> JudgedCheckpoint:
        """Return the stored verdict if it is final, or computed from more evidence than there is now.

        Otherwise compute it, and store it if the checkpoint has ended.
        """
        if opened.judged is not None:
            return opened.judged
        now, before = self._clock.now(), opened.kept
        stage, weight = _stage(opened, now), _weight(opened)
        if before is not None and before.judged is not None and not before.is_replaced_by(weight):
            judged, weight = before.judged, before.weight
        else:
            path, verdict = await self.work.run(_judge, opened)
            judged = JudgedCheckpoint(
                None if path is None else CriticalPathOut.model_validate(path),
                api.VerdictOut.model_validate(verdict),
            )
        document = _document(judged, weight, stage)
        if not opened.record.header.status.is_terminal or (before is not None and before.document == document):
            return judged
        try:
            async with writing(self._engine) as connection:
                stored = await keep_verdict(
                    connection,
                    opened.record.place,
                    document,
                    before=None if before is None else before.document,
                    at=now,
                )
        except StoreUnavailableError:
            # The verdict could not be stored, for example because the disk is full. The next request computes it again.
            return judged
        kept = _kept_from(stored)
        return judged if kept is None or kept.judged is None else kept.judged


def check_size(record: CheckpointRecord) -> None:
    """Raise an error if the checkpoint is too large to show it as a whole.

    Raises:
        TooLargeError: it has more than ``SUBTASKS_MAX`` subtasks.
    """
    if record.header.subtask_count > SUBTASKS_MAX:
        raise TooLargeError(
            "checkpoint",
            f"it has {record.header.subtask_count:,} subtasks, and at most {SUBTASKS_MAX:,} are read at once",
            field="checkpoint",
            fix="ask for one vertex: add /subtasks?vertex=ID to the address of the checkpoint",
        )


async def shown(connection: AsyncConnection, records: Sequence[CheckpointRecord]) -> list[api.CheckpointOut]:
    """Convert checkpoints to the API's shape."""
    # Only open checkpoints, which are few, need their run: the run shows whether a checkpoint is lost.
    opened = {r.run_id: r.job_id for r in records if not r.header.status.is_terminal}
    runs = {run_id: await get_run(connection, job_id, run_id) for run_id, job_id in opened.items()}
    configs = await newest_configs(connection, {r.run_id for r in records})
    return [
        checkpoint_out(r, is_lost=r.run_id in runs and is_lost(r, runs[r.run_id]), config=configs[r.run_id])
        for r in records
    ]


def _start_delay_max_ms(record: CheckpointRecord, phases: Phases) -> int | None:
    """Return the largest start delay, with those that a metric showed of subtasks that did not acknowledge."""
    if not record.header.is_partly_acknowledged:
        return record.start_delay_max_ms
    seen = highest(highest_of(p.first_barrier_ms) for p in phases.values())
    return largest([record.start_delay_max_ms, None if seen is None else round(seen)])


def _vertices(opened: Opened, judged: JudgedCheckpoint) -> tuple[list[api.VertexPhasesOut], int | None]:
    """Return the vertices of a checkpoint with their subtasks, and the largest start delay."""
    phases = checkpoint_phases(opened.checkpoint, opened.evidence.config, opened.late)
    shown = in_document(phases, judged.verdict, judged.critical_path)
    vertices = phases_out(opened.evidence.topology, opened.run.placements, phases, shown)
    return vertices, _start_delay_max_ms(opened.record, phases)


def _barriers(opened: Opened, events: Sequence[BarrierEvent] | None, vertex: str | None) -> BarriersOut:
    if events is None:
        found = reconstructed_events(opened.checkpoint, opened.evidence, opened.late, vertex=vertex)
        answer = BarriersOut(basis=Basis.RECONSTRUCTED, events=found, note=_NOT_MEASURED)
    else:
        own = [e for e in events if vertex is None or e.vertex_id == vertex]
        check_events(len(own))
        answer = BarriersOut(basis=Basis.MEASURED, events=[BarrierEventOut.of(e, at_ms=e.at_us / 1000) for e in own])
    return answer


def _judge(opened: Opened) -> tuple[CriticalPath | None, Verdict]:
    evidence = opened.evidence
    verdict = checkpoint_verdict(opened.checkpoint, evidence)
    path = critical_path(opened.checkpoint, evidence.topology, evidence.config, opened.late)
    if path is not None:
        ended = [c for c in evidence.checkpoints if c.header.status.is_terminal]
        path = with_persistence(path, ended, evidence.topology, evidence.config, evidence.late_barriers)
        if verdict.vertex_id is not None and opened.record.header.status is CheckpointStatus.COMPLETED:
            phases = checkpoint_phases(opened.checkpoint, evidence.config, opened.late)
            took_ms = opened.record.header.end_to_end_duration_ms
            pace_ms = kept_pace_ms(phases, evidence.topology, verdict.vertex_id, verdict.subtasks, took_ms=took_ms)
            path = replace(path, kept_pace_ms=pace_ms)
    return path, verdict


def _stage(opened: Opened, now: datetime) -> Stage:
    """Return how final a verdict on this evidence is."""
    header, observed_at, run = opened.record.header, opened.record.observed_at, opened.run
    if not header.status.is_terminal or now - observed_at < SETTLED_AFTER:
        return Stage.EARLY
    end = header.triggered_at + timedelta(milliseconds=header.end_to_end_duration_ms or 0)
    # The clock of the engine may differ from ours, so the end is compared on the engine's clock.
    if opened.job.engine_now(now) - max(end, header.failed_at or end) < SETTLED_AFTER:
        return Stage.EARLY
    if now - observed_at >= _ALL_WITHIN:
        return Stage.FINAL
    # Details and readings may be stored later than the header: after a long poll interval, an overload or an outage. So
    # the verdict is not final until the run was read some time after the header.
    if run.ended_at is None and run.observed_at - observed_at < SETTLED_AFTER:
        return Stage.EARLY
    return Stage.FINAL if opened.checkpoint.details else Stage.WITHOUT_DETAILS


def _weight(opened: Opened) -> Weight:
    """Return how much evidence there is.

    It counts the checkpoint's own details, the readings from around the time when it was open, and the earlier
    checkpoints with details.
    """
    begin, end = readings_around(opened.record.header, opened.evidence.now)
    reading_count = sum(begin <= r.observed_at <= end for r in opened.evidence.pressure)
    detailed_count = sum(bool(c.details) for c in opened.evidence.checkpoints)
    return bool(opened.checkpoint.details), reading_count, detailed_count


def _document(judged: JudgedCheckpoint, weight: Weight, stage: Stage) -> Mapping[str, Any]:
    path = judged.critical_path
    return {
        "verdict": judged.verdict.model_dump(mode="json"),
        "critical_path": None if path is None else path.model_dump(mode="json"),
        "weight": list(weight),
        "stage": stage.value,
    }


def _kept_from(document: Mapping[str, Any] | None) -> Kept | None:
    """Return a stored verdict, or None if none is stored.

    If another version wrote it in another form, it has no weight, so that any new verdict replaces it.
    """
    if document is None:
        return None
    try:
        path = document["critical_path"]
        judged = JudgedCheckpoint(
            None if path is None else CriticalPathOut.model_validate(path),
            api.VerdictOut.model_validate(document["verdict"]),
        )
        # The first version that stored verdicts stored only final ones, without weight and stage.
        has_details, reading_count, detailed_count = document.get("weight", (True, 0, 0))
        stage = Stage(document.get("stage", Stage.FINAL))
    except (KeyError, ValueError):
        return Kept(None, (False, -1, 0), Stage.EARLY, document)
    return Kept(judged, (has_details, reading_count, detailed_count), stage, document)


def _link(record: CheckpointRecord | None) -> str | None:
    if record is None:
        return None
    return checkpoint_link(record.job_id, record.run_id, record.header.checkpoint_id)
