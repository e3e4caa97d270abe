"""Tests of the figure of a job's backpressure over time."""

from __future__ import annotations

from datetime import timedelta

import plotly.graph_objects as go
import pytest

from backend.domain.checkpoint import CheckpointStatus
from backend.domain.pressure import PressureMeasure
from dashboard import text
from dashboard.figures.pressure_history import View, pressure_history
from dashboard.figures.pressure_history.cells import axis_ms, cells_of
from dashboard.figures.pressure_history.rows import FULL
from dashboard.palette import DARK, FAILED, IN_TRANSIT, LIGHT
from tests.support.figures import NOW
from tests.support.made_up_checkpoints import header_of
from tests.support.made_up_pressure import pressure_history_of

UTC_ZONE = text.zone("UTC")
VIEW = View(LIGHT, UTC_ZONE)


def history_of(fake, job="jE", **more):
    return pressure_history_of(fake.jobs[job].pressure, until=NOW, **more)


def traces(chart, **wanted):
    return [t for t in chart.figure["data"] if all(t.get(k) == v for k, v in wanted.items())]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("is_narrow", [True, False])
def test_the_figure_is_valid_and_has_a_row_for_each_vertex(fake, theme, is_narrow):
    history = history_of(fake, vertex_id=fake.jobs["jE"].pressure[1].vertex_id)
    checkpoints = [header_of(c) for c in fake.jobs["jE"].checkpoints]
    view = View(theme, UTC_ZONE, is_narrow=is_narrow, opened=history.vertices[1].vertex_id)

    chart = pressure_history(history, checkpoints, view)

    go.Figure(chart.figure)
    assert [t["customdata"][0][0] for t in chart.figure["data"] if t.get("showlegend") is False] == [
        v.vertex_id for v in history.vertices
    ]
    names = [a["text"] for a in chart.figure["layout"]["annotations"]]
    for vertex in history.vertices:
        assert any(text.short(vertex.vertex, 40 if is_narrow else 20).split(":")[0][:8] in n for n in names)


def test_the_areas_stack_to_the_measured_shares_and_stop_at_a_gap(fake):
    history = history_of(fake)
    first = history.vertices[0]
    chart = pressure_history(history, [], VIEW)
    base = len(history.vertices) - 1

    (busy,) = traces(chart, name="busy", fill="toself")
    (held,) = traces(chart, name="backpressured", fill="toself")
    end = busy["y"].index(None)
    assert busy["y"][2 : end - 3] == [pytest.approx(base + FULL * v, abs=2e-3) for v in first.busy_ratio[: end - 5]]
    assert held["y"][2] == pytest.approx(base + FULL * (first.busy_ratio[0] + first.backpressured_ratio[0]), abs=2e-3)
    # The made-up readings have one gap, so each vertex has two areas.
    assert busy["y"].count(None) == 2 * len(history.vertices)
    cells = cells_of(history, UTC_ZONE)
    assert [i for i, is_first in enumerate(cells.is_after_gap) if is_first] == [0, 40]
    gap = (cells.ends[39], cells.begins[40])
    assert not [x for x in busy["x"] if x is not None and gap[0] < x < gap[1]]


def test_a_missing_value_is_a_gap_and_not_zero(fake):
    history = history_of(fake)
    vertex = history.vertices[0]
    holed = [None if i == 10 else v for i, v in enumerate(vertex.busy_ratio)]
    history = history.model_copy(
        update={"vertices": [vertex.model_copy(update={"busy_ratio": holed, "busy_max_ratio": holed})]}
    )

    (busy,) = traces(pressure_history(history, [], VIEW), name="busy", fill="toself")

    assert busy["y"].count(None) == 3


def test_the_busiest_subtask_is_a_line_over_the_mean_except_for_a_single_subtask(fake):
    history = history_of(fake)
    single = history.model_copy(update={"vertices": [history.vertices[0].model_copy(update={"parallelism": 1})]})

    (line,) = traces(pressure_history(history, [], VIEW), name="busiest subtask")
    (none,) = traces(pressure_history(single, [], VIEW), name="busiest subtask")

    sink = history.vertices[-1]
    assert max(y for y in line["y"][-60:] if y is not None) == pytest.approx(
        FULL * max(v for v in sink.busy_max_ratio if v is not None), abs=1e-2
    )
    assert none["x"] == []


def test_the_subtasks_of_the_opened_vertex_are_rows_with_an_empty_column_at_the_gap(fake):
    vertex = fake.jobs["jE"].pressure[2].vertex_id
    history = history_of(fake, vertex_id=vertex, measure=PressureMeasure.BACKPRESSURED)

    chart = pressure_history(history, [], View(LIGHT, UTC_ZONE, opened=vertex))

    (cells,) = traces(chart, type="heatmap")
    assert len(cells["z"]) == 4
    assert all(len(row) == len(cells["x"]) - 1 for row in cells["z"]), "the positions are the edges of the columns"
    assert [i for i, v in enumerate(cells["z"][0]) if v is None] == [40]
    assert cells["colorscale"][1][1] == IN_TRANSIT
    assert chart.table.columns[1] == "subtask 0 (ratio)"
    assert len(chart.table.rows) == len(history.buckets)


