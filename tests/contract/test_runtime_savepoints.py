"""Savepoints through the REST API of the live runtime, with Flink's paths and JSON."""

from __future__ import annotations

import pytest

from backend.runtime.job.graph import FaultAction, FaultSpec
from tests.support.live_runtime import ORIGIN_MS, LiveRuntime
from tests.support.runtime_jobs import small_job


@pytest.mark.anyio
async def test_a_savepoint_is_triggered_and_listed_as_a_savepoint() -> None:
    runtime = LiveRuntime(small_job("unaligned", records=None, config={"web.checkpoints.history": 100}))
    runtime.advance_to(0.5)
    request_id = await runtime.trigger("/savepoints", formatType="NATIVE")
    assert await runtime.get(f"/savepoints/{request_id}") == {"status": {"id": "IN_PROGRESS"}, "operation": None}
    runtime.advance_to(2.5)
    answer = await runtime.get(f"/savepoints/{request_id}")
    assert answer["status"] == {"id": "COMPLETED"}
    assert answer["request-to-end-ms"] > 0
    checkpoints = await runtime.get("/checkpoints")
    latest = checkpoints["latest"]
    savepoint = latest["savepoint"]
    assert answer["operation"] == {"location": savepoint["external_path"]}
    assert (savepoint["is_savepoint"], savepoint["savepointFormat"]) == (True, "NATIVE")
    assert savepoint["checkpoint_type"] == "SAVEPOINT"
    assert savepoint["persisted_data"] == 0
    assert savepoint["discarded"] is False
    assert latest["completed"]["id"] != savepoint["id"]
    assert latest["completed"]["is_savepoint"] is False
    detail = await runtime.get(f"/checkpoints/details/{savepoint['id']}")
    assert detail["is_savepoint"] is True
    assert detail["num_acknowledged_subtasks"] == detail["num_subtasks"] == 6


@pytest.mark.anyio
async def test_one_trigger_id_triggers_one_savepoint_and_the_body_may_be_empty() -> None:
    runtime = LiveRuntime(small_job("aligned", records=None))
    runtime.advance_to(0.5)
    own = "0123456789abcdef" * 2
    assert await runtime.trigger("/savepoints", triggerId=own) == own
    assert await runtime.trigger("/savepoints", triggerId=own) == own
    bare = await runtime.client.post(f"{runtime.root}/savepoints")
    assert bare.status_code == 202
    runtime.advance_to(3.0)
    view = runtime.job.engine.view(job_id=runtime.job.id, origin_epoch_ms=ORIGIN_MS, lag_ms=0)
    assert view.latest_savepoint is not None
    assert view.latest_savepoint.savepoint_format == "CANONICAL"
    assert len(runtime.job.savepoints) == 2
    for request_id in (own, bare.json()["request-id"]):
        assert (await runtime.get(f"/savepoints/{request_id}"))["operation"]["location"].startswith("runtime:/")


@pytest.mark.anyio
async def test_a_failed_savepoint_gives_its_reason_without_a_stack_trace() -> None:
    plan = (FaultSpec("coordinator.metadata", at_us=500_000, action=FaultAction.ERROR),)
    runtime = LiveRuntime(small_job("aligned", records=None, plan=plan).with_config({
        "execution.checkpointing.interval": "1 h",
    }))  # fmt: skip
    runtime.advance_to(0.6)
    request_id = await runtime.trigger("/savepoints")
    runtime.advance_to(3.0)
    answer = await runtime.get(f"/savepoints/{request_id}")
    cause = answer["operation"]["failure-cause"]
    assert answer["status"] == {"id": "COMPLETED"}
    assert cause["class"].endswith("CheckpointException")
    assert cause["stack-trace"].endswith("Failure to finalize checkpoint.")
    assert "Traceback" not in str(answer)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", "body"),
        (b"[]", "body"),
        (b'{"formatType": "ZIP"}', "formatType"),
        (b'{"formatType": 5}', "formatType"),
        (b'{"target-directory": "/somewhere"}', "target-directory"),
        (b'{"cancel-job": true}', "cancel-job"),
        (b'{"triggerId": "../x"}', "triggerId"),
        (b'{"what": 1}', "what"),
    ],
)
async def test_an_invalid_savepoint_request_is_refused_and_triggers_nothing(body: bytes, field: str) -> None:
    runtime = LiveRuntime(small_job("aligned", records=None))
    answer = await runtime.client.post(f"{runtime.root}/savepoints", content=body)
    assert answer.status_code == 400, answer.text
    assert [p["field"] for p in answer.json()["problems"]] == [field]
    assert runtime.job.savepoints == {}


@pytest.mark.anyio
async def test_unknown_requests_are_not_found_and_other_origins_may_not_trigger_savepoints() -> None:
    runtime = LiveRuntime(small_job("aligned", records=None))
    assert (await runtime.client.get(f"{runtime.root}/savepoints/{'0' * 32}")).status_code == 404
    assert (await runtime.client.get(f"{runtime.root}/savepoints/xyz")).status_code == 400
    assert (await runtime.client.post(f"/jobs/{'0' * 32}/savepoints")).status_code == 404
    assert (await runtime.client.get(f"{runtime.root}/savepoints")).status_code == 405
    headers = {"origin": "http://evil.example"}
    answer = await runtime.client.post(f"{runtime.root}/savepoints", headers=headers)
    assert answer.status_code == 403
    assert (await runtime.client.post(f"{runtime.root}/savepoints", content=b" " * 70_000)).status_code == 413
    assert runtime.job.savepoints == {}


@pytest.mark.anyio
async def test_a_job_is_stopped_with_a_savepoint_and_finishes() -> None:
    runtime = LiveRuntime(small_job("unaligned", records=None))
    runtime.advance_to(0.5)
    answer = await runtime.client.post(f"{runtime.root}/stop", json={"drain": True, "formatType": "NATIVE"})
    assert (answer.status_code, list(answer.json())) == (202, ["request-id"])
    status = f"/savepoints/{answer.json()['request-id']}"
    assert (await runtime.get(status))["status"] == {"id": "IN_PROGRESS"}
    runtime.advance_to(3.0)
    assert (await runtime.get(status))["operation"]["location"].startswith(f"runtime:{runtime.root[5:]}/savepoint-")
    job = await runtime.get("")
    assert job["state"] == "FINISHED"
    assert {vertex["status"] for vertex in job["vertices"]} == {"FINISHED"}
    checkpoints = await runtime.get("/checkpoints")
    assert checkpoints["latest"]["savepoint"]["status"] == "COMPLETED"
    # Flink gives this type to a savepoint that stops the job.
    assert checkpoints["latest"]["savepoint"]["checkpoint_type"] == "SYNC_SAVEPOINT"
    # A finished job declines a further savepoint.
    again = await runtime.client.post(f"{runtime.root}/stop")
    refused = await runtime.get(f"/savepoints/{again.json()['request-id']}")
    assert "Not all required tasks" in refused["operation"]["failure-cause"]["stack-trace"]


@pytest.mark.anyio
async def test_an_invalid_stop_request_is_refused_and_stops_nothing() -> None:
    runtime = LiveRuntime(small_job("aligned", records=None))
    runtime.advance_to(0.5)
    wrong: list[dict[str, object]] = [{"drain": "yes"}, {"drain": 1}, {"targetDirectory": "/x"}, {"formatType": "ZIP"}]
    for body in [*wrong, {"mode": "x"}]:
        answer = await runtime.client.post(f"{runtime.root}/stop", json=body)
        assert answer.status_code == 400, body
    runtime.advance_to(1.0)
    assert (await runtime.get(""))["state"] == "RUNNING"
