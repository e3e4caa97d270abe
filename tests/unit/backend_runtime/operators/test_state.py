"""Tests of keyed state and timers, which are stored by key group (ST-1, PT-4)."""

from __future__ import annotations

import pytest

from backend.domain.errors import ProtocolViolationError
from backend.runtime.core.hashing import groups_of, key_group
from backend.runtime.operators.redistribution import restored_operator
from backend.runtime.operators.state import KeyedStates, OperatorSnapshot

_M = 128


class _Kept:
    """A subtask's keyed state: one state of each kind, and timers."""

    def __init__(self, subtask: int = 0, parallelism: int = 1) -> None:
        self.states = KeyedStates(subtask=subtask, parallelism=parallelism, max_parallelism=_M)
        self.value, self.list = self.states.value(), self.states.list()
        self.map, self.reducing = self.states.map(), self.states.reducing(max)
        self.timers = self.states.timers()

    def fill(self, keys: range) -> None:
        for key in keys:
            self.value.set(key, 10 * key)
            if key % 2:
                self.list.extend(key, range(key % 5))
            self.map.set(key, 7, -key)
            self.reducing.add(key, 1, key)
            self.reducing.add(key, 1, 3)
            self.timers.register(1_000 - key, key)

    def content(self) -> tuple[object, ...]:
        fired = []
        while self.timers.is_due(10_000):
            fired.append(self.timers.pop())
        lists = {key: numbers for key, numbers in self.list.held.items() if numbers}
        return dict(self.value.held), lists, self.map.held, self.reducing.held, fired


def test_each_kind_of_keyed_state_and_the_timers_are_restored_unchanged() -> None:
    kept, again = _Kept(), _Kept()
    kept.fill(range(-20, 60))
    again.states.restore(kept.states.snapshot())
    content = kept.content()
    assert again.content() == content
    assert content[3] == {key: {1: max(key, 3)} for key in range(-20, 60)}
    fired = content[4]
    assert isinstance(fired, list)
    assert fired == sorted(fired)
    assert len(fired) == 80


def test_state_is_stored_by_key_group_and_can_be_redistributed_by_group() -> None:
    kept = _Kept()
    kept.fill(range(200))
    keyed = kept.states.snapshot()
    assert set(keyed) == {key_group(key, _M) for key in range(200)}
    # At another parallelism, every key group has exactly one new owner, which restores only its own key groups
    # (RC-7).
    timers = 0
    for subtask in range(3):
        own = restored_operator([OperatorSnapshot(keyed)], subtask, parallelism=3, max_parallelism=_M)
        taken = _Kept(subtask, 3)
        taken.states.restore(own.keyed)
        keys = {key for key in range(200) if key_group(key, _M) in groups_of(subtask, 3, _M)}
        assert set(taken.value.held) == keys
        timers += len(taken.timers)
    assert timers == 200


def test_a_key_of_another_subtask_is_refused() -> None:
    foreign = next(key for key in range(1000) if key_group(key, _M) not in groups_of(0, 2, _M))
    with pytest.raises(ProtocolViolationError, match="PT-2"):
        _Kept(0, 2).value.set(foreign, 1)


def test_removed_state_is_not_in_the_snapshot() -> None:
    kept = _Kept()
    kept.map.set(1, 5, 6)
    kept.timers.register(9, 1)
    assert kept.states.snapshot()
    assert kept.map.pop(1, 5) == 6
    kept.timers.pop()
    assert kept.states.snapshot() == {}
    assert kept.states.size_bytes == 0


def test_a_timer_registered_twice_fires_once() -> None:
    kept = _Kept()
    for at_us in (50, 20, 50):
        kept.timers.register(at_us, 3)
    kept.timers.register(20, 1)
    assert not kept.timers.is_due(19)
    assert [kept.timers.pop() for _ in range(3)] == [(20, 1), (20, 3), (50, 3)]
    assert (len(kept.timers), kept.timers.is_due(1_000)) == (0, False)
