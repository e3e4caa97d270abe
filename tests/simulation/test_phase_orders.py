"""Each order of phases has its expected cost and loses no record, and invalid orders fail (PH-1, PH-2, T-16).

The cost is measured on a chain of five tasks.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from backend.domain.errors import PlanError
from backend.runtime.engine.jobfile import JobSpec, load_job_document
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultAction, FaultSpec
from backend.runtime.measure.measures import SubtaskCheckpoint
from tests.support.invariants import Watch
from tests.support.runtime_jobs import RECORDS, STAYS, late_triggers, small_job

_CP = "execution.checkpointing."
_UNALIGNED = {f"{_CP}unaligned.enabled": True}
_SYNC_US = 20_000
_LATE_US = 30_000
_QUANTUM_US = 1_000
_CHAIN = ("source", "first", "second", "third", "sink")


def _chain(order: str) -> JobSpec:
    """Return a chain of five tasks with the same cost of the sync phase.

    The vertex named "second" also reads a source that is triggered late.
    """
    document: dict[str, Any] = {
        "name": "chain",
        "config": {
            f"{_CP}interval": "10 s",
            f"{_CP}unaligned.enabled": order.endswith("L"),
            "runtime.phase-order": order,
            "runtime.cost.sync": f"{_SYNC_US} us",
            "runtime.cost.barrier": "0 us",
        },
        "vertex": [
            {"id": "source", "kind": "source", "rate": 100},
            {"id": "late", "kind": "source", "rate": 100},
            *({"id": name, "kind": "map"} for name in _CHAIN[1:-1]),
            {"id": "sink", "kind": "sink"},
        ],
        "edge": [
            *({"from": a, "to": b, "partitioner": "shuffle"} for a, b in pairwise(_CHAIN)),
            {"from": "late", "to": "second", "partitioner": "shuffle"},
        ],
    }
    late = FaultSpec("rpc.trigger", hit=2, action=FaultAction.DELAY, delay_us=_LATE_US)
    return replace(load_job_document(document), faults=(late,))


def _measured(order: str) -> dict[str, SubtaskCheckpoint]:
    engine = JobEngine(_chain(order))
    engine.run_until(100_000)
    engine.coordinator.triggering.request_checkpoint()
    engine.run_until(500_000)
    (record,) = engine.coordinator.completed
    names = [vertex.id for vertex in engine.env.graph.vertices]
    return {names[v]: ack.measured for (v, _), ack in record.record.acks.items()}


@pytest.mark.parametrize("order", ["A-S-F", "A-F-S", "S-F-L", "F-S-L"])
def test_the_barrier_is_delayed_by_the_phases_that_precede_it(order: str) -> None:
    measured = _measured(order)
    for before, task in pairwise(_CHAIN):
        sync_us = _SYNC_US if order.index("S") < order.index("F") else 0
        alignment_us = measured[before].alignment_us if order[0] == "A" else 0
        assert alignment_us is not None
        hop_us = measured[task].start_delay_us - measured[before].start_delay_us - sync_us - alignment_us
        assert 0 <= hop_us < _QUANTUM_US, f"{order}: {before} -> {task} takes {hop_us} us"
    waited_us = measured["second"].alignment_us
    assert waited_us is not None
    assert waited_us > 0, order
    orders = {name: each.order.value for name, each in measured.items()}
    assert orders["third"] == order
    assert orders["source"] == order.replace("A-", "").replace("-L", "")


@pytest.mark.parametrize(
    ("order", "protocol"), [("A-S-F", "aligned"), ("S-F-L", "unaligned"), ("S-F-L", "aligned-timeout")]
)
def test_if_the_state_is_taken_first_every_checkpoint_is_a_consistent_cut(order: str, protocol: str) -> None:
    for seed in (1, 3):
        crash = (
            FaultSpec("task.before-forward", hit=15 + seed),
            FaultSpec("rpc.abort", hit=2, action=FaultAction.DROP),
        )
        config: dict[str, object] = {"runtime.phase-order": order, "runtime.cost.sync": "4 ms"} | STAYS
        if seed == 3:
            config[f"{_CP}timeout"] = "60 ms"
        spec = small_job(
            protocol,
            seed=seed,
            fuzz=seed,
            task_managers=1 + seed % 2,
            plan=(*late_triggers(), *crash),
            config=config,
        )
        watch = Watch(JobEngine(spec, keeps_rows=True), records=RECORDS)
        try:
            watch.run_to_the_end()
        except AssertionError as error:
            raise AssertionError(f"{order}, {protocol}, seed {seed}: {error}") from None
        assert watch.checked_checkpoints > 3, f"{order}, {protocol}, seed {seed}"
        assert watch.engine.restart_count > 0


@pytest.mark.parametrize(
    ("order", "settings", "why"),
    [
        ("L-S-F", _UNALIGNED, "logging before"),
        ("F-L-S", _UNALIGNED, "logging before"),
        ("A-F-L-S", {}, "logging before"),
        ("S-L-F", _UNALIGNED, "apart from it"),
        ("F-A-S", {}, "apart from it"),
        ("F-S", {}, "apart from it"),
        ("S-F-L", {}, "log no in-flight data"),
        ("F-S-L", {}, "log no in-flight data"),
        ("A-S-F", _UNALIGNED, "do not align"),
    ],
)
def test_an_order_that_gives_no_consistent_cut_or_has_no_meaning_is_refused(
    order: str, settings: dict[str, object], why: str
) -> None:
    with pytest.raises(PlanError, match=why) as raised:
        small_job("aligned", config={"runtime.phase-order": order} | settings)
    assert raised.value.rule == "PH-1"
    assert "runtime.phase-order" in raised.value.fix
