"""What operators keep: keyed state by key group, timers, operator state with its mode, and their bytes (ST-1, ST-2).

Decides how state is laid out and read back, never what is in it. Invariant: a key's state lies with its key group and
nowhere else, so that a snapshot can be handed on group by group (RC-7).
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
    """How entries of operator state are spread over subtasks at a restore (ST-2)."""

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
    """The state of one operator of one subtask: keyed state by key group, and operator states."""

    keyed: Mapping[int, bytes] = field(default_factory=dict)
    states: tuple[OperatorState, ...] = ()

    def entries(self, name: str) -> tuple[bytes, ...]:
        """The entries of a state; none where it is not there."""
        return next((s.entries for s in self.states if s.name == name), ())


NO_STATE = OperatorSnapshot()
"""Of an operator that keeps nothing, or starts afresh."""


class _Part(Protocol):
    """One kind of keyed state, as a snapshot sees it: whole numbers by key."""

    def keys(self) -> Container[int]: ...

    def dump(self, keys: list[int]) -> Iterable[int]:
        """Of each of its keys: the key, how many numbers, the numbers."""
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
    """One number a key. ``held`` may be read and written for keys that are known to it; ``set`` makes them known."""

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
        """Keys with a value."""
        return self.held

    def dump(self, keys: list[int]) -> Iterable[int]:
        """The value as a number."""
        held = self.held
        return [number for key in keys for number in (key, 1, held[key])]

    def load(self, key: int, numbers: tuple[int, ...]) -> None:
        """Take the value up."""
        (self.held[key],) = numbers

    @property
    def size_bytes(self) -> int:
        """Key and number, and the declared size of the rest of a value."""
        return len(self.held) * (16 + self._value_bytes)


class ListState:
    """A list of numbers a key."""

    def __init__(self, states: KeyedStates) -> None:
        self.held: dict[int, list[int]] = {}
        self._states = states

    def extend(self, key: int, numbers: Iterable[int]) -> None:
        """Append to a key's list."""
        held = self.held.get(key)
        if held is None:
            self._states.touch(key)
            held = self.held[key] = []
        held.extend(numbers)

    def replace(self, key: int, numbers: list[int]) -> None:
        """Write a key's list anew; an empty one is dropped."""
        if numbers:
            self.held[key] = numbers
        else:
            self.held.pop(key, None)

    def keys(self) -> Container[int]:
        """Keys with a list."""
        return self.held

    def dump(self, keys: list[int]) -> Iterable[int]:
        """The list."""
        return _rows((key, self.held[key]) for key in keys)

    def load(self, key: int, numbers: tuple[int, ...]) -> None:
        """Take the list up."""
        self.held[key] = list(numbers)

    @property
    def size_bytes(self) -> int:
        """Eight bytes a key and a number."""
        return 8 * sum(1 + len(numbers) for numbers in self.held.values())


class MapState:
    """Numbers by a second key, such as a window's end, for every key."""

    def __init__(self, states: KeyedStates) -> None:
        self.held: dict[int, dict[int, int]] = {}
        self._states = states

    def get(self, key: int, at: int) -> int | None:
        """One number; None where there is none."""
        held = self.held.get(key)
        return None if held is None else held.get(at)

    def set(self, key: int, at: int, number: int) -> None:
        """Write one number."""
        held = self.held.get(key)
        if held is None:
            self._states.touch(key)
            held = self.held[key] = {}
        held[at] = number

    def pop(self, key: int, at: int) -> int | None:
        """Take one number out; None where there was none."""
        held = self.held.get(key)
        if held is None:
            return None
        number = held.pop(at, None)
        if not held:
            del self.held[key]
        return number

    def keys(self) -> Container[int]:
        """Keys with at least one number."""
        return self.held

    def dump(self, keys: list[int]) -> Iterable[int]:
        """Pairs of second key and number."""
        return _rows((key, [number for pair in self.held[key].items() for number in pair]) for key in keys)

    def load(self, key: int, numbers: tuple[int, ...]) -> None:
        """Take the pairs up."""
        self.held[key] = dict(zip(numbers[::2], numbers[1::2], strict=True))

    @property
    def size_bytes(self) -> int:
        """Eight bytes a key, sixteen a pair."""
        return 8 * sum(1 + 2 * len(held) for held in self.held.values())


