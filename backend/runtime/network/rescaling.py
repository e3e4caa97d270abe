"""Decides whose channel state each new subtask takes over after a rescale (RS-4 to RS-6, RS-11).

Each edge has two mappings from new subtasks to old ones, one for its receivers and one for its senders. The sender and
the receiver of a channel are restored with the same two mappings. Invariant: every old sender is taken over by exactly
one new sender. An old receiver is taken over by several new receivers only if the key determines the new receiver of
each record (RS-9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from backend.domain.errors import PlanError, ProtocolViolationError
from backend.runtime.core.hashing import groups_of
from backend.runtime.job.graph import EdgeSpec, Graph, Partitioner

Mapped = tuple[tuple[int, ...], ...]
"""For each new subtask, the old subtasks whose channel state it takes over, in ascending order."""


class StateMapper(Enum):
    """How channel state of old subtasks is assigned to new ones. The names are Flink's."""

    ROUND_ROBIN = "round robin"
    RANGE = "range"
    FIRST = "first"
    UNSUPPORTED = "unsupported"


class Mappers(NamedTuple):
    """How the channel state of an edge's receivers and senders is assigned, for one partitioner."""

    receivers: StateMapper
    senders: StateMapper


_UNSUPPORTED = Mappers(StateMapper.UNSUPPORTED, StateMapper.UNSUPPORTED)
MAPPERS: Mapping[Partitioner, Mappers] = {
    Partitioner.HASH: Mappers(StateMapper.RANGE, StateMapper.ROUND_ROBIN),
    Partitioner.REBALANCE: Mappers(StateMapper.ROUND_ROBIN, StateMapper.ROUND_ROBIN),
    Partitioner.SHUFFLE: Mappers(StateMapper.ROUND_ROBIN, StateMapper.ROUND_ROBIN),
    Partitioner.GLOBAL: Mappers(StateMapper.FIRST, StateMapper.ROUND_ROBIN),
    Partitioner.FORWARD: _UNSUPPORTED,
    Partitioner.RESCALE: _UNSUPPORTED,
    Partitioner.BROADCAST: _UNSUPPORTED,
}


def old_subtasks(mapper: StateMapper, new: int, *, old_count: int, new_count: int, maximum: int) -> tuple[int, ...]:
    """Return the old subtasks whose channel state a new subtask takes over (RS-4, RS-5).

    ``maximum`` is the number of key groups.

    Raises:
        ProtocolViolationError: the mapper is unsupported (RS-11). Such a rescale is refused before this is called.
    """
    if mapper is StateMapper.ROUND_ROBIN:
        return tuple(range(new, old_count, new_count))
    if mapper is StateMapper.FIRST:
        return tuple(range(old_count)) if new == 0 else ()
    if mapper is StateMapper.RANGE:
        own = groups_of(new, new_count, maximum)
        old = (groups_of(subtask, old_count, maximum) for subtask in range(old_count))
        return tuple(n for n, groups in enumerate(old) if groups.start < own.stop and own.start < groups.stop)
    raise ProtocolViolationError("channel state of an edge that has no mapping", rule="RS-11")


def mapped(mapper: StateMapper, *, old_count: int, new_count: int, maximum: int) -> Mapped:
    """Return, for each new subtask, the old subtasks whose channel state it takes over."""
    return tuple(
        old_subtasks(mapper, new, old_count=old_count, new_count=new_count, maximum=maximum) for new in range(new_count)
    )


@dataclass(frozen=True, slots=True)
class EdgeRescale:
    """The two mappings of one edge: from new receivers to old receivers, and from new senders to old ones (RS-6)."""

    receivers: Mapped
    senders: Mapped

    @property
    def ambiguous(self) -> frozenset[int]:
        """The old receivers that several new receivers take over (RS-9)."""
        seen = Counter(old for olds in self.receivers for old in olds)
        return frozenset(old for old, count in seen.items() if count > 1)

    def new_receivers(self, old: int) -> tuple[int, ...]:
        """Return the new receivers that take over the data in flight to an old receiver."""
        return tuple(new for new, olds in enumerate(self.receivers) if old in olds)

    def new_sender(self, old: int) -> int:
        """Return the new sender that takes over the data in flight from an old sender."""
        (new,) = (new for new, olds in enumerate(self.senders) if old in olds)
        return new

    def channels(self, sender: int, receiver: int) -> tuple[tuple[int, int], ...]:
        """Return the old channels, as pairs (sender, receiver), that share one new channel (RS-7)."""
        return tuple((i, j) for j in self.receivers[receiver] for i in self.senders[sender])


def rescale_of(edge: EdgeSpec, graph: Graph, *, old_source: int, old_target: int) -> EdgeRescale | None:
    """Return the mappings of an edge's channel state, or None if neither parallelism has changed.

    Raises:
        PlanError: the channel state of this edge cannot be redistributed (RS-11).
    """
    source, target = graph.vertex(edge.source), graph.vertex(edge.target)
    if (old_source, old_target) == (source.parallelism, target.parallelism):
        return None
    mappers = MAPPERS[edge.partitioner]
    if StateMapper.UNSUPPORTED in mappers:
        raise PlanError(
            f"from parallelism {old_source} -> {old_target} to {source.parallelism} -> {target.parallelism} over a "
            f"{edge.partitioner.value} edge with data in flight: its records cannot be redistributed",
            rule="RS-11",
            vertex=f"{edge.source} -> {edge.target}",
            fix="rescale from a savepoint or an aligned checkpoint, or keep both parallelisms",
        )
    maximum = target.effective_max_parallelism
    return EdgeRescale(
        receivers=mapped(mappers.receivers, old_count=old_target, new_count=target.parallelism, maximum=maximum),
        senders=mapped(mappers.senders, old_count=old_source, new_count=source.parallelism, maximum=maximum),
    )
