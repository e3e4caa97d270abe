"""Requests of a user to a live job, with Flink's paths and JSON: trigger a checkpoint, change the parallelism."""

from __future__ import annotations

from typing import Any

import pytest

from backend.runtime.job.graph import FaultAction, FaultSpec
from tests.support.live_runtime import LiveRuntime
from tests.support.runtime_jobs import small_job

_RARE = {"execution.checkpointing.interval": "1 h"}
_OFTEN = {"web.checkpoints.history": 200}


def _body(runtime: LiveRuntime, **parallelism: int) -> dict[str, Any]:
    """Return the resource requirements of the job, as ``GET`` returns them, with new upper bounds by vertex name."""
    vertices = runtime.job.engine.view(job_id=runtime.job.id, origin_epoch_ms=0, lag_ms=0).vertices
    return {
        v.id: {"parallelism": {"lowerBound": 1, "upperBound": parallelism.get(v.name, v.parallelism)}} for v in vertices
    }


async def _put(runtime: LiveRuntime, body: object, query: str = "") -> Any:
    return await runtime.client.put(f"{runtime.root}/resource-requirements{query}", json=body)


@pytest.mark.anyio
async def test_a_user_triggers_a_checkpoint_and_asks_for_its_result() -> None:
    runtime = LiveRuntime(small_job("unaligned", records=None, config=_RARE))
    runtime.advance_to(0.5)
    traced = runtime.job.engine.view(job_id="", origin_epoch_ms=0, lag_ms=0).counts.total
    assert traced == 0
    request_id = await runtime.trigger("/checkpoints", checkpointType="FULL")
    # These are the fields of Flink's AsynchronousOperationResult.
    assert await runtime.get(f"/checkpoints/{request_id}") == {"status": {"id": "IN_PROGRESS"}, "operation": None}
    runtime.advance_to(2.5)
    answer = await runtime.get(f"/checkpoints/{request_id}")
    assert answer["status"] == {"id": "COMPLETED"}
    assert answer["operation"] == {"checkpointId": 1}
    assert answer["request-to-end-ms"] > 0
    checkpoints = await runtime.get("/checkpoints")
    assert [(c["id"], c["status"], c["is_savepoint"]) for c in checkpoints["history"]] == [(1, "COMPLETED", False)]
    # A checkpoint that a user triggers is an ordinary checkpoint, so a restart can restore from it.
    assert checkpoints["latest"]["completed"]["id"] == 1


@pytest.mark.anyio
async def test_one_trigger_id_triggers_one_checkpoint_and_the_body_may_be_empty() -> None:
    runtime = LiveRuntime(small_job("aligned", records=None, config=_RARE))
    runtime.advance_to(0.5)
    own = "0123456789abcdef" * 2
    assert await runtime.trigger("/checkpoints", triggerId=own) == own
    assert await runtime.trigger("/checkpoints", triggerId=own) == own
    bare = await runtime.client.post(f"{runtime.root}/checkpoints")
    assert bare.status_code == 202
    # The id of a checkpoint request is not valid for a savepoint request.
    assert (await runtime.client.get(f"{runtime.root}/savepoints/{own}")).status_code == 404
    runtime.advance_to(3.0)
    ids = [(await runtime.get(f"/checkpoints/{r}"))["operation"] for r in (own, bare.json()["request-id"])]
    assert ids == [{"checkpointId": 1}, {"checkpointId": 2}]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("point", "words"),
    [("coordinator.metadata", "Failure to finalize checkpoint."), ("coordinator.location", "IO")],
)
async def test_a_requested_checkpoint_that_fails_gives_its_reason_without_a_stack_trace(point: str, words: str) -> None:
    plan = (FaultSpec(point, at_us=500_000, action=FaultAction.ERROR),)
    runtime = LiveRuntime(small_job("aligned", records=None, plan=plan, config=_RARE))
    runtime.advance_to(0.6)
    request_id = await runtime.trigger("/checkpoints")
    runtime.advance_to(3.0)
    answer = await runtime.get(f"/checkpoints/{request_id}")
    assert answer["status"] == {"id": "COMPLETED"}
    cause = answer["operation"]["failureCause"]
    assert cause["class"].endswith("CheckpointException")
    assert words in cause["stack-trace"]
    assert "Traceback" not in str(answer)


