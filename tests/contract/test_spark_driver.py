"""Reads the recorded REST API of a real driver, and one whose list of executions loses its oldest rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from aiohttp import web

from backend.domain.checkpoint import CheckpointStatus
from backend.domain.clock import from_epoch_ms
from backend.domain.connection import ANYWHERE
from backend.domain.errors import TargetProtocolError
from backend.domain.ids import EngineRunId
from backend.domain.observation import JobObservation, JobState, KnownRun, Observation
from collectors.base import Collector, KnownRuns
from collectors.spark.kind import SPARK
from tests.support.collector_targets import Row
from tests.support.recorded_flink import serve_app
from tests.support.spark_history import FOLDER

pytestmark = pytest.mark.anyio

QUERY, RUN = "3ed69ee6-85ac-4b2d-ad36-2e73daf8e15a", "14000285-153a-4ff9-af48-5765c703df1a"


def recorded(version: str = "43") -> list[dict[str, Any]]:
    return list(orjson.loads((FOLDER / f"sql_{version}.json").read_bytes()))


def row(number: int, batch: int, status: str = "COMPLETED", *, run: str = RUN, ms: int = 400) -> dict[str, Any]:
    """An execution as Spark lists it."""
    second = f"{10 + number // 60:02}:{number % 60:02}"
    return {
        "id": number,
        "status": status,
        "description": f"orders\nid = {QUERY}\nrunId = {run}\nbatch = {batch}",
        "submissionTime": f"2026-11-30T10:{second}.292GMT",
        "duration": ms,
        "rootExecutionId": number,
    }


@dataclass
class Driver:
    """A driver of Spark. ``asked`` has the paths of the requests."""

    rows: list[dict[str, Any]]
    app: dict[str, Any] = field(
        default_factory=lambda: orjson.loads((FOLDER / "driver_43.json").read_bytes())[0]  # type: ignore[no-any-return]
    )
    asked: list[str] = field(default_factory=list)
    prefix: str = ""

    async def handle(self, request: web.Request) -> web.Response:
        path = request.path.removeprefix(self.prefix)
        self.asked.append(path)
        if path == "/api/v1/version":
            return web.json_response({"spark": "4.3.0"})
        if path == "/api/v1/applications":
            return web.json_response([self.app])
        assert path == f"/api/v1/applications/{self.app['id']}/sql"
        offset, length = int(request.query["offset"]), int(request.query["length"])
        return web.json_response(self.rows[offset : offset + length])


@asynccontextmanager
async def served(driver: Driver, known: KnownRuns | None = None) -> AsyncIterator[Collector]:
    app = web.Application()
    app.router.add_get("/{path:.*}", driver.handle)
    async with serve_app(app) as url:
        assert SPARK.open is not None
        async with SPARK.open(Row("spark", url + driver.prefix), known or {}, reach=ANYWHERE) as collector:
            yield collector


async def poll(collector: Collector, *, minutes: float = 0) -> Observation:
    return await collector.collect(from_epoch_ms(1_796_033_460_000 + round(60_000 * minutes)))


def batches(job: JobObservation) -> list[tuple[int, str]]:
    return [(c.header.checkpoint_id, c.header.status.value) for c in job.checkpoints]


@pytest.mark.parametrize("prefix", ["", "/proxy/application_1_0001"])
async def test_each_batch_of_a_real_driver_is_a_checkpoint_with_its_duration_and_nothing_else(prefix):
    async with served(Driver(recorded(), prefix=prefix)) as collector:
        found = await poll(collector)

    jobs = {job.name: job for job in found.jobs}
    assert set(jobs) == {f"orders-app: orders-{n}" for n in ("windowed", "files", "failing")}
    roots = [r for r in recorded() if r["rootExecutionId"] == r["id"]]
    assert sum(len(job.checkpoints) for job in found.jobs) == len(roots)
    files = [r for r in roots if r["description"].startswith("orders-files")]
    completed = [c for c in jobs["orders-app: orders-files"].checkpoints if c.header.status.is_terminal]
    assert [c.header.end_to_end_duration_ms for c in completed] == [
        r["duration"] for r in files if r["status"] == "COMPLETED"
    ]
    for checkpoint in completed:
        assert checkpoint.batch is not None
        assert checkpoint.batch.phases_ms == ()
        assert (checkpoint.batch.input_row_count, checkpoint.batch.state, checkpoint.batch.sources) == (None, None, ())
        assert checkpoint.header.full_state_size_bytes is None
    failing = jobs["orders-app: orders-failing"]
    assert (failing.state, failing.engine_state) == (JobState.ENDED, "FAILED")
    assert failing.checkpoints[-1].header.status is CheckpointStatus.FAILED
    assert "PYTHON_EXCEPTION" in str(failing.checkpoints[-1].header.failure_message)
    assert found.engine.source == "the REST API of the query's driver"


async def test_a_batch_is_open_until_it_has_ended_and_is_handed_on_once():
    driver = Driver([row(0, 0), row(1, 1, "RUNNING")])
    async with served(driver) as collector:
        first = await poll(collector)
        driver.rows = [row(0, 0), row(1, 1), row(2, 2, "RUNNING")]
        driver.asked.clear()
        second = await poll(collector)
        third = await poll(collector)

    assert batches(first.jobs[0]) == [(0, "completed"), (1, "in-progress")]
    assert batches(second.jobs[0]) == [(1, "completed"), (2, "in-progress")]
    assert batches(third.jobs[0]) == [(2, "in-progress")]
    assert first.jobs[0].checkpoints[1].header.end_to_end_duration_ms is None
    assert len(driver.asked) == 4


async def test_executions_below_that_of_a_batch_are_not_batches():
    child = row(1, 0, ms=300) | {"rootExecutionId": 0}
    older = {k: v for k, v in row(3, 1, ms=300).items() if k != "rootExecutionId"}
    root = {k: v for k, v in row(2, 1, ms=400).items() if k != "rootExecutionId"}
    other = row(4, 0) | {"description": "count at App.scala:12"}
    async with served(Driver([row(0, 0), child, root, older, other])) as collector:
        (job,) = (await poll(collector)).jobs

    assert [(c.header.checkpoint_id, c.header.end_to_end_duration_ms) for c in job.checkpoints] == [(0, 400), (1, 400)]


@pytest.mark.parametrize("left", [30, 600, 990])
async def test_batches_are_found_although_older_executions_have_left_the_list(left):
    driver = Driver([row(n, n) for n in range(1000)])
    async with served(driver) as collector:
        assert len((await poll(collector)).jobs[0].checkpoints) == 1000
        driver.rows = [row(n, n) for n in range(left, 1000 + left)]
        second = await poll(collector)

    assert batches(second.jobs[0]) == [(n, "completed") for n in range(1000, 1000 + left)]
    assert second.jobs[0].problems == ()


async def test_executions_that_were_never_read_are_told():
    driver = Driver([row(n, n) for n in range(1000)])
    async with served(driver) as collector:
        await poll(collector)
        driver.rows = [row(n, n) for n in range(1500, 2500)]
        (job,) = (await poll(collector)).jobs

    assert len(job.checkpoints) == 1000
    assert job.problems == (
        "500 SQL executions left the driver's list before they were read, so batches may be missing",
    )


async def test_a_query_without_batches_for_long_may_have_been_stopped():
    async with served(Driver([row(0, 0)])) as collector:
        await poll(collector)
        (job,) = (await poll(collector, minutes=11)).jobs

    assert job.state is JobState.UNKNOWN
    assert "does not say whether it still runs" in job.problems[0]


def other_run(number: int) -> str:
    return f"14000285-153a-4ff9-af48-{number:012}"


async def test_a_query_that_was_quiet_before_the_first_poll_may_have_been_stopped():
    async with served(Driver([row(0, 0)])) as collector:
        (job,) = (await poll(collector, minutes=360)).jobs

    assert job.state is JobState.UNKNOWN
    assert "no micro-batch for 6 h" in job.problems[0]


async def test_a_newer_run_of_a_query_ends_the_one_before_which_is_handed_on_once():
    driver = Driver([row(0, 0, run=other_run(0))])
    async with served(driver) as collector:
        await poll(collector)
        driver.rows.append(row(1, 1, run=other_run(1)))
        second = await poll(collector)
        third = await poll(collector)

    assert [(job.state, job.engine_state) for job in second.jobs] == [
        (JobState.ENDED, "REPLACED"),
        (JobState.RUNNING, "ACTIVE"),
    ]
    assert second.jobs[0].ended_at is not None
    assert second.jobs[0].ended_at < second.jobs[1].started_at
    assert [job.engine_run_id for job in third.jobs] == [second.jobs[1].engine_run_id]


async def test_of_many_runs_of_a_query_only_the_newest_is_reported_again():
    driver = Driver([row(n, n, run=other_run(n)) for n in range(100)])
    async with served(driver) as collector:
        first = await poll(collector)
        second = await poll(collector)

    assert [job.state for job in first.jobs] == [JobState.ENDED] * 99 + [JobState.RUNNING]
    assert [batches(job) for job in second.jobs] == [[]]


async def test_a_query_whose_batches_left_the_list_is_unknown_for_a_day_and_has_then_ended_until_it_begins_a_batch():
    driver = Driver([row(0, 0)])
    async with served(driver) as collector:
        await poll(collector)
        driver.rows = [row(n, 0) | {"description": "count at App.scala:12"} for n in range(50, 60)]
        quiet = await poll(collector, minutes=1_400)
        gone = await poll(collector, minutes=1_450)
        after = await poll(collector, minutes=1_451)
        driver.rows.append(row(1_300, 1) | {"submissionTime": "2026-12-01T10:23:00.000GMT"})
        again = await poll(collector, minutes=1_453)

    assert [job.state for job in quiet.jobs] == [JobState.UNKNOWN]
    assert [(job.state, job.engine_state) for job in gone.jobs] == [(JobState.ENDED, "NOT LISTED")]
    assert after.jobs == ()
    assert [(job.state, batches(job)) for job in again.jobs] == [(JobState.RUNNING, [(1, "completed")])]


async def test_another_driver_at_the_same_address_ends_the_queries_of_the_one_before():
    driver = Driver([row(0, 0)])
    async with served(driver) as collector:
        await poll(collector)
        driver.app = driver.app | {"id": "local-2"}
        driver.rows = [row(0, 1, run=RUN.replace("1", "2"))]
        found = await poll(collector)

    assert [(job.state, job.engine_state, batches(job)) for job in found.jobs] == [
        (JobState.RUNNING, "ACTIVE", [(1, "completed")]),
        (JobState.ENDED, "NOT LISTED", []),
    ]


@pytest.mark.parametrize(
    ("begun_s", "state"), [(60, (JobState.UNKNOWN, "ACTIVE")), (-60, (JobState.ENDED, "NOT LISTED"))]
)
async def test_a_run_of_before_a_restart_has_ended_only_if_it_is_older_than_the_application(begun_s, state):
    driver = Driver([row(n, n) | {"description": "select 1"} for n in range(1000)])
    began_ms = driver.app["attempts"][0]["startTimeEpoch"] + 1000 * begun_s
    known = {(EngineRunId(f"{QUERY}/{RUN}"), from_epoch_ms(began_ms)): KnownRun("orders-app: orders", 5)}
    async with served(driver, known) as collector:
        (job,) = (await poll(collector)).jobs
        second = await poll(collector)
        driver.rows = [*driver.rows[1:], row(1000, 6)]
        third = await poll(collector)

    assert (job.name, (job.state, job.engine_state)) == ("orders-app: orders", state)
    assert len(second.jobs) == (state[0] is JobState.UNKNOWN)
    assert [(job.state, batches(job)) for job in third.jobs] == [(JobState.RUNNING, [(6, "completed")])]


async def test_a_run_of_before_a_restart_has_ended_if_the_list_has_another_run_of_its_query():
    driver = Driver([row(0, 0, run=RUN.replace("1", "2"))])
    began_ms = driver.app["attempts"][0]["startTimeEpoch"] + 1000
    known = {(EngineRunId(f"{QUERY}/{RUN}"), from_epoch_ms(began_ms)): KnownRun("orders-app: orders", 5)}
    async with served(driver, known) as collector:
        found = await poll(collector)

    assert [(job.state, job.engine_state) for job in found.jobs] == [
        (JobState.RUNNING, "ACTIVE"),
        (JobState.ENDED, "NOT LISTED"),
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": "DREAMING"}, "is none of RUNNING, COMPLETED, FAILED"),
        ({"duration": "long"}, "a whole number is needed"),
        ({"submissionTime": "yesterday"}, "is no instant of Spark"),
        ({"id": None}, "has no 'id'"),
    ],
)
async def test_a_wrong_execution_is_one_sentence(change, said):
    async with served(Driver([row(0, 0) | change])) as collector:
        with pytest.raises(TargetProtocolError, match=said) as raised:
            await poll(collector)
    assert "\n" not in str(raised.value)


async def test_the_test_of_a_connection_names_the_driver():
    driver = Driver(recorded())
    app = web.Application()
    app.router.add_get("/{path:.*}", driver.handle)
    async with serve_app(app) as url:
        probed = await SPARK.probe(url, 10.0, reach=ANYWHERE)  # type: ignore[misc]

    assert probed.summary == "Spark driver 4.3.0, 3 streaming queries in its list"
    assert probed.running_jobs == ("orders-app: orders-files", "orders-app: orders-windowed")
