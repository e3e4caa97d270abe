"""Each experiment runs, and its report says correctly which orderings in the literature it confirms."""

from __future__ import annotations

import pytest

from backend.experiments.catalog import EXPERIMENTS
from backend.experiments.model import judged, medians

_SLOW = {
    "flip-76": ("times/unaligned", 0.1),
    "in-flight-cap": ("wait", 0.2),
    "chandy-lamport": ("unaligned", 1.0),
    "incremental": ("difference (option II)", 0.3),
    "spilling": ("continuous", 0.3),
    "finish": ("revised", 1.0),
}
"""The experiments whose runs are long, with a small part of each."""
_QUICK = [name for name in EXPERIMENTS if name not in _SLOW]
_NOT_COME_OUT = {
    "In an idle job, triggering the sources makes less than half of the tasks write to the store at once.",
    "Under backpressure, triggering all tasks is not faster either: both durations are within 10 %.",
    "Nothing in flight is stored either if records wait although no channel is full, at 60 % load.",
    "Less is stored than by Chandy-Lamport under backpressure too.",
    "Under backpressure, less than half of the input is stored, too.",
    "With barriers that overtake, reading without priority makes the checkpoint longer.",
    "Under backpressure, starting at the last barrier stores at most half as much.",
    "An aligned checkpoint is enough for this: unaligned ones need not be rescaled.",
    "A changelog writes at most a twentieth of the full state for a checkpoint.",
    "A restart from a changelog loads its state at least 1.66 times slower, because it applies the changes.",
}


def test_every_experiment_has_orderings_and_every_finding_against_a_source_says_why():
    assert _SLOW.keys() < EXPERIMENTS.keys()
    assert all(one.orderings and len(set(one.tasks)) == len(one.tasks) for one in EXPERIMENTS.values())
    orderings = [ordering for one in EXPERIMENTS.values() for ordering in one.orderings]
    assert {o.claim for o in orderings if o.otherwise} >= _NOT_COME_OUT
    assert all(o.says for name in _QUICK for o in EXPERIMENTS[name].orderings)


@pytest.mark.parametrize("name", [name for name in _SLOW if name != "finish"])
def test_a_run_is_the_same_for_the_same_seed_and_names_its_task(name):
    task, ratio = _SLOW[name]
    rows = EXPERIMENTS[name].run(task, 1, ratio)

    assert rows
    assert all(row.seed == 1 and row.unit and row.variant in task for row in rows)
    if name == "flip-76":
        assert EXPERIMENTS[name].run(task, 1, ratio) == rows


@pytest.mark.parametrize("name", [*_QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in _SLOW if n != "flip-76")])
def test_the_orderings_come_out_as_known(name):
    one = EXPERIMENTS[name]
    by_task = {task: one.run(task, 0, 1.0) for task in one.tasks}
    assert all(row.seed == 0 and row.unit and row.variant == task for task, rows in by_task.items() for row in rows)
    found = medians([row for rows in by_task.values() for row in rows])

    results = {o.claim: judged(o, found) for o in one.orderings}
    # A finding that changes its sign fails here, whether it agrees with its source or not.
    assert {c for c, r in results.items() if r.came_out is False} == _NOT_COME_OUT & results.keys(), results
    undecided = {c for c, r in results.items() if r.came_out is None}
    assert all("Uncoordinated" in claim for claim in undecided), results
