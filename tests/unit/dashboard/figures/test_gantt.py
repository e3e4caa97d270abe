"""Tests of the phase chart: it shows the values of the API, and never shows a missing value as zero."""

from __future__ import annotations

import pytest

from backend.contracts import api
from backend.domain.verdict import Basis, Phase
from dashboard.figures import gantt
from dashboard.palette import LIGHT
from tests.support.figures import newest


def _bars(chart) -> dict[str, dict]:
    return {t["name"]: t for t in chart.figure["data"] if t["type"] == "bar"}


def _subtask(**more) -> api.SubtaskPhasesOut:
    values = {
        "subtask": 0, "is_acknowledged": True, "first_barrier_ms": 100, "first_barrier_basis": Basis.MEASURED,
        "alignment_end_ms": 300, "snapshot_at_ms": 300, "sync_end_ms": 310, "async_end_ms": 400, "ack_ms": 420,
        "start_delay_ms": 100, "alignment_duration_ms": 200, "sync_duration_ms": 10, "async_duration_ms": 90,
        "ack_wait_ms": 20,
    }  # fmt: skip
    return api.SubtaskPhasesOut.model_validate(values | more)


def test_the_segments_of_an_aligned_subtask_follow_each_other():
    found = [(s.phase, s.start_ms, s.end_ms) for s in gantt.segments(_subtask())]

    assert found == [
        (Phase.START_DELAY, 0, 100), (Phase.ALIGNMENT, 100, 300), (Phase.SYNC, 300, 310), (Phase.ASYNC, 310, 400),
        (Phase.ACK_WAIT, 400, 420),
    ]  # fmt: skip


def test_alignment_inside_async_is_an_overlay_and_never_stacked():
    s = _subtask(snapshot_at_ms=150, sync_end_ms=160, async_end_ms=400, is_alignment_overlaid=True)

    segments = gantt.segments(s)

    assert [(g.start_ms, g.end_ms) for g in segments if g.phase is Phase.ALIGNMENT] == [(100, 150)]
    ends = [g.end_ms for g in segments]
    assert [g.start_ms for g in segments] == [0, *ends[:-1]]


def test_a_phase_that_was_not_reported_has_no_segment():
    s = _subtask(
        is_acknowledged=False, first_barrier_ms=None, first_barrier_basis=None, alignment_end_ms=None,
        snapshot_at_ms=None, sync_end_ms=None, async_end_ms=None, ack_ms=None, start_delay_ms=None,
        alignment_duration_ms=None, sync_duration_ms=None, async_duration_ms=None, ack_wait_ms=None,
    )  # fmt: skip

    assert gantt.segments(s) == []


def test_an_expired_checkpoint_shows_the_late_barriers_with_their_resolution_and_when_it_expired(fake):
    expired = newest(fake, "jE")
    sink = expired.vertices[-1]
    late = [s for s in sink.subtasks if not s.is_acknowledged]
    assert late

    chart = gantt.gantt(expired, theme=LIGHT, opened=[sink.vertex_id])

    marks = next(t for t in chart.figure["data"] if t["name"] == "first barrier (gauge)")
    assert set(marks["x"]) == {s.first_barrier_ms for s in late}
    hover = " ".join(_bars(chart)["row"]["hovertext"])
    assert "± 500 ms" in hover
    assert "has not acknowledged" in hover
    assert any(n["text"] == "expired 3.0 s" for n in chart.figure["layout"]["annotations"])
    assert "not acknowledged" in _bars(chart)


def test_the_critical_path_is_a_line_over_its_own_subtasks_and_in_the_sentence(fake):
    checkpoint = newest(fake, "jruntime")
    path = checkpoint.critical_path

    pinned = gantt.gantt(checkpoint, theme=LIGHT)
    loose = gantt.gantt(checkpoint, theme=LIGHT, is_path_pinned=False)

    line = next(t for t in pinned.figure["data"] if t["name"] == "critical path")
    assert line["x"] == [x for s in path.steps for x in (s.start_ms, s.end_ms)]
    assert not any(t["name"] == "critical path" for t in loose.figure["data"])
    assert "Critical path: orders-source subtask" in pinned.summary


def test_a_closed_vertex_is_one_row_and_an_opened_one_has_a_row_for_each_subtask(fake):
    checkpoint = newest(fake, "jruntime")
    closed = gantt.gantt(checkpoint, theme=LIGHT)
    opened = gantt.gantt(checkpoint, theme=LIGHT, opened=["enrich"])

    assert len(_bars(closed)["row"]["customdata"]) == 4
    rows = _bars(opened)["row"]["customdata"]
    assert [r for r in rows if r[0] == "enrich"][1:] == [["enrich", i] for i in range(4)]


@pytest.mark.parametrize("end_ms", [18, 700, 9_400, 61_000, 590_000, 4_000_000])
def test_on_a_phone_the_time_axis_has_at_most_six_labels_and_none_is_slanted(fake, end_ms):
    checkpoint = newest(fake, "jruntime").model_copy(update={"vertices": newest(fake, "jruntime").vertices[:1]})
    checkpoint = checkpoint.model_copy(update={"end_to_end_duration_ms": end_ms})

    times = gantt.gantt(checkpoint, theme=LIGHT, is_narrow=True).figure["layout"]["xaxis"]

    assert 2 <= len(times["ticktext"]) <= 6
    assert times["tickangle"] == 0


def test_subtasks_sort_by_finish_with_those_that_never_finished_first(fake):
    expired = newest(fake, "jE")
    sink = expired.vertices[-1]
    never = {s.subtask for s in sink.subtasks if not s.is_acknowledged}

    chart = gantt.gantt(expired, theme=LIGHT, opened=[sink.vertex_id], sort="finish")

    shown = [c[1] for c in _bars(chart)["row"]["customdata"] if c[0] == sink.vertex_id][1:]
    assert set(shown[: len(never)]) == never


def test_clock_skew_is_marked(fake):
    checkpoint = newest(fake, "jruntime")
    odd = checkpoint.vertices[0].model_copy(update={"subtasks": [_subtask(has_clock_skew=True)]})
    skewed = checkpoint.model_copy(update={"vertices": [odd]})

    chart = gantt.gantt(skewed, theme=LIGHT, opened=[odd.vertex_id])

    assert any(n["text"] == "clock skew" for n in chart.figure["layout"]["annotations"])


def test_the_table_of_the_phases_has_every_subtask_and_leaves_missing_empty(fake):
    expired = newest(fake, "jE")

    table = gantt.gantt(expired, theme=LIGHT).table

    assert len(table.rows) == expired.subtask_count
    ack = table.columns.index("ack (ms)")
    assert sum(row[ack] is None for row in table.rows) == expired.subtask_count - expired.acknowledged_count
