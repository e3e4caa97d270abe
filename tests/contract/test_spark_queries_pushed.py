"""Made-up queries are pushed as a listener does, and their verdicts are read from the API: what the store must keep."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from backend.store.postgres.connections import create_store_engine
from tests.support.made_up_queries import ended, events, operator, progress
from tests.support.observations import SteppingClock
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio

CONFLICT = (
    "io.delta.exceptions.ConcurrentAppendException: Files were added to partition [day=1] by a concurrent update."
)


@pytest.fixture
async def store(database):
    engine = create_store_engine(database)
    yield engine
    await engine.dispose()


def shifted(posted, minutes, run_id):
    """Return the events of another run of the query, this many minutes later."""

    def later(text):
        return (datetime.fromisoformat(text) + timedelta(minutes=minutes)).isoformat()

    found = []
    for event in posted:
        made = {**event, "seen_at": later(event["seen_at"])}
        if "progress" in event:
            at = later(event["progress"]["timestamp"])
            made["progress"] = {**event["progress"], "runId": run_id, "timestamp": at}
        else:
            made["run_id"] = run_id
        found.append(made)
    return found


async def judged(store, *posts, interval_ms=None):
    """Return the job as it is right after the last event."""
    now = max(datetime.fromisoformat(e["seen_at"]) for posted in posts for e in posted) + timedelta(seconds=5)
    async with asking(api_over(store, SteppingClock(now))) as client:
        for posted in posts:
            body = {"deployment": "made-up", "sent_at": now.isoformat(), "events": posted}
            more = {} if interval_ms is None else {"trigger_interval_ms": interval_ms}
            answer = await client.post("/api/v1/ingest/spark", json=body | more)
            assert answer.status_code == 200, answer.text
            assert answer.json()["rejected"] == []
        (job,) = (await client.get("/api/v1/jobs")).json()["items"]
        return (await client.get(f"/api/v1/jobs/{job['id']}")).json()


async def test_the_sink_of_a_stored_query_tells_which_log_is_compacted(store):
    made = [progress(n, took_ms=38_000 if n % 10 == 9 else 9_000, sink="FileSink[/out]") for n in range(30, 60)]
    job = await judged(store, events(made))

    assert (job["health"], job["verdict"]["kind"]) == ("intermittent", "store")
    assert "_spark_metadata" in job["verdict"]["sentence"]


async def test_the_rows_that_a_stored_state_did_not_lose_are_known(store):
    made = [progress(n, took_ms=4_000, state=operator(1_000_000 + 90_000 * n)) for n in range(30)]
    job = await judged(store, events(made, every_ms=30_000), interval_ms=30_000)

    assert (job["health"], job["verdict"]["kind"]) == ("healthy", "growth")
    assert "no row was removed" in job["verdict"]["sentence"]


async def test_the_errors_of_earlier_runs_count_for_the_run_that_runs(store):
    first = ended(events([progress(n, took_ms=900) for n in range(5)]), CONFLICT)
    last = events([progress(n, took_ms=900) for n in range(5, 8)])
    runs = [shifted(first, minutes, f"0d0d0d0d-0000-4000-8000-00000000000{minutes}") for minutes in (1, 3, 6)]
    job = await judged(store, *runs, shifted(last, 8, "0e0e0e0e-0000-4000-8000-000000000000"))

    assert (job["health"], job["verdict"]["kind"]) == ("restarting", "restarts")
    assert "ended with an error 3 times within" in job["verdict"]["sentence"]
    assert "conflict with another writer" in job["verdict"]["sentence"]


async def test_two_runs_of_a_query_that_report_at_the_same_time_are_seen(store):
    one = events([progress(n, took_ms=900) for n in range(200)])
    job = await judged(store, one, shifted(one, 1, "0e0e0e0e-0000-4000-8000-000000000000"))

    assert job["verdict"]["headline"] == "Two runs use the same checkpoint folder"


async def test_two_queries_of_one_name_are_not_runs_of_one_query(store):
    one = events([progress(n, took_ms=900) for n in range(200)])
    other = [{**e, "progress": {**e["progress"], "id": "0f0f0f0f-0000-4000-8000-000000000000"}} for e in one]
    job = await judged(store, one, shifted(other, 1, "0e0e0e0e-0000-4000-8000-000000000000"))

    assert job["health"] == "healthy"


async def test_two_queries_that_use_one_folder_have_one_id_and_are_named(store):
    one = events([progress(n, took_ms=900) for n in range(200)])
    other = [{**e, "progress": {**e["progress"], "name": "copy"}} for e in one]
    posts = [one, shifted(other, 1, "0e0e0e0e-0000-4000-8000-000000000000")]
    now = datetime.fromisoformat(posts[1][-1]["seen_at"]) + timedelta(seconds=5)
    async with asking(api_over(store, SteppingClock(now))) as client:
        for posted in posts:
            body = {"deployment": "made-up", "sent_at": now.isoformat(), "events": posted}
            assert (await client.post("/api/v1/ingest/spark", json=body)).status_code == 200
        jobs = {j["name"]: j for j in (await client.get("/api/v1/jobs")).json()["items"]}

    assert "The query and made-up are active at the same time" in jobs["copy"]["verdict"]["sentence"]
