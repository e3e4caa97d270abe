"""Finds which subtask sent the last barrier that a subtask received."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dashboard import text
from dashboard.figures.front.times import ChannelTimes, Front, FrontEdge, FrontVertex, SubtaskTimes


def held_by(vertex: FrontVertex, front: Front) -> dict[int, str]:
    """Return, for each subtask, a sentence about its last barrier: when it was on its way, and which subtask sent it.

    If the engine reports channels, the sender is measured. Otherwise the most likely sender is the subtask that
    forwarded its barrier last. The time is then the interval from the sender's snapshot to the arrival of the last
    barrier at the receiver.
    """
    by_id = {v.vertex_id: v for v in front.vertices}
    edges = [e for e in front.edges if e.target == vertex.vertex_id]
    if any(e.is_measured for e in edges):
        return _senders(edges, by_id)
    sent = [
        (s.snapshot_ms, by_id[e.source].name, s.subtask)
        for e in edges
        for s in by_id[e.source].subtasks
        if s.snapshot_ms is not None
    ]
    if not sent:
        return {}
    at_ms, name, subtask = max(sent)
    return {s.subtask: _likely(s, at_ms, f"{name} subtask {subtask}") for s in vertex.subtasks}


def _senders(edges: Sequence[FrontEdge], by_id: Mapping[str, FrontVertex]) -> dict[int, str]:
    last: dict[int, tuple[float, str, ChannelTimes]] = {}
    for edge in edges:
        for c in edge.channels:
            if c.received_ms is not None and c.received_ms > last.get(c.target_subtask, (-1.0,))[0]:
                last[c.target_subtask] = (c.received_ms, by_id[edge.source].name, c)
    return {
        target: f"last barrier from {name} subtask {c.source_subtask}, sent at {text.duration(_ms(c.emitted_ms))}"
        for target, (_, name, c) in last.items()
    }


def _likely(s: SubtaskTimes, sent_ms: float, sender: str) -> str:
    way = f"after {text.duration(_ms(sent_ms))}"
    if s.last_ms is not None:
        way = f"between {text.duration(_ms(min(sent_ms, s.last_ms)))} and {text.duration(_ms(s.last_ms))}"
    return f"last barrier on its way {way}, most likely from {sender} (reconstructed)"


def _ms(value: float | None) -> int | None:
    return None if value is None else round(value)
