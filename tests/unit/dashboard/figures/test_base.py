"""Tests of all figures: they match Plotly's schema, have a table and a summary, and escape markup."""

from __future__ import annotations

import json
from datetime import UTC

import plotly.graph_objects as go
import pytest

from backend.contracts.backpressure import BackpressureOut
from backend.domain.checkpoint import SubtaskMeasure
from dashboard.figures import acks, base, front, gantt, pressure, subtask_heatmap, timeline, trend
from dashboard.palette import DARK, LIGHT
from tests.support.fake_api import HOSTILE
from tests.support.figures import NOW, front_of
from tests.support.made_up_checkpoints import matrix_of

_THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)

# The browser loads a part of Plotly that draws no other types (``dashboard/vendor/bundle.cjs``).
_IN_THE_BUNDLE = {"scatter", "bar", "heatmap"}

_JOBS = ("jE", "jB2", "jruntime", "jwide", "jplain1", "jnew")


def _charts(fake, job: str, theme):
    made = fake.jobs[job]
    checkpoints = [fake._answer("GET", f"jobs/{job}/checkpoints", b"")][0].items
    around = timeline.Around(events=made.events)
    for is_log in (False, True):
        yield timeline.timeline(
            checkpoints, around, theme=theme, where=UTC, timeout_ms=made.detail.timeout_ms, interval_ms=5000,
            now=NOW, is_log=is_log,
        )  # fmt: skip
    for measure in SubtaskMeasure:
        matrix = matrix_of(made.checkpoints, measure)
        yield subtask_heatmap.heatmap(matrix, theme=theme, is_log=measure.is_bytes)
    yield trend.trend(fake._answer("GET", f"jobs/{job}/rollups", b"").items, theme=theme, where=UTC)
    yield pressure.backpressure(BackpressureOut(vertices=made.pressure, as_of=NOW), theme=theme)
    for checkpoint in made.checkpoints[-2:]:
        ids = [v.vertex_id for v in checkpoint.vertices]
        model = front_of(fake, job, checkpoint)
        for opened in ([], ids[-1:], ids):
            yield gantt.gantt(checkpoint, theme=theme, opened=opened, sort="finish")
            for share in (0, 0.5, 1):
                yield front.draw(model, share * model.end_ms, front.FrontView(theme, opened=opened))
        progress = fake._answer("GET", f"jobs/{job}/runs/r/checkpoints/{checkpoint.checkpoint_id}/progress", b"")
        yield acks.acknowledgements(progress, theme=theme)


@_THEMES
@pytest.mark.parametrize("job", _JOBS)
def test_every_figure_of_every_job_is_valid_and_has_its_table_and_its_sentence(fake, job, theme):
    for chart in _charts(fake, job, theme):
        go.Figure(chart.figure)
        assert {trace["type"] for trace in chart.figure["data"]} <= _IN_THE_BUNDLE
        json.dumps(chart.figure)
        assert chart.summary
        assert all(len(row) == len(chart.table.columns) for row in chart.table.rows)
        assert chart.figure["layout"]["height"] == chart.height_px


@_THEMES
def test_markup_in_a_name_is_escaped_in_figures(fake, theme):
    assert HOSTILE in fake.jobs["jwide"].checkpoints[-1].vertices[1].vertex
    for chart in _charts(fake, "jwide", theme):
        assert "<img" not in json.dumps(chart.figure)


@pytest.mark.parametrize("most_bytes", [0, 0.3, 1, 1.6, 5, 7, 11, 999, 1_000, 5_300, 64_000, 1.1e6, 4.9e9])
def test_the_ticks_of_an_axis_of_sizes_are_few_and_have_different_labels(most_bytes):
    ticks = base.size_ticks(most_bytes)

    assert len(set(ticks["ticktext"])) == len(ticks["ticktext"]) == len(ticks["tickvals"]) <= 7
    assert ticks["tickvals"][0] == 0
    assert max(ticks["tickvals"]) <= most_bytes
    assert len(ticks["tickvals"]) >= 3 or most_bytes < 2
