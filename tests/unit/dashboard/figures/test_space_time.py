"""Tests of the space-time diagram."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from backend.analysis.space_time.folding import LaneVertex, fold
from backend.analysis.space_time.trace import Stretch, SubtaskTrace, Trace
from backend.contracts.space_time import SpaceTimeOut
from backend.domain.ids import VertexId
from backend.domain.topology import Topology
from backend.domain.verdict import Basis
from backend.services.checkpoints.space_time import space_time_out
from dashboard.figures.space_time import View, space_time
from dashboard.palette import DARK, LIGHT
from tests.support.made_up_space_time import space_time_of

VIEW = View(LIGHT)


def diagram_of(fake, job, opened=()) -> SpaceTimeOut:
    checkpoint = [c for c in fake.jobs[job].checkpoints if c.status.is_terminal][-1]
    return space_time_of(checkpoint, fake.jobs[job].detail, opened)


def drawn(found, view=VIEW):
    return space_time(found, view, revision="r")


def folded(subtasks, pinned=()) -> SpaceTimeOut:
    """Return the diagram of one vertex, which has more subtasks than lanes."""
    own = {(VertexId("a"), i): s for i, s in enumerate(subtasks)}
    diagram = fold(
        Trace(own, [], Basis.MEASURED),
        [LaneVertex(VertexId("a"), "a", len(own))],
        pinned=[(VertexId("a"), i) for i in pinned],
    )
    return space_time_out(diagram, Basis.MEASURED, None, 600.0, Topology((), ()))


def trace(chart, name):
    return next((t for t in chart.figure["data"] if t["name"] == name), None)


@pytest.mark.parametrize("job", ["jruntime", "jE", "jwide"])
@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("is_narrow", [True, False])
def test_the_figure_is_valid_and_has_one_label_for_each_lane(fake, job, theme, is_narrow):
    found = diagram_of(fake, job)
    chart = drawn(found, View(theme, is_narrow=is_narrow, ends_ms=(1.0, 3.5), at_ms=2.0))
    go.Figure(chart.figure)
    layout = chart.figure["layout"]
    labels = layout["annotations"][:-1] if is_narrow else layout["yaxis"]["ticktext"]
    assert len(labels) == len(found.lanes) == len(chart.table.rows)
    assert layout["xaxis"]["range"] == [1.0, 3.5]
    assert [s["x0"] for s in layout["shapes"] if s.get("yref") == "paper"] == [2.0]


def test_measured_barriers_that_overtook_data_are_dashed_and_the_cut_passes_through_every_snapshot(fake):
    found = diagram_of(fake, "jruntime")
    chart = drawn(found)
    overtaking = trace(chart, "overtaking barrier")
    count = sum(bool(a.overtook_bytes) for a in found.arrows)
    assert overtaking["line"]["dash"] == "dash"
    assert len(overtaking["x"]) == 3 * count > 0
    cut = trace(chart, "cut")
    assert cut["x"] == [lane.snapshot_last_ms for lane in found.lanes]
    assert cut["line"]["dash"] == "solid"
    assert len(trace(chart, "recorded")["x"]) == sum(lane.recorded is not None for lane in found.lanes) > 0
    assert found.cut.sentence in chart.summary


def test_reconstructed_arrows_are_dotted_and_say_so(fake):
    chart = drawn(diagram_of(fake, "jE"))
    arrows = trace(chart, "barrier")
    assert arrows["line"]["dash"] == trace(chart, "cut")["line"]["dash"] == "dot"
    assert all("reconstructed" in said for said in arrows["text"] if said)
    assert "reconstructed" in chart.summary


def test_the_number_of_traces_and_of_points_is_bounded_for_a_large_job(fake):
    ids = [v.id for v in fake.jobs["jwide"].detail.vertices]
    found = diagram_of(fake, "jwide", ids)
    chart = drawn(found)
    assert len(found.lanes) <= 60
    assert len(chart.figure["data"]) <= 12
    assert sum(len(t["x"]) for t in chart.figure["data"]) < 6_000
    # A name cannot bring markup into the page.
    assert not any("<img" in str(t.get("text")) for t in chart.figure["data"])


def test_a_barrier_that_was_not_received_ends_at_the_end_of_the_diagram_without_a_head(fake):
    found = diagram_of(fake, "jruntime")
    lost = found.arrows[0].model_copy(update={"received_ms": None, "received_last_ms": None, "unreceived_count": 1})
    chart = drawn(found.model_copy(update={"arrows": [lost, *found.arrows[1:]]}))
    line = trace(chart, "barrier not received")
    assert line["x"] == [lost.emitted_last_ms, found.end_ms, None]
    assert set(line["marker"]["size"]) == {0}
    assert "not received" in line["text"][1]


def test_a_checkpoint_of_which_nothing_is_known_says_so(fake):
    found = diagram_of(fake, "jE")
    lanes = [lane.model_copy(update={"first_ms": None}) for lane in found.lanes]
    assert "No times" in drawn(found.model_copy(update={"lanes": lanes})).summary


@pytest.mark.parametrize(("ends", "first", "last"), [((0.0, 0.9), "0 ms", "0.9 ms"), ((800.0, 3000.0), "1 s", "3 s")])
def test_ticks_are_round_in_the_shown_range(fake, ends, first, last):
    axis = drawn(diagram_of(fake, "jE"), View(LIGHT, ends_ms=ends)).figure["layout"]["xaxis"]
    assert (axis["ticktext"][0], axis["ticktext"][-1]) == (first, last)
    assert all(ends[0] <= v <= ends[1] for v in axis["tickvals"])


def test_no_bar_of_a_folded_lane_runs_backwards():
    written = SubtaskTrace(first_ms=1, snapshot_ms=5, sync_end_ms=10, async_end_ms=20)
    late = SubtaskTrace(first_ms=1, snapshot_ms=5, sync_end_ms=500)
    chart = drawn(folded([written] * 99 + [late]))
    sync, parts = trace(chart, "sync"), trace(chart, "async")
    assert (sync["base"], sync["x"]) == ([5], [495])
    assert (parts["base"], parts["x"]) == ([10], [10])
    assert "first began 10 ms, last ended 20 ms" in parts["text"][0]


def test_a_part_that_ends_before_it_begins_is_not_drawn():
    found = folded([SubtaskTrace(first_ms=1, snapshot_ms=5, sync_end_ms=10, async_end_ms=20)] * 100)
    lane = found.lanes[0].model_copy(update={"async_end_last_ms": 9.0})
    assert trace(drawn(found.model_copy(update={"lanes": [lane]})), "async") is None


def test_a_folded_lane_claims_no_length_of_blocking_but_the_first_and_the_last_time():
    blocked = [SubtaskTrace(first_ms=1, blocked=(Stretch(1, 2, 1),), recorded=Stretch(3, 4, 1))] * 99
    late = SubtaskTrace(first_ms=1, blocked=(Stretch(400, 401, 1),), recorded=Stretch(402, 404, 2))
    chart = drawn(folded([*blocked, late], pinned=[7]))
    rows = [dict(zip(chart.table.columns, row, strict=True)) for row in chart.table.rows]
    assert [(r["subtask"], r["blocked ms"], r["recorded ms"]) for r in rows] == [(None, None, None), (7, 1, 1)]
    many, one = trace(chart, "blocked")["text"]
    assert many.endswith("channels first blocked 1 ms, last 401 ms")
    assert one.endswith("channels blocked: 1 ms to 2 ms, 1 channel")
    assert trace(chart, "recorded")["text"][0].endswith("input first recorded 3 ms, last 404 ms")


def test_a_folded_lane_without_blocking_was_blocked_for_0_ms():
    chart = drawn(folded([SubtaskTrace(first_ms=1)] * 100))
    (row,) = chart.table.rows
    assert row[chart.table.columns.index("blocked ms")] == 0


def test_a_stretch_of_several_channels_says_how_many():
    chart = drawn(folded([SubtaskTrace(first_ms=1, blocked=(Stretch(1, 2, 3),))]))
    assert trace(chart, "blocked")["text"][0].endswith("1 ms to 2 ms, at most 3 channels at once")
