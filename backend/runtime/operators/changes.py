"""Changes of keyed state since the last snapshot, and how a sequence of changes becomes state again (IN-6, IN-9).

A change names a part (one keyed state of an operator), an operation, a key and numbers. The files of all incremental
backends contain changes, by key group. ``consolidated`` applies files in order and returns the state in the form of a
full snapshot.

Invariant (IN-3): the consolidated state has the same bytes as a full snapshot at the same barrier.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

KEY_BYTES = 8
_NUMBER_BYTES = 8


class Op(IntEnum):
    """What a change does to the row of a key."""

    PUT = 0
    """Replace the whole row by the numbers."""
    DELETE = 1
    """Remove the row."""
    APPEND = 2
    """Append the numbers to a list."""
    SET = 3
    """Set an entry of a map: the first number is the second key, and the second number is the value."""
    UNSET = 4
    """Remove the entry of a map whose second key is the number."""
    ADD = 5
    """Add the number to a set of timers."""
    DISCARD = 6
    """Remove the number from a set of timers."""


class Change(NamedTuple):
    """One change of one keyed state."""

    part: int
    op: Op
    key: int
    numbers: tuple[int, ...] = ()

    @property
    def bytes_without_value(self) -> int:
        """The size in bytes of a change that is not a whole row: the size of its key and its numbers."""
        return KEY_BYTES + _NUMBER_BYTES * len(self.numbers)


class Recorder(Protocol):
    """Receives each change of one operator's keyed states."""

    def add(self, part: int, op: Op, key: int, *numbers: int) -> None:
        """Record one change, unless the next snapshot writes the whole state anyway."""
        ...


class ChangeLog:
    """Collects the changes of one operator's keyed states, in order. It is off until ``start``."""

    def __init__(self) -> None:
        self._changes: list[Change] | None = None

    def __len__(self) -> int:
        return len(self._changes or ())

    def start(self) -> None:
        """Record all changes from now on. Forget earlier ones."""
        self._changes = []

    def stop(self) -> None:
        """Record no more changes, and forget those that are recorded."""
        self._changes = None

    def add(self, part: int, op: Op, key: int, *numbers: int) -> None:
        """Record one change."""
        if self._changes is not None:
            self._changes.append(Change(part, op, key, numbers))

    def take(self) -> list[Change]:
        """Return all changes, and forget them."""
        if self._changes is None:
            return []
        taken, self._changes = self._changes, []
        return taken


class ChangedRows:
    """Records which rows of one operator's keyed states have changed, each row once. It is off until ``start``."""

    def __init__(self) -> None:
        self._rows: set[tuple[int, int]] | None = None

    def __len__(self) -> int:
        return len(self._rows or ())

    def start(self) -> None:
        """Record the changed rows from now on, and forget earlier ones."""
        self._rows = set()

    def stop(self) -> None:
        """Stop recording, and forget the recorded rows."""
        self._rows = None

    def add(self, part: int, op: Op, key: int, *numbers: int) -> None:
        """Record the row of one change."""
        if self._rows is not None:
            self._rows.add((part, key))

    def take(self) -> list[tuple[int, int]]:
        """Return the part and the key of each recorded row, in order, and forget the rows."""
        if self._rows is None:
            return []
        taken, self._rows = sorted(self._rows), set()
        return taken


class LoggedValues(dict[int, int]):
    """The numbers of a value state. Each assignment is recorded as a change."""

    def __init__(self, log: Recorder, part: int) -> None:
        super().__init__()
        self._log = log
        self._part = part

    def __setitem__(self, key: int, value: int) -> None:
        super().__setitem__(key, value)
        self._log.add(self._part, Op.PUT, key, value)


# --- bytes ------------------------------------------------------------------------------------------------------------


def encoded(changes: Iterable[Change], group_of: Callable[[int], int]) -> dict[int, bytes]:
    """Return the changes as bytes by key group. The changes of a group keep their order."""
    numbers: dict[int, list[int]] = {}
    for part, op, key, own in changes:
        into = numbers.setdefault(group_of(key), [])
        into += (part, op, key, len(own))
        into += own
    return {group: struct.pack(f"<{len(n)}q", *n) for group, n in sorted(numbers.items())}


def decoded(data: bytes) -> Iterator[Change]:
    """Yield the changes of one key group."""
    numbers = struct.unpack(f"<{len(data) // 8}q", data)
    at = 0
    while at < len(numbers):
        part, op, key, count = numbers[at : at + 4]
        at += 4 + count
        yield Change(part, Op(op), key, numbers[at - count : at])


def rows(data: bytes, part_count: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield (part, key, numbers) for each row of one key group of a full snapshot."""
    numbers = struct.unpack(f"<{len(data) // 8}q", data)
    at = 0
    for part in range(part_count):
        count, at = numbers[at], at + 1
        for _ in range(count):
            key, size = numbers[at], numbers[at + 1]
            at += 2 + size
            yield part, key, numbers[at - size : at]


_Table = dict[tuple[int, int], Any]
"""Rows by part and key. A row is a list of numbers, a map or a set, depending on the last operation on it."""


def consolidated(files: Iterable[Mapping[int, bytes]], part_count: int) -> dict[int, bytes]:
    """Apply the changes of all files in order, and return the state in the form of a full snapshot, by key group."""
    tables: dict[int, _Table] = {}
    for file in files:
        for group, data in file.items():
            table = tables.setdefault(group, {})
            for change in decoded(data):
                _apply(table, change)
    return {group: _full(table, part_count) for group, table in sorted(tables.items()) if table}


def _apply(table: _Table, change: Change) -> None:
    at = (change.part, change.key)
    match change.op:
        case Op.PUT:
            table[at] = list(change.numbers)
        case Op.DELETE:
            table.pop(at, None)
        case Op.APPEND:
            table.setdefault(at, []).extend(change.numbers)
        case Op.SET | Op.UNSET:
            _apply_to_map(table, at, change.numbers)
        case Op.ADD | Op.DISCARD:
            held = table.get(at, ())
            times = table[at] = held if isinstance(held, set) else set(held)
            if change.op is Op.ADD:
                times.update(change.numbers)
            else:
                times.difference_update(change.numbers)
    if change.op in (Op.UNSET, Op.DISCARD) and not table[at]:
        del table[at]


def _apply_to_map(table: _Table, at: tuple[int, int], numbers: tuple[int, ...]) -> None:
    held = table.get(at, [])
    pairs = table[at] = held if isinstance(held, dict) else dict(zip(held[::2], held[1::2], strict=True))
    if len(numbers) == 2:
        pairs[numbers[0]] = numbers[1]
    else:
        pairs.pop(numbers[0], None)


def _full(table: _Table, part_count: int) -> bytes:
    by_part: list[list[tuple[int, Any]]] = [[] for _ in range(part_count)]
    for (part, key), row in sorted(table.items(), key=lambda item: item[0]):
        by_part[part].append((key, row))
    numbers: list[int] = []
    for own in by_part:
        numbers.append(len(own))
        for key, row in own:
            flat = _flat(row)
            numbers += (key, len(flat))
            numbers += flat
    return struct.pack(f"<{len(numbers)}q", *numbers)


def _flat(row: Any) -> list[int]:
    if isinstance(row, dict):
        return [number for pair in sorted(row.items()) for number in pair]
    return sorted(row) if isinstance(row, set) else list(row)
