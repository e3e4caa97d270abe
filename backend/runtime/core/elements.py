"""Elements of channels: records, watermarks and watermark statuses as bytes, barriers and other events as values.

A record on the wire (DET-9) is a 4-byte length of the rest, a tag, the key, the origin, the event time, a value, and
padding up to the job's record size. The origin encodes source, subtask and offset (DET-10). Operators pass it on and
never decide by it; the ledger and the oracles read it.
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
"""Header and padding of records, by record size. A job has one or two sizes."""
_WIRE_KEPT = 256


def _wire(size_bytes: int) -> struct.Struct:
    if len(_WIRE) >= _WIRE_KEPT:
        _WIRE.clear()
    wire = _WIRE[size_bytes] = struct.Struct(f"{HEADER.format}{size_bytes - HEADER.size}x")
    return wire


@dataclass(slots=True)
class Record:
    """One record, never changed after its creation. The source sets ``event_time_us``; operators compute ``value``."""

    key: int
    origin: int
    event_time_us: int
    value: int
    size_bytes: int

    def encode(self) -> bytes:
        """Return the record's ``size_bytes`` bytes on the wire."""
        size = self.size_bytes
        wire = _WIRE.get(size) or _wire(size)
        return wire.pack(size - _PREFIX, TAG_RECORD, self.key, self.origin, self.event_time_us, self.value)


@dataclass(frozen=True, slots=True)
class Watermark:
    """No record of this event time or an earlier one will follow on this channel."""

    at_us: int
    size_bytes: ClassVar[int] = HEADER.size

    def encode(self) -> bytes:
        """Return its bytes on the wire."""
        return HEADER.pack(HEADER.size - _PREFIX, TAG_WATERMARK, 0, 0, self.at_us, 0)


@dataclass(frozen=True, slots=True)
class WatermarkStatus:
    """The channel becomes idle or active (WM-1). The watermark of an idle channel holds no receiver back."""

    is_idle: bool
    size_bytes: ClassVar[int] = HEADER.size

    def encode(self) -> bytes:
        """Return its bytes on the wire."""
        return HEADER.pack(HEADER.size - _PREFIX, TAG_STATUS, 0, 0, 0, int(self.is_idle))


Element = Record | Watermark | WatermarkStatus


def decode(data: bytes | bytearray | memoryview, at: int) -> Element | None:
    """Return the element that starts at ``at``, or None if its bytes are incomplete."""
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
    """Return the origin of a source record: the source's index in the graph, subtask and offset (DET-10)."""
    return vertex << VERTEX_SHIFT | source_subtask << ORIGIN_SHIFT | offset


class Alignment(Enum):
    """How a barrier is to be aligned (OPT-1)."""

    AT_LEAST_ONCE = "at-least-once"
    ALIGNED = "aligned"
    UNALIGNED = "unaligned"
    FORCED_ALIGNED = "forced-aligned"

    @property
    def is_exactly_once(self) -> bool:
        """Whether the state excludes every record that follows the barrier (INV-6)."""
        return self is not Alignment.AT_LEAST_ONCE


_NEEDS_ALIGNMENT = (Alignment.ALIGNED, Alignment.FORCED_ALIGNED)


class SnapshotType(Enum):
    """The purpose of the snapshots that a barrier requests (OPT-1)."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    SAVEPOINT_SUSPEND = "savepoint-suspend"
    """The job stops with it, and can be started from it."""
    SAVEPOINT_TERMINATE = "savepoint-terminate"
    """The job drains and then stops with it for good (SV-3)."""

    @property
    def is_savepoint(self) -> bool:
        """Whether a user requested it and owns it (SV-2)."""
        return self is not SnapshotType.CHECKPOINT

    @property
    def is_synchronous(self) -> bool:
        """Whether the job stops with it."""
        return self in (SnapshotType.SAVEPOINT_SUSPEND, SnapshotType.SAVEPOINT_TERMINATE)

    @property
    def drains(self) -> bool:
        """Whether the job finishes open windows and timers before it stops."""
        return self is SnapshotType.SAVEPOINT_TERMINATE


@dataclass(frozen=True, slots=True)
class Barrier:
    """A checkpoint barrier with its options (OPT-1).

    ``aligned_timeout_us`` is None if the barrier cannot time out. A forced-aligned barrier continues with
    ``restored_alignment`` on edges that allow overtaking (OPT-6). ``lamport`` is the sender's logical clock;
    ``is_capped`` means that in-flight bytes are capped (CAP-2).
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
        """Refuse combinations that no settings produce.

        Raises:
            PlanError: a savepoint is unaligned, or an unaligned barrier has a timeout (OPT-4).

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
        """Whether the barrier is aligned and becomes unaligned after a timeout (OPT-3)."""
        return self.alignment is Alignment.ALIGNED and self.aligned_timeout_us is not None

    @property
    def needs_channel_state(self) -> bool:
        """Whether the checkpoint persists in-flight data, or may come to do so (OPT-4)."""
        return self.alignment is Alignment.UNALIGNED or self.is_timeoutable

    @property
    def is_blocking(self) -> bool:
        """Whether the sender's subpartition stops after it until the receiver resumes it (Q-2, Q-3)."""
        return self.alignment in _NEEDS_ALIGNMENT

    @property
    def is_priority(self) -> bool:
        """Whether it overtakes queued data. An at-least-once barrier keeps its place and blocks nothing."""
        return self.alignment is Alignment.UNALIGNED

    def as_unaligned(self) -> Barrier:
        """Return the barrier of the same checkpoint as an unaligned one."""
        return replace(self, alignment=Alignment.UNALIGNED, aligned_timeout_us=None, restored_alignment=None)

    def as_forced_aligned(self) -> Barrier:
        """Return the barrier for an edge that does not allow overtaking (OPT-5)."""
        return replace(self, alignment=Alignment.FORCED_ALIGNED, restored_alignment=self.alignment)

    def as_aligned(self) -> Barrier:
        """Return the barrier as an aligned one that cannot time out."""
        return replace(self, alignment=Alignment.ALIGNED, aligned_timeout_us=None, restored_alignment=None)

    def restored(self) -> Barrier:
        """Undo ``as_forced_aligned`` (OPT-6); return any other barrier unchanged."""
        if self.restored_alignment is None:
            return self
        return replace(self, alignment=self.restored_alignment, restored_alignment=None)


@dataclass(frozen=True, slots=True)
class CancelMarker:
    """Checkpoint ``checkpoint_id`` was aborted upstream. The marker keeps its FIFO place."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class RecoveryCompletion:
    """End of the sender's recovered output (RC-2)."""


@dataclass(frozen=True, slots=True)
class EndOfPartition:
    """Nothing more follows on this channel."""


@dataclass(frozen=True, slots=True)
class EndOfData:
    """No record follows on this channel, but barriers may (SRC-4).

    ``is_drained``: the sender finished its open windows and timers; false for a stop without drain (FN-19).
    """

    is_drained: bool = True


@dataclass(frozen=True, slots=True)
class VirtualChannel:
    """The following data was in flight between this old sender and this old receiver, before a rescale (RS-7)."""

    source_subtask: int
    target_subtask: int


Event = Barrier | CancelMarker | RecoveryCompletion | VirtualChannel | EndOfData | EndOfPartition


def blocks_upstream(event: Event) -> bool:
    """Return whether polling the event stops the subpartition until the receiver resumes it (Q-2)."""
    return isinstance(event, RecoveryCompletion) or (isinstance(event, Barrier) and event.is_blocking)
