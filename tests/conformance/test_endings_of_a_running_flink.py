"""Goal: finished tasks, final checkpoints, stops and incremental sizes are those that a real Flink showed in its REST.

``flink_running/ends.json`` has what Flink 1.20.5 and 2.3.0 showed (``benchmarks/fidelity/record_ends.py``). The same
job runs on the live runtime, and the same code reads its REST. Measured times differ with the machine, so the tests
compare the order of events, counts, kinds and statuses, and for sizes a ratio.
"""

from __future__ import annotations

import asyncio
import statistics
from functools import cache
from itertools import pairwise

import pytest

from tests.simulators import fidelity_ends
from tests.simulators.fidelity_ends import RUNS, Ending, EndingCheckpoint, Watch, twin
from tests.support.live_runtime import ORIGIN_MS, LiveRuntime

_STEP_S = 0.5
_SECONDS_MAX = 112
_VERSIONS = {"1.20.5", "2.3.0"}
_SIZE_RATIO = 1.05
"""RocksDB's rows are up to this many times as large as the runtime's: it stores key groups and indexes."""
_MERGED_EVERY = 4


@cache
def _of_flink() -> dict[str, list[Ending]]:
    return fidelity_ends.read()


@cache
def _of_runtime(name: str) -> Ending:
    return asyncio.run(_watched(name))


async def _watched(name: str) -> Ending:
    run = RUNS[name]
    live = LiveRuntime(twin(name, run))
    watch = Watch(live.get)
    for step in range(int(min(run.seconds, _SECONDS_MAX) / _STEP_S)):
        at_s = step * _STEP_S
        live.advance_to(at_s)
        if run.stop_at_s is not None and at_s == run.stop_at_s:
            watch.stopped_ms = ORIGIN_MS + round(at_s * 1000)
            watch.stop_id = await live.trigger("/stop", drain=run.is_drained)
        if await watch.look():
            break
    return watch.ending()


def _all(name: str) -> list[Ending]:
    return [_of_runtime(name), *_of_flink()[name]]


def _after_stop(ending: Ending) -> list[EndingCheckpoint]:
    assert ending.stopped_ms is not None
    return [c for c in ending.checkpoints if c.triggered_ms >= ending.stopped_ms]


def test_every_run_was_recorded_on_both_versions() -> None:
    assert _of_flink().keys() == RUNS.keys()
    assert all({ending.flink for ending in endings} == _VERSIONS for endings in _of_flink().values())


def test_a_bounded_job_finishes_with_a_final_checkpoint_that_is_triggered_at_once() -> None:
    interval_ms = 3000
    for ending in _all("bounded"):
        assert (ending.state, ending.states[-1]) == ("FINISHED", "FINISHED")
        *_, before, final = ending.completed()
        assert final.triggered_ms - before.triggered_ms < interval_ms - 100, "it does not wait for the interval"
        assert final.acknowledged == ((4, 4),) * 3, "every subtask acknowledges it"
        assert final.latest_ack_ms is not None
        assert ending.ended_ms is not None
        assert all(end is not None and end >= final.latest_ack_ms for end in ending.vertex_ends_ms)
        assert ending.ended_ms >= max(end for end in ending.vertex_ends_ms if end is not None)
        assert {c.status for c in ending.checkpoints} == {"COMPLETED"}


def test_a_source_ends_with_the_next_checkpoint_and_counts_as_acknowledged_from_then_on() -> None:
    for ending in _all("bounded-apart"):
        first_ms = ending.vertex_ends_ms[0]
        assert first_ms is not None
        assert ending.ended_ms is not None
        done = ending.completed()
        last_with_it = max(c.triggered_ms for c in done if c.triggered_ms < first_ms)
        later = [c for c in done if c.triggered_ms > first_ms]
        # It ended its data after five seconds, and waited for the end of the next periodic checkpoint.
        assert 5000 <= last_with_it < first_ms
        assert len(later) >= 4
        assert {(c.acknowledged, c.acknowledged_count, c.subtask_count) for c in later} == {(((4, 4),) * 4, 16, 16)}
        assert ending.vertex_ends_ms[0] < min(end for end in ending.vertex_ends_ms[1:] if end is not None)
    rows = [ending.first_subtask for ending in _all("bounded-apart")]
    assert rows[0] == rows[1] == rows[2], "a finished subtask is shown as complete, with only zeros"


