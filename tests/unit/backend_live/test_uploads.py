"""Tests of uploaded checkpoint files: a job starts from one, and one that no job writes is refused in a sentence."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from backend.domain.errors import UnknownEntityError
from backend.live import rest
from backend.live.uploads import Uploads
from backend.runtime.engine.handover import newest_of, save
from backend.runtime.engine.jobfile import load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.engine.simulate import simulate
from backend.runtime.snapshot.saved_file import write_saved
from tests.support.live_runtime import ORIGIN_MS, LiveRuntime
from tests.support.runtime_jobs import small_job

_JOB: dict[str, Any] = {
    "name": "orders",
    "seed": 5,
    "config": {
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.unaligned.enabled": True,
        "taskmanager.memory.segment-size": 1024,
    },
    "vertex": [
        {"id": "source", "kind": "source", "parallelism": 2, "rate": 1200, "limit": 600},
        {"id": "work", "kind": "map+sink", "parallelism": 2, "cost_us": 4000},
    ],
    "edge": [{"from": "source", "to": "work", "partitioner": "rebalance"}],
}


def _file(until_us: int = 400_000) -> bytes:
    engine = JobEngine(load_job_document(_JOB))
    engine.run_until(until_us)
    newest = newest_of(engine)
    assert newest is not None
    return write_saved(save(engine, newest))


def _runtime() -> LiveRuntime:
    return LiveRuntime(small_job("aligned", records=None))


async def _uploaded(runtime: LiveRuntime, content: bytes) -> dict[str, Any]:
    answer = await runtime.client.post("/uploads", content=content)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def _refusal(runtime: LiveRuntime, path: str, status: int, **body: Any) -> str:
    answer = await runtime.client.post(path, **body)
    assert answer.status_code == status, answer.text
    (told,) = answer.json()["errors"]
    return str(told)


@pytest.mark.anyio
async def test_a_live_job_continues_the_run_that_saved_the_file_and_both_commit_what_one_run_commits() -> None:
    runtime = _runtime()
    runtime.advance_to(10.0)
    found = await _uploaded(runtime, _file())
    assert (found["job"], found["kind"]) == ("orders", "unaligned checkpoint")
    job = await runtime.start(savepointPath=found["location"], job=_JOB)
    job.advance_to(14.0)
    restored = (await job.get("/checkpoints"))["latest"]["restored"]
    assert (restored["id"], restored["external_path"]) == (found["id"], found["location"])
    told = await job.get("")
    assert (told["state"], told["start-time"]) == ("FINISHED", ORIGIN_MS + 10_000), "the job began when it was started"
    assert told["now"] == ORIGIN_MS + 14_000, "it keeps up with the clock"
    whole = simulate(load_job_document(_JOB), duration_us=4_000_000).to_json()
    ledger = job.job.engine._engine.ledger  # type: ignore[attr-defined]
    assert (ledger.committed_count, f"{ledger.folded:016x}") == (whole["committed_records"], whole["committed_hash"])


@pytest.mark.anyio
async def test_a_file_that_no_job_writes_is_refused_in_one_sentence(tmp_path: Path) -> None:
    runtime, sound, ran = _runtime(), _file(), tmp_path / "ran"

    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (ran,))

    assert "is not a checkpoint that" in await _refusal(runtime, "/uploads", 400, content=pickle.dumps(Hostile()))
    assert "is not a checkpoint that" in await _refusal(runtime, "/uploads", 400, content=b"")
    assert "is cut off" in await _refusal(runtime, "/uploads", 400, content=sound[:-9])
    assert "is damaged" in await _refusal(runtime, "/uploads", 400, content=sound[:-9] + b"x" * 9)
    assert not ran.exists()


@pytest.mark.anyio
async def test_a_file_that_is_too_large_is_refused_before_all_of_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "UPLOAD_MAX_BYTES", 1_000)
    assert "larger than 1000 bytes" in await _refusal(_runtime(), "/uploads", 413, content=b"x" * 1_001)


@pytest.mark.anyio
async def test_a_start_from_an_upload_needs_a_job_that_its_checkpoint_fits() -> None:
    runtime = _runtime()
    path = (await _uploaded(runtime, _file()))["location"]
    assert "an uploaded checkpoint has none" in await _refusal(runtime, "/jobs", 400, json={"savepointPath": path})
    other = _JOB | {"edge": [{"from": "source", "to": "work", "partitioner": "hash"}]}
    assert "GR-2" in await _refusal(runtime, "/jobs", 400, json={"savepointPath": path, "job": other})
    unknown = path[:-1] + ("0" if path[-1] != "0" else "1")
    told = await _refusal(runtime, "/jobs", 404, json={"savepointPath": unknown, "job": _JOB})
    assert "uploaded checkpoint" in told


@pytest.mark.anyio
async def test_a_claimed_upload_belongs_to_its_job() -> None:
    runtime = _runtime()
    path = (await _uploaded(runtime, _file()))["location"]
    await runtime.start(savepointPath=path, job=_JOB, claimMode="CLAIM")
    again = {"savepointPath": path, "job": _JOB | {"name": "again"}}
    assert "uploaded checkpoint" in await _refusal(runtime, "/jobs", 404, json=again)


def test_only_the_newest_uploads_are_kept_and_one_that_comes_again_is_the_newest() -> None:
    uploads = Uploads()
    files = [_file(at_us) for at_us in (300_000, 310_000, 320_000, 330_000, 340_000)]
    first, *others = [str(uploads.add(each)["location"]) for each in files[:4]]
    assert uploads.add(files[0])["location"] == first
    uploads.add(files[4])
    assert uploads.get(first).job == "orders"
    with pytest.raises(UnknownEntityError):
        uploads.get(others[0])
