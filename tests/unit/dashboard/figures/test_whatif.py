"""The charts of what-ifs: which of them are on the front, and how that is drawn."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from backend.contracts.advice import IntervalOut
from backend.contracts.whatif import EstimateOut, Measure, PredictionOut, Tier, WhatIfOut
from backend.services.whatif.presenting import with_front
from dashboard.components.whatif import headline
from dashboard.figures.whatif import durations, pareto
from dashboard.palette import DARK, LIGHT
from tests.support.api_examples import example


def prediction(interval: str, duration_ms: float, persisted: float, expired: float = 0.0) -> PredictionOut:
    values = {Measure.DURATION: duration_ms, Measure.PERSISTED: persisted, Measure.EXPIRED: expired}
    estimates = [
        EstimateOut(measure=m, unit="", predicted=IntervalOut(value=v, low=v, high=v), tier=Tier.FAST)
        for m, v in values.items()
    ]
    return PredictionOut(settings={"interval": interval}, tier=Tier.FAST, estimates=estimates)


def answer(*predictions: PredictionOut) -> WhatIfOut:
    current, asked, *others = with_front(predictions)
    found: WhatIfOut = example("what_if")
    return found.model_copy(update={"current": current, "asked": asked, "others": others})


def fronts(found: WhatIfOut) -> tuple[list[str], list[float]]:
    """Return the column that says whether a what-if is on the front, and the durations of the drawn line."""
    chart = pareto(found, theme=LIGHT)
    (line,) = [t for t in chart.figure["data"] if t.get("name") == "front"]
    return [str(row[-1]) for row in chart.table.rows], line["x"]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_the_figures_are_valid(theme):
    go.Figure(durations(example("what_if"), theme=theme).figure)
    go.Figure(pareto(example("what_if"), theme=theme).figure)


def test_the_chart_has_the_front_of_the_answer():
    found = answer(prediction("1 s", 100, 50), prediction("2 s", 200, 10), prediction("3 s", 200, 60))

    assert fronts(found) == (["yes", "yes", "no"], [100.0, 200.0])


def test_a_what_if_under_which_fewer_checkpoints_expire_is_on_the_front_although_it_takes_longer():
    found = answer(prediction("1 s", 100, 10, 0.5), prediction("2 s", 200, 60), prediction("3 s", 300, 70))

    # A line through these would say that the shorter one is better in every way.
    assert fronts(found) == (["yes", "yes", "no"], [])
    (points,) = [t for t in pareto(found, theme=LIGHT).figure["data"] if t.get("name") == "now"]
    assert "50 % expire" in points["text"][0]
    assert points["marker"]["symbol"] == ["circle"]


def labels(found: WhatIfOut) -> list[str]:
    return [note["text"] for note in pareto(found, theme=LIGHT).figure["layout"]["annotations"]]


def test_a_page_on_which_nothing_was_changed_shows_the_job_as_it_is_once():
    found = answer(prediction("1 s", 100, 50), prediction("1 s", 100, 50), prediction("2 s", 500, 10))
    found.asked.settings.clear()

    assert labels(found) == ["now"]
    assert [t["name"] for t in durations(found, theme=LIGHT).figure["data"]] == ["measured", "predicted, as it is"]


def test_settings_that_are_those_of_the_job_change_nothing():
    own = next(s.current for s in example("what_if").settings if s.name == "interval")
    same = answer(prediction(own, 100, 50), prediction(own, 100, 50), prediction("2 s", 500, 10))

    assert labels(same) == ["now"]
    assert "asked" not in [t.get("name") for t in pareto(same, theme=LIGHT).figure["data"]]
    assert len(durations(same, theme=LIGHT).figure["data"]) == 2
    assert headline(same, [f"interval {own}"]) == "Move a slider to see what would happen."


def test_labels_of_points_that_lie_nearly_on_each_other_are_one_label():
    near = answer(prediction("1 s", 100, 50), prediction("2 s", 101, 51), prediction("3 s", 500, 10))
    far = answer(prediction("1 s", 100, 50), prediction("2 s", 500, 10))

    assert labels(near) == ["now, asked"]
    assert labels(far) == ["now", "asked"]


def test_an_axis_without_persisted_data_has_the_tick_0_once():
    aligned = answer(prediction("1 s", 100, 0), prediction("2 s", 200, 0), prediction("3 s", 500, 0))

    axis = pareto(aligned, theme=LIGHT).figure["layout"]["yaxis"]

    assert (axis["tickvals"], axis["ticktext"]) == ([0.0], ["0 B"])
    assert axis["range"][0] < 0 < axis["range"][1]
