"""Converts what the reference runtime measured in a simulation to the values that the pages show. Pure.

Times are rounded down to milliseconds, as the live runtime does. Virtual time 0 is 1970-01-01T00:00:00Z.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from backend.domain.barriers import BarrierEvent
from backend.domain.checkpoint import (
    Checkpoint,
    CheckpointConfig,
    CheckpointHeader,
    CheckpointKind,
    CheckpointStatus,
    Guarantee,
    SavepointFormat,
    Values,
    VertexDetail,
)
from backend.domain.ids import VertexId
from backend.domain.topology import Edge, Topology, Vertex
from backend.runtime.job.config import UNLIMITED, RuntimeConfig
from backend.runtime.job.graph import Graph
from backend.runtime.measure.measures import CheckpointState, MeasuredCheckpoint, TaskKey
from backend.runtime.protocols.registry import other_protocol

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STATUS: Final[Mapping[CheckpointState, CheckpointStatus]] = {
    CheckpointState.IN_PROGRESS: CheckpointStatus.IN_PROGRESS,
    CheckpointState.COMPLETED: CheckpointStatus.COMPLETED,
    CheckpointState.FAILED: CheckpointStatus.FAILED,
}


def topology_of(job: Graph) -> Topology:
    """Return the job graph."""
    return Topology(
        tuple(Vertex(VertexId(v.id), v.name, v.parallelism, v.effective_max_parallelism) for v in job.vertices),
        tuple(Edge(VertexId(e.source), VertexId(e.target), e.partitioner.value.upper()) for e in job.edges),
    )


def config_of(config: RuntimeConfig) -> CheckpointConfig:
    """Return the checkpoint settings."""
    is_unaligned = config.logs_in_flight
    timeout_us = 0 if config.is_chandy_lamport else config.aligned_timeout_us
    guarantee = Guarantee.EXACTLY_ONCE if config.is_exactly_once else Guarantee.AT_LEAST_ONCE
    return CheckpointConfig(
        mode=guarantee.value,
        interval_ms=config.interval_us // 1000,
        timeout_ms=config.timeout_us // 1000,
        min_pause_ms=config.min_pause_us // 1000,
        max_concurrent=config.max_concurrent,
        is_unaligned_enabled=is_unaligned,
        aligned_timeout_ms=timeout_us // 1000 if is_unaligned else None,
        inflight_cap_bytes=None if config.cap_bytes == UNLIMITED else config.cap_bytes,
        debloat_target_ms=config.debloat_target_us // 1000 if config.is_debloating else None,
        protocol=other_protocol(config),
        spilling=config.spilling.value if is_unaligned else None,
    )


def checkpoint_of(record: MeasuredCheckpoint) -> Checkpoint:
    """Return one checkpoint with its subtasks."""
    has_acks = bool(record.acks)
    status = _STATUS[record.state]
    header = CheckpointHeader(
        checkpoint_id=record.id,
        kind=_kind(record),
        status=status,
        triggered_at=at(record.triggered_at_us),
        is_unaligned=record.persisted_bytes > 0,
        latest_ack_at=None if record.latest_ack_us is None else at(record.latest_ack_us),
        end_to_end_duration_ms=_end_to_end_ms(record) if status.is_terminal else None,
        checkpointed_size_bytes=record.written_bytes + record.persisted_bytes if has_acks else None,
        full_state_size_bytes=record.state_bytes + record.persisted_bytes if has_acks else None,
        processed_bytes=record.processed_bytes if has_acks else None,
        persisted_bytes=record.persisted_bytes if has_acks else None,
        subtask_count=record.total + len(record.finished),
        acknowledged_count=len(record.acks) + len(record.finished),
        failure_reason=record.reason,
        failure_message=record.message,
        failed_at=None if record.failed_at_us is None else at(record.failed_at_us),
        is_discarded=record.is_discarded,
        savepoint_format=None if record.savepoint is None else SavepointFormat(record.savepoint.format.value.lower()),
        protocol=record.barrier.alignment.protocol,
        cap_bound_count=record.cap_bound_count,
    )
    details = tuple(
        _detail(record, VertexId(v.id), [(i, s) for s in range(v.parallelism)])
        for i, v in enumerate(record.graph.vertices)
    )
    return Checkpoint(header, details)


def at(virtual_us: int) -> datetime:
    """Return the instant of a virtual time, in whole milliseconds."""
    return EPOCH + timedelta(milliseconds=virtual_us // 1000)


def in_time_order(events: Sequence[BarrierEvent]) -> list[BarrierEvent]:
    """Return barrier events sorted by time, and those at the same time by their Lamport clocks."""
    return sorted(events, key=lambda e: (e.at_us, e.lamport))


def _kind(record: MeasuredCheckpoint) -> CheckpointKind:
    if not record.is_savepoint:
        return CheckpointKind.CHECKPOINT
    is_synchronous = record.barrier.snapshot_type.is_synchronous
    return CheckpointKind.SYNC_SAVEPOINT if is_synchronous else CheckpointKind.SAVEPOINT


def _end_to_end_ms(record: MeasuredCheckpoint) -> int | None:
    ended_us = record.failed_at_us if record.failed_at_us is not None else record.latest_ack_us
    return None if ended_us is None else ended_us // 1000 - record.triggered_at_us // 1000


def _detail(record: MeasuredCheckpoint, vertex_id: VertexId, keys: Sequence[TaskKey]) -> VertexDetail:
    acks = [record.acks.get(key) for key in keys]
    measured = [None if a is None else a.measured for a in acks]
    trigger_ms = record.triggered_at_us // 1000
    return VertexDetail(
        vertex_id=vertex_id,
        start_delay_ms=_ms([None if m is None else m.start_delay_us for m in measured]),
        alignment_duration_ms=_ms([None if m is None else m.alignment_us for m in measured]),
        sync_duration_ms=_ms([None if m is None else m.sync_us for m in measured]),
        async_duration_ms=_ms([None if m is None else m.async_us for m in measured]),
        ack_delay_ms=tuple(
            a.at_us // 1000 - trigger_ms if a is not None else 0 if key in record.finished else None
            for key, a in zip(keys, acks, strict=True)
        ),
        checkpointed_size_bytes=tuple(None if m is None else m.written_bytes + m.persisted_bytes for m in measured),
        full_state_size_bytes=tuple(None if m is None else m.state_bytes + m.persisted_bytes for m in measured),
        processed_bytes=tuple(None if m is None else m.processed_bytes for m in measured),
        persisted_bytes=tuple(None if m is None else m.persisted_bytes for m in measured),
        unaligned=tuple(None if m is None else int(m.persisted_bytes > 0) for m in measured),
    )


def _ms(values_us: Sequence[int | None]) -> Values:
    return tuple(None if v is None else v // 1000 for v in values_us)
