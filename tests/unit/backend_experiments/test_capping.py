"""The orderings of the experiment on the in-flight cap tell a curve from a step."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from backend.experiments.capping import EXPERIMENT, POLICIES, SETTINGS
from backend.experiments.model import Median, judged


def _found(durations: Sequence[float]) -> list[bool | None]:
    """Return whether each ordering came out, for these durations and for sizes that mirror them."""
    found = {}
    for policy in POLICIES:
        for setting, value in zip(SETTINGS, durations, strict=True):
            found["duration", setting, policy] = Median(value, value, value)
            found["in the checkpoint", setting, policy] = Median(400 - value, 400 - value, 400 - value)
    return [judged(ordering, found).came_out for ordering in EXPERIMENT.orderings]


@pytest.mark.parametrize(
    ("durations", "came_out"),
    [
        ((360, 359, 314, 255, 190, 130, 45, 24), [True, True, True]),
        # What a cap did before the barrier waited in the output: aligned below the size of the queues.
        ((360, 360, 360, 360, 360, 360, 24, 24), [True, True, False]),
        ((360, 359, 255, 314, 190, 130, 45, 24), [False, False, True]),
        ((24, 24, 24, 24, 24, 24, 24, 24), [False, False, False]),
    ],
)
def test_a_cap_that_works_gives_a_curve_that_falls_all_the_way(durations: Sequence[float], came_out: list[bool]):
    assert _found(durations) == came_out
