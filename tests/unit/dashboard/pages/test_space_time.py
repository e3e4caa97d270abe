"""Tests of the page of the space-time diagram. Its callbacks are called as a browser calls them."""

from __future__ import annotations

import pytest

from backend.contracts.space_time import CutProblemOut
from backend.domain.cut import CutError, CutState
from dashboard import routes
from dashboard.pages import space_time
from dashboard.space_time_address import SpaceTime
from tests.support.dash_calls import LOOK, texts

pytestmark = pytest.mark.anyio

_MESSAGE = "st-message.children"


def values(fake, job="jruntime", **more):
    found = [c for c in fake.jobs[job].checkpoints if c.status.is_terminal][-1]
    route = {"job": job, "run": found.run_id, "checkpoint": found.checkpoint_id}
    return LOOK | {"st-route.data": route} | {f"st-{k}.data": v for k, v in more.items()}


async def test_the_page_shows_the_diagram_the_badge_and_links_back(ui):
    answer = await ui.call(_MESSAGE, values(ui.fake), by="look.data")

    assert len(answer["space-time-data"]["data"]["rows"]) == 6
    assert "consistent cut" in texts(answer["st-cut"]["children"])
    assert "checked on 8 channels" in texts(answer["st-cut"]["children"])
    assert "Checkpoint" in texts(answer["st-head"]["children"])
    assert texts(answer["st-basis"]["children"]) == ""
    assert answer["st-vertices"]["children"] == []


async def test_a_diagram_of_flink_is_marked_as_reconstructed_and_its_cut_is_not_checked(ui):
    answer = await ui.call(_MESSAGE, values(ui.fake, "jE"), by="look.data")

    assert "reconstructed" in texts(answer["st-basis"]["children"])
    assert "cut not checked" in texts(answer["st-cut"]["children"])
    assert "most likely sender" in texts(answer["st-notes"]["children"])


async def test_a_large_job_is_folded_and_a_button_opens_a_vertex(ui):
    vertex = ui.fake.jobs["jwide"].detail.vertices[0].id
    folded = await ui.call(_MESSAGE, values(ui.fake, "jwide"), by="look.data")
    opened = await ui.call(_MESSAGE, values(ui.fake, "jwide", opened=[vertex]), by="st-opened.data")

    assert len(folded["space-time-data"]["data"]["rows"]) < 10
    assert len(opened["space-time-data"]["data"]["rows"]) == 60
    assert "500 subtasks in 60 lanes" in texts(opened["st-notes"]["children"])
    pressed = [b["props"].get("aria-pressed") for b in opened["st-vertices"]["children"][1:]]
    assert pressed == ["true", "false"]


async def test_unchanged_data_is_not_drawn_again(ui):
    given = values(ui.fake)
    first = await ui.call(_MESSAGE, given, by="look.data")
    digest = {"st-digest.data": first["st-digest"]["data"]}

    assert set(await ui.call(_MESSAGE, given | digest, by="status-tick.n_intervals")) == {"st-message"}


async def test_a_marked_time_links_to_the_barrier_front_at_that_time(ui):
    answer = await ui.call(_MESSAGE, values(ui.fake, at=12.4), by="st-at.data")

    assert "Barrier front at" in texts(answer["st-notes"]["children"])
    assert "?t=12" in str(answer["st-notes"]["children"])


async def test_an_inconsistent_cut_lists_its_channels():
    problems = [
        CutProblemOut(source="map", source_subtask=n, target="keyed", target_subtask=0, error=error, size_bytes=2048)
        for n, error in enumerate([*CutError, *CutError])
    ]
    cut = space_time.CutOut(
        state=CutState.INCONSISTENT, sentence="The cut is not consistent.", channel_count=9, checked_count=9,
        problem_count=8, problems=problems,
    )  # fmt: skip
    said = texts(space_time._cut(cut))
    for words in ("inconsistent cut", "map 0 → keyed 0", "crosses the cut backwards", "would be lost", "and 3 more"):
        assert words in said


def test_a_click_marks_a_time_or_opens_a_folded_vertex():
    click = {"points": [{"customdata": ["v", 3], "x": 12.3456}]}
    assert space_time.select(click=click, toggles=[], opened=[], trigger="space-time-graph") == {"at_ms": 12.346}
    folded = {"points": [{"customdata": ["v", None], "x": 1}]}
    assert space_time.select(click=folded, toggles=[], opened=["w"], trigger="x") == {"opened": ["w", "v"]}
    toggle = {"type": "st-toggle", "vertex": "w"}
    assert space_time.select(click=None, toggles=[1], opened=["w"], trigger=toggle) == {"opened": []}


@pytest.mark.parametrize(
    ("dragged", "ends"),
    [
        ({"xaxis.range[0]": -3, "xaxis.range[1]": 7.5}, [0.0, 7.5]),
        ({"xaxis.range": [2, 4]}, [2.0, 4.0]),
        ({"xaxis.autorange": True}, None),
    ],
)
def test_a_drag_chooses_the_range(dragged, ends):
    assert space_time.zoom(dragged=dragged, whole=None, trigger="space-time-graph") == {"ends_ms": ends}


def test_the_whole_time_has_no_mark():
    assert space_time.zoom(dragged=None, whole=1, trigger="st-whole") == {"ends_ms": None, "at_ms": None}


@pytest.mark.parametrize(
    ("search", "chosen"),
    [
        ("?open=a&open=b&from=1.5&to=20&t=3", SpaceTime(("a", "b"), (1.5, 20.0), 3.0)),
        ("?from=20&to=1.5&t=-3", SpaceTime()),
        ("?from=nan&to=1e9&t=1e400", SpaceTime()),
        ("", SpaceTime()),
    ],
)
def test_the_address_holds_the_opened_vertices_the_range_and_the_mark(search, chosen):
    address = routes.space_time("j", "r", 7)
    found = routes.parse(address, search)
    assert (found.page, found.checkpoint, found.space_time) == (routes.PageKind.SPACE_TIME, 7, chosen)
