"""Turns requests into checkpoints: queues them, and decides which one starts when and which is refused.

Implements CO-1 to CO-4 and CC-3. Requests come from the timer, from users, and from stopping the job (SV-3). The
coordinator handles a checkpoint once it is triggered. Each request of a user records how it ended.

Invariant: a request is either refused or triggered, once. While the job stops, only its savepoint is triggered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from backend.domain.failure import FailureReason
from backend.runtime.coordinator.failure_policy import MESSAGES
from backend.runtime.coordinator.requests import Request, RequestQueue, Slots, Start, TooEarly, keep
from backend.runtime.coordinator.ticks import Ticks
from backend.runtime.core.elements import Barrier, SnapshotType
from backend.runtime.core.scheduler import Action, EventClass
from backend.runtime.measure.requested import Savepoint, SavepointFormat, UserCheckpoint
from backend.runtime.protocols.registry import mode_of
from backend.runtime.task.environment import Environment
from backend.runtime.task.messages import BacklogMessage


class Triggering:
    """The requests of one job.

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
        """Schedule the first trigger, because new attempts are deployed (CO-1)."""
        self._epoch += 1
        self._ticks.begin()

    def suspend(self) -> None:
        """Refuse all waiting requests and stop the timer, because the job failed or restarts (CO-13)."""
        self._epoch += 1
        starting = [] if self._starting is None else [self._starting]
        for request in [*starting, *self._queue.clear()]:
            self.refuse(request, FailureReason.COORDINATOR_SUSPENDED)
        self._ticks.stop()

    def shut_down(self) -> None:
        """Stop the timer and refuse all waiting requests, because the job has finished."""
        self._ticks.stop()
        for request in self._queue.clear():
            self.refuse(request, FailureReason.COORDINATOR_SHUTDOWN)

    def stop_failed(self) -> None:
        """FN-30: end a stop that did not finish because the job failed. Its savepoint may be complete and committed."""
        stop, self.stop = self.stop, None
        if stop is not None and stop.ended_at_us is None:
            self.ended(stop, FailureReason.TASK_FAILURE)

    def stopped(self) -> None:
        """SV-3: end the stop, because every subtask has finished."""
        assert self.stop is not None
        self.ended(self.stop)
        self.stop = None

    # --- requests -------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._ask(Request(False, self._next_number(), is_periodic=True))

    def request_savepoint(self, form: SavepointFormat, *, when_ended: Action | None = None) -> Savepoint:
        """Request a savepoint. If unaligned checkpoints are off, it does not wait for a slot (CO-3).

        ``when_ended`` is called with the savepoint, in a separate event after the savepoint has ended.
        """
        return self._request(Savepoint(self._next_number(), form, self._env.now, when_ended=when_ended))

    def request_stop(self, form: SavepointFormat, *, drains: bool) -> Savepoint:
        """SV-3: stop the job with a savepoint. If the job is already stopping, return the savepoint of that stop."""
        if self.stop is not None:
            return self.stop
        kind = SnapshotType.SAVEPOINT_TERMINATE if drains else SnapshotType.SAVEPOINT_SUSPEND
        self.stop = Savepoint(self._next_number(), form, self._env.now, kind=kind)
        self._ticks.stop()
        self._queue.drop_periodic()
        return self._request(self.stop)

    def _request(self, savepoint: Savepoint) -> Savepoint:
        keep(self.savepoint_requests, savepoint)
        self._ask(Request(not mode_of(self._env.config).has_channel_state, savepoint.number, savepoint))
        return savepoint

    def request_checkpoint(self) -> UserCheckpoint:
        """Request a checkpoint now. It goes before periodic ones and ignores the pause, but waits for a free slot."""
        asked = UserCheckpoint(self._next_number(), self._env.now)
        keep(self.checkpoint_requests, asked)
        self._ask(Request(False, asked.number, checkpoint=asked))
        return asked

    def reconfigured(self) -> None:
        """Keep only one of the timer's waiting requests, because the settings changed."""
        self._queue.keep_one_periodic()

    def tell_backlog(self, message: BacklogMessage) -> None:
        """Note a source's backlog, which may change the timer's interval (SRC-5)."""
        self._ticks.tell(message)

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
        """CO-3, CO-4: the request that may start now; None if there is none."""
        first = self._queue.first
        if first is None or (self.stop is not None and first.savepoint is not self.stop):
            # At some task, a newer checkpoint would supersede the savepoint that stops the job.
            return None
        config, pending = self._env.config, list(self._pending())
        if first.savepoint is not None and any(barrier.needs_channel_state for barrier in pending):
            # CC-3: a savepoint waits for pending unaligned checkpoints, even if the settings have changed since.
            return None
        if (
            first.savepoint is None
            and mode_of(config).has_channel_state
            and any(barrier.snapshot_type.is_savepoint for barrier in pending)
        ):
            # CC-3: an unaligned checkpoint waits for pending savepoints, even if a slot is free.
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
        """Note that the chosen request has become a checkpoint, which now decides how the request ends."""
        self._starting = None

    def completed(self) -> None:
        """CO-4: start the pause."""
        self._last_completion_us = self._env.now

    def slot_freed(self) -> None:
        """CO-3: try to start the next waiting request, because a slot is free. The pause may delay it (CO-4)."""
        if len(self._queue):
            self._env.scheduler.after(0, EventClass.TIMER, self._start_queued, self._epoch)

    # --- results of requests --------------------------------------------------------------------------------------

    def refuse(self, request: Request, reason: FailureReason) -> None:
        """Refuse a request that did not become a checkpoint. The user's request records the reason."""
        if request is self._starting:
            self._starting = None
        if request.checkpoint is not None:
            self.ended(request.checkpoint, reason)
        if request.savepoint is None:
            return
        self.ended(request.savepoint, reason)
        if request.savepoint is self.stop:
            # Nothing has been stopped yet: the job continues.
            self.stop = None
            self._ticks.go_on(self._env.config.effective_interval_us)

    def ended(self, asked: Savepoint | UserCheckpoint, reason: FailureReason | None = None) -> None:
        """Note that a requested checkpoint or savepoint has ended. It failed if ``reason`` is given."""
        asked.ended_at_us = self._env.now
        if reason is not None:
            asked.reason, asked.message = reason, MESSAGES[reason]
        if isinstance(asked, Savepoint) and asked.when_ended is not None:
            self._env.scheduler.after(0, EventClass.TIMER, asked.when_ended, asked)
