"""Tests of the card with the heatmap on a job's page. Its callbacks are called as a browser calls them."""

from __future__ import annotations

import pytest

from backend.domain.checkpoint import SubtaskMeasure
from dashboard import routes
from dashboard.checkpoint_address import CheckpointView, query_of
from dashboard.figures import subtask_heatmap
from dashboard.span import epoch_ms
from tests.support.dash_calls import job_values, texts
from tests.support.made_up_checkpoints import matrix_of

pytestmark = pytest.mark.anyio

_MESSAGE = "heatmap-message.children"


def values(job="jE", **more):
    names = {"measure": "heatmap-measure.value", "vertex": "heatmap-vertex.value", "log": "heatmap-log.aria-pressed"}
    return job_values(job) | {names[k]: v for k, v in more.items()}


async def test_the_heatmap_shows_the_chosen_measure_of_every_subtask(ui):
    answer = await ui.call(_MESSAGE, values(measure="start-delay"), by="look.data")

    expected = matrix_of(ui.fake.jobs["jE"].checkpoints, SubtaskMeasure.START_DELAY)
    cells = answer["heatmap-graph"]["figure"]["data"][0]
    assert cells["z"] == expected.values
    assert len(cells["y"]) == sum(v.parallelism for v in expected.vertices)
    assert len(answer["heatmap-vertex"]["data"]) == 1 + len(expected.vertices)


async def test_the_rows_can_be_sorted_by_host(ui):
    by_host = values() | {"heatmap-group.value": "host"}
    answer = await ui.call(_MESSAGE, by_host, by="heatmap-group.value")

    figure = answer["heatmap-graph"]["figure"]
    labels = [a["text"] for a in figure["layout"]["annotations"]]
    assert labels == ["worker-1", "worker-2", "worker-3"]
    assert figure["data"][0]["y"][0].endswith(" on worker-1")
    assert answer["heatmap-data"]["data"]["columns"][:3] == ["host", "vertex", "subtask"]
    assert routes.parse("/ui/jobs/jE", "?rows=host").job_view.heat_group == "host"


async def test_unchanged_data_is_not_drawn_again_and_another_scale_is(ui):
    first = await ui.call(_MESSAGE, values(), by="look.data")
    kept = {"heatmap-keys.data": first["heatmap-keys"]["data"]}

    again = await ui.call(_MESSAGE, values() | kept, by="status-tick.n_intervals")
    logarithmic = await ui.call(_MESSAGE, values(log="true") | kept, by="heatmap-log.aria-pressed")

    assert set(again) == {"heatmap-message"}
    assert logarithmic["heatmap-graph"]["figure"]["data"][0]["zmax"] < 10


async def test_one_vertex_can_be_chosen_and_an_unknown_one_is_a_message(ui):
    vertex = ui.fake.jobs["jE"].checkpoints[-1].vertices[-1]

    answer = await ui.call(_MESSAGE, values(vertex=vertex.vertex_id), by="heatmap-vertex.value")
    unknown = await ui.call(_MESSAGE, values(vertex="nothing"), by="heatmap-vertex.value")

    assert len(answer["heatmap-graph"]["figure"]["data"][0]["y"]) == vertex.subtask_count
    assert "o such vertex 'nothing'" in texts(unknown["heatmap-message"]["children"])


async def test_a_click_on_a_cell_opens_its_checkpoint_with_the_subtask_picked(ui):
    keys = (await ui.call(_MESSAGE, values(), by="look.data"))["heatmap-keys"]["data"]
    matrix = matrix_of(ui.fake.jobs["jE"].checkpoints, SubtaskMeasure.DURATION)
    last, row = matrix.checkpoints[-1], matrix.rows[-1]
    x, y = subtask_heatmap.column_names(matrix)[-1], subtask_heatmap.row_names(matrix)[-1]

    async def opened(point):
        click = {"heatmap-graph.clickData": {"points": [point]}, "heatmap-keys.data": keys}
        answer = await ui.call("url.href", values() | click, by="heatmap-graph.clickData")
        return answer["url"]["href"]

    page = routes.checkpoint("jE", last.run_id, last.checkpoint_id)
    picked = CheckpointView(opened=(row.vertex_id,), picked=f"{row.vertex_id}:{row.subtask}")
    assert await opened({"x": x, "y": y}) == page + query_of(picked)
    assert await opened({"x": x, "y": 0}) == page, "a mark above the column opens only the checkpoint"


async def test_a_click_outside_the_cells_does_nothing(ui):
    click = {"heatmap-graph.clickData": {"points": [{"x": "no checkpoint"}]}, "heatmap-keys.data": None}

    assert await ui.call("url.href", values() | click, by="heatmap-graph.clickData") is None


async def _after_drag(ui, zoom, **more):
    keys = (await ui.call(_MESSAGE, values(), by="look.data"))["heatmap-keys"]["data"]
    given = values(**more) | {"heatmap-graph.relayoutData": zoom, "heatmap-keys.data": keys}
    return await ui.call("heatmap-vertex.value", given, by="heatmap-graph.relayoutData")


async def test_columns_that_are_dragged_over_become_the_range_of_the_page(ui):
    checkpoints = matrix_of(ui.fake.jobs["jE"].checkpoints, SubtaskMeasure.DURATION).checkpoints
    times = [epoch_ms(c.triggered_at) for c in checkpoints]

    answer = await _after_drag(ui, {"xaxis.range[0]": 1.7, "xaxis.range[1]": 4.2})

    # The drag began in the cell of the third column.
    assert answer["job-range"]["data"] == {"since": times[2], "until": times[4]}
    assert "heatmap-vertex" not in answer


async def test_all_columns_end_the_range_and_do_nothing_without_one(ui):
    whole = {"xaxis.range[0]": -0.5, "xaxis.range[1]": 1000, "yaxis.range[0]": 99, "yaxis.range[1]": -0.5}

    assert await _after_drag(ui, whole) is None
    assert await _after_drag(ui, {"autosize": True}) is None
    chosen = {"job-range.data": {"since": 1, "until": 2}}
    keys = (await ui.call(_MESSAGE, values(), by="look.data"))["heatmap-keys"]["data"]
    given = values() | chosen | {"heatmap-graph.relayoutData": whole, "heatmap-keys.data": keys}
    answer = await ui.call("heatmap-vertex.value", given, by="heatmap-graph.relayoutData")
    assert answer["job-range"]["data"] is None


async def test_rows_of_one_vertex_choose_it_and_rows_of_two_vertices_choose_none(ui):
    first = ui.fake.jobs["jE"].checkpoints[-1].vertices[0]

    one = await _after_drag(ui, {"yaxis.range[0]": 2.3, "yaxis.range[1]": 0.1})
    two = await _after_drag(ui, {"yaxis.range[0]": first.subtask_count + 0.2, "yaxis.range[1]": 0.1})

    assert one["heatmap-vertex"]["value"] == first.vertex_id
    assert two is None
    assert await _after_drag(ui, {"yaxis.range[0]": 2.3, "yaxis.range[1]": 0.1}, vertex=first.vertex_id) is None


def test_the_choices_are_in_the_address():
    route = routes.parse("/ui/jobs/jE", "?measure=async&vertex=v1&heat-scale=log")
    other = routes.parse("/ui/jobs/jE", "?measure=heat&heat-scale=cubic")

    assert (route.job_view.measure, route.job_view.heat_vertex, route.job_view.is_heat_log) == ("async", "v1", True)
    assert (other.job_view.measure, other.job_view.heat_vertex, other.job_view.is_heat_log) == (
        "duration", None, False,
    )  # fmt: skip
