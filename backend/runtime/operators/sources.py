"""Sources: the splits of a log, whose records are the same in every run, and the subtasks that read them.

This module decides the content of the records and when they become available (SRC-1 to SRC-5). The state of a subtask
is the numbers of its splits and their offsets.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat

from backend.runtime.core.elements import Record, origin_of
from backend.runtime.core.prng import LANES, mix64, mix64_run
from backend.runtime.job.graph import VertexSpec
from backend.runtime.operators.redistribution import redistribute
from backend.runtime.operators.sinks import Bulk, pass_on
from backend.runtime.operators.state import OperatorSnapshot, OperatorState, StateMode

_SPLIT = struct.Struct("<qq")
_SPLITS = "splits"
# The event times of a source without a rate are one millisecond apart.
_STEP_US = 1000.0


SPLIT_ID = struct.Struct("<q")
"""The encoding of one split number in the state of a source's coordinator (CK-1)."""


def held_splits(snapshot: OperatorSnapshot) -> list[int]:
    """Return the numbers of the splits in the snapshot of one source subtask."""
    return [_SPLIT.unpack(entry)[0] for entry in snapshot.entries(_SPLITS)]


class Split:
    """One split of a log. Record n is the same in every run (SRC-1, SRC-3), and is available from its due time on.

    The nominal time of record n is n / rate. Its event time is the nominal time, or up to ``out_of_orderness`` earlier.
    The record is due at its nominal time, or earlier within its burst period, or from the start of the job if it
    belongs to the backlog. After a restore, records that became due in the meantime are available immediately.
    """

    def __init__(self, spec: VertexSpec, number: int, *, seed: int, vertex: int = 0) -> None:
        self.number = number
        self.offset = 0
        self.newest_us = -1
        """The latest event time of the records that this attempt polled; -1 before the first record."""
        self._first_origin = origin_of(number, 0, vertex)
        self._seed = seed
        self._drawn: list[Record] = []
        self._drawn_from = -LANES
        """The offset of the first record in ``_drawn``, the batch of records that was created last."""
        self._keys = spec.keys
        self._hot_limit = int(spec.hot_key_ratio * (1 << 32))
        self.record_bytes = spec.record_bytes
        rate = spec.rate / spec.split_count
        self._period_us = 1e6 / rate if rate > 0 else 0.0
        self._step_us = self._period_us or _STEP_US
        self._spread_us = spec.out_of_orderness_us
        self._burst_period_us = spec.burst_period_us
        self._burst_ratio = spec.burst_ratio
        self._burst_share = spec.burst_share
        self._backlog = _share(spec.backlog, number, spec.split_count)
        self.limit = None if spec.limit is None else _share(spec.limit, number, spec.split_count)
        everything = 1 << 62 if self.limit is None else self.limit
        is_paced = self._period_us > 0 or self._burst_period_us > 0
        self._at_once = min(self._backlog, everything) if is_paced else everything

    def due_us(self) -> int | None:
        """Return the due time of the next record in virtual microseconds, or None if the split has no more records."""
        offset = self.offset
        if offset < self._at_once:
            return 0
        if self.limit is not None and offset >= self.limit:
            return None
        return self._due_us(offset)

    def due_count(self, by_us: int, most: int) -> int:
        """Return how many of the next records are due by ``by_us``, at most ``most``."""
        offset = self.offset
        if offset + most <= self._at_once:
            return most
        end = offset + most if self.limit is None else min(offset + most, self.limit)
        # Due times never decrease with the offset, so a binary search is correct.
        return bisect_right(range(offset, end), by_us, key=self._due_us)

    def _due_us(self, offset: int) -> int:
        if offset < self._at_once:
            return 0
        at_us = int((offset - self._backlog) * self._period_us)
        if self._burst_period_us:
            # The share of the burst of a period's records becomes due in its first part (SRC-4).
            begun_us = at_us // self._burst_period_us * self._burst_period_us
            part_us, period_us = at_us - begun_us, self._burst_period_us
            high_us = period_us * self._burst_share
            if part_us < high_us or self._burst_share >= 1.0:
                at_us = begun_us + int(part_us / self._burst_share * self._burst_ratio)
            else:
                rest = (part_us - high_us) / (period_us - high_us)
                at_us = begun_us + int(period_us * (self._burst_ratio + rest * (1.0 - self._burst_ratio)))
        return at_us

    def stop(self) -> None:
        """End the split after the records polled so far.

        A restore from a later snapshot continues at the same offset.
        """
        self.limit = self.offset
        self._at_once = min(self._at_once, self.offset)

    @property
    def is_processing_backlog(self) -> bool:
        """Whether the next record existed before the job started (SRC-5)."""
        return self.offset < self._backlog

    @property
    def watermark_us(self) -> int:
        """The watermark. The event time of every later record of the split is higher."""
        return max(-1, self.newest_us - self._spread_us - 1)

    def poll(self) -> Record:
        """Return the next record, and advance the offset."""
        records, at = self.drawn()
        record = records[at]
        if record.event_time_us > self.newest_us:
            self.newest_us = record.event_time_us
        self.offset += 1
        return record

    def drawn(self) -> tuple[list[Record], int]:
        """Return a batch of records, and the index of the next record in the batch. Does not advance the offset."""
        at = self.offset - self._drawn_from
        if not 0 <= at < LANES:
            at = self.offset % LANES
            self._drawn_from = self.offset - at
            self._drawn = self._draw(self._drawn_from)
        return self._drawn, at

    def move(self, records: list[Record]) -> None:
        """Advance the offset past ``records``, which must be the next records of the split."""
        self.offset += len(records)
        # If the event times are in order, the last record has the latest one.
        latest = max([record.event_time_us for record in records]) if self._spread_us else records[-1].event_time_us
        if latest > self.newest_us:
            self.newest_us = latest

    def _draw(self, first: int) -> list[Record]:
        """Create the ``LANES`` records from offset ``first`` on. A batch costs less per record than single records."""
        draws = mix64_run(self._seed, self.number << 44 | first)
        hot_limit, keys, step_us = self._hot_limit, self._keys, self._step_us
        of_keys = [(draw & 0xFFFFFFFF) % keys for draw in draws]
        if hot_limit:
            of_keys = [0 if draw >> 32 < hot_limit else key for key, draw in zip(of_keys, draws, strict=True)]
        dated: Sequence[int]
        if step_us.is_integer():
            whole_us = int(step_us)
            dated = range(first * whole_us, (first + LANES) * whole_us, whole_us)
        else:
            dated = [int(offset * step_us) for offset in range(first, first + LANES)]
        if self._spread_us:
            span_us = self._spread_us + 1
            dated = [max(0, at_us - mix64(draw) % span_us) for at_us, draw in zip(dated, draws, strict=True)]
        origins = range(self._first_origin | first, (self._first_origin | first) + LANES)
        return list(map(Record, of_keys, origins, dated, repeat(0), repeat(self.record_bytes)))


