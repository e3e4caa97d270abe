"""Polls one target repeatedly: schedules polls, limits their time, and handles failures of the target and the store.

A failure doubles the pause up to a bound, with jitter, so that many collectors do not retry at once. Observations that
the store did not take are kept in order and written before newer ones. A full buffer drops its oldest, and the
collector then reads everything again, so no data that the target still has is lost.

Time is injected: this module uses the given ``Clock`` and ``Pause`` only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import structlog

from backend.domain.clock import Clock
from backend.domain.errors import (
    StoreUnavailableError,
    TargetProtocolError,
    TargetUnavailableError,
    UnknownEntityError,
)
from backend.domain.ids import TargetId
from backend.domain.observation import Observation
from backend.domain.target import TargetState
from collectors.base import Collector, ObservationSink, Pause

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """Intervals and limits. At most ``buffer_max`` observations wait while the store is unreachable."""

    interval_s: float = 2.0
    poll_timeout_s: float = 60.0
    backoff_max_s: float = 60.0
    buffer_max: int = 64


@dataclass(slots=True)
class LoopState:
    """The outcome of a target's polls."""

    attempted_at: datetime | None = None
    failures_in_a_row: int = 0
    dropped_count: int = 0
    reason: str | None = None


class TargetLoop:
    """The loop of one target; ``run`` returns once ``stop`` is set."""

    def __init__(
        self,
        target_id: TargetId,
        collector: Collector,
        sink: ObservationSink,
        *,
        clock: Clock,
        pause: Pause,
        random: Callable[[], float],
        options: LoopOptions,
    ) -> None:
        self._target_id = target_id
        self._collector = collector
        self._sink = sink
        self._clock = clock
        self._pause = pause
        self._random = random
        self._options = options
        self._unwritten: deque[Observation] = deque()
        self.state = LoopState()

    async def run(self, stop: asyncio.Event) -> None:
        """Poll until ``stop`` is set, then try once more to write waiting observations."""
        # A random delay, so that targets that were added together are not always polled together.
        await self._pause(self._random() * self._options.interval_s, stop)
        while not stop.is_set():
            began_s = self._clock.monotonic_s()
            await self.poll()
            took_s = self._clock.monotonic_s() - began_s
            await self._pause(self.delay_s(took_s), stop)
        await self._write()

    async def poll(self) -> None:
        """Poll once: read and write, or record why that failed."""
        self.state.attempted_at = self._clock.now()
        try:
            async with asyncio.timeout(self._options.poll_timeout_s):
                observation = await self._collector.collect(self.state.attempted_at)
        except TimeoutError:
            await self._failed(TargetState.UNREACHABLE, f"one poll took longer than {self._options.poll_timeout_s:g} s")
        except TargetUnavailableError as error:
            await self._failed(TargetState.UNREACHABLE, str(error))
        except TargetProtocolError as error:
            await self._failed(TargetState.MALFORMED, str(error))
        else:
            self._succeeded(observation)
            await self._write()

    def delay_s(self, took_s: float) -> float:
        """Return the seconds until the next poll, after one that took ``took_s``."""
        failures = self.state.failures_in_a_row
        if failures:
            # Beyond 2^10 the bound holds anyway.
            doubled_s = self._options.interval_s * float(1 << min(failures - 1, 10))
            return min(doubled_s, self._options.backoff_max_s) * (0.75 + 0.5 * self._random())
        within_s = self._collector.poll_within_s
        interval_s = self._options.interval_s if within_s is None else min(self._options.interval_s, within_s)
        # After a slow poll, the pause is as long as the poll took, up to the interval.
        return max(interval_s - took_s, min(took_s, interval_s), 0.0)

    def _succeeded(self, observation: Observation) -> None:
        state = self.state
        if state.failures_in_a_row:
            _log.info("target answers again", target=self._target_id, failures=state.failures_in_a_row)
        state.failures_in_a_row, state.reason = 0, None
        self._unwritten.append(observation)
        if len(self._unwritten) > self._options.buffer_max:
            self._unwritten.popleft()
            state.dropped_count += 1
            self._collector.forget()

    async def _failed(self, kind: TargetState, reason: str) -> None:
        state = self.state
        state.failures_in_a_row += 1
        if reason != state.reason:
            _log.warning("target not read", target=self._target_id, kind=kind, reason=reason)
        state.reason = reason
        await self._write()
        try:
            await self._sink.report_failure(self._target_id, kind=kind, reason=reason, at=self._clock.now())
        except StoreUnavailableError as error:
            _log.warning("failure not stored", target=self._target_id, reason=str(error))

    async def _write(self) -> None:
        while self._unwritten:
            try:
                await self._sink.write(self._unwritten[0])
            except StoreUnavailableError as error:
                _log.warning("not stored yet", target=self._target_id, waiting=len(self._unwritten), reason=str(error))
                return
            except UnknownEntityError:
                # The target was removed during the poll; the next list of targets will show that.
                self._unwritten.clear()
                return
            self._unwritten.popleft()
