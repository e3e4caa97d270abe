"""Polls one target repeatedly: schedules polls, limits their time, and handles failures of the target and the store.

After each consecutive failure, the pause before the next poll doubles, up to a maximum. The pause has a random part,
so that many collectors do not retry at the same time. If neither the store nor the spool takes an observation, the
observation waits in a buffer and is written before newer ones. A full buffer drops its oldest observation. When the
store responds again, the collector reads everything again. So only data that the target has dropped in the meantime
is lost, and lost checkpoints are counted.

Time is injected: this module uses only the given ``Clock`` and ``Pause``.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

import structlog

from backend.domain.clock import Clock
from backend.domain.errors import (
    StoreUnavailableError,
    TargetProtocolError,
    TargetUnavailableError,
    UnknownEntityError,
)
from backend.domain.ids import EngineRunId, TargetId
from backend.domain.observation import NOTHING_SHED, JobObservation, JobState, Observation, Shed
from backend.domain.target import TargetState
from backend.metrics.registry import counter, histogram
from collectors.base import Collector, Effort, ObservationSink, Pause
from collectors.gate import PollGate

_log = structlog.get_logger(__name__)

_POLL_S = histogram("barrierscope_poll_duration_seconds", "The time that one poll of a target took.")
_POLLS = counter("barrierscope_polls", "Polls of targets, by result.", ("result",))
_REQUESTS = counter("barrierscope_poll_requests", "Requests that polls sent to targets.")
_SHED = counter("barrierscope_observations_dropped", "Observations that were dropped because nothing could take them.")

RunKey: TypeAlias = tuple[EngineRunId, datetime]
CheckpointKey: TypeAlias = tuple[int, datetime]

_ABSENT_MAX = 5
# A poll that begins late by more than ``_LATE_SOME`` poll intervals reads fewer details. A poll that begins late by
# more than ``_LATE_MAX`` intervals reads none.
_LATE_SOME = 0.5
_LATE_MAX = 2.0
# A target drops checkpoints that are not read in time. If more than this share of that time passes between two polls of
# a target, the share of its polls that read details is halved. After each poll in time, the share grows by a tenth.
_GAP_MAX = 0.75
_DETAIL_SHARE_FALL = 0.5
_DETAIL_SHARE_RISE = 1.1
_DETAIL_SHARE_MIN = 0.01
# Checkpoints in dropped observations count as lost until they are read again. To bound the memory that a long outage
# takes, only the newest ones of each run are remembered, and only for this many runs. Targets list far fewer
# checkpoints of a run (Flink lists 10), so older ones could not be read again anyway.
_DROPPED_PER_RUN_MAX = 250
_DROPPED_RUNS_MAX = 1000


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """Intervals and limits of a loop. At most ``buffer_max`` observations wait while the store is unreachable."""

    interval_s: float = 2.0
    poll_timeout_s: float = 60.0
    backoff_max_s: float = 60.0
    buffer_max: int = 16


@dataclass(slots=True)
class LoopState:
    """The result of a target's polls: the last attempt, the failures, and the observations dropped from the buffer."""

    attempted_at: datetime | None = None
    failures_in_a_row: int = 0
    dropped_count: int = 0
    reason: str | None = None


