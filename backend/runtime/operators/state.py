"""State of operators: keyed state by key group, timers, operator state with its mode, and their sizes (ST-1, ST-2).

This module defines how state is stored, not what it contains. Invariants: the state of a key is stored only with its
key group, so that a restore can redistribute a snapshot by key group (RC-7). Equal states give equal bytes: the rows of
a key group are ordered by key, and those of a map by their second key (IN-3).
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol, TypeVar

from backend.domain.errors import ProtocolViolationError
from backend.runtime.core.hashing import groups_of, key_group
from backend.runtime.job.config import StateBackend
from backend.runtime.operators.changes import KEY_BYTES, Change, ChangeLog, LoggedValues, Op, Recorder


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
class FileHandle:
    """One immutable file of incremental checkpoints in the store (IN-15).

    A placeholder names a file that an earlier confirmed checkpoint contains: the store must already have it.
    """

    key: str
    path: str
    size_bytes: int
    change_count: int
    crc: int
    spans: tuple[tuple[int, int, int], ...]
    """The place of each key group in the file: the group, the offset and the length."""
    is_placeholder: bool = False

    @property
    def as_placeholder(self) -> FileHandle:
        """The same file, named by a placeholder."""
        return replace(self, is_placeholder=True)


@dataclass(frozen=True, slots=True)
class Increment:
    """The keyed state of one operator as the files that contain it, oldest first (IN-1)."""

    backend: StateBackend
    base_id: int | None
    """The earlier checkpoint whose files this snapshot also uses. None if the snapshot is full."""
    files: tuple[FileHandle, ...]
    part_count: int

    @property
    def replayed_changes(self) -> int:
        """Number of changes that a restore applies one by one (IN-9). Sorted files need no such replay."""
        is_sorted = self.backend is StateBackend.SST
        return 0 if is_sorted else sum(file.change_count for file in self.files[1:])


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """The state of one operator of one subtask: its keyed state by key group, and its operator states."""

    keyed: Mapping[int, bytes] = field(default_factory=dict)
    states: tuple[OperatorState, ...] = ()
    increment: Increment | None = field(default=None, compare=False)
    """The files in the store that contain the keyed state; None if the snapshot itself contains it."""

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

    def row_bytes(self, count: int) -> int:
        """Return the size of a row with ``count`` numbers."""
        ...

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
        # ``dict.__setitem__`` is called directly, because a restored value must not be recorded as a change.
        dict.__setitem__(self.held, key, numbers[0])

    def row_bytes(self, count: int) -> int:
        """Return the size of one key with its value."""
        return 16 + self._value_bytes

    @property
    def size_bytes(self) -> int:
        """The size of the state: for each key, 16 bytes for key and number, plus the declared ``value_bytes``."""
        return len(self.held) * self.row_bytes(1)


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

    def row_bytes(self, count: int) -> int:
        """Return the size of one key with a list of ``count`` numbers."""
        return KEY_BYTES + 8 * count

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
        return _rows((key, [number for pair in sorted(self.held[key].items()) for number in pair]) for key in keys)

    def load(self, key: int, numbers: tuple[int, ...]) -> None:
        """Restore the map of a key."""
        self.held[key] = dict(zip(numbers[::2], numbers[1::2], strict=True))

    def row_bytes(self, count: int) -> int:
        """Return the size of one key with a map of ``count`` numbers: half of them are second keys."""
        return KEY_BYTES + 8 * count

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
            Timers.register(self, at_us, key)

    def row_bytes(self, count: int) -> int:
        """Return the size of ``count`` timers of one key."""
        return 16 * count

    @property
    def size_bytes(self) -> int:
        """The size of the timers: 16 bytes for each, for its key and its time."""
        return 16 * len(self._heap)


class LoggedValueState(ValueState):
    """A value state that records its changes. Its numbers are in a dictionary that records assignments (IN-6)."""

    def __init__(self, states: KeyedStates, value_bytes: int, log: Recorder, part: int) -> None:
        super().__init__(states, value_bytes)
        self.held = LoggedValues(log, part)


class LoggedListState(ListState):
    """A list state that records its changes."""

    def __init__(self, states: KeyedStates, log: Recorder, part: int) -> None:
        super().__init__(states)
        self._log, self._part = log, part

    def extend(self, key: int, numbers: Iterable[int]) -> None:
        """Append numbers to the list of a key, and record the change."""
        added = tuple(numbers)
        super().extend(key, added)
        self._log.add(self._part, Op.APPEND, key, *added)

    def replace(self, key: int, numbers: list[int]) -> None:
        """Replace the list of a key, and record the change."""
        if numbers or key in self.held:
            self._log.add(self._part, Op.PUT if numbers else Op.DELETE, key, *numbers)
        super().replace(key, numbers)


class LoggedMapState(MapState):
    """A map state that records its changes."""

    _log: Recorder
    _part: int

    def log_into(self, log: Recorder, part: int) -> None:
        """Record all later changes in this log, as changes of this part."""
        self._log, self._part = log, part

    def set(self, key: int, at: int, number: int) -> None:
        """Store a number, and record the change."""
        super().set(key, at, number)
        self._log.add(self._part, Op.SET, key, at, number)

    def pop(self, key: int, at: int) -> int | None:
        """Remove and return a number, and record the change."""
        number = super().pop(key, at)
        if number is not None:
            self._log.add(self._part, Op.UNSET, key, at)
        return number


class LoggedReducingState(LoggedMapState, ReducingState):
    """A reducing state that records its changes."""


class LoggedTimers(Timers):
    """Timers that record their changes."""

    def __init__(self, states: KeyedStates, log: Recorder, part: int) -> None:
        super().__init__(states)
        self._log, self._part = log, part

    def register(self, at_us: int, key: int) -> None:
        """Register a timer, and record the change."""
        super().register(at_us, key)
        self._log.add(self._part, Op.ADD, key, at_us)

    def pop(self) -> tuple[int, int]:
        """Remove and return the timer that is due first, and record the change."""
        at_us, key = super().pop()
        self._log.add(self._part, Op.DISCARD, key, at_us)
        return at_us, key


class KeyedBackend(Protocol):
    """A backend that takes the snapshots of one operator's keyed state, instead of ``KeyedStates`` (ST-3)."""

    log: Recorder | None
    """Where the states record their changes; None if the backend does not need them."""

    def attach(self, states: KeyedStates) -> None:
        """Use these states from now on."""
        ...

    def freeze(self) -> Mapping[int, bytes]:
        """Return the keyed state by key group."""
        ...


