"""Each experiment runs, and its report says correctly which orderings in the literature it confirms."""

from __future__ import annotations

import pytest

from backend.experiments.catalog import EXPERIMENTS
from backend.experiments.model import judged, medians

_SMALL = {
    "flip-76": ("times/unaligned", 0.1),
    "in-flight-cap": ("wait", 0.2),
    "chandy-lamport": ("unaligned", 1.0),
    "triggering": ("sources", 1.0),
    "incremental": ("difference (option II)", 0.3),
    "spilling": ("continuous", 0.3),
    "finish": ("revised", 1.0),
}
_NOT_COME_OUT = {
    "Triggering all tasks makes more of them write to the store at once.",
    "A changelog writes at most a twentieth of the full state for a checkpoint.",
    "A restart from a changelog loads its state at least 1.66 times slower, because it applies the changes.",
}


def test_every_experiment_is_known_here():
    assert EXPERIMENTS.keys() == _SMALL.keys()
    assert all(one.orderings and len(set(one.tasks)) == len(one.tasks) for one in EXPERIMENTS.values())


@pytest.mark.parametrize("name", [name for name in _SMALL if name != "finish"])
def test_a_run_is_the_same_for_the_same_seed_and_names_its_task(name):
    task, ratio = _SMALL[name]
    rows = EXPERIMENTS[name].run(task, 1, ratio)

    assert rows
    assert all(row.seed == 1 and row.unit and row.variant in task for row in rows)
    if name == "flip-76":
        assert EXPERIMENTS[name].run(task, 1, ratio) == rows


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in _SMALL if name != "flip-76"])
def test_the_orderings_come_out_as_known(name):
    one = EXPERIMENTS[name]
    found = medians([row for task in one.tasks for row in one.run(task, 0, 1.0)])

    results = {o.claim: judged(o, found) for o in one.orderings}
    assert {c for c, r in results.items() if r.came_out is False} == _NOT_COME_OUT & results.keys(), results
    undecided = {c for c, r in results.items() if r.came_out is None}
    assert all("Uncoordinated" in claim for claim in undecided), results
