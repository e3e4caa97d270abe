"""State of operators: keyed state by key group, timers, operator state with its mode, and their sizes (ST-1, ST-2).

This module defines how state is stored, not what it contains. Invariant: the state of a key is stored only with its key
group, so that a restore can redistribute a snapshot by key group (RC-7).
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeVar

from backend.domain.errors import ProtocolViolationError
from backend.runtime.core.hashing import groups_of, key_group


class StateMode(StrEnum):
    """How a restore distributes the entries of an operator state over the subtasks (ST-2)."""

    SPLIT = "split"
    UNION = "union"
    BROADCAST = "broadcast"


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The entries of one named operator state of one subtask."""

    name: str
    mode: StateMode
    entries: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """The state of one operator of one subtask: its keyed state by key group, and its operator states."""

    keyed: Mapping[int, bytes] = field(default_factory=dict)
    states: tuple[OperatorState, ...] = ()

    def entries(self, name: str) -> tuple[bytes, ...]:
        """Return the entries of the operator state with this name, or an empty tuple if there is no such state."""
        return next((s.entries for s in self.states if s.name == name), ())


NO_STATE = OperatorSnapshot()
"""The snapshot of an operator that has no state or starts without state."""


class _Part(Protocol):
    """One keyed state of an operator. A snapshot stores it as integers for each key."""

    def keys(self) -> Container[int]: ...

    def dump(self, keys: list[int]) -> Iterable[int]:
        """Return the rows of the keys. The row of a key is the key, the count of its numbers, and the numbers."""
        ...

    def load(self, key: int, numbers: tuple[int, ...]) -> None: ...

    @property
    def size_bytes(self) -> int: ...


_P = TypeVar("_P", bound=_Part)


def _rows(of_keys: Iterable[tuple[int, list[int]]]) -> Iterable[int]:
    for key, numbers in of_keys:
        yield key
        yield len(numbers)
        yield from numbers


class ValueState:
    """One number per key.

    Callers may write to ``held`` directly for keys that it already contains. For other keys, they must call ``set``.
    """

    def __init__(self, states: KeyedStates, value_bytes: int) -> None:
        self.held: dict[int, int] = {}
        self._states = states
        self._value_bytes = value_bytes

    def set(self, key: int, value: int) -> None:
        """Write a key's value."""
        if key not in self.held:
            self._states.touch(key)
        self.held[key] = value

    def keys(self) -> Container[int]:
        """Return the keys that have a value."""
        return self.held

    def dump(self, keys: list[int]) -> Iterable[int]:
        """Return one row per key: the key, the count 1, and the value."""
        held = self.held
        return [number for key in keys for number in (key, 1, held[key])]

    def load(self, key: int, numbers: tuple[int, ...]) -> None:
        """Restore the value of a key."""
        (self.held[key],) = numbers

    @property
    def size_bytes(self) -> int:
        """The size of the state: for each key, 16 bytes for key and number, plus the declared ``value_bytes``."""
        return len(self.held) * (16 + self._value_bytes)


class ListState:
    """A list of numbers per key."""

    def __init__(self, states: KeyedStates) -> None:
        self.held: dict[int, list[int]] = {}
        self._states = states

    def extend(self, key: int, numbers: Iterable[int]) -> None:
        """Append numbers to the list of a key."""
        held = self.held.get(key)
        if held is None:
            self._states.touch(key)
            held = self.held[key] = []
        held.extend(numbers)

    def replace(self, key: int, numbers: list[int]) -> None:
        """Replace the list of a key. An empty list removes the key."""
        if numbers:
            self.held[key] = numbers
        else:
            self.held.pop(key, None)

    def keys(self) -> Container[int]:
        """Return the keys that have a list."""
        return self.held

    def dump(self, keys: list[int]) -> Iterable[int]:
        """Return one row per key: the key, the count of its numbers, and the numbers."""
        return _rows((key, self.held[key]) for key in keys)

    def load(self, key: int, numbers: tuple[int, ...]) -> None:
        """Restore the list of a key."""
        self.held[key] = list(numbers)

    @property
    def size_bytes(self) -> int:
        """The size of the state: 8 bytes for each key and 8 for each number."""
        return 8 * sum(1 + len(numbers) for numbers in self.held.values())


class MapState:
    """For each key, a map from a second key, such as the end of a window, to a number."""

    def __init__(self, states: KeyedStates) -> None:
        self.held: dict[int, dict[int, int]] = {}
        self._states = states

    def get(self, key: int, at: int) -> int | None:
        """Return the number of ``key`` at the second key ``at``, or None if there is no such number."""
        held = self.held.get(key)
        return None if held is None else held.get(at)

    def set(self, key: int, at: int, number: int) -> None:
        """Store the number of ``key`` at the second key ``at``."""
        held = self.held.get(key)
        if held is None:
            self._states.touch(key)
            held = self.held[key] = {}
        held[at] = number

    def pop(self, key: int, at: int) -> int | None:
        """Remove and return the number of ``key`` at the second key ``at``; return None if there is no such number."""
        held = self.held.get(key)
        if held is None:
            return None
        number = held.pop(at, None)
        if not held:
            del self.held[key]
        return number

    def keys(self) -> Container[int]:
        """Return the keys that have at least one number."""
        return self.held

    def dump(self, keys: list[int]) -> Iterable[int]:
        """Return one row per key: the key, the count, and then each second key followed by its number."""
        return _rows((key, [number for pair in self.held[key].items() for number in pair]) for key in keys)

    def load(self, key: int, numbers: tuple[int, ...]) -> None:
        """Restore the map of a key."""
        self.held[key] = dict(zip(numbers[::2], numbers[1::2], strict=True))

    @property
    def size_bytes(self) -> int:
        """The size of the state: 8 bytes for each key, and 16 for each second key with its number."""
        return 8 * sum(1 + 2 * len(held) for held in self.held.values())


