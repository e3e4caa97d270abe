"""Chooses the receivers of each record of one sender over one edge (PT-1, PT-2). Each partitioner has a class.

A route chooses the receivers of a single record, or looks ahead at many records. To look ahead, ``places`` returns
where each record goes, ``fitting`` returns how many records fit before the first that does not, and ``deal``
distributes them. Choosing and ``deal`` advance the route, for instance to the next receiver of a round robin;
``places`` and ``fitting`` do not. A position is an index in the sender's list of receivers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Protocol

from backend.runtime.core.elements import Record
from backend.runtime.core.hashing import key_group, owner_of_group
from backend.runtime.core.prng import Stream, mix64
from backend.runtime.job.graph import EdgeSpec, Partitioner

Places = list[int] | None
"""The position of each of many records, or None if positions do not depend on the records."""


class Route(Protocol):
    """How one sender distributes records over its receivers."""

    looks_ahead: bool
    """Whether ``places``, ``fitting`` and ``deal`` are supported."""

    def __call__(self, record: Record) -> tuple[int, ...]:
        """Return the positions to which one record goes, and advance the route."""
        ...

    def places(self, records: list[Record]) -> Places:
        """Return the position of each record. The positions do not depend on when the records are written."""
        ...

    def fitting(self, places: Places, most: int, room: list[int]) -> int:
        """Return how many of the next ``most`` records fit before the first one that does not fit.

        ``places`` are the positions of these records. ``room`` is the number of records that fit at each position.
        """
        ...

    def deal(self, records: list[Record], places: Places) -> Iterator[tuple[int, list[Record]]]:
        """Yield each position with its records, in order, and advance the route."""
        ...


class _Fixed:
    """Sends every record to the same receivers: one, or all of them."""

    looks_ahead = True

    def __init__(self, positions: tuple[int, ...]) -> None:
        self._positions = positions

    def __call__(self, record: Record) -> tuple[int, ...]:
        return self._positions

    def places(self, records: list[Record]) -> Places:
        return None

    def fitting(self, places: Places, most: int, room: list[int]) -> int:
        return min(most, *(room[position] for position in self._positions))

    def deal(self, records: list[Record], places: Places) -> Iterator[tuple[int, list[Record]]]:
        return ((position, records) for position in self._positions)


class _InTurn:
    """Sends records to the receivers in turn (round robin)."""

    looks_ahead = True

    def __init__(self, count: int, at: int) -> None:
        self._singles = tuple((position,) for position in range(count))
        self._count = count
        self._at = at

    def __call__(self, record: Record) -> tuple[int, ...]:
        at = self._at
        self._at = at + 1 if at + 1 < self._count else 0
        return self._singles[at]

    def places(self, records: list[Record]) -> Places:
        return None

    def fitting(self, places: Places, most: int, room: list[int]) -> int:
        at, count = self._at, self._count
        # For each receiver, compute the index of the first record that does not fit there. Each round has one record
        # for each receiver. The index is therefore the number of rounds for which the receiver has room times the
        # number of receivers, plus the receiver's offset in a round.
        return min(most, *(left * count + (position - at) % count for position, left in enumerate(room)))

    def deal(self, records: list[Record], places: Places) -> Iterator[tuple[int, list[Record]]]:
        at, count = self._at, self._count
        self._at = (at + len(records)) % count
        return (((at + n) % count, records[n::count]) for n in range(min(count, len(records))))


class _Shuffled:
    """Sends each record to a random receiver. A random number cannot be taken back, so the route cannot look ahead."""

    looks_ahead = False

    def __init__(self, count: int, draws: Stream) -> None:
        self._singles = tuple((position,) for position in range(count))
        self._count = count
        self._draws = draws

    def __call__(self, record: Record) -> tuple[int, ...]:
        return self._singles[self._draws.below(self._count)]

    def places(self, records: list[Record]) -> Places:
        raise NotImplementedError

    def fitting(self, places: Places, most: int, room: list[int]) -> int:
        raise NotImplementedError

    def deal(self, records: list[Record], places: Places) -> Iterator[tuple[int, list[Record]]]:
        raise NotImplementedError


class _Hashed:
    """Sends each record to the subtask that owns the key group of the record's key."""

    looks_ahead = True

    def __init__(self, count: int, max_parallelism: int, parallelism: int) -> None:
        self._singles = tuple((position,) for position in range(count))
        self._maximum = max_parallelism
        self._parallelism = parallelism
        self._owners: dict[int, int] = {}

    def __call__(self, record: Record) -> tuple[int, ...]:
        return self._singles[self._owner(record.key)]

    def _owner(self, key: int) -> int:
        owner = self._owners.get(key)
        if owner is None:
            owner = owner_of_group(key_group(key, self._maximum), self._parallelism, self._maximum)
            self._owners[key] = owner
        return owner

    def places(self, records: list[Record]) -> Places:
        known = self._owners
        try:
            return [known[record.key] for record in records]
        except KeyError:
            for key in {record.key for record in records} - known.keys():
                self._owner(key)
            return [known[record.key] for record in records]

    def fitting(self, places: Places, most: int, room: list[int]) -> int:
        assert places is not None
        for position, left in enumerate(room):
            if left < most and places.count(position) > left:
                # Stop before the first record that does not fit at this receiver.
                most = _index(places, position, left)
                del places[most:]
        return most

    def deal(self, records: list[Record], places: Places) -> Iterator[tuple[int, list[Record]]]:
        assert places is not None
        dealt: list[list[Record]] = [[] for _ in self._singles]
        for record, place in zip(records, places, strict=True):
            dealt[place].append(record)
        return ((position, of_one) for position, of_one in enumerate(dealt) if of_one)


