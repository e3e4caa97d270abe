"""Jobs that restart at another parallelism with data in flight, and checks of their output."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from backend.runtime.core.elements import ORIGIN_SHIFT
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultSpec
from tests.support.invariants import Watch
from tests.support.runtime_jobs import PROTOCOLS, exactly_once_violations

RECORDS = 260
TARGETS = ((1, 2), (2, 1), (2, 3), (3, 2), (4, 10), (10, 4), (3, 3))
"""Parallelism of the map (before, after) (RS-13). In the last entry, the map does not change, but its neighbours do."""
MODES = (*PROTOCOLS, "savepoint")
"""The kinds of restarts: from a checkpoint of a protocol, or from a savepoint of a job with unaligned checkpoints."""
PARTITIONERS: Mapping[str, dict[str, str]] = {
    "hash": {"partitioner": "hash", "hash_by": "origin"},
    "rebalance": {"partitioner": "rebalance"},
    "shuffle": {"partitioner": "shuffle"},
    "global": {"partitioner": "global"},
}


def rescaled_job(
    mode: str,
    partitioner: str,
    parallelism: tuple[int, int, int],
    *,
    seed: int,
    plan: tuple[FaultSpec, ...] = (),
    config: dict[str, object] | None = None,
    keyed: dict[str, object] | None = None,
    watermark_interval_ms: int = 20,
    record_bytes: int | None = None,
    records: int = RECORDS,
) -> JobSpec:
    """Build a job in which data queues up on both edges.

    The vertices are sources, a map that follows the partitioner, and a slow keyed stage with the sink.
    """
    settings: dict[str, object] = {
        "execution.checkpointing.interval": "60 ms",
        "execution.checkpointing.timeout": "3 s",
        "execution.checkpointing.tolerable-failed-checkpoints": "unlimited",
        "taskmanager.memory.segment-size": 512,
        "restart-strategy.fixed-delay.delay": "10 ms",
        "runtime.task-managers": 1 + seed % 3,
        "runtime.fuzz-schedule": seed,
        "runtime.inflight-cap.stall": "200 ms",
    }
    settings |= PROTOCOLS[{"savepoint": "unaligned", "at-least-once": "aligned"}.get(mode, mode)]
    if mode == "at-least-once":
        settings["execution.checkpointing.mode"] = "AT_LEAST_ONCE"
    if mode == "aligned-timeout":
        settings["execution.checkpointing.aligned-checkpoint-timeout"] = "10 ms"
    source, mapped, last = parallelism
    # The total speed of the map does not depend on its parallelism. With `global`, only one subtask gets records.
    map_us = 900 if partitioner == "global" else 900 * mapped
    document: dict[str, Any] = {
        "name": f"rescaled-{mode}",
        "seed": seed,
        "config": settings | (config or {}),
        "vertex": [
            {"id": "source", "kind": "source", "parallelism": source, "keys": 16, "limit": records, "cost_us": 50},
            {"id": "map", "kind": "map", "parallelism": mapped, "cost_us": map_us},
            {"id": "keyed", "kind": "keyed+sink", "parallelism": last, "cost_us": 1300 * last} | (keyed or {}),
        ],
        "edge": [
            {"from": "source", "to": "map"} | PARTITIONERS[partitioner],
            {"from": "map", "to": "keyed", "partitioner": "hash"},
        ],
        "store": {"latency": "3 ms", "bytes_per_s": "20 mb"},
    }
    document["vertex"][0]["watermark_interval_ms"] = watermark_interval_ms
    document["vertex"][0]["record_bytes"] = record_bytes or (60, 240, 1300)[seed % 3]
    return replace(load_job_document(document), faults=plan)


def run_rescaled(spec: JobSpec, wanted: Mapping[str, int], *, from_savepoint: bool, at_us: int = 200_000) -> JobEngine:
    """Run the job, restart it at the parallelism ``wanted``, and run it to the end under all invariants."""
    engine = JobEngine(spec, keeps_rows=True)
    watch = Watch(engine, records=RECORDS)
    watch.run_until(at_us)
    while engine.coordinator.newest is None and not from_savepoint:
        watch.run_until(engine.now_us + 20_000)
    engine.rescale(wanted, from_savepoint=from_savepoint)
    watch.run_to_the_end(most_us=30_000_000)
    return engine


def finish(engine: JobEngine, most_us: int = 30_000_000) -> None:
    """Run until every record is committed and some more checkpoints have completed."""
    while engine.ledger.committed_count < RECORDS and engine.now_us < most_us:
        engine.run_until(engine.now_us + 50_000)
    engine.run_until(engine.now_us + 150_000)


def filtered(engine: JobEngine) -> int:
    """Return how many duplicate records the last restart filtered out."""
    return sum(one.records_filtered for one in engine.restarts[-1].subtasks.values())


def violations(engine: JobEngine) -> list[str]:
    """Return the violations in a rescaled job: in its ledger (INV-4, INV-5), buffers (INV-8) and checkpoint ids."""
    found = exactly_once_violations(engine.ledger.rows, RECORDS)
    if engine.ledger.lost:
        found.append(f"transactions lost: {engine.ledger.lost}")
    for task in engine.tasks:
        if any(channel.virtual is not None or channel.recovered for channel in task.gate.channels):
            found.append(f"{task.name} is still reading old channels")
        if engine.ledger.committed_count >= RECORDS:
            queued = sum(output.queued[0] for output in task.outputs)
            held = sum(output.pool.requested for output in task.outputs)
            if queued == 0 and held and not any(c.queued[0] for t in engine.tasks for c in t.gate.channels):
                found.append(f"{task.name} holds {held} buffers of nothing")
    ids = [record.id for record in engine.coordinator.history]
    if ids != sorted(ids, reverse=True):
        found.append(f"ids {ids}")
    return found


def out_of_order(engine: JobEngine) -> list[str]:
    """Return the keys whose records of one split were not counted in the order in which they were sent (INV-1)."""
    by_stream: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for row in engine.ledger.rows:
        by_stream[row.key, row.origin >> ORIGIN_SHIFT].append((row.value, row.origin))
    return [
        f"key {key} of split {split}"
        for (key, split), rows in by_stream.items()
        if [origin for _, origin in sorted(rows)] != sorted(origin for _, origin in rows)
    ]
