"""The ages of queries are judged on the clock of the history server or the driver, which its answers show."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from backend.domain.clock import from_epoch_ms, to_epoch_ms
from backend.domain.connection import ANYWHERE
from backend.domain.observation import JobState
from collectors.spark.kind import SPARK
from tests.contract.test_spark_driver import Driver, row
from tests.support.collector_targets import Row
from tests.support.recorded_flink import serve_app
from tests.support.spark_history import Application, HistoryServer, batch_of, recorded, text_of, zstd

pytestmark = pytest.mark.anyio


def dated(handle, ahead):
    """Answer as ``handle`` does, with the date of a clock that is ``ahead`` of this machine's."""

    async def answer(request):
        response = await handle(request)
        if ahead is not None:
            response.headers["Date"] = f"{datetime.now(UTC) + ahead:%a, %d %b %Y %H:%M:%S} GMT"  # noqa: TID251
        return response

    return answer


@asynccontextmanager
async def collector_of(handle, ahead):
    app = web.Application()
    app.router.add_get("/{path:.*}", dated(handle, ahead))
    async with serve_app(app) as url:
        assert SPARK.open is not None
        async with SPARK.open(Row("spark", url), {}, reach=ANYWHERE) as collector:
            yield collector


async def first_of_driver(began_ago, ahead):
    """The first run that is read of a driver whose last batch ended ``began_ago`` ago on its own clock."""
    driver = Driver([row(0, 0)])
    ended_at = datetime(2026, 11, 30, 10, 10, 0, 692_000, tzinfo=UTC)
    async with collector_of(driver.handle, ahead) as collector:
        return await collector.collect(ended_at + began_ago - (ahead or timedelta()))


@pytest.mark.parametrize("minutes", [-240, -15, 15, 240])
async def test_a_query_of_a_driver_with_another_clock_is_as_old_as_on_its_clock(minutes):
    ahead = timedelta(minutes=minutes)

    fresh = await first_of_driver(timedelta(minutes=1), ahead)
    quiet = await first_of_driver(timedelta(minutes=11), ahead)

    assert [job.state for job in fresh.jobs] == [JobState.RUNNING]
    assert [job.state for job in quiet.jobs] == [JobState.UNKNOWN]
    assert fresh.clock_offset_ms == pytest.approx(minutes * 60_000, abs=2_000)


async def test_a_clock_that_is_days_away_is_not_believed():
    seen = await first_of_driver(timedelta(minutes=1), timedelta(days=3))

    # The ages are then judged on our clock, on which the batch is in the future.
    assert (seen.clock_offset_ms, seen.jobs[0].state) == (0, JobState.RUNNING)


@pytest.mark.parametrize("minutes", [-15, 0, 15])
async def test_a_query_of_a_history_server_with_another_clock_is_as_old_as_on_its_clock(minutes):
    ahead = timedelta(minutes=minutes)
    app = Application()
    events = [
        e for e in recorded() if 0 <= batch_of(e) < 3 or not e["Event"].endswith(("ProgressEvent", "TerminatedEvent"))
    ]
    app.files = [
        (f"eventlog_v2_{app.id}/", b""),
        (f"eventlog_v2_{app.id}/events_1_{app.id}.zstd", zstd(text_of(events))),
    ]
    server = HistoryServer([app])

    async def handle(request):
        status, body = server.answer(request.path_qs)
        return web.Response(status=status, body=body, content_type="application/json")

    states = []
    for age in (timedelta(minutes=1), timedelta(minutes=11)):
        async with collector_of(handle, ahead) as collector:
            seen = await collector.collect(from_epoch_ms(app.updated_ms) + age - ahead)
            states.append({job.state for job in seen.jobs})
    listed = next(path for path, _ in server.asked if path.startswith("/api/v1/applications?"))

    assert states == [{JobState.RUNNING}, {JobState.UNKNOWN}]
    since = datetime.strptime(listed.partition("=")[2], "%Y-%m-%dT%H:%M:%S.000GMT").replace(tzinfo=UTC)
    assert to_epoch_ms(since) == pytest.approx(app.updated_ms - 59 * 60_000, abs=2_000)
