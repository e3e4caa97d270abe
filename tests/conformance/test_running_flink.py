"""Goal: durations, start delays and persisted bytes of simulated checkpoints match those of a real Flink, 1.20 and 2.3.

The medians of real runs are stored in ``flink_running/recorded.json``. The runtime simulates each recorded
scenario from the settings of the real run alone. ``make fidelity`` prints the whole comparison;
docs/evidence/runtime-against-flink.md explains it.
"""

from __future__ import annotations

import pytest

from tests.simulators.fidelity import MEASURES, Medians, Run, Scenario, middle, recorded, simulated
from tests.simulators.fidelity_formulas import from_parameters, from_queues

_SCENARIOS = {scenario.name: (scenario, runs) for scenario, runs in recorded()}
_QUICK = ("hot-key", "hot-key-unaligned", "straggler-middle-unaligned")
_RATIO, _RATIO_SLOW = 1.25, 1.4
"""Largest factors by which simulated durations and persisted bytes may differ from the recorded values.

The first factor is for the quick test, and the second for the slow test, which runs all scenarios. The tests simulate
shorter runs than the recorded ones, so the values differ a little.
"""
_ONLY_1_20 = ("few-buffers",)
"""Scenarios that were recorded only with Flink 1.20.

Flink 2 no longer has their buffer settings: it runs with 2 and 8 buffers.
"""
_THROUGHPUT, _THROUGHPUT_SLOW = 1.06, 1.15
"""Largest factors by which simulated throughput may differ from the recorded throughput.

The first factor is for the quick test, and the second for the slow test. With a straggler, throughput changes with
each alignment, also in Flink.
"""
_MACHINE_MS = 100
"""Differences between times are ignored if they are smaller than this number of milliseconds.

On a small machine, messages, threads and files add this time to a checkpoint. The runtime does not model it.
"""


def _of_flink(runs: list[Run]) -> Medians:
    return middle(run.medians for run in runs)


def _seconds(runs: list[Run], least: float) -> float:
    """Return how many seconds to simulate, so that the run includes the warm-up and a few checkpoints."""
    return max(least, 5 * (_of_flink(runs).end_to_end_ms or 0) / 1000)


def _differences(scenario: Scenario, ours: Medians, theirs: Medians, ratio_max: float, throughput: float) -> list[str]:
    found = []
    for measure, ratio in (
        ("end_to_end_ms", ratio_max),
        ("start_delay_ms", ratio_max),
        ("persisted_bytes", ratio_max),
        ("records_per_s", throughput),
    ):
        a, b = getattr(ours, measure), getattr(theirs, measure)
        if measure.endswith("_ms") and abs(a - b) < _MACHINE_MS:
            continue
        if not b / ratio <= a <= b * ratio:
            found.append(f"{scenario.name}: {measure} {a:.0f}, Flink {b:.0f}")
    return found


@pytest.mark.parametrize("name", _QUICK)
def test_the_runtime_measures_about_what_a_running_flink_measured(name: str) -> None:
    scenario, runs = _SCENARIOS[name]
    ours = simulated(scenario, seconds=_seconds(runs, 15))
    assert _differences(scenario, ours, _of_flink(runs), _RATIO, _THROUGHPUT) == []


@pytest.mark.slow
def test_in_every_scenario_the_runtime_is_close_to_flink_and_closer_than_the_formulas() -> None:
    differences: list[str] = []
    errors: list[tuple[str, list[float]]] = []
    for scenario, runs in _SCENARIOS.values():
        ours, theirs = simulated(scenario, seconds=_seconds(runs, 21)), _of_flink(runs)
        differences += _differences(scenario, ours, theirs, _RATIO_SLOW, _THROUGHPUT_SLOW)
        if not scenario.is_unaligned and not scenario.number("rate", 0):
            formulas = from_parameters(scenario), *(from_queues(scenario, run.queued_bytes) for run in runs)
            assert theirs.end_to_end_ms is not None
            of_all = [abs((of.end_to_end_ms or 0) / theirs.end_to_end_ms - 1) for of in (ours, *formulas)]
            errors.append((scenario.name, of_all))
    assert differences == []
    # ``errors`` lists only aligned checkpoints under backpressure. The simulation must be the closest estimate for
    # all but two scenarios.
    assert sum(of_all[0] == min(of_all) for _, of_all in errors) >= len(errors) - 2, errors


def test_every_scenario_was_run_on_both_versions_and_completed_checkpoints() -> None:
    for scenario, runs in _SCENARIOS.values():
        versions = {"1.20.5"} if scenario.name in _ONLY_1_20 else {"1.20.5", "2.3.0"}
        assert {run.flink for run in runs} == versions, scenario.name
        assert all(run.checkpoints >= 2 for run in runs), scenario.name
        assert all(getattr(run.medians, measure) is not None for run in runs for measure in MEASURES), scenario.name
