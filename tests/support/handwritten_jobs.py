"""Handwritten jobs: a chain of vertices, with checkpoints and readings whose values the test sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.measures.phases import VertexPhases, checkpoint_phases
from backend.domain.checkpoint import (
    Checkpoint,
    CheckpointConfig,
    CheckpointHeader,
    CheckpointKind,
    CheckpointStatus,
    LateBarrier,
    VertexDetail,
)
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Edge, Topology, Vertex

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SOURCE, MIDDLE, LAST = VertexId("source"), VertexId("middle"), VertexId("last")
CHAIN = (SOURCE, MIDDLE, LAST)

ALIGNED = CheckpointConfig(interval_ms=5_000, timeout_ms=600_000, is_unaligned_enabled=False)
UNALIGNED = CheckpointConfig(interval_ms=5_000, timeout_ms=600_000, is_unaligned_enabled=True, aligned_timeout_ms=0)


def aligned_timeout(timeout_ms: int) -> CheckpointConfig:
    """Return settings with unaligned checkpoints enabled and this aligned timeout in milliseconds."""
    return CheckpointConfig(
        interval_ms=5_000, timeout_ms=600_000, is_unaligned_enabled=True, aligned_timeout_ms=timeout_ms
    )


def chain(*names: VertexId, parallelism: int = 4, ship: str = "HASH") -> Topology:
    """Build a chain of vertices. Each name is also the id of its vertex."""
    vertices = tuple(Vertex(n, str(n), parallelism) for n in names or CHAIN)
    edges = tuple(Edge(a.id, b.id, ship) for a, b in pairwise(vertices))
    return Topology(vertices, edges)


SQL = Topology(
    tuple(
        replace(vertex, name=name)
        for vertex, name in zip(
            chain().vertices, ("Source: ev[1]", "GroupAggregate[6]", "GroupAggregate[8] -> bh[9]: Writer"), strict=True
        )
    ),
    chain().edges,
)
"""The chain as Flink names it if it was made from SQL."""


def detail(
    vertex_id: VertexId,
    *,
    first: Sequence[int | None],
    alignment: Sequence[int] | int = 0,
    sync: Sequence[int] | int = 0,
    async_: Sequence[int] | int = 0,
    ack: Sequence[int | None] | None = None,
    size_bytes: int = 1_000,
    unaligned: int = 0,
) -> VertexDetail:
    """Build the details of one vertex in a checkpoint.

    ``first`` has the start delay of each subtask, or None for a subtask that did not acknowledge. ``ack`` defaults to
    the sum of the phases.
    """
    n = len(first)

    def row(values: Sequence[int] | int) -> tuple[int | None, ...]:
        there = [values] * n if isinstance(values, int) else list(values)
        return tuple(None if f is None else v for f, v in zip(first, there, strict=True))

    rows = row(alignment), row(sync), row(async_)
    sums = tuple(
        None if f is None else f + (a or 0) + (s or 0) + (y or 0) for f, a, s, y in zip(first, *rows, strict=True)
    )
    return VertexDetail(
        vertex_id=vertex_id,
        start_delay_ms=tuple(first),
        alignment_duration_ms=rows[0],
        sync_duration_ms=rows[1],
        async_duration_ms=rows[2],
        ack_delay_ms=sums if ack is None else tuple(ack),
        checkpointed_size_bytes=row(size_bytes),
        full_state_size_bytes=row(size_bytes),
        processed_bytes=row(0),
        persisted_bytes=row(0),
        unaligned=row(unaligned),
    )


def completed(number: int, *details: VertexDetail, is_unaligned: bool = False, every_s: float = 5) -> Checkpoint:
    """Build a completed checkpoint. Its duration is the delay of the latest acknowledgement."""
    acks = [a for d in details for a in d.ack_delay_ms if a is not None]
    header = _header(number, CheckpointStatus.COMPLETED, details, max(acks, default=10), every_s)
    return Checkpoint(_replaced(header, is_unaligned=is_unaligned), details)


def failed(
    number: int,
    *details: VertexDetail,
    reason: FailureReason = FailureReason.EXPIRED,
    after_ms: int = 3_000,
    message: str | None = None,
    every_s: float = 5,
) -> Checkpoint:
    """Build a checkpoint that failed ``after_ms`` after its trigger."""
    header = _header(number, CheckpointStatus.FAILED, details, after_ms, every_s)
    return Checkpoint(_replaced(header, failure_reason=reason, failure_message=message), details)


def in_progress(number: int, *details: VertexDetail, every_s: float = 5) -> Checkpoint:
    """Build a checkpoint in progress."""
    return Checkpoint(_header(number, CheckpointStatus.IN_PROGRESS, details, None, every_s), details)


def reading(
    vertex_id: VertexId,
    busy: Sequence[float | None],
    held: Sequence[float | None] | None = None,
    records: Sequence[int | None] = (),
    at_s: float = 60,
) -> VertexPressure:
    """Build one reading of a vertex. Time that is neither busy nor backpressured is idle."""
    back = [0.0] * len(busy) if held is None else list(held)
    idle = tuple(None if b is None or h is None else max(0.0, 1 - b - h) for b, h in zip(busy, back, strict=True))
    return VertexPressure(
        vertex_id=vertex_id,
        observed_at=START + timedelta(seconds=at_s),
        busy_ratio=tuple(busy),
        backpressured_ratio=tuple(back),
        idle_ratio=idle,
        records_in_count=tuple(records),
    )


def job(
    checkpoints: Sequence[Checkpoint] = (),
    pressure: Sequence[VertexPressure] = (),
    *,
    topology: Topology | None = None,
    config: CheckpointConfig | None = ALIGNED,
    **more: object,
) -> JobEvidence:
    """Build the evidence about one job."""
    return JobEvidence(
        topology=topology or chain(),
        now=START + timedelta(seconds=62),
        config=config,
        checkpoints=tuple(checkpoints),
        pressure=tuple(pressure),
        **more,  # type: ignore[arg-type]
    )


def quick(number: int, duration_ms: int = 40, topology: Topology | None = None, **more: float) -> Checkpoint:
    """Build a completed checkpoint whose barriers do not wait."""
    where = topology or chain()
    return completed(
        number,
        *(detail(v.id, first=[duration_ms - 2] * v.parallelism, async_=2) for v in where.vertices),
        **more,  # type: ignore[arg-type]
    )


def held_back(
    number: int, delays: Mapping[VertexId, Sequence[int | None]], alignment: int = 0, **more: float
) -> Checkpoint:
    """Build a completed checkpoint whose subtasks have these start delays."""
    rows = (detail(v, first=list(d), alignment=alignment) for v, d in delays.items())
    return completed(number, *rows, **more)  # type: ignore[arg-type]


def _header(
    number: int, status: CheckpointStatus, details: Sequence[VertexDetail], duration_ms: int | None, every_s: float
) -> CheckpointHeader:
    acks = [a for d in details for a in d.ack_delay_ms]
    return CheckpointHeader(
        checkpoint_id=number,
        kind=CheckpointKind.CHECKPOINT,
        status=status,
        triggered_at=START + timedelta(seconds=every_s * number),
        end_to_end_duration_ms=duration_ms,
        subtask_count=len(acks),
        acknowledged_count=sum(a is not None for a in acks),
    )


def _replaced(header: CheckpointHeader, **changes: object) -> CheckpointHeader:

    return replace(header, **changes)  # type: ignore[arg-type]


def subtask_phases(
    header: CheckpointHeader,
    row: VertexDetail,
    aligned_timeout_ms: int | None,
    is_unaligned_enabled: bool | None,
    late: Sequence[LateBarrier] = (),
) -> VertexPhases:
    """Return the phases of every subtask of one vertex, by index; ``late`` may include barriers of other vertices."""
    config = CheckpointConfig(aligned_timeout_ms=aligned_timeout_ms, is_unaligned_enabled=is_unaligned_enabled)
    return checkpoint_phases(Checkpoint(header, (row,)), config, late)[row.vertex_id]
