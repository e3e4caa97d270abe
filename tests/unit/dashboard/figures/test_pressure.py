"""Tests of the figure that shows the backpressure of vertices, now or over a range of time."""

from __future__ import annotations

from datetime import timedelta

import plotly.graph_objects as go
import pytest

from backend.contracts.backpressure import BackpressureOut, PressurePointOut
from backend.domain.verdict import Basis
from dashboard.figures import pressure
from dashboard.palette import LIGHT
from tests.support.figures import NOW


def test_pressure_in_a_range_is_the_mean_of_its_readings_and_the_table_has_each(fake):
    reading = fake.jobs["jruntime"].pressure[0]
    points = [
        PressurePointOut(
            at=NOW + timedelta(seconds=n), vertex_id=reading.vertex_id, busy_ratio=busy, backpressured_ratio=None,
            idle_ratio=1 - busy, queued_bytes=None,
        )
        for n, busy in enumerate((0.2, 0.6))
    ]  # fmt: skip

    chart = pressure.along(BackpressureOut(vertices=[reading], series=points, as_of=NOW), theme=LIGHT)
    empty = pressure.along(BackpressureOut(vertices=[reading], as_of=NOW), theme=LIGHT)

    go.Figure(chart.figure)
    assert [t["x"][0] for t in chart.figure["data"]] == [pytest.approx(0.4), None, pytest.approx(0.6)]
    assert [r[2:5] for r in chart.table.rows] == [(0.2, None, 0.8), (0.6, None, 0.4)]
    assert "no backpressure readings" in empty.summary


def test_the_table_says_of_each_rate_whether_it_is_measured(fake):
    reading = fake.jobs["jruntime"].pressure[0]
    rated = reading.model_copy(
        update={"records_per_s": [5.0, None, 7.0, 8.0], "records_per_s_basis": Basis.RECONSTRUCTED}
    )

    table = pressure.backpressure(BackpressureOut(vertices=[rated], as_of=NOW), theme=LIGHT).table

    rate, basis = (table.columns.index(name) for name in ("records/s", "basis of records/s"))
    assert [(r[rate], r[basis]) for r in table.rows] == [
        (5.0, "reconstructed"),
        (None, None),
        (7.0, "reconstructed"),
        (8.0, "reconstructed"),
    ]


def test_pressure_of_a_subtask_that_reported_nothing_is_missing_and_not_idle(fake):
    reading = fake.jobs["jruntime"].pressure[0]
    silent = reading.model_copy(update={k: [None] * 4 for k in ("busy_ratio", "backpressured_ratio", "idle_ratio")})

    chart = pressure.backpressure(BackpressureOut(vertices=[silent], as_of=NOW), theme=LIGHT)

    assert all(t["x"] == [None] for t in chart.figure["data"])
    assert "idle –" in chart.summary


@pytest.mark.parametrize(
    ("is_source", "said"),
    [(True, "busy time: not reported by this kind of source"), (False, "busy time: not reported")],
)
def test_a_busy_time_that_is_not_reported_is_said_and_the_other_shares_are_drawn(fake, is_source, said):
    reading = fake.jobs["jruntime"].pressure[0]
    shares = {"busy_ratio": [None] * 4, "backpressured_ratio": [0.3] * 4, "idle_ratio": [0.1] * 4}
    legacy = reading.model_copy(update=shares | {"is_source": is_source})

    chart = pressure.backpressure(BackpressureOut(vertices=[legacy], as_of=NOW), theme=LIGHT)

    go.Figure(chart.figure)
    busy, held, idle, unknown = chart.figure["data"]
    assert [t["x"] for t in (busy, held, idle)] == [[None], [pytest.approx(0.3)], [pytest.approx(0.1)]]
    assert unknown["x"] == [pytest.approx(0.6)]
    assert unknown["text"] == [said]
    assert all(t["hovertext"][0].split(" (mean")[0].endswith(said) for t in chart.figure["data"])
    assert f"{said}, backpressured 30 %, idle 10 %" in chart.summary
    assert "0 %, " not in said


def test_if_a_source_is_held_back_nearly_always_its_bar_says_that_no_busy_time_is_reported(fake):
    reading = fake.jobs["jruntime"].pressure[0]
    shares = {"busy_ratio": [None] * 4, "backpressured_ratio": [0.99] * 4, "idle_ratio": [0.0] * 4}
    legacy = reading.model_copy(update=shares | {"is_source": True})

    _, held, _, unknown = pressure.backpressure(BackpressureOut(vertices=[legacy], as_of=NOW), theme=LIGHT).figure[
        "data"
    ]

    assert held["text"] == ["99 % · busy time: not reported by this kind of source"]
    assert unknown["text"] == [""], "it has no room"
