"""Goal: steps that are planned ahead give the same results as steps that each run as an event (DET-4, INV-12).

Method: each seed chooses a job with a protocol, partitioners, segments and crashes. Its sources may have a
rate, and its costs put many steps at one instant. Each job runs once with every step as an event, and once
with steps planned ahead, and is observed in the middle of plans. To replay one run: ``drawn_ahead(17)``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from backend.runtime.coordinator.rescales import RescaleSpec
from backend.runtime.core.prng import Stream
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultSpec
from backend.runtime.network.channel import InputChannel
from backend.runtime.task.running_ahead import RunningAhead
from backend.runtime.task.task import Task
from tests.support.observed_runs import observed
from tests.support.rescaled_jobs import rescaled_job
from tests.support.runtime_jobs import PROTOCOLS, drawn_run, points_of

_AT_LEAST_ONCE = {"execution.checkpointing.mode": "AT_LEAST_ONCE"}


def drawn_ahead(seed: int) -> JobSpec:
    """Return the job that the seed determines."""
    draws = Stream(seed, "running ahead")

    def one_of(*values: Any) -> Any:
        return values[draws.below(len(values))]

    protocol = one_of(*PROTOCOLS)
    settings: dict[str, object] = {
        "execution.checkpointing.interval": one_of("40 ms", "100 ms"),
        "execution.checkpointing.tolerable-failed-checkpoints": "unlimited",
        "execution.checkpointing.timeout": one_of("90 ms", "2 s"),
        "taskmanager.memory.segment-size": one_of(512, 2048, 8192),
        "taskmanager.network.memory.buffer-debloat.enabled": one_of(False, True),
        "taskmanager.network.memory.max-overdraft-buffers-per-gate": one_of(0, 5),
        "execution.buffer-timeout.interval": one_of("2 ms", "20 ms", "100 ms"),
        "restart-strategy.fixed-delay.delay": "10 ms",
        "runtime.task-managers": one_of(1, 2, 3),
        "runtime.cost.link-latency": one_of("10 us", "200 us"),
        "runtime.inflight-cap.stall": "100 ms",
    }
    settings |= PROTOCOLS[protocol] | one_of({}, {}, {}, _AT_LEAST_ONCE if protocol == "aligned" else {})
    # The costs are multiples of each other, so that many steps take place at the same instant.
    cost_us = one_of(50, 100)
    common = {"parallelism": one_of(2, 3), "record_bytes": one_of(64, 120, 700)}
    source = {"id": "source", "kind": "source", "cost_us": cost_us, "keys": 20, **common}
    source |= one_of({}, {"rate": 3_000}, {"rate": 2_000, "burst_period": "50 ms", "burst_ratio": 0.2, "backlog": 300})
    source |= {"watermark_interval_ms": one_of(3, 200)} | one_of({}, {"idle_timeout": "4 ms"})
    source |= one_of({}, {"out_of_orderness": "5 ms", "hot_key_ratio": 0.3})
    keyed = one_of(
        {"kind": "keyed+sink"},
        {"kind": "keyed+sink", "sink": "idempotent"},
        {"kind": "window+sink", "window": "20 ms"},
        {"kind": "sink"},
    )
    vertices = [
        source,
        {"id": "map", "kind": "map", "cost_us": one_of(1, 2) * cost_us, **common, "parallelism": one_of(2, 3)},
        {"id": "end", "cost_us": one_of(2, 4, 10) * cost_us, **common, **keyed},
    ]
    edges = [
        {"from": "source", "to": "map", "partitioner": one_of("rebalance", "hash", "shuffle", "broadcast", "global")},
        {
            "from": "map",
            "to": "end",
            "partitioner": "hash" if keyed["kind"] != "sink" else one_of("hash", "rebalance"),
        },
    ]
    points = points_of(protocol)
    plan = [FaultSpec(points[draws.below(len(points))], hit=3 + draws.below(9)) for _ in range(draws.below(3))]
    document = {"name": "ahead", "seed": seed, "config": settings, "vertex": vertices, "edge": edges}
    document["store"] = {"latency": "5 ms", "bytes_per_s": "10 mb"}
    return replace(load_job_document(document), faults=plan)


def _compare(seed: int, *, is_size_only: bool) -> None:
    spec = drawn_ahead(seed)
    stepwise = observed(spec, is_size_only=is_size_only, is_stepwise=True)
    ahead = observed(spec, is_size_only=is_size_only, looks=True)
    assert stepwise.keys() == ahead.keys()
    for what, seen in stepwise.items():
        assert ahead[what] == seen, f"{what}, seed {seed}"


@pytest.mark.parametrize("seed", range(5))
def test_planning_steps_ahead_changes_nothing_observable(seed: int) -> None:
    _compare(seed, is_size_only=seed % 2 == 1)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_planning_steps_ahead_changes_nothing_over_many_jobs(part: int) -> None:
    for seed in range(5 + part, 65, 4):
        _compare(seed, is_size_only=seed % 3 == 1)


def test_most_steps_of_a_busy_job_are_not_events(monkeypatch: pytest.MonkeyPatch) -> None:
    config: dict[str, object] = {"taskmanager.memory.segment-size": 8192}
    vertices = [
        {"id": "source", "kind": "source", "cost_us": 100, "record_bytes": 60},
        {"id": "sink", "kind": "sink", "cost_us": 100},
    ]
    edges = [{"from": "source", "to": "sink", "partitioner": "forward"}]
    spec = load_job_document({"name": "busy", "seed": 1, "config": config, "vertex": vertices, "edge": edges})
    events = Counter[bool]()
    step = Task._step

    def counted(task: Task, epoch: int) -> int | None:
        events[task.env.is_stepwise] += 1
        return step(task, epoch)

    monkeypatch.setattr(Task, "_step", counted)
    for is_stepwise in (True, False):
        JobEngine(spec, is_stepwise=is_stepwise).run_until(1_000_000)
    assert events[False] < events[True] / 10


def test_the_idle_timeout_of_a_source_counts_from_a_last_record_that_was_planned_ahead() -> None:
    burst = {"rate": 1_000, "burst_period": "100 ms", "burst_ratio": 0.001, "idle_timeout": "10 ms"}
    vertices = [
        {"id": "source", "kind": "source", "cost_us": 200, "watermark_interval_ms": 1_000, "record_bytes": 60, **burst},
        {"id": "sink", "kind": "sink", "cost_us": 10},
    ]
    edges = [{"from": "source", "to": "sink", "partitioner": "forward"}]
    spec = load_job_document({"name": "bursts", "seed": 1, "vertex": vertices, "edge": edges})
    idle_from_us = []
    for is_stepwise in (True, False):
        engine = JobEngine(spec, is_stepwise=is_stepwise)
        engine.run_until(1)
        sourcing = engine.tasks[0].sourcing
        assert sourcing is not None
        while not sourcing._time.is_idle and engine.now_us < 90_000:
            engine.run_until(engine.now_us + 50)
        idle_from_us.append(engine.now_us)
    # The source emits a hundred records at once and then none, so it becomes idle after the idle timeout.
    assert idle_from_us[0] == idle_from_us[1]
    assert 29_800 <= idle_from_us[0] <= 31_000


def test_recovered_in_flight_data_is_planned_ahead_at_another_parallelism_too(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = Counter[bool]()
    plan = RunningAhead.plan

    def counted(ahead: RunningAhead, channel: InputChannel, at_us: int) -> int:
        behind_us = plan(ahead, channel, at_us)
        planned[ahead._task.gate.is_recovering] += behind_us > at_us
        return behind_us

    monkeypatch.setattr(RunningAhead, "plan", counted)
    config: dict[str, object] = {"runtime.fuzz-schedule": 0, "taskmanager.memory.segment-size": 2048}
    spec = rescaled_job("unaligned", "hash", (2, 2, 2), seed=4, record_bytes=60, config=config)
    spec = replace(spec, rescales=(RescaleSpec(150_000, {"map": 3}),))
    stepwise, ahead = (observed(spec, is_stepwise=is_stepwise) for is_stepwise in (True, False))
    for what, seen in stepwise.items():
        assert ahead[what] == seen, what
    assert planned[True] > 0


def test_no_step_begins_before_the_one_before_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    # A notification during a subtask's own step must not start another step before that step is over (DET-6).
    early: list[str] = []
    step = Task._step

    def watched(task: Task, epoch: int) -> int | None:
        if epoch == task._epoch and task.env.now < task._free_us:
            early.append(f"{task.name} at {task.env.now} us")
        return step(task, epoch)

    monkeypatch.setattr(Task, "_step", watched)
    for protocol in PROTOCOLS:
        for seed in (1, 3):
            JobEngine(drawn_run(protocol, seed)).run_until(600_000)
    assert early == []
