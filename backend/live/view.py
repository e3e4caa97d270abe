"""The values of one job that the live runtime's REST shows: frozen, times in virtual microseconds.

``engine`` builds a view from the runtime's own values. ``job_json``, ``checkpoint_json`` and ``metrics`` translate a
view into Flink's JSON. None means *not known*, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class CheckpointState(StrEnum):
    """Flink's words for the state of a checkpoint."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class JobState(StrEnum):
    """Flink's words for the state of a job, in Flink's order."""

    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    SUSPENDED = "SUSPENDED"
    RECONCILING = "RECONCILING"
    CANCELED = "CANCELED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FINISHED = "FINISHED"
    RESTARTING = "RESTARTING"
    INITIALIZING = "INITIALIZING"
    CREATED = "CREATED"


class TaskState(StrEnum):
    """Flink's words for the state of a subtask, in Flink's order."""

    CANCELED = "CANCELED"
    FAILED = "FAILED"
    RECONCILING = "RECONCILING"
    CANCELING = "CANCELING"
    INITIALIZING = "INITIALIZING"
    CREATED = "CREATED"
    FINISHED = "FINISHED"
    DEPLOYING = "DEPLOYING"
    RUNNING = "RUNNING"
    SCHEDULED = "SCHEDULED"


@dataclass(frozen=True, slots=True)
class Ack:
    """One subtask's acknowledgement of one checkpoint; ``at_us`` is its arrival at the coordinator."""

    at_us: int
    start_delay_us: int
    alignment_us: int
    sync_us: int
    async_us: int
    checkpointed_bytes: int
    state_bytes: int
    processed_bytes: int
    persisted_bytes: int


@dataclass(frozen=True, slots=True)
class CheckpointView:
    """One checkpoint. ``acks`` has one entry for each subtask by vertex, in topological order; None is pending."""

    id: int
    state: CheckpointState
    is_unaligned: bool
    triggered_at_us: int
    acks: Mapping[str, tuple[Ack | None, ...]]
    failed_at_us: int | None = None
    failure_message: str | None = None
    external_path: str | None = None
    is_discarded: bool = False
    savepoint_format: str | None = None
    """The requested format of a savepoint; None for a checkpoint."""
    is_synchronous: bool = False
    """Whether the job stops after it."""

    @property
    def is_savepoint(self) -> bool:
        """Whether it is a savepoint."""
        return self.savepoint_format is not None


@dataclass(frozen=True, slots=True)
class SavepointView:
    """A requested savepoint: in progress if ``ended_at_us`` is None, complete if it has a location."""

    requested_at_us: int
    ended_at_us: int | None
    location: str | None
    failure_message: str | None


@dataclass(frozen=True, slots=True)
class RequestedCheckpointView:
    """A requested checkpoint: in progress if ``ended_at_us`` is None, complete if it ended without a message."""

    requested_at_us: int
    ended_at_us: int | None
    checkpoint_id: int | None
    failure_message: str | None


@dataclass(frozen=True, slots=True)
class Counts:
    """The coordinator's counters since the start of the job."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


@dataclass(frozen=True, slots=True)
class CompletedFigures:
    """One completed checkpoint in the summary: milliseconds and bytes."""

    end_to_end_ms: int
    checkpointed_bytes: int
    state_bytes: int
    processed_bytes: int
    persisted_bytes: int


@dataclass(frozen=True, slots=True)
class GateView:
    """Buffer debloating at one input gate: the size of a buffer, and the time to consume the buffers."""

    debloated_buffer_bytes: int
    time_to_consume_ms: int


@dataclass(frozen=True, slots=True)
class RatesView:
    """Rates of a subtask per second, over the engine's window."""

    records_in: float
    records_out: float
    bytes_in: float
    bytes_out: float
    buffers_in: float
    buffers_out: float
    mails: float
    fired_timers: float
    buffers_in_remote: float