class ReducingState(MapState):
    """A map state whose numbers are folded: what is added is reduced with what is there."""

    def __init__(self, states: KeyedStates, reduce: Callable[[int, int], int]) -> None:
        super().__init__(states)
        self._reduce = reduce

    def add(self, key: int, at: int, number: int) -> None:
        """Fold ``number`` in."""
        before = self.get(key, at)
        self.set(key, at, number if before is None else self._reduce(before, number))


class Timers:
    """Event-time timers by key; one a key and time. They fire by time, then by key."""

    def __init__(self, states: KeyedStates) -> None:
        self._states = states
        self._heap: list[tuple[int, int]] = []
        self._of_key: dict[int, set[int]] = {}

    def register(self, at_us: int, key: int) -> None:
        """Fire at ``at_us``; a second registration is the first."""
        times = self._of_key.get(key)
        if times is None:
            self._states.touch(key)
            times = self._of_key[key] = set()
        if at_us not in times:
            times.add(at_us)
            heapq.heappush(self._heap, (at_us, key))

    def is_due(self, watermark_us: int) -> bool:
        """Whether one is to fire at this watermark."""
        return bool(self._heap) and self._heap[0][0] <= watermark_us

    def pop(self) -> tuple[int, int]:
        """(time, key) of the next one, which is registered no longer."""
        at_us, key = heapq.heappop(self._heap)
        times = self._of_key[key]
        times.remove(at_us)
        if not times:
            del self._of_key[key]
        return at_us, key

    def __len__(self) -> int:
        return len(self._heap)

    def keys(self) -> Container[int]:
        """Keys with a timer."""
        return self._of_key

    def dump(self, keys: list[int]) -> Iterable[int]:
        """The times, ascending."""
        return _rows((key, sorted(self._of_key[key])) for key in keys)

    def load(self, key: int, numbers: tuple[int, ...]) -> None:
        """Take the times up."""
        for at_us in numbers:
            self.register(at_us, key)

    @property
    def size_bytes(self) -> int:
        """Key and time of each."""
        return 16 * len(self._heap)


class KeyedStates:
    """All keyed state of one operator of one subtask."""

    def __init__(self, *, subtask: int, parallelism: int, max_parallelism: int) -> None:
        self.groups = groups_of(subtask, parallelism, max_parallelism)
        self._max_parallelism = max_parallelism
        self._parts: list[_Part] = []
        self._keys: dict[int, dict[int, None]] = {}
        self._group_of: dict[int, int] = {}

    def value(self, value_bytes: int = 0) -> ValueState:
        """A new value state; ``value_bytes`` is the declared size of what a value stands for."""
        return self._add(ValueState(self, value_bytes))

    def list(self) -> ListState:
        """A new list state."""
        return self._add(ListState(self))

    def map(self) -> MapState:
        """A new map state."""
        return self._add(MapState(self))

    def reducing(self, reduce: Callable[[int, int], int]) -> ReducingState:
        """A new reducing state."""
        return self._add(ReducingState(self, reduce))

    def timers(self) -> Timers:
        """The operator's timers."""
        return self._add(Timers(self))

    def _add(self, part: _P) -> _P:
        self._parts.append(part)
        return part

    def touch(self, key: int) -> None:
        """A part begins to keep something of the key."""
        group = self._group_of.get(key)
        if group is None:
            group = self._group_of[key] = key_group(key, self._max_parallelism)
            if group not in self.groups:
                raise ProtocolViolationError(f"key {key} of group {group} at the owner of {self.groups}", rule="PT-2")
        self._keys.setdefault(group, {})[key] = None

    def snapshot(self) -> dict[int, bytes]:
        """The bytes of every key group that keeps something."""
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
        """Take key groups up, each of which must be this subtask's."""
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
        """Of all parts."""
        return sum(part.size_bytes for part in self._parts)
