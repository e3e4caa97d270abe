"""Goal: with debloating, the data before a saturated receiver is throughput x target time, and no data is lost.

Debloating can also be switched off.

Method: an unlimited source feeds a sink of known cost. The bytes queued on both sides of the network are read at many
moments. The size that a sender uses may differ from the computed size by the announcement threshold, so the test sets
a smaller threshold for gates with more channels.
"""

from __future__ import annotations

import pytest

from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.task.task import Task
from tests.support.invariants import run_to_the_end
from tests.support.runtime_jobs import PROTOCOLS, RECORDS, small_job

_DEBLOAT = "taskmanager.network.memory.buffer-debloat."
_RECORD_BYTES = 500
_THROUGHPUT_BYTES_PER_S = 1000 * _RECORD_BYTES


def _saturated(sources: int, **settings: object) -> JobSpec:
    config: dict[str, object] = {
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.tolerable-failed-checkpoints": "unlimited",
        "runtime.task-managers": 2,
        f"{_DEBLOAT}enabled": True,
        **{f"{_DEBLOAT}{name.replace('_', '-')}": value for name, value in settings.items()},
    }
    common = {"record_bytes": _RECORD_BYTES}
    document = {
        "name": "saturated",
        "seed": 1,
        "config": config,
        "vertex": [
            {"id": "source", "kind": "source", "parallelism": sources, "cost_us": 100, **common},
            {"id": "slow", "kind": "map+sink", "cost_us": 1000, **common},
        ],
        "edge": [{"from": "source", "to": "slow", "partitioner": "rebalance"}],
    }
    return load_job_document(document)


def _queued_bytes(task: Task) -> int:
    return sum(c.queued[1] + c.subpartition.queued_bytes for c in task.gate.channels)


@pytest.mark.parametrize(
    ("sources", "target_ms", "threshold"), [(1, 50, 25), (1, 200, 25), (2, 50, 5), (2, 200, 5), (3, 200, 5)]
)
def test_bytes_queued_before_a_saturated_receiver_are_throughput_times_target(
    sources: int, target_ms: int, threshold: int
) -> None:
    engine = JobEngine(_saturated(sources, target=f"{target_ms} ms", threshold_percentages=threshold))
    engine.run_until(9_000_000)
    queued: list[int] = []
    for _ in range(30):
        engine.run_until(engine.now_us + 130_000)
        queued.append(_queued_bytes(engine.tasks[-1]))
    mean = sum(queued) / len(queued)
    wanted = _THROUGHPUT_BYTES_PER_S * target_ms / 1000
    assert mean == pytest.approx(wanted, rel=0.25)
    (gate,) = engine.debloating.gates(engine.tasks[-1].key)
    assert gate.throughput_bytes_per_s == pytest.approx(_THROUGHPUT_BYTES_PER_S, rel=0.1)
    assert gate.estimator.time_to_consume_ms == pytest.approx(target_ms, rel=0.25)
    if sources > 1:
        # Debloating limits the bytes but not the number of buffers, so many small buffers are in use (DB-9).
        assert gate.buffers_in_use > 20


def test_an_aligned_checkpoint_takes_about_the_target_at_the_same_throughput() -> None:
    durations: list[int] = []
    records: list[int] = []
    for enabled in (False, True):
        engine = JobEngine(_saturated(2, enabled=enabled, target="100 ms"))
        engine.run_until(10_000_000)
        assert engine.coordinator.latest_completed is not None
        durations.append(engine.coordinator.latest_completed.end_to_end_us or 0)
        records.append(engine.tasks[-1].records_in)
    assert durations[1] < 250_000 < 3 * durations[1] < durations[0]
    assert records[1] > 0.98 * records[0]


def test_idle_time_does_not_lower_the_measured_throughput() -> None:
    spec = load_job_document(
        {
            "name": "mostly idle",
            "config": {f"{_DEBLOAT}enabled": True},
            "vertex": [
                {"id": "source", "kind": "source", "rate": 100, "cost_us": 1, "record_bytes": _RECORD_BYTES},
                {"id": "slow", "kind": "map+sink", "cost_us": 1000, "record_bytes": _RECORD_BYTES},
            ],
            "edge": [{"from": "source", "to": "slow", "partitioner": "rebalance"}],
        }
    )
    engine = JobEngine(spec)
    engine.run_until(5_000_000)
    (gate,) = engine.debloating.gates(engine.tasks[-1].key)
    assert gate.throughput_bytes_per_s == pytest.approx(_THROUGHPUT_BYTES_PER_S, rel=0.15)
    assert gate.estimator.announced_bytes == 32_768


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sizes_that_change_all_the_time_lose_and_repeat_nothing(protocol: str) -> None:
    config: dict[str, object] = {
        f"{_DEBLOAT}enabled": True,
        f"{_DEBLOAT}target": "10 ms",
        f"{_DEBLOAT}period": "3 ms",
        f"{_DEBLOAT}samples": 1,
        f"{_DEBLOAT}threshold-percentages": 0,
        "taskmanager.memory.segment-size": 2048,
        "taskmanager.memory.min-segment-size": 64,
    }
    for seed in range(3):
        spec = small_job(protocol, seed=seed, fuzz=seed + 1, task_managers=2, record_bytes=(60, 700)[seed % 2])
        engine = run_to_the_end(spec.with_config(config), records=RECORDS)
        assert engine.coordinator.completed_count > 0, f"{protocol}, seed {seed}"


def test_it_is_switched_on_and_off_while_the_job_runs() -> None:
    engine = JobEngine(_saturated(2, enabled=False, target="50 ms"))
    engine.run_until(1_000_000)
    receiver = engine.tasks[-1]
    full = _queued_bytes(receiver)
    assert engine.debloating.gates(receiver.key) == ()
    engine.set_config({f"{_DEBLOAT}enabled": True})
    engine.run_until(9_000_000)
    assert _queued_bytes(receiver) < full / 4
    engine.set_config({f"{_DEBLOAT}enabled": False})
    engine.run_until(11_000_000)
    assert _queued_bytes(receiver) > 0.8 * full
    assert engine.debloating.gates(receiver.key) == ()
    assert {c.subpartition.buffer_bytes for c in receiver.gate.channels} == {32_768}
