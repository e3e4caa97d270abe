"""Tests of the heatmap of subtasks over checkpoints: its values, names, marks and scales."""

from __future__ import annotations

from datetime import timedelta

import pytest

from backend.contracts.subtask_matrix import (
    MatrixCheckpointOut,
    MatrixRowOut,
    MatrixUnit,
    MatrixVertexOut,
    SubtaskMatrixOut,
)
from backend.domain.checkpoint import CheckpointStatus, SubtaskMeasure
from dashboard.figures import subtask_heatmap
from dashboard.palette import LIGHT
from tests.support.figures import NOW


def matrix(values, *, vertices=(("v1", "clean", 2),), ids=None, is_folded=False, **changed):
    """Build a matrix with these values: one list for each row."""
    columns = range(len(values[0]) if values else 0)
    ids = ids or [40 + i for i in columns]
    return SubtaskMatrixOut(
        measure=changed.pop("measure", SubtaskMeasure.START_DELAY),
        unit=changed.pop("unit", MatrixUnit.MS),
        is_folded=is_folded,
        checkpoints=[
            MatrixCheckpointOut(
                run_id=changed.get("runs", ["r0"] * len(columns))[i], checkpoint_id=ids[i],
                triggered_at=NOW + timedelta(seconds=i), kind="checkpoint",
                status=changed.get("statuses", ["completed"] * len(columns))[i],
                is_unaligned=changed.get("unaligned", [False] * len(columns))[i],
                are_arrays_removed=changed.get("are_removed", False),
            )
            for i in columns
        ],
        vertices=[MatrixVertexOut(vertex_id=i, vertex=name, parallelism=n) for i, name, n in vertices],
        rows=[
            MatrixRowOut(vertex_id=i, subtask=subtask)
            for i, _, n in vertices
            for subtask in ([None] if is_folded else range(n))
        ],
        values=values,
        as_of=NOW,
    )  # fmt: skip


def drawn(chart):
    cells, failed, unaligned = chart.figure["data"]
    return cells, failed["x"], unaligned["x"]


def test_a_cell_has_the_reported_value_and_a_missing_value_has_no_cell():
    cells, _, _ = drawn(subtask_heatmap.heatmap(matrix([[212, 240], [9100, None]]), theme=LIGHT))

    assert (cells["x"], cells["y"]) == (["40", "41"], ["clean subtask 0", "clean subtask 1"])
    assert cells["z"] == [[212, 240], [9100, None]]
    assert (cells["zmin"], cells["zmax"]) == (0, 9100)


def test_on_a_logarithmic_scale_the_hover_text_has_the_value_itself():
    cells, _, _ = drawn(subtask_heatmap.heatmap(matrix([[0, 100], [10_000, None]]), theme=LIGHT, is_log=True))

    assert cells["z"] == [[0, 2], [4, None]]
    assert cells["text"] == [["0 ms", "100 ms"], ["10.0 s", ""]]
    assert "%{text} (" in cells["hovertemplate"]
    assert cells["colorbar"]["ticktext"] == ["1 ms", "10 ms", "100 ms", "1 s", "10 s"]


def test_failed_and_unaligned_checkpoints_are_marked_above_their_columns():
    found = matrix(
        [[1, 2, 3], [1, 2, 3]],
        statuses=[CheckpointStatus.COMPLETED, CheckpointStatus.FAILED, CheckpointStatus.COMPLETED],
        unaligned=[None, False, True],
    )

    _, failed, unaligned = drawn(subtask_heatmap.heatmap(found, theme=LIGHT))

    assert (failed, unaligned) == (["41"], ["42"])


def test_cells_without_value_are_hatched_orange_if_failed_and_unaligned_columns_have_an_outline():
    found = matrix(
        [[1, None, None, 4], [1, 2, None, 4]],
        statuses=["completed", "failed", "failed", "completed"],
        unaligned=[True, None, False, True],
    )

    layout = subtask_heatmap.heatmap(found, theme=LIGHT).figure["layout"]

    assert layout["plot_bgcolor"] == LIGHT.unknown
    areas = [(s["x0"], s["x1"], s.get("layer"), "fillcolor" in s) for s in layout["shapes"] if s["type"] == "rect"]
    assert areas == [(0.5, 2.5, "below", True), (-0.5, 0.5, None, False), (2.5, 3.5, None, False)]


def test_columns_and_rows_that_would_have_the_same_name_have_different_ones():
    found = matrix([[1, 2]] * 2, vertices=(("v1", "Map", 1), ("v2", "Map", 1)), ids=[7, 7], runs=["ra", "rb"])

    assert subtask_heatmap.column_names(found) == ["7 of run ra", "7 of run rb"]
    assert subtask_heatmap.row_names(found) == ["Map (v1) subtask 0", "Map (v2) subtask 0"]


def test_each_vertex_has_a_label_and_a_line_above_its_first_row():
    found = matrix([[1]] * 5, vertices=(("v1", "source", 2), ("v2", "sink", 3)))

    layout = subtask_heatmap.heatmap(found, theme=LIGHT).figure["layout"]

    assert [(a["text"], a["y"]) for a in layout["annotations"]] == [("source", 0.5), ("sink", 3)]
    assert [s["y0"] for s in layout["shapes"] if s["type"] == "line"] == [1.5]


def test_if_one_vertex_is_shown_its_subtasks_have_labels_that_do_not_overlap():
    found = matrix([[1]] * 100, vertices=(("v1", "sink", 100),))

    layout = subtask_heatmap.heatmap(found, theme=LIGHT).figure["layout"]

    assert [(a["text"], a["y"]) for a in layout["annotations"]][:2] == [("subtask 0", 0), ("subtask 5", 5)]


def test_a_folded_row_says_that_its_value_is_the_largest_of_the_vertex():
    chart = subtask_heatmap.heatmap(matrix([[5]], is_folded=True), theme=LIGHT)

    assert chart.figure["data"][0]["y"] == ["clean"]
    assert "largest of its subtasks" in chart.figure["data"][0]["hovertemplate"]
    assert chart.summary.startswith("Start delay in 1 checkpoints, by vertex.")


def test_the_sentence_names_the_largest_value_and_the_row_and_column_that_stand_out():
    found = matrix([[10, 20, 900], [30, 40, 50]])

    summary = subtask_heatmap.heatmap(found, theme=LIGHT).summary

    assert "The largest value is 900 ms, of clean subtask 0 in checkpoint 42." in summary
    assert "clean subtask 1 has the largest median, 40 ms; checkpoint 42 has the largest median" in summary


@pytest.mark.parametrize(
    ("values", "is_removed", "words"),
    [
        ([], False, "No checkpoint has ended in this range."),
        ([[None]] * 2, False, "No subtask reported this measure in these checkpoints."),
        ([[None]] * 2, True, "have been removed, as the retention policy says"),
    ],
)
def test_a_matrix_without_values_says_why(values, is_removed, words):
    chart = subtask_heatmap.heatmap(
        matrix(values, vertices=(("v1", "clean", 2),) if values else (), are_removed=is_removed), theme=LIGHT
    )

    assert words in chart.summary
    assert chart.height_px == subtask_heatmap.HEIGHT_PX


def test_bytes_have_ticks_with_their_unit():
    found = matrix(
        [[4_000_000]], vertices=(("v1", "sink", 1),), measure=SubtaskMeasure.PERSISTED, unit=MatrixUnit.BYTES
    )

    assert subtask_heatmap.heatmap(found, theme=LIGHT).figure["data"][0]["colorbar"]["ticktext"] == [
        "0 B", "1 MB", "2 MB", "3 MB", "4 MB",
    ]  # fmt: skip
