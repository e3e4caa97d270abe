"""The event heap on virtual time (DET-1, DET-2, DET-5). This module knows nothing about stream processing.

Events at the same time run in the order of their classes. Within a class, they run in the order in which they were
scheduled. The last class is the steps of subtasks, which run in the order of the subtasks. With a fuzz seed, events at
the same time run in a random order instead.

Every event that runs is folded into one hash, except for steps. Each subtask sums up its own steps, because a subtask
that runs ahead schedules no event for its steps (``running_ahead.py``).

Invariant (INV-13): the order of events depends only on the events themselves and on the fuzz seed, if there is one.
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
"""The function that an event calls. A step may return the time of its next run instead of scheduling that run."""


class EventClass(IntEnum):
    """The class of an event. Events at the same time run in the order of these values."""

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
    """Return the ``order`` of events that run right after the steps of a subtask.

    Among the events at the same time, they run after all steps of this subtask and before those of the next subtask.
    """
    return _STEPS | subtask + 1 << _SUBTASK_SHIFT


class Scheduler:
    """A heap of events. Each event has a time, its order at that time, an action, and the argument of the action."""

    __slots__ = ("_draws", "_heap", "_sequence", "_step_sequence", "event_count", "hash", "now", "order")

    def __init__(self, fuzz_seed: int = 0, *, now_us: int = 0) -> None:
        self.now = now_us
        self.hash = 0xCBF29CE484222325
        self.event_count = 0
        self._heap: list[tuple[int, int, Action, Any]] = []
        self._sequence = 0
        self._step_sequence = 0
        self.order = _BEHIND_ALL
        """The ``order`` of the running event among the events at the same time.

        While no event runs, it is higher than the order of any event.
        """
        self._draws = Stream(fuzz_seed, "schedule") if fuzz_seed else None

    def at(self, time_us: int, event_class: int, action: Action, argument: Any = None) -> None:
        """Schedule ``action(argument)`` for ``time_us``, or for now if ``time_us`` is past."""
        self._sequence += 1
        order = event_class << _CLASS_SHIFT | self._sequence if self._draws is None else self._drawn(self._sequence)
        heapq.heappush(self._heap, (time_us if time_us > self.now else self.now, order, action, argument))

    def step_at(self, time_us: int, subtask: int, action: Action, argument: Any) -> None:
        """Schedule a step of a subtask for ``time_us``, or for now if ``time_us`` is past."""
        heapq.heappush(
            self._heap, (time_us if time_us > self.now else self.now, self._step_order(subtask), action, argument)
        )

    def _step_order(self, subtask: int) -> int:
        if self._draws is not None:
            self._sequence += 1
            return self._drawn(self._sequence)
        # The sequence number makes the order unique if outdated steps of the subtask, which do nothing, are still in
        # the heap.
        self._step_sequence = sequence = self._step_sequence + 1 & _SEQUENCE_MASK
        return _STEPS | subtask << _SUBTASK_SHIFT | sequence

    @property
    def is_fuzzed(self) -> bool:
        """Whether events at the same time run in a random order (DET-5)."""
        return self._draws is not None

    def _drawn(self, sequence: int) -> int:
        """Return a random order, independent of the event's class. The sequence number makes the order unique."""
        assert self._draws is not None
        return self._draws.below(1 << 20) << _DRAW_SHIFT | sequence

    def after(self, delay_us: int, event_class: int, action: Action, argument: Any = None) -> None:
        """Schedule ``action(argument)`` for ``delay_us`` microseconds from now."""
        self.at(self.now + delay_us, event_class, action, argument)

    def jitter(self, delay_us: int) -> int:
        """Return ``delay_us``, or with a fuzz seed a random delay between half and twice ``delay_us`` (DET-5)."""
        if self._draws is None or delay_us <= 0:
            return delay_us
        return self._draws.between(delay_us // 2 + 1, delay_us * 2)

    def run_until(self, time_us: int) -> None:
        """Run all events up to and including ``time_us``, and then set the current time to ``time_us``."""
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
                # One call pushes the next step and pops the first event. If the step is the first event, the heap
                # does not change.
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
        """Include an external input in the trace hash."""
        for byte in text.encode():
            self.hash = ((self.hash ^ byte) * _HASH_PRIME) & _MASK
