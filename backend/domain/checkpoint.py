"""One checkpoint as its coordinator reported it, in milliseconds and bytes. None means *not reported*, never zero.

Names follow Flink, with one exception: Flink's ``state_size`` is called the full state size here. The checkpointed size
is the number of bytes that the checkpoint wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.micro_batch import MicroBatch
from backend.domain.protocols import Protocol

Values = tuple[int | None, ...]
"""One value for each subtask, indexed by subtask. None means that the subtask reported nothing."""


class CheckpointStatus(StrEnum):
    """The state of a checkpoint."""

    IN_PROGRESS = "in-progress"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def is_terminal(self) -> bool:
        """Whether the state can no longer change."""
        return self is not CheckpointStatus.IN_PROGRESS


class CheckpointKind(StrEnum):
    """The kind of snapshot that was triggered."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    SYNC_SAVEPOINT = "sync-savepoint"


class SavepointFormat(StrEnum):
    """The format of a savepoint: canonical (the same for every state backend) or native (that of the state backend)."""

    CANONICAL = "canonical"
    NATIVE = "native"


class Guarantee(StrEnum):
    """How often a record affects the state after a recovery from a checkpoint, in Flink's words."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class QueryConsistency(StrEnum):
    """Which completed checkpoints of a job are consistent for a program that reads the state of several operators."""

    ALL = "all"
    EMPTY = "without in-flight data"
    """Records in flight are in no operator's state. So a checkpoint is consistent only if it contains none."""
    NONE = "none"
    """With at-least-once checkpoints, some records are in the state of one operator and not yet in the next."""


@dataclass(frozen=True, slots=True)
class CheckpointHeader:
    """The data of one checkpoint attempt at the coordinator, without the subtasks.

    ``is_unaligned`` is whether the type of the checkpoint is unaligned (Flink's UNALIGNED_CHECKPOINT); None if the
    engine does not report the type. ``protocol`` is None unless the engine reports one of the protocols that Flink does
    not have. ``end_to_end_duration_ms`` is the time from the trigger to the latest
    acknowledgement, or to the failure of a failed checkpoint. While the checkpoint is in progress it is None, and the
    elapsed time must be computed from ``triggered_at``. (Flink reports the time to the latest acknowledgement for such
    a checkpoint.)
    """

    checkpoint_id: int
    kind: CheckpointKind
    status: CheckpointStatus
    triggered_at: datetime
    is_unaligned: bool | None = None
    latest_ack_at: datetime | None = None
    end_to_end_duration_ms: int | None = None
    checkpointed_size_bytes: int | None = None
    full_state_size_bytes: int | None = None
    processed_bytes: int | None = None
    persisted_bytes: int | None = None
    subtask_count: int = 0
    acknowledged_count: int = 0
    failure_reason: FailureReason | None = None
    failure_message: str | None = None
    failed_at: datetime | None = None
    external_path: str | None = None
    is_discarded: bool | None = None
    savepoint_format: SavepointFormat | None = None
    protocol: Protocol | None = None
    cap_bound_count: int | None = None
    """Number of subtasks at which a cap on in-flight data made the checkpoint wait or persist less.

    Only the reference runtime reports it, for a checkpoint with a cap.
    """

    @property
    def is_partly_acknowledged(self) -> bool:
        """Whether subtasks are missing that have not acknowledged, or never did because the checkpoint failed."""
        return self.status is not CheckpointStatus.COMPLETED and self.acknowledged_count < self.subtask_count


