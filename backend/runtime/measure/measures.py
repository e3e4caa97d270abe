"""Measurements of checkpoints and subtasks (runtime.md 3), in virtual microseconds and bytes.

An unknown value is None, never zero (ME-10). Invariant (INV-11): the parts of a duration add up to the duration.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum
from typing import NamedTuple

from backend.domain.advice import Mode
from backend.domain.checkpoint_mode import course_of
from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Alignment, Barrier
from backend.runtime.job.graph import Graph
from backend.runtime.measure.cap_decisions import CapAction, CapDecision
from backend.runtime.measure.requested import Savepoint
from backend.runtime.network.buffers import Data
from backend.runtime.network.channel import ChannelKey
from backend.runtime.network.segments import Segment
from backend.runtime.operators.state import OperatorSnapshot

TaskKey = tuple[int, int]
"""The index of the vertex in the graph, and the index of the subtask."""


class PhaseOrder(StrEnum):
    """The order of a checkpoint's phases at a subtask (PH-1).

    The letters mean: align (A), forward the barrier (F), take the snapshot (S), log in-flight data (L). Sources only
    forward the barrier and take the snapshot.
    """

    ALIGN_FORWARD_SNAPSHOT = "A-F-S"
    ALIGN_SNAPSHOT_FORWARD = "A-S-F"
    FORWARD_SNAPSHOT_LOG = "F-S-L"
    SNAPSHOT_FORWARD_LOG = "S-F-L"
    FORWARD_SNAPSHOT = "F-S"
    SNAPSHOT_FORWARD = "S-F"

    @property
    def with_snapshot_first(self) -> PhaseOrder:
        """The same order, but with the snapshot before the forwarding of the barrier."""
        return PhaseOrder(self.value.replace("F-S", "S-F"))


class Persisted(NamedTuple):
    """In-flight data of one channel in a checkpoint (ME-18).

    The rest of a partly consumed buffer counts as one buffer.
    """

    buffers: int
    size_bytes: int


class FileCounts(NamedTuple):
    """Number of state streams that a subtask wrote, and how many of them have a file of their own (ME-18, CK-2)."""

    logical: int
    physical: int


class IncrementFigures(NamedTuple):
    """What an incremental backend did for one checkpoint of one subtask (IN-1, IN-12)."""

    base_id: int | None
    """The earlier checkpoint whose files this checkpoint also uses. None if this checkpoint is full."""
    files: int
    new_files: int
    compared_us: int
    """The time to compare the state with that of the base."""
    extra_bytes: int
    """The memory that the backend needed in addition to the state."""


class ChannelWrite(NamedTuple):
    """How the channel state of one checkpoint of one subtask was written (FM-4, ME-18)."""

    written_bytes: int = 0
    """Bytes that were written for this checkpoint. A spill log is written for all checkpoints, so it does not count."""
    reused_bytes: int = 0
    """Bytes that an earlier checkpoint had written (FM-5)."""
    streams: int = 0
    """Number of pieces of channel state: the input and the output of the subtask, if they are not empty."""
    new_files: int = 0
    """Number of files that were created. The other pieces were written to existing files, or to the metadata (CK-2)."""


_NOTHING_WRITTEN = ChannelWrite()


@dataclass(slots=True)
class SubtaskCheckpoint:
    """Measurements of one checkpoint at one subtask (ME-1 to ME-8, ME-18), filled in while the checkpoint runs.

    None means that the value is not known, or not known yet.
    """

    checkpoint_id: int
    triggered_at_us: int
    first_barrier_us: int
    alignment_us: int | None = None
    before_snapshot_us: int = 0
    processed_bytes: int | None = None
    sync_us: int | None = None
    async_us: int | None = None
    state_durable_us: int | None = None
    """The time from the end of the sync phase until the state was durable."""
    channels_begun_us: int | None = None
    """The time from the end of the sync phase until the subtask began to write in-flight data."""
    state_bytes: int = 0
    """The size of all state that a restore needs, without in-flight data (ME-8, IN-4)."""
    written_bytes: int = 0
    """The part of the state that was written for this checkpoint. The rest is in files of earlier ones (ME-8)."""
    increment: IncrementFigures | None = None
    persisted_bytes: int = 0
    received: Alignment | None = None
    """Alignment of the first barrier when it arrived (ME-18). For a source, this is the alignment of the trigger."""
    forwarded: Alignment | None = None
    forced_hops: int = 0
    """Number of output channels on which the barrier was forwarded as forced aligned (OPT-5)."""
    order: PhaseOrder = PhaseOrder.ALIGN_FORWARD_SNAPSHOT
    inputs: Mapping[ChannelKey, Persisted] = field(default_factory=dict)
    outputs: Mapping[ChannelKey, Persisted] = field(default_factory=dict)
    """Overtaken output data, by channel."""
    cap: CapDecision | None = None
    repeatable_records: int = 0
    """Number of records that a restore would repeat in at-least-once mode (ALO-5).

    They were processed after the barrier of their channel and before the snapshot.
    """
    files: FileCounts | None = None
    channel_write: ChannelWrite = _NOTHING_WRITTEN

    @property
    def start_delay_us(self) -> int:
        """The start delay (ME-1) in microseconds, before it is truncated to milliseconds."""
        return max(0, self.first_barrier_us - self.triggered_at_us)


@dataclass(frozen=True, slots=True)
class ChannelState:
    """In-flight data that one subtask persisted, by input channel and by output channel."""

    inputs: dict[ChannelKey, list[Data]] = field(default_factory=dict)
    outputs: dict[ChannelKey, list[Data]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Spilled:
    """The place of a subtask's snapshot in the spill logs (SP-2, SP-3).

    Offsets count the bytes since the attempt began. The in-flight data of a channel is the part of the sender's log
    from the consumed offset to the sent offset.
    """

    attempt: int
    sent: Mapping[ChannelKey, int]
    """How many bytes were sent on each output channel."""
    consumed: Mapping[ChannelKey, int]
    """How many bytes of each input channel were processed, as an offset in what the sender wrote to the channel."""
    log: Mapping[ChannelKey, tuple[tuple[int, Segment], ...]]
    """The segments of each output channel with the offsets at which they begin, in order."""


class Finished(StrEnum):
    """How much of a subtask had finished when a checkpoint was taken (FN-9 to FN-12)."""

    NO = "no"
    OPERATORS = "operators"
    """The operators have finished, but the subtask waits for its final checkpoint. This checkpoint may be it."""
    RESTORED = "restored"
    """The operators had finished before the checkpoint from which the subtask was restored (FN-16)."""
    TASK = "task"
    """The subtask had ended before the checkpoint was triggered, so it has no state."""


@dataclass(frozen=True, slots=True)
class SubtaskSnapshot:
    """Everything that one subtask needs for a restore (CK-1, CK-3)."""

    operators: tuple[OperatorSnapshot, ...]
    channels: ChannelState
    watermark_us: int
    state_bytes: int
    persisted_bytes: int
    replayed_changes: int = 0
    """Number of changes that a restore applies to the whole state that precedes them (IN-9)."""
    finished: Finished = Finished.NO
    spilled: Spilled | None = None
    """Where the in-flight data is in the spill logs, until the checkpoint is complete (SP-3)."""


@dataclass(frozen=True, slots=True)
class Ack:
    """One acknowledgement as the coordinator received it (ME-9)."""

    at_us: int
    measured: SubtaskCheckpoint


class MeasuredPath(NamedTuple):
    """The subtask that acknowledged last, and the parts of its end-to-end time in microseconds (ME-11, ME-13)."""

    task: TaskKey
    end_to_end_us: int
    start_delay_us: int
    before_snapshot_us: int
    """Time from the first barrier to the snapshot.

    It consists of alignment and the emission of held records. Alignment after the snapshot counts as asynchronous
    (ME-6).
    """
    sync_us: int
    async_us: int
    residual_us: int
    """The rest: the message to the coordinator, and the time between the phases."""


class CheckpointState(Enum):
    """The state of a checkpoint."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(slots=True)
