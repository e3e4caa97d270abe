"""The history of a job over a real store: single checkpoints or steps, the same numbers with and without rollups."""

from __future__ import annotations

import random
from datetime import timedelta
from math import inf
from statistics import median

import psycopg
import pytest

from backend.analysis.numbers.statistics import reached
from backend.contracts.history import HistoryOut, UsualOut
from backend.domain.rollup import HOUR, hour_of
from backend.pipeline.jobs.rollups import RollupRun
from backend.services.checkpoints import history
from tests.support.many_checkpoints import insert, row
from tests.support.observations import NOW, SteppingClock, completed, job, observation
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio
_SEED = 14
_DAYS = 3


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


@pytest.fixture
async def job_id(client, writer, target):
    """Return the id of a job that has one checkpoint, an hour ago."""
    await writer.write(observation(target, job([completed(1)])))
    (found,) = (await client.get("/api/v1/jobs")).json()["items"]
    return found["id"]


@pytest.fixture
def rows(database, job_id):
    """Store and return some random checkpoints of the job over the last days."""
    rng = random.Random(_SEED)
    found = []
    for number in range(400):
        at = NOW - timedelta(seconds=rng.uniform(2 * 3600, _DAYS * 86_400))
        is_failed = rng.random() < 0.1
        values = {"failure_reason": "declined"} if is_failed else {"end_to_end_duration_ms": rng.randrange(1, 60_000)}
        if is_failed and rng.random() < 0.7:
            values = {"failure_reason": "expired", "end_to_end_duration_ms": rng.randrange(30_000, 60_000)}
        found.append(row(job_id, 100 + number, at, "failed" if is_failed else "completed", **values))
    insert(database, found)
    return found


def _expired(rows):
    return [r["end_to_end_duration_ms"] for r in rows if r.get("failure_reason") == "expired"]


def _roll_up(url, until=NOW):
    def no_spark():
        raise AssertionError("PostgreSQL computes these rollups")

    RollupRun(url, no_spark, SteppingClock(until)).do()


async def _history(client, job_id, **query):
    answer = await client.get(f"/api/v1/jobs/{job_id}/history", params=query)
    assert answer.status_code == 200, answer.text
    return HistoryOut.model_validate_json(answer.content)


async def test_a_range_with_few_checkpoints_has_each_of_them(client, job_id, rows):
    since, until = NOW - timedelta(days=2), NOW - timedelta(days=1)
    expected = sorted((r["triggered_at"] for r in rows if since <= r["triggered_at"] < until), reverse=True)

    found = await _history(client, job_id, **{"from": since.isoformat(), "to": until.isoformat()})

    assert found.resolution == "checkpoints"
    assert [c.triggered_at for c in found.checkpoints] == expected
    assert (found.since, found.until, found.points) == (expected[-1], until, [])


async def test_without_a_range_everything_is_included_and_an_empty_range_is_empty(client, job_id, rows):
    assert len((await _history(client, job_id)).checkpoints) == len(rows) + 1
    before = {"to": (NOW - timedelta(days=9)).isoformat()}
    nothing = await _history(client, job_id, **before)
    assert (nothing.checkpoints, nothing.points, nothing.since) == ([], [], None)


@pytest.mark.parametrize("is_rolled_up", [False, True])
async def test_a_range_with_many_checkpoints_has_one_value_for_each_hour(client, database, job_id, rows, is_rolled_up):
    if is_rolled_up:
        _roll_up(database)

    found = await _history(client, job_id, max=50)

    assert (found.resolution, found.step_s, found.checkpoints) == ("steps", 3600, [])
    hours = {}
    for r in rows:
        hours.setdefault(hour_of(r["triggered_at"]), []).append(r)
    newest, *others = found.points
    assert (newest.at, newest.completed_count) == (NOW - HOUR, 1)
    assert [p.at for p in others] == sorted(hours, reverse=True), f"seed {_SEED}"
    for point in others:
        known = [r["end_to_end_duration_ms"] for r in hours[point.at] if "end_to_end_duration_ms" in r]
        completed_count = sum(r["status"] == "completed" for r in hours[point.at])
        assert (point.completed_count, point.failed_count) == (completed_count, len(hours[point.at]) - completed_count)
        assert point.duration_p50_ms == (median(known) if known else None), f"seed {_SEED}"
        assert point.duration_max_ms == max(known, default=None)
        limit = min(_expired(hours[point.at]), default=inf)
        assert point.is_p50_lower_bound == ((reached(known, 0.5) or 0) >= limit), f"seed {_SEED}"
        assert point.is_max_lower_bound == ((point.duration_max_ms or 0) >= limit), f"seed {_SEED}"
    assert any(p.is_p50_lower_bound for p in others)
    limits = {p.at: min(_expired(hours[p.at]), default=inf) for p in others}
    assert any(p.is_p50_lower_bound and p.duration_p50_ms < limits[p.at] for p in others), "between the two kinds"
    assert not all(p.is_p50_lower_bound for p in others)
    assert {p.source for p in others} == ({"rollup"} if is_rolled_up else {"checkpoints"})
    assert found.rolled_up_until == (hour_of(NOW) if is_rolled_up else None)


