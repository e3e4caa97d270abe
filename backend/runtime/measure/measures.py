"""What is measured of checkpoints and subtasks (runtime.md 3): values only, in virtual microseconds and bytes.

What is not known is None, and never zero (ME-10). Invariant (INV-11): the parts of a duration add up to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum
from typing import NamedTuple

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Alignment, Barrier
from backend.runtime.job.graph import Graph
from backend.runtime.measure.cap_decisions import CapDecision
from backend.runtime.measure.requested import Savepoint
from backend.runtime.network.buffers import Data
from backend.runtime.network.channel import ChannelKey
from backend.runtime.operators.state import OperatorSnapshot

TaskKey = tuple[int, int]
"""(index of the vertex, index of the subtask)."""


class PhaseOrder(StrEnum):
    """In which order a subtask aligned, forwarded, snapshotted and logged (PH-1); sources do two of these."""

    ALIGN_FORWARD_SNAPSHOT = "A-F-S"
    ALIGN_SNAPSHOT_FORWARD = "A-S-F"
    FORWARD_SNAPSHOT_LOG = "F-S-L"
    SNAPSHOT_FORWARD_LOG = "S-F-L"
    FORWARD_SNAPSHOT = "F-S"
    SNAPSHOT_FORWARD = "S-F"

    @property
    def with_snapshot_first(self) -> PhaseOrder:
        """The same, and nothing is forwarded before the state is taken."""
        return PhaseOrder(self.value.replace("F-S", "S-F"))


class Persisted(NamedTuple):
    """In-flight data of one channel in a checkpoint; the rest of a buffer begun counts as one (ME-18)."""

    buffers: int
    size_bytes: int


class FileCounts(NamedTuple):
    """Streams of state that a subtask wrote, and those of them that lie in a file of their own (ME-18, CK-2)."""

    logical: int
    physical: int


@dataclass(slots=True)
class SubtaskCheckpoint:
    """ME-1 to ME-8 and ME-18 of one subtask, filled while the checkpoint runs; None is not known (yet)."""

    checkpoint_id: int
    triggered_at_us: int
    first_barrier_us: int
    alignment_us: int | None = None
    before_snapshot_us: int = 0
    processed_bytes: int | None = None
    sync_us: int | None = None
    async_us: int | None = None
    state_bytes: int = 0
    persisted_bytes: int = 0
    received: Alignment | None = None
    """Kind of the first barrier as it came (ME-18); of a source, of the trigger."""
    forwarded: Alignment | None = None
    forced_hops: int = 0
    """Output channels on which it went on as forced aligned (OPT-5)."""
    order: PhaseOrder = PhaseOrder.ALIGN_FORWARD_SNAPSHOT
    inputs: Mapping[ChannelKey, Persisted] = field(default_factory=dict)
    outputs: Mapping[ChannelKey, Persisted] = field(default_factory=dict)
    """What was overtaken, by channel."""
    cap: CapDecision | None = None
    repeatable_records: int = 0
    """Processed behind the barrier of their channel and in front of the snapshot: at least once, a restore from it
    repeats them (ALO-5)."""
    files: FileCounts | None = None

    @property
    def start_delay_us(self) -> int:
        """ME-1, before it is cut to whole milliseconds."""
        return max(0, self.first_barrier_us - self.triggered_at_us)


@dataclass(frozen=True, slots=True)
class ChannelState:
    """Persisted in-flight bytes of one subtask: by input channel, and by (edge, receiver) on the output side."""

    inputs: dict[ChannelKey, list[Data]] = field(default_factory=dict)
    outputs: dict[ChannelKey, list[Data]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SubtaskSnapshot:
    """All that one subtask needs to be restored (CK-1, CK-3)."""

    operators: tuple[OperatorSnapshot, ...]
    channels: ChannelState
    watermark_us: int
    state_bytes: int
    persisted_bytes: int


@dataclass(frozen=True, slots=True)
class Ack:
    """One acknowledgement as the coordinator received it (ME-9)."""

    at_us: int
    measured: SubtaskCheckpoint


class CriticalPath(NamedTuple):
    """The subtask that acknowledged last, and what its time went to (ME-11, ME-13); microseconds."""

    task: TaskKey
    end_to_end_us: int
    start_delay_us: int
    before_snapshot_us: int
    """From the first barrier: aligning, and what had to leave. Alignment behind the snapshot is asynchronous (ME-6)."""
    sync_us: int
    async_us: int
    residual_us: int
    """The message to the coordinator, and what else is between the phases."""


class CheckpointState(Enum):
    """The states of a checkpoint."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(slots=True)