class MeasuredCheckpoint:
    """One checkpoint in the coordinator's history (ME-13)."""

    id: int
    triggered_at_us: int
    barrier: Barrier
    total: int
    graph: Graph
    """The graph when the checkpoint was triggered. A later rescale changes the job's graph."""
    state: CheckpointState = CheckpointState.IN_PROGRESS
    acks: dict[TaskKey, Ack] = field(default_factory=dict)
    failed_at_us: int | None = None
    reason: FailureReason | None = None
    message: str | None = None
    is_discarded: bool = False
    trigger_count: int = 0
    """Number of trigger messages that the coordinator sent for this checkpoint (CL-7)."""
    savepoint: Savepoint | None = None
    """The request for the savepoint. None if this is a checkpoint, not a savepoint."""
    finished: tuple[TaskKey, ...] = ()
    """The subtasks that had finished at the trigger. The checkpoint does not wait for them (FN-3)."""

    @property
    def is_savepoint(self) -> bool:
        """Whether this is a savepoint, which a user requested and owns (SV-2)."""
        return self.barrier.snapshot_type.is_savepoint

    @property
    def latest_ack_us(self) -> int | None:
        """Arrival time of the last acknowledgement so far, or None before the first one."""
        return max((a.at_us for a in self.acks.values()), default=None)

    @property
    def end_to_end_us(self) -> int | None:
        """Time from the trigger to the last acknowledgement so far, or to the failure if the checkpoint failed."""
        if self.failed_at_us is not None:
            return self.failed_at_us - self.triggered_at_us
        latest = self.latest_ack_us
        return None if latest is None else latest - self.triggered_at_us

    @property
    def critical_path(self) -> MeasuredPath | None:
        """The subtask of the last acknowledgement so far, with the parts of its time (ME-13).

        If several acknowledgements arrived at the same time, it is the subtask furthest downstream.
        """
        last = max(self.acks.items(), key=lambda item: (item[1].at_us, item[0]), default=None)
        if last is None:
            return None
        key, ack = last
        m = ack.measured
        parts = (m.start_delay_us, m.before_snapshot_us, m.sync_us or 0, m.async_us or 0)
        end_to_end_us = max(0, ack.at_us - self.triggered_at_us)
        return MeasuredPath(key, end_to_end_us, *parts, end_to_end_us - sum(parts))

    @property
    def persisted_bytes(self) -> int:
        """Persisted in-flight data (ME-4), summed over the subtasks that acknowledged."""
        return sum(a.measured.persisted_bytes for a in self.acks.values())

    @property
    def processed_bytes(self) -> int:
        """Data processed during alignment (ME-3), summed over the subtasks that acknowledged."""
        return sum(a.measured.processed_bytes or 0 for a in self.acks.values())

    @property
    def repeatable_records(self) -> int:
        """The number of records that are in the state although they follow a barrier (ALO-5).

        It is the sum over the subtasks that acknowledged.
        """
        return sum(a.measured.repeatable_records for a in self.acks.values())

    @property
    def concurrent_writes_max(self) -> int:
        """The largest number of subtasks that wrote their snapshots to the store at one moment (CL-7).

        A subtask whose state is durable and that still waits for barriers or markers does not write.
        """
        changes = []
        for ack in self.acks.values():
            m = ack.measured
            start_us = m.first_barrier_us + m.before_snapshot_us + (m.sync_us or 0)
            changes += [(start_us, 1), (start_us + (m.async_us or 0), -1)]
            durable_us, begun_us = m.state_durable_us, m.channels_begun_us
            if durable_us is not None and begun_us is not None and durable_us < begun_us:
                changes += [(start_us + durable_us, -1), (start_us + begun_us, 1)]
        writing = most = 0
        # If one write ends at the instant at which another one starts, the two do not count as concurrent.
        for _, change in sorted(changes):
            writing += change
            most = max(most, writing)
        return most

    @property
    def cap_bound_count(self) -> int | None:
        """Number of subtasks that waited or persisted less because of the cap (CAP-7); None without a cap."""
        if not self.barrier.is_capped:
            return None
        decisions = [ack.measured.cap for ack in self.acks.values()]
        return sum(d is not None and d.action is not CapAction.OVERTOOK for d in decisions)

    @property
    def course(self) -> str:
        """How the checkpoint went, in words. The alignment of its barrier says only how it began (OPT-6, CAP-3)."""
        barrier = self.barrier
        if not (barrier.is_timeoutable or barrier.is_capped):
            return barrier.alignment.value
        mode = Mode.UNALIGNED if self.persisted_bytes else Mode.ALIGNED
        timeout_ms = (barrier.aligned_timeout_us or 0) // 1000
        return course_of(mode, aligned_timeout_ms=timeout_ms, is_capped=bool(self.cap_bound_count)) or mode.value

    @property
    def is_consistent_for_queries(self) -> bool:
        """Whether queries can read the state: the checkpoint is complete and exactly-once, without in-flight data."""
        is_complete = self.state is CheckpointState.COMPLETED
        return is_complete and self.barrier.alignment.is_exactly_once and not self.persisted_bytes

    @property
    def state_bytes(self) -> int:
        """Bytes of state without channel state, summed over the subtasks that acknowledged."""
        return sum(a.measured.state_bytes for a in self.acks.values())

    @property
    def written_bytes(self) -> int:
        """Bytes of state that were written for this checkpoint (ME-8), summed over the subtasks that acknowledged."""
        return sum(a.measured.written_bytes for a in self.acks.values())

    @property
    def channel_write(self) -> ChannelWrite:
        """How the channel state was written (FM-4), summed over the subtasks that acknowledged."""
        return ChannelWrite(*map(sum, zip(*(a.measured.channel_write for a in self.acks.values()), strict=True)))

    @property
    def is_incremental(self) -> bool:
        """Whether a subtask that acknowledged uses files of an earlier checkpoint (IN-1)."""
        return any(a.measured.increment is not None and a.measured.increment.base_id for a in self.acks.values())