def _index(found: list[int], value: int, before: int) -> int:
    """Return the index of the occurrence of ``value`` that has ``before`` other occurrences before it."""
    at = -1
    for _ in range(before + 1):
        at = found.index(value, at + 1)
    return at


class _HashedByOrigin(_Hashed):
    """Sends each record to the subtask that owns the key group of the record's origin.

    Each source record has a different origin. The edge's index changes the hash: otherwise, the next edge of the same
    parallelism would send all records of a subtask to one receiver.
    """

    looks_ahead = False

    def __init__(self, count: int, max_parallelism: int, parallelism: int, edge: int) -> None:
        super().__init__(count, max_parallelism, parallelism)
        self._edge = edge

    def __call__(self, record: Record) -> tuple[int, ...]:
        group = key_group(record.origin ^ self._edge, self._maximum)
        return self._singles[owner_of_group(group, self._parallelism, self._maximum)]


class _Shared(_Hashed):
    """Sends each record to a receiver by a hash of the record's origin, so that each receiver gets its share."""

    def __init__(self, shares: tuple[float, ...], edge: int) -> None:
        super().__init__(len(shares), 1, 1)
        self._salt = mix64(edge + 1)
        self._bounds = [int(end / sum(shares) * (1 << 64)) for end in accumulate(shares)]
        self._last = max(position for position, share in enumerate(shares) if share > 0)

    def _position(self, origin: int) -> int:
        return min(bisect_right(self._bounds, mix64(origin ^ self._salt)), self._last)

    def __call__(self, record: Record) -> tuple[int, ...]:
        return self._singles[self._position(record.origin)]

    def places(self, records: list[Record]) -> Places:
        return [self._position(record.origin) for record in records]


def route(
    edge: EdgeSpec, *, index: int, subtask: int, targets: list[int], max_parallelism: int, parallelism: int, seed: int
) -> Route:
    """Return the route of one sender to ``targets``, its receivers in order."""
    count = len(targets)
    if edge.partitioner is Partitioner.BROADCAST:
        return _Fixed(tuple(range(count)))
    if edge.partitioner is Partitioner.GLOBAL or count == 1:
        return _Fixed((0,))
    if edge.partitioner is Partitioner.SHUFFLE:
        return _Shuffled(count, Stream(seed, f"shuffle/{index}/{subtask}"))
    if edge.partitioner is Partitioner.HASH:
        if edge.shares:
            return _Shared(edge.shares, index)
        if edge.by_origin:
            return _HashedByOrigin(count, max_parallelism, parallelism, index)
        return _Hashed(count, max_parallelism, parallelism)
    return _InTurn(count, Stream(seed, f"rebalance/{index}/{subtask}").below(count))