def test_checkpoints_are_bars_on_the_same_axis_and_a_failed_one_is_orange_with_a_cross(fake):
    checkpoints = [header_of(c) for c in fake.jobs["jE"].checkpoints]
    failed = [c for c in checkpoints if c.status is CheckpointStatus.FAILED]

    chart = pressure_history(history_of(fake), checkpoints, VIEW)

    (bars,) = traces(chart, type="bar", name="failed")
    (crosses,) = traces(chart, mode="markers", name="failed")
    assert bars["x"] == crosses["x"] == [axis_ms(c.triggered_at, UTC_ZONE) for c in failed]
    assert bars["width"][0] >= failed[0].end_to_end_duration_ms
    assert bars["marker"]["color"] == FAILED
    assert crosses["marker"]["symbol"] == "x"
    assert bars["customdata"][0] == [None, failed[0].run_id, failed[0].checkpoint_id]


def test_the_time_axis_is_in_the_viewer_s_zone(fake):
    history = history_of(fake)

    chart = pressure_history(history, [], View(LIGHT, text.zone("Asia/Tokyo")))

    nine_hours_ms = 9 * 3600 * 1000
    assert chart.figure["layout"]["xaxis"]["range"][1] == axis_ms(NOW, UTC_ZONE) + nine_hours_ms


def test_without_readings_the_chart_says_so(fake):
    chart = pressure_history(pressure_history_of([], until=NOW), [], VIEW)

    assert "no backpressure readings" in chart.summary


def test_readings_that_are_rarer_than_buckets_leave_no_gaps(fake):
    history = history_of(fake)
    every = [NOW + timedelta(seconds=60 * i) for i in range(5)]
    rare = history.model_copy(update={"bucket_s": 10, "buckets": every})

    cells = cells_of(rare, UTC_ZONE)

    assert cells.is_after_gap == (True, False, False, False, False)
    assert cells.ends[:-1] == cells.begins[1:]


def test_the_queue_is_left_out_if_no_vertex_reports_one(fake):
    history = history_of(fake)
    silent = [v.model_copy(update={"queued_bytes": [None] * len(history.buckets)}) for v in history.vertices]

    chart = pressure_history(history.model_copy(update={"vertices": silent}), [], VIEW)

    assert "yaxis3" not in chart.figure["layout"]
    assert not traces(chart, yaxis="y3")


@pytest.mark.parametrize(
    ("time_s", "said"),
    [(4.25, "(read in about 4.2 s, reconstructed; debloating target now 1.0 s)"), (None, "now 1.0 s)")],
)
def test_the_time_in_which_the_opened_vertex_reads_its_queue_stands_beside_the_target(fake, time_s, said):
    history = history_of(fake)
    vertex = history.vertices[-1]
    times = [1.0] * (len(history.buckets) - 1) + [time_s]
    history = history.model_copy(
        update={"vertices": [*history.vertices[:-1], vertex.model_copy(update={"time_to_consume_s": times})]}
    )
    view = View(LIGHT, UTC_ZONE, opened=vertex.vertex_id, debloat_target_ms=1000)

    chart = pressure_history(history, [], view)

    (title,) = [n["text"] for n in chart.figure["layout"]["annotations"] if "buffered bytes" in n["text"]]
    assert title.endswith(said)
    hover = next(t for t in traces(chart, name="", mode="lines") if t["customdata"][0][0] == vertex.vertex_id)
    assert ["read in about" in row[6] for row in hover["customdata"]][-2:] == [True, time_s is not None]


def test_the_debloating_target_stands_at_the_buffered_bytes_if_it_is_known(fake):
    history = history_of(fake)
    titles = {}
    for target_ms, is_narrow in ((None, False), (500, False), (500, True)):
        view = View(LIGHT, UTC_ZONE, debloat_target_ms=target_ms, is_narrow=is_narrow)
        notes = pressure_history(history, [], view).figure["layout"]["annotations"]
        (titles[target_ms, is_narrow],) = [n["text"] for n in notes if "buffered bytes" in n["text"]]

    assert titles[None, False] == "buffered bytes, mean: all vertices"
    assert titles[500, False].endswith("(debloating target now 500 ms)")
    assert titles[500, True] == "buffered bytes, mean: debloated to 500 ms"


def test_a_vertex_without_busy_time_has_a_row_with_its_other_shares(fake):
    history = history_of(fake)
    first = history.vertices[0]
    nothing = [None] * len(history.buckets)
    legacy = first.model_copy(update={"busy_ratio": nothing, "busy_max_ratio": nothing, "is_source": True})
    chart = pressure_history(history.model_copy(update={"vertices": [legacy]}), [], VIEW)

    (held,) = traces(chart, name="backpressured", fill="toself")
    (hover,) = [t for t in chart.figure["data"] if t.get("showlegend") is False]
    tops = [FULL * v for v in first.backpressured_ratio if v is not None]
    assert max(y for y in held["y"] if y is not None) == pytest.approx(max(tops), abs=2e-3)
    said = [row[1] for row, v in zip(hover["customdata"], first.backpressured_ratio, strict=True) if v is not None]
    assert set(said) == {"busy time: not reported by this kind of source"}
