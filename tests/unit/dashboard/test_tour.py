"""Tests of the plan of the tour: what it shows, and when there is none."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest

from backend.domain.checkpoint import CheckpointStatus
from backend.runtime.demo import demo_names, demo_path
from backend.runtime.engine.jobfile import load_job
from dashboard import routes, tour
from dashboard.client import ApiClient
from tests.support.fake_api import FakeApi

pytestmark = pytest.mark.anyio

_ASKED = {"why": "visit", "at": 1}
_JOB = "jruntime"


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(tour, "TROUBLED", "demo-backpressured")
    return FakeApi(now=lambda: datetime(2026, 11, 20, 12, tzinfo=UTC))


async def _plan(fake):
    client = ApiClient(transport=httpx.MockTransport(fake.handle), base_url="http://api.test")
    try:
        return (await tour.plan(client, asked=_ASKED))["plan"]
    finally:
        await client.close()


def test_the_job_that_the_tour_shows_is_one_of_the_demo_jobs():
    assert tour.TROUBLED in {load_job(demo_path(name)).name for name in demo_names()}


async def test_the_plan_has_the_addresses_of_the_job_its_newest_failure_and_its_advice(fake):
    made = fake.jobs[_JOB]
    failed = made.checkpoints[3]
    made.checkpoints[3] = failed.model_copy(update={"status": CheckpointStatus.FAILED})

    plan = await _plan(fake)

    assert plan["asked"] == _ASKED
    assert plan["job"] == {"id": _JOB, "name": "demo-backpressured"}
    assert (plan["page"], plan["advice"]) == (routes.job(_JOB), routes.advice(_JOB))
    assert plan["checkpoint"] == routes.checkpoint(_JOB, failed.run_id, failed.checkpoint_id)
    assert plan["is_failed"] is True


async def test_the_demo_target_is_found_behind_a_thousand_others(fake):
    demo = fake.targets.pop("tdemo")
    other = fake.targets["tflink"]
    fake.targets |= {f"t{n}": other.model_copy(update={"id": f"t{n}"}) for n in range(1_000)} | {"tdemo": demo}

    assert (await _plan(fake))["job"]["id"] == _JOB


async def test_without_a_failure_it_is_the_slowest_of_many_and_none_of_a_few(fake):
    made = fake.jobs[_JOB]
    ended = [c for c in made.checkpoints if c.end_to_end_duration_ms is not None]
    slowest = max(ended, key=lambda c: c.end_to_end_duration_ms)

    assert (await _plan(fake))["number"] == slowest.checkpoint_id
    del made.checkpoints[:-4]
    assert (await _plan(fake))["checkpoint"] is None


@pytest.mark.parametrize("change", [{"origin": "api"}, {"is_enabled": False}])
async def test_without_the_demo_jobs_the_plan_is_the_reason(fake, change):
    fake.targets["tdemo"] = fake.targets["tdemo"].model_copy(update=change)

    plan = await _plan(fake)

    assert plan["is_absent"] is True
    assert "--no-demo" in plan["reason"]
    assert "job" not in plan


async def test_demo_jobs_that_are_not_read_yet_and_an_error_are_not_the_absence_of_a_demo(fake, monkeypatch):
    monkeypatch.setattr(tour, "TROUBLED", "not-read-yet")
    plan = await _plan(fake)
    assert "not been read yet" in plan["reason"]
    assert "is_absent" not in plan

    fake.is_down = True
    assert "is_absent" not in await _plan(fake)
