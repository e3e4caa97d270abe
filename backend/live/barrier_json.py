"""Builds the JSON of the barrier events of one checkpoint.

A value that an event does not have is left out. The positions of a snapshot in the channels between two vertices are
one row for each subtask and kind: a trace has two positions for each channel, and a hash edge between 64 and 64
subtasks has 4096 channels.
"""

from __future__ import annotations

from collections.abc import Iterable

from backend.domain.barriers import BarrierEvent, BarrierEventKind, ChannelId
from backend.live.wire import Json, Object

_POSITIONS = frozenset(
    {
        BarrierEventKind.SENT_BEFORE_SNAPSHOT,
        BarrierEventKind.PROCESSED_BEFORE_SNAPSHOT,
        BarrierEventKind.RESTORED_BEFORE_SNAPSHOT,
    }
)


def barriers(events: Iterable[BarrierEvent]) -> list[Object]:
    """Build the rows of ``/jobs/:id/checkpoints/:cid/barriers``. ``events`` are in order of time."""
    rows: list[Object] = []
    positions_of: dict[tuple[object, ...], list[Json]] = {}
    for event in events:
        channel = event.channel
        if channel is None or event.kind not in _POSITIONS:
            rows.append(_row(event))
            continue
        place = (event.kind, event.vertex_id, event.subtask, event.at_us, event.lamport, channel.source, channel.target)
        positions = positions_of.get(place)
        if positions is None:
            positions = positions_of[place] = []
            rows.append(_common(event) | {"between": [channel.source, channel.target], "positions": positions})
        positions.append([channel.source_subtask, channel.target_subtask, event.size_bytes])
    return rows


def _row(event: BarrierEvent) -> Object:
    row = _common(event)
    if event.channel is not None:
        row["channel"] = _channel(event.channel)
    if event.size_bytes is not None:
        row["bytes"] = event.size_bytes
    if event.records is not None:
        row["records"] = event.records
    if event.reason is not None:
        row["reason"] = event.reason
    return row


def _common(event: BarrierEvent) -> Object:
    return {
        "kind": event.kind.value,
        "vertex": event.vertex_id,
        "subtask": event.subtask,
        "at_us": event.at_us,
        "lamport": event.lamport,
    }


def _channel(channel: ChannelId) -> Object:
    return {
        "source": channel.source,
        "target": channel.target,
        "source_subtask": channel.source_subtask,
        "target_subtask": channel.target_subtask,
    }
