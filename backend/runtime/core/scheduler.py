"""The event heap on virtual time (DET-1, DET-2, DET-5). It knows nothing of streams.

Events at one time run by class, then in the order in which they were scheduled; steps, the last class, in the order of
their subtasks. Under ``fuzz`` those of one time run in a drawn order instead. Every event run is folded into one hash,
but for steps: a subtask sums its own up, for where it runs ahead it has none here (``running_ahead.py``).

Invariant (INV-13): the same events, under the same fuzz or none, run in the same order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from backend.runtime.core.prng import Stream

_MASK = (1 << 64) - 1
_HASH_PRIME = 0x100000001B3
_CLASS_SHIFT = 60
_DRAW_SHIFT = 40

Action = Callable[[Any], int | None]
"""A step may return when the next one is: what runs step after step need not ask for each."""


class EventClass(IntEnum):
    """Order of events at equal time."""

    NETWORK = 0
    TIMER = 1
    RPC = 2
    STORAGE = 3
    STEP = 4


_STEPS = EventClass.STEP << _CLASS_SHIFT
_SUBTASK_SHIFT = 36
_SEQUENCE_MASK = (1 << _SUBTASK_SHIFT) - 1
_BEHIND_ALL = 1 << _CLASS_SHIFT + 3


def turn_of(subtask: int) -> int:
    """The ``order`` from which on events of one instant come behind the step of this subtask, by its number."""
    return _STEPS | subtask + 1 << _SUBTASK_SHIFT


class Scheduler:
    """A heap of (time, order, action, argument)."""

    __slots__ = ("_draws", "_heap", "_sequence", "_step_sequence", "event_count", "hash", "now", "order")

    def __init__(self, fuzz_seed: int = 0) -> None:
        self.now = 0
        self.hash = 0xCBF29CE484222325
        self.event_count = 0
        self._heap: list[tuple[int, int, Action, Any]] = []
        self._sequence = 0
        self._step_sequence = 0
        self.order = _BEHIND_ALL
        """The place of the event in work among those of its instant; behind all of them between two slices."""
        self._draws = Stream(fuzz_seed, "schedule") if fuzz_seed else None

    def at(self, time_us: int, event_class: int, action: Action, argument: Any = None) -> None:
        """Run ``action(argument)`` at ``time_us``, not before now."""
        self._sequence += 1
        order = event_class << _CLASS_SHIFT | self._sequence if self._draws is None else self._drawn(self._sequence)
        heapq.heappush(self._heap, (time_us if time_us > self.now else self.now, order, action, argument))

    def step_at(self, time_us: int, subtask: int, action: Action, argument: Any) -> None:
        """Run a step of the subtask with this number, not before now."""
        heapq.heappush(
            self._heap, (time_us if time_us > self.now else self.now, self._step_order(subtask), action, argument)
        )

    def _step_order(self, subtask: int) -> int:
        if self._draws is not None:
            self._sequence += 1
            return self._drawn(self._sequence)
        # The sequence only keeps apart what is not to run any more.
        self._step_sequence = sequence = self._step_sequence + 1 & _SEQUENCE_MASK
        return _STEPS | subtask << _SUBTASK_SHIFT | sequence

    @property
    def is_fuzzed(self) -> bool:
        """Whether the order of one instant is drawn (DET-5)."""
        return self._draws is not None

    def _drawn(self, sequence: int) -> int:
        """One drawn class for all: the order within one time is free, the sequence only keeps keys apart."""
        assert self._draws is not None
        return self._draws.below(1 << 20) << _DRAW_SHIFT | sequence

    def after(self, delay_us: int, event_class: int, action: Action, argument: Any = None) -> None:
        """Run ``action(argument)`` after ``delay_us``."""
        self.at(self.now + delay_us, event_class, action, argument)

    def jitter(self, delay_us: int) -> int:
        """``delay_us``, under fuzz drawn between half and the double of it (DET-5)."""
        if self._draws is None or delay_us <= 0:
            return delay_us
        return self._draws.between(delay_us // 2 + 1, delay_us * 2)

    def run_until(self, time_us: int) -> None:
        """Run everything up to and including ``time_us``; that is the time afterwards."""
        heap = self._heap
        pop, push_and_pop, draws = heapq.heappop, heapq.heappushpop, self._draws
        folded = self.hash
        count = 0
        try:
            entry = pop(heap) if heap and heap[0][0] <= time_us else None
            while entry is not None:
                now, order, action, argument = entry
                self.now = now
                self.order = order
                if order < _STEPS:
                    folded = ((folded ^ now ^ order) * _HASH_PRIME) & _MASK
                    count += 1
                again_us = action(argument)
                if again_us is None:
                    entry = pop(heap) if heap and heap[0][0] <= time_us else None
                    continue
                # Where no event comes before it, it does not go through the heap at all.
                if draws is None:
                    self._step_sequence = sequence = self._step_sequence + 1 & _SEQUENCE_MASK
                    order = order & ~_SEQUENCE_MASK | sequence
                else:
                    self._sequence = sequence = self._sequence + 1
                    order = self._drawn(sequence)
                entry = push_and_pop(heap, (again_us, order, action, argument))
                if entry[0] > time_us:
                    heapq.heappush(heap, entry)
                    break
        finally:
            self.hash = folded
            self.event_count += count
        self.order = _BEHIND_ALL
        if time_us > self.now:
            self.now = time_us

    def fold(self, text: str) -> None:
        """Make something that came from outside part of the trace."""
        for byte in text.encode():
            self.hash = ((self.hash ^ byte) * _HASH_PRIME) & _MASK
