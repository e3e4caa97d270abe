"""Tests of the figure of a Spark query's rates and batch durations."""

from __future__ import annotations

from datetime import timedelta

import plotly.graph_objects as go

from backend.contracts.micro_batches import MicroBatchOut
from backend.domain.verdict import Basis
from dashboard import text
from dashboard.figures.batch_rates import arrival_rates, batch_rates
from dashboard.palette import FAILED, LIGHT
from tests.support.figures import NOW


def batch(number, rows=100, *, duration_ms=2_000, run="r1"):
    return MicroBatchOut(
        checkpoint_id=number,
        run_id=run,
        triggered_at=NOW + timedelta(seconds=10 * number),
        duration_ms=duration_ms,
        number_basis=Basis.MEASURED,
        phases=[],
        other_ms=None,
        input_row_count=rows,
        processed_rows_per_s=None if rows is None else rows / 2,
        watermark_at=None,
        state=None,
        sources=[],
    )


def test_the_arrival_rate_is_that_since_the_previous_trigger_of_the_same_run():
    found = arrival_rates([batch(1), batch(2, 300), batch(3, None), batch(4, run="r2")])

    assert found == [None, 30.0, None, None]


def test_batches_longer_than_the_interval_are_orange_and_the_interval_is_a_line():
    batches = [batch(1), batch(2, duration_ms=9_000), batch(3)]

    chart = batch_rates(batches, theme=LIGHT, where=text.zone("UTC"), interval_ms=5_000)

    go.Figure(chart.figure)
    bars = chart.figure["data"][2]
    assert [c == FAILED for c in bars["marker"]["color"]] == [False, True, False]
    assert chart.figure["layout"]["shapes"][0]["y0"] == 5_000
    assert "1 took longer than the trigger interval" in chart.summary


def test_an_unknown_interval_is_not_drawn_and_a_missing_duration_is_no_bar():
    chart = batch_rates([batch(1), batch(2, duration_ms=None)], theme=LIGHT, where=text.zone("UTC"), interval_ms=None)

    assert chart.figure["layout"]["shapes"] == []
    assert chart.figure["data"][2]["y"] == [2_000, None]


def test_without_batches_the_chart_says_so():
    assert "No micro-batch" in batch_rates([], theme=LIGHT, where=text.zone("UTC"), interval_ms=None).summary
