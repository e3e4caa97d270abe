"""Tests of a checkpoint's page. Its callbacks are called as a browser calls them."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from backend.contracts.api import CheckpointDetailOut
from dashboard.pages.checkpoint import parts
from tests.support.dash_calls import checkpoint_values, texts

pytestmark = pytest.mark.anyio


async def _loaded(ui, values):
    first = await ui.call("cp-head.children", values, by="look.data")
    return first, values | {"cp-digest.data": first["cp-digest"]["data"], "front-slider.max": 1000}


async def test_a_checkpoint_opens_with_the_verdict_and_the_named_vertex_open(ui):
    answer = await ui.call("cp-head.children", checkpoint_values("jE", 14), by="look.data")

    assert texts(answer["cp-verdict"]["children"]).startswith("Expired after 3.0 s because slow-stage-2")
    rows = next(t for t in answer["gantt-graph"]["figure"]["data"] if t["name"] == "row")["customdata"]
    assert len(rows) == 3 + 4
    assert "Message of the engine: Checkpoint expired before completing." in texts(answer["cp-evidence"]["children"])
    assert answer["cp-progress"]["style"] == {"display": "none"}
    assert '"aria-pressed": "true"' in json.dumps(answer["cp-vertices"]["children"])


async def test_an_open_checkpoint_shows_its_progress_and_an_ended_one_is_read_less_often(ui):
    live = await ui.call("cp-head.children", checkpoint_values("jruntime", 24), by="look.data")
    _, settled = await _loaded(ui, checkpoint_values("jruntime", 22))
    before = len(ui.fake.requests)

    seldom = await ui.call("cp-head.children", settled | {"tick.n_intervals": 3}, by="tick.n_intervals")

    assert live["cp-progress"]["style"] == {"display": "block"}
    assert live["cp-progress-target"]["data"]["checkpoint"] == 24
    assert seldom is None
    assert len(ui.fake.requests) == before


async def test_a_checkpoint_without_its_old_arrays_says_why():
    example = resources.files("backend.api.examples").joinpath("checkpoint_detail.json").read_text()
    found = CheckpointDetailOut.model_validate_json(example)

    shown = [texts(parts.evidence(found.model_copy(update={"are_arrays_removed": flag}))) for flag in (True, False)]

    assert ["were removed to save space" in words for words in shown] == [True, False]


async def test_the_scrubber_moves_the_front(ui):
    _, values = await _loaded(ui, checkpoint_values("jruntime", 22))

    early = await ui.call("front-graph.figure", values | {"front-at.data": 10}, by="front-at.data")
    late = await ui.call("front-graph.figure", values | {"front-at.data": 4600}, by="front-at.data")
    end = await ui.call("front-graph.figure", values, by="cp-digest.data")

    assert early["front-position"]["children"] == "10 ms"
    assert "ledger-sink: barrier at 0 of 4" in early["front-summary"]["children"]
    assert "enrich: barrier at 4 of 4" in late["front-summary"]["children"]
    assert "measured per channel" in texts(late["front-basis"]["children"])
    assert end["front-slider"]["value"] == end["front-slider"]["max"]
    assert "ledger-sink: barrier at 4 of 4, 4 acknowledged" in end["front-summary"]["children"]


async def test_the_front_of_an_expired_checkpoint_opens_at_its_timeout_and_the_scrubber_goes_on(ui):
    _, values = await _loaded(ui, checkpoint_values("jE", 14))

    opened = await ui.call("front-graph.figure", values, by="cp-digest.data")
    later = await ui.call("front-graph.figure", values | {"front-at.data": 3_380}, by="front-at.data")

    # The barrier reached two subtasks of the sink after the timeout.
    assert opened["front-position"]["children"] == "3.0 s"
    assert opened["front-slider"] == {"value": 3_000, "max": 3_380}
    assert opened["front-opens"]["data"] == 3_000
    assert "Writer: barrier at 2 of 4" in opened["front-summary"]["children"]
    assert "Writer: barrier at 4 of 4" in later["front-summary"]["children"]


async def test_without_channels_the_front_says_that_it_is_reconstructed(ui):
    _, values = await _loaded(ui, checkpoint_values("jE", 14))

    answer = await ui.call("front-graph.figure", values, by="cp-digest.data")

    assert "reconstructed the engine does not report channels" in texts(answer["front-basis"]["children"])


async def test_a_front_that_could_not_be_read_is_read_again_although_the_checkpoint_has_ended(ui):
    _, values = await _loaded(ui, checkpoint_values("jE", 14))
    ui.fake.is_down = True

    failed = await ui.call("front-graph.figure", values, by="cp-digest.data")
    assert set(failed) == {"cp-message", "cp-digest"}
    assert "It refreshes automatically" in texts(failed["cp-message"]["children"])

    ui.fake.is_down = False
    values |= {"cp-digest.data": failed["cp-digest"]["data"], "tick.n_intervals": 1}
    again = await ui.call("cp-head.children", values, by="tick.n_intervals")
    assert again["cp-message"]["children"] is None
    # The new digest calls for the front.
    values |= {"cp-digest.data": again["cp-digest"]["data"]}
    assert "barrier" in (await ui.call("front-graph.figure", values, by="cp-digest.data"))["front-summary"]["children"]


async def test_vertices_open_and_close_by_click_and_by_key(ui):
    values = checkpoint_values("jruntime", 22)
    press = json.dumps({"type": "vertex-toggle", "vertex": "parse"}, separators=(",", ":")) + ".n_clicks"

    by_key = await ui.call("cp-opened.data", values | {press: 1}, by=press)
    click = {"gantt-graph.clickData": {"points": [{"customdata": ["enrich", None]}]}}
    closed = await ui.call("cp-opened.data", values | click, by="gantt-graph.clickData")
    picked = {"gantt-graph.clickData": {"points": [{"customdata": ["enrich", 2]}]}}
    answer = await ui.call("cp-opened.data", values | picked, by="gantt-graph.clickData")
    every = await ui.call("cp-opened.data", values, by="gantt-open-all.n_clicks")
    none = await ui.call("cp-opened.data", values | {press: None}, by=press)

    assert by_key["cp-opened"]["data"] == ["enrich", "parse"]
    assert closed["cp-opened"]["data"] == []
    assert answer == {"cp-picked": {"data": "enrich:2"}}
    assert len(every["cp-opened"]["data"]) == 4
    assert none is None


async def test_a_picked_subtask_shows_its_numbers_with_their_basis_and_its_ids(ui):
    _, values = await _loaded(ui, checkpoint_values("jruntime", 22))

    answer = await ui.call("cp-picked-panel.children", values | {"cp-picked.data": "enrich:2"}, by="cp-picked.data")

    shown = texts(answer["cp-picked-panel"]["children"])
    assert shown.startswith("enrich subtask 2 first barrier")
    assert "measured" not in shown
    assert "worker-0" in shown
    assert "127.0.0.1:40001-a81c" in shown


async def test_the_facts_without_the_subtasks_that_did_not_acknowledge_are_shown_as_lower_bounds(ui):
    example = resources.files("backend.api.examples").joinpath("checkpoint_detail.json").read_text()
    found = CheckpointDetailOut.model_validate_json(example).model_copy(
        update={"start_delay_max_ms": 4_250, "acknowledged_count": 7, "subtask_count": 8}
    )

    shown = [texts(parts.facts(found.model_copy(update={"is_lower_bound": b}), None)) for b in (True, False)]

    assert "> 4.3 s" in shown[0] or "> 4.2 s" in shown[0]
    assert ">" not in shown[1]