@pytest.mark.anyio
async def test_a_checkpoint_request_ended_by_a_failure_of_the_job_gives_its_reason() -> None:
    plan = (FaultSpec("coordinator.on-ack", hit=1, action=FaultAction.CRASH),)
    runtime = LiveRuntime(small_job("aligned", records=None, plan=plan, config=_RARE))
    runtime.advance_to(0.5)
    request_id = await runtime.trigger("/checkpoints")
    runtime.advance_to(1.5)
    operation = (await runtime.get(f"/checkpoints/{request_id}"))["operation"]
    assert "Coordinator is suspending" in operation["failureCause"]["stack-trace"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", "body"),
        (b"[]", "body"),
        (b'{"checkpointType": "INCREMENTAL"}', "checkpointType"),
        (b'{"checkpointType": "full"}', "checkpointType"),
        (b'{"checkpointType": 1}', "checkpointType"),
        (b'{"triggerId": "../x"}', "triggerId"),
        (b'{"formatType": "NATIVE"}', "formatType"),
    ],
)
async def test_an_invalid_checkpoint_request_is_refused_and_triggers_nothing(body: bytes, field: str) -> None:
    runtime = LiveRuntime(small_job("aligned", records=None, config=_RARE))
    runtime.advance_to(0.5)
    answer = await runtime.client.post(f"{runtime.root}/checkpoints", content=body)
    assert answer.status_code == 400, answer.text
    assert [p["field"] for p in answer.json()["problems"]] == [field]
    runtime.advance_to(1.0)
    assert (await runtime.get("/checkpoints"))["counts"]["total"] == 0
    unknown = await runtime.client.get(f"{runtime.root}/checkpoints/{'0' * 32}")
    assert unknown.status_code == 404
    assert (await runtime.client.get(f"{runtime.root}/checkpoints/xyz")).status_code == 400


@pytest.mark.anyio
@pytest.mark.parametrize("source", ["checkpoint", "savepoint"])
async def test_a_live_job_is_rescaled_and_old_checkpoints_keep_their_subtasks(source: str) -> None:
    runtime = LiveRuntime(small_job("unaligned", records=None, config=_OFTEN))
    runtime.advance_to(0.55)
    before = await runtime.get("/resource-requirements")
    assert before == _body(runtime)
    old = (await runtime.get("/checkpoints"))["latest"]["completed"]["id"]
    answer = await _put(runtime, _body(runtime, keyed=4, map=1), f"?from={source}")
    assert (answer.status_code, answer.json()) == (200, {})
    runtime.advance_to(4.0)
    assert await runtime.get("/resource-requirements") == _body(runtime, keyed=4, map=1)
    [rescale] = await runtime.get("/rescales")
    changed = {v["name"]: (v["before"], v["after"]) for v in rescale["vertices"]}
    assert changed == {"keyed": (2, 4), "map": (2, 1)}
    assert (rescale["status"], rescale["from"], rescale["refusal"]) == ("COMPLETED", source, None)
    assert rescale["requested_at_us"] == 550_000
    assert rescale["requested_at_us"] <= rescale["stopped_at_us"] < rescale["running_at_us"]
    if source == "checkpoint":
        assert rescale["restored_id"] == old
        assert rescale["stopped_at_us"] == rescale["requested_at_us"]
    restored = (await runtime.get("/checkpoints"))["latest"]["restored"]
    assert (restored["id"], restored["is_savepoint"]) == (rescale["restored_id"], source == "savepoint")
    [restart] = await runtime.get("/restarts")
    assert restart["cause"] == "rescaled: keyed 2 -> 4, map 2 -> 1"
    # The job shows its new parallelism. Each checkpoint shows the parallelism that the job had at its trigger.
    job = await runtime.get("")
    now = {v["name"]: v["parallelism"] for v in job["vertices"]}
    assert (now["map"], now["keyed"]) == (1, 4)
    keyed = next(v["id"] for v in job["vertices"] if v["name"] == "keyed")
    newest = (await runtime.get("/checkpoints"))["latest"]["completed"]["id"]
    for checkpoint, parallelism in ((old, 2), (newest, 4)):
        detail = await runtime.get(f"/checkpoints/details/{checkpoint}/subtasks/{keyed}")
        assert [s["index"] for s in detail["subtasks"]] == list(range(parallelism))
        assert detail["num_acknowledged_subtasks"] == parallelism
        assert (await runtime.get(f"/checkpoints/{checkpoint}/measurements"))["vertices"][keyed]["subtasks"]
    assert len((await runtime.get(f"/vertices/{keyed}"))["subtasks"]) == 4