class ReducingState(MapState):
    """A map state that combines each added number with the stored one by the function ``reduce``."""

    def __init__(self, states: KeyedStates, reduce: Callable[[int, int], int]) -> None:
        super().__init__(states)
        self._reduce = reduce

    def add(self, key: int, at: int, number: int) -> None:
        """Combine ``number`` with the stored number of ``key`` at the second key ``at``.

        If none is stored, store ``number``.
        """
        before = self.get(key, at)
        self.set(key, at, number if before is None else self._reduce(before, number))


class Timers:
    """Event-time timers, at most one per key and time. They fire in order of time, then of key."""

    def __init__(self, states: KeyedStates) -> None:
        self._states = states
        self._heap: list[tuple[int, int]] = []
        self._of_key: dict[int, set[int]] = {}

    def register(self, at_us: int, key: int) -> None:
        """Register a timer of ``key`` for ``at_us``. Registering the same timer again has no effect."""
        times = self._of_key.get(key)
        if times is None:
            self._states.touch(key)
            times = self._of_key[key] = set()
        if at_us not in times:
            times.add(at_us)
            heapq.heappush(self._heap, (at_us, key))

    def is_due(self, watermark_us: int) -> bool:
        """Return whether a timer is due at this watermark."""
        return bool(self._heap) and self._heap[0][0] <= watermark_us

    def pop(self) -> tuple[int, int]:
        """Remove the timer that is due first, and return its time and its key."""
        at_us, key = heapq.heappop(self._heap)
        times = self._of_key[key]
        times.remove(at_us)
        if not times:
            del self._of_key[key]
        return at_us, key

    def __len__(self) -> int:
        return len(self._heap)

    def keys(self) -> Container[int]:
        """Return the keys that have a timer."""
        return self._of_key

    def dump(self, keys: list[int]) -> Iterable[int]:
        """Return one row per key: the key, the count of its timers, and their times in ascending order."""
        return _rows((key, sorted(self._of_key[key])) for key in keys)

    def load(self, key: int, numbers: tuple[int, ...]) -> None:
        """Restore the timers of a key."""
        for at_us in numbers:
            self.register(at_us, key)

    @property
    def size_bytes(self) -> int:
        """The size of the timers: 16 bytes for each, for its key and its time."""
        return 16 * len(self._heap)


class KeyedStates:
    """All keyed state and timers of one operator of one subtask."""

    def __init__(self, *, subtask: int, parallelism: int, max_parallelism: int) -> None:
        self.groups = groups_of(subtask, parallelism, max_parallelism)
        self._max_parallelism = max_parallelism
        self._parts: list[_Part] = []
        self._keys: dict[int, dict[int, None]] = {}
        self._group_of: dict[int, int] = {}

    def value(self, value_bytes: int = 0) -> ValueState:
        """Add a value state. ``value_bytes`` is the size that each value has in addition to its number."""
        return self._add(ValueState(self, value_bytes))

    def list(self) -> ListState:
        """Add a list state."""
        return self._add(ListState(self))

    def map(self) -> MapState:
        """Add a map state."""
        return self._add(MapState(self))

    def reducing(self, reduce: Callable[[int, int], int]) -> ReducingState:
        """Add a reducing state, which combines numbers by ``reduce``."""
        return self._add(ReducingState(self, reduce))

    def timers(self) -> Timers:
        """Add a set of event-time timers."""
        return self._add(Timers(self))

    def _add(self, part: _P) -> _P:
        self._parts.append(part)
        return part

    def touch(self, key: int) -> None:
        """Record that one of the states now has an entry for the key.

        Raises:
            ProtocolViolationError: another subtask owns the key group of the key (PT-2).
        """
        group = self._group_of.get(key)
        if group is None:
            group = self._group_of[key] = key_group(key, self._max_parallelism)
            if group not in self.groups:
                raise ProtocolViolationError(f"key {key} of group {group} at the owner of {self.groups}", rule="PT-2")
        self._keys.setdefault(group, {})[key] = None

    def snapshot(self) -> dict[int, bytes]:
        """Return, for each key group that has state, its state as bytes."""
        result: dict[int, bytes] = {}
        for group in sorted(self._keys):
            numbers: list[int] = []
            is_kept = False
            for part in self._parts:
                kept = part.keys()
                keys = [key for key in self._keys[group] if key in kept]
                is_kept = is_kept or bool(keys)
                numbers.append(len(keys))
                numbers += part.dump(keys)
            if is_kept:
                result[group] = struct.pack(f"<{len(numbers)}q", *numbers)
            else:
                del self._keys[group]
        return result

    def restore(self, keyed: Mapping[int, bytes]) -> None:
        """Restore the state of key groups. This subtask must own all of them."""
        for data in keyed.values():
            numbers = struct.unpack(f"<{len(data) // 8}q", data)
            at = 0
            for part in self._parts:
                count, at = numbers[at], at + 1
                for _ in range(count):
                    key, size = numbers[at], numbers[at + 1]
                    at += 2 + size
                    self.touch(key)
                    part.load(key, numbers[at - size : at])

    @property
    def size_bytes(self) -> int:
        """The total size of all states and timers."""
        return sum(part.size_bytes for part in self._parts)