class TargetLoop:
    """Polls one target until ``stop`` is set."""

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
        gate: PollGate | None = None,
    ) -> None:
        self._target_id = target_id
        self._collector = collector
        self._sink = sink
        self._clock = clock
        self._pause = pause
        self._random = random
        self._options = options
        self._gate = gate or PollGate()
        self._unwritten: deque[Observation] = deque()
        self._dropped: dict[RunKey, set[CheckpointKey]] = {}
        self._ended: dict[RunKey, JobObservation] = {}
        self._absent: Counter[RunKey] = Counter()
        self._must_forget = False
        self._polled_s: float | None = None
        self._detail_share = 1.0
        self.state = LoopState()

    async def run(self, stop: asyncio.Event) -> None:
        """Poll until ``stop`` is set, then try once more to write the waiting observations."""
        # A random delay keeps targets that were added together from always being polled together.
        await self._pause(self._random() * self._options.interval_s, stop)
        due_s = self._clock.monotonic_s()
        while not stop.is_set():
            took_s = await self._admitted_poll(due_s, stop)
            delay_s = self.delay_s(took_s)
            due_s = self._clock.monotonic_s() + delay_s
            await self._pause(delay_s, stop)
        await self._write()

    async def _admitted_poll(self, due_s: float, stop: asyncio.Event) -> float:
        """Wait for a place and poll once. Return the seconds that the poll took, without the wait."""
        is_doubtful = self.state.failures_in_a_row > 0
        asked_s = self._clock.monotonic_s()
        async with self._gate.admitted(until_s=asked_s + self._interval_s, is_doubtful=is_doubtful):
            began_s = self._clock.monotonic_s()
            # Doubtful targets wait for one another, even if the process has time, so their wait does not count as
            # lateness.
            late_s = (asked_s if is_doubtful else began_s) - due_s
            if not stop.is_set():
                self._note_gap(began_s)
                await self.poll(self._effort(late_s))
            return self._clock.monotonic_s() - began_s

    def _note_gap(self, began_s: float) -> None:
        """Adapt the share of polls with details to the time since the last poll.

        If this process has no spare time, its polls begin in time only if most of them read no details. The lateness of
        one poll does not show that time is short: a poll that begins in time and reads details delays only the polls of
        other targets. So the time between two polls of this target is measured as well.
        """
        within_s, last_s = self._collector.poll_within_s, self._polled_s
        self._polled_s = began_s
        # After failures, the pause between two polls is long on purpose, so it does not show whether this process has
        # spare time.
        if within_s is None or last_s is None or self.state.failures_in_a_row:
            return
        # The target drops unread checkpoints after twice ``poll_within_s``.
        is_late = began_s - last_s > _GAP_MAX * 2 * within_s
        share = self._detail_share * (_DETAIL_SHARE_FALL if is_late else _DETAIL_SHARE_RISE)
        self._detail_share = max(_DETAIL_SHARE_MIN, min(1.0, share))

    def _effort(self, late_s: float) -> Effort:
        """Return how much to read in a poll that begins ``late_s`` seconds after it was due.

        A poll begins late if this process has too much to do. Then it reads less, so that all targets are read in time.
        """
        within_s = self._collector.poll_within_s
        # The target drops unread checkpoints after twice ``poll_within_s``.
        spare_s = math.inf if within_s is None else within_s / 2
        if late_s > min(_LATE_MAX * self._interval_s, spare_s) or self._random() >= self._detail_share:
            return Effort.HEADERS
        return Effort.NEWEST if late_s > min(_LATE_SOME * self._interval_s, spare_s / 2) else Effort.FULL

    async def poll(self, effort: Effort = Effort.FULL) -> None:
        """Poll once and write the observation, or record why the poll failed."""
        self.state.attempted_at = self._clock.now()
        began_s = self._clock.monotonic_s()
        try:
            async with asyncio.timeout(self._options.poll_timeout_s):
                observation = await self._collector.collect(self.state.attempted_at, effort=effort)
        except TimeoutError:
            await self._failed(TargetState.UNREACHABLE, f"one poll took longer than {self._options.poll_timeout_s:g} s")
        except TargetUnavailableError as error:
            await self._failed(TargetState.UNREACHABLE, str(error))
        except TargetProtocolError as error:
            await self._failed(TargetState.MALFORMED, str(error))
        else:
            self._succeeded(observation)
            _POLL_S.observe(self._clock.monotonic_s() - began_s)
            await self._write()

    def delay_s(self, took_s: float) -> float:
        """Return the seconds to wait before the next poll, after a poll that took ``took_s``."""
        failures = self.state.failures_in_a_row
        if failures:
            # The exponent is capped at 10, because ``backoff_max_s`` limits the pause long before that.
            doubled_s = self._options.interval_s * float(1 << min(failures - 1, 10))
            return min(doubled_s, self._options.backoff_max_s) * (0.75 + 0.5 * self._random())
        interval_s = self._interval_s
        # After a slow poll, the pause is as long as the poll took, but at most one interval.
        return max(interval_s - took_s, min(took_s, interval_s), 0.0)

    @property
    def _interval_s(self) -> float:
        """The poll interval, or less if the target would drop unread data before the next poll."""
        within_s = self._collector.poll_within_s
        return self._options.interval_s if within_s is None else min(self._options.interval_s, within_s)

    def _succeeded(self, observation: Observation) -> None:
        state = self.state
        if state.failures_in_a_row:
            _log.info("target answers again", target=self._target_id, failures=state.failures_in_a_row)
        state.failures_in_a_row, state.reason = 0, None
        _POLLS.labels(TargetState.OK.value).inc()
        _REQUESTS.inc(observation.cost.request_count)
        self._unwritten.append(replace(self._completed(observation), set_interval_s=self._interval_s))
        if len(self._unwritten) > self._options.buffer_max:
            self._drop(self._unwritten.popleft())

    def _drop(self, observation: Observation) -> None:
        """Count the checkpoints of a dropped observation as lost, until they are read again."""
        self.state.dropped_count += 1
        _SHED.inc()
        self._must_forget = True
        lost = observation.shed_in_all
        for job in observation.jobs:
            key = (job.engine_run_id, job.started_at)
            lost += Shed(checkpoint_count=self._note_dropped(key, _terminal(job)))
            if job.state is JobState.ENDED:
                # The collector reports the end of a run only once, so it is kept here until it is stored.
                self._ended[key] = _only_end(job)
        # The next observation to be written contains the count. So no newer data is ever stored without it, even if
        # this process is killed.
        first = self._unwritten[0]
        self._unwritten[0] = replace(first, shed=first.shed + lost)

    def _note_dropped(self, run: RunKey, keys: set[CheckpointKey]) -> int:
        """Remember the newest dropped checkpoints of the newest runs. Return how many were not known before."""
        dropped = self._dropped.setdefault(run, set())
        new_count = len(keys - dropped)
        dropped |= keys
        if len(dropped) > _DROPPED_PER_RUN_MAX:
            dropped.difference_update(sorted(dropped, key=lambda key: key[1])[:-_DROPPED_PER_RUN_MAX])
        if len(self._dropped) > _DROPPED_RUNS_MAX:
            del self._dropped[next(iter(self._dropped))]
        return new_count

    def _completed(self, observation: Observation) -> Observation:
        """Return the observation with the ends of runs that were dropped, and without what was counted as lost.

        The first reading of a run's history after ``forget`` contains the dropped checkpoints that the target still
        lists. They are subtracted from the count.
        """
        listed = {(job.engine_run_id, job.started_at) for job in observation.jobs}
        ended = [job for key, job in self._ended.items() if key not in listed]
        self._ended = {}
        jobs = (*observation.jobs, *ended)
        again_count = 0
        if not self._must_forget:
            again_count = self._read_again({(job.engine_run_id, job.started_at): job for job in jobs})
        if not ended and not again_count:
            return observation
        return replace(observation, jobs=jobs, shed=observation.shed + Shed(checkpoint_count=-again_count))

    def _read_again(self, jobs: Mapping[RunKey, JobObservation]) -> int:
        """Return the number of dropped checkpoints that ``jobs`` contain."""
        count = 0
        for key in list(self._dropped):
            job = jobs.get(key)
            self._absent[key] += job is None
            if job is not None and (job.counts is not None or job.state is JobState.ENDED):
                count += len(self._dropped.pop(key) & _terminal(job))
            elif self._absent[key] >= _ABSENT_MAX:
                # A single poll may leave out a job. If this many polls left it out, the target no longer lists the
                # run.
                del self._dropped[key]
        if not self._dropped:
            self._absent.clear()
        return count

    async def _failed(self, kind: TargetState, reason: str) -> None:
        state = self.state
        state.failures_in_a_row += 1
        _POLLS.labels(kind.value).inc()
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
                # The target was removed during the poll. The manager ends this loop when it next reads the list of
                # targets.
                self._unwritten.clear()
                return
            self._unwritten.popleft()
            if self._must_forget:
                self._must_forget = False
                self._collector.forget()


def _terminal(job: JobObservation) -> set[CheckpointKey]:
    headers = (c.header for c in job.checkpoints)
    return {(h.checkpoint_id, h.triggered_at) for h in headers if h.status.is_terminal}


def _only_end(job: JobObservation) -> JobObservation:
    return replace(job, shed=NOTHING_SHED, checkpoints=(), progress=(), pressure=(), barriers=())