class Usage(IntEnum):
    """How a subtask spends its time: busy, idle, soft or hard backpressured (ME-19)."""

    BUSY = 0
    IDLE = 1
    SOFT = 2
    HARD = 3


class TimeAccount:
    """Measures how a subtask spends its time (ME-19).

    It computes the total of each usage, the shares in a sliding window, and the longest waits for output.
    """

    __slots__ = ("_began_us", "_longest_us", "_since_us", "_window", "longest_us", "totals_us", "usage")

    def __init__(self, now_us: int, samples: int) -> None:
        self.usage = Usage.IDLE
        self._since_us = self._began_us = now_us
        self.totals_us = [0, 0, 0, 0]
        self._longest_us = [0, 0, 0, 0]
        self.longest_us = (0, 0)
        """The longest soft and the longest hard backpressure between the last two samples, in microseconds."""
        self._window: deque[tuple[int, tuple[int, ...]]] = deque([(now_us, (0, 0, 0, 0))], maxlen=samples + 1)

    def turn(self, usage: Usage, now_us: int) -> None:
        """Record that the usage changes to ``usage`` at ``now_us``."""
        before = self.usage
        if usage is not before:
            self.totals_us[before] += now_us - self._since_us
            if now_us - self._began_us > self._longest_us[before]:
                self._longest_us[before] = now_us - self._began_us
            self._since_us = self._began_us = now_us
            self.usage = usage

    def settle(self, now_us: int) -> tuple[int, ...]:
        """Return the total time of each usage up to ``now_us``."""
        if now_us > self._since_us:
            self.totals_us[self.usage] += now_us - self._since_us
            self._since_us = now_us
        return tuple(self.totals_us)

    def sample(self, now_us: int) -> None:
        """Add a sample of the totals to the window."""
        self._window.append((now_us, self.settle(now_us)))
        longest = self._longest_us
        # The current usage has not ended yet. It counts with its length so far.
        longest[self.usage] = max(longest[self.usage], now_us - self._began_us)
        self.longest_us = (longest[Usage.SOFT], longest[Usage.HARD])
        self._longest_us = [0, 0, 0, 0]

    def ms_per_s(self) -> tuple[int, int, int, int]:
        """Return (busy, idle, soft, hard) in ms per second over the window, for ME-20. Busy is what remains of 1000."""
        start_us, before = self._window[0]
        end_us, after = self._window[-1]
        if end_us <= start_us:
            return 0, 0, 0, 0
        share = [1000 * (b - a) // (end_us - start_us) for a, b in zip(before, after, strict=True)]
        idle, soft, hard = share[1], share[2], share[3]
        return 1000 - min(1000, idle + soft + hard), idle, soft, hard
