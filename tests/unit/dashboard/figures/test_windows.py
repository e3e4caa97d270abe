"""Tests of the chart of the distributions in two windows."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from backend.domain.rollup import Measure
from dashboard.figures.windows import distributions
from dashboard.palette import DARK, LIGHT
from tests.support.api_examples import example


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("measure", [Measure.DURATION, Measure.PERSISTED])
def test_the_figure_is_valid(theme, measure):
    go.Figure(distributions(example("windows_comparison"), measure, theme=theme).figure)


def test_each_window_is_a_curve_from_zero_to_all_checkpoints_with_its_median():
    found = example("windows_comparison")
    before, mark, after, _ = distributions(found, Measure.DURATION, theme=LIGHT).figure["data"]

    assert (before["name"], after["name"]) == ("before (10)", "after (10)")
    assert (before["y"][0], before["y"][-1]) == (0.0, 1.0)
    assert before["line"]["shape"] == "hv"
    assert mark["x"] == [found.measures[0].before.median.value]
    assert before["line"]["dash"] != after["line"]["dash"], "colour is not the only difference"


def test_a_window_without_values_has_no_curve_and_an_unknown_measure_says_so():
    found = example("windows_comparison")
    one = found.measures[0].model_copy(update={"before": None})
    half = distributions(found.model_copy(update={"measures": [one]}), Measure.DURATION, theme=LIGHT)

    assert [t["name"] for t in half.figure["data"]] == ["after (10)", "median after"]
    assert "reported its persisted in-flight" in distributions(found, Measure.PERSISTED, theme=LIGHT).summary


def test_the_table_has_every_point_of_every_measure():
    found = example("windows_comparison")
    table = distributions(found, Measure.DURATION, theme=LIGHT).table

    points = sum(len(d.points) for m in found.measures for d in (m.before, m.after))
    assert len(table.rows) == points
    assert table.rows[0][:4] == ("end-to-end duration", "ms", "before", 10.0)


def test_a_curve_ends_with_an_open_arrow_at_the_first_expired_checkpoint():
    found = example("windows_comparison")
    one = found.measures[0]
    after = one.after.model_copy(update={"expired_from": one.after.points[-1]})
    cut = found.model_copy(update={"measures": [one.model_copy(update={"after": after})]})
    curve, arrow, _ = distributions(cut, Measure.DURATION, theme=LIGHT).figure["data"][2:]

    assert curve["y"][-1] == curve["y"][-2] < 1, "no step at a lower bound"
    assert (arrow["x"], arrow["y"]) == ([after.points[-1]], [curve["y"][-1]])
    assert arrow["marker"]["symbol"] == "triangle-right-open"


def test_a_window_in_which_all_expired_is_a_line_at_zero_up_to_the_timeout():
    one = example("windows_comparison").measures[0]
    after = one.after.model_copy(
        update={
            "expired_from": one.after.points[0],
            "median": one.after.median.model_copy(update={"is_at_least": True}),
        }
    )
    found = example("windows_comparison").model_copy(update={"measures": [one.model_copy(update={"after": after})]})
    curve, arrow = distributions(found, Measure.DURATION, theme=LIGHT).figure["data"][2:]

    assert (curve["x"], curve["y"]) == ([0.0, after.points[0]], [0.0, 0.0])
    assert arrow["name"] == "expired after", "a median that is a lower bound has no mark"