@pytest.mark.parametrize("name", [name for name in RUNS if name.startswith("stop")])
def test_a_stop_completes_one_savepoint_and_fails_what_was_pending(name: str) -> None:
    for ending in _all(name):
        assert (ending.state, ending.stop, ending.has_savepoint) == ("FINISHED", "COMPLETED", True)
        savepoint, *others = _after_stop(ending)
        assert (savepoint.kind, savepoint.is_savepoint, savepoint.status) == ("SYNC_SAVEPOINT", True, "COMPLETED")
        assert savepoint.acknowledged_count == savepoint.subtask_count == 12
        assert savepoint.latest_ack_ms is not None
        assert ending.ended_ms is not None
        assert ending.ended_ms >= savepoint.latest_ack_ms
        before = ending.checkpoints[savepoint.checkpoint_id - 2]
        if before.status == "FAILED":
            assert before.failure_message == "Checkpoint Coordinator is suspending."
        # With drain, Flink triggers a final checkpoint when all tasks are gone (PROTOCOL.md, SV-3).
        is_draining_flink = RUNS[name].is_drained and ending.flink != ""
        assert [c.status for c in others] == (["FAILED"] if is_draining_flink else [])


def test_a_checkpoint_that_is_pending_when_a_job_stops_fails_on_both() -> None:
    for name in ("stop-full-queues", "stop-full-queues-with-drain"):
        for ending in _of_flink()[name]:
            assert any(c.failure_message == "Checkpoint Coordinator is suspending." for c in ending.checkpoints)
    # On the runtime the interval begins at another time, so a checkpoint is pending in one of the runs at least.
    ours = [c.status for c in _of_runtime("stop-full-queues").checkpoints]
    assert ours[-2:] == ["FAILED", "COMPLETED"]


def _is_merged(checkpoint: EndingCheckpoint) -> bool:
    """Return whether the checkpoint wrote all files that it refers to, because they were just merged."""
    return checkpoint.checkpointed_bytes == checkpoint.state_bytes


def test_incremental_checkpoints_write_what_rocksdb_writes() -> None:
    ours = _of_runtime("rocksdb-incremental").completed()
    for ending in _of_flink()["rocksdb-incremental"]:
        theirs = [c for c in ending.completed() if c.checkpointed_bytes > 100_000]
        # The first checkpoint is triggered at another time after the start, so the states differ in the first minute.
        pairs = list(zip(theirs, ours, strict=False))[12:]
        assert len(pairs) >= 6
        for flink, runtime in pairs:
            assert (flink.checkpointed_bytes == flink.state_bytes) == (
                runtime.checkpointed_bytes == runtime.state_bytes
            )
        for measure in ("checkpointed_bytes", "state_bytes"):
            ratios = [getattr(flink, measure) / getattr(runtime, measure) for flink, runtime in pairs]
            assert 1 <= statistics.median(ratios) <= _SIZE_RATIO, (ending.flink, measure, ratios)


def test_with_few_changes_every_fourth_checkpoint_writes_the_whole_state_again() -> None:
    for ending in _of_flink()["rocksdb-little-changes"]:
        steady = ending.completed()[8:]
        merged = [n for n, c in enumerate(steady) if _is_merged(c)]
        assert {b - a for a, b in pairwise(merged)} == {_MERGED_EVERY}
        others = [c.checkpointed_bytes / c.state_bytes for n, c in enumerate(steady) if n not in merged]
        assert max(others) < 0.02


def test_full_checkpoints_of_the_runtime_are_as_large_as_those_of_a_heap_backend() -> None:
    ours = _of_runtime("hashmap").completed()
    for ending in _of_flink()["hashmap"]:
        pairs = list(zip(ending.completed(), ours, strict=False))[12:]
        ratios = [flink.checkpointed_bytes / runtime.checkpointed_bytes for flink, runtime in pairs]
        assert 0.95 <= statistics.median(ratios) <= 1.05, (ending.flink, ratios)
