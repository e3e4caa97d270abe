"""Test data to write into a store: observations of one small job.

The caller passes each number, or the number follows from the id of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from backend.domain.barriers import BarrierEvent, BarrierEventKind, ChannelId
from backend.domain.checkpoint import (
    Checkpoint,
    CheckpointConfig,
    CheckpointCounts,
    CheckpointHeader,
    CheckpointKind,
    CheckpointStatus,
    LateBarrier,
    Progress,
    VertexDetail,
)
from backend.domain.engines import FLINK
from backend.domain.failure import FailureReason
from backend.domain.ids import EngineRunId, TargetId, VertexId
from backend.domain.observation import JobObservation, JobState, Observation, PollCost
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Edge, Placement, Topology, Vertex

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SOURCE = VertexId("source-1")
SINK = VertexId("sink-2")
PARALLELISM = 3
TOPOLOGY = Topology(
    (Vertex(SOURCE, "Source: orders", PARALLELISM, 128), Vertex(SINK, "Sink: ledger", PARALLELISM, 128)),
    (Edge(SOURCE, SINK, "HASH"),),
)
CONFIG = CheckpointConfig(
    mode="exactly_once",
    interval_ms=10_000,
    timeout_ms=60_000,
    min_pause_ms=0,
    max_concurrent=1,
    is_unaligned_enabled=False,
    tolerable_failed_count=3,
)


class SteppingClock:
    """A clock that only the test moves."""

    def __init__(self, at: datetime = NOW) -> None:
        self.at = at

    def now(self) -> datetime:
        """Return the instant to which the clock was set."""
        return self.at

    def monotonic_s(self) -> float:
        """Return seconds since the epoch. The value goes back only if the test sets the clock back."""
        return self.at.timestamp()


def detail(vertex_id: VertexId, checkpoint_id: int, *, missing: Sequence[int] = ()) -> VertexDetail:
    """Build the details of one vertex, with values that differ by subtask and checkpoint.

    Subtasks in ``missing`` reported nothing.
    """

    def values(scale: int) -> tuple[int | None, ...]:
        return tuple(None if i in missing else scale * (i + 1) + checkpoint_id for i in range(PARALLELISM))

    constant = tuple(None if i in missing else 7 for i in range(PARALLELISM))
    return VertexDetail(
        vertex_id=vertex_id,
        start_delay_ms=values(10),
        alignment_duration_ms=values(5),
        sync_duration_ms=constant,
        async_duration_ms=values(3),
        ack_delay_ms=values(100),
        checkpointed_size_bytes=values(10**10),
        full_state_size_bytes=values(10**11),
        processed_bytes=constant,
        persisted_bytes=(None,) * PARALLELISM,
        unaligned=tuple(None if i in missing else 0 for i in range(PARALLELISM)),
    )


def header(
    checkpoint_id: int,
    status: CheckpointStatus = CheckpointStatus.COMPLETED,
    *,
    triggered_at: datetime | None = None,
    acknowledged_count: int | None = None,
) -> CheckpointHeader:
    """Build a header. Checkpoint n is triggered 10 s after checkpoint n - 1 and takes 300 + n ms."""
    at = triggered_at or NOW - timedelta(hours=1) + timedelta(seconds=10 * checkpoint_id)
    total = 2 * PARALLELISM
    duration_ms = 300 + checkpoint_id
    is_failed = status is CheckpointStatus.FAILED
    return CheckpointHeader(
        checkpoint_id=checkpoint_id,
        kind=CheckpointKind.CHECKPOINT,
        status=status,
        triggered_at=at,
        is_unaligned=False,
        latest_ack_at=at + timedelta(milliseconds=duration_ms) if status is CheckpointStatus.COMPLETED else None,
        end_to_end_duration_ms=duration_ms if status.is_terminal else None,
        checkpointed_size_bytes=1000 + checkpoint_id if status is CheckpointStatus.COMPLETED else None,
        full_state_size_bytes=2000 + checkpoint_id if status is CheckpointStatus.COMPLETED else None,
        subtask_count=total,
        acknowledged_count=total if acknowledged_count is None else acknowledged_count,
        failure_reason=FailureReason.EXPIRED if is_failed else None,
        failure_message="Checkpoint expired before completing." if is_failed else None,
        failed_at=at + timedelta(milliseconds=duration_ms) if is_failed else None,
    )


def completed(checkpoint_id: int, *, triggered_at: datetime | None = None) -> Checkpoint:
    """Build a completed checkpoint with the details of both vertices."""
    return Checkpoint(
        header(checkpoint_id, triggered_at=triggered_at), (detail(SOURCE, checkpoint_id), detail(SINK, checkpoint_id))
    )


def failed(checkpoint_id: int) -> Checkpoint:
    """Build a failed checkpoint that subtask 1 of the sink never acknowledged."""
    return Checkpoint(
        header(checkpoint_id, CheckpointStatus.FAILED, acknowledged_count=5),
        (detail(SOURCE, checkpoint_id), detail(SINK, checkpoint_id, missing=(1,))),
    )


def in_progress(checkpoint_id: int, *, acknowledged_count: int = 0, with_details: bool = False) -> Checkpoint:
    """Build a checkpoint in progress."""
    details = (detail(SOURCE, checkpoint_id), detail(SINK, checkpoint_id, missing=(1, 2))) if with_details else ()
    return Checkpoint(
        header(checkpoint_id, CheckpointStatus.IN_PROGRESS, acknowledged_count=acknowledged_count), details
    )


def progress(checkpoint_id: int, acknowledged_count: int, observed_at: datetime) -> Progress:
    """Build the progress of an open checkpoint. A metric shows when the first barrier reached subtask 1 of the sink."""
    return Progress(
        checkpoint_id=checkpoint_id,
        observed_at=observed_at,
        acknowledged_count=acknowledged_count,
        subtask_count=2 * PARALLELISM,
        acknowledged_by_vertex=((SOURCE, PARALLELISM, PARALLELISM), (SINK, acknowledged_count - 3, PARALLELISM)),
        pending=((SINK, (1, 2)),),
        late_barriers=(LateBarrier(SINK, 1, 2500, observed_at, 400),),
        alignment_running_ms=((SINK, (None, 900, None)),),
    )


def pressure(vertex_id: VertexId, observed_at: datetime, *, busy: float = 0.5) -> VertexPressure:
    """Build a reading of one vertex that lacks pool usages and input queues."""
    return VertexPressure(
        vertex_id=vertex_id,
        observed_at=observed_at,
        busy_ratio=(busy, busy, None),
        backpressured_ratio=(0.1, 0.123456, 0.25),
        idle_ratio=(None, None, None),
        queued_out_bytes=(1 << 40, 0, None),
        records_in_count=(100, 200, 300),
    )


def barrier_events(count: int) -> tuple[BarrierEvent, ...]:
    """Build ``count`` barrier events. Every second event belongs to a channel."""
    channel = ChannelId(SOURCE, SINK, 0, 1)
    return tuple(
        BarrierEvent(
            kind=BarrierEventKind.BARRIER_RECEIVED if i % 2 else BarrierEventKind.SNAPSHOT_SYNC_START,
            vertex_id=SINK,
            subtask=i % PARALLELISM,
            at_us=1500 * i,
            lamport=i,
            channel=channel if i % 2 else None,
            size_bytes=i * 10 if i % 2 else None,
        )
        for i in range(count)
    )


def job(checkpoints: Sequence[Checkpoint] = (), *, name: str = "orders", run: str = "a" * 32) -> JobObservation:
    """Build a running job with its graph, settings, placement and counters."""
    listed = [c.header.status for c in checkpoints]
    counts = CheckpointCounts(
        restored=0,
        total=len(listed),
        in_progress=listed.count(CheckpointStatus.IN_PROGRESS),
        completed=listed.count(CheckpointStatus.COMPLETED),
        failed=listed.count(CheckpointStatus.FAILED),
    )
    hosts = tuple(f"host-{i}" for i in range(PARALLELISM))
    return JobObservation(
        engine_run_id=EngineRunId(run),
        name=name,
        state=JobState.RUNNING,
        engine_state="RUNNING",
        started_at=NOW - timedelta(hours=2),
        topology=TOPOLOGY,
        placements=tuple(
            Placement(v.id, hosts, hosts, (0,) * PARALLELISM, ("RUNNING",) * PARALLELISM) for v in TOPOLOGY.vertices
        ),
        config=CONFIG,
        counts=counts,
        checkpoints=tuple(checkpoints),
        restart_count=0,
    )


def observation(target_id: TargetId, *jobs: JobObservation, at: datetime = NOW, request_count: int = 5) -> Observation:
    """Build the result of one poll of ``target_id``."""
    return Observation(
        target_id=target_id,
        observed_at=at,
        engine=FLINK,
        engine_version="1.20.0",
        jobs=jobs,
        cost=PollCost(request_count=request_count, response_bytes=request_count * 1000, duration_ms=20),
    )


def restarted(before: JobObservation, *, started_at: datetime) -> JobObservation:
    """Return the same job as a new run.

    The new run has another start time but the same engine id, as in some high-availability setups.
    """
    return replace(before, started_at=started_at, checkpoints=(), counts=None)
