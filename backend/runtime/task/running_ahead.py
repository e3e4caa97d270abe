"""Plans several steps of one subtask, and carries them out together without an event for each, to save time.

The next steps of a subtask can be planned while it works through a buffer whose records all cost the same, if the
output fits into unfinished segments that no reader can see yet. The subtask's next event is then the step after the
plan. The effects of the planned steps are applied when the state is read (``settle``). Anything that may change the
planned steps (a mail, a flush, a reader) cancels the rest of the plan (``interrupt``).

Invariant: planning cannot be observed. At any time, a reader sees the same state as if every step were an event, and
all other events happen at the same times and in the same order. A step that others could see is never planned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from backend.runtime.core.elements import Element, Record
from backend.runtime.core.scheduler import turn_of
from backend.runtime.network.channel import InputChannel
from backend.runtime.network.routes import Places
from backend.runtime.operators.operators import in_bulk
from backend.runtime.operators.sinks import Bulk
from backend.runtime.operators.sources import Source
from backend.runtime.task.ports import TaskPort

# The smallest number of steps to plan. Planning fewer steps would cost more than it saves.
_STEPS_MIN = 2


class StepSums:
    """The number of steps of a subtask, and the sum of the squares of their times.

    Both enter the trace hash (DET-4).
    """

    __slots__ = ("count", "squares")

    def __init__(self) -> None:
        self.count = 0
        self.squares = 0

    def add(self, first_us: int, apart_us: int, count: int) -> None:
        """Add ``count`` steps. The first is at ``first_us``, and each later step is ``apart_us`` after the previous."""
        self.count += count
        self.squares += (
            count * first_us * first_us
            + first_us * apart_us * count * (count - 1)
            + apart_us * apart_us * (count - 1) * count * (2 * count - 1) // 6
        )


class SteppingTask(TaskPort, Protocol):
    """The part of a task's interface that ``RunningAhead`` uses."""

    number: int
    steps: StepSums

    def count_in(self, count: int) -> None:
        """Increase the number of records taken from the input by ``count``, because planned steps processed them."""
        ...


