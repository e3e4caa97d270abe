"""A job that cannot be read, or that starts, is shown as such in every answer, and the first one raises an alert."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.domain.observation import JobState
from tests.support.alerting import Alerting, rows
from tests.support.observations import completed, job, observation
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio

WELL = job([completed(n) for n in range(1, 7)], name="well")
BEFORE = job([completed(n) for n in range(1, 7)], name="broken", run="b" * 32)
NOTHING = {"topology": None, "placements": (), "config": None, "counts": None, "checkpoints": ()}
UNREAD = replace(BEFORE, **NOTHING, state=JobState.UNREADABLE, problems=("http://f/x: it has no 'counts'",))
STARTING = replace(BEFORE, **NOTHING, state=JobState.STARTING, engine_state="INITIALIZING")


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as asked:
        yield asked


async def _shown(client):
    jobs = {j["name"]: j for j in (await client.get("/api/v1/jobs")).json()["items"]}
    (target,) = (await client.get("/api/v1/targets")).json()["items"]
    status = (await client.get("/api/v1/status")).json()
    return jobs, target["health"], status["targets_unhealthy"]


async def test_a_job_that_cannot_be_read_is_failing_and_its_target_is_partial(client, clock, writer, target):
    await writer.write(observation(target, WELL, BEFORE, at=clock.now()))
    clock.at += timedelta(seconds=2)
    await writer.write(observation(target, WELL, UNREAD, at=clock.now()))
    jobs, health, unhealthy_count = await _shown(client)

    broken, well = jobs["broken"], jobs["well"]
    assert (broken["state"], broken["health"], broken["target_state"]) == ("unreadable", "failing", "partial")
    assert "cannot be read" in broken["verdict"]["sentence"]
    assert (well["state"], well["target_state"]) == ("running", "ok")
    assert (health["state"], unhealthy_count) == ("partial", 1)
    assert health["reason"] == "broken cannot be read: http://f/x: it has no 'counts'"

    clock.at += timedelta(seconds=2)
    await writer.write(observation(target, WELL, BEFORE, at=clock.now()))
    jobs, health, unhealthy_count = await _shown(client)
    assert (jobs["broken"]["state"], health["state"], unhealthy_count) == ("running", "ok", 0)


async def test_a_target_whose_list_leaves_logs_out_is_partial_with_the_reason_and_its_jobs_are_well(
    client, clock, writer, target
):
    left_out = "the oldest 3 of more than 20,000 logs are left out"
    await writer.write(replace(observation(target, WELL, at=clock.now()), left_out=left_out))
    jobs, health, unhealthy_count = await _shown(client)

    assert (health["state"], health["reason"], unhealthy_count) == ("partial", left_out, 1)
    assert (jobs["well"]["target_state"], jobs["well"]["health"]) == ("ok", "healthy")

    clock.at += timedelta(seconds=2)
    await writer.write(replace(observation(target, WELL, UNREAD, at=clock.now()), left_out=left_out))
    _, health, _ = await _shown(client)
    assert health["reason"] == f"broken cannot be read: http://f/x: it has no 'counts'; {left_out}"

    clock.at += timedelta(seconds=2)
    await writer.write(observation(target, WELL, BEFORE, at=clock.now()))
    _, health, unhealthy_count = await _shown(client)
    assert (health["state"], health["reason"], unhealthy_count) == ("ok", None, 0)


async def test_a_job_that_starts_is_said_to_start_and_nothing_is_wrong(client, clock, writer, target):
    await writer.write(observation(target, WELL, STARTING, at=clock.now()))
    jobs, health, unhealthy_count = await _shown(client)

    assert (jobs["broken"]["state"], jobs["broken"]["health"]) == ("starting", "too-few")
    assert jobs["broken"]["verdict"]["sentence"] == "The job is starting (INITIALIZING): it takes no checkpoints yet."
    assert (health["state"], unhealthy_count) == ("ok", 0)


async def test_a_job_that_stays_unreadable_raises_an_alert_that_ends_once_it_is_read(clock, writer, target, engine):
    alerting = Alerting(engine, clock)
    await writer.write(observation(target, WELL, BEFORE, at=clock.now()))
    firing = []
    for seen in (UNREAD, UNREAD, UNREAD, BEFORE, BEFORE):
        clock.at += timedelta(seconds=16)
        await writer.write(observation(target, WELL, seen, at=clock.now()))
        await alerting.round(seconds=0)
        found = await rows(engine, "SELECT state FROM alerts WHERE rule = 'JobUnreadable'")
        firing.append([state for (state,) in found if state == "firing"])
    assert firing == [[], [], ["firing"], [], []]
    ((summary,),) = await rows(engine, "SELECT annotations ->> 'summary' FROM alerts WHERE rule = 'JobUnreadable'")
    assert summary.startswith("broken: what ")
