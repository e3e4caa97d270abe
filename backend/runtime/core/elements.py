"""What travels through channels: records and watermarks, which are encoded as bytes, and events such as barriers.

An encoded record (DET-9) consists of a 4-byte length of what follows, a tag, the key, the origin, the event time, a
value, and padding up to the job's record size. The origin encodes source, subtask and offset (DET-10). Operators pass
the origin on but never base a decision on it. The ledger and the test oracles read it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar

from backend.domain.errors import PlanError
from backend.domain.protocols import Protocol

HEADER = struct.Struct("<IBqqqq")
LENGTH = struct.Struct("<I")
RECORD_BYTES_MIN = HEADER.size
_PREFIX = LENGTH.size
TAG_RECORD = 0
TAG_WATERMARK = 1
TAG_STATUS = 2
ORIGIN_SHIFT = 40
"""Lowest bit of the source subtask in an origin. Offsets of one source subtask are less than 2**40."""
VERTEX_SHIFT = 50
"""Lowest bit of the source vertex in an origin. A source has at most 2**10 subtasks, a graph at most 2**12 vertices."""
WATERMARK_MAX = 2**63 - 1
_WIRE: dict[int, struct.Struct] = {}
"""The structs that pack the header and padding of a record, by record size. A job has one or two record sizes."""
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
        """Return the record as ``size_bytes`` bytes."""
        size = self.size_bytes
        wire = _WIRE.get(size) or _wire(size)
        return wire.pack(size - _PREFIX, TAG_RECORD, self.key, self.origin, self.event_time_us, self.value)


@dataclass(frozen=True, slots=True)
class Watermark:
    """Announces that no record with this event time or an earlier one will follow on this channel."""

    at_us: int
    size_bytes: ClassVar[int] = HEADER.size

    def encode(self) -> bytes:
        """Return the watermark as bytes."""
        return HEADER.pack(HEADER.size - _PREFIX, TAG_WATERMARK, 0, 0, self.at_us, 0)


@dataclass(frozen=True, slots=True)
class WatermarkStatus:
    """Announces that the channel becomes idle or active (WM-1).

    The watermark of an idle channel does not hold back the receiver's watermark.
    """

    is_idle: bool
    size_bytes: ClassVar[int] = HEADER.size

    def encode(self) -> bytes:
        """Return the watermark status as bytes."""
        return HEADER.pack(HEADER.size - _PREFIX, TAG_STATUS, 0, 0, 0, int(self.is_idle))


Element = Record | Watermark | WatermarkStatus


def decode(data: bytes | bytearray | memoryview, at: int) -> Element | None:
    """Return the element whose bytes start at index ``at``, or None if its bytes are incomplete."""
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
    """Return the origin of a source record: the source's index in the graph, its subtask and the offset (DET-10)."""
    return vertex << VERTEX_SHIFT | source_subtask << ORIGIN_SHIFT | offset


class Alignment(Enum):
    """How tasks align a barrier (OPT-1)."""

    AT_LEAST_ONCE = "at-least-once"
    ALIGNED = "aligned"
    UNALIGNED = "unaligned"
    UNALIGNED_LAST = "unaligned-last"
    """An unaligned barrier. A task starts the checkpoint when the barriers of all channels have arrived (UL-1)."""
    FORCED_ALIGNED = "forced-aligned"
    MARKER = "marker"
    """A marker of a Chandy-Lamport checkpoint. It keeps its place among the data and blocks nothing (CL-4)."""
    BLOCKING_MARKER = "blocking-marker"
    """A marker that blocks its channel until the task has read all markers (CL-11)."""
    OVERTAKING_MARKER = "overtaking-marker"
    """A marker of a Chandy-Lamport checkpoint that overtakes queued data (CL-8)."""

    @property
    def is_exactly_once(self) -> bool:
        """Whether the snapshot excludes the effects of every record that follows the barrier (INV-6)."""
        return self is not Alignment.AT_LEAST_ONCE

    @property
    def protocol(self) -> Protocol | None:
        """The protocol of a checkpoint with such barriers, if Flink does not have it."""
        return _PROTOCOLS.get(self)

    @property
    def overtakes(self) -> bool:
        """Whether the barrier overtakes queued data. Other barriers keep their place in the queue."""
        return self in _OVERTAKING

    @property
    def logs(self) -> bool:
        """Whether the checkpoint copies the data in front of its barriers as in-flight data."""
        return self in _LOGGING


_PROTOCOLS = {
    Alignment.MARKER: Protocol.CHANDY_LAMPORT,
    Alignment.BLOCKING_MARKER: Protocol.CHANDY_LAMPORT,
    Alignment.OVERTAKING_MARKER: Protocol.CHANDY_LAMPORT_OVERTAKING,
    Alignment.UNALIGNED_LAST: Protocol.UNALIGNED_LAST_BARRIER,
}
_BLOCKING = (Alignment.ALIGNED, Alignment.FORCED_ALIGNED, Alignment.BLOCKING_MARKER)
_OVERTAKING = (Alignment.UNALIGNED, Alignment.UNALIGNED_LAST, Alignment.OVERTAKING_MARKER)
_IN_PLACE = (Alignment.MARKER, Alignment.BLOCKING_MARKER)
_LOGGING = (*_OVERTAKING, *_IN_PLACE)