class CheckpointRecord:
    """One checkpoint as the coordinator knows it (ME-13)."""

    id: int
    triggered_at_us: int
    barrier: Barrier
    total: int
    graph: Graph
    """What it is a checkpoint of: a job may be rescaled."""
    state: CheckpointState = CheckpointState.IN_PROGRESS
    acks: dict[TaskKey, Ack] = field(default_factory=dict)
    failed_at_us: int | None = None
    reason: FailureReason | None = None
    message: str | None = None
    is_discarded: bool = False
    savepoint: Savepoint | None = None
    """Whose request it is; None of a periodic checkpoint."""

    @property
    def is_savepoint(self) -> bool:
        """Whether a user asked for it and owns it (SV-2)."""
        return self.barrier.snapshot_type.is_savepoint

    @property
    def latest_ack_us(self) -> int | None:
        """Arrival of the last acknowledgement so far."""
        return max((a.at_us for a in self.acks.values()), default=None)

    @property
    def end_to_end_us(self) -> int | None:
        """Trigger to last acknowledgement; of a failed one, to the failure."""
        if self.failed_at_us is not None:
            return self.failed_at_us - self.triggered_at_us
        latest = self.latest_ack_us
        return None if latest is None else latest - self.triggered_at_us

    @property
    def critical_path(self) -> CriticalPath | None:
        """ME-13: of the last acknowledgement so far; of equal ones, of the subtask that is further down."""
        last = max(self.acks.items(), key=lambda item: (item[1].at_us, item[0]), default=None)
        if last is None:
            return None
        key, ack = last
        m = ack.measured
        parts = (m.start_delay_us, m.before_snapshot_us, m.sync_us or 0, m.async_us or 0)
        end_to_end_us = max(0, ack.at_us - self.triggered_at_us)
        return CriticalPath(key, end_to_end_us, *parts, end_to_end_us - sum(parts))

    @property
    def persisted_bytes(self) -> int:
        """ME-4 over the subtasks that acknowledged."""
        return sum(a.measured.persisted_bytes for a in self.acks.values())

    @property
    def processed_bytes(self) -> int:
        """ME-3 over the subtasks that acknowledged."""
        return sum(a.measured.processed_bytes or 0 for a in self.acks.values())

    @property
    def repeatable_records(self) -> int:
        """Records that the subtasks which acknowledged took in from behind its barriers (ALO-5)."""
        return sum(a.measured.repeatable_records for a in self.acks.values())

    @property
    def is_consistent_for_queries(self) -> bool:
        """Whether the states of its operators agree without what is in flight: fit for who reads them, not restores."""
        is_complete = self.state is CheckpointState.COMPLETED
        return is_complete and self.barrier.alignment.is_exactly_once and not self.persisted_bytes

    @property
    def state_bytes(self) -> int:
        """State without channel state, over the subtasks that acknowledged."""
        return sum(a.measured.state_bytes for a in self.acks.values())


class Usage(IntEnum):
    """What a subtask's time goes to (ME-19)."""

    BUSY = 0
    IDLE = 1
    SOFT = 2
    HARD = 3


class TimeAccount:
    """Sums of time by use, their shares of a sliding window, and the longest waits for output (ME-19)."""

    __slots__ = ("_began_us", "_longest_us", "_since_us", "_window", "longest_us", "totals_us", "usage")

    def __init__(self, now_us: int, samples: int) -> None:
        self.usage = Usage.IDLE
        self._since_us = self._began_us = now_us
        self.totals_us = [0, 0, 0, 0]
        self._longest_us = [0, 0, 0, 0]
        self.longest_us = (0, 0)
        """The longest period of soft and of hard backpressure in the last period between two samples."""
        self._window: deque[tuple[int, tuple[int, ...]]] = deque([(now_us, (0, 0, 0, 0))], maxlen=samples + 1)

    def turn(self, usage: Usage, now_us: int) -> None:
        """From now on time goes to ``usage``."""
        before = self.usage
        if usage is not before:
            self.totals_us[before] += now_us - self._since_us
            if now_us - self._began_us > self._longest_us[before]:
                self._longest_us[before] = now_us - self._began_us
            self._since_us = self._began_us = now_us
            self.usage = usage

    def settle(self, now_us: int) -> tuple[int, ...]:
        """Totals up to now."""
        if now_us > self._since_us:
            self.totals_us[self.usage] += now_us - self._since_us
            self._since_us = now_us
        return tuple(self.totals_us)

    def sample(self, now_us: int) -> None:
        """Take the window's next edge."""
        self._window.append((now_us, self.settle(now_us)))
        longest = self._longest_us
        # One that is not over counts as long as it is.
        longest[self.usage] = max(longest[self.usage], now_us - self._began_us)
        self.longest_us = (longest[Usage.SOFT], longest[Usage.HARD])
        self._longest_us = [0, 0, 0, 0]

    def ms_per_s(self) -> tuple[int, int, int, int]:
        """(busy, idle, soft, hard) over the window; busy is what the others leave of 1000. ME-20 goes by them."""
        start_us, before = self._window[0]
        end_us, after = self._window[-1]
        if end_us <= start_us:
            return 0, 0, 0, 0
        share = [1000 * (b - a) // (end_us - start_us) for a, b in zip(before, after, strict=True)]
        idle, soft, hard = share[1], share[2], share[3]
        return 1000 - min(1000, idle + soft + hard), idle, soft, hard
