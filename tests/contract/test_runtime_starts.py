"""Starting, stopping and cancelling jobs through the REST API of the live runtime, and what each start may restore."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from backend.live import driver
from backend.live.engine import RuntimeEngine
from backend.runtime.engine.jobfile import load_job_document
from backend.runtime.engine.simulate import simulate
from tests.support.live_runtime import ORIGIN_MS, LiveRuntime

_RECORDS = 600
_JOB: dict[str, Any] = {
    "name": "orders",
    "seed": 5,
    "config": {
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.unaligned.enabled": True,
        "execution.checkpointing.num-retained": 2,
        "taskmanager.memory.segment-size": 1024,
    },
    "vertex": [
        {"id": "source", "kind": "source", "parallelism": 2, "rate": 1200, "limit": _RECORDS},
        {"id": "work", "kind": "map+sink", "parallelism": 2, "cost_us": 4000},
    ],
    "edge": [{"from": "source", "to": "work", "partitioner": "rebalance"}],
}


def _job(*, partitioner: str = "rebalance", **work: Any) -> dict[str, Any]:
    document = deepcopy(_JOB)
    document["vertex"][1] |= work
    document["edge"][0]["partitioner"] = partitioner
    return document


def _output(runtime: LiveRuntime) -> tuple[int, int]:
    engine = runtime.job.engine
    assert isinstance(engine, RuntimeEngine)
    ledger = engine._engine.ledger
    return ledger.committed_count, ledger.folded


def _whole() -> tuple[int, int]:
    """Return the output of a run without interruption."""
    document = simulate(load_job_document(_JOB), duration_us=4_000_000).to_json()
    return document["committed_records"], int(document["committed_hash"], 16)


def _running() -> LiveRuntime:
    runtime = LiveRuntime(load_job_document(_JOB))
    runtime.advance_to(0.4)
    return runtime


async def _newest(runtime: LiveRuntime, kind: str = "completed") -> dict[str, Any]:
    newest: dict[str, Any] = (await runtime.get("/checkpoints"))["latest"][kind]
    return newest


async def _canceled() -> tuple[LiveRuntime, str]:
    """Return a job that was cancelled under backpressure, and the location of its newest checkpoint."""
    runtime = _running()
    newest = await _newest(runtime)
    assert newest["persisted_data"] > 0
    assert (await runtime.client.patch(f"{runtime.root}?mode=cancel")).status_code == 202
    return runtime, newest["external_path"]


async def _refusal(runtime: LiveRuntime, **body: object) -> str:
    answer = await runtime.client.post("/jobs", json=body)
    assert answer.status_code in (400, 404), answer.text
    (told,) = answer.json()["errors"]
    return str(told)


@pytest.mark.anyio
async def test_a_fix_is_rolled_forward_from_the_unaligned_checkpoint_of_a_cancelled_job() -> None:
    """Row 44."""
    before, path = await _canceled()
    detail = await before.get("")
    assert detail["state"] == "CANCELED"
    assert {vertex["status"] for vertex in detail["vertices"]} == {"CANCELED"}
    before.advance_to(0.5)
    total = (await before.get("/checkpoints"))["counts"]["total"]
    after = await before.start(job=_job(cost_us=200, parallelism=3), savepointPath=path)
    after.advance_to(2.0)
    before.advance_to(2.0)
    assert (await before.get("/checkpoints"))["counts"]["total"] == total, "a cancelled job takes no checkpoints"
    assert 0 < _output(before)[0] < _RECORDS
    assert _output(after) == _whole()
    assert (await after.get(""))["start-time"] == ORIGIN_MS + 500, "the job began when it was started"
    checkpoints = await after.get("/checkpoints")
    restored = checkpoints["latest"]["restored"]
    assert (restored["external_path"], restored["is_savepoint"]) == (path, False)
    named = [restored[key] for key in ("job-name", "kind", "is-claimed", "left-out-operators")]
    assert named == ["orders", "unaligned checkpoint", False, []]
    assert restored["id"] < checkpoints["latest"]["completed"]["id"]
    listed = (await after.client.get("/jobs/overview")).json()["jobs"]
    assert [job["state"] for job in listed] == ["CANCELED", "FINISHED"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, "aligned checkpoint"),
        ({"execution.checkpointing.mode": "AT_LEAST_ONCE"}, "at-least-once checkpoint"),
        ({"runtime.chandy-lamport.enabled": True}, "Chandy-Lamport checkpoint"),
        (
            {"runtime.chandy-lamport.enabled": True, "runtime.chandy-lamport.markers-overtake": True},
            "Chandy-Lamport checkpoint",
        ),
    ],
)
async def test_a_restored_checkpoint_without_in_flight_data_is_named_by_its_mode_or_protocol(
    settings: dict[str, object], kind: str
) -> None:
    job = _job(cost_us=1)
    job["config"] = {"execution.checkpointing.interval": "100 ms"} | settings
    job["vertex"][0] |= {"rate": 1}
    before = LiveRuntime(load_job_document(job))
    before.advance_to(0.95)
    assert (await before.client.patch(f"{before.root}?mode=cancel")).status_code == 202
    newest = await _newest(before)
    assert newest["persisted_data"] == 0
    after = await before.start(savepointPath=newest["external_path"], job=job)
    after.advance_to(1.2)
    assert (await _newest(after, "restored"))["kind"] == kind


@pytest.mark.anyio
@pytest.mark.parametrize("drains", [False, True])
async def test_a_job_that_was_stopped_with_a_savepoint_is_started_again(drains: bool) -> None:
    """Row 131. Without a job document, the same job is started."""
    runtime = _running()
    trigger = await runtime.trigger("/stop", drain=drains)
    runtime.advance_to(2.0)
    operation = (await runtime.get(f"/savepoints/{trigger}"))["operation"]
    again = await runtime.start(savepointPath=operation["location"])
    again.advance_to(5.0)
    assert 0 < _output(runtime)[0] < _RECORDS
    assert _output(again) == _whole()
    restored = await _newest(again, "restored")
    assert (restored["external_path"], restored["is_savepoint"]) == (operation["location"], True)


@pytest.mark.anyio
async def test_a_start_that_cannot_be_is_refused_in_one_sentence_with_its_rule() -> None:
    runtime = _running()
    path = (await _newest(runtime))["external_path"]
    newest = int(path.rsplit("-", 1)[1])
    prefix = path.rsplit("-", 1)[0]
    assert (await _refusal(runtime, savepointPath=path)).startswith("SNK-3: the job still runs")
    await runtime.client.patch(f"{runtime.root}?mode=cancel")
    graph = {"job": _job(partitioner="shuffle"), "savepointPath": path}
    assert (await _refusal(runtime, **graph)).startswith("GR-2 at 'source -> work': the checkpoint has data in flight")
    changed = {"job": _job(kind="keyed+sink", partitioner="hash"), "savepointPath": path}
    assert "GR-" in await _refusal(runtime, **changed)
    assert (await _refusal(runtime, savepointPath=f"{prefix}-1")).startswith("CO-12: checkpoint 1 was dropped")
    older = f"{prefix}-{newest - 1}"
    assert (await _refusal(runtime, savepointPath=older)).startswith(f"CO-8: checkpoint {newest} has committed output")
    assert "checkpoint" in await _refusal(runtime, savepointPath=f"{prefix}-99")
    assert "is not a location of this runtime" in await _refusal(runtime, savepointPath="file:/etc/passwd")
    assert "claimMode" in await _refusal(runtime, savepointPath=path, claimMode="LEGACY")
    assert "job: is missing" in await _refusal(runtime)
    assert (await runtime.client.patch(f"{runtime.root}?mode=stop")).status_code == 400
    # Nothing of all this changed anything, and an older checkpoint is restored if the user says so.
    again = await runtime.start(savepointPath=older, atOwnRisk=True)
    again.advance_to(5.0)
    assert _output(again)[0] > _RECORDS, "records that a later checkpoint had committed are committed again"


@pytest.mark.anyio
async def test_only_one_of_the_jobs_that_continue_each_other_runs() -> None:
    """SNK-3: they have one external system."""
    runtime, path = await _canceled()
    again = await runtime.start(savepointPath=path)
    other = {"job": _job() | {"name": "other"}, "savepointPath": path}
    assert (await _refusal(runtime, **other)).startswith(f"SNK-3: the job {again.job.id} continues it and still runs")
    await again.client.patch(f"{again.root}?mode=cancel")
    assert (await runtime.start(**other)).job.engine.name == "other"


@pytest.mark.anyio
async def test_a_job_with_too_many_channels_is_neither_started_nor_made_by_a_rescale() -> None:
    runtime = _running()
    wide = deepcopy(_JOB) | {"name": "wide"}
    for vertex in wide["vertex"]:
        vertex["parallelism"] = 150
    assert (await _refusal(runtime, job=wide)).startswith("G-6: 22500 channels between subtasks; at most 20000")
    wide["vertex"][0]["parallelism"] = 2
    rescale = {"at": "1 s", "vertex": "source", "parallelism": 150}
    assert (await _refusal(runtime, job=wide | {"rescale": [rescale]})).startswith("G-6: 22500 channels")
    small = _job() | {"name": "narrow"}
    for vertex in small["vertex"]:
        vertex["max_parallelism"] = 200
    narrow = await runtime.start(job=small)
    vertices = (await narrow.get(""))["vertices"]
    wanted = {vertex["id"]: {"parallelism": {"lowerBound": 1, "upperBound": 150}} for vertex in vertices}
    answer = await runtime.client.put(f"{narrow.root}/resource-requirements", json=wanted)
    assert answer.status_code == 400
    assert "22500 channels between subtasks" in answer.text


@pytest.mark.anyio
async def test_a_claimed_checkpoint_belongs_to_the_job_that_claimed_it() -> None:
    """IN-16."""
    runtime, path = await _canceled()
    left = await runtime.start(savepointPath=path, claimMode="NO_CLAIM")
    await left.client.patch(f"{left.root}?mode=cancel")
    owner = await runtime.start(savepointPath=path, claimMode="CLAIM")
    owner.advance_to(0.6)
    assert (await _newest(owner, "restored"))["is-claimed"] is True
    await owner.client.patch(f"{owner.root}?mode=cancel")
    told = await _refusal(runtime, savepointPath=path)
    assert told.startswith("IN-16: checkpoint ")
    assert owner.job.id in told


@pytest.mark.anyio
async def test_the_operators_whose_state_a_start_left_out_are_named() -> None:
    """GR-1."""
    runtime = LiveRuntime(load_job_document(_job(kind="keyed+sink", partitioner="hash")))
    runtime.advance_to(0.4)
    path = (await _newest(runtime))["external_path"]
    await runtime.client.patch(f"{runtime.root}?mode=cancel")
    document = _job(kind="map+sink", partitioner="hash")
    allowed = {"allowNonRestoredState": True, "atOwnRisk": True}
    again = await runtime.start(savepointPath=path, job=document, **allowed)
    again.advance_to(0.5)
    assert (await _newest(again, "restored"))["left-out-operators"] == ["work:keyed"]


@pytest.mark.anyio
async def test_a_job_is_started_from_its_document_alone_or_with_its_own_restore_table() -> None:
    runtime, path = await _canceled()
    other = await runtime.start(job=_job() | {"name": "other"})
    other.advance_to(3.0)
    assert _output(other) == _whole()
    assert (await other.get("/checkpoints"))["latest"]["restored"] is None
    again = await runtime.start(job=_job() | {"restore": {"from": path}})
    assert "a job with the name 'orders' runs" in await _refusal(runtime, job=_job())
    again.advance_to(5.0)
    assert _output(again) == _whole()
    assert (await _refusal(runtime, job={"name": "x"})).startswith("vertex: is missing")


@pytest.mark.anyio
async def test_only_some_jobs_run_at_a_time_and_the_oldest_ended_ones_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "_JOBS_MAX", 1)
    monkeypatch.setattr(driver, "_ENDED_KEPT", 1)
    runtime, path = await _canceled()
    again = await runtime.start(savepointPath=path)
    assert "1 jobs run" in await _refusal(runtime, job=_job() | {"name": "other"})
    await again.client.patch(f"{again.root}?mode=cancel")
    other = await runtime.start(job=_job() | {"name": "other"})
    listed = (await other.client.get("/jobs")).json()["jobs"]
    assert [job["id"] for job in listed] == [again.job.id, other.job.id]
    assert (await runtime.client.get(runtime.root)).status_code == 404


@pytest.mark.anyio
async def test_the_job_that_ended_last_is_kept_although_it_began_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_ENDED_KEPT", 1)
    runtime = _running()
    second = await runtime.start(job=_job() | {"name": "second"})
    await second.client.patch(f"{second.root}?mode=cancel")
    runtime.advance_to(0.5)
    await runtime.client.patch(f"{runtime.root}?mode=cancel")
    third = await runtime.start(job=_job() | {"name": "third"})
    listed = (await third.client.get("/jobs")).json()["jobs"]
    assert [job["id"] for job in listed] == [runtime.job.id, third.job.id]
