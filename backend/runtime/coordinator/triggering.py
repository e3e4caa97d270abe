"""Turns requests into checkpoints: queues them, decides when each one starts, and refuses some of them.

Implements CO-1 to CO-4 and CC-3. Requests come from the timer, from users, and from a stop of the job with a savepoint
(SV-3). Once a checkpoint is triggered, the coordinator handles it. The object that represents a user's request records
the result.

Invariant: each request is either refused or triggered, and only once. While the job stops, only the savepoint that
stops it is triggered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from backend.domain.failure import FailureReason
from backend.runtime.coordinator.failure_policy import MESSAGES
from backend.runtime.coordinator.requests import Request, RequestQueue, Slots, Start, TooEarly, keep
from backend.runtime.coordinator.ticks import Ticks
from backend.runtime.core.elements import Barrier, SnapshotType
from backend.runtime.core.scheduler import Action, EventClass
from backend.runtime.measure.requested import RequestedFormat, Savepoint, UserCheckpoint
from backend.runtime.protocols.registry import mode_of
from backend.runtime.task.environment import Environment
from backend.runtime.task.messages import BacklogMessage


class Triggering:
    """Queues and starts the requests of one job.

    ``pending`` returns the barriers of the pending checkpoints. ``trigger`` triggers a checkpoint.
    """

    def __init__(
        self, env: Environment, *, pending: Callable[[], Iterable[Barrier]], trigger: Callable[[Request], None]
    ) -> None:
        self._env = env
        self._pending = pending
        self._trigger = trigger
        self._epoch = 0
        self._queue = RequestQueue()
        self._starting: Request | None = None
        self._request_number = 0
        self._ticks = Ticks(env, self._tick)
        self._last_completion_us: int | None = None
        self.stop: Savepoint | None = None
        """The savepoint that stops the job, from its request until the job has finished or failed (SV-3)."""
        self.savepoint_requests: dict[int, Savepoint] = {}
        self.checkpoint_requests: dict[int, UserCheckpoint] = {}

    # --- the job's life -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Schedule the first trigger. Called when new attempts are deployed (CO-1)."""
        self._epoch += 1
        self._ticks.begin()

    def suspend(self) -> None:
        """Refuse all waiting requests and stop the timer. Called when the job fails or restarts (CO-13)."""
        self._epoch += 1
        starting = [] if self._starting is None else [self._starting]
        for request in [*starting, *self._queue.clear()]:
            self.refuse(request, FailureReason.COORDINATOR_SUSPENDED)
        self._ticks.stop()

    def shut_down(self) -> None:
        """Stop the timer and refuse all waiting requests. Called when the job has finished."""
        for request in self._queue.clear():
            self.refuse(request, FailureReason.COORDINATOR_SHUTDOWN)
        self._ticks.stop()
        self.stop = None

    def stop_failed(self) -> None:
        """End a stop that a failure of the job interrupted (FN-30). Its savepoint may be complete and committed."""
        stop, self.stop = self.stop, None
        if stop is not None and stop.ended_at_us is None:
            self.ended(stop, FailureReason.TASK_FAILURE)

    def stopped(self) -> None:
        """Record that every subtask has finished. A job that stops with a savepoint has stopped (SV-3)."""
        if self.stop is not None and self.stop.completed_at_us is not None:
            self.ended(self.stop)
            self.stop = None

    # --- requests -------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._ask(Request(False, self._next_number(), is_periodic=True))

    def request_savepoint(self, form: RequestedFormat, *, when_ended: Action | None = None) -> Savepoint:
        """Request a savepoint. If unaligned checkpoints are off, the savepoint does not wait for a free slot (CO-3).

        ``when_ended`` is called with the savepoint, in a separate event after the savepoint has completed or failed.
        """
        return self._request(Savepoint(self._next_number(), form, self._env.now, when_ended=when_ended))

    def request_stop(self, form: RequestedFormat, *, drains: bool) -> Savepoint:
        """Refuse all waiting requests, and request the savepoint that stops the job (SV-3).

        If the job is already stopping, return the savepoint of that stop.
        """
        if self.stop is not None:
            return self.stop
        kind = SnapshotType.SAVEPOINT_TERMINATE if drains else SnapshotType.SAVEPOINT_SUSPEND
        self.stop = Savepoint(self._next_number(), form, self._env.now, kind=kind)
        self._ticks.stop()
        for request in self._queue.clear():
            self.refuse(request, FailureReason.COORDINATOR_SUSPENDED)
        return self._request(self.stop)

    def _request(self, savepoint: Savepoint) -> Savepoint:
        keep(self.savepoint_requests, savepoint)
        self._ask(Request(not mode_of(self._env.config).has_channel_state, savepoint.number, savepoint))
        return savepoint

    def request_checkpoint(self, *, is_full: bool = False) -> UserCheckpoint:
        """Request a checkpoint now. It precedes periodic ones and needs no minimum pause, but waits for a free slot.

        With ``is_full``, it does not use files of earlier checkpoints (IN-5).
        """
        asked = UserCheckpoint(self._next_number(), self._env.now, is_full)
        keep(self.checkpoint_requests, asked)
        self._ask(Request(False, asked.number, checkpoint=asked))
        return asked

    def request_final(self) -> None:
        """Request a checkpoint at once, because the data of all subtasks has ended (FN-25).

        If this checkpoint fails, the next periodic checkpoint takes its place.
        """
        self._ask(Request(False, self._next_number()))

    def reconfigured(self) -> None:
        """Drop all of the timer's waiting requests except the first. Called when the settings change."""
        self._queue.keep_one_periodic()

    def note_backlog(self, message: BacklogMessage) -> None:
        """Record a source's message about its backlog, which may change the timer's interval (SRC-5)."""
        self._ticks.note_backlog(message)

    def _next_number(self) -> int:
        self._request_number += 1
        return self._request_number

    def _ask(self, request: Request) -> None:
        is_closed = self._queue.is_closed
        dropped = self._queue.add(request)
        if dropped is not None:
            self.refuse(dropped, FailureReason.TOO_MANY_REQUESTS)
        if not is_closed:
            self._start_queued(self._epoch)

    # --- the next request -----------------------------------------------------------------------------------------

    def _start_queued(self, epoch: int) -> None:
        while epoch == self._epoch and (request := self._next_request()) is not None:
            self._starting = request
            self._trigger(request)

    def _next_request(self) -> Request | None:
        """Return the request that may start now, or None if no request may start (CO-3, CO-4)."""
        first = self._queue.first
        if first is None or (self.stop is not None and first.savepoint is not self.stop):
            # While the job stops, only its savepoint may start. A newer checkpoint would supersede the savepoint at
            # some task.
            return None
        config, pending = self._env.config, list(self._pending())
        if first.savepoint is not None and any(barrier.needs_channel_state for barrier in pending):
            # A savepoint waits for pending unaligned checkpoints (CC-3). They may be pending although the settings no
            # longer allow them.
            return None
        if (
            first.savepoint is None
            and mode_of(config).has_channel_state
            and any(barrier.snapshot_type.is_savepoint for barrier in pending)
        ):
            # An unaligned checkpoint waits for pending savepoints, even if a slot is free (CC-3).
            return None
        completed_us = self._last_completion_us
        pause_ends_us = -1 if completed_us is None else completed_us + config.min_pause_us
        match self._queue.choose(Slots(self._env.now, len(pending), config.max_concurrent, pause_ends_us)):
            case Start(request=request):
                return request
            case TooEarly(request=request, delay_us=delay_us):
                self.refuse(request, FailureReason.MIN_PAUSE)
                self._ticks.schedule(delay_us)
        return None

    def is_under_way(self) -> None:
        """Record that the request has become a checkpoint.

        The result of the checkpoint is also the result of the request.
        """
        self._starting = None

    def completed(self) -> None:
        """Start the minimum pause, because a checkpoint has completed (CO-4)."""
        self._last_completion_us = self._env.now

    def slot_freed(self) -> None:
        """Try to start the next waiting request in the free slot (CO-3). The minimum pause may delay it (CO-4)."""
        if len(self._queue):
            self._env.scheduler.after(0, EventClass.TIMER, self._start_queued, self._epoch)

    # --- results of requests --------------------------------------------------------------------------------------

    def refuse(self, request: Request, reason: FailureReason) -> None:
        """Refuse a request that did not become a checkpoint. If a user made it, record the reason."""
        if request is self._starting:
            self._starting = None
        if request.checkpoint is not None:
            self.ended(request.checkpoint, reason)
        if request.savepoint is None:
            return
        self.ended(request.savepoint, reason)
        if request.savepoint is self.stop:
            # The savepoint was not triggered, so no source has stopped. The job continues.
            self.stop = None
            self._ticks.go_on(self._env.config.effective_interval_us)

    def ended(self, asked: Savepoint | UserCheckpoint, reason: FailureReason | None = None) -> None:
        """Record that a requested checkpoint or savepoint has ended. If ``reason`` is not None, it has failed."""
        asked.ended_at_us = self._env.now
        if reason is not None:
            asked.reason, asked.message = reason, MESSAGES[reason]
        if isinstance(asked, Savepoint) and asked.when_ended is not None:
            self._env.scheduler.after(0, EventClass.TIMER, asked.when_ended, asked)
