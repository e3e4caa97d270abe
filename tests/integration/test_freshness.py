"""Documents about a job say whether they are current, and if not, why, with a real store and a stepped clock."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from backend.domain.freshness import Freshness
from backend.domain.observation import JobState
from backend.domain.target import TargetOrigin, TargetState
from backend.store.alerts.lease import Term, release_term
from backend.store.targets.leases import CollectorSession
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.alerting import Alerting
from tests.support.observations import NOW, completed, failed, in_progress, job, observation
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio

_LONG = timedelta(minutes=2)


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


@pytest.fixture
async def other(engine):
    new = NewTarget(url="http://other:8081", name="other", origin=TargetOrigin.API)
    return (await TargetRepository(engine).add(new, at=NOW)).id


@contextmanager
def _collector(database):
    with CollectorSession(database, holder="one"):
        yield


async def _json(client, path):
    answer = await client.get(f"/api/v1/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def _row(client, path="jobs"):
    (row,) = (await _json(client, path))["items"]
    return row


async def _poll(writer, target, seen, at):
    """Write what two polls found, so that the interval of the polls is measured."""
    for n, when in enumerate((at - timedelta(seconds=2), at)):
        checkpoints = seen.checkpoints if n else ()
        await writer.write(observation(target, replace(seen, checkpoints=checkpoints), at=when))


async def test_a_row_is_stale_from_the_stated_age_on_and_says_that_no_collector_runs(client, clock, writer, target):
    await _poll(writer, target, job([completed(1)]), NOW)
    found = (await _row(client))["freshness"]
    assert (found["state"], found["is_stale"], found["reason"]) == ("fresh", False, None)

    clock.at = NOW + timedelta(seconds=found["stale_after_s"])
    assert (await _row(client))["freshness"]["state"] == "fresh"
    clock.at += timedelta(seconds=2)
    row = await _row(client)
    assert row["freshness"]["reason"] == "no collector runs"
    assert row["freshness"]["read_at"] == row["observed_at"]


async def test_a_reading_stays_stale_while_a_slow_collector_polls_less_often_than_it_is_set_to(
    client, clock, writer, target, database
):
    with _collector(database):
        for n in range(12):
            clock.at = NOW + n * timedelta(seconds=30)
            seen = observation(target, job([completed(1)] if n == 0 else []), at=clock.at)
            await writer.write(replace(seen, set_interval_s=2.0))
        polled = (await _json(client, "targets"))["items"][0]["cost"]
        assert (await _row(client))["freshness"]["state"] == "fresh"
        clock.at += timedelta(seconds=20)
        row = await _row(client)
    assert (polled["poll_interval_s"], polled["set_interval_s"]) == (30.0, 2.0)
    assert (row["freshness"]["state"], row["freshness"]["is_stale"]) == ("not-read", True)


async def test_the_reason_tells_a_collector_that_is_late_from_a_target_that_does_not_answer(
    client, clock, writer, target, database
):
    await _poll(writer, target, job([completed(1)]), NOW)
    clock.at = NOW + _LONG
    with _collector(database):
        assert (await _row(client))["freshness"]["state"] == Freshness.NOT_READ
        await writer.report_failure(target, kind=TargetState.UNREACHABLE, reason="connection refused", at=clock.at)
        clock.at += timedelta(seconds=2)
        found = (await _row(client))["freshness"]
    assert found["state"] == Freshness.TARGET_UNREACHABLE
    assert found["reason"] == "the target does not answer (connection refused)"


async def test_one_silent_target_of_many_makes_only_its_own_rows_stale_and_is_named(
    client, clock, writer, target, other, database
):
    clock.at = NOW + _LONG
    await _poll(writer, target, job([completed(1)], name="late"), NOW)
    await _poll(writer, other, job([completed(1)], name="current"), clock.at)
    with _collector(database):
        board = await _json(client, "board?limit=50")
    states = {row["name"]: row["freshness"]["state"] for row in board["rows"]}
    assert states == {"late": "not-read", "current": "fresh"}
    ((group),) = board["stale"]
    assert (group["job_count"], group["target_names"], group["target_count"]) == (1, ["flink"], 1)
    assert sum(board["stale_counts"].values()) <= sum(board["counts"].values())


async def test_a_row_that_becomes_stale_counts_as_changed_and_a_new_reading_alone_does_not(
    client, clock, writer, target, database
):
    seen = job([completed(1)])
    with _collector(database):
        await _poll(writer, target, seen, NOW)
        board = await _json(client, "board?limit=50")
        for _ in range(3):
            clock.at += timedelta(seconds=2)
            await writer.write(observation(target, seen, at=clock.at))
            board = await _json(client, f"board?limit=50&since={board['version']}&known={board['ids'][0]}")
        assert board["rows"] == []
        clock.at += _LONG
        board = await _json(client, f"board?limit=50&since={board['version']}&known={board['ids'][0]}")
    assert [row["freshness"]["is_stale"] for row in board["rows"]] == [True]


async def test_a_job_that_the_target_no_longer_lists_is_gone(client, clock, writer, target):
    await _poll(writer, target, job([completed(1)]), NOW)
    gone = replace(job(), state=JobState.ENDED, engine_state="NOT LISTED")
    await writer.write(observation(target, gone, at=NOW + timedelta(seconds=2)))
    clock.at = NOW + timedelta(seconds=2)
    assert (await _row(client))["freshness"]["state"] == Freshness.JOB_GONE


async def test_the_documents_of_a_job_share_its_freshness_and_an_ended_checkpoint_is_final(
    client, clock, writer, target
):
    await _poll(writer, target, job([completed(1), in_progress(2, acknowledged_count=1)]), NOW)
    clock.at = NOW + _LONG
    row = await _row(client)
    one = f"jobs/{row['id']}/runs/{row['run_id']}/checkpoints"
    for path in (f"jobs/{row['id']}", f"jobs/{row['id']}/advice", f"{one}/2"):
        assert (await _json(client, path))["freshness"]["state"] == Freshness.NO_COLLECTOR, path
    assert (await _json(client, f"{one}/1"))["freshness"]["state"] == Freshness.FINAL


async def test_alerts_and_incidents_are_as_old_as_their_job_or_as_the_last_evaluation(
    engine, client, clock, writer, target, database
):
    seen = replace(job([failed(n) for n in range(1, 8)]), state=JobState.RUNNING)
    await _poll(writer, target, seen, NOW)
    running = Alerting(engine, clock)
    with _collector(database):
        await running.round()
        of_job = [a for a in (await _json(client, "alerts?state=pending&state=firing"))["items"] if a["job_id"]]
        assert of_job
        assert {a["freshness"]["state"] for a in of_job} == {"fresh"}

        clock.at = NOW + _LONG
        path = f"alerts/{of_job[0]['id']}"
        assert (await _json(client, path))["freshness"]["state"] == Freshness.NOT_READ
        incident = f"incidents/{of_job[0]['incident_id']}"
        assert (await _json(client, incident))["freshness"]["state"] == Freshness.NOT_READ

        await release_term(engine, Term("one", 1))
        found = (await _json(client, path))["freshness"]
    assert (found["state"], found["reason"]) == ("no-evaluator", "no process evaluates the alert rules")
    assert found["read_at"] == of_job[0]["evaluated_at"]
