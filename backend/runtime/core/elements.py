"""What travels on channels: records, watermarks and their status as bytes, barriers and other events as values.

Record on the wire (DET-9): a 4-byte length of what follows, a tag, the key, the origin, a sequence number, a value,
then padding up to the job's record size. The origin names source, subtask and offset (DET-10): operators carry it
on and never decide by it; the ledger and the oracles read it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar

from backend.domain.errors import PlanError

HEADER = struct.Struct("<IBqqqq")
LENGTH = struct.Struct("<I")
RECORD_BYTES_MIN = HEADER.size
_PREFIX = LENGTH.size
TAG_RECORD = 0
TAG_WATERMARK = 1
TAG_STATUS = 2
ORIGIN_SHIFT = 40
"""Offsets of one source subtask stay below 2**40."""
VERTEX_SHIFT = 50
"""Subtasks of one source stay below 2**10, and vertices below 2**12."""
WATERMARK_MAX = 2**63 - 1
_WIRE: dict[int, struct.Struct] = {}
"""Header and padding of records, by size: a job has one or two sizes."""
_WIRE_KEPT = 256


def _wire(size_bytes: int) -> struct.Struct:
    if len(_WIRE) >= _WIRE_KEPT:
        _WIRE.clear()
    wire = _WIRE[size_bytes] = struct.Struct(f"{HEADER.format}{size_bytes - HEADER.size}x")
    return wire


@dataclass(slots=True)
class Record:
    """One record, never changed once made. ``event_time_us`` is the source's; ``value`` is what operators compute."""

    key: int
    origin: int
    event_time_us: int
    value: int
    size_bytes: int

    def encode(self) -> bytes:
        """Its bytes on the wire, ``size_bytes`` of them."""
        size = self.size_bytes
        wire = _WIRE.get(size) or _wire(size)
        return wire.pack(size - _PREFIX, TAG_RECORD, self.key, self.origin, self.event_time_us, self.value)


@dataclass(frozen=True, slots=True)
class Watermark:
    """No record of this event time or an earlier one will follow on this channel."""

    at_us: int
    size_bytes: ClassVar[int] = HEADER.size

    def encode(self) -> bytes:
        """Its bytes on the wire."""
        return HEADER.pack(HEADER.size - _PREFIX, TAG_WATERMARK, 0, 0, self.at_us, 0)


@dataclass(frozen=True, slots=True)
class WatermarkStatus:
    """The channel is idle from here on, and its watermark holds nobody up; or it is active again (WM-1)."""

    is_idle: bool
    size_bytes: ClassVar[int] = HEADER.size

    def encode(self) -> bytes:
        """Its bytes on the wire."""
        return HEADER.pack(HEADER.size - _PREFIX, TAG_STATUS, 0, 0, 0, int(self.is_idle))


Element = Record | Watermark | WatermarkStatus


def decode(data: bytes | bytearray | memoryview, at: int) -> Element | None:
    """The element that starts at ``at``, or None while its bytes are incomplete."""
    have = len(data) - at
    if have < _PREFIX:
        return None
    if have < HEADER.size:
        return None
    length, tag, key, origin, event_time_us, value = HEADER.unpack_from(data, at)
    if have < length + _PREFIX:
        return None
    if tag:
        return Watermark(event_time_us) if tag == TAG_WATERMARK else WatermarkStatus(bool(value))
    return Record(key, origin, event_time_us, value, length + _PREFIX)


def origin_of(source_subtask: int, offset: int, vertex: int = 0) -> int:
    """The origin of one source record: its source's place in the graph, the subtask and the offset (DET-10)."""
    return vertex << VERTEX_SHIFT | source_subtask << ORIGIN_SHIFT | offset


class Alignment(Enum):
    """How a barrier wants to be aligned (OPT-1)."""

    AT_LEAST_ONCE = "at-least-once"
    ALIGNED = "aligned"
    UNALIGNED = "unaligned"
    FORCED_ALIGNED = "forced-aligned"

    @property
    def is_exactly_once(self) -> bool:
        """Whether the state holds no record from behind the barrier (INV-6)."""
        return self is not Alignment.AT_LEAST_ONCE


_NEEDS_ALIGNMENT = (Alignment.ALIGNED, Alignment.FORCED_ALIGNED)


