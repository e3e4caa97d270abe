"""Tests of when a subtask counts as full, also if some of its times are unknown."""

from __future__ import annotations

import pytest

from backend.analysis.arrays import array_of
from backend.analysis.pressure import VertexLoad
from backend.analysis.thresholds import BACKPRESSURED_OK_RATIO, BUSY_MIN_RATIO
from backend.domain.ids import VertexId


@pytest.mark.parametrize(
    ("busy", "held", "is_full"),
    [
        (BUSY_MIN_RATIO, BACKPRESSURED_OK_RATIO, True),
        (BUSY_MIN_RATIO - 0.01, 0.0, False),
        (1.0, BACKPRESSURED_OK_RATIO + 0.01, False),
        # A busy subtask counts as full if its backpressure is unknown. A subtask does not count as full if its busy
        # time is unknown.
        (1.0, None, True),
        (None, None, False),
    ],
)
def test_a_subtask_is_full_if_it_is_busy_and_not_back_pressured(busy, held, is_full):
    load = VertexLoad(VertexId("v"), 3, busy=array_of([busy]), backpressured=array_of([held]), idle=array_of([None]))

    assert load.full_subtasks == ((0,) if is_full else ())
    assert load.known_subtasks == (() if busy is None else (0,))
