"""Tests of the chart that draws two checkpoints on one axis."""

from __future__ import annotations

from datetime import UTC, datetime

import plotly.graph_objects as go
import pytest

from backend.contracts.comparing import BatchPartDifferenceOut, CheckpointComparisonOut
from backend.domain.checkpoint import SubtaskMeasure
from backend.domain.micro_batch import BatchPhase
from dashboard.figures.comparison import comparison, names
from dashboard.palette import DARK, LIGHT
from tests.support.api_examples import example
from tests.support.fake_api import FakeApi
from tests.support.made_up_comparisons import comparison_of

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def _made(job, a, b, vertex=None):
    made = FakeApi(now=lambda: NOW).jobs[job]
    opened = None if vertex is None else (vertex, SubtaskMeasure.DURATION, 20)
    return comparison_of(made.detail, made.checkpoints, made.pressure, a, b, opened=opened, as_of=NOW)


def _bars(chart, name):
    return [t for t in chart.figure["data"] if t["name"] == name]


@pytest.mark.parametrize("is_narrow", [False, True])
@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_the_figure_is_valid(theme, is_narrow):
    for found in (_made("jruntime", 23, 3, "enrich"), _made("jE", 14, 9), _made("jwide", 23, 18, "w1")):
        go.Figure(comparison(found, theme=theme, is_narrow=is_narrow).figure)


def test_each_vertex_has_a_row_of_each_side_on_the_same_axis():
    chart = comparison(_made("jruntime", 23, 3), theme=LIGHT)

    (delays,) = _bars(chart, "start delay")
    assert len(delays["y"]) == 8
    assert delays["x"][-2] > delays["x"][-1], "checkpoint 23 is above checkpoint 3, and its barrier came later"
    labels = chart.figure["layout"]["yaxis"]["ticktext"]
    assert labels[:2] == ["▸ <b>orders-source</b>  #23 subtask 3", "#3 subtask 3"]
    assert "xaxis" not in delays


def test_differences_are_signed_and_on_their_own_axis():
    there, back = (comparison(_made("jruntime", *pair), theme=LIGHT) for pair in ((23, 3), (3, 23)))

    (longer,), (shorter,) = (_bars(c, "difference of start delay") for c in (there, back))
    assert longer["xaxis"] == "x2"
    assert all(x > 0 for x in longer["x"])
    assert [-x for x in shorter["x"]] == longer["x"]
    assert longer["text"][-1].startswith("+")
    assert shorter["text"][-1].startswith("-")
    low, high = back.figure["layout"]["xaxis2"]["range"]
    assert low < 0 < high


def test_a_side_without_a_vertex_has_no_bars_and_no_difference():
    found = _made("jruntime", 23, 3)
    sink = found.vertices[-1]
    gone = sink.model_copy(
        update={
            "b_slowest": None,
            "b_subtask_count": None,
            "measures": [m.model_copy(update={"b": None, "difference": None}) for m in sink.measures],
        }
    )
    chart = comparison(found.model_copy(update={"vertices": [*found.vertices[:-1], gone]}), theme=LIGHT)

    assert len(_bars(chart, "start delay")[0]["y"]) == 7
    assert len(_bars(chart, "difference of start delay")[0]["y"]) == 3
    pointer = _bars(chart, "row")[0]
    assert pointer["hovertext"][-1] == "<b>#3 ledger-sink</b><br>not reported"
    assert next(row for row in chart.table.rows if row[0] == "ledger-sink")[4:7] == (7201, None, None)


def test_an_opened_vertex_has_rows_of_its_subtasks_that_can_be_clicked():
    pointer = _bars(comparison(_made("jruntime", 23, 3, "enrich"), theme=LIGHT), "row")[0]

    assert pointer["customdata"][4:8] == [["enrich", None], ["enrich", None], ["enrich", 3], ["enrich", 3]]


def test_vertices_can_be_ordered_by_their_largest_difference():
    rows = _bars(comparison(_made("jruntime", 23, 3), theme=LIGHT, is_by_difference=True), "row")[0]["customdata"]

    assert [row[0] for row in rows[::2]] == ["sink", "enrich", "parse", "source"]


def test_subtasks_that_did_not_acknowledge_are_hatched():
    chart = comparison(_made("jE", 14, 9), theme=LIGHT)

    (pending,) = _bars(chart, "not acknowledged")
    assert len(pending["y"]) == 2
    assert pending["marker"]["pattern"]["shape"] == "/"


def test_the_table_has_every_measure_of_every_vertex_and_of_the_opened_subtasks():
    table = comparison(_made("jruntime", 23, 3, "enrich"), theme=LIGHT).table

    assert table.columns[4:7] == ("#23", "#3", "difference")
    assert len(table.rows) == (4 + 4) * len(SubtaskMeasure)
    assert ("ledger-sink", "all", "duration", "ms", 7201, 4320, 2881, 3, 3) in table.rows


def test_names_with_markup_are_escaped():
    chart = comparison(_made("jwide", 23, 18), theme=LIGHT)

    labels = " ".join(chart.figure["layout"]["yaxis"]["ticktext"])
    assert "<img" not in labels + " ".join(_bars(chart, "row")[0]["hovertext"])
    assert "&lt;img" in labels


def test_micro_batches_are_one_pair_of_rows_with_the_parts_as_segments():
    found = example("checkpoint_comparison").model_copy(
        update={
            "vertices": [],
            "batch_parts": [
                BatchPartDifferenceOut(phase=BatchPhase.ADD_BATCH, a_ms=8_600, b_ms=600, difference_ms=8_000),
                BatchPartDifferenceOut(phase=BatchPhase.WAL_COMMIT, a_ms=None, b_ms=90, difference_ms=None),
                BatchPartDifferenceOut(phase=None, a_ms=300, b_ms=10, difference_ms=290),
            ],
        }
    )
    chart = comparison(found, theme=LIGHT)

    go.Figure(chart.figure)
    assert _bars(chart, "run the query")[0]["x"] == [8_600, 600]
    assert _bars(chart, "write offsets file")[0]["x"] == [90]
    assert _bars(chart, "difference of run the query")[0]["x"] == [8_000]
    assert _bars(chart, "difference of write offsets file") == []
    assert (None, None, "write offsets file", "ms", None, 90, None, None, None) in chart.table.rows


def test_without_values_of_subtasks_or_a_second_checkpoint_the_chart_says_so():
    found: CheckpointComparisonOut = example("checkpoint_comparison")

    assert "not stored" in comparison(found.model_copy(update={"vertices": []}), theme=LIGHT).summary
    assert "second" in comparison(found.model_copy(update={"b": None, "vertices": []}), theme=LIGHT).summary
    assert names(found) == ("#411", "#398")
