"""A new query, and a change of one, is in the API within two polls of its target, by each channel of Spark.

Time is counted in polls: the clocks move by the interval of the target only. A checkpoint folder is read at most every
30 s, so its polls are that far apart. What is pushed needs no poll; that the jar sends what the listener in Python
sends is tested in ``test_spark_jar.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest
from aiohttp import web

from backend.domain.clock import from_epoch_ms
from backend.domain.connection import ANYWHERE
from backend.domain.engines import SPARK_HISTORY
from backend.domain.ids import EngineRunId
from backend.domain.observation import JobState
from backend.domain.target import TargetOrigin
from backend.store.targets.targets import NewTarget, TargetRepository
from collectors.spark.checkpoint_collector import READ_EVERY_S
from collectors.spark.kind import SPARK
from tests.contract.test_spark_driver import Driver, row
from tests.contract.test_spark_history import Handler
from tests.support.collector_targets import Row
from tests.support.made_up_queries import events, progress
from tests.support.observations import SteppingClock, completed, job, observation
from tests.support.recorded_flink import serve_app
from tests.support.serving import api_over, asking
from tests.support.spark_checkpoints import QUERY, MadeCheckpoint
from tests.support.spark_history import STARTED_MS, Application, HistoryServer, query_lines

pytestmark = pytest.mark.anyio
POLLS = 2


@dataclass
class Channel:
    """A target that nothing has happened at yet. ``start`` begins a query, and ``change`` ends one more batch of it."""

    url: str
    start: Callable[[], object]
    change: Callable[[], object]
    interval_s: float = 2.0


@asynccontextmanager
async def history_server(_):
    server = HistoryServer()
    app = Application(files=[("local-1", query_lines(-1, 0))], updated_ms=STARTED_MS + 20_000)

    def change():
        app.files, app.updated_ms = [("local-1", query_lines(-1, 0, 1))], app.updated_ms + 1

    web_app = web.Application()
    web_app.router.add_get("/{path:.*}", Handler(server).handle)
    async with serve_app(web_app) as url:
        yield Channel(url, lambda: server.apps.append(app), change)


@asynccontextmanager
async def driver(_):
    served = Driver([])
    web_app = web.Application()
    web_app.router.add_get("/{path:.*}", served.handle)
    async with serve_app(web_app) as url:
        yield Channel(url, lambda: served.rows.append(row(0, 0)), lambda: served.rows.append(row(1, 1)))


@asynccontextmanager
async def event_log_folder(path):
    log = path / "local-1.inprogress"
    yield Channel(
        f"file://{path}",
        lambda: log.write_bytes(query_lines(-1, 0)),
        lambda: log.write_bytes(query_lines(-1, 0, 1)),
    )


CHANNELS = [history_server, driver, event_log_folder]


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


async def _batches(client):
    """Return the numbers of the batches of each job that the fleet lists, by its name."""
    jobs = (await client.get("/api/v1/jobs")).json()["items"]
    answers = [(j["name"], (await client.get(f"/api/v1/jobs/{j['id']}/checkpoints")).json()["items"]) for j in jobs]
    return {name: sorted(c["checkpoint_id"] for c in found) for name, found in answers}


class Polled:
    """A target of the store that is polled when the test wants it."""

    def __init__(self, engine, writer, clock, channel, collector):
        self.engine, self.writer, self.clock, self.channel, self.collector = engine, writer, clock, channel, collector
        self.s = 0.0
        collector.monotonic_s = lambda: self.s
        if collector.checkpoint is not None:
            collector.checkpoint.monotonic_s = collector.monotonic_s

    async def poll(self):
        self.s += self.channel.interval_s
        self.clock.at += timedelta(seconds=self.channel.interval_s)
        new = NewTarget(url=self.channel.url, name="spark", origin=TargetOrigin.CONFIGURATION, kind="spark")
        target = (await TargetRepository(self.engine).get_or_add(new, at=self.clock.at)).id
        found = await self.collector.collect(self.clock.at)
        await self.writer.write(replace(found, target_id=target))

    async def polls_until(self, holds):
        """Poll until ``holds``, and return how many polls that took."""
        for count in range(1, 10):
            await self.poll()
            if await holds():
                return count
        raise AssertionError("it is not there after 9 polls")


@asynccontextmanager
async def polled(engine, writer, clock, channel):
    clock.at = from_epoch_ms(STARTED_MS + 20_000)
    assert SPARK.open is not None
    async with SPARK.open(Row("spark", channel.url, origin=TargetOrigin.CONFIGURATION), {}, reach=ANYWHERE) as opened:
        yield Polled(engine, writer, clock, channel, opened)


@pytest.mark.parametrize("quiet_polls", [0, 1, 10])
@pytest.mark.parametrize("made", CHANNELS, ids=lambda made: made.__name__)
async def test_a_query_and_its_next_batch_are_there_within_two_polls(
    made, quiet_polls, engine, writer, clock, client, tmp_path
):
    async def has(count):
        found = await _batches(client)
        return bool(found) and all(len(numbers) == count for numbers in found.values())

    async with made(tmp_path) as channel, polled(engine, writer, clock, channel) as target:
        for _ in range(quiet_polls):
            await target.poll()
        channel.start()
        took = [await target.polls_until(lambda: has(1))]
        for _ in range(quiet_polls):
            await target.poll()
        channel.change()
        took.append(await target.polls_until(lambda: has(2)))

    assert max(took) <= POLLS, took


async def test_a_checkpoint_folder_and_its_next_batch_are_there_within_two_polls(
    engine, writer, clock, client, tmp_path
):
    made = MadeCheckpoint(tmp_path / "orders")

    def start():
        made.begin(0)
        made.commit(0)

    channel = Channel(f"file://{made.path}", start, lambda: made.begin(1), interval_s=READ_EVERY_S)

    async def newest(number):
        (listed,) = (await client.get("/api/v1/jobs")).json()["items"]
        folders = (await client.get(f"/api/v1/jobs/{listed['id']}")).json()["folders"]
        return bool(folders) and [b["number"] for b in folders[0]["batches"]][-1:] == [number]

    async with polled(engine, writer, clock, channel) as target:
        # A folder has no runs. The job of its query is one that another channel has.
        seen = replace(job([completed(0)]), engine_run_id=EngineRunId(f"{QUERY}/run"), state=JobState.RUNNING)
        other = NewTarget(url="http://spark:18080", name="history", origin=TargetOrigin.API, kind="spark")
        of_job = (await TargetRepository(engine).add(other, at=clock.at)).id
        await writer.write(replace(observation(of_job, seen, at=clock.at), engine=SPARK_HISTORY))
        await target.poll()
        channel.start()
        took = [await target.polls_until(lambda: newest(0))]
        channel.change()
        took.append(await target.polls_until(lambda: newest(1)))

    assert max(took) <= POLLS, took


async def test_a_query_that_pushes_and_its_next_batch_are_there_without_a_poll(engine):
    made = events([progress(number, took_ms=900) for number in range(3)])
    clock = SteppingClock(datetime.fromisoformat(made[0]["seen_at"]))
    async with asking(api_over(engine, clock)) as client:
        for count, event in enumerate(made, 1):
            clock.at = datetime.fromisoformat(event["seen_at"])
            body = {"deployment": "made-up", "sent_at": event["seen_at"], "events": [event]}
            assert (await client.post("/api/v1/ingest/spark", json=body)).status_code == 200
            assert await _batches(client) == {"made-up": list(range(count))}
