"""Tests of when a subtask that has ended its data may close (FN-22 to FN-24), in every order of the events."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest

from backend.runtime.task.ending import Ending

_EVENTS: dict[str, Callable[[Ending], None]] = {
    "data": Ending.ended_data,
    "inputs": Ending.ended_inputs,
    "processed": Ending.processed,
    "snapshot 3": lambda ending: ending.snapshotting(3),
    "complete 3": lambda ending: ending.completed(3),
}


@pytest.mark.parametrize("order", list(permutations(_EVENTS)), ids=" > ".join)
def test_a_subtask_closes_only_after_the_end_of_its_data_and_then_a_complete_checkpoint(order: tuple[str, ...]) -> None:
    ending = Ending(has_input=True, waits_for_final=True)
    for number, event in enumerate(order):
        assert not ending.may_close, order[:number]
        _EVENTS[event](ending)
    # The final checkpoint must contain the end of the data, and completes after its snapshot (FN-22).
    is_final = order.index("data") < order.index("snapshot 3") < order.index("complete 3")
    assert ending.may_close is is_final


def _waiting() -> Ending:
    ending = Ending(has_input=False, waits_for_final=True)
    ending.ended_data()
    ending.processed()
    return ending


def test_a_newer_complete_checkpoint_counts_and_an_older_one_does_not() -> None:
    ending = _waiting()
    ending.snapshotting(5)
    ending.snapshotting(6)
    ending.completed(4)
    assert not ending.may_close
    ending.completed(6)
    assert ending.may_close


def test_only_the_savepoint_that_stops_the_job_lets_it_close() -> None:
    for waits in (True, False):
        ending = Ending(has_input=False, waits_for_final=waits)
        ending.stops_with(7)
        ending.ended_data()
        ending.processed()
        ending.snapshotting(7)
        ending.completed(6)
        ending.completed(8)
        assert not ending.may_close
        ending.completed(7)
        assert ending.may_close


def test_without_checkpoints_after_the_end_nothing_is_waited_for() -> None:
    ending = Ending(has_input=False, waits_for_final=False)
    assert not ending.may_close
    ending.ended_data()
    assert ending.may_close
