"""Sums the queues that the barriers of a checkpoint in progress still have in front of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Topology


def queued_in_front(
    topology: Topology, awaiting: Mapping[VertexId, Collection[int]], newest: Mapping[VertexId, VertexPressure]
) -> int | None:
    """Return the bytes queued in front of the barriers.

    ``awaiting`` has the subtasks of each vertex that barriers have not passed. The queues in front of the barriers are
    the in-queues of these subtasks and the out-queues of the vertices upstream. Return 0 if the engine reports queues
    and none is in front of a barrier. Return None if a queue may be in front of a barrier, but no queue was read.
    """
    behind = {v: set(subtasks) for v, subtasks in awaiting.items() if subtasks and topology.upstream(v)}
    if not behind:
        is_reported = any(v is not None for r in newest.values() for v in (*r.queued_in_bytes, *r.queued_out_bytes))
        return 0 if is_reported else None
    senders = {u for v in behind for u in topology.upstream(v)}
    queued = [q for v, subtasks in behind.items() if v in newest for q in _of(newest[v].queued_in_bytes, subtasks)]
    queued += [q for u in senders if u in newest for q in newest[u].queued_out_bytes]
    known = [q for q in queued if q is not None]
    return sum(known) if known else None


def _of(values: tuple[int | None, ...], subtasks: Collection[int]) -> list[int | None]:
    return [value for subtask, value in enumerate(values) if subtask in subtasks]
