"""Tests of links, stores, and data that is read back, under induced faults (runtime.md 7.2, network and storage)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from backend.domain.errors import CorruptCheckpointError
from backend.domain.failure import FailureReason
from backend.runtime.engine.jobfile import load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.faults import POINTS, Faults, corrupted
from backend.runtime.job.graph import FaultAction, FaultSpec
from backend.runtime.snapshot.metadata import StoredCheckpoint, read_checkpoint
from tests.support.runtime_jobs import small_job, two_subtasks_job


def _stored(*, inline_below_bytes: int) -> StoredCheckpoint:
    engine = JobEngine(small_job("unaligned", seed=3))
    engine.run_until(450_000)
    assert engine.coordinator.newest is not None
    return engine.coordinator.newest.stored(engine.env.graph, inline_below_bytes=inline_below_bytes)


@pytest.mark.parametrize("inline_below_bytes", [0, 1 << 20], ids=["files", "inline"])
def test_a_flipped_bit_in_any_part_of_a_checkpoint_is_found(inline_below_bytes: int) -> None:
    stored = _stored(inline_below_bytes=inline_below_bytes)
    parts = set()
    for draw in range(150):
        damaged = StoredCheckpoint(*corrupted(stored.metadata, stored.files, draw=draw))
        assert damaged != stored, f"draw {draw}"
        with pytest.raises(CorruptCheckpointError, match="restore another checkpoint") as caught:
            read_checkpoint(damaged)
        parts.add(caught.value.part)
    assert parts == {"metadata", *(name for name in stored.files if stored.files[name])}
    assert read_checkpoint(stored) == read_checkpoint(StoredCheckpoint(stored.metadata, dict(stored.files)))


def test_a_missing_file_and_a_torn_one_are_found() -> None:
    stored = _stored(inline_below_bytes=0)
    name = next(name for name, data in stored.files.items() if data)
    missing = replace(stored, files={k: v for k, v in stored.files.items() if k != name})
    torn = replace(stored, files={**stored.files, name: stored.files[name][:-1]})
    half = replace(stored, metadata=stored.metadata[: len(stored.metadata) // 2])
    for broken, part in ((missing, name), (torn, name), (half, "metadata")):
        with pytest.raises(CorruptCheckpointError) as caught:
            read_checkpoint(broken)
        assert caught.value.part == part


def test_a_job_whose_checkpoint_is_damaged_ends_with_the_reason() -> None:
    plan = (FaultSpec("task.in-sync", hit=20), FaultSpec("store.read", action=FaultAction.CORRUPT))
    engine = JobEngine(two_subtasks_job(plan=plan), keeps_rows=True)
    engine.run_until(5_000_000)
    assert engine.status == "FAILED"
    assert engine.exceptions[0].name == "CorruptCheckpointError"
    assert "CK-3" in engine.exceptions[0].message
    assert engine.ended_at_us is not None
    ended, committed = engine.ended_at_us, engine.ledger.committed_count
    assert 0 < ended < 5_000_000
    savepoint = engine.request_savepoint()
    engine.run_until(9_000_000)
    assert (engine.status, engine.ended_at_us, engine.ledger.committed_count) == ("FAILED", ended, committed)
    assert savepoint.reason is FailureReason.NOT_ALL_TASKS_RUNNING


def test_reading_a_checkpoint_is_retried_if_it_fails() -> None:
    plan = (FaultSpec("task.in-sync", hit=20), FaultSpec("store.read", action=FaultAction.ERROR, times=3))
    engine = JobEngine(two_subtasks_job(plan=plan))
    engine.run_until(5_000_000)
    assert engine.status == "RUNNING"
    assert [e.message for e in engine.exceptions].count("induced failure at store.read") == 3
    assert engine.restart_count == 4
    assert engine.restored_id is not None


def test_a_stalled_store_delays_a_checkpoint_and_an_error_fails_it() -> None:
    slow = FaultSpec("store.write", hit=3, action=FaultAction.DELAY, delay_us=60_000)
    full = FaultSpec("store.write", at_us=1_000_000, action=FaultAction.ERROR, times=10)
    engine = JobEngine(two_subtasks_job(plan=(slow, full), store_ms=5))
    engine.run_until(3_000_000)
    took = {r.id: r.end_to_end_us for r in engine.coordinator.history if r.failed_at_us is None}
    assert [k for k, us in took.items() if us is not None and us > 60_000] == [2]
    failed = [r for r in engine.coordinator.history if r.failed_at_us is not None]
    assert {r.reason for r in failed} == {FailureReason.ASYNC_FAILURE}
    assert 5 <= len(failed) <= 10
    assert engine.env.faults.struck["store.write"] == 11


def _arrivals(action: str | None) -> list[int]:
    """Return the times in microseconds at which records of a slow source arrive at the other task manager.

    ``action`` is the fault that one message on the link suffers, or None for a run without a fault.
    """
    plan = () if action is None else (FaultSpec("link.send", hit=20, action=action, delay_us=200_000),)
    config = {
        "runtime.task-managers": 2,
        "execution.checkpointing.interval": "1 h",
        "execution.buffer-timeout.interval": "10 ms",
    }
    vertices = [{"id": "a", "kind": "source", "rate": 200}, {"id": "b", "kind": "sink", "parallelism": 2}]
    edges = [{"from": "a", "to": "b", "partitioner": "rebalance"}]
    spec = replace(
        load_job_document({"name": "link", "config": config, "vertex": vertices, "edge": edges}), faults=plan
    )
    engine = JobEngine(spec)
    seen, times = 0, []
    for at_us in range(0, 1_000_000, 1_000):
        engine.run_until(at_us)
        if (now := engine.tasks[2].records_in) > seen:
            seen = now
            times.append(at_us)
    return times


def test_a_stalled_link_delays_everything_and_loses_nothing() -> None:
    usual, delayed, stalled = _arrivals(None), _arrivals("delay"), _arrivals("stall")
    gap = max(b - a for a, b in itertools.pairwise(usual))
    for held in (delayed, stalled):
        longest = max(b - a for a, b in itertools.pairwise(held))
        assert gap < 50_000 < 190_000 <= longest <= gap + 200_000
        assert held[-1] >= usual[-1] - gap


def test_a_fault_strikes_as_many_times_in_a_row_as_configured() -> None:
    faults = Faults([FaultSpec("store.write", hit=3, action=FaultAction.ERROR, times=2)], lambda: 0)
    assert [faults.message("store.write") is not None for _ in range(6)] == [False, False, True, True, False, False]
    assert not faults.concerns("link.send")
    assert len(POINTS) == len(set(POINTS))
