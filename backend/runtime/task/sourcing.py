"""The steps of a source subtask: emits records when they are due, and reports its backlog and its restart progress.

This module decides when the source has something to do (SRC-1). ``operators.sources`` creates the records,
``event_time`` decides when watermarks are due, and ``task`` runs the step.
"""

from __future__ import annotations

from typing import Protocol

from backend.runtime.core.elements import Record
from backend.runtime.core.scheduler import EventClass
from backend.runtime.measure.measures import TimeAccount, Usage
from backend.runtime.operators.sources import Source
from backend.runtime.task.event_time import SourceTime, SourceTimeTask
from backend.runtime.task.messages import BacklogMessage
from backend.runtime.task.restarts import Restart
from backend.runtime.task.running_ahead import RunningAhead

_BUSY = Usage.BUSY


class SourceTask(SourceTimeTask, Protocol):
    """The part of a task's interface that ``Sourcing`` uses."""

    account: TimeAccount

    def become_running(self) -> None:
        """Set the task to running, because everything is restored (runtime.md 4.2, step 7)."""
        ...

    def charge(self, record: Record) -> None:
        """Add the cost of processing the record to the current step."""
        ...

    def wake(self) -> None:
        """Schedule a step, because the source may have something to do."""
        ...


class Sourcing:
    """Runs the source steps of one attempt of one subtask."""

    def __init__(self, task: SourceTask, source: Source) -> None:
        self.source = source
        self.restart: Restart | None = None
        """The restart to which this source still has to report its replay and catch-up, or None."""
        self._task = task
        self._env = task.env
        self._time = SourceTime(task, source)
        self._wake_us = -1
        self._is_in_backlog = False
        self._can_crash_after_emit = task.env.faults.concerns("source.after-emit")

    def poll(self, now: int) -> bool:
        """Emit the next record if it is due. Otherwise, check whether the source has become idle or has ended.

        Return whether anything was emitted.
        """
        task, source, time = self._task, self.source, self._time
        if task.gate.is_recovering:
            task.gate.is_recovering = False
            task.become_running()
            self._report_backlog()
        due_us = source.due_us()
        if due_us is None or due_us > now:
            return self._wait(due_us, now)
        if task.account.usage is not _BUSY:
            task.account.turn(_BUSY, now)
        time.emitted_us = now
        if time.is_idle:
            time.wake_up()
        record = source.poll()
        task.charge(record)
        task.emission.emit(record)
        if self._can_crash_after_emit:
            self._env.faults.passed("source.after-emit", task.name)
        if now >= time.next_us:
            time.report(now)
        if self.restart is not None and not self.restart.emitted(task.key, source.offset, now):
            self.restart = None
        if self._is_in_backlog:
            self._report_backlog()
        return True

    def plan(self, ahead: RunningAhead, at_us: int) -> int:
        """Plan steps ahead from ``at_us`` on, at most up to the next watermark. Return the time of the next step."""
        if self.restart is not None or self._is_in_backlog or self._time.is_idle:
            return at_us
        return ahead.plan_source(self.source, self._time.next_us, at_us)

    def emitted(self, records: list[Record], last_us: int) -> None:
        """Advance past these records, which planned steps have emitted, the last one at ``last_us``."""
        assert self.source.only_split is not None
        self.source.only_split.move(records)
        self._time.emitted_us = last_us

    def end(self, *, is_drained: bool) -> None:
        """Stop reading, and send the end of the data, because the job stops (runtime.md 6.6, step 1)."""
        self.source.stop()
        self._time.end(is_drained=is_drained)

    def end_backlog(self) -> None:
        """Report that this source works off no backlog, because it has ended (SRC-5)."""
        if self._is_in_backlog:
            self._report(is_processing=False)

    def _report_backlog(self) -> None:
        """Send a message to the coordinator if the source started or finished working off its backlog (SRC-5)."""
        is_processing = self.source.is_processing_backlog
        if is_processing is not self._is_in_backlog:
            self._report(is_processing=is_processing)

    def _report(self, *, is_processing: bool) -> None:
        self._is_in_backlog = is_processing
        env = self._env
        message = BacklogMessage(self._task.key, self._task.attempt, is_processing)
        env.scheduler.after(env.config.rpc_latency_us, EventClass.RPC, env.coordinator.on_backlog, message)

    def _wait(self, due_us: int | None, now: int) -> bool:
        if self._time.is_reported(due_us, now):
            self._task.account.turn(_BUSY, now)
            return True
        if self.restart is not None:
            self.restart.waits(self._task.key, self.source.offset, now)
            self.restart = None
        wake_us = self._time.wake_us(due_us)
        if wake_us is not None and self._wake_us != wake_us:
            self._wake_us = wake_us
            self._env.scheduler.at(wake_us, EventClass.TIMER, self._on_due)
        return False

    def _on_due(self, _: object) -> None:
        self._wake_us = -1
        self._task.wake()