@pytest.mark.parametrize("is_rolled_up", [False, True])
async def test_longer_steps_have_the_sums_of_their_hours_and_percentiles_within_1_percent(
    client, database, job_id, rows, is_rolled_up, monkeypatch
):
    monkeypatch.setattr(history, "STEPS_MAX", 20)
    if is_rolled_up:
        # The newest hours have no rollup, so one step has hours with a rollup and hours without.
        _roll_up(database, NOW - timedelta(hours=8))

    found = await _history(client, job_id, max=50)

    assert found.step_s == 6 * 3600
    assert sum(p.completed_count + p.failed_count for p in found.points) == len(rows) + 1
    sources = {p.source for p in found.points}
    assert ("rollup" in sources) == is_rolled_up
    for point in found.points[1:]:
        end = point.at + timedelta(hours=6)
        inside = [r for r in rows if point.at <= r["triggered_at"] < end]
        known = [r for r in inside if "end_to_end_duration_ms" in r]
        expected = median(r["end_to_end_duration_ms"] for r in known)
        assert point.duration_p50_ms == pytest.approx(expected, rel=0.011), f"seed {_SEED}"
        assert point.duration_max_ms == max(r["end_to_end_duration_ms"] for r in known)
        assert point.is_max_lower_bound == (point.duration_max_ms >= min(_expired(inside), default=inf))


async def test_hours_without_a_rollup_beyond_the_limit_are_left_out_and_named(client, job_id, rows, monkeypatch):
    monkeypatch.setattr(history, "ROWS_MAX", 100)

    found = await _history(client, job_id, max=50)

    assert found.left_out_before is not None
    assert found.points[-1].at >= found.left_out_before
    counted = sum(p.completed_count + p.failed_count for p in found.points)
    assert 50 < counted <= 100, f"seed {_SEED}"
    assert counted == 1 + sum(r["triggered_at"] >= found.left_out_before for r in rows)


async def test_history_that_retention_dropped_is_shown_from_its_rollups(client, database, job_id, rows):
    _roll_up(database)
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM checkpoints WHERE triggered_at < %s", [NOW - timedelta(days=1)])

    whole = await _history(client, job_id)
    recent = await _history(client, job_id, **{"from": (NOW - timedelta(hours=12)).isoformat()})

    assert (whole.resolution, recent.resolution) == ("steps", "checkpoints")
    assert whole.since == min(hour_of(r["triggered_at"]) for r in rows)
    assert sum(p.completed_count + p.failed_count for p in whole.points) == len(rows) + 1


async def test_an_end_in_the_far_future_changes_neither_the_checkpoints_nor_the_steps(client, job_id, rows):
    since, future = {"from": (NOW - timedelta(hours=12)).isoformat()}, {"to": "2100-01-01T00:00:00Z"}

    near, far = [await _history(client, job_id, **since, **more) for more in ({}, future)]
    steps, far_steps = [await _history(client, job_id, max=50, **more) for more in ({}, future)]

    assert [c.checkpoint_id for c in far.checkpoints] == [c.checkpoint_id for c in near.checkpoints] != []
    assert (far_steps.step_s, far_steps.points) == (steps.step_s, steps.points)


async def test_the_usual_range_is_that_of_the_rolled_up_hours_and_absent_if_these_are_few(
    client, database, job_id, rows
):
    async def usual(**query):
        answer = await client.get(f"/api/v1/jobs/{job_id}/usual-range", params=query)
        return UsualOut.model_validate_json(answer.content).usual

    assert await usual() is None
    _roll_up(database)
    found = await usual()

    known = sorted(r["end_to_end_duration_ms"] for r in rows if "end_to_end_duration_ms" in r)
    assert found is not None
    assert found.is_p90_lower_bound
    assert found.checkpoint_count == len(known) + 1
    assert found.p50_ms == pytest.approx(median(known), rel=0.02), f"seed {_SEED}"
    assert found.p10_ms < found.p50_ms < found.p90_ms
    assert await usual(to=(NOW - timedelta(days=_DAYS)).isoformat()) is None


async def test_a_range_that_ends_before_it_begins_and_an_unknown_job_are_refused(client, job_id):
    query = {"from": NOW.isoformat(), "to": NOW.isoformat()}
    assert (await client.get(f"/api/v1/jobs/{job_id}/history", params=query)).status_code == 422
    assert (await client.get("/api/v1/jobs/none/history")).status_code == 404
    assert (await client.get("/api/v1/jobs/none/usual-range")).status_code == 404
