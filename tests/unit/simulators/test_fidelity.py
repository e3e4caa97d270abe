"""The scenarios of the fidelity comparison."""

from __future__ import annotations

from tests.simulators.fidelity import recorded

_SCENARIOS = {scenario.name: (scenario, runs) for scenario, runs in recorded()}
"""Durations and persisted bytes, runtime to Flink, either way, of runs shorter than those that were recorded."""
"""Flink 2 has no such settings any more: it runs with 2 and 8 buffers."""
"""With a straggler, throughput goes up and down with each alignment, at Flink too."""
"""What messages, threads and files of a small machine add to a checkpoint, which the runtime's costs do not."""


def test_flinks_hash_of_a_whole_number_is_that_of_its_four_bytes() -> None:
    # Of 4000 keys the first of four subtasks gets 1034, 3.4 % more than its share: it decides how long alignment takes.
    scenario, _ = _SCENARIOS["above-capacity"]
    assert scenario.flink_shares[0] == 1034 / 4000
    assert scenario.twin_keys() == 1581
