"""Goal: the manager polls exactly the enabled targets that it leases, and a failing target never stops the others.

Method: the real manager and loops run in virtual time. A script controls the list of targets, their leases and
their faults.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

import pytest

from backend.domain.connection import PLAIN, ConnectionOptions
from backend.domain.engines import FLINK
from backend.domain.errors import (
    FieldProblem,
    InvalidInputError,
    StoreUnavailableError,
    TargetProtocolError,
    TargetUnavailableError,
)
from backend.domain.ids import TargetId
from backend.domain.observation import Observation, PollCost
from backend.domain.target import TargetOrigin
from collectors.base import Collector, TargetRow
from collectors.loop import LoopOptions
from collectors.manager import CollectorManager, ManagerOptions
from tests.support.virtual_time import VirtualTime

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Row:
    id: TargetId
    kind: str = "flink"
    url: str = "http://flink"
    name: str = "flink"
    labels: Mapping[str, str] = field(default_factory=dict)
    origin: TargetOrigin = TargetOrigin.API
    connection: ConnectionOptions = PLAIN
    interval_s: float | None = None


class Targets:
    """A list of targets, and the collector that holds the lease of each. A test can change both."""

    def __init__(self, *names: str) -> None:
        self.rows = {TargetId(n): Row(TargetId(n)) for n in names}
        self.is_away = False
        self.holders: dict[TargetId, str] = {}


class Leases:
    """The leases of one collector on the targets of a test."""

    def __init__(self, targets: Targets, holder: str) -> None:
        self._targets = targets
        self._holder = holder

    async def take(self) -> Sequence[TargetRow]:
        if self._targets.is_away:
            raise StoreUnavailableError("connection refused")
        holders = self._targets.holders
        return [row for i, row in self._targets.rows.items() if holders.setdefault(i, self._holder) == self._holder]

    async def release(self, target_ids: Collection[TargetId]) -> None:
        for target_id in target_ids:
            if self._targets.holders.get(target_id) == self._holder:
                del self._targets.holders[target_id]


class Sink:
    def __init__(self) -> None:
        self.written: list[TargetId] = []
        self.failures: list[tuple[TargetId, str]] = []

    async def write(self, observation: Observation) -> object:
        self.written.append(observation.target_id)
        return None

    async def report_failure(self, target_id: TargetId, *, kind: str, reason: str, at: datetime) -> None:
        self.failures.append((target_id, reason))


class World:
    def __init__(self, *names: str) -> None:
        self.time = VirtualTime()
        self.targets = Targets(*names)
        self.sink = Sink()
        self.faults: dict[TargetId, Exception] = {}
        self.open_faults: dict[TargetId, Exception] = {}
        self.opened: list[TargetId] = []
        self.closed: list[TargetId] = []
        self.reading: dict[TargetId, int] = {}
        self.hanging: set[TargetId] = set()

    def manager(self, holder: str = "one") -> CollectorManager:
        return CollectorManager(
            Leases(self.targets, holder),
            self.sink,
            self.open,
            clock=self.time,
            pause=self.time.pause,
            random=random.Random(holder).random,
            options=ManagerOptions(loop=LoopOptions(interval_s=2.0), stop_within_s=0.05),
        )

    @asynccontextmanager
    async def open(self, row: TargetRow) -> AsyncIterator[Collector]:
        if row.id in self.open_faults:
            raise self.open_faults[row.id]
        self.opened.append(row.id)
        try:
            yield Reader(self, row.id)
        finally:
            self.closed.append(row.id)


class Reader:
    poll_within_s: float | None = None

    def __init__(self, world: World, target_id: TargetId) -> None:
        self._world = world
        self._id = target_id

    async def collect(self, now: datetime, **_: object) -> Observation:
        world = self._world
        assert world.reading.get(self._id, 0) == 0, "two collectors read one target at the same time"
        world.reading[self._id] = 1
        try:
            await asyncio.sleep(0)
            if self._id in world.hanging:
                await asyncio.Event().wait()
            if self._id in world.faults:
                raise world.faults[self._id]
            return Observation(self._id, now, FLINK, None, (), PollCost(1, 0, 0))
        finally:
            world.reading[self._id] = 0

    def forget(self) -> None:
        raise AssertionError("nothing was lost")


@asynccontextmanager
async def running(world: World, *managers: CollectorManager) -> AsyncIterator[asyncio.Event]:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for manager in managers:
            group.create_task(manager.run(stop))
        yield stop
        stop.set()
        await world.time.run_for(0)


async def test_every_enabled_target_is_read_and_at_the_end_all_leases_are_released() -> None:
    world = World("a", "b", "c")
    async with running(world, world.manager()):
        await world.time.run_for(60)
    for name in ("a", "b", "c"):
        assert 28 <= world.sink.written.count(TargetId(name)) <= 31
    assert sorted(world.closed) == sorted(world.opened) == ["a", "b", "c"]
    assert world.targets.holders == {}


async def test_a_folder_in_a_store_is_listed_every_30_s_if_it_has_no_interval_of_its_own() -> None:
    world = World("s3", "hdfs", "own", "server")
    for name, url, interval_s in (
        ("s3", "s3://logs/events", None),
        ("hdfs", "webhdfs://spark@namenode:9870/events", None),
        ("own", "s3://logs/others", 5.0),
    ):
        world.targets.rows[TargetId(name)] = Row(TargetId(name), url=url, interval_s=interval_s)
    async with running(world, world.manager()):
        await world.time.run_for(300)
    counts = {name: world.sink.written.count(TargetId(name)) for name in ("s3", "hdfs", "own", "server")}
    assert 9 <= counts["s3"] <= 11
    assert 9 <= counts["hdfs"] <= 11
    assert 58 <= counts["own"] <= 61
    assert counts["server"] >= 145


async def test_targets_can_be_added_and_removed_during_the_run() -> None:
    world = World("a")
    manager = world.manager()
    async with running(world, manager):
        await world.time.run_for(10)
        world.targets.rows[TargetId("b")] = Row(TargetId("b"))
        await world.time.run_for(10)
        assert manager.watched == {"a", "b"}
        del world.targets.rows[TargetId("a")]
        await world.time.run_for(10)
        assert manager.watched == {"b"}
        assert world.closed == ["a"]
        written = world.sink.written.count(TargetId("a"))
        await world.time.run_for(60)
    assert world.sink.written.count(TargetId("a")) == written


async def test_a_target_with_a_changed_address_is_opened_again() -> None:
    world = World("a")
    async with running(world, world.manager()):
        await world.time.run_for(10)
        world.targets.rows[TargetId("a")] = Row(TargetId("a"), url="http://other")
        await world.time.run_for(10)
    assert world.opened == ["a", "a"]


@pytest.mark.parametrize(
    "fault",
    [TargetUnavailableError(url="http://x", reason="gone"), RuntimeError("a bug"), KeyError("another")],
    ids=["unreachable", "bug", "other-bug"],
)
async def test_one_failing_target_never_stops_the_others(fault: Exception) -> None:
    world = World("bad", "good")
    world.faults[TargetId("bad")] = fault
    manager = world.manager()
    async with running(world, manager):
        await world.time.run_for(60)
        assert world.sink.written.count(TargetId("good")) >= 28
        assert world.sink.written.count(TargetId("bad")) == 0
        del world.faults[TargetId("bad")]
        await world.time.run_for(120)
    assert world.sink.written.count(TargetId("bad")) >= 5
    assert (manager.broken_count > 0) == (not isinstance(fault, TargetUnavailableError))


async def test_an_invalid_address_is_reported_once_and_not_retried() -> None:
    world = World("bad", "good")
    world.open_faults[TargetId("bad")] = InvalidInputError([FieldProblem("url", "has no host", "http://...")])
    async with running(world, world.manager()):
        await world.time.run_for(120)
    assert len(world.sink.failures) == 1
    assert "has no host" in world.sink.failures[0][1]
    assert world.sink.written.count(TargetId("good")) >= 55


@pytest.mark.parametrize(
    "error",
    [
        TargetUnavailableError(url="http://toy", reason="no collector for targets of kind 'toy' is installed"),
        TargetProtocolError(url="http://toy", reason="not a toy"),
    ],
)
async def test_a_target_that_cannot_be_opened_is_reported_and_tried_again(error: Exception) -> None:
    world = World("bad", "good")
    world.open_faults[TargetId("bad")] = error
    manager = world.manager()
    async with running(world, manager):
        await world.time.run_for(35)
        assert [str(error)] * 4 == [reason for _, reason in world.sink.failures]
        world.open_faults.clear()
        await world.time.run_for(15)
    assert TargetId("bad") in world.sink.written
    assert world.sink.written.count(TargetId("good")) >= 20
    assert manager.broken_count == 0


async def test_two_collectors_share_the_targets_and_one_takes_over_if_the_other_vanishes() -> None:
    world = World("a", "b", "c")
    first, second = world.manager("first"), world.manager("second")
    for target_id in world.targets.rows:
        world.targets.holders[target_id] = "vanished"
    async with running(world, first, second):
        await world.time.run_for(12)
        assert world.sink.written == []
        # The session of the vanished collector has ended.
        world.targets.holders.clear()
        await world.time.run_for(30)
        assert first.watched | second.watched == set(world.targets.rows)
        assert not first.watched & second.watched


async def test_targets_are_still_read_while_the_store_is_unavailable() -> None:
    world = World("a")
    manager = world.manager()
    async with running(world, manager):
        await world.time.run_for(10)
        world.targets.is_away = True
        before = len(world.sink.written)
        await world.time.run_for(60)
        assert len(world.sink.written) - before >= 28
        assert manager.watched == {"a"}
        world.targets.is_away = False


async def test_a_poll_that_hangs_at_shutdown_is_cancelled() -> None:
    world = World("a")
    world.hanging.add(TargetId("a"))
    manager = world.manager()
    stop = asyncio.Event()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(manager.run(stop))
        await world.time.run_for(10)
        stop.set()
        await world.time.run_for(0)
    assert world.closed == ["a"]
    assert world.targets.holders == {}
