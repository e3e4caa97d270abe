"""Tests of the flame graph: the places of its bars, what is left out, and that names are escaped."""

from __future__ import annotations

import json

import plotly.graph_objects as go
import pytest

from backend.contracts.inspection import FrameOut
from dashboard.figures import flame
from dashboard.palette import DARK, LIGHT
from tests.support.api_examples import example


def _graph(*frames):
    rows = [FrameOut(name=name, sample_count=count, parent=parent) for name, count, parent in frames]
    return example("flame_graph").model_copy(update={"frames": rows, "sample_count": rows[0].sample_count})


def _bars(chart):
    """Return the bars as (full name, row, begin in percent, width in percent)."""
    return {
        (names[0], y, base, x)
        for trace in chart.figure["data"]
        for names, y, base, x in zip(trace["customdata"], trace["y"], trace["base"], trace["x"], strict=True)
    }


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)
def test_the_recorded_flame_graph_is_drawn_in_the_types_of_the_bundle(theme):
    chart = flame.flame_graph(example("flame_graph"), theme=theme)

    go.Figure(chart.figure)
    assert {trace["type"] for trace in chart.figure["data"]} == {"bar"}
    assert chart.figure["layout"]["height"] == chart.height_px
    assert chart.summary == "99 % of 100 samples are in example.Enrich.processElement:164"
    assert len(chart.table.rows) == len(example("flame_graph").frames)
    assert chart.hints == ("the 12 outermost methods are left out, because all samples share them",)


def test_a_called_method_stands_below_its_caller_and_within_its_width():
    chart = flame.flame_graph(
        _graph(("root", 10, None), ("a.A.a:1", 4, 0), ("b.B.b:2", 6, 0), ("c.C.c:3", 3, 1), ("d.D.d:4", 1, 1)),
        theme=LIGHT,
    )
    assert _bars(chart) == {
        ("root", 0, 0, 100),
        ("b.B.b:2", 1, 0, 60),
        ("a.A.a:1", 1, 60, 40),
        ("c.C.c:3", 2, 60, 30),
        ("d.D.d:4", 2, 90, 10),
    }


def test_very_deep_stacks_and_very_narrow_methods_are_left_out_of_the_chart_only():
    deep = [("root", 1000, None), *((f"a.A.m{n}", 1000, n) for n in range(80)), ("a.A.rare", 1, 0)]
    chart = flame.flame_graph(_graph(*deep), theme=LIGHT)

    assert max(y for _, y, _, _ in _bars(chart)) == 59
    assert "a.A.rare" not in {name for name, *_ in _bars(chart)}
    assert len(chart.table.rows) == 82
    assert chart.hints == ("21 methods are too deep for the chart",)


def test_markup_in_the_name_of_a_method_is_escaped():
    chart = flame.flame_graph(_graph(("root", 2, None), ("a.Foo.<init>:7", 2, 0)), theme=LIGHT)

    assert "<init>" not in json.dumps(chart.figure)
    assert "&lt;init&gt;" in json.dumps(chart.figure)
    assert chart.table.rows[1][1] == "a.Foo.<init>:7"


def test_while_the_engine_is_sampling_and_without_samples_the_chart_says_so():
    found = example("flame_graph").model_copy(update={"frames": [], "sample_count": 0})
    sampling = flame.flame_graph(found.model_copy(update={"is_sampling": True}), theme=LIGHT)

    assert "is sampling" in sampling.summary
    assert "No sample" in flame.flame_graph(found, theme=LIGHT).summary
