"""Tests of the charts of advice: the candidates with their Pareto front, and the values before and after a change."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import plotly.graph_objects as go
import pytest

from backend.contracts.advice import IntervalOut
from backend.domain.advice import AdviceState, Metric, Topic
from dashboard.figures.advice import candidates, front_of, outcome, outcome_height_px
from dashboard.palette import DARK, LIGHT
from tests.support.api_examples import example
from tests.support.made_up_alerts import MadeUpAlerts


def verified():
    alerts = MadeUpAlerts(now=lambda: datetime(2026, 11, 21, tzinfo=UTC))
    alerts.verify()
    return alerts.card


def with_candidates(card, rows):
    return card.model_copy(update={"recommendation": card.recommendation.model_copy(update={"candidates": rows})})


def named(chart):
    return {t["name"]: t for t in chart.figure["data"]}


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("card", [None, example("card"), verified()])
def test_the_figures_are_valid(theme, card):
    go.Figure(candidates(card, theme=theme).figure)
    go.Figure(outcome([] if card is None else [card, card], theme=theme).figure)


def test_a_point_is_on_the_front_unless_another_one_is_better():
    points = [(1.0, 9.0), (2.0, 5.0), (2.0, 6.0), (3.0, 5.0), (9.0, 0.0)]

    assert front_of(points) == {(1.0, 9.0), (2.0, 5.0), (9.0, 0.0)}


def test_the_current_point_and_the_proposal_differ_in_shape_and_have_the_predicted_interval():
    chart = candidates(example("card"), theme=LIGHT)
    found = named(chart)

    assert (found["now"]["x"], found["now"]["y"]) == ([4830.0], [0.0])
    assert (found["proposed"]["x"], found["proposed"]["y"]) == ([228.0], [3_146_000.0])
    interval = found["interval of proposed"]
    assert interval["x"] == [202.0, 441.0, None, 228.0, 228.0, None]
    assert interval["y"] == [3_146_000.0, 3_146_000.0, None, 1_820_000.0, 4_410_000.0, None]
    assert len({found[n]["marker"]["symbol"] for n in ("now", "proposed", "other candidates")}) == 3
    assert len(found["other candidates"]["x"]) == 3
    assert [a["text"] for a in chart.figure["layout"]["annotations"]] == [
        "<b>now</b>: aligned",
        "<b>proposed</b>: aligned with timeout 200 ms",
    ]
    assert "proposed aligned with timeout 200 ms: 228 ms and 3.1 MB" in chart.summary


def test_after_the_change_the_points_are_called_before_and_applied():
    assert {"before", "applied"} <= set(named(candidates(verified(), theme=LIGHT)))


def test_durations_that_differ_by_a_factor_are_on_a_log_axis_and_others_are_not():
    card = example("card")
    near = [
        c.model_copy(update={"duration_ms": IntervalOut(value=v, low=v, high=v)})
        for c, v in zip(card.recommendation.candidates, (100, 120, 140, 160, 180), strict=True)
    ]
    wide, flat = (candidates(c, theme=LIGHT).figure["layout"] for c in (card, with_candidates(card, near)))

    assert wide["xaxis"]["type"] == "log"
    assert wide["annotations"][1]["x"] == math.log10(228.0), "labels on a log axis are placed by their logarithm"
    assert "type" not in flat["xaxis"]
    assert flat["annotations"][1]["x"] == 120


def test_a_candidate_without_a_prediction_is_in_the_table_only():
    card = example("card")
    rows = [c.model_copy(update={"duration_ms": None}) if c.is_current else c for c in card.recommendation.candidates]
    chart = candidates(with_candidates(card, rows), theme=LIGHT)

    assert "now" not in named(chart)
    assert chart.table.rows[0][:2] == ("aligned", None)
    assert "No candidate" in candidates(with_candidates(card, []), theme=LIGHT).summary


def test_every_checkpoint_before_and_after_is_a_point_in_front_of_the_predicted_interval():
    card = verified()
    chart = outcome([card], theme=LIGHT)
    before, before_median, after, after_median = chart.figure["data"][:4]
    band = chart.figure["layout"]["shapes"][0]

    assert (before["name"], len(before["x"]), len(set(before["y"]))) == ("before", 10, 10)
    assert (after["name"], len(after["x"]), all(0.7 < y < 1.3 for y in after["y"])) == ("after", 5, True)
    assert (before_median["x"][0], after_median["x"][0]) == (4850.0, pytest.approx(228 * 1.01))
    assert (band["x0"], band["x1"], band["yref"]) == (202.0, 441.0, "y")
    assert band["y0"] < 1 < band["y1"]
    assert chart.figure["layout"]["xaxis2"]["title"]["text"] == "persisted in-flight data"
    assert "inside the predicted 202 ms to 441 ms" in chart.summary
    numbers = [row[4] for row in chart.table.rows if row[1] == "end-to-end duration"]
    assert numbers == [*card.recommendation.checkpoint_ids, *card.measured_ids]


def test_a_result_without_single_values_is_left_out_and_each_change_has_two_rows():
    card = verified()
    old = card.model_copy(update={"measured": tuple(m.model_copy(update={"values": ()}) for m in card.measured)})

    assert "No change has been measured" in outcome([old], theme=LIGHT).summary
    assert outcome_height_px([card, card]) > outcome_height_px([card, old]) == outcome_height_px([card])
    assert len(outcome([card, card], theme=LIGHT).figure["data"]) == 2 * 4 * len((Metric.DURATION, Metric.PERSISTED))


def test_a_missing_value_is_not_drawn():
    card = verified()
    rows = tuple(m.model_copy(update={"values": (None, *m.values[1:])}) for m in card.measured)
    chart = outcome([card.model_copy(update={"measured": rows, "state": AdviceState.VERIFIED})], theme=LIGHT)

    assert len(chart.figure["data"][2]["x"]) == 4
    assert next(r for r in chart.table.rows if r[3] == "after")[5] is None


def test_the_word_predicted_stands_at_the_predicted_value_on_a_log_and_on_a_linear_axis():
    card = verified()
    wide = IntervalOut(value=400_000, low=100_000, high=2_000_000)
    rows = tuple(
        m.model_copy(update={"predicted": wide, "values": (200_000.0,)}) if m.metric is Metric.PERSISTED else m
        for m in card.measured
    )
    expected = tuple(e.model_copy(update={"before_values": ()}) for e in card.recommendation.expected)
    advice = card.recommendation.model_copy(update={"expected": expected})
    layout = outcome([card.model_copy(update={"measured": rows, "recommendation": advice})], theme=LIGHT).figure[
        "layout"
    ]
    at = {n["xref"]: n["x"] for n in layout["annotations"]}

    assert "type" not in layout["xaxis2"]
    assert at["x2"] == 400_000
    both = outcome([card], theme=LIGHT).figure["layout"]
    assert both["xaxis"]["type"] == "log"
    assert both["annotations"][0]["x"] == pytest.approx(math.log10(228))


def test_the_rows_of_each_change_name_its_topic():
    card = verified()
    other = card.recommendation.model_copy(update={"topic": Topic.IN_FLIGHT})
    chart = outcome([card, card.model_copy(update={"recommendation": other})], theme=LIGHT)

    labels = chart.figure["layout"]["yaxis"]["ticktext"]
    assert labels == ["mode<br>before", "mode<br>after", "in flight<br>before", "in flight<br>after"]
    assert card.recommendation.headline in candidates(card, theme=LIGHT).summary
