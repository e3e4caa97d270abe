"""Event time at one subtask: watermarks, idle inputs, timers, and the watermarks of a source (runtime.md 1.6).

A subtask's watermark is the lowest watermark of its active channels, and never decreases (WM-1). A channel that was
idle counts again when it has caught up. The subtask emits a
watermark after it has fired the timers that the watermark makes due. Firing all of them takes one step. With
interruptible timers, each timer takes a step of its own, and mails run between these steps (BP-6).
"""

from __future__ import annotations

from typing import Protocol

from backend.runtime.core.elements import WATERMARK_MAX, Record, Watermark, WatermarkStatus
from backend.runtime.job.faults import FinishStep
from backend.runtime.network.channel import InputChannel
from backend.runtime.operators.sources import Source
from backend.runtime.operators.timed_operators import TimedOperator
from backend.runtime.task.ports import FinishPort, TaskPort
from backend.runtime.task.restarts import Initialization


class EventTimeTask(TaskPort, Protocol):
    """The part of a task's interface that ``EventTime`` uses."""

    finishing: FinishPort
    initialization: Initialization

    @property
    def records_in(self) -> int:
        """The number of records that this attempt has taken from its input."""
        ...

    def pass_on(self, records: list[Record], behind: int = 1) -> None:
        """Process the records with the chained operators, starting with the operator at index ``behind``, and emit
        the results.
        """
        ...


class SourceTimeTask(TaskPort, Protocol):
    """The part of a task's interface that ``SourceTime`` uses."""

    finishing: FinishPort


class EventTime:
    """Tracks the event time of one attempt of one subtask.

    The watermark is -1 (unknown) at first, because it is not restored (WM-3).
    """

    def __init__(self, task: EventTimeTask) -> None:
        self._task = task
        self.watermark_us = -1
        self.is_idle = False
        first = task.operators[0]
        self._timed = first if isinstance(first, TimedOperator) else None
        self.fired_count = 0
        """The number of timers that this attempt has fired."""
        self._until_us = -1
        """The watermark in the restored checkpoint; -1 if the subtask has reached it again, or had none."""
        self.is_firing = False
        """Whether some timers that are due at the current watermark have not fired yet (BP-6)."""

    def restored(self, watermark_us: int) -> None:
        """Count the records from now on until the watermark is what it was in the restored checkpoint (RC-9).

        Without the failure, all of them would have met at least that watermark. Only operators that use event time are
        concerned. Records meet the old watermark all the same if the operator has stored it.
        """
        timed, init = self._timed, self._task.initialization
        if timed is None or watermark_us < 0:
            return
        self._until_us = watermark_us
        init.records_before_watermark = None
        init.has_stored_watermark = timed.watermark_us >= watermark_us

    # --- inputs ---------------------------------------------------------------------------------------------------

    def on_watermark(self, channel: InputChannel, watermark: Watermark) -> None:
        """Handle a watermark that was read from a channel."""
        if watermark.at_us > channel.watermark_us:
            channel.watermark_us = watermark.at_us
        if channel.is_behind and channel.watermark_us >= self.watermark_us:
            channel.is_behind = False
        self._advance()

    def on_status(self, channel: InputChannel, status: WatermarkStatus, *, counts_at_once: bool = False) -> None:
        """Handle a channel that became idle or active. If this changes the status of the subtask, emit that status.

        As in Flink, a channel that was idle counts again when its watermark has caught up, or with ``counts_at_once``
        immediately.
        """
        channel.is_idle = status.is_idle
        channel.is_behind = not (status.is_idle or counts_at_once) and channel.watermark_us < self.watermark_us
        is_idle = all(c.is_idle or c.is_ended for c in self._task.gate.channels)
        if is_idle is not self.is_idle:
            self.is_idle = is_idle
            self._task.flush()
            self._task.emission.broadcast(WatermarkStatus(is_idle))
        self._advance()

    def _advance(self) -> None:
        if self.is_idle:
            return
        going = [c for c in self._task.gate.channels if not c.is_ended and not c.is_idle]
        lowest = min((c.watermark_us for c in going if not c.is_behind), default=-1 if going else WATERMARK_MAX)
        if lowest > self.watermark_us:
            self._set(lowest)

    def _set(self, at_us: int) -> None:
        self.watermark_us = at_us
        if 0 <= self._until_us <= at_us:
            self._until_us = -1
            self._task.initialization.records_before_watermark = self._task.records_in
        timed = self._timed
        if timed is None:
            self._task.flush()
            self._emit(at_us)
            return
        timed.watermark_us = max(timed.watermark_us, at_us)
        if self._task.env.config.has_interruptible_timers:
            self.is_firing = True
            return
        while self._fire_one(timed):
            pass
        self._emit(at_us)

    def _emit(self, at_us: int) -> None:
        """Emit the watermark. When the final watermark is emitted, all timers have fired."""
        task = self._task
        if at_us == WATERMARK_MAX and self._timed is not None:
            task.finishing.note(FinishStep.TIMERS_FIRED)
        task.emission.broadcast(Watermark(at_us))
        if at_us == WATERMARK_MAX:
            task.finishing.note(FinishStep.MAX_WATERMARK)

    def pass_through(self) -> None:
        """Pass watermarks on without firing timers, because the operators had finished before the restore (FN-16)."""
        self._timed = None

    # --- timers ---------------------------------------------------------------------------------------------------

    def fire_on(self) -> None:
        """Fire the next due timer, or emit the watermark if all due timers have fired. Takes one step."""
        assert self._timed is not None
        if not self._fire_one(self._timed):
            self.is_firing = False
            self._emit(self.watermark_us)

    def _fire_one(self, timed: TimedOperator) -> bool:
        if not timed.timers.is_due(self.watermark_us):
            return False
        task = self._task
        self.fired_count += 1
        task.cost_us += task.spec.timer_cost_us
        task.pass_on(timed.fire(*timed.timers.pop()))
        task.env.faults.passed("task.between-timers", task.name)
        return True


