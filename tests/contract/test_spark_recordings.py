"""Recorded reports of real Spark queries are pushed and read back: every batch and every value, and nothing else."""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta

import pytest

from backend.contracts import api
from backend.store.postgres.connections import create_store_engine
from tests.support.observations import SteppingClock
from tests.support.recorded_spark import FAILING, NAMES, NOW, batches, push, recorded
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio

URL = "/api/v1/ingest/spark"
QUIET = [n for n in NAMES if n.startswith(("a_", "b_")) and "loaded" not in n]
BEHIND = [n for n in NAMES if n.startswith("d_")]
OPEN = ["d_behind_files_bytes", "d_behind_files_limited_loaded_host", "d_behind_rate_micro_batch"]
"""Queries that are behind, but report nothing that says so if the trigger's interval is not known."""
KEYS = {
    "latest-offset": "latestOffset",
    "wal-commit": "walCommit",
    "get-batch": "getBatch",
    "query-planning": "queryPlanning",
    "add-batch": "addBatch",
    "commit-offsets": "commitOffsets",
}


@pytest.fixture
async def client(database):
    engine = create_store_engine(database)
    async with asking(api_over(engine, SteppingClock(NOW))) as asked:
        yield asked
    await engine.dispose()


async def post(client, body):
    answer = await client.post(URL, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def push_all(client, names):
    # Some queries were recorded twice under one name. The recording's name distinguishes them, so it is used as the
    # deployment.
    for name in names:
        await post(client, push(recorded(name), deployment=name))


async def jobs(client):
    """Return a mapping from the target's name, which is the name of the deployment, to the job."""
    found = api.Page[api.JobOut].model_validate_json((await client.get("/api/v1/jobs?limit=200")).content)
    return {job.target_name: job for job in found.items}


async def checkpoints(client, job_id):
    answer = await client.get(f"/api/v1/jobs/{job_id}/checkpoints?limit=500")
    return {c.checkpoint_id: c for c in api.Page[api.CheckpointOut].model_validate_json(answer.content).items}


async def detail(client, link):
    return api.CheckpointDetailOut.model_validate_json((await client.get(link)).content)


async def test_every_batch_of_every_recording_is_stored_with_the_values_spark_reported(client):
    await push_all(client, NAMES)
    found = await jobs(client)

    assert sorted(found) == NAMES
    for name in NAMES:
        stored = await checkpoints(client, found[name].id)
        said = {b["batchId"]: b for b in batches(name)}
        assert sorted(stored) == sorted(said), name
        for number, batch in said.items():
            one = stored[number]
            assert one.status == "completed"
            assert one.triggered_at == datetime.fromisoformat(batch["timestamp"])
            assert one.end_to_end_duration_ms == batch["batchDuration"]
            # Values that Spark does not have are missing, not zero.
            absent = (one.subtask_count, one.acknowledged_count, one.mode, one.persisted_bytes, one.processed_bytes)
            times = (one.start_delay_max_ms, one.alignment_max_ms, one.sync_max_ms, one.async_max_ms)
            assert {*absent, *times, one.checkpointed_size_bytes, one.latest_ack_at} == {None}
        assert (found[name].engine, found[name].state) == ("spark", "ended")


async def test_phases_rows_state_and_sources_of_a_batch_equal_those_that_spark_reported(client):
    await push_all(client, ("b_windowed_hdfs", "d_behind_files_limited"))
    found = await jobs(client)
    said = batches("b_windowed_hdfs")[20]
    operator = said["stateOperators"][0]

    one = await detail(client, (await checkpoints(client, found["b_windowed_hdfs"].id))[20].link)
    assert (one.engine, one.vertices, one.critical_path, one.has_barriers) == ("spark", [], None, False)
    assert {p.phase: p.duration_ms for p in one.batch.phases} == {k: said["durationMs"][v] for k, v in KEYS.items()}
    assert [p.phase for p in one.batch.phases] == list(KEYS)
    assert one.batch.other_ms == said["batchDuration"] - sum(said["durationMs"][v] for v in KEYS.values())
    assert (one.batch.input_row_count, one.batch.number_basis) == (6000, "measured")
    assert one.batch.watermark_at == datetime.fromisoformat(said["eventTime"]["watermark"])
    state = one.batch.state
    assert (state.row_count, state.updated_row_count) == (operator["numRowsTotal"], operator["numRowsUpdated"])
    assert (state.memory_bytes, state.store_count) == (operator["memoryUsedBytes"], 4)
    assert (state.commit_total_ms, state.commit_ms) == (operator["commitTimeMs"], round(operator["commitTimeMs"] / 4))
    assert state.upload_total_ms is None
    newest = [v for k, v in operator["customMetrics"].items() if k.startswith("SnapshotLastUploaded")]
    assert state.snapshot_lag == 21 - max(0, min(newest))
    assert one.full_state_size_bytes == operator["customMetrics"]["stateOnCurrentVersionSizeBytes"]

    files = await detail(client, (await checkpoints(client, found["d_behind_files_limited"].id))[4].link)
    (source,) = files.batch.sources
    assert (source.start_offset, source.end_offset) == ('{"logOffset":3}', '{"logOffset":4}')
    # A file source reports no backlog. A query without state reports no state, rather than a state of size zero.
    assert (source.latest_offset, source.backlog, files.batch.state, files.full_state_size_bytes) == (None,) * 4
    assert files.batch.watermark_at is None


async def test_repeated_shuffled_single_events_change_nothing(client):
    name = "d_behind_files_unlimited"
    events = recorded(name)
    await post(client, push(events, deployment=name))
    before = await client.get("/api/v1/jobs"), await checkpoints(client, (await jobs(client))[name].id)

    seed = 7
    again = events * 2
    random.Random(seed).shuffle(again)
    answers = [await post(client, push([e], deployment=name)) for e in again]

    after = await client.get("/api/v1/jobs"), await checkpoints(client, (await jobs(client))[name].id)
    assert [a["new_count"] for a in answers] == [0] * len(again), f"seed {seed}"
    assert (after[0].json()["items"], after[1]) == (before[0].json()["items"], before[1]), f"seed {seed}"


def of_another_query(name):
    """Return the recorded events with other ids: one run that two deployments report is one run of one job."""
    words = json.dumps(recorded(name))
    for known in {value for batch in batches(name) for value in (batch["id"], batch["runId"])}:
        words = words.replace(known, f"{0:08}{known[8:]}")
    return json.loads(words)


async def test_events_in_reverse_order_give_the_same_result(client):
    name = "b_windowed_hdfs_loaded_host"
    for event in reversed(of_another_query(name)):
        await post(client, push([event], deployment="reversed"))
    await post(client, push(recorded(name)))
    page = api.Page[api.JobOut].model_validate_json((await client.get("/api/v1/jobs")).content)
    one, other = sorted(page.items, key=lambda j: j.target_name)

    # The test compares the names of the targets. The names of the jobs differ: the recorded "terminated" event has no
    # query name, so a job that it creates is named by the query's id.
    assert {one.target_name, other.target_name} == {"lab", "reversed"}
    there, here = await checkpoints(client, one.id), await checkpoints(client, other.id)
    assert sorted(there) == sorted(here) == sorted(b["batchId"] for b in batches(name))
    assert one.state == other.state == "ended"
    runs = [(await client.get(f"/api/v1/jobs/{j.id}/runs")).json()["items"][0] for j in (one, other)]
    assert runs[0]["started_at"] == runs[1]["started_at"]
    assert runs[0]["ended_at"] == runs[1]["ended_at"]


async def test_quiet_queries_are_healthy_and_queries_behind_have_their_signs(client):
    await push_all(client, NAMES)
    found = await jobs(client)

    raised = {}
    for name in NAMES:
        answer = await client.get(f"/api/v1/jobs/{found[name].id}")
        job = api.JobDetailOut.model_validate_json(answer.content)
        raised[name] = [s.sign.value for s in job.signs if s.is_raised]
        assert job.verdict.phase is None
        assert job.vertices == []
        assert all(e.basis in ("measured", "reconstructed") for e in job.verdict.evidence)
    assert {n: (found[n].health, raised[n]) for n in QUIET} == dict.fromkeys(QUIET, ("healthy", []))
    assert {n: found[n].health for n in BEHIND if n not in OPEN} == dict.fromkeys(set(BEHIND) - set(OPEN), "slow")
    assert raised["d_behind_unbounded_rate"] == raised["d_behind_files_unlimited"] == ["rows-growth", "utilisation"]
    # The limit on the batch size hides the growth of the backlog. The trigger interval is known, because the service
    # learned it while the query still paused between batches.
    assert raised["d_behind_files_limited"] == ["overrun", "utilisation"]
    assert raised["d_behind_files_bytes"] == raised["d_behind_rate_micro_batch"] == ["utilisation"]
    assert {found[n].verdict.kind for n in QUIET} == {"none"}
    # A query without a trigger's interval that keeps up shows the same, so these are not called slow.
    assert {(found[n].health, found[n].verdict.kind) for n in OPEN} == {("healthy", "undecided")}
    assert all("trigger_interval_ms" in found[n].verdict.would_decide[0] for n in OPEN)
    assert (found["a_stateless_rate"].interval_ms, found["b_windowed_hdfs"].interval_ms) == (1000, 2000)
    said = [row.statement for row in found["a_stateless_rate"].verdict.evidence]
    assert "60 % of the time goes to writing the checkpoint log (the folders offsets and commits)" in said


async def test_with_a_reported_trigger_interval_the_overrun_is_measured(client):
    name = "d_behind_rate_micro_batch"
    await post(client, push(recorded(name), deployment=name, trigger_interval_ms=1000))
    job = (await jobs(client))[name]

    found = api.JobDetailOut.model_validate_json((await client.get(f"/api/v1/jobs/{job.id}")).content)
    overrun = found.signs[0]
    assert (overrun.sign, overrun.is_raised, overrun.basis) == ("overrun", True, "measured")
    assert overrun.value == pytest.approx(2.24, abs=0.02)
    assert (job.interval_ms, job.verdict.confidence) == (1000, "high")
    assert (job.health, job.verdict.kind) == ("slow", "capacity")


async def test_a_failed_batch_is_stored_with_a_reconstructed_number(client):
    await push_all(client, [FAILING])
    events = recorded(FAILING)
    job = (await jobs(client))[FAILING]
    page = (await client.get(f"/api/v1/jobs/{job.id}/checkpoints?limit=50")).content
    stored = api.Page[api.CheckpointOut].model_validate_json(page).items
    runs = [e["runId"] for e in events if e["event"] == "started"]

    # After a restart, the query repeats the failed batch under the same number.
    assert [(c.checkpoint_id, c.status) for c in stored] == [
        (3, "failed"), (3, "failed"), (2, "completed"), (1, "completed"), (0, "completed"),
    ]  # fmt: skip
    second, first = stored[:2]
    assert first.run_id != second.run_id
    last = batches(FAILING)[-1]
    ended_at = datetime.fromisoformat(last["timestamp"]) + timedelta(milliseconds=last["batchDuration"])
    assert (first.triggered_at, first.failed_at.timestamp()) == (ended_at, pytest.approx(events[4]["t"], abs=0.001))
    for one in (first, second):
        assert one.failure_reason == "query-failure"
        assert one.failure_message == "PYTHON_EXCEPTION: ValueError: row 62 cannot be read"
        # Spark does not report how long the batch ran before it failed.
        assert one.end_to_end_duration_ms is None
        assert (await detail(client, one.link)).batch.number_basis == "reconstructed"
    assert (job.health, job.state, job.failed_24h_count) == ("failing", "ended", 2)
    assert "ended in batch 3 with PYTHON_EXCEPTION" in job.verdict.sentence
    found = (await client.get(f"/api/v1/jobs/{job.id}/runs")).json()["items"]
    assert [r["engine_run_id"].partition("/")[2] for r in found] == runs[::-1]
    told = (await client.get(f"/api/v1/jobs/{job.id}/events")).json()["items"]
    assert {e["kind"] for e in told} == {"run-started", "run-ended", "exception"}


async def test_a_failed_batch_has_the_same_number_if_its_events_come_one_by_one(client):
    for line in recorded(FAILING) * 2:
        await post(client, push([line], deployment="slowly"))
    page = (await client.get(f"/api/v1/jobs/{(await jobs(client))['slowly'].id}/checkpoints?limit=50")).content

    stored = api.Page[api.CheckpointOut].model_validate_json(page).items
    assert [c.checkpoint_id for c in stored] == [3, 3, 2, 1, 0]


async def test_a_stopped_query_has_no_failed_batch(client):
    await push_all(client, ["b_windowed_hdfs"])
    job = (await jobs(client))["b_windowed_hdfs"]

    assert (job.state, job.failed_24h_count, job.health) == ("ended", 0, "healthy")


async def test_events_dropped_by_the_listener_are_a_problem_of_the_job(client):
    await post(client, push(recorded("b_windowed_hdfs"), dropped_count=12))
    job = (await jobs(client))["lab"]

    found = (await client.get(f"/api/v1/jobs/{job.id}")).json()
    assert found["problems"] == ["the listener dropped 12 events, so micro-batches may be missing"]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"deployment": ""}, "#/deployment"),
        ({"surplus": 1}, "#/surplus"),
        ({"sent_at": "yesterday"}, "#/sent_at"),
        ({"events": [{"event": "exploded"}]}, "#/events/0"),
        ({"trigger_interval_ms": 0}, "#/trigger_interval_ms"),
    ],
)
async def test_a_malformed_push_is_refused_with_the_field_and_stores_nothing(client, change, pointer):
    answer = await client.post(URL, json=push(recorded("b_windowed_hdfs")) | change)

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert [e["pointer"] for e in answer.json()["errors"]] == [pointer]
    assert await jobs(client) == {}


async def test_a_paused_target_refuses_pushes_and_a_very_old_batch_is_rejected(client):
    target = (await post(client, push(recorded("b_windowed_hdfs"))))["target_id"]
    await client.patch(f"/api/v1/targets/{target}", json={"is_enabled": False})
    paused = await client.post(URL, json=push(recorded("b_windowed_hdfs")))
    assert (paused.status_code, paused.json()["type"]) == (409, "urn:barrierscope:problem:target-paused")
    await client.patch(f"/api/v1/targets/{target}", json={"is_enabled": True})

    old = recorded("b_windowed_hdfs")[1]
    old["progress"] = old["progress"] | {"timestamp": "1999-01-01T00:00:00.000Z", "batchId": 999}
    answer = await post(client, push([old]))
    assert answer["new_count"] == 0
    assert "checkpoint 999 triggered at 1999-01-01" in answer["rejected"][0]