@dataclass(frozen=True, slots=True)
class SubtaskView:
    """One subtask now. Totals are since its attempt began; ``*_ms_per_s`` are shares of the engine's window."""

    status: TaskState
    attempt: int
    started_at_us: int
    ended_at_us: int | None
    records_in: int
    records_out: int
    bytes_in: int
    bytes_out: int
    busy_us: int | None
    """None if it is not measured: a legacy source emits outside the mailbox (SRC-2)."""
    idle_us: int
    backpressured_us: int
    busy_ms_per_s: int | None
    idle_ms_per_s: int
    soft_backpressured_ms_per_s: int
    hard_backpressured_ms_per_s: int
    longest_soft_us: int
    """The longest period in the last five sampled seconds. The same holds for the next field."""
    longest_hard_us: int
    out_pool_usage_ratio: float
    in_exclusive_usage_ratio: float
    in_floating_usage_ratio: float
    in_queue_buffers: int
    in_queue_bytes: int
    out_queue_buffers: int
    out_queue_bytes: int
    start_delay_gauge_us: int
    alignment_gauge_us: int
    mailbox_size: int
    rates: RatesView | None = None
    mail_waits_us: tuple[int, ...] = ()
    """Waiting times of the last mails, sorted."""
    buffers_in: int = 0
    buffers_out: int = 0
    fired_timers: int = 0
    buffers_in_remote: int = 0
    gates: tuple[GateView, ...] = ()
    """By input edge; empty if buffer debloating is off."""


@dataclass(frozen=True, slots=True)
class InputView:
    """One input edge of a vertex, with Flink's upper-case name of its partitioner."""

    source_id: str
    ship_strategy: str


@dataclass(frozen=True, slots=True)
class VertexView:
    """One vertex. ``id`` has 32 hexadecimal digits, as in Flink."""

    id: str
    name: str
    parallelism: int
    max_parallelism: int
    inputs: tuple[InputView, ...]
    subtasks: tuple[SubtaskView, ...]


@dataclass(frozen=True, slots=True)
class ConfigView:
    """The current checkpoint settings, with the meanings of Flink's ``/checkpoints/config``."""

    is_exactly_once: bool
    interval_ms: int
    timeout_ms: int
    min_pause_ms: int
    max_concurrent: int
    is_unaligned: bool
    aligned_timeout_ms: int
    tolerable_failures: int
    inflight_cap_bytes: int | None


@dataclass(frozen=True, slots=True)
class ExceptionView:
    """A failure of a task or of the job."""

    at_us: int
    name: str
    message: str
    task: str | None


@dataclass(frozen=True, slots=True)
class JobView:
    """One job now. ``origin_epoch_ms`` is the instant of virtual time 0."""

    id: str
    name: str
    state: JobState
    origin_epoch_ms: int
    now_us: int
    ended_at_us: int | None
    restarts: int
    vertices: tuple[VertexView, ...]
    config: ConfigView
    counts: Counts
    history: tuple[CheckpointView, ...]
    """Newest first."""
    latest_completed: CheckpointView | None
    latest_failed: CheckpointView | None
    latest_savepoint: CheckpointView | None
    restored_id: int | None
    restored_at_us: int | None
    restored_is_savepoint: bool
    completed: tuple[CompletedFigures, ...]
    exceptions: tuple[ExceptionView, ...]
    lag_ms: int

    def epoch_ms(self, at_us: int) -> int:
        """The instant of a virtual time, in whole ms since the epoch."""
        return self.origin_epoch_ms + at_us // 1000

    def vertex(self, vertex_id: str) -> VertexView | None:
        """The vertex of that id, or None."""
        return next((v for v in self.vertices if v.id == vertex_id), None)

    def checkpoint(self, checkpoint_id: int) -> CheckpointView | None:
        """The checkpoint of that id, or None if the history does not have it."""
        return next((c for c in self.history if c.id == checkpoint_id), None)
