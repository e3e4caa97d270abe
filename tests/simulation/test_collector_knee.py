"""Goal: overload hardly reduces the rate at which a process stores checkpoints, even with three times its capacity.

Method: the real manager, loops and Flink collector run in virtual time. Each request costs a fixed time in which the
process does nothing else, as parsing does on a slow CPU. Each target has one job with a checkpoint every 3 s, whose
history lists 10 checkpoints.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime

from backend.domain.ids import TargetId
from backend.domain.observation import NOTHING_SHED, Observation
from backend.domain.target import TargetState
from collectors.base import Collector, TargetRow, pause
from collectors.flink.collector import FlinkCollector
from collectors.manager import CollectorManager
from tests.simulation.test_collector_schedules import Targets
from tests.support.scripted_flink import ScriptedFlink, ScriptedJob
from tests.support.virtual_loop import VirtualLoop, run_in_virtual_time

WARM_UP_S = 120.0
MEASURED_S = 90.0
INTERVAL_S = 3.0
WORK_S = 0.05
KNEE = 110


class Counted:
    """A store that counts the terminal checkpoints that it first receives after the warm-up."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.keys: set[tuple[TargetId, int]] = set()
        self._early: set[tuple[TargetId, int]] = set()
        self.shed = NOTHING_SHED
        self.shed_late = NOTHING_SHED
        """What was shed after the warm-up."""
        self.detailed_count = 0

    async def write(self, observation: Observation) -> object:
        self.shed += observation.shed_in_all
        if self._loop.time() >= WARM_UP_S:
            self.shed_late += observation.shed_in_all
            self.detailed_count += sum(bool(c.details) for job in observation.jobs for c in job.checkpoints)
        headers = [c.header for job in observation.jobs for c in job.checkpoints]
        keys = {(observation.target_id, h.checkpoint_id) for h in headers if h.status.is_terminal}
        if self._loop.time() < WARM_UP_S:
            self._early |= keys
        else:
            self.keys |= keys - self._early
        return None

    async def report_failure(self, target_id: TargetId, *, kind: TargetState, reason: str, at: datetime) -> None:
        raise AssertionError(reason)


def goodput(
    target_count: int,
    *,
    work_s: float = WORK_S,
    history_max: int = 10,
    slow: Callable[[float], float] = lambda _: 1.0,
) -> tuple[float, Counted]:
    """Return the checkpoints stored per second, and the store.

    At each instant, work takes ``slow`` times as long.
    """
    loop = VirtualLoop()
    flinks = {
        TargetId(f"t{n}"): ScriptedFlink(
            loop,
            [ScriptedJob(0, interval_s=INTERVAL_S, history_max=history_max)],
            work=lambda s: loop.work(s * slow(loop.time())),
            work_s=work_s,
        )
        for n in range(target_count)
    }
    store = Counted(loop)

    @asynccontextmanager
    async def opened(row: TargetRow) -> AsyncIterator[Collector]:
        yield FlinkCollector(flinks[row.id], target_id=row.id, monotonic_s=loop.monotonic_s)

    async def main() -> None:
        stop = asyncio.Event()
        manager = CollectorManager(Targets(list(flinks)), store, opened, clock=loop, pause=pause, random=lambda: 0.5)
        async with asyncio.TaskGroup() as group:
            group.create_task(manager.run(stop))
            await asyncio.sleep(WARM_UP_S + MEASURED_S)
            stop.set()

    run_in_virtual_time(main(), loop)
    return len(store.keys) / MEASURED_S, store


def test_past_the_knee_the_goodput_stays_at_nine_tenths_of_the_peak_and_losses_are_counted() -> None:
    measured = {times: goodput(times * KNEE) for times in (1, 2, 3)}
    rates = {times: rate for times, (rate, _) in measured.items()}
    assert rates[1] >= 0.95 * KNEE / INTERVAL_S, rates
    assert min(rates[2], rates[3]) >= 0.9 * max(rates.values()), rates
    for times, (_, store) in measured.items():
        # Whatever is lost, checkpoints of every target arrive.
        assert len({target for target, _ in store.keys}) == times * KNEE
    assert measured[3][1].shed.checkpoint_count > measured[1][1].shed.checkpoint_count


def test_details_are_shed_before_checkpoints() -> None:
    rate, store = goodput(KNEE // 2)
    assert rate >= 0.98 * (KNEE // 2) / INTERVAL_S
    assert store.shed.checkpoint_count == 0
    assert store.shed.detail_count > 0


def test_targets_with_a_short_history_lose_details_before_checkpoints() -> None:
    count = 30
    # The history is replaced in 6 s. Reading all details would take the process 9 s.
    rate, store = goodput(count, history_max=2)
    assert rate >= 0.95 * count / INTERVAL_S
    assert store.shed.detail_count > 10 * store.shed_late.checkpoint_count


def test_a_process_that_is_starved_loses_no_checkpoint_and_recovers_by_itself() -> None:
    # Usually the process needs 60 % of its time. With ten targets it needs 90 %, and then it depends on chance how long
    # it takes to catch up.
    count = 7
    # For 40 s, the process gets a fifth of its CPU time, which is not enough for all its work.
    rate, store = goodput(count, slow=lambda at_s: 5.0 if 30.0 <= at_s < 70.0 else 1.0)
    assert store.shed.checkpoint_count == 0
    assert store.shed.detail_count > 0
    assert rate >= 0.95 * count / INTERVAL_S
    assert store.shed_late == NOTHING_SHED
    assert store.detailed_count >= 0.95 * count * MEASURED_S / INTERVAL_S


def test_a_process_with_enough_time_sheds_nothing() -> None:
    rate, store = goodput(5)
    assert rate >= 0.95 * 5 / INTERVAL_S
    assert store.shed == NOTHING_SHED
