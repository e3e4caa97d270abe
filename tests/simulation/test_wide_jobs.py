"""Goal: a job of ten vertices with 32 subtasks and all-to-all edges runs within the time of a test (T-25).

Method: over nine thousand channels carry records and checkpoints, and the run models only record sizes. Every
record must be committed once, and a checkpoint must complete at all 320 subtasks. The test prints the speed in
records per second of wall-clock time (``-rP``).
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest

from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine

_VERTICES, _WIDTH, _RECORDS = 10, 32, 1_500


def _wide() -> JobSpec:
    names = ["source", *(f"map-{n}" for n in range(1, _VERTICES - 1)), "keyed"]
    vertices: list[dict[str, Any]] = [
        {"id": name, "kind": "map", "parallelism": _WIDTH, "cost_us": 50, "record_bytes": 100} for name in names
    ]
    vertices[0] |= {"kind": "source", "limit": _RECORDS, "rate": 3_000}
    vertices[-1] |= {"kind": "keyed+sink"}
    document = {
        "name": "wide",
        "seed": 1,
        "config": {
            "execution.checkpointing.interval": "400 ms",
            "execution.checkpointing.min-pause": "400 ms",
            "execution.checkpointing.unaligned.enabled": True,
            "runtime.task-managers": 8,
        },
        "vertex": vertices,
        "edge": [{"from": a, "to": b, "partitioner": "hash"} for a, b in pairwise(names)],
    }
    return load_job_document(document)


@pytest.mark.slow
def test_ten_vertices_of_32_subtasks_run() -> None:
    began = time.perf_counter()
    engine = JobEngine(_wide(), is_size_only=True)
    while engine.ledger.committed_count < _RECORDS and engine.now_us < 20_000_000:
        engine.run_until(engine.now_us + 100_000)
    took_s = time.perf_counter() - began
    assert len(engine.tasks) == _VERTICES * _WIDTH
    assert sum(len(task.gate.channels) for task in engine.tasks) == (_VERTICES - 1) * _WIDTH**2
    assert engine.ledger.committed_count == _RECORDS
    newest = engine.coordinator.newest
    assert newest is not None
    assert len(newest.record.acks) == _VERTICES * _WIDTH
    completed = engine.coordinator.completed_count
    hops = _RECORDS * _VERTICES / took_s
    print(f"{_RECORDS / took_s:.0f} records/s, {hops:.0f} of a vertex, with {completed} checkpoints, in {took_s:.1f} s")
