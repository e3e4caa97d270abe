"""Checks from the barrier events of one checkpoint whether its snapshots form a consistent cut.

The events contain, for each channel, how many bytes the sender had written and how many the receiver had processed when
their states were taken, and how many bytes the checkpoint contains as channel state. Channels are FIFO, so the cut of a
channel is consistent if the receiver's state and the channel state together contain exactly the bytes that the sender
had written (Chandy & Lamport 1985). More bytes mean that data crosses the cut backwards, or would be processed twice
after a restore. Fewer bytes mean that data would be lost.

The check counts bytes. It does not compare their contents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from backend.domain.barriers import BarrierEvent, ChannelId
from backend.domain.barriers import BarrierEventKind as Kind
from backend.domain.cut import CutError, CutState
from backend.domain.ids import VertexId


@dataclass(frozen=True, slots=True)
class CutProblem:
    """A channel whose cut is inconsistent, and by how many bytes."""

    channel: ChannelId
    error: CutError
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CutCheck:
    """The result of the check: how many channels have a cut, how many were checked, and which have an error."""

    state: CutState
    channel_count: int
    checked_count: int
    problems: tuple[CutProblem, ...] = ()


@dataclass(slots=True)
class _Channel:
    sent_bytes: int | None = None
    processed_bytes: int | None = None
    restored_bytes: int = 0
    persisted_bytes: int = 0


_Subtask = tuple[VertexId, int]


@dataclass(slots=True)
class _Trace:
    channels: dict[ChannelId, _Channel] = field(default_factory=dict)
    ended: set[_Subtask] = field(default_factory=set)
    """The subtasks whose part of the checkpoint is written, so that their channel state is complete."""
    finished: set[_Subtask] = field(default_factory=set)
    """The subtasks that had finished before. They sent no more, and had processed all their input."""
    has_positions: bool = False


def check_cut(events: Sequence[BarrierEvent], *, is_completed: bool) -> CutCheck:
    """Check the cut of every channel that the events name. ``is_completed``: whether the checkpoint completed."""
    trace = _trace(events)
    problems, checked_count = [], 0
    for channel, seen in trace.channels.items():
        is_ended = _sender(channel) in trace.ended and _receiver(channel) in trace.ended
        problem = _problem(channel, seen, is_ended=is_ended)
        if problem is not None:
            problems.append(problem)
        if is_ended and seen.sent_bytes is not None and seen.processed_bytes is not None:
            checked_count += 1
    channel_count = len(trace.channels)
    if problems:
        state = CutState.INCONSISTENT
    elif not trace.has_positions:
        state = CutState.UNCHECKED
    elif not is_completed:
        state = CutState.INCOMPLETE
    else:
        state = CutState.CONSISTENT if checked_count == channel_count else CutState.UNCHECKED
    problems.sort(key=lambda p: -p.size_bytes)
    return CutCheck(state, channel_count, checked_count, tuple(problems))


def _trace(events: Iterable[BarrierEvent]) -> _Trace:
    trace = _Trace()
    for event in events:
        if event.kind in (Kind.SNAPSHOT_ASYNC_END, Kind.FINISHED):
            trace.ended.add((event.vertex_id, event.subtask))
        if event.kind is Kind.FINISHED:
            trace.finished.add((event.vertex_id, event.subtask))
        if event.channel is None:
            # A trace without channels is complete if it has a snapshot: the job has no channels, so there is no cut to
            # check.
            trace.has_positions |= event.kind is Kind.SNAPSHOT_SYNC_START and not trace.channels
            continue
        seen = trace.channels.setdefault(event.channel, _Channel())
        size_bytes = event.size_bytes or 0
        match event.kind:
            case Kind.SENT_BEFORE_SNAPSHOT:
                seen.sent_bytes = size_bytes
                trace.has_positions = True
            case Kind.PROCESSED_BEFORE_SNAPSHOT:
                seen.processed_bytes = size_bytes
            case Kind.RESTORED_BEFORE_SNAPSHOT:
                seen.restored_bytes = size_bytes
            case Kind.OVERTOOK | Kind.INPUT_PERSISTED:
                seen.persisted_bytes += size_bytes
            case _:
                pass
    # Nothing crosses the cut on a channel whose receiver had finished.
    for channel in [channel for channel in trace.channels if _receiver(channel) in trace.finished]:
        del trace.channels[channel]
    return trace


def _problem(channel: ChannelId, seen: _Channel, *, is_ended: bool) -> CutProblem | None:
    if seen.sent_bytes is None or seen.processed_bytes is None:
        return None
    in_front = seen.sent_bytes + seen.restored_bytes
    if seen.processed_bytes > in_front:
        return CutProblem(channel, CutError.BACKWARDS, seen.processed_bytes - in_front)
    excess = seen.processed_bytes + seen.persisted_bytes - in_front
    if excess > 0:
        return CutProblem(channel, CutError.REPEATED, excess)
    # Until both subtasks have written their parts, more channel state may follow, so missing bytes are no error yet.
    return CutProblem(channel, CutError.LOST, -excess) if excess and is_ended else None


def _sender(channel: ChannelId) -> _Subtask:
    return channel.source, channel.source_subtask


def _receiver(channel: ChannelId) -> _Subtask:
    return channel.target, channel.target_subtask
