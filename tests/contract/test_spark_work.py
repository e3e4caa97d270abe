"""The Spark jobs and stages of the same batches, as a driver's REST API and as its event log have them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import asdict

import pytest
from aiohttp import web

from backend.domain.clock import from_epoch_ms
from backend.domain.connection import ANYWHERE
from collectors.spark import driver_work, slow_batches
from collectors.spark.kind import SPARK
from tests.support.collector_targets import Row
from tests.support.recorded_flink import serve_app
from tests.support.spark_work import driver, log_lines, works_in_log, works_of

pytestmark = pytest.mark.anyio


class Driver:
    """A driver that answers as it was recorded. ``broken`` are the kinds of answers that it has no more."""

    def __init__(self, *, broken: tuple[str, ...] = ()) -> None:
        self.known = driver()
        self.broken = broken
        self.asked: list[str] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        root = f"/api/v1/applications/{self.known['app']}/"
        if request.path == "/api/v1/version":
            return web.json_response({"spark": "4.3.0"})
        if request.path == "/api/v1/applications":
            times = {"startTimeEpoch": 1_796_048_080_000, "lastUpdatedEpoch": 1_796_048_080_000, "endTimeEpoch": -1}
            return web.json_response(
                [{"id": self.known["app"], "name": "views", "attempts": [{"completed": False, **times}]}]
            )
        what, _, number = request.path.removeprefix(root).partition("/")
        if what in self.broken:
            return web.Response(status=404)
        rows = self.known[what]
        if number:
            rows = [r for r in rows if str(r.get("jobId" if what == "jobs" else "stageId")) == number]
            if not rows:
                return web.Response(status=404)
            return web.json_response(rows[0] if what == "jobs" else rows)
        if what == "sql":
            offset, length = int(request.query["offset"]), int(request.query["length"])
            rows = rows[offset : offset + length]
        return web.json_response(rows)


@asynccontextmanager
async def served(of):
    app = web.Application()
    app.router.add_get("/{path:.*}", of.handle)
    async with serve_app(app) as url:
        assert SPARK.open is not None
        async with SPARK.open(Row("spark", url), {}, reach=ANYWHERE) as collector:
            yield collector


async def polled(collector):
    return await collector.collect(from_epoch_ms(1_796_048_260_000))


@pytest.fixture
def _every_batch(monkeypatch):
    monkeypatch.setattr(slow_batches, "LONG_MS", 0)
    monkeypatch.setattr(slow_batches, "EVERY_MS", 0)


@pytest.mark.usefixtures("_every_batch")
async def test_a_driver_and_an_event_log_have_the_same_values_of_each_batch(monkeypatch):
    monkeypatch.setattr(driver_work, "BATCHES_A_POLL", 100)
    async with served(Driver()) as collector:
        found = works_of(list((await polled(collector)).jobs))
    expected = works_in_log((0, log_lines()))
    assert found.keys() == expected.keys()
    for key, work in found.items():
        assert asdict(work) == asdict(expected[key]), key


@pytest.mark.usefixtures("_every_batch")
@pytest.mark.parametrize("most", [0, 100])
async def test_lists_are_asked_for_if_a_batch_has_many_jobs_or_stages(monkeypatch, most):
    monkeypatch.setattr(driver_work, "_ONE_BY_ONE_MAX", most)
    monkeypatch.setattr(driver_work, "_STAGES_MAX", max(1, most))
    of = Driver()
    async with served(of) as collector:
        found = works_of(list((await polled(collector)).jobs))
    expected = works_in_log((0, log_lines()))
    assert found
    assert all(work.stages == expected[key].stages[: max(1, most)] for key, work in found.items())
    assert any(path.endswith("/jobs") for path in of.asked) == (most == 0)


@pytest.mark.usefixtures("_every_batch")
async def test_a_poll_looks_into_two_batches_and_the_next_one_into_none_of_them_again():
    of = Driver()
    # While an execution runs, those after it are listed again in each poll.
    of.known["sql"][0]["status"] = "RUNNING"
    async with served(of) as collector:
        first = works_of(list((await polled(collector)).jobs))
        count = len(of.asked)
        second = works_of(list((await polled(collector)).jobs))
    assert len(first) == 2
    assert second == {}
    assert not any("/jobs" in path or "/stages" in path for path in of.asked[count:])


@pytest.mark.parametrize("broken", ["jobs", "stages"])
async def test_what_has_left_the_drivers_lists_is_missing_and_the_batches_stay(broken):
    async with served(Driver(broken=(broken,))) as collector:
        found = await polled(collector)
    assert sum(len(job.checkpoints) for job in found.jobs) == 9
    works = works_of(list(found.jobs))
    assert (works == {}) if broken == "jobs" else all(work.stages == () for work in works.values())
