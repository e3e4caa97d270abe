"""Comparisons of the checkpoints of the fake API, computed by the code of the service.

The subtasks of the fake API have the values that an engine would report, so they can be converted back to these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from backend.analysis.measures.phases import checkpoint_phases
from backend.contracts import api
from backend.contracts.backpressure import VertexPressureOut
from backend.contracts.comparing import CheckpointComparisonOut
from backend.contracts.comparing_windows import WindowEventOut, WindowsComparisonOut
from backend.domain.checkpoint import (
    Checkpoint,
    CheckpointConfig,
    CheckpointHeader,
    CheckpointStatus,
    LateBarrier,
    SubtaskMeasure,
    VertexDetail,
)
from backend.domain.engines import FLINK, RUNTIME, SPARK
from backend.domain.failure import FailureReason
from backend.domain.ids import EngineRunId, JobId, RunId, TargetId, VertexId
from backend.domain.micro_batch import MicroBatch
from backend.domain.observation import JobState
from backend.domain.rollup import Measure
from backend.domain.target import TargetState
from backend.domain.topology import Edge, Topology, Vertex
from backend.services.checkpoints.comparing import ComparedCheckpoint, compared
from backend.services.checkpoints.comparing_windows import ReadWindow, Window, compared_windows
from backend.services.jobs.freshness import FINAL
from backend.store.checkpoints.reader import CheckpointRecord
from backend.store.checkpoints.windows import WindowCheckpoint, WindowCounts
from backend.store.jobs.pressure import WindowLoad
from backend.store.jobs.reader import JobRecord, RunRecord

Made = tuple[api.JobDetailOut, Sequence[api.CheckpointDetailOut]]
"""A job, and all its checkpoints."""
_ENGINES = {e.kind: e for e in (FLINK, RUNTIME, SPARK)}


def comparison_of(
    job: api.JobDetailOut,
    found: Sequence[api.CheckpointDetailOut],
    pressure: Sequence[VertexPressureOut],
    a: int,
    b: int | None,
    *,
    other: tuple[api.JobDetailOut, Sequence[api.CheckpointDetailOut], Sequence[VertexPressureOut]] | None = None,
    choice: str | None = None,
    opened: tuple[str, SubtaskMeasure, int] | None = None,
    as_of: datetime,
) -> CheckpointComparisonOut:
    """Compare the checkpoint ``a`` of a job with ``b`` of the same job, or of ``other``.

    ``found`` are all checkpoints of the job.
    """
    first = compared_of(job, found, pressure, a)
    second = None if b is None else compared_of(*(other or (job, found, pressure)), b)
    vertex = None if opened is None else (VertexId(opened[0]), *opened[1:])
    return compared(first, second, choice=choice, opened=vertex, as_of=as_of)


def compared_of(
    job: api.JobDetailOut,
    found: Sequence[api.CheckpointDetailOut],
    pressure: Sequence[VertexPressureOut],
    number: int,
) -> ComparedCheckpoint:
    """Convert one checkpoint to what the service would have read from the store."""
    one = next(c for c in found if c.checkpoint_id == number)
    fields = CheckpointHeader.__dataclass_fields__
    shared = {name: getattr(one, name) for name in fields if name in api.CheckpointOut.model_fields}
    header = CheckpointHeader(
        **shared | {"subtask_count": one.subtask_count or 0, "acknowledged_count": one.acknowledged_count or 0},
        is_unaligned=None if one.mode is None else one.mode == "unaligned",
    )
    batch = None
    if one.batch is not None:
        batch = MicroBatch(phases_ms=tuple((p.phase, p.duration_ms) for p in one.batch.phases))
    checkpoint = Checkpoint(header, tuple(_detail(v) for v in one.vertices), batch)
    config = None
    if job.config is not None:
        names = CheckpointConfig.__dataclass_fields__
        config = CheckpointConfig(**{name: getattr(job.config, name) for name in names})
    ids = [c.checkpoint_id for c in found]
    return ComparedCheckpoint(
        job=_record(job, one),
        run=_run(job, one),
        record=CheckpointRecord(
            job_id=JobId(one.job_id),
            run_id=RunId(one.run_id),
            triggered_on=one.triggered_at.date(),
            header=header,
            start_delay_max_ms=one.start_delay_max_ms,
            alignment_max_ms=one.alignment_max_ms,
            sync_max_ms=one.sync_max_ms,
            async_max_ms=one.async_max_ms,
            observed_at=one.triggered_at,
        ),
        checkpoint=checkpoint,
        topology=Topology(
            tuple(Vertex(VertexId(v.id), v.name, v.parallelism) for v in job.vertices),
            tuple(Edge(VertexId(e.source), VertexId(e.target), e.ship_strategy) for e in job.edges),
        ),
        config=config,
        phases=checkpoint_phases(checkpoint, config, _late(one)),
        loads={VertexId(p.vertex_id): _load(p) for p in pressure},
        previous_id=max((n for n in ids if n < number), default=None),
        next_id=min((n for n in ids if n > number), default=None),
        freshness=FINAL if one.status.is_terminal else job.freshness,
    )


def _detail(vertex: api.VertexPhasesOut) -> VertexDetail:
    def column(name: str) -> tuple[int | None, ...]:
        return tuple(getattr(s, name) for s in vertex.subtasks)

    return VertexDetail(
        vertex_id=VertexId(vertex.vertex_id),
        start_delay_ms=tuple(s.start_delay_ms if s.is_acknowledged else None for s in vertex.subtasks),
        alignment_duration_ms=column("alignment_duration_ms"),
        sync_duration_ms=column("sync_duration_ms"),
        async_duration_ms=column("async_duration_ms"),
        ack_delay_ms=column("ack_ms"),
        checkpointed_size_bytes=column("checkpointed_size_bytes"),
        full_state_size_bytes=column("full_state_size_bytes"),
        processed_bytes=column("processed_bytes"),
        persisted_bytes=column("persisted_bytes"),
        unaligned=tuple(None if s.is_unaligned is None else int(s.is_unaligned) for s in vertex.subtasks),
    )


def _late(one: api.CheckpointDetailOut) -> list[LateBarrier]:
    return [
        LateBarrier(VertexId(v.vertex_id), s.subtask, s.first_barrier_ms, one.triggered_at, 500)
        for v in one.vertices
        for s in v.subtasks
        if not s.is_acknowledged and s.first_barrier_ms is not None
    ]


def _load(reading: VertexPressureOut) -> WindowLoad:
    def mean(values: Sequence[float | None]) -> float | None:
        known = [v for v in values if v is not None]
        return sum(known) / len(known) if known else None

    def most(values: Sequence[float | None]) -> float | None:
        return max((v for v in values if v is not None), default=None)

    busy, held = reading.busy_ratio, reading.backpressured_ratio
    return WindowLoad(VertexId(reading.vertex_id), 3, mean(busy), most(busy), mean(held), most(held), None, None)


def _run(job: api.JobDetailOut, one: api.CheckpointDetailOut) -> RunRecord:
    run = job.run
    return RunRecord(
        id=RunId(one.run_id),
        job_id=JobId(job.id),
        target_id=TargetId(job.target_id),
        engine_run_id=EngineRunId(run.engine_run_id),
        engine=_ENGINES[str(job.engine)],
        started_at=run.started_at,
        ended_at=run.ended_at,
        state=JobState.RUNNING,
        engine_state=run.engine_state,
        restart_count=run.restart_count,
        counts=None,
        failed_unlisted_count=0,
        checkpoint_count=run.checkpoint_count,
        placements=(),
        problems=(),
        first_observed_at=run.started_at,
        observed_at=one.triggered_at,
    )


def _record(job: api.JobDetailOut, one: api.CheckpointDetailOut) -> JobRecord:
    return JobRecord(
        id=JobId(job.id),
        name=job.name,
        run=_run(job, one),
        target_name=job.target_name,
        target_state=TargetState.OK,
        clock_offset_ms=0,
        engine_version="1.20.0",
    )


def windows_of(
    before: tuple[Made, Window], after: tuple[Made, Window], events: Sequence[api.JobEventOut], *, as_of: datetime
) -> WindowsComparisonOut:
    """Compare two windows, each of one job."""
    listed = [
        WindowEventOut(
            at=e.at,
            kind=e.kind,
            text=e.text,
            place="before" if e.at < before[1].until else "after" if e.at >= after[1].since else "between",
        )
        for e in sorted(events, key=lambda e: e.at)
        if before[1].since <= e.at < after[1].until
    ]
    first, second = (_window(*made, window) for made, window in (before, after))
    return compared_windows(first, second, listed, as_of=as_of)


def _window(job: api.JobDetailOut, found: Sequence[api.CheckpointDetailOut], window: Window) -> ReadWindow:
    ended = [c for c in found if c.status.is_terminal and window.since <= c.triggered_at < window.until]
    failed = Counter(c.failure_reason or FailureReason.UNKNOWN for c in ended if c.status is CheckpointStatus.FAILED)
    one = compared_of(job, found, [], found[0].checkpoint_id)
    return ReadWindow(
        window,
        one.job,
        one.run,
        WindowCounts(sum(c.status is CheckpointStatus.COMPLETED for c in ended), failed),
        [
            WindowCheckpoint(
                c.status, c.failure_reason is FailureReason.EXPIRED, {m: getattr(c, m.value) for m in Measure}
            )
            for c in ended
        ],
        one.topology,
        one.config,
        freshness=FINAL if window.until <= max(c.triggered_at for c in found) else job.freshness,
    )
