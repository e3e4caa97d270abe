"""REST responses that only the live runtime has: checkpoint measurements, restarts, and rates of subtasks."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from backend.live.driver import LiveJob, RuntimeDriver
from backend.live.engine import build_live_engine, job_run_id
from backend.live.rest import PREFIX, create_runtime_app
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultSpec
from backend.runtime.measure.summaries import distribution, vertex_summary
from backend.runtime.network.remote_channel import RemoteChannel
from tests.support.live_runtime import LiveRuntime
from tests.support.runtime_jobs import late_triggers, small_job

_ORIGIN_MS = 1_760_000_000_000


async def _answers(spec: JobSpec, at_s: float, *paths: str) -> list[Any]:
    job = LiveJob(job_run_id(spec.name, _ORIGIN_MS), build_live_engine(spec), _ORIGIN_MS, 0.0)
    driver = RuntimeDriver([job], lambda: at_s)
    while driver.advance(job):
        pass
    app = create_runtime_app(driver, version="0.1.0")
    found = []
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://127.0.0.1{PREFIX}") as client:
        for path in paths:
            answer = await client.get(f"/jobs/{job.id}{path}")
            assert answer.status_code == 200, f"{path}: {answer.text}"
            found.append(answer.json())
    return found


def test_quantiles_are_measured_values() -> None:
    found = distribution([*range(1, 101), None])
    assert found is not None
    assert (found.count, found.least, found.most, found.mean) == (100, 1, 100, 50.5)
    assert (found.p50, found.p95, found.p99) == (50, 95, 99)
    one = distribution([7])
    assert one is not None
    assert (one.p50, one.p95, one.p99) == (7, 7, 7)
    assert distribution([None]) is None


def test_the_summary_of_a_vertex_covers_its_own_subtasks() -> None:
    engine = JobEngine(small_job("unaligned", records=None, parallelism=3))
    engine.run_until(1_000_000)
    record = engine.coordinator.all_completed[-1]
    summary = vertex_summary(record, 2)
    own = sorted(a.measured.async_us or 0 for key, a in record.acks.items() if key[0] == 2)
    assert summary["async_us"] is not None
    assert (summary["async_us"].least, summary["async_us"].p50, summary["async_us"].most) == tuple(own)
    ends = [a.at_us - record.triggered_at_us for key, a in record.acks.items() if key[0] == 2]
    assert summary["end_to_end_us"] is not None
    assert summary["end_to_end_us"].most == max(ends)


@pytest.mark.anyio
async def test_the_measurements_of_a_checkpoint_agree_with_flinks_answers() -> None:
    config: dict[str, object] = {"runtime.inflight-cap.bytes": "8 kb"}
    spec = small_job("unaligned", records=None, task_managers=2, config=config)
    (listed,) = await _answers(spec, 1.2, "/checkpoints")
    entry = listed["latest"]["completed"]
    path = f"/checkpoints/{entry['id']}/measurements"
    measured, detail = await _answers(spec, 1.2, path, f"/checkpoints/details/{entry['id']}")
    assert (measured["id"], measured["type"], measured["barrier"]) == (entry["id"], "checkpoint", "unaligned")
    assert list(measured["vertices"]) == list(detail["tasks"])
    path = measured["critical_path"]
    slowest = measured["vertices"][path["vertex"]]["summary"]["end_to_end_us"]["most"]
    assert (
        path["end_to_end_us"]
        == slowest
        == max(v["summary"]["end_to_end_us"]["most"] for v in measured["vertices"].values())
    )
    assert path["end_to_end_us"] == sum(v for k, v in path.items() if k.endswith("_us") and k != "end_to_end_us")
    for vertex, task in detail["tasks"].items():
        mine = measured["vertices"][vertex]
        inflight = [c for s in mine["subtasks"] for c in (*s["persisted_inputs"], *s["overtaken_outputs"])]
        assert sum(c["bytes"] for c in inflight) == task["persisted_data"]
        assert all(c["buffers"] > 0 for c in inflight)
        assert mine["summary"]["persisted_bytes"]["count"] == task["num_subtasks"]
        assert mine["summary"]["end_to_end_us"]["most"] // 1000 <= task["end_to_end_duration"] + 1
        for subtask in mine["subtasks"]:
            assert subtask["inflight_cap"]["cap_bytes"] == 8 << 10
            assert subtask["files"]["logical"] >= subtask["files"]["physical"] == 0, (
                "all state is small, so no file is written"
            )
            assert subtask["order"] in ("A-F-S", "F-S-L", "F-S")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("protocol", "config", "is_consistent"),
    [
        ("aligned", {}, True),
        ("unaligned", {}, False),
        ("aligned", {"execution.checkpointing.mode": "AT_LEAST_ONCE"}, False),
    ],
)
async def test_a_checkpoint_is_consistent_for_queries_only_without_in_flight_data(
    protocol: str, config: dict[str, object], is_consistent: bool
) -> None:
    (listed,) = await _answers(small_job(protocol, records=None, config=config), 0.8, "/checkpoints")
    assert len(listed["history"]) > 2
    paths = [f"/checkpoints/{entry['id']}/measurements" for entry in listed["history"]]
    measured = await _answers(small_job(protocol, records=None, config=config), 0.8, *paths)
    for entry, each in zip(listed["history"], measured, strict=True):
        expected = is_consistent and entry["status"] == "COMPLETED"
        assert each["is_consistent_for_queries"] == expected, entry["id"]


@pytest.mark.anyio
async def test_restarts_are_listed_newest_first_with_their_parts() -> None:
    plan = (FaultSpec("task.in-sync", hit=13), FaultSpec("task.in-sync", at_us=1_000_000))
    spec = small_job("unaligned", records=None, plan=plan)
    restarts, none = (await _answers(spec, 2.0, "/restarts"))[0], await _answers(small_job("aligned"), 0.5, "/restarts")
    assert none == [[]]
    assert len(restarts) == 2
    assert restarts[0]["failed_at_us"] > restarts[1]["failed_at_us"]
    newest = restarts[0]
    assert newest["restart_us"] == 20_000
    assert newest["detection_us"] == 0
    assert newest["channel_replay_us"] > 0
    assert newest["source_replay_us"] > 0
    assert newest["catch_up_us"] is None
    assert len(newest["subtasks"]) == 6
    for one in newest["subtasks"]:
        assert one["mailbox_start_us"] == one["read_output_us"] + one["initialize_state_us"] + one["read_input_us"]
        assert one["until_running_us"] >= one["mailbox_start_us"] + one["gate_restore_us"]
        assert one["status"] == "COMPLETED"


def test_rates_are_the_increase_of_the_counters_over_the_window() -> None:
    engine = JobEngine(small_job("aligned", records=None, task_managers=2))
    # The window holds the samples of one minute. During the first minute of a job, it begins with the job.
    engine.run_until(15_000_000)
    busy = 0
    for task in engine.tasks:
        # Allow for events at exactly 15 s. They come after the last sample of the window, but the totals include
        # them.
        grown = [total / 15 for total in task.totals]
        assert list(task.rates.per_s()) == pytest.approx(grown, abs=0.2), task.name
        busy += task.rates.per_s()[0] > 0
        assert task.mail_latency.count == task.totals.mails > 0
        assert all(wait >= 0 for wait in task.mail_latency.row_us())
        remote = sum(c.buffers_received for c in task.gate.channels if isinstance(c, RemoteChannel))
        assert task.totals.buffers_in_remote == remote <= task.totals.buffers_in
    assert busy == 4, "only tasks with input are busy, so sources are not"
    assert sum(t.totals.buffers_in_remote for t in engine.tasks) > 0
    # A mail waits until the task has processed its current record, which takes up to 2 ms at the slow vertex.
    keyed = engine.tasks[-1].mail_latency.row_us()
    assert 100 < max(keyed) <= 2_100 + 5_000


@pytest.mark.anyio
async def test_fired_timers_and_local_and_remote_buffers_have_flinks_metric_names() -> None:
    timed: dict[str, object] = {"kind": "timer+sink", "hold": "15 ms", "timer_cost_us": 200}
    spec = small_job("aligned", records=None, task_managers=2, keyed=timed)
    names = ("numFiredTimers", "numBuffersInLocal", "numBuffersInRemote", "Shuffle.Netty.Input.numBuffersInRemote")
    per_s = ("numFiredTimersPerSecond", "numBuffersInRemotePerSecond")
    (job,) = await _answers(spec, 6.0, "")
    keyed = job["vertices"][2]["id"]
    path = f"/vertices/{keyed}/subtasks/metrics?agg=sum&get={','.join((*names, *per_s))}"
    (found,) = await _answers(spec, 6.0, path)
    value = {row["id"]: row["sum"] for row in found}
    engine = JobEngine(spec)
    engine.run_until(6_000_000)
    timers = [t.operators[0] for t in engine.tasks if t.spec.id == "keyed"]
    assert value["numFiredTimers"] == sum(t.event_time.fired_count for t in engine.tasks) > 100
    assert value["numFiredTimers"] <= sum(t.records_in for t in engine.tasks if t.operators[0] in timers)
    assert value["numBuffersInRemote"] == value["Shuffle.Netty.Input.numBuffersInRemote"] > 0
    assert value["numBuffersInLocal"] > 0
    # The rates come from a window whose last sample was taken at 5 s. The counters are read at 6 s.
    assert value["numFiredTimersPerSecond"] == pytest.approx(value["numFiredTimers"] / 6, rel=0.2)
    assert value["numBuffersInRemotePerSecond"] == pytest.approx(value["numBuffersInRemote"] / 6, rel=0.2)


@pytest.mark.anyio
async def test_a_job_in_at_least_once_mode_reports_how_many_records_a_restore_repeats() -> None:
    mode: dict[str, object] = {"execution.checkpointing.mode": "AT_LEAST_ONCE"}
    plan = (FaultSpec("coordinator.between-notifies", hit=3), *late_triggers())
    spec = small_job("aligned", records=None, config=mode, plan=plan)
    config, measured, (restart,) = await _answers(
        spec, 1.0, "/checkpoints/config", "/checkpoints/1/measurements", "/restarts"
    )
    assert config["mode"] == "at_least_once"
    told = [s["repeatable_records"] for v in measured["vertices"].values() for s in v["subtasks"]]
    assert measured["barrier"] == "at-least-once"
    assert (restart["restored_id"], restart["repeated_records"]) == (1, sum(told))
    assert sum(told) > 0


@pytest.mark.anyio
async def test_an_incremental_checkpoint_shows_what_it_wrote_and_all_that_it_refers_to() -> None:
    config = {
        "runtime.state-backend": "sst",
        "execution.checkpointing.incremental": True,
        "web.checkpoints.history": 100,
    }
    runtime = LiveRuntime(
        small_job("aligned", records=None, config=config, keyed={"state_bytes": 5000, "cost_us": 100})
    )
    runtime.advance_to(2.0)
    assert (await runtime.get("/checkpoints/config"))["state_backend"] == "sst"
    history = (await runtime.get("/checkpoints"))["history"]
    done = [entry for entry in history if entry["status"] == "COMPLETED"]
    for entry in done:
        measured = await runtime.get(f"/checkpoints/{entry['id']}/measurements")
        assert entry["checkpointed_size"] == measured["written_bytes"]
        assert entry["state_size"] == measured["state_bytes"]
    smaller = [entry for entry in done if entry["checkpointed_size"] < entry["state_size"]]
    assert smaller
    newest = await runtime.get(f"/checkpoints/{smaller[0]['id']}/measurements")
    assert newest["is_incremental"]
    increments = [s["increment"] for v in newest["vertices"].values() for s in v["subtasks"]]
    assert any(one is not None and one["base_id"] == newest["id"] - 1 for one in increments)
    request_id = await runtime.trigger("/checkpoints", checkpointType="FULL")
    runtime.advance_to(3.0)
    full = (await runtime.get(f"/checkpoints/{request_id}"))["operation"]["checkpointId"]
    assert not (await runtime.get(f"/checkpoints/{full}/measurements"))["is_incremental"]
    request_id = await runtime.trigger("/checkpoints", checkpointType="INCREMENTAL")
    runtime.advance_to(4.0)
    increment = (await runtime.get(f"/checkpoints/{request_id}"))["operation"]["checkpointId"]
    assert (await runtime.get(f"/checkpoints/{increment}/measurements"))["is_incremental"]
