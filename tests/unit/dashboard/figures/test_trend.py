"""Tests of the chart of the last 7 days: it is drawn from two hours on, and a single hour is written out."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest

from backend.contracts.rollups import RollupHourOut
from dashboard.figures import trend
from dashboard.palette import LIGHT
from tests.support.api_examples import example


@pytest.mark.parametrize("count", [1, 2])
def test_a_single_hour_is_written_out_and_two_hours_are_drawn(count):
    hour: RollupHourOut = example("rollup_hour")
    hours = [hour.model_copy(update={"hour": hour.hour + timedelta(hours=i)}) for i in range(count)]

    chart = trend.trend(hours, theme=LIGHT, where=UTC)

    said = repr(chart.figure)
    assert bool(chart.figure["data"]) == (count == 2)
    assert ("one hour with checkpoints" in said) == (count == 1)
    assert len(chart.table.rows) == count
    assert chart.summary.startswith(f"{count} hour{'' if count == 1 else 's'} with checkpoints")


def test_a_percentile_between_the_largest_exact_value_and_that_of_an_expired_checkpoint_is_shown_as_a_lower_bound():
    hour: RollupHourOut = example("rollup_hour")
    ms = hour.measures["end_to_end_duration_ms"]
    limits = {"expired_min": ms.max + 60_000, "exact_max": round(ms.p50)}
    bound = {**hour.measures, "end_to_end_duration_ms": ms.model_copy(update=limits)}

    table = trend.trend([hour.model_copy(update={"measures": bound})], theme=LIGHT, where=UTC).table

    first = dict(zip(table.columns, table.rows[0], strict=True))
    assert first["duration p50 (ms)"] == ms.p50
    assert first["duration p95 (ms)"].startswith("> ")


@pytest.mark.parametrize("count", [1, 2])
def test_a_statistic_that_expired_checkpoints_make_a_lower_bound_is_shown_as_one(count):
    hour: RollupHourOut = example("rollup_hour")
    ms = hour.measures["end_to_end_duration_ms"]
    bound = {**hour.measures, "end_to_end_duration_ms": ms.model_copy(update={"expired_min": round(ms.p95)})}
    censored = hour.model_copy(update={"measures": bound})
    hours = [censored.model_copy(update={"hour": hour.hour + timedelta(hours=i)}) for i in range(count)]

    chart = trend.trend(hours, theme=LIGHT, where=UTC)

    assert "p95 &gt; " in repr(chart.figure) or "p95 > " in repr(chart.figure)
    assert "95th percentile of > " in chart.summary
    first = dict(zip(chart.table.columns, chart.table.rows[0], strict=True))
    assert first["duration p50 (ms)"] == ms.p50
    assert first["duration p95 (ms)"].startswith("> ")
    assert "> " not in repr(trend.trend([hour] * count, theme=LIGHT, where=UTC).table)


@pytest.mark.parametrize(
    ("is_at_least", "said", "cell"), [(False, "replays 42", 42_100), (True, "replays &gt; 42", "> 42100")]
)
def test_what_a_failure_at_the_end_of_an_hour_replays_is_in_the_chart_and_the_table(is_at_least, said, cell):
    hour: RollupHourOut = example("rollup_hour").model_copy(update={"is_replay_debt_at_least": is_at_least})
    hours = [
        hour,
        hour.model_copy(
            update={"hour": hour.hour + timedelta(hours=1), "replay_debt_ms": None, "is_replay_debt_at_least": False}
        ),
    ]

    chart = trend.trend(hours, theme=LIGHT, where=UTC)

    assert said in repr(chart.figure)
    column = chart.table.columns.index("replay debt at its end (ms)")
    assert column == len(chart.table.columns) - 1
    assert {row[column] for row in chart.table.rows} == {cell, None}
