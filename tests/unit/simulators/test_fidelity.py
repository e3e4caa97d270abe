"""Tests of the scenarios that compare the runtime with recorded runs of Flink."""

from __future__ import annotations

from tests.simulators.fidelity import recorded

_SCENARIOS = {scenario.name: (scenario, runs) for scenario, runs in recorded()}
"""Each recorded scenario with its recorded runs, by the scenario's name."""


def test_flinks_hash_of_a_whole_number_is_that_of_its_four_bytes() -> None:
    # Of 4000 keys, the first of four subtasks gets 1034. That is 3.4 % more than its share, so this subtask
    # determines how long alignment takes.
    scenario, _ = _SCENARIOS["above-capacity"]
    assert scenario.flink_shares[0] == 1034 / 4000
    assert scenario.twin_keys() == 1581
