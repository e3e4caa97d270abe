"""If Spark never ran, the API computes the rollups of hours from the checkpoints."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text

from backend.cli.spark_demo import Notice
from backend.contracts import api
from backend.contracts.rollups import RollupHourOut
from backend.store.postgres.connections import reading, writing
from backend.store.retention import apply_retention
from backend.store.schema.partitions import Retention
from tests.support.observations import NOW, SteppingClock, completed, failed, in_progress, job, observation
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


@pytest.fixture
async def path(client, writer, target):
    earlier = [completed(i, triggered_at=NOW - timedelta(hours=3, minutes=i)) for i in (7, 8, 9)]
    await writer.write(observation(target, job([*earlier, completed(11), failed(12), completed(13), in_progress(14)])))
    (row,) = (await client.get("/api/v1/jobs")).json()["items"]
    return f"/api/v1/jobs/{row['id']}/rollups"


async def _page(client, path, **query):
    answer = await client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return api.Page[RollupHourOut].model_validate_json(answer.content)


async def test_an_hour_sums_up_its_checkpoints_and_omits_values_that_none_reported(client, path):
    newest, oldest = (await _page(client, path)).items

    assert (newest.hour, newest.source, newest.resolution_s) == (NOW - timedelta(hours=1), "checkpoints", 3600)
    assert (newest.triggered_count, newest.completed_count, newest.failed_count) == (4, 2, 1)
    assert newest.failed_by_reason == {"expired": 1}
    assert newest.last_completed_at == completed(13).header.latest_ack_at
    age = NOW - completed(13).header.triggered_at
    assert (newest.replay_debt_ms, newest.is_replay_debt_at_least) == (age / timedelta(milliseconds=1), False)
    duration = newest.measures["end_to_end_duration_ms"]
    assert (duration.present_count, duration.min, duration.max, duration.sum) == (3, 311, 313, "936")
    assert (duration.p50, duration.p95, duration.expired_min) == (312.0, pytest.approx(312.9), 312)
    assert duration.exact_max == 311
    # No checkpoint reported persisted in-flight bytes, so this measure is missing.
    assert "persisted_bytes" not in newest.measures
    assert (oldest.hour, oldest.completed_count) == (NOW - timedelta(hours=4), 3)


async def test_a_completed_checkpoint_without_a_duration_has_no_end(client, path, writer, target):
    """It ended 32 years after its trigger, because LEAST ignores NULL."""
    newest = completed(15)
    unknown = replace(newest, header=replace(newest.header, end_to_end_duration_ms=None, latest_ack_at=None))
    await writer.write(observation(target, job([completed(13), unknown])))

    hour = (await _page(client, path)).items[0]

    assert (hour.completed_count, hour.last_completed_at) == (3, completed(13).header.latest_ack_at)
    (row,) = (await client.get("/api/v1/jobs")).json()["items"]
    assert datetime.fromisoformat(row["last_completed_at"]) == completed(13).header.latest_ack_at


async def test_hours_are_paged_newest_first_and_filtered_by_their_start(client, path):
    first = await _page(client, path, limit=1)
    second = await _page(client, path, limit=1, cursor=first.next)

    assert [h.hour for h in (*first.items, *second.items)] == [NOW - timedelta(hours=1), NOW - timedelta(hours=4)]
    assert second.next is None
    bounds = {"from": (NOW - timedelta(hours=4)).isoformat(), "to": (NOW - timedelta(hours=1)).isoformat()}
    bounded = await _page(client, path, **bounds)
    assert [h.hour for h in bounded.items] == [NOW - timedelta(hours=4)]


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ({"from": NOW.isoformat(), "to": NOW.isoformat()}, 422, "is not before"),
        ({"from": "2020-01-01T00:00:00Z"}, 422, "400 days at most"),
        ({"cursor": "x"}, 422, "is not a cursor of this list"),
    ],
)
async def test_an_invalid_range_or_cursor_is_refused(client, path, query, status, words):
    answer = await client.get(path, params=query)

    assert answer.status_code == status
    assert words in answer.text


async def test_the_rollups_of_an_unknown_job_are_not_found(client):
    assert (await client.get("/api/v1/jobs/none/rollups")).status_code == 404


async def test_the_pipeline_is_never_run_at_first_and_a_killed_run_is_shown_as_interrupted(client, engine):
    told = (await client.get("/api/v1/status")).json()["pipeline"]
    assert (told["state"], told["last_run"]) == ("never", None)

    async with writing(engine) as connection:
        await connection.execute(
            text("INSERT INTO pipeline_runs (id, started_at, state, hours_total) VALUES ('r', now(), 'running', 3)")
        )

    told = (await client.get("/api/v1/status")).json()["pipeline"]
    # The stored state of the run is "running", but no process holds its lock. This means that it was killed.
    assert (told["state"], told["last_run"]) == ("idle", "interrupted")


async def test_rollups_are_kept_longer_than_checkpoints(engine):
    ages = {"kept": timedelta(days=80), "gone": timedelta(days=91)}
    async with writing(engine) as connection:
        for name, age in ages.items():
            await connection.execute(
                text(
                    "INSERT INTO rollups (job_id, hour, triggered_count, completed_count, failed_count,"
                    " failed_by_reason) VALUES (:job, :hour, 1, 1, 0, '{}')"
                ),
                {"job": name, "hour": NOW - age},
            )

    await apply_retention(engine, Retention(), NOW)

    async with reading(engine) as connection:
        assert list((await connection.execute(text("SELECT job_id FROM rollups"))).scalars()) == ["kept"]


async def test_the_status_shows_the_spark_demo_until_its_notice_is_withdrawn(client, database):
    async def told():
        return (await client.get("/api/v1/status")).json()["spark_demo"]

    notice = Notice(database, SteppingClock(NOW))
    assert await told() is None
    notice.unavailable("no java on the path")
    assert await told() == {"state": "unavailable", "reason": "no java on the path"}
    notice.running()
    assert await told() == {"state": "running", "reason": None}
    # A run of the demo does not count as a run of the pipeline.
    assert (await client.get("/api/v1/status")).json()["pipeline"]["state"] == "never"
    notice.withdraw()
    assert await told() is None


def test_an_unreachable_store_does_not_stop_the_demo():
    Notice("postgresql://nobody@127.0.0.1:1/nothing", SteppingClock(NOW)).running()
