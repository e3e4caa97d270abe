"""Tests of readings of backpressure on another clock."""

from __future__ import annotations

from datetime import timedelta

from backend.domain.pressure import on_clock
from tests.support.observations import NOW, SINK, SOURCE, pressure


def test_readings_move_by_the_offset_unless_it_is_below_a_second():
    readings = (pressure(SOURCE, NOW), pressure(SINK, NOW))

    moved = on_clock(readings, timedelta(minutes=-22))
    assert {r.observed_at for r in moved} == {NOW - timedelta(minutes=22)}
    assert [r.busy_ratio for r in moved] == [r.busy_ratio for r in readings]
    # The same tuple: that of a very large job frees its readings in turns.
    assert on_clock(readings, timedelta(milliseconds=999)) is readings
