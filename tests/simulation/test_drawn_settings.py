"""Goal: no combination of buffers, costs, timeouts, caps, parallelism, faults and lost messages breaks the guarantees.

Method: one seed chooses all settings, including timeouts that no checkpoint can meet. After some time, the
settings that prevent success are relaxed. The job must then commit every record once, whatever was lost
before, and complete checkpoints. Invariants are checked throughout (``tests/support/invariants.py``). To
replay one run: ``drawn_job(17)``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.runtime.core.prng import Stream
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.faults import MESSAGE_POINTS
from backend.runtime.job.graph import FaultAction, FaultSpec
from tests.support.invariants import Watch
from tests.support.runtime_jobs import PROTOCOLS, points_of

_SEEDS = 100
_RELAXED_FROM_US = 1_000_000
_RELAXED = {
    "execution.checkpointing.timeout": "2 s",
    "execution.checkpointing.tolerable-failed-checkpoints": "unlimited",
    "runtime.inflight-cap.on-cap": "wait",
}
_RECORDS = 150


def drawn_job(seed: int) -> JobSpec:
    """Return the job that the seed determines."""
    draws = Stream(seed, "drawn settings")

    def one_of(*values: object) -> Any:
        return values[draws.below(len(values))]

    protocol = one_of(*PROTOCOLS)
    settings: dict[str, object] = {
        "execution.checkpointing.interval": one_of("20 ms", "50 ms", "100 ms"),
        "execution.checkpointing.timeout": one_of("40 ms", "120 ms", "1 s"),
        "execution.checkpointing.min-pause": one_of("0 ms", "0 ms", "30 ms"),
        "execution.checkpointing.tolerable-failed-checkpoints": one_of("unlimited", "unlimited", 3),
        "execution.checkpointing.num-retained": one_of(1, 2),
        "taskmanager.memory.segment-size": one_of(256, 512, 2048),
        "taskmanager.network.memory.buffers-per-channel": one_of(0, 1, 3),
        "taskmanager.network.memory.floating-buffers-per-gate": one_of(1, 2, 8),
        "taskmanager.network.memory.max-buffers-per-channel": one_of(1, 2, 10),
        "taskmanager.network.memory.max-overdraft-buffers-per-gate": one_of(0, 1, 5),
        "execution.buffer-timeout.interval": one_of("1 ms", "20 ms", "100 ms"),
        "restart-strategy.fixed-delay.delay": one_of("0 ms", "10 ms"),
        "runtime.task-managers": one_of(1, 2, 3),
        "runtime.fuzz-schedule": seed,
        "runtime.cost.link-latency": one_of("10 us", "200 us", "5 ms"),
        "runtime.cost.sync": one_of("0 ms", "5 ms"),
        "runtime.inflight-cap.stall": "100 ms",
    }
    settings |= PROTOCOLS[protocol]
    if protocol == "aligned" and settings["execution.checkpointing.min-pause"] == "0 ms":
        settings["execution.checkpointing.max-concurrent-checkpoints"] = one_of(1, 3)
    if protocol == "aligned-timeout":
        settings["execution.checkpointing.aligned-checkpoint-timeout"] = one_of("1 ms", "10 ms", "60 ms", "200 ms")
    if protocol == "capped":
        settings["runtime.inflight-cap.bytes"] = one_of(0, 500, 3_000, 9_000)
        settings["runtime.inflight-cap.on-cap"] = one_of("wait", "wait", "decline")
    if protocol != "aligned":
        settings["execution.checkpointing.unaligned.forced"] = one_of(True, False)
    settings |= _drawn_options(seed)
    size = one_of(40, 100, 600, 1500)
    width = one_of(1, 2, 3, 4)
    common: dict[str, Any] = {"parallelism": width, "record_bytes": size}
    vertices: list[dict[str, Any]] = [
        {"id": "source", "kind": "source", "keys": 12, "limit": _RECORDS, "cost_us": 100, **common},
        {"id": "map", "kind": "map", "cost_us": one_of(50, 400), **common},
        {"id": "keyed", "kind": "keyed+sink", "cost_us": one_of(300, 2000), **common, "parallelism": one_of(1, 2, 3)},
    ]
    edges = [
        {"from": "source", "to": "map", "partitioner": one_of("rebalance", "forward", "shuffle", "rescale", "global")},
        {"from": "map", "to": "keyed", "partitioner": "hash"},
    ]
    store = {"latency": one_of("1 ms", "5 ms", "80 ms"), "bytes_per_s": "10 mb"}
    savepoints = _drawn_savepoints(seed)
    # These choices have a random stream of their own, so that they do not change the other choices of the seed.
    more = Stream(seed, "drawn operators")
    vertices[0] |= (
        {},
        {"out_of_orderness": "30 ms", "idle_timeout": "5 ms"},
        {"rate": 400, "burst_period": "200 ms", "burst_ratio": 0.2, "idle_timeout": "20 ms"},
        {"legacy": True, "nonblocking_hook": more.below(2) == 1},
    )[more.below(4)]
    if more.below(3) == 0:
        # A vertex with timers counts a record when it leaves, not when it arrives. The expected result is the same,
        # but the state grows and shrinks.
        hold = ("0 ms", "10 ms", "1 h")[more.below(3)]
        vertices[2] |= {"kind": "timer+sink", "hold": hold, "timer_cost_us": (0, 300)[more.below(2)]}
        settings["execution.checkpointing.unaligned.interruptible-timers.enabled"] = more.below(2) == 1
    document = {"name": "drawn", "seed": seed, "config": settings, "vertex": vertices, "edge": edges, "store": store}
    document["savepoint"] = savepoints
    points = points_of(protocol)
    plan = [FaultSpec(points[draws.below(len(points))], hit=1 + draws.below(30)) for _ in range(draws.below(5))]
    plan += [
        FaultSpec(
            MESSAGE_POINTS[draws.below(len(MESSAGE_POINTS))],
            hit=1 + draws.below(6),
            action=one_of("drop", "duplicate", "delay"),
            delay_us=one_of(3_000, 50_000, 300_000),
        )
        for _ in range(draws.below(30))
    ]
    plan += [FaultSpec("store.write", hit=1 + draws.below(20), action=FaultAction.ERROR) for _ in range(draws.below(4))]
    return replace(load_job_document(document), faults=tuple(plan))


def _drawn_options(seed: int) -> dict[str, object]:
    """Return options that are off by default.

    They have a random stream of their own, so that they do not change the other choices of the seed.
    """
    draws = Stream(seed, "drawn options")

    def one_of(*values: object) -> Any:
        return values[draws.below(len(values))]

    debloat = "taskmanager.network.memory.buffer-debloat."
    return {
        f"{debloat}enabled": one_of(True, False),
        f"{debloat}target": one_of("2 ms", "30 ms"),
        f"{debloat}period": one_of("5 ms", "50 ms"),
        f"{debloat}samples": one_of(1, 20),
        "taskmanager.memory.min-segment-size": one_of(64, 256),
        "runtime.prioritize-missing": one_of(True, False),
        "runtime.overtake-unflushed": one_of("0 ms", "0 ms", "3 ms"),
        "runtime.align-after-first-barrier": one_of(True, False),
    }


def _drawn_savepoints(seed: int) -> list[dict[str, str]]:
    draws = Stream(seed, "drawn savepoints")
    return [{"at": f"{20 + draws.below(1_500)} ms"} for _ in range(draws.below(6))]


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2, 3, 4))])
def test_no_settings_lose_or_repeat_records_or_stop_the_job(part: int) -> None:
    restores = savepoints = 0
    for seed in range(part, _SEEDS, 5):
        engine = JobEngine(drawn_job(seed), keeps_rows=True)
        watch = Watch(engine, records=_RECORDS)
        watch.run_until(_RELAXED_FROM_US)
        engine.set_config(_RELAXED)
        watch.run_to_the_end(most_us=40_000_000)
        restores += engine.coordinator.restored_count
        savepoints += len(engine.coordinator.savepoints)
        assert engine.coordinator.completed_count > 0, f"seed {seed}"
    assert restores > 5
    assert savepoints > 5