class SnapshotType(Enum):
    """The purpose of the snapshots that a barrier requests (OPT-1)."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    SAVEPOINT_SUSPEND = "savepoint-suspend"
    """A savepoint with which the job stops. The job can be started from it again."""
    SAVEPOINT_TERMINATE = "savepoint-terminate"
    """A savepoint with which the job drains and stops for good (SV-3)."""

    @property
    def is_savepoint(self) -> bool:
        """Whether the snapshot is a savepoint, which a user requested and owns (SV-2)."""
        return self is not SnapshotType.CHECKPOINT

    @property
    def is_synchronous(self) -> bool:
        """Whether the job stops with this savepoint."""
        return self in (SnapshotType.SAVEPOINT_SUSPEND, SnapshotType.SAVEPOINT_TERMINATE)

    @property
    def drains(self) -> bool:
        """Whether the job finishes open windows and timers before it stops."""
        return self is SnapshotType.SAVEPOINT_TERMINATE


@dataclass(frozen=True, slots=True)
class Barrier:
    """A checkpoint barrier with its options (OPT-1).

    ``aligned_timeout_us`` is None if the barrier cannot time out. ``restored_alignment`` is the alignment that a
    forced-aligned barrier takes on again at edges that allow overtaking (OPT-6). ``lamport`` is the sender's logical
    clock. ``is_capped`` means that the in-flight bytes that the checkpoint persists are capped (CAP-2). ``is_full``
    means that a user requested a checkpoint without the files of earlier ones (IN-5).
    """

    checkpoint_id: int
    triggered_at_us: int
    alignment: Alignment
    aligned_timeout_us: int | None = None
    restored_alignment: Alignment | None = None
    is_capped: bool = False
    lamport: int = 0
    snapshot_type: SnapshotType = SnapshotType.CHECKPOINT
    is_full: bool = False

    def __post_init__(self) -> None:
        """Refuse combinations of options that no settings produce.

        Raises:
            PlanError: a savepoint logs in-flight data, or a barrier that logs has a timeout (OPT-4).
        """
        if self.alignment.logs:
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
        """Whether the checkpoint persists in-flight data, or may do so after the alignment timeout (OPT-4)."""
        return self.alignment.logs or self.is_timeoutable

    @property
    def is_blocking(self) -> bool:
        """Whether the sender's subpartition stops after the barrier until the receiver resumes it (Q-2, Q-3).

        At-least-once barriers, unaligned barriers and most markers do not stop it.
        """
        return self.alignment in _BLOCKING

    @property
    def is_priority(self) -> bool:
        """Whether the barrier overtakes queued data. Other barriers keep their place in the queue."""
        return self.alignment.overtakes

    @property
    def is_announced(self) -> bool:
        """Whether the receiver is notified when the barrier arrives in its queue, before it reads the barrier (Q-4).

        An alignment timeout may then move the barrier forward in the queue. The arrival of a marker may end the log of
        its channel (CL-6).
        """
        return self.is_timeoutable or self.alignment in _IN_PLACE

    def as_unaligned(self) -> Barrier:
        """Return an unaligned barrier of the same checkpoint."""
        return replace(self, alignment=Alignment.UNALIGNED, aligned_timeout_us=None, restored_alignment=None)

    def as_forced_aligned(self) -> Barrier:
        """Return a forced-aligned barrier of the same checkpoint, for an edge that forbids overtaking (OPT-5)."""
        return replace(self, alignment=Alignment.FORCED_ALIGNED, restored_alignment=self.alignment)

    def as_aligned(self) -> Barrier:
        """Return an aligned barrier of the same checkpoint that cannot time out."""
        return replace(self, alignment=Alignment.ALIGNED, aligned_timeout_us=None, restored_alignment=None)

    def restored(self) -> Barrier:
        """Undo ``as_forced_aligned`` (OPT-6). Other barriers are returned unchanged."""
        if self.restored_alignment is None:
            return self
        return replace(self, alignment=self.restored_alignment, restored_alignment=None)


@dataclass(frozen=True, slots=True)
class CancelMarker:
    """Announces that checkpoint ``checkpoint_id`` was aborted upstream. The marker does not overtake queued data."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class RecoveryCompletion:
    """Marks the end of the output that the sender recovered from the checkpoint (RC-2)."""


@dataclass(frozen=True, slots=True)
class EndOfPartition:
    """Announces that nothing more follows on this channel."""


@dataclass(frozen=True, slots=True)
class EndOfData:
    """Announces that no more records follow on this channel; barriers may follow (SRC-4).

    ``is_drained`` is true if the sender has finished its open windows and timers, and false for a stop without drain
    (FN-19).
    """

    is_drained: bool = True


@dataclass(frozen=True, slots=True)
class VirtualChannel:
    """Announces that the data that follows was in flight in this old channel before a rescale (RS-7)."""

    source_subtask: int
    target_subtask: int


Event = Barrier | CancelMarker | RecoveryCompletion | VirtualChannel | EndOfData | EndOfPartition


def blocks_upstream(event: Event) -> bool:
    """Return whether the subpartition stops after it has sent the event, until the receiver resumes it (Q-2)."""
    return isinstance(event, RecoveryCompletion) or (isinstance(event, Barrier) and event.is_blocking)
