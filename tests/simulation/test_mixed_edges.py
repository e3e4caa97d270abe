"""Goal: the guarantees hold for all kinds of edges, and barriers overtake data only where allowed (OPT-5 to OPT-7).

Method: one job has two sources of unequal parallelism, a forward edge and a rescale edge. It joins a shuffled
and a broadcast input, has a keyed stage after a fan-out, and a sink after another shuffle. Seeds choose
crashes, schedules and task managers. The job must commit each record as often as a run without faults, and
count each key in order. No invariant may be broken in the run (``tests/support/invariants.py``).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from backend.runtime.core.elements import Alignment
from backend.runtime.core.prng import Stream
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultAction, FaultSpec
from tests.support.invariants import run_to_the_end
from tests.support.runtime_jobs import PROTOCOLS, points_of

_LIMITS = {"clicks": 120, "rules": 12}
# Broadcast sends each rule to all three join subtasks, and the fan-out of the join doubles every record.
_COPIES = {"clicks": 2, "rules": 6}
_EXPECTED = sum(_LIMITS[source] * count for source, count in _COPIES.items())
_POINTWISE, _BROADCAST = (0, 1), 3


def _job(
    protocol: str, *, seed: int, plan: tuple[FaultSpec, ...] = (), config: dict[str, object] | None = None
) -> JobSpec:
    settings: dict[str, object] = {
        "execution.checkpointing.interval": "60 ms",
        "execution.checkpointing.timeout": "2 s",
        "execution.checkpointing.tolerable-failed-checkpoints": "unlimited",
        "taskmanager.memory.segment-size": 256,
        "restart-strategy.fixed-delay.delay": "10 ms",
        "runtime.task-managers": 1 + seed % 3,
        "runtime.fuzz-schedule": seed,
    }
    vertices: list[dict[str, Any]] = [
        {"id": "clicks", "kind": "source", "parallelism": 2, "limit": _LIMITS["clicks"], "keys": 9, "record_bytes": 90},
        {"id": "rules", "kind": "source", "limit": _LIMITS["rules"], "keys": 9, "rate": 60, "record_bytes": 60},
        {"id": "parse", "kind": "map", "parallelism": 2, "cost_us": 300},
        {"id": "widen", "kind": "map", "parallelism": 4, "cost_us": 300},
        {"id": "join", "kind": "map", "parallelism": 3, "cost_us": 500, "fan_out": 2},
        {"id": "keyed", "kind": "keyed", "parallelism": 2, "cost_us": 1500},
        {"id": "out", "kind": "sink", "parallelism": 3, "cost_us": 300},
    ]
    edges = [
        {"from": "clicks", "to": "parse", "partitioner": "forward"},
        {"from": "parse", "to": "widen", "partitioner": "rescale"},
        {"from": "widen", "to": "join", "partitioner": "rebalance"},
        {"from": "rules", "to": "join", "partitioner": "broadcast"},
        {"from": "join", "to": "keyed", "partitioner": "hash"},
        {"from": "keyed", "to": "out", "partitioner": "shuffle"},
    ]
    settings |= PROTOCOLS[protocol] | (config or {})
    document = {"name": "mixed", "seed": seed, "config": settings, "vertex": vertices, "edge": edges}
    document["store"] = {"latency": "4 ms", "bytes_per_s": "10 mb"}
    return replace(load_job_document(document), faults=plan)


@pytest.mark.parametrize("seeds", [7, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_joins_and_pointwise_and_broadcast_edges_lose_and_repeat_nothing(protocol: str, seeds: int) -> None:
    restores = 0
    for seed in range(seeds):
        draws = Stream(seed, "mixed edges")
        points = points_of(protocol)
        plan = [FaultSpec(points[draws.below(len(points))], hit=1 + draws.below(25)) for _ in range(3)]
        if draws.below(2):
            plan += [FaultSpec("rpc.trigger", hit=2, action=FaultAction.DELAY, delay_us=40_000) for _ in range(60)]
        engine = run_to_the_end(_job(protocol, seed=seed, plan=tuple(plan)), records=_EXPECTED, copies=_COPIES)
        restores += engine.coordinator.restored_count
    assert restores > seeds // 3


@pytest.mark.parametrize("protocol", ["unaligned", "aligned-timeout", "capped"])
@pytest.mark.parametrize("is_forced", [False, True])
def test_pointwise_edges_are_overtaken_only_if_forced_and_broadcast_edges_never(protocol: str, is_forced: bool) -> None:
    persisted: Counter[int] = Counter()
    for seed in range(6):
        config: dict[str, object] = {"execution.checkpointing.unaligned.forced": is_forced}
        if protocol == "aligned-timeout":
            config["execution.checkpointing.aligned-checkpoint-timeout"] = "5 ms"
        engine = JobEngine(_job(protocol, seed=seed, config=config))
        for at_us in range(0, 1_500_000, 20_000):
            engine.run_until(at_us)
            newest = engine.coordinator.newest
            if newest is None:
                continue
            for snapshot in newest.snapshots.values():
                for key, data in [*snapshot.channels.inputs.items(), *snapshot.channels.outputs.items()]:
                    persisted[key.edge] += sum(map(len, data))
    join_inputs = (2, _BROADCAST)
    assert not any(persisted[edge] for edge in join_inputs), persisted
    assert any(persisted[edge] for edge in _POINTWISE) == is_forced, persisted
    # Once the join has aligned the barrier, the barrier continues unaligned (OPT-6).
    assert persisted[4] > 0, persisted


def test_a_forced_alignment_blocks_channels_like_any_other() -> None:
    engine = JobEngine(_job("unaligned", seed=1))
    engine.run_until(1_500_000)
    blocked = {
        (e.channel.source, e.channel.target)
        for record in engine.coordinator.history
        for e in engine.barriers(record.id) or ()
        if e.kind.value == "channel_blocked" and e.channel is not None
    }
    assert blocked == {("clicks", "parse"), ("parse", "widen"), ("widen", "join"), ("rules", "join")}
    assert engine.coordinator.history[0].barrier.alignment is Alignment.UNALIGNED


def test_a_tasks_watermark_is_the_lowest_of_its_channels_and_never_goes_back() -> None:
    engine = JobEngine(_job("unaligned", seed=3))
    before: dict[str, int] = {}
    advanced = 0
    for at_us in range(0, 1_000_000, 5_000):
        engine.run_until(at_us)
        for task in engine.tasks:
            if task.source is not None:
                continue
            assert task.watermark_us == min(c.watermark_us for c in task.gate.channels), task.name
            assert task.watermark_us >= before.get(task.name, -1), task.name
            advanced += task.watermark_us > before.get(task.name, -1)
            before[task.name] = task.watermark_us
    assert engine.restart_count == 0
    assert advanced > 10