class SnapshotType(Enum):
    """What the snapshots behind a barrier are for (OPT-1)."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    SAVEPOINT_SUSPEND = "savepoint-suspend"
    """The job stops with it, and may be started from it."""
    SAVEPOINT_TERMINATE = "savepoint-terminate"
    """The job drains and stops with it for good (SV-3)."""

    @property
    def is_savepoint(self) -> bool:
        """Whether a user asked for it and owns it (SV-2)."""
        return self is not SnapshotType.CHECKPOINT

    @property
    def is_synchronous(self) -> bool:
        """Whether the job stops with it."""
        return self in (SnapshotType.SAVEPOINT_SUSPEND, SnapshotType.SAVEPOINT_TERMINATE)

    @property
    def drains(self) -> bool:
        """Whether what is under way is brought to its end before the job stops."""
        return self is SnapshotType.SAVEPOINT_TERMINATE


@dataclass(frozen=True, slots=True)
class Barrier:
    """A checkpoint barrier with its options (OPT-1). ``aligned_timeout_us`` is None where it cannot time out.

    ``restored_alignment`` of a forced-aligned barrier is the kind to go on with where overtaking is possible (OPT-6).
    ``lamport`` is the sender's logical clock; ``is_capped`` says that bytes in flight are capped (CAP-2).
    """

    checkpoint_id: int
    triggered_at_us: int
    alignment: Alignment
    aligned_timeout_us: int | None = None
    restored_alignment: Alignment | None = None
    is_capped: bool = False
    lamport: int = 0
    snapshot_type: SnapshotType = SnapshotType.CHECKPOINT

    def __post_init__(self) -> None:
        """Refuse what no settings lead to.

        Raises:
            PlanError: an unaligned savepoint, or a timeout of what is unaligned already (OPT-4).

        """
        if self.alignment is Alignment.UNALIGNED:
            if self.snapshot_type.is_savepoint:
                raise PlanError("an unaligned savepoint", rule="OPT-4", vertex=None, fix="align it (SV-1)")
            if self.aligned_timeout_us is not None:
                raise PlanError(
                    "an unaligned checkpoint with a timeout", rule="OPT-4", vertex=None, fix="align it, or leave it out"
                )

    @property
    def is_timeoutable(self) -> bool:
        """OPT-3."""
        return self.alignment is Alignment.ALIGNED and self.aligned_timeout_us is not None

    @property
    def needs_channel_state(self) -> bool:
        """OPT-4."""
        return self.alignment is Alignment.UNALIGNED or self.is_timeoutable

    @property
    def is_blocking(self) -> bool:
        """Whether the sender's subpartition stops behind it until resumed (Q-2, Q-3)."""
        return self.alignment in _NEEDS_ALIGNMENT

    @property
    def is_priority(self) -> bool:
        """Whether it goes before what is queued; at least once it blocks nothing and keeps its place."""
        return self.alignment is Alignment.UNALIGNED

    def as_unaligned(self) -> Barrier:
        """The same checkpoint, switched."""
        return replace(self, alignment=Alignment.UNALIGNED, aligned_timeout_us=None, restored_alignment=None)

    def as_forced_aligned(self) -> Barrier:
        """For an edge that cannot be overtaken (OPT-5)."""
        return replace(self, alignment=Alignment.FORCED_ALIGNED, restored_alignment=self.alignment)

    def as_aligned(self) -> Barrier:
        """Aligned for good."""
        return replace(self, alignment=Alignment.ALIGNED, aligned_timeout_us=None, restored_alignment=None)

    def restored(self) -> Barrier:
        """Undo ``as_forced_aligned`` (OPT-6); other barriers are as they are."""
        if self.restored_alignment is None:
            return self
        return replace(self, alignment=self.restored_alignment, restored_alignment=None)


@dataclass(frozen=True, slots=True)
class CancelMarker:
    """Checkpoint ``checkpoint_id`` was given up upstream; in its FIFO place."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class RecoveryCompletion:
    """The sender's recovered output ends here (RC-2)."""


@dataclass(frozen=True, slots=True)
class EndOfPartition:
    """Nothing follows on this channel."""


@dataclass(frozen=True, slots=True)
class EndOfData:
    """No record follows on this channel, but barriers may (SRC-4).

    ``is_drained``: what was open was brought to its end; false where the job is to be started again from here (FN-19).
    """

    is_drained: bool = True


@dataclass(frozen=True, slots=True)
class VirtualChannel:
    """What follows was in flight from this old sender to this old receiver, at another parallelism (RS-7)."""

    source_subtask: int
    target_subtask: int


Event = Barrier | CancelMarker | RecoveryCompletion | VirtualChannel | EndOfData | EndOfPartition


def blocks_upstream(event: Event) -> bool:
    """Whether polling it stops the subpartition until the receiver resumes it (Q-2)."""
    return isinstance(event, RecoveryCompletion) or (isinstance(event, Barrier) and event.is_blocking)
