"""Which old subtasks' channel state a new subtask takes over when the parallelism changed (RS-4 to RS-6, RS-11). Pure.

Each edge has a pair of mappings, new subtask -> old subtasks, one for its receivers and one for its senders; both sides
of a channel are restored by the same pair. Invariant: every old sender has exactly one new one; an old receiver has
several only where its records can be told apart by key (RS-9).
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
"""By new subtask: the old ones, ascending."""


class StateMapper(Enum):
    """How channel state follows its subtasks; named as in Flink."""

    ROUND_ROBIN = "round robin"
    RANGE = "range"
    FIRST = "first"
    UNSUPPORTED = "unsupported"


class Mappers(NamedTuple):
    """Of one partitioner: how the state of its receivers and of its senders is dealt out."""

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
    """The old subtasks whose state the new one takes up; ``maximum`` is the number of key groups (RS-4, RS-5).

    Raises:
        ProtocolViolationError: there is no such mapping (RS-11), which a plan is refused for before it comes here.

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
    """The mapping of one side, by new subtask."""
    return tuple(
        old_subtasks(mapper, new, old_count=old_count, new_count=new_count, maximum=maximum) for new in range(new_count)
    )


@dataclass(frozen=True, slots=True)
class EdgeRescale:
    """The pair of mappings of one edge (RS-6)."""

    receivers: Mapped
    senders: Mapped

    @property
    def ambiguous(self) -> frozenset[int]:
        """Old receivers whose records several new ones get to see (RS-9)."""
        seen = Counter(old for olds in self.receivers for old in olds)
        return frozenset(old for old, count in seen.items() if count > 1)

    def new_receivers(self, old: int) -> tuple[int, ...]:
        """Who takes up what was on its way to an old receiver."""
        return tuple(new for new, olds in enumerate(self.receivers) if old in olds)

    def new_sender(self, old: int) -> int:
        """Who takes up what an old sender had on its way."""
        (new,) = (new for new, olds in enumerate(self.senders) if old in olds)
        return new

    def channels(self, sender: int, receiver: int) -> tuple[tuple[int, int], ...]:
        """The old (sender, receiver) pairs that share one new channel (RS-7)."""
        return tuple((i, j) for j in self.receivers[receiver] for i in self.senders[sender])


def rescale_of(edge: EdgeSpec, graph: Graph, *, old_source: int, old_target: int) -> EdgeRescale | None:
    """How an edge's channel state is dealt out, given how many subtasks there were; None where they are as many.

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
