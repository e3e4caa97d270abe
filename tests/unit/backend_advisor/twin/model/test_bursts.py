"""Bursts of a source: what readings, checkpoints and back-pressure show of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from backend.advisor.twin.model.bursts import Bursts, bursts_of, hidden_height, period_of
from backend.advisor.twin.model.flows import VertexFlow, flows_of
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure

VERTEX = VertexId("v")


def reading(at_s: float, count: int) -> VertexPressure:
    return VertexPressure(
        vertex_id=VERTEX,
        observed_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=at_s),
        busy_ratio=(0.3,),
        backpressured_ratio=(0.0,),
        idle_ratio=(0.7,),
        records_in_count=(count,),
        records_out_count=(count,),
        bytes_in_count=(100 * count,),
    )


def flow_of(readings: Sequence[VertexPressure]) -> VertexFlow:
    return flows_of(readings)[VERTEX]


def test_bursts_show_in_the_rates_between_readings():
    rates = [200, 800, 200, 200, 800, 200, 200, 800, 200, 200, 800, 200, 200]
    counts = np.cumsum([0, *rates]) * 5
    flow = flow_of([reading(5 * n, int(c)) for n, c in enumerate(counts)])

    found = bursts_of(flow, [flow], None)

    assert found is not None
    assert found.period_ms == pytest.approx(15_000.0, rel=0.2)
    assert found.factor == pytest.approx(2.0, rel=0.2)
    assert found.ratio == pytest.approx(1 / 3, abs=0.1)
    assert found.low_ratio == pytest.approx(0.5, rel=0.1)
    steady = flow_of([reading(5 * n, 2000 * n) for n in range(14)])
    assert bursts_of(flow, [steady], None) is None
    assert bursts_of(steady, [steady], None) is None


@pytest.mark.parametrize(("held", "factor"), [(0.3, 1.88), (0.33, 2.0), (0.0, 1.5), (0.9, 1.5)])
def test_the_time_that_a_source_is_held_back_shows_how_high_its_bursts_are(held: float, factor: float):
    # 3200/s for 5 s and 800/s for 10 s. The buffers hold 3300 records: they are full after 2.6 s. The job has caught up
    # with the rest 7.6 s after the burst began.
    seen = Bursts(period_ms=15_000.0, ratio=0.5, factor=1.5, low_ratio=0.5)

    found = hidden_height(seen, rate_per_s=1600.0, capacity_per_s=1950.0, room_records=3300.0, held_ratio=held)

    assert found.factor == pytest.approx(factor, rel=0.02)
    assert found.ratio * found.factor + (1 - found.ratio) * found.low_ratio == pytest.approx(1.0)


def test_a_row_of_durations_that_repeats_has_a_period():
    assert period_of([50, 60, 1500, 2000, 1600] * 4, 3000.0) == 15_000.0
    assert period_of([50, 60, 1500], 3000.0) is None
    assert period_of([50, 52, 49, 55, 51, 58, 47, 50, 60, 44, 53, 50], 3000.0) is None