@pytest.mark.anyio
async def test_a_rescale_to_the_current_parallelism_restarts_nothing() -> None:
    runtime = LiveRuntime(small_job("aligned", records=None))
    runtime.advance_to(0.5)
    assert (await _put(runtime, _body(runtime))).status_code == 200
    runtime.advance_to(1.0)
    assert await runtime.get("/rescales") == await runtime.get("/restarts") == []


@pytest.mark.anyio
async def test_an_invalid_rescale_is_refused_by_vertex_and_the_job_continues() -> None:
    runtime = LiveRuntime(small_job("aligned", records=None))
    runtime.advance_to(0.5)
    good = _body(runtime, keyed=3)
    keyed = next(v for v, wanted in good.items() if wanted["parallelism"]["upperBound"] == 3)

    def bounds(lower: object, upper: object) -> dict[str, Any]:
        return good | {keyed: {"parallelism": {"lowerBound": lower, "upperBound": upper}}}

    others = {v: wanted for v, wanted in good.items() if v != keyed}
    wrong: list[tuple[object, str, str]] = [
        ([], "body", "is not an object"),
        (others, keyed, "the request is incomplete, vertex keyed is missing"),
        (good | {"0" * 32: good[keyed]}, "0" * 32, "is not a vertex of this job"),
        (good | {keyed: 3}, f"{keyed} (keyed)", "has no parallelism"),
        (good | {keyed: {"parallelism": {"upperBound": 3}}}, f"{keyed} (keyed)", "has no parallelism"),
        (bounds(1, 0), f"{keyed} (keyed)", "bounds 1 and 0"),
        (bounds(4, 3), f"{keyed} (keyed)", "bounds 4 and 3"),
        (bounds(1, True), f"{keyed} (keyed)", "bounds 1 and True"),
        (bounds(1, "3"), f"{keyed} (keyed)", "bounds 1 and 3"),
        (bounds(1, 129), f"{keyed} (keyed)", "exceeds the maximum parallelism"),
    ]
    for body, field, words in wrong:
        answer = await _put(runtime, body)
        assert answer.status_code == 400, answer.text
        [problem] = answer.json()["problems"]
        assert (problem["field"], words in problem["problem"]) == (field, True), problem
    assert (await _put(runtime, good, "?from=thin-air")).json()["problems"][0]["field"] == "from"
    assert (await _put(runtime, {})).json()["errors"][0].count("incomplete") == 1
    runtime.advance_to(1.0)
    assert await runtime.get("/rescales") == await runtime.get("/restarts") == []
    assert (await runtime.client.delete(f"{runtime.root}/resource-requirements")).status_code == 405


@pytest.mark.anyio
async def test_a_rescale_of_a_stopped_job_is_refused_with_a_remedy() -> None:
    runtime = LiveRuntime(small_job("aligned", records=None))
    runtime.advance_to(0.5)
    await runtime.trigger("/stop")
    runtime.advance_to(3.0)
    answer = await _put(runtime, _body(runtime, keyed=3))
    assert answer.status_code == 400
    assert "SV-3" in answer.json()["errors"][0]
    assert "start another job from the savepoint" in answer.json()["errors"][0]


@pytest.mark.anyio
async def test_a_rescale_whose_savepoint_fails_is_reported_and_the_job_continues() -> None:
    plan = (FaultSpec("coordinator.metadata", at_us=500_000, action=FaultAction.ERROR),)
    runtime = LiveRuntime(small_job("aligned", records=None, plan=plan, config=_RARE))
    runtime.advance_to(0.6)
    assert (await _put(runtime, _body(runtime, keyed=3), "?from=savepoint")).status_code == 200
    assert [r["status"] for r in await runtime.get("/rescales")] == ["IN_PROGRESS"]
    runtime.advance_to(3.0)
    [rescale] = await runtime.get("/rescales")
    assert rescale["status"] == "REFUSED"
    assert "the savepoint to rescale from failed" in rescale["refusal"]
    assert await runtime.get("/restarts") == []
    assert (await runtime.get("/exceptions"))["exceptionHistory"]["entries"][0]["exceptionName"] == "RescaleRefused"


