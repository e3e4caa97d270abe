"""Tests of the trace of a checkpoint: its rows on the wire, their size, and a trace that cannot be read."""

from __future__ import annotations

from dataclasses import asdict

import orjson
import pytest

from backend.domain.errors import TargetProtocolError
from backend.domain.ids import target_id
from backend.live import barrier_json
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.measures import CheckpointState
from collectors.flink.collector import FlinkCollector
from collectors.flink.document import Document
from collectors.flink.parse_metrics import barriers
from tests.support.runtime_jobs import small_job
from tests.support.simulated_target import SimulatedTarget

_POSITIONS = {"sent_before_snapshot", "processed_before_snapshot", "restored_before_snapshot"}


def _trace(protocol, parallelism=4):
    engine = JobEngine(small_job(protocol, records=None, parallelism=parallelism))
    engine.run_until(1_500_000)
    record = next(r for r in engine.coordinator.history if r.state is CheckpointState.COMPLETED)
    return engine.barriers(record.id)


def _read(rows):
    return barriers(Document(orjson.loads(orjson.dumps(rows)), "http://runtime"))


@pytest.mark.parametrize("protocol", ["aligned", "unaligned"])
def test_the_collector_reads_exactly_the_events_that_the_runtime_logged(protocol):
    events = _trace(protocol)
    assert sum(e.kind in _POSITIONS for e in events) >= 64
    assert sorted(_read(barrier_json.barriers(events)), key=repr) == sorted(events, key=repr)


@pytest.mark.parametrize("protocol", ["aligned", "unaligned"])
def test_a_trace_with_positions_is_smaller_than_one_row_for_each_other_event(protocol):
    events = _trace(protocol, parallelism=8)
    # Before snapshots had positions, a trace was one object with all fields for each event.
    before = [asdict(e) for e in events if e.kind not in _POSITIONS]
    assert len(orjson.dumps(barrier_json.barriers(events))) < len(orjson.dumps(before))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"positions": [[0, 1]]}, "two subtasks and a number of bytes"),
        ({"positions": [[0, 1, -1]]}, "a count is needed"),
        ({"positions": [5]}, "an array is needed"),
        ({"positions": {}}, "an array is needed"),
        ({"positions": [[0, 0, 0]] * 200_001}, "exceed 200000 barrier events"),
        ({"between": ["a"]}, "a pair of vertices"),
        ({"between": None}, "no 'between'"),
    ],
)
def test_malformed_positions_are_one_specific_error(change, words):
    row = {
        "kind": "sent_before_snapshot", "vertex": "a", "subtask": 0, "at_us": 1, "lamport": 1, "between": ["a", "b"],
        "positions": [[0, 1, 5]],
    }  # fmt: skip
    assert len(_read([row])) == 1
    with pytest.raises(TargetProtocolError, match=words):
        _read([row | change])


class _Limited(SimulatedTarget):
    """A target whose traces are larger than the largest response that is read."""

    async def get(self, path):
        if path.endswith("/barriers"):
            raise TargetProtocolError(url=self.url + path, reason="the answer is larger than 8 MiB")
        return await super().get(path)


async def _polled(kind):
    """Return what ten polls of a job read, some of them during a checkpoint."""
    async with kind([small_job("aligned", records=None)]) as target:
        collector = FlinkCollector(target, target_id=target_id(url=target.url), monotonic_s=target.monotonic_s)
        found = []
        for _ in range(10):
            await target.sleep(0.083)
            (job,) = (await collector.collect(target.now())).jobs
            found.append(job)
    return found


@pytest.mark.anyio
async def test_a_trace_that_is_too_large_counts_as_not_read_and_nothing_else_is_lost():
    whole, limited = await _polled(SimulatedTarget), await _polled(_Limited)
    assert any(job.progress for job in whole)
    assert any(c.details for job in whole for c in job.checkpoints)
    for one, other in zip(whole, limited, strict=True):
        assert other.checkpoints == one.checkpoints
        assert other.progress == one.progress
        assert other.pressure == one.pressure
        assert not any(events for _, events in other.barriers)
        assert bool(other.problems) == bool(one.barriers)
        # For each ended checkpoint, an entry without events replaces the events that were read while it was open.
        ended = {c.header.checkpoint_id for c in one.checkpoints if c.header.status.is_terminal and c.details}
        assert {checkpoint_id for checkpoint_id, _ in other.barriers} == ended
        assert all("were not read" in p and "larger than 8 MiB" in p for p in other.problems)