class RunningAhead:
    """Plans and carries out steps of one attempt of one subtask. Steps are planned only while the subtask is busy."""

    __slots__ = (
        "_apart_us",
        "_at",
        "_begin_us",
        "_bulks",
        "_elements",
        "_emitted",
        "_end",
        "_left",
        "_places",
        "_records",
        "_reschedule",
        "_scheduler",
        "_size",
        "_task",
        "_turn",
    )

    def __init__(
        self,
        task: SteppingTask,
        cost_us: int,
        bulks: tuple[Bulk, ...],
        *,
        reschedule: Callable[[int], None],
        emitted: Callable[[list[Record], int], None] | None,
    ) -> None:
        self._task = task
        self._scheduler = task.env.scheduler
        self._turn = turn_of(task.number)
        self._apart_us = cost_us
        self._bulks = bulks
        self._reschedule = reschedule
        self._emitted = emitted
        self._left = 0
        """The number of planned steps that are not carried out yet."""
        self._begin_us = 0
        """The time of the first step that is not carried out yet."""
        self._records: list[Record] = []
        """The input records in order: the next ones of a buffer, or a batch of a source. All have the same size."""
        self._at = 0
        """The index in ``_records`` of the first record that is not processed yet."""
        self._places: list[Places] = []
        """For each output, the targets of the records."""
        self._size = 0
        self._elements: list[Element] = []
        """The unprocessed elements of the current buffer, in reverse order. Empty for a source."""
        self._end = 0
        """The number of elements that were left in the buffer when ``_records`` was filled."""

    def plan(self, channel: InputChannel, at_us: int, most_bytes: int | None = None) -> int:
        """Plan steps for the next records of a buffer, from ``at_us`` on, and for at most ``most_bytes`` of them.

        Return the time of the step after the plan.
        """
        elements = channel.elements
        left = len(elements)
        if left < _STEPS_MIN:
            return at_us
        at = self._end - left
        if elements is not self._elements or at >= len(self._records):
            at = 0
            self._elements = elements
            self._end = left
            self._look_at(_alike(elements, channel.record_bytes))
        most = len(self._records) - at
        if most_bytes is not None:
            most = min(most, most_bytes // max(1, self._size))
        return self._planned(at, most, at_us)

    def plan_source(self, source: Source, before_us: int, at_us: int) -> int:
        """Plan steps for the due records of a source, from ``at_us`` to before ``before_us``.

        Return the time of the step after the plan.
        """
        split = source.only_split
        if split is None:
            return at_us
        records, at = split.drawn()
        most = split.due_count(at_us, min(len(records) - at, -((at_us - before_us) // self._apart_us)))
        if most >= _STEPS_MIN and records is not self._records:
            self._look_at(records)
        return self._planned(at, most, at_us)

    def _look_at(self, records: list[Record]) -> None:
        self._records = records
        if records:
            self._size = records[0].size_bytes
            self._places = self._task.emission.places(records)

    def _planned(self, at: int, most: int, at_us: int) -> int:
        if most < _STEPS_MIN:
            return at_us
        count = self._task.emission.fitting(self._places, at, most, self._size)
        if count < _STEPS_MIN:
            return at_us
        self._at = at
        self._begin_us = at_us
        self._left = count
        return at_us + count * self._apart_us

    def settle(self) -> None:
        """Carry out the planned steps whose time has come."""
        if not self._left:
            return
        scheduler = self._scheduler
        elapsed_us = scheduler.now - self._begin_us
        if elapsed_us < 0:
            return
        count, rest_us = divmod(elapsed_us, self._apart_us)
        if rest_us or scheduler.order >= self._turn:
            # The current event comes after the subtask's step of the same time, so that step is carried out too.
            count += 1
        if count:
            self._carry_out(min(count, self._left))

    def interrupt(self) -> None:
        """Carry out the planned steps whose time has come, and cancel the rest.

        Called before anything changes that the plan depends on.
        """
        if self._left:
            self.settle()
            if self._left:
                self._left = 0
                self._reschedule(self._begin_us)

    def finish(self) -> None:
        """Carry out the whole plan, because the step after it is due."""
        if self._left:
            self._carry_out(self._left)

    def _carry_out(self, count: int) -> None:
        task = self._task
        at = self._at
        records = self._records[at : at + count]
        self._at = at + count
        self._left -= count
        task.steps.add(self._begin_us, self._apart_us, count)
        self._begin_us += count * self._apart_us
        if self._emitted is None:
            task.count_in(count)
            del self._elements[-count:]
        else:
            self._emitted(records, self._begin_us - self._apart_us)
        for bulk in self._bulks:
            records = bulk(records)
        if records:
            task.emission.extend(records, self._places, at, self._size)


def _alike(elements: list[Element], record_bytes: int) -> list[Record]:
    """Return the records at the front of a buffer that all have the same size, in processing order."""
    found = elements[::-1]
    if record_bytes:
        return found  # type: ignore[return-value]
    records: list[Record] = []
    for element in found:
        if type(element) is not Record or element.size_bytes != found[0].size_bytes:
            break
        records.append(element)
    return records


def running_ahead(
    task: SteppingTask,
    cost_us: int | None,
    *,
    reschedule: Callable[[int], None],
    emitted: Callable[[list[Record], int], None] | None,
) -> RunningAhead | None:
    """Return the planner of a subtask, or None if each of its steps must be an event.

    Each step must be an event if the run is stepwise or the schedule is fuzzed, because the order of all steps is then
    random. It must also be one if the cost depends on the record, if an emission may block halfway, or if a fault may
    happen after any record. The same holds if other subtasks see the effects of an operator immediately, or if a route
    cannot be computed ahead. ``reschedule`` moves the task's next event. ``emitted`` is None unless the task reads a
    source.
    """
    env, bulks = task.env, in_bulk(task.operators)
    can_run_ahead = (
        not env.is_stepwise
        and not env.scheduler.is_fuzzed
        and not task.spec.may_block_in_emission
        and not env.faults.concerns("source.after-emit")
        and all(output.route.looks_ahead for output in task.outputs)
    )
    if not can_run_ahead or cost_us is None or bulks is None:
        return None
    return RunningAhead(task, max(1, cost_us), bulks, reschedule=reschedule, emitted=emitted)