class SourceTime:
    """Emits the event time of one source subtask: periodic watermarks, idleness, the final watermark (WM-2)."""

    def __init__(self, task: SourceTimeTask, source: Source) -> None:
        self._task = task
        self._source = source
        self._interval_us = task.spec.watermark_interval_ms * 1000
        self._idle_after_us = task.spec.idle_timeout_us
        self.next_us = 0
        """When the next watermark is due, in virtual microseconds."""
        self.emitted_us = task.env.now
        """When the last record was emitted, in virtual microseconds."""
        self.is_idle = False
        self._is_over = False

    def wake_up(self) -> None:
        """End the idle state, because the source is about to emit a record."""
        self.is_idle = False
        self._task.emission.broadcast(WatermarkStatus(is_idle=False))

    def report(self, now_us: int) -> None:
        """Emit the current watermark, and set the time of the next one."""
        self.next_us = now_us + self._interval_us
        self._task.emission.broadcast(Watermark(self._source.watermark_us))

    def is_reported(self, due_us: int | None, now_us: int) -> bool:
        """If the source has become idle, emit the idle status. If it has ended, send the end of its data.

        Return whether anything was emitted. ``due_us`` is when the next record is due, or None if the source has no
        further record.
        """
        if due_us is None:
            if self._is_over:
                return False
            # A bounded source has ended. It emits the final watermark (WM-2), and emits it again after a restore.
            self.end(is_drained=True)
            return True
        if not self._idle_after_us or self.is_idle or now_us < self.emitted_us + self._idle_after_us:
            return False
        self.is_idle = True
        self._task.emission.broadcast(WatermarkStatus(is_idle=True))
        return True

    def end(self, *, is_drained: bool) -> None:
        """Send the end of this source's data.

        ``is_drained``: emit the final watermark first. It is False if the job will be resumed from this point (FN-21).
        """
        if self._is_over:
            return
        self._is_over = True
        if is_drained and self.is_idle:
            self.wake_up()
        self._task.finishing.end_source(is_drained=is_drained)

    def wake_us(self, due_us: int | None) -> int | None:
        """Return the next time at which the source has to act, in virtual microseconds, or None if there is none."""
        if due_us is None or not self._idle_after_us or self.is_idle:
            return due_us
        return min(due_us, self.emitted_us + self._idle_after_us)