@pytest.mark.anyio
async def test_a_rescale_that_is_interrupted_before_the_job_runs_has_that_status() -> None:
    runtime = LiveRuntime(small_job("aligned", records=None))
    runtime.advance_to(0.55)
    assert (await _put(runtime, _body(runtime, keyed=4))).status_code == 200
    runtime.advance_to(0.56)
    assert [r["status"] for r in await runtime.get("/rescales")] == ["IN_PROGRESS"]
    # This second request arrives before the first rescale has finished.
    assert (await _put(runtime, _body(runtime, keyed=3))).status_code == 200
    runtime.advance_to(4.0)
    assert [r["status"] for r in await runtime.get("/rescales")] == ["COMPLETED", "INTERRUPTED"]
    assert await runtime.get("/resource-requirements") == _body(runtime, keyed=3)


@pytest.mark.anyio
async def test_requests_change_the_trace_hash() -> None:
    hashes = set()
    for path in (None, "/checkpoints", "/savepoints"):
        runtime = LiveRuntime(small_job("aligned", records=None, config=_RARE))
        runtime.advance_to(0.5)
        engine: Any = runtime.job.engine
        before = engine._engine.trace_hash
        if path is not None:
            await runtime.trigger(path)
            assert engine._engine.trace_hash != before
        hashes.add(engine._engine.trace_hash)
    assert len(hashes) == 3


async def _open_checkpoint(timeout: str) -> tuple[LiveRuntime, int]:
    """Return a job whose first checkpoint stays open, because the job ignores one subtask's acknowledgement."""
    config = _RARE | {"execution.checkpointing.timeout": timeout}
    lost = FaultSpec("rpc.ack", at_us=500_000, action=FaultAction.DROP)
    runtime = LiveRuntime(small_job("aligned", records=None, config=config, plan=(lost,)))
    runtime.advance_to(0.5)
    await runtime.trigger("/checkpoints")
    runtime.advance_to(1.5)
    (checkpoint,) = (await runtime.get("/checkpoints"))["history"]
    assert checkpoint["status"] == "IN_PROGRESS"
    return runtime, checkpoint["id"]


async def _first(runtime: LiveRuntime) -> Any:
    return (await runtime.get("/checkpoints"))["history"][-1]


@pytest.mark.anyio
async def test_a_longer_timeout_extends_the_checkpoint_in_progress_and_a_shorter_one_does_not_end_it() -> None:
    runtime, _ = await _open_checkpoint("2 s")
    for timeout in ("5 s", "1 s"):
        changed = await runtime.client.patch(
            f"{runtime.root}/settings", json={"execution.checkpointing.timeout": timeout}
        )
        assert changed.status_code == 200
    runtime.advance_to(4.5)
    assert (await _first(runtime))["status"] == "IN_PROGRESS", "the first timeout is over"
    runtime.advance_to(6.0)
    assert (await _first(runtime))["failure_message"] == "Checkpoint expired before completing."


@pytest.mark.anyio
async def test_settings_are_checked_without_a_change() -> None:
    runtime, _ = await _open_checkpoint("2 s")
    before = await runtime.get("/settings")
    path = f"{runtime.root}/settings/check"
    fine = await runtime.client.post(path, json={"execution.checkpointing.timeout": "5 s"})
    wrong = await runtime.client.post(path, json={"execution.checkpointing.timeout": "never"})

    assert (fine.status_code, wrong.status_code) == (200, 400)
    assert "execution.checkpointing.timeout" in wrong.json()["errors"][0]
    assert await runtime.get("/settings") == before


@pytest.mark.anyio
async def test_an_aborted_checkpoint_fails_at_once_and_the_job_goes_on() -> None:
    runtime, number = await _open_checkpoint("10 min")
    aborted = await runtime.client.post(f"{runtime.root}/checkpoints/{number}/abort")
    again = await runtime.client.post(f"{runtime.root}/checkpoints/{number}/abort")
    failed = await _first(runtime)

    assert (aborted.status_code, again.status_code) == (200, 400)
    assert "cannot be aborted" in again.json()["errors"][0]
    assert (failed["status"], failed["failure_message"]) == ("FAILED", "Checkpoint was aborted by a user.")
    await runtime.trigger("/checkpoints")
    runtime.advance_to(4.0)
    states = [c["status"] for c in (await runtime.get("/checkpoints"))["history"]]
    assert states == ["COMPLETED", "FAILED"]
    assert runtime.job.engine.view(job_id="", origin_epoch_ms=0, lag_ms=0).restarts == 0