@dataclass(frozen=True, slots=True)
class VertexDetail:
    """What the subtasks of one vertex reported for one checkpoint. Every tuple has one entry for each subtask.

    ``ack_delay_ms`` is the time from the trigger to the arrival of the acknowledgement at the coordinator. The
    coordinator counts a subtask that had finished before the checkpoint as acknowledged at the trigger: its
    ``ack_delay_ms`` is 0, and its other values are None. ``unaligned`` is 1 for a subtask that persisted in-flight
    data. ``start_delay_ms`` compares the clocks of two machines, so it may be wrong or even negative.
    """

    vertex_id: VertexId
    start_delay_ms: Values
    alignment_duration_ms: Values
    sync_duration_ms: Values
    async_duration_ms: Values
    ack_delay_ms: Values
    checkpointed_size_bytes: Values
    full_state_size_bytes: Values
    processed_bytes: Values
    persisted_bytes: Values
    unaligned: Values

    @property
    def subtask_count(self) -> int:
        """Number of subtasks of the vertex."""
        return len(self.ack_delay_ms)

    def has_finished(self, subtask: int) -> bool:
        """Return whether a subtask had finished before the checkpoint was triggered."""
        others = (getattr(self, name)[subtask] for name in DETAIL_ARRAYS if name != "ack_delay_ms")
        return self.ack_delay_ms[subtask] == 0 and all(value is None for value in others)

    @property
    def pending(self) -> tuple[int, ...]:
        """Indices of the subtasks that have not acknowledged the checkpoint."""
        return tuple(i for i, v in enumerate(self.ack_delay_ms) if v is None)


class SubtaskMeasure(StrEnum):
    """One value that subtasks report for a checkpoint. ``DURATION`` lasts from the trigger to the acknowledgement."""

    DURATION = "duration"
    START_DELAY = "start-delay"
    ALIGNMENT = "alignment"
    SYNC = "sync"
    ASYNC = "async"
    PERSISTED = "persisted"
    CHECKPOINTED = "checkpointed"

    @property
    def is_bytes(self) -> bool:
        """Whether the values are bytes. The others are milliseconds."""
        return self in {SubtaskMeasure.PERSISTED, SubtaskMeasure.CHECKPOINTED}


DETAIL_ARRAYS: tuple[str, ...] = (
    "start_delay_ms",
    "alignment_duration_ms",
    "sync_duration_ms",
    "async_duration_ms",
    "ack_delay_ms",
    "checkpointed_size_bytes",
    "full_state_size_bytes",
    "processed_bytes",
    "persisted_bytes",
    "unaligned",
)
"""The names of the tuples in ``VertexDetail``, in the order of its fields."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint: its header, and the details of its vertices.

    ``details`` is empty if they were not fetched. ``batch`` is set for Spark, whose checkpoints are micro-batches
    without vertices.
    """

    header: CheckpointHeader
    details: tuple[VertexDetail, ...] = ()
    batch: MicroBatch | None = None

    def detail(self, vertex_id: VertexId) -> VertexDetail | None:
        """Return the detail of one vertex, or None if it is not known."""
        return next((d for d in self.details if d.vertex_id == vertex_id), None)