class KeyedStates:
    """All keyed state and timers of one operator of one subtask."""

    def __init__(
        self, *, subtask: int, parallelism: int, max_parallelism: int, backend: KeyedBackend | None = None
    ) -> None:
        self.groups = groups_of(subtask, parallelism, max_parallelism)
        self._backend = backend
        self._log = None if backend is None else backend.log
        if backend is not None:
            backend.attach(self)
        self._max_parallelism = max_parallelism
        self._parts: list[_Part] = []
        self._keys: dict[int, dict[int, None]] = {}
        self._unordered: set[int] = set()
        """Key groups that may have a new key since they were ordered by key."""
        self._group_of: dict[int, int] = {}

    def value(self, value_bytes: int = 0) -> ValueState:
        """Add a value state. ``value_bytes`` is the size of each value, not counting its number."""
        log, part = self._log, len(self._parts)
        return self._add(
            ValueState(self, value_bytes) if log is None else LoggedValueState(self, value_bytes, log, part)
        )

    def list(self) -> ListState:
        """Add a list state."""
        log, part = self._log, len(self._parts)
        return self._add(ListState(self) if log is None else LoggedListState(self, log, part))

    def map(self) -> MapState:
        """Add a map state."""
        if self._log is None:
            return self._add(MapState(self))
        state = LoggedMapState(self)
        state.log_into(self._log, len(self._parts))
        return self._add(state)

    def reducing(self, reduce: Callable[[int, int], int]) -> ReducingState:
        """Add a reducing state, which combines numbers by ``reduce``."""
        if self._log is None:
            return self._add(ReducingState(self, reduce))
        state = LoggedReducingState(self, reduce)
        state.log_into(self._log, len(self._parts))
        return self._add(state)

    def timers(self) -> Timers:
        """Add a set of event-time timers."""
        log, part = self._log, len(self._parts)
        return self._add(Timers(self) if log is None else LoggedTimers(self, log, part))

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
        self._unordered.add(group)

    def snapshot(self) -> Mapping[int, bytes]:
        """Return, for each key group that has state, its state as bytes, as the backend provides it."""
        return self.dump() if self._backend is None else self._backend.freeze()

    def changes_since_last(self) -> Sequence[Change]:
        """Return the changes since the last call, in order, and forget them (IN-6). Without a log, there are none."""
        return self._log.take() if isinstance(self._log, ChangeLog) else []

    @property
    def part_count(self) -> int:
        """The number of keyed states, timers included."""
        return len(self._parts)

    def group_of(self, key: int) -> int:
        """Return the key group of a key that has or had an entry."""
        return self._group_of[key]

    def change_bytes(self, change: Change) -> int:
        """Return the size of a change. If it contains a whole row, this is the size of the row (IN-4)."""
        if change.op is Op.PUT:
            return self._parts[change.part].row_bytes(len(change.numbers))
        return change.bytes_without_value

    def row_of(self, part: int, key: int) -> tuple[int, ...] | None:
        """Return the numbers of a key in one of the states, or None if the key has no entry there."""
        own = self._parts[part]
        if key not in own.keys():  # noqa: SIM118 - the states are no dictionaries
            return None
        _, _, *numbers = own.dump([key])
        return tuple(numbers)

    def dump(self) -> dict[int, bytes]:
        """Return, for each key group that has state, the whole state as bytes."""
        result: dict[int, bytes] = {}
        for group in sorted(self._keys):
            numbers: list[int] = []
            is_kept = False
            if group in self._unordered:
                self._unordered.discard(group)
                self._keys[group] = dict.fromkeys(sorted(self._keys[group]))
            ordered = self._keys[group]
            for part in self._parts:
                kept = part.keys()
                keys = [key for key in ordered if key in kept]
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
