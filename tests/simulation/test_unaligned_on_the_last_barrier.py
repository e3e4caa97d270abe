"""Unaligned checkpoints that start with the last barrier: what they persist and how long they take (UL-1 to UL-5).

The protocol also runs in all tests of ``PROTOCOLS``: crashes, lost messages, rescales, savepoints, measurements.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.measures import MeasuredCheckpoint, SubtaskCheckpoint
from tests.support.runtime_jobs import late_triggers, small_job

_DRAIN: dict[str, object] = {"runtime.unaligned.front-input": "drain"}


def _first(protocol: str, seed: int, more: dict[str, object]) -> MeasuredCheckpoint:
    """Return the first completed checkpoint of a job. Until its trigger, the job runs the same under every protocol."""
    spec = small_job(
        protocol,
        seed=seed,
        task_managers=2,
        record_bytes=(60, 120, 700, 1500)[seed % 4],
        parallelism=2 + seed % 2,
        records=None,
        plan=tuple(late_triggers()),
        config=more,
    )
    engine = JobEngine(spec, is_size_only=True)
    while not engine.coordinator.all_completed:
        engine.run_until(engine.now_us + 10_000)
    return engine.coordinator.all_completed[0]


def _input_bytes(measured: SubtaskCheckpoint) -> int:
    return sum(persisted.size_bytes for persisted in measured.inputs.values())


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_task_persists_at_most_the_input_of_an_unaligned_checkpoint_and_completes_no_earlier(seed: int) -> None:
    first, last, drained = (
        _first(protocol, seed, more)
        for protocol, more in (("unaligned", {}), ("last-barrier", {}), ("last-barrier", _DRAIN))
    )
    sizes = [
        [_input_bytes(record.acks[key].measured) for key in sorted(first.acks) if key[0] == 1]
        for record in (first, last, drained)
    ]
    # The map is the first task behind the sources, so that its barriers arrive at the same times in all three runs.
    assert all(a >= max(b, c) for a, b, c in zip(*sizes, strict=True)), f"seed {seed}: {sizes}"
    ends = [
        [record.acks[key].measured for key in sorted(first.acks) if key[0] == 1] for record in (first, last, drained)
    ]
    for uc, ul, drain in zip(*ends, strict=True):
        assert uc.first_barrier_us == ul.first_barrier_us == drain.first_barrier_us, f"seed {seed}"
        assert uc.before_snapshot_us <= ul.before_snapshot_us <= drain.before_snapshot_us, f"seed {seed}"
        assert ul.before_snapshot_us >= (ul.alignment_us or 0), f"seed {seed}: a snapshot before the last barrier"


def _flat_map(fan_out: int, settings: dict[str, object]) -> JobSpec:
    common: dict[str, Any] = {"parallelism": 2, "record_bytes": 200}
    document = {
        "name": "flat-map",
        "config": {
            "execution.checkpointing.interval": "200 ms",
            "execution.checkpointing.unaligned.enabled": True,
            "taskmanager.memory.segment-size": 2048,
            "runtime.task-managers": 2,
            **settings,
        },
        "vertex": [
            {"id": "source", "kind": "source", "keys": 50, "cost_us": 50, **common},
            {"id": "flat-map", "kind": "map", "cost_us": 300, "fan_out": fan_out, **common},
            {"id": "sink", "kind": "keyed+sink", "cost_us": 200, **common},
        ],
        "edge": [
            {"from": "source", "to": "flat-map", "partitioner": "rebalance"},
            {"from": "flat-map", "to": "sink", "partitioner": "hash"},
        ],
        "store": {"latency": "5 ms", "bytes_per_s": "100 mb"},
    }
    return replace(load_job_document(document), faults=tuple(late_triggers()))


def _means(fan_out: int, settings: dict[str, object]) -> tuple[float, float]:
    """Return the mean persisted bytes and the mean duration in ms of the job's checkpoints."""
    engine = JobEngine(_flat_map(fan_out, settings), is_size_only=True)
    engine.run_until(2_500_000)
    records = list(engine.coordinator.all_completed)
    size = sum(r.persisted_bytes for r in records) / len(records)
    return size, sum(r.end_to_end_us or 0 for r in records) / len(records) / 1000


def test_behind_a_shuffle_a_flat_map_persists_less_and_draining_trades_bytes_for_time() -> None:
    last: dict[str, object] = {"runtime.unaligned.starts-with": "last-barrier"}
    gains = []
    for fan_out in (1, 10):
        sizes, durations = zip(*(_means(fan_out, s) for s in ({}, last, last | _DRAIN)), strict=True)
        assert sizes[0] > sizes[1] > sizes[2], (fan_out, sizes)
        assert durations[2] > durations[0], (fan_out, durations)
        gains.append(sizes[0] / sizes[1])
    # Between the barriers, the flat map turns its input into output, which the barrier then overtakes. Therefore, a
    # larger fan-out makes the gain smaller.
    assert gains[0] > gains[1] > 1
