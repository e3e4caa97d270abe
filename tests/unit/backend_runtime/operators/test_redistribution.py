"""Tests of redistributing operator state: split state goes to one subtask each, and union state to all (ST-2)."""

from __future__ import annotations

import pytest

from backend.runtime.operators.redistribution import redistribute, restored_operator
from backend.runtime.operators.state import OperatorSnapshot, OperatorState, StateMode

_M = 128


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4, 7])
def test_split_state_goes_to_one_subtask_each_and_union_state_to_all(parallelism: int) -> None:
    entries = [[b"a", b"b", b"c"], [], [b"d", b"e"]]
    everything = [b"a", b"b", b"c", b"d", b"e"]
    split = redistribute(StateMode.SPLIT, entries, parallelism)
    assert [entry for own in split for entry in own] == everything
    if parallelism == 3:
        assert [list(own) for own in split] == entries
    else:
        sizes = [len(own) for own in split]
        assert max(sizes) - min(sizes) <= 1
    assert redistribute(StateMode.UNION, entries, parallelism) == [tuple(everything)] * parallelism
    copies = [[b"x", b"y"]] * 3
    assert redistribute(StateMode.BROADCAST, copies, parallelism) == [(b"x", b"y")] * parallelism


def test_operator_states_of_one_operator_keep_their_names_and_modes() -> None:
    old = [
        OperatorSnapshot(
            states=(
                OperatorState("own", StateMode.SPLIT, (bytes([n]),)),
                OperatorState("all", StateMode.UNION, (bytes([n]),)),
                OperatorState("same", StateMode.BROADCAST, (b"s",)),
            )
        )
        for n in range(3)
    ]
    got = restored_operator(old, 1, parallelism=3, max_parallelism=_M)
    assert [(s.name, s.mode) for s in got.states] == [(s.name, s.mode) for s in old[0].states]
    assert (got.entries("own"), got.entries("all"), got.entries("same")) == ((b"\1",), (b"\0", b"\1", b"\2"), (b"s",))
