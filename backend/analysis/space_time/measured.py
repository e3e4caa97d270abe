"""Builds the trace of a checkpoint from its barrier events, for an engine that reports channels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from backend.analysis.space_time.trace import ChannelTrace, Stretch, Subtask, SubtaskTrace, Trace
from backend.domain.barriers import BarrierEvent, ChannelId
from backend.domain.barriers import BarrierEventKind as Kind
from backend.domain.verdict import Basis

_FIRST_OF = {
    Kind.SNAPSHOT_SYNC_START: "snapshot",
    Kind.SNAPSHOT_SYNC_END: "sync_end",
    Kind.SNAPSHOT_ASYNC_END: "async_end",
    Kind.ACKED: "ack",
    Kind.ABORTED: "aborted",
    Kind.MODE_SWITCHED: "switched",
    Kind.LOG_OPENED: "opened",
}


@dataclass(slots=True)
class _Subtask:
    at: dict[str, float] = field(default_factory=dict)
    received: dict[ChannelId, float] = field(default_factory=dict)
    closed: dict[ChannelId, float] = field(default_factory=dict)
    blocks: list[tuple[float, int]] = field(default_factory=list)
    """Changes of the number of blocked channels: the time, and 1 or -1."""
    logged_bytes: int = 0
    overtaken_bytes: int = 0
    has_finished: bool = False


@dataclass(slots=True)
class _Channel:
    emitted_ms: float | None = None
    received_ms: float | None = None
    overtook_bytes: int | None = None


def trace_of(events: Iterable[BarrierEvent]) -> Trace:
    """Return the trace of the checkpoint. ``events`` are in order of time."""
    subtasks: dict[Subtask, _Subtask] = {}
    channels: dict[ChannelId, _Channel] = {}
    for event in events:
        own = subtasks.setdefault((event.vertex_id, event.subtask), _Subtask())
        at_ms = event.at_us / 1000
        if event.kind in _FIRST_OF:
            own.at.setdefault(_FIRST_OF[event.kind], at_ms)
        elif event.kind is Kind.FINISHED:
            own.has_finished = True
        elif event.channel is not None:
            _on_channel(event, event.channel, own, channels.setdefault(event.channel, _Channel()), at_ms)
    return Trace(
        subtasks={key: _subtask(own) for key, own in subtasks.items()},
        channels=[
            ChannelTrace(
                (c.source, c.source_subtask),
                (c.target, c.target_subtask),
                seen.emitted_ms,
                seen.received_ms,
                seen.overtook_bytes,
            )
            for c, seen in channels.items()
            if seen.emitted_ms is not None
        ],
        basis=Basis.MEASURED,
    )


def _on_channel(event: BarrierEvent, channel: ChannelId, own: _Subtask, seen: _Channel, at_ms: float) -> None:
    match event.kind:
        case Kind.BARRIER_EMITTED:
            seen.emitted_ms = at_ms if seen.emitted_ms is None else seen.emitted_ms
        case Kind.BARRIER_RECEIVED:
            seen.received_ms = at_ms if seen.received_ms is None else seen.received_ms
            own.received.setdefault(channel, at_ms)
        case Kind.LOG_CLOSED:
            own.closed.setdefault(channel, at_ms)
        case Kind.CHANNEL_BLOCKED:
            own.blocks.append((at_ms, 1))
        case Kind.CHANNEL_UNBLOCKED:
            own.blocks.append((at_ms, -1))
        case Kind.OVERTOOK:
            size_bytes = event.size_bytes or 0
            seen.overtook_bytes = (seen.overtook_bytes or 0) + size_bytes
            own.overtaken_bytes += size_bytes
        case Kind.INPUT_PERSISTED:
            own.logged_bytes += event.size_bytes or 0
        case _:
            pass


def _subtask(own: _Subtask) -> SubtaskTrace:
    at, received = own.at, own.received.values()
    snapshot_ms = at.get("snapshot")
    is_written = "async_end" in at
    return SubtaskTrace(
        # The coordinator's message may start the checkpoint here before a marker arrives (CL-1), so the snapshot counts
        # too.
        first_ms=min([*received, *([] if snapshot_ms is None else [snapshot_ms])], default=None),
        last_ms=max(received, default=None),
        snapshot_ms=snapshot_ms,
        sync_end_ms=at.get("sync_end"),
        async_end_ms=at.get("async_end"),
        ack_ms=at.get("ack"),
        aborted_ms=at.get("aborted"),
        switched_ms=at.get("switched"),
        blocked=_blocked(own.blocks),
        recorded=_recorded(own, is_over=is_written or "aborted" in at),
        logged_bytes=own.logged_bytes if is_written else None,
        overtaken_bytes=own.overtaken_bytes if snapshot_ms is not None else None,
        has_finished=own.has_finished,
    )


def _blocked(changes: Sequence[tuple[float, int]]) -> tuple[Stretch, ...]:
    """Return the times at which at least one channel was blocked. Stretches of no length are left out."""
    stretches: list[Stretch] = []
    count = most = 0
    begin_ms = 0.0
    for at_ms, change in changes:
        before, count = count, max(0, count + change)
        if before == 0 and count:
            begin_ms, most = at_ms, 0
        most = max(most, count)
        if before and count == 0 and at_ms > begin_ms:
            stretches.append(Stretch(begin_ms, at_ms, most))
    if count:
        stretches.append(Stretch(begin_ms, None, most))
    return tuple(stretches)


def _recorded(own: _Subtask, *, is_over: bool) -> Stretch | None:
    """Return the stretch in which input was copied.

    It ends with the last barrier or, in a log, with the last marker.
    """
    begin_ms = own.at.get("opened")
    if begin_ms is None:
        return None
    # The log of a channel is closed when its marker arrives, which may be before the marker is read (CL-6).
    ends = {**own.received, **own.closed}
    later = [end_ms for end_ms in ends.values() if end_ms > begin_ms]
    if not is_over:
        return Stretch(begin_ms, None, len(later) or None)
    return Stretch(begin_ms, max(later), len(later)) if later else None
