"""The values of one job that the live runtime's REST shows, as immutable objects. Times are virtual microseconds.

``engine`` builds a view from the runtime's own values. ``job_json``, ``checkpoint_json`` and ``metrics`` translate a
view into Flink's JSON. None means *not known*, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class FlinkCheckpointState(StrEnum):
    """The state of a checkpoint, in Flink's words."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class FlinkJobState(StrEnum):
    """The state of a job, in Flink's words and in Flink's order."""

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
    """The state of a subtask, in Flink's words and in Flink's order."""

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
class AckView:
    """One subtask's acknowledgement of one checkpoint. ``at_us`` is the time at which the coordinator received it.

    A subtask that had finished counts as acknowledged at the trigger, with zeros, as in Flink.
    """

    at_us: int
    start_delay_us: int = 0
    alignment_us: int = 0
    sync_us: int = 0
    async_us: int = 0
    checkpointed_bytes: int = 0
    state_bytes: int = 0
    processed_bytes: int = 0
    persisted_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointView:
    """One checkpoint or savepoint.

    ``acks`` maps each vertex id, in topological order, to one entry for each subtask. An entry is None if the subtask
    has not acknowledged.
    """

    id: int
    state: FlinkCheckpointState
    is_unaligned: bool
    triggered_at_us: int
    acks: Mapping[str, tuple[AckView | None, ...]]
    failed_at_us: int | None = None
    failure_message: str | None = None
    external_path: str | None = None
    is_discarded: bool = False
    savepoint_format: str | None = None
    """The requested format of a savepoint; None for a checkpoint."""
    is_synchronous: bool = False
    """Whether the job stops after this savepoint."""
    protocol: str | None = None
    """The protocol, if Flink does not have it."""
    cap_bound_count: int | None = None
    """Number of subtasks at which the in-flight cap made the checkpoint wait or persist less; None without a cap."""

    @property
    def is_savepoint(self) -> bool:
        """Whether this is a savepoint."""
        return self.savepoint_format is not None


@dataclass(frozen=True, slots=True)
class SavepointView:
    """A requested savepoint. It is in progress if ``ended_at_us`` is None, and complete if it has a location."""

    requested_at_us: int
    ended_at_us: int | None
    location: str | None
    failure_message: str | None


@dataclass(frozen=True, slots=True)
class RequestedCheckpointView:
    """A requested checkpoint.

    It is in progress if ``ended_at_us`` is None, and complete if it has ended without a failure message.
    """

    requested_at_us: int
    ended_at_us: int | None
    checkpoint_id: int | None
    failure_message: str | None


@dataclass(frozen=True, slots=True)
class Counts:
    """The coordinator's counters of checkpoints since the start of the job."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


@dataclass(frozen=True, slots=True)
class CompletedFigures:
    """The values of one completed checkpoint from which the summary is computed."""

    end_to_end_ms: int
    checkpointed_bytes: int
    state_bytes: int
    processed_bytes: int
    persisted_bytes: int


@dataclass(frozen=True, slots=True)
class GateView:
    """Buffer debloating at one input gate: the current buffer size, and the estimated time to consume the buffers."""

    debloated_buffer_bytes: int
    time_to_consume_ms: int


@dataclass(frozen=True, slots=True)
class RatesView:
    """Rates of a subtask per second, averaged over the engine's window."""

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
    """The current values of one subtask.

    Counts are totals since the subtask's attempt began. ``*_ms_per_s`` are milliseconds per second, averaged over the
    engine's window.
    """

    status: TaskState
    host: str
    attempt: int
    started_at_us: int
    ended_at_us: int | None
    records_in: int
    records_out: int
    bytes_in: int
    bytes_out: int
    busy_us: int | None
    """None if the busy time is not measured: a legacy source emits records outside the mailbox (SRC-2)."""
    idle_us: int
    backpressured_us: int
    busy_ms_per_s: int | None
    idle_ms_per_s: int
    soft_backpressured_ms_per_s: int
    hard_backpressured_ms_per_s: int
    longest_soft_us: int
    """The longest period of soft backpressure in the last five sampled seconds.

    The next field is the longest period of hard backpressure.
    """
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
    """Times for which the last mails waited in the mailbox, sorted from the shortest to the longest."""
    buffers_in: int = 0
    buffers_out: int = 0
    fired_timers: int = 0
    buffers_in_remote: int = 0
    gates: tuple[GateView, ...] = ()
    """One entry for each input edge; empty if buffer debloating is off."""
    lost: tuple[int, int] | None = None
    """Transactions of this sink that timed out before they were committed, and their rows; None if it is no sink.

    Unlike the other counts, these are totals since the job began.
    """


