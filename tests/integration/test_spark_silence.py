"""After a kill of a Spark driver, its target becomes silent and an alert fires, until data arrives again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text

from backend.services.jobs.silent_jobs import SILENT_AFTER
from backend.services.targets import spark_push
from backend.store.postgres.connections import reading
from tests.support.alerting import Alerting
from tests.support.recorded_spark import NOW, push, recorded
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio

_NAME = "b_windowed_hdfs"
_STARTED = recorded(_NAME)[0]
# The driver's clock is five minutes ahead of the service's clock.
_AHEAD = timedelta(minutes=5)


@pytest.fixture
async def client(engine, clock):
    clock.at = NOW
    async with asking(api_over(engine, clock)) as asked:
        yield asked


def _alive(clock, *, run_id="0b0b0b0b-0000-0000-0000-000000000001", **ids):
    at = (clock.at + _AHEAD).isoformat()
    ids = {"id": _STARTED["id"], "run_id": run_id, "name": _NAME} | ids
    return {"event": "alive", "seen_at": at, **ids}


async def _told(client, clock, *events):
    body = push([]) | {"sent_at": (clock.at + _AHEAD).isoformat(), "events": list(events) or [_alive(clock)]}
    answer = await client.post("/api/v1/ingest/spark", json=body)
    assert answer.status_code == 200, answer.text


async def _shown(client):
    (job,) = (await client.get("/api/v1/jobs")).json()["items"]
    (target,) = (await client.get("/api/v1/targets")).json()["items"]
    status = (await client.get("/api/v1/status")).json()
    detail = (await client.get(f"/api/v1/jobs/{job['id']}")).json()
    assert (detail["state"], detail["health"], detail["run"]["state"]) == (job["state"], job["health"], job["state"])
    return job, target, status


async def test_a_driver_that_sends_nothing_is_silent_in_every_answer_until_it_sends_again(client, clock):
    await _told(client, clock)
    clock.at += SILENT_AFTER
    job, target, status = await _shown(client)
    assert (job["state"], job["target_state"], target["health"]["state"]) == ("running", "ok", "ok")
    assert status["targets_unhealthy"] == 0

    clock.at += timedelta(seconds=2)
    job, target, status = await _shown(client)
    assert (job["state"], job["health"], job["target_state"]) == ("unknown", "failing", "silent")
    assert job["verdict"]["sentence"].startswith("The driver has sent nothing since 2026-11-21 13:05:00 UTC: ")
    assert (target["health"]["state"], status["targets_unhealthy"]) == ("silent", 1)
    assert target["health"]["reason"] == f"the driver of {_NAME} has sent nothing for 1 min 32 s"
    one = (await client.get(f"/api/v1/targets/{target['id']}")).json()
    assert one["health"]["state"] == "silent"

    await _told(client, clock)
    clock.at += timedelta(seconds=2)
    job, target, _ = await _shown(client)
    assert (job["state"], job["target_state"], target["health"]["state"]) == ("running", "ok", "ok")


async def test_a_live_driver_does_not_hide_a_silent_one_of_its_deployment(client, clock):
    other = {"run_id": "0b0b0b0b-0000-0000-0000-000000000002", "id": "other", "name": "other"}
    await _told(client, clock, _alive(clock), _alive(clock, **other))
    clock.at += SILENT_AFTER + timedelta(seconds=1)
    await _told(client, clock, _alive(clock, **other))

    jobs = (await client.get("/api/v1/jobs")).json()["items"]
    (target,) = (await client.get("/api/v1/targets")).json()["items"]

    assert [(j["name"], j["state"]) for j in jobs] == [(_NAME, "unknown"), ("other", "running")]
    assert target["health"]["state"] == "silent"
    assert "other" not in target["health"]["reason"]


async def test_a_silent_driver_fires_an_alert_and_an_ended_query_never_does(client, clock, engine):
    await _told(client, clock)
    alerting = Alerting(engine, clock)
    await alerting.round()
    clock.at += SILENT_AFTER + timedelta(seconds=1)
    await alerting.round()
    await alerting.round(seconds=31)

    assert await _firing(engine) == [("TargetUnreachable", f"lab has been silent for {_silent_for(clock)}")]

    ended = _alive(clock) | {"event": "terminated", "exception": None, "error_class": None}
    await _told(client, clock, ended)
    for _ in range(3):
        await alerting.round(seconds=600)

    assert await _firing(engine) == []
    (job,) = (await client.get("/api/v1/jobs")).json()["items"]
    (target,) = (await client.get("/api/v1/targets")).json()["items"]
    assert (job["state"], target["health"]["state"]) == ("ended", "ok")


def _silent_for(clock):
    seconds = round((clock.at - NOW).total_seconds())
    return f"{seconds // 60} min {seconds % 60} s"


async def _firing(engine):
    query = (
        "SELECT rule, annotations ->> 'summary' FROM alerts WHERE state = 'firing' AND rule <> 'Watchdog' ORDER BY 1"
    )
    async with reading(engine) as connection:
        return [tuple(row) for row in (await connection.execute(text(query))).all()]


async def test_no_more_deployments_push_than_the_limit(client, clock, monkeypatch):
    monkeypatch.setattr(spark_push, "DEPLOYMENTS_MAX", 2)
    statuses = []
    for name in ("a", "b", "c", "a"):
        body = push([]) | {"deployment": name, "sent_at": clock.at.isoformat(), "events": []}
        answer = await client.post("/api/v1/ingest/spark", json=body)
        statuses.append(answer.status_code)
        if answer.status_code == 409:
            assert answer.json()["type"] == "urn:barrierscope:problem:too-many-targets"

    assert statuses == [200, 200, 409, 200]
