"""Goal: whatever a target or the store does, a loop polls on time, backs off, and writes each reading exactly once.

Method: the real loop runs in virtual time, and a seeded script makes targets and the store fail. No test
sleeps. To replay one run: pytest tests/simulation -k "seed-17"
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from backend.domain.engines import FLINK
from backend.domain.errors import StoreUnavailableError, TargetProtocolError, TargetUnavailableError, UnknownEntityError
from backend.domain.ids import TargetId
from backend.domain.observation import Observation, PollCost, Shed
from collectors.base import Effort
from collectors.loop import LoopOptions, TargetLoop
from tests.support.observations import NOW, completed, job, observation
from tests.support.seeds import over_seeds
from tests.support.virtual_time import VirtualTime

pytestmark = pytest.mark.anyio

TARGET = TargetId("t1")
UNREACHABLE = TargetUnavailableError(url="http://flink", reason="cannot connect")
MALFORMED = TargetProtocolError(url="http://flink", reason="answers HTML")


class ScriptedCollector:
    """A collector that follows a script: each poll raises an error or takes a number of seconds."""

    def __init__(self, time: VirtualTime, script: Callable[[int], Exception | float] = lambda _: 0.0) -> None:
        self._time = time
        self._script = script
        self.polled_at_s: list[float] = []
        self.efforts: list[Effort] = []
        self.forgotten_count = 0
        self.poll_within_s: float | None = None

    async def collect(self, now: datetime, *, effort: Effort = Effort.FULL) -> Observation:
        n = len(self.polled_at_s)
        self.efforts.append(effort)
        self.polled_at_s.append(self._time.monotonic_s())
        answer = self._script(n)
        if isinstance(answer, Exception):
            raise answer
        self._time.pass_s(answer)
        return Observation(TARGET, now, FLINK, "1.20.5", (), PollCost(n, 0, 0))

    def forget(self) -> None:
        self.forgotten_count += 1


class ScriptedStore:
    """A store that records what is written. While ``is_away`` is true, it is unavailable."""

    def __init__(self) -> None:
        self.is_away = False
        self.error: Exception | None = None
        self.written: list[Observation] = []
        self.failures: list[tuple[str, str]] = []

    async def write(self, observation: Observation) -> object:
        if self.error is not None:
            raise self.error
        if self.is_away:
            raise StoreUnavailableError("connection refused")
        self.written.append(observation)
        return None

    async def report_failure(self, target_id: TargetId, *, kind: str, reason: str, at: datetime) -> None:
        if self.is_away:
            raise StoreUnavailableError("connection refused")
        self.failures.append((kind, reason))

    @property
    def numbers(self) -> list[int]:
        return [o.cost.request_count for o in self.written]


class Run:
    def __init__(self, script: Callable[[int], Exception | float] = lambda _: 0.0, **options: float) -> None:
        self.time = VirtualTime()
        self.collector = ScriptedCollector(self.time, script)
        self.store = ScriptedStore()
        self.stop = asyncio.Event()
        self.loop = TargetLoop(
            TARGET,
            self.collector,
            self.store,
            clock=self.time,
            pause=self.time.pause,
            random=random.Random(1).random,
            options=LoopOptions(**options),  # type: ignore[arg-type]
        )

    async def go(self, seconds: float) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.loop.run(self.stop))
            await self.time.run_for(seconds)
            self.stop.set()
            await self.time.run_for(0)

    @property
    def gaps_s(self) -> list[float]:
        at = self.collector.polled_at_s
        return [round(b - a, 6) for a, b in itertools.pairwise(at)]


async def test_the_first_poll_is_within_one_interval_and_the_rest_follow_at_the_interval() -> None:
    run = Run(interval_s=2.0)
    await run.go(60)
    assert 0 <= run.collector.polled_at_s[0] <= 2
    assert set(run.gaps_s) == {2.0}
    assert run.store.numbers == list(range(len(run.collector.polled_at_s)))


async def test_the_time_a_poll_takes_counts_towards_the_interval() -> None:
    run = Run(lambda _: 0.5, interval_s=2.0)
    await run.go(60)
    assert set(run.gaps_s) == {2.0}


async def test_a_target_slower_than_the_interval_gets_a_pause_between_polls() -> None:
    run = Run(lambda _: 5.0, interval_s=2.0)
    await run.go(60)
    assert set(run.gaps_s) == {7.0}
    assert {o.set_interval_s for o in run.store.written} == {2.0}, "the set interval, not the measured one"


async def test_a_short_history_is_polled_before_its_entries_disappear() -> None:
    run = Run(interval_s=60.0)
    run.collector.poll_within_s = 2.5
    await run.go(120)
    assert set(run.gaps_s) == {2.5}
    assert {o.set_interval_s for o in run.store.written} == {2.5}


async def test_polls_that_follow_too_late_leave_out_details_until_enough_polls_were_in_time() -> None:
    run = Run(lambda n: 3.0 if n < 20 else 0.0, interval_s=2.0)
    # The target drops unread checkpoints after 4 s, and 5 s pass between two polls.
    run.collector.poll_within_s = 2.0
    await run.go(240)
    assert run.collector.efforts[5:20].count(Effort.HEADERS) >= 14
    assert set(run.collector.efforts[80:]) == {Effort.FULL}


async def test_the_pauses_after_failures_leave_out_no_details() -> None:
    run = Run(lambda n: UNREACHABLE if n < 8 else 0.0, interval_s=2.0)
    run.collector.poll_within_s = 2.0
    await run.go(400)
    assert set(run.collector.efforts[8:]) == {Effort.FULL}


@pytest.mark.parametrize(("error", "kind"), [(UNREACHABLE, "unreachable"), (MALFORMED, "malformed")])
async def test_failures_double_the_pause_up_to_a_bound_and_a_success_resets_it(error: Exception, kind: str) -> None:
    run = Run(lambda n: error if n < 12 else 0.0, interval_s=2.0, backoff_max_s=60.0)
    await run.go(1200)
    for n, gap_s in enumerate(run.gaps_s[:12]):
        ideal_s = min(2.0 * 2**n, 60.0)
        assert 0.75 * ideal_s <= gap_s <= 1.25 * ideal_s, (n, gap_s)
    assert len(set(run.gaps_s[6:12])) > 1, "no jitter"
    assert set(run.gaps_s[12:]) == {2.0}
    assert run.store.failures == [(kind, str(error))] * 12
    assert run.loop.state.failures_in_a_row == 0
    assert run.loop.state.reason is None


async def test_a_poll_that_never_ends_times_out() -> None:
    run = Run(interval_s=2.0, poll_timeout_s=0.05)
    never = asyncio.Event()

    async def hang(_: datetime, **__: object) -> Observation:
        await never.wait()
        raise AssertionError

    run.collector.collect = hang  # type: ignore[method-assign,assignment]
    await run.loop.poll()
    assert run.store.failures == [("unreachable", "one poll took longer than 0.05 s")]


async def test_readings_wait_for_an_unavailable_store_and_are_written_in_order() -> None:
    run = Run(interval_s=2.0, buffer_max=64)
    run.store.is_away = True
    async with asyncio.TaskGroup() as group:
        group.create_task(run.loop.run(run.stop))
        await run.time.run_for(60)
        assert run.store.written == []
        run.store.is_away = False
        await run.time.run_for(60)
        run.stop.set()
        await run.time.run_for(0)
    assert run.store.numbers == list(range(len(run.collector.polled_at_s)))
    assert run.collector.forgotten_count == 0


async def test_a_full_buffer_drops_its_oldest_reading_and_everything_is_read_again() -> None:
    run = Run(interval_s=2.0, buffer_max=4)
    run.store.is_away = True
    async with asyncio.TaskGroup() as group:
        group.create_task(run.loop.run(run.stop))
        await run.time.run_for(21)
        run.store.is_away = False
        await run.time.run_for(2)
        run.stop.set()
        await run.time.run_for(0)
    polls = len(run.collector.polled_at_s)
    assert run.store.numbers == list(range(polls - len(run.store.written), polls))
    assert run.loop.state.dropped_count == polls - len(run.store.written) > 0
    assert run.collector.forgotten_count == 1


async def test_a_long_outage_takes_bounded_memory_and_every_dropped_checkpoint_is_counted() -> None:
    run = Run(interval_s=2.0, buffer_max=4)

    async def collect(now: datetime, **_: object) -> Observation:
        number = len(run.collector.polled_at_s)
        run.collector.polled_at_s.append(run.time.monotonic_s())
        shown = [completed(n, triggered_at=made_at(n)) for n in range(max(0, number - 9), number + 1)]
        new = shown if run.collector.forgotten_count else shown[-1:]
        return replace(observation(TARGET, job(new)), observed_at=now)

    run.collector.collect = collect  # type: ignore[method-assign]
    run.store.is_away = True
    async with asyncio.TaskGroup() as group:
        group.create_task(run.loop.run(run.stop))
        await run.time.run_for(2_000)
        assert sum(map(len, run.loop._dropped.values())) <= 250
        run.store.is_away = False
        await run.time.run_for(10)
        run.stop.set()
        await run.time.run_for(0)
    stored = {c.header.checkpoint_id for o in run.store.written for j in o.jobs for c in j.checkpoints}
    lost = set(range(len(run.collector.polled_at_s))) - stored
    assert len(lost) > 900
    assert sum((o.shed for o in run.store.written), Shed()) == Shed(checkpoint_count=len(lost))
    # The first write already reports all lost checkpoints, so a kill of the process after it would not make the count
    # too low.
    assert run.store.written[0].shed.checkpoint_count >= len(lost)
    assert run.loop._dropped == {}


def made_at(number: int) -> datetime:
    return NOW + timedelta(seconds=2 * number)


async def test_at_a_stop_unwritten_readings_are_tried_once_more() -> None:
    run = Run(interval_s=2.0)
    run.store.is_away = True
    async with asyncio.TaskGroup() as group:
        group.create_task(run.loop.run(run.stop))
        await run.time.run_for(7)
        run.store.is_away = False
        run.stop.set()
        await run.time.run_for(0)
    assert run.store.numbers == list(range(len(run.collector.polled_at_s)))


async def test_a_target_removed_during_a_poll_does_not_end_the_loop() -> None:
    run = Run(interval_s=2.0)
    run.store.error = UnknownEntityError(kind="target", id="t1")
    await run.go(20)
    assert len(run.collector.polled_at_s) >= 9
    assert run.store.written == []


@over_seeds(25, more=120)
async def test_every_reading_is_written_exactly_once_and_in_order_whatever_fails(seed: int) -> None:
    rnd = random.Random(seed)
    choices: list[Exception | float] = [0.0, 0.3, 4.0, UNREACHABLE, MALFORMED]
    answers = rnd.choices(choices, k=5000)
    run = Run(lambda n: answers[n], interval_s=rnd.choice([0.5, 2.0, 10.0]), buffer_max=10_000)
    async with asyncio.TaskGroup() as group:
        group.create_task(run.loop.run(run.stop))
        for _ in range(20):
            run.store.is_away = rnd.random() < 0.5
            await run.time.run_for(rnd.uniform(0, 60))
        run.store.is_away = False
        run.stop.set()
        await run.time.run_for(0)
    polled = len(run.collector.polled_at_s)
    readings = [n for n in range(polled) if not isinstance(answers[n], Exception)]
    assert run.store.numbers == readings, f"seed={seed}"
    assert polled > 5, f"seed={seed}"
    assert max(run.gaps_s) <= 75 + 4, f"seed={seed}"
