"""The timer of periodic checkpoints. It ticks after a random delay, and then at every interval (CO-1, SRC-5).

Invariant: at most one tick is scheduled, and none while the job is stopped or stopping.
"""

from __future__ import annotations

from collections.abc import Callable

from backend.runtime.coordinator.backlog import Backlogs
from backend.runtime.core.prng import Stream
from backend.runtime.core.scheduler import EventClass
from backend.runtime.task.environment import Environment
from backend.runtime.task.messages import BacklogMessage

_NEVER_US = 1 << 62


class Ticks:
    """The timer of one job. It calls ``ask`` at every tick."""

    def __init__(self, env: Environment, ask: Callable[[], None]) -> None:
        self._env = env
        self._ask = ask
        self._is_stopped = True
        self._number = 0
        self._next_us = _NEVER_US
        self._backlogs = Backlogs()
        self._delays = Stream(env.seed, "first trigger")

    def begin(self) -> None:
        """Start the timer with a random delay. Called when new attempts are deployed."""
        self._backlogs.clear()
        config = self._env.config
        self.go_on(self._delays.between(config.min_pause_us, config.effective_interval_us))

    def go_on(self, delay_us: int) -> None:
        """Schedule the next tick after a delay, and restart the timer if it was stopped."""
        self._is_stopped = False
        self.schedule(delay_us)

    def stop(self) -> None:
        """Stop the timer. A tick that is already scheduled then has no effect."""
        self._is_stopped = True
        self._number += 1

    def schedule(self, delay_us: int) -> None:
        """Schedule the next tick after a delay. It replaces the tick that is scheduled now."""
        self._number += 1
        if not self._is_stopped:
            self._next_us = self._env.now + delay_us
            self._env.scheduler.after(delay_us, EventClass.TIMER, self._tick, self._number)

    def note_backlog(self, message: BacklogMessage) -> None:
        """Record a source's message about its backlog (SRC-5).

        If the new interval is shorter, it applies immediately. If it is longer, it applies from the next tick on.
        """
        self._backlogs.note(message)
        interval_us = self._backlogs.interval_us(self._env.config)
        if interval_us is not None and self._env.now + interval_us < self._next_us:
            self.schedule(interval_us)

    def _tick(self, number: int) -> None:
        if number != self._number:
            return
        interval_us = self._backlogs.interval_us(self._env.config)
        if interval_us is None:
            # No checkpoints are taken during this backlog. The next tick is scheduled when a source reports that its
            # backlog has ended.
            self._next_us = _NEVER_US
            return
        self.schedule(interval_us)
        self._ask()