@dataclass(frozen=True, slots=True)
class LateBarrier:
    """The arrival of the first barrier at a subtask that had not acknowledged the checkpoint yet.

    A gauge metric of the subtask shows it. ``start_delay_ms`` is the value of the gauge. ``seen_at`` is the time of the
    first reading with this value, and ``resolution_ms`` the time between this reading and the previous one. Because the
    value changed between these two readings, it belongs to this checkpoint and not to the previous one
    (flink-baseline.md 13).
    """

    vertex_id: VertexId
    subtask: int
    start_delay_ms: int
    seen_at: datetime
    resolution_ms: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a checkpoint at ``observed_at``: acknowledgements by vertex, and the pending subtasks."""

    checkpoint_id: int
    observed_at: datetime
    acknowledged_count: int
    subtask_count: int
    acknowledged_by_vertex: tuple[tuple[VertexId, int, int], ...] = ()
    """For each vertex: (vertex, acknowledged subtasks, all subtasks)."""
    pending: tuple[tuple[VertexId, tuple[int, ...]], ...] = ()
    """For each vertex: (vertex, indices of the subtasks that have not acknowledged)."""
    late_barriers: tuple[LateBarrier, ...] = ()
    alignment_running_ms: tuple[tuple[VertexId, Values], ...] = ()
    """For each vertex: (vertex, milliseconds since the alignment began, by subtask).

    None for a subtask that is not aligning.
    """


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """The checkpoint settings in force, as the engine reports them. None means *not reported* or *not applicable*.

    ``aligned_timeout_ms`` is None if unaligned checkpoints are off (Flink reports 0 then). It is 0 if every
    checkpoint is unaligned from the start.
    """

    mode: str | None = None
    interval_ms: int | None = None
    timeout_ms: int | None = None
    min_pause_ms: int | None = None
    max_concurrent: int | None = None
    is_unaligned_enabled: bool | None = None
    aligned_timeout_ms: int | None = None
    tolerable_failed_count: int | None = None
    state_backend: str | None = None
    checkpoint_storage: str | None = None
    inflight_cap_bytes: int | None = None
    debloat_target_ms: int | None = None
    """The time for which buffer debloating sizes the buffers; None if it is off or not reported."""
    protocol: Protocol | None = None
    """The protocol of checkpoints if Flink does not have it; ``is_unaligned_enabled`` is true then."""
    spilling: str | None = None
    """When in-flight data is written, ``continuous`` or ``ad-hoc``; None if not reported."""
    is_off: bool | None = None
    """True if the job takes no periodic checkpoints. None if it takes them, or if this is not known."""
    ends_with_first_task: bool | None = None
    """True if the job takes no checkpoint once a task has finished. None if it does, or if this is not reported."""

    @property
    def overtakes(self) -> bool:
        """Whether barriers may overtake queued data."""
        return bool(self.is_unaligned_enabled) and (self.protocol is None or self.protocol.overtakes)

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee named by ``mode``; None if ``mode`` is not reported or is an unknown word."""
        return guarantee_of(self.mode)


def query_consistency(guarantee: Guarantee | None, *, is_unaligned: bool | None) -> QueryConsistency | None:
    """Return which checkpoints are consistent for queries under these settings; None if that is not known."""
    if guarantee is Guarantee.AT_LEAST_ONCE:
        return QueryConsistency.NONE
    if is_unaligned:
        # With at-least-once checkpoints, barriers are never unaligned.
        return QueryConsistency.EMPTY
    return QueryConsistency.ALL if guarantee is Guarantee.EXACTLY_ONCE and is_unaligned is False else None


def guarantee_of(mode: str | None) -> Guarantee | None:
    """Return the guarantee that the mode of checkpoints names; None if it is not reported or an unknown word."""
    word = (mode or "").lower().replace("-", "_")
    return Guarantee(word) if word in set(Guarantee) else None


ClusterSettings = tuple[tuple[str, str], ...]
"""Settings of a whole cluster, as (key, value) in the order of the keys.

They are the defaults of its jobs. A job may override some of them, and the engine does not report whether it does.
"""


@dataclass(frozen=True, slots=True)
class RestoredFrom:
    """The checkpoint or savepoint from which a run was last restored, as the engine reports it."""

    checkpoint_id: int
    is_savepoint: bool
    location: str | None = None
    """Where the engine found it. None if this is not reported."""
    job: str | None = None
    """The name of the job that took it, if another one did. The reference runtime reports this and what follows."""
    kind: str | None = None
    """Such as *unaligned checkpoint*."""
    is_claimed: bool | None = None
    """Whether the run owns it now."""
    left_out: tuple[str, ...] | None = None
    """The operators whose state was not restored, because the job does not have them. There may be more."""
    left_out_more: int = 0
    """How many more such operators there are."""


@dataclass(frozen=True, slots=True)
class CheckpointCounts:
    """The coordinator's counters of checkpoints since the coordinator started."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int
    restored_at: datetime | None = None
    """When the run was last restored from a checkpoint or savepoint. None if it never was, or if this is not known."""
    restored_from: RestoredFrom | None = None
    """None also if the engine names no checkpoint, or if the run was stored before this was read."""
    newest_completed_id: int | None = None
    newest_triggered_at: datetime | None = None
    """The id and the trigger of the newest completed checkpoint, which is no savepoint. None if there is none, or if
    this is not reported.
    """


def largest(values: Sequence[int | None]) -> int | None:
    """Return the largest reported value, or None if no value was reported."""
    return max((v for v in values if v is not None), default=None)