@dataclass(frozen=True, slots=True)
class InputView:
    """One input edge of a vertex. ``ship_strategy`` is Flink's upper-case name of the partitioner."""

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
    """The current checkpoint settings, with the meanings that they have in Flink's ``/checkpoints/config``."""

    is_exactly_once: bool
    interval_ms: int
    timeout_ms: int
    min_pause_ms: int
    max_concurrent: int
    is_unaligned: bool
    aligned_timeout_ms: int
    tolerable_failures: int
    inflight_cap_bytes: int | None
    debloat_target_ms: int | None = None
    """None if buffer debloating is off."""
    state_backend: str = "full"
    is_incremental: bool = False
    protocol: str | None = None
    """The protocol of checkpoints, if Flink does not have it."""
    spilling: str | None = None
    """When in-flight data is written; None if no checkpoint persists any."""
    checkpoints_after_end: bool = True


@dataclass(frozen=True, slots=True)
class ExceptionView:
    """A failure of a task or of the job."""

    at_us: int
    name: str
    message: str
    task: str | None


@dataclass(frozen=True, slots=True)
class BegunFrom:
    """The checkpoint or savepoint of another job, from which a job began."""

    location: str
    job: str
    """The name of the other job."""
    kind: str
    """In words, such as *unaligned checkpoint*."""
    is_claimed: bool
    left_out: tuple[str, ...]
    """The operators whose state was left out, because the job does not have them (GR-1)."""


@dataclass(frozen=True, slots=True)
class JobView:
    """The state of one job now. ``origin_epoch_ms`` is the instant of virtual time 0, in ms since the epoch."""

    id: str
    name: str
    state: FlinkJobState
    origin_epoch_ms: int
    began_at_us: int
    """The virtual time at which the job began: above 0 if it continues from a checkpoint of another job."""
    now_us: int
    ended_at_us: int | None
    restarts: int
    vertices: tuple[VertexView, ...]
    config: ConfigView
    counts: Counts
    history: tuple[CheckpointView, ...]
    """The checkpoints in the history, newest first."""
    latest_completed: CheckpointView | None
    latest_failed: CheckpointView | None
    latest_savepoint: CheckpointView | None
    restored_id: int | None
    restored_at_us: int | None
    restored_is_savepoint: bool
    begun_from: BegunFrom | None
    """The restored checkpoint if it is of another job, from which this one began."""
    completed: tuple[CompletedFigures, ...]
    exceptions: tuple[ExceptionView, ...]
    losses: tuple[ExceptionView, ...]
    """Transactions that were lost. They are listed as exceptions, although the job goes on."""
    effects: tuple[ExceptionView, ...]
    """What restores changed for the records of the job. They are listed as exceptions, although the job goes on."""
    lost_rows: int
    overdue_rows: int
    """Rows in open transactions that are past their timeout, so that their commit will lose them."""
    lag_ms: int

    def epoch_ms(self, at_us: int) -> int:
        """Convert a virtual time into whole milliseconds since the epoch."""
        return self.origin_epoch_ms + at_us // 1000

    def vertex(self, vertex_id: str) -> VertexView | None:
        """Return the vertex with this id, or None."""
        return next((v for v in self.vertices if v.id == vertex_id), None)

    def checkpoint(self, checkpoint_id: int) -> CheckpointView | None:
        """Return the checkpoint with this id, or None if it is not in the history."""
        return next((c for c in self.history if c.id == checkpoint_id), None)
