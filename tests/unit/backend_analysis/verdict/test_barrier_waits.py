"""Tests of which subtasks a barrier waits for: those with a long wait, compared with the longest one."""

from __future__ import annotations

import numpy as np
import pytest

from backend.analysis.verdict import case as cases
from backend.analysis.verdict.barrier_waits import Wait, lowest_wait
from tests.support.handwritten_jobs import LAST, MIDDLE, SOURCE, held_back, job, reading


@pytest.mark.parametrize(
    ("wait_ms", "subtasks"),
    [
        pytest.param([700.0, 3_000.0], (1,), id="far shorter than the longest"),
        pytest.param([400.0, 640.0], (1,), id="too short for a queue"),
        pytest.param([2_000.0, 3_000.0], (0, 1), id="about as long"),
    ],
)
def test_a_subtask_is_named_if_its_wait_is_long_and_near_the_longest(wait_ms, subtasks):
    wait = Wait(LAST, np.array(wait_ms), max(wait_ms), None, is_overtaking=False)

    assert wait.subtasks == subtasks


@pytest.mark.parametrize("longest", [3_000, 640])
def test_only_what_the_subtasks_with_the_longest_wait_read_says_whether_they_stand_still(longest):
    """Subtask 2 waits far less or hardly at all, and reads on. Subtask 3 reads nothing for 3 s after each trigger."""
    delays = {SOURCE: [5] * 4, MIDDLE: [10] * 4, LAST: [20, 20, 700 if longest > 700 else 400, longest]}
    readings = []
    for second in (s / 5 for s in range(200)):
        still = 100 * (second // 5 * 2 + max(0, second % 5 - 3))
        readings.append(reading(LAST, [0.7] * 4, records=[100 * second] * 3 + [still], at_s=second))

    wait = lowest_wait(cases.of_job(job([held_back(n, delays) for n in range(1, 8)], readings)))

    assert wait is not None
    assert wait.subtasks == (3,)
    assert wait.reads is not None
    assert wait.reads.still_ratio == 1.0