def _share(total: int, subtask: int, parallelism: int) -> int:
    share, more = divmod(total, parallelism)
    return share + (subtask < more)


class Source:
    """One subtask of a source. It reads its splits, and emits the record that is due first (SRC-1)."""

    due_us: Callable[[], int | None]
    """Returns the due time of the next record in virtual microseconds, or None if no split has a further record."""
    poll: Callable[[], Record]
    """Returns the next record, and advances the offset of its split."""

    def __init__(self, spec: VertexSpec, subtask: int, *, seed: int, vertex: int = 0) -> None:
        self._of = partial(Split, spec, seed=seed, vertex=vertex)
        self.splits: list[Split] = []
        dealt = redistribute(StateMode.SPLIT, [[n] for n in range(spec.split_count)], spec.parallelism)
        self._take(list(dealt[subtask]))

    def _take(self, numbers: list[int]) -> None:
        self.splits = [self._of(number) for number in numbers]
        if len(self.splits) == 1:
            # ``due_us`` and ``poll`` run for every record. With only one split, the split's own methods are used,
            # which is faster.
            (split,) = self.splits
            self.due_us, self.poll = split.due_us, split.poll
        else:
            self.due_us, self.poll = self._first_due_us, self._poll_first

    def _first(self) -> tuple[int, int, int] | None:
        """Return (due time, offset, split index) of the record that is due first. The lower offset breaks ties."""
        return min(
            ((due, s.offset, n) for n, s in enumerate(self.splits) if (due := s.due_us()) is not None), default=None
        )

    def _first_due_us(self) -> int | None:
        first = self._first()
        return None if first is None else first[0]

    def _poll_first(self) -> Record:
        first = self._first()
        assert first is not None
        return self.splits[first[2]].poll()

    def stop(self) -> None:
        """End every split after the records polled so far. Snapshots keep the offsets."""
        for split in self.splits:
            split.stop()

    def give_up_splits(self) -> None:
        """Read no split, because the source had finished before the restore (FN-16)."""
        self._take([])

    @property
    def offset(self) -> int:
        """The number of records emitted so far, over all splits."""
        return sum(split.offset for split in self.splits)

    @property
    def is_processing_backlog(self) -> bool:
        """Whether the next record of some split existed before the job started (SRC-5)."""
        return any(split.is_processing_backlog for split in self.splits)

    @property
    def watermark_us(self) -> int:
        """The watermark. The event time of every later record is higher. Ended splits do not hold it back."""
        going = [s for s in self.splits if s.due_us() is not None] or self.splits
        return min((split.watermark_us for split in going), default=-1)

    @property
    def only_split(self) -> Split | None:
        """The subtask's split if it reads exactly one, otherwise None."""
        return self.splits[0] if len(self.splits) == 1 else None

    def process(self, record: Record) -> list[Record]:
        """Raise an error, because a source has no input."""
        raise AssertionError("a source has no input")

    def in_bulk(self) -> Bulk | None:
        """Return ``pass_on``, because a source emits the records of its splits unchanged."""
        return pass_on

    def flush(self) -> list[Record]:
        """Return an empty list, because the source holds no records back."""
        return []

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        """Return the numbers of the splits and their next offsets."""
        entries = tuple(_SPLIT.pack(split.number, split.offset) for split in self.splits)
        return OperatorSnapshot(states=(OperatorState(_SPLITS, StateMode.SPLIT, entries),))

    def restore(self, snapshot: OperatorSnapshot, checkpoint_id: int) -> None:
        """Read the splits that the restore assigned to this subtask, each from its stored offset on (RC-7)."""
        if not snapshot.states:
            return
        offsets = dict(_SPLIT.unpack(entry) for entry in snapshot.entries(_SPLITS))
        self._take(list(offsets))
        for split in self.splits:
            split.offset = offsets[split.number]

    def complete(self, checkpoint_id: int) -> None:
        """Do nothing, because a source has nothing to commit."""

    @property
    def state_bytes(self) -> int:
        """The size of the split numbers and their offsets in bytes."""
        return _SPLIT.size * len(self.splits)
