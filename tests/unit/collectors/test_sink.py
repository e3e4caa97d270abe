"""Observations are stored once, in the order of their target, however often the store is slow or unreachable."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime
from pathlib import Path

import pytest

from backend.domain.errors import StoreFullError, StoreUnavailableError, UnknownEntityError
from backend.domain.ids import TargetId
from backend.domain.observation import Observation
from backend.domain.target import TargetState
from collectors.base import pause
from collectors.sink import SinkOptions, SpoolingSink
from collectors.spool import Spool
from tests.support.observations import observation
from tests.support.seeds import over_seeds
from tests.support.virtual_loop import VirtualLoop, run_in_virtual_time


class Store:
    """A store that is unreachable, or slow, or refuses observations for good."""

    def __init__(self) -> None:
        self.is_away = False
        self.delay_s = 0.0
        self.refused: dict[int, Exception] = {}
        self.written: list[Observation] = []

    async def write(self, observation: Observation) -> object:
        if self.is_away:
            raise StoreUnavailableError("connection refused")
        await asyncio.sleep(self.delay_s)
        if error := self.refused.get(observation.cost.request_count):
            raise error
        self.written.append(observation)
        return None

    async def report_failure(self, target_id: TargetId, *, kind: TargetState, reason: str, at: datetime) -> None:
        raise StoreUnavailableError("connection refused")

    def numbers(self, target: str) -> list[int]:
        return [o.cost.request_count for o in self.written if o.target_id == target]


class Run:
    def __init__(self, folder: Path, *, size_max_bytes: int = 2**20) -> None:
        self.loop = VirtualLoop()
        self.store = Store()
        self.spool = Spool(folder, size_max_bytes=size_max_bytes, monotonic_s=self.loop.time)
        self.sink = SpoolingSink(self.store, self.spool, pause=pause, options=SinkOptions(write_timeout_s=10.0))
        self.stop = asyncio.Event()

    async def write(self, number: int, target: str = "t") -> None:
        await self.sink.write(observation(TargetId(target), request_count=number))

    def go(self, main) -> None:
        async def both() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.sink.replay(self.stop))
                await main()
                self.stop.set()

        run_in_virtual_time(both(), self.loop)
        self.spool.close()


def test_while_the_store_is_away_observations_wait_on_disk_and_are_stored_in_order(tmp_path):
    run = Run(tmp_path)

    async def main() -> None:
        await run.write(0)
        run.store.is_away = True
        for n in range(1, 6):
            await run.write(n)
        assert run.store.numbers("t") == [0]
        run.store.is_away = False
        await run.write(6)
        assert run.store.numbers("t") == [0]
        await run.write(0, target="other")
        assert run.store.numbers("other") == [0]
        await asyncio.sleep(5)
        await run.write(7)

    run.go(main)
    assert run.store.numbers("t") == list(range(8))


def test_a_write_that_takes_too_long_is_spooled(tmp_path):
    run = Run(tmp_path)

    async def main() -> None:
        run.store.delay_s = 60.0
        await run.write(0)
        assert run.loop.time() == 10.0
        assert len(run.spool) == 1
        run.store.delay_s = 1.0
        await asyncio.sleep(30)

    run.go(main)
    assert run.store.numbers("t") == [0]


def test_a_full_spool_reports_that_the_store_is_unavailable(tmp_path):
    run = Run(tmp_path, size_max_bytes=10)

    async def main() -> None:
        run.store.is_away = True
        with pytest.raises(StoreUnavailableError, match="connection refused; the spool is full"):
            await run.write(0)

    run.go(main)


def test_a_full_disk_of_the_store_is_named_if_the_spool_is_full_too(tmp_path):
    run = Run(tmp_path, size_max_bytes=10)

    async def main() -> None:
        run.store.refused = {0: StoreFullError("could not extend file")}
        with pytest.raises(StoreFullError, match="the disk of the store is full: could not extend file; the spool"):
            await run.write(0)

    run.go(main)


def test_an_observation_that_the_store_refuses_for_good_does_not_block_the_others(tmp_path):
    run = Run(tmp_path)
    run.store.refused = {1: RuntimeError("a bug"), 2: UnknownEntityError(kind="target", id="t")}

    async def main() -> None:
        run.store.is_away = True
        for n in range(4):
            await run.write(n)
        run.store.is_away = False
        await asyncio.sleep(20)

    run.go(main)
    assert run.store.numbers("t") == [0, 3]
    assert run.sink.broken_count == 1


def test_the_next_process_stores_what_the_last_one_left(tmp_path):
    first = Run(tmp_path)

    async def fill() -> None:
        first.store.is_away = True
        for n in range(5):
            await first.write(n)

    first.go(fill)
    second = Run(tmp_path)

    async def main() -> None:
        await second.write(5)
        await asyncio.sleep(20)

    second.go(main)
    assert second.store.numbers("t") == list(range(6))


@over_seeds(20, more=200)
def test_every_observation_is_stored_in_the_order_of_its_target_whatever_the_store_does(tmp_path, seed: int) -> None:
    rnd = random.Random(seed)
    run = Run(tmp_path)

    async def of_target(target: str) -> None:
        for n in range(30):
            await asyncio.sleep(rnd.uniform(0, 3))
            await run.write(n, target)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(3):
                group.create_task(of_target(f"t{n}"))
            for _ in range(20):
                run.store.is_away = rnd.random() < 0.4
                run.store.delay_s = rnd.choice([0.0, 0.0, 0.5, 30.0])
                await asyncio.sleep(rnd.uniform(0, 10))
        run.store.is_away, run.store.delay_s = False, 0.0
        await asyncio.sleep(60)

    run.go(main)
    for n in range(3):
        # The store recognizes an observation that is written twice, so only the order of the first writes counts.
        assert list(dict.fromkeys(run.store.numbers(f"t{n}"))) == list(range(30)), f"seed={seed}"
