"""The gate admits a bounded number of polls, the most urgent first, and failed targets never delay the others."""

from __future__ import annotations

import asyncio
import random

import pytest

from collectors.gate import PollGate
from tests.support.seeds import over_seeds

pytestmark = pytest.mark.anyio


class Polls:
    """Polls that hold their place until the test ends them."""

    def __init__(self, gate: PollGate, group: asyncio.TaskGroup) -> None:
        self._gate = gate
        self._group = group
        self._ends: dict[str, asyncio.Event] = {}
        self.running: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, name: str, *, until_s: float = 0.0, is_doubtful: bool = False) -> None:
        self._ends[name] = asyncio.Event()
        self.tasks[name] = self._group.create_task(self._poll(name, until_s, is_doubtful=is_doubtful))
        await self.settle()

    async def _poll(self, name: str, until_s: float, *, is_doubtful: bool) -> None:
        async with self._gate.admitted(until_s=until_s, is_doubtful=is_doubtful):
            self.running.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.running.remove(name)

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def end_all(self) -> None:
        for name in self._ends:
            await self.end(name)


async def test_the_most_urgent_poll_gets_the_next_place():
    async with asyncio.TaskGroup() as group:
        polls = Polls(PollGate(polls_max=2, doubtful_max=1), group)
        await polls.begin("first")
        for name, until_s in (("late", 30.0), ("urgent", 10.0), ("middle", 20.0)):
            await polls.begin(name, until_s=until_s)
        order = []
        for _ in range(4):
            order += polls.running
            await polls.end(polls.running[0])
    assert order == ["first", "urgent", "middle", "late"]


async def test_doubtful_targets_wait_for_one_another_and_never_delay_the_others():
    async with asyncio.TaskGroup() as group:
        polls = Polls(PollGate(polls_max=3, doubtful_max=1), group)
        for n in range(4):
            await polls.begin(f"doubtful-{n}", is_doubtful=True)
        await polls.begin("good-0")
        await polls.begin("good-1")
        assert polls.running == ["doubtful-0", "good-0", "good-1"]
        await polls.end_all()


@over_seeds(25, more=200)
async def test_no_place_is_lost_or_used_twice_whatever_is_cancelled(seed: int) -> None:
    rnd = random.Random(seed)
    gate = PollGate(polls_max=4, doubtful_max=1)
    async with asyncio.TaskGroup() as group:
        polls = Polls(gate, group)
        for n in range(60):
            await polls.begin(f"{n}", until_s=rnd.random())
            name = rnd.choice(list(polls.tasks))
            if rnd.random() < 0.4:
                polls.tasks[name].cancel()
                if rnd.random() < 0.5:
                    # The gate grants the place to a poll, and that poll is cancelled in the same iteration of the
                    # event loop.
                    await polls.end(rnd.choice(polls.running)) if polls.running else None
            elif polls.running:
                await polls.end(rnd.choice(polls.running))
            await polls.settle()
            assert len(polls.running) <= 3, f"seed={seed}"
        await polls.end_all()
        for n in range(3):
            await polls.begin(f"last-{n}")
        assert polls.running == ["last-0", "last-1", "last-2"], f"seed={seed}"
        await polls.end_all()
