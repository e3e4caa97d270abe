"""Tests of the mapping from an edge's old channels to its new ones after a rescale (RS-4 to RS-6, RS-11)."""

from __future__ import annotations

from collections import Counter

import pytest

from backend.domain.errors import PlanError, ProtocolViolationError
from backend.runtime.core.hashing import groups_of, owner_of_group
from backend.runtime.job.graph import EdgeSpec, Graph, Partitioner, VertexKind, VertexSpec
from backend.runtime.network.rescaling import MAPPERS, StateMapper, mapped, old_subtasks, rescale_of

_PAIRS = [(old, new) for old in range(1, 14) for new in range(1, 14)]


def test_the_examples_of_the_specification() -> None:
    """RS-4, RS-5: for each new subtask, the mapping lists the old subtasks whose data the new one reads."""
    assert mapped(StateMapper.RANGE, old_count=3, new_count=2, maximum=128) == ((0, 1), (1, 2))
    in_turn = mapped(StateMapper.ROUND_ROBIN, old_count=10, new_count=4, maximum=128)
    assert in_turn == ((0, 4, 8), (1, 5, 9), (2, 6), (3, 7))
    assert mapped(StateMapper.ROUND_ROBIN, old_count=2, new_count=4, maximum=128) == ((0,), (1,), (), ())
    assert mapped(StateMapper.FIRST, old_count=3, new_count=2, maximum=128) == ((0, 1, 2), ())


@pytest.mark.parametrize("maximum", [13, 128, 1000])
def test_a_new_subtask_reads_every_old_one_that_had_one_of_its_key_groups(maximum: int) -> None:
    """RS-1, RS-4: the key-group ranges follow from the job's own maximum parallelism.

    A new subtask reads no old subtask that had none of its key groups.
    """
    for old, new in _PAIRS:
        olds = mapped(StateMapper.RANGE, old_count=old, new_count=new, maximum=maximum)
        for subtask in range(new):
            owners = {owner_of_group(group, old, maximum) for group in groups_of(subtask, new, maximum)}
            assert set(olds[subtask]) == owners, (old, new, subtask)


@pytest.mark.parametrize("partitioner", [p for p in Partitioner if StateMapper.UNSUPPORTED not in MAPPERS[p]])
def test_every_old_channel_is_carried_once_per_new_receiver_by_one_sender(partitioner: Partitioner) -> None:
    """RS-6, RS-7: among all new channels, an old channel occurs exactly once for each of its new receivers."""
    for old, new in _PAIRS:
        vertices = (
            VertexSpec("a", VertexKind.SOURCE, "a", parallelism=new),
            VertexSpec("b", VertexKind.MAP, "b", parallelism=old + 1, max_parallelism=128),
        )
        edge = EdgeSpec("a", "b", partitioner)
        rescale = rescale_of(edge, Graph(vertices, (edge,)), old_source=old, old_target=new)
        if rescale is None:
            assert (old, new) == (new, old + 1)
            continue
        seen = Counter(
            channel
            for sender in range(new)
            for receiver in range(old + 1)
            for channel in rescale.channels(sender, receiver)
        )
        for i in range(old):
            assert 0 <= rescale.new_sender(i) < new
            for j in range(new):
                assert seen[i, j] == len(rescale.new_receivers(j)) > 0, (partitioner, old, new, i, j)
                assert (len(rescale.new_receivers(j)) > 1) == (j in rescale.ambiguous)
        if partitioner is not Partitioner.HASH:
            assert not rescale.ambiguous


def test_an_edge_that_cannot_be_redistributed_raises_one_error_with_rule_and_place() -> None:
    vertices = tuple(VertexSpec(n, VertexKind.MAP, n, parallelism=2) for n in "ab")
    for partitioner in (Partitioner.FORWARD, Partitioner.RESCALE, Partitioner.BROADCAST):
        edge = EdgeSpec("a", "b", partitioner)
        graph = Graph(vertices, (edge,))
        assert rescale_of(edge, graph, old_source=2, old_target=2) is None
        with pytest.raises(
            PlanError, match=rf"RS-11 at 'a -> b': from parallelism 2 -> 3 to 2 -> 2 over a {partitioner}"
        ):
            rescale_of(edge, graph, old_source=2, old_target=3)
    with pytest.raises(ProtocolViolationError, match="RS-11"):
        old_subtasks(StateMapper.UNSUPPORTED, 0, old_count=2, new_count=3, maximum=128)
