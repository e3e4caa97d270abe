"""Tests of the page that compares two checkpoints. Its callbacks are called as a browser calls them."""

from __future__ import annotations

import pytest
from dash.exceptions import PreventUpdate

from backend.domain.freshness import Freshness
from dashboard.pages.comparison import choose
from tests.support.api_examples import stale
from tests.support.dash_calls import LOOK, texts

pytestmark = pytest.mark.anyio

_MESSAGE = "comparison-message.children"
SHOWN = {
    "a": {"key": "r:42", "job": "j", "run": "r", "previous": 41, "next": None},
    "b": {"key": "r:38", "job": "j", "run": "r", "previous": 37, "next": 39},
}
BEFORE = {"a": "r:42", "b": None, "with": None, "vertex": None, "order": "topology"}


def values(job="jruntime", **chosen):
    data = {"a": None, "b": None, "with": None, "vertex": None, "order": "topology"} | chosen
    return LOOK | {"comparison-route.data": {"job": job}, "comparison-chosen.data": data}


def chosen(trigger, before=BEFORE, shown=SHOWN, **given):
    names = (
        "other", "swaps", "a_previous", "a_next", "b_previous", "b_next", "a_recent", "b_recent", "a_id", "b_id",
        "order", "click",
    )  # fmt: skip
    inputs = dict.fromkeys(names) | {"toggles": []} | given
    found = choose(**inputs, before=before, shown=shown, trigger=trigger)
    return found.get("chosen", found)


async def test_the_page_shows_both_sides_and_what_differs_most(ui):
    answer = await ui.call(_MESSAGE, values(a="rruntime:23", b="rruntime:3"), by="look.data")

    assert "#23 took 7.2 s, #3 4.3 s: +1.0 s of start delay" in texts(answer["comparison-headline"]["children"])
    assert texts(answer["comparison-a"]["children"]).startswith("A Checkpoint 23")
    assert texts(answer["comparison-b"]["children"]).startswith("B Checkpoint 3")
    assert answer["comparison-a-recent"]["value"] == "rruntime:23"
    assert len(answer["comparison-a-recent"]["data"]) == 24
    assert answer["comparison-title"]["data"] == "#23 and #3 of demo-backpressured"


async def test_a_comparison_is_called_final_once_both_checkpoints_have_ended(ui):
    ended = await ui.call(_MESSAGE, values(a="rruntime:23", b="rruntime:3"), by="look.data")
    half = await ui.call(_MESSAGE, values(a="rruntime:24", b="rruntime:3"), by="look.data")

    assert "'data-stale': 'final'" in str(ended["comparison-stale"])
    assert half["comparison-stale"]["children"] == []


async def test_a_comparison_with_an_open_checkpoint_of_a_stale_job_says_so(ui):
    job = ui.fake.jobs["jruntime"]
    job.detail = job.detail.model_copy(update={"freshness": stale(Freshness.NO_COLLECTOR)})

    answer = await ui.call(_MESSAGE, values(a="rruntime:24", b="rruntime:3"), by="look.data")

    assert texts(answer["comparison-stale"]["children"]).startswith("Checkpoint #24 was last read")


async def test_without_a_the_newest_ended_checkpoint_is_compared(ui):
    answer = await ui.call(_MESSAGE, values(), by="look.data")

    assert answer["comparison-a-recent"]["value"] == "rruntime:23", "24 is still in progress"
    assert "was chosen" in texts(answer["comparison-headline"]["children"])


async def test_a_job_without_ended_checkpoints_has_nothing_to_compare(ui):
    answer = await ui.call(_MESSAGE, values("jnew"), by="look.data")

    assert "No checkpoint of this job has ended yet" in texts(answer["comparison-headline"]["children"])


async def test_without_a_second_checkpoint_the_charts_are_hidden(ui):
    answer = await ui.call(_MESSAGE, values(a="rruntime:1"), by="look.data")

    assert answer["comparison-views"]["style"] == {"display": "none"}
    assert texts(answer["comparison-b"]["children"]) == "B Choose a checkpoint below."
    assert answer["comparison-load"]["children"] is None


async def test_unchanged_data_is_not_drawn_again(ui):
    first = await ui.call(_MESSAGE, values(a="rruntime:23", b="rruntime:3"), by="look.data")
    kept = {"comparison-digest.data": first["comparison-digest"]["data"]}

    again = await ui.call(_MESSAGE, values(a="rruntime:23", b="rruntime:3") | kept, by="status-tick.n_intervals")

    assert set(again) == {"comparison-message"}


async def test_the_found_jobs_stay_while_the_page_changes_until_another_job_is_compared(ui):
    """The answers to a search were replaced by the own job whenever a checkpoint had ended."""
    first = await ui.call(_MESSAGE, values(a="rruntime:23"), by="look.data")
    kept = {"comparison-digest.data": first["comparison-digest"]["data"] | {"drawn": "before"}}

    same = await ui.call(_MESSAGE, values(a="rruntime:23") | kept, by="status-tick.n_intervals")
    other = await ui.call(_MESSAGE, values(a="rruntime:23", **{"with": "jE"}) | kept, by="status-tick.n_intervals")

    assert "comparison-other" in first
    assert "comparison-headline" in same
    assert "comparison-other" not in same
    assert other["comparison-other"]["value"] == "jE"


async def test_an_unknown_checkpoint_is_a_message(ui):
    answer = await ui.call(_MESSAGE, values(a="rruntime:999"), by="look.data")

    assert "Nothing at this address" in texts(answer["comparison-message"]["children"])

    first = await ui.call(_MESSAGE, values(a="rruntime:23"), by="look.data")
    kept = {"comparison-digest.data": first["comparison-digest"]["data"]}
    typed = await ui.call(_MESSAGE, values(a="rruntime:23", b="rruntime:999") | kept, by="comparison-chosen.data")
    assert set(typed) == {"comparison-message"}, "the page keeps what it shows"
    assert "no such checkpoint" in texts(typed["comparison-message"]["children"])


def test_a_neighbour_replaces_one_side_and_the_other_stays_as_the_viewer_chose_it():
    assert chosen("comparison-a-previous", a_previous=1) == BEFORE | {"a": "r:41"}
    assert chosen("comparison-b-next", b_next=1) == BEFORE | {"b": "r:39"}
    with pytest.raises(PreventUpdate):
        chosen("comparison-a-next", a_next=1)


def test_swapping_makes_the_chosen_checkpoint_explicit():
    assert chosen("comparison-swap", swaps=1) == BEFORE | {"a": "r:38", "b": "r:42"}


def test_a_checkpoint_can_be_typed_with_or_without_its_run():
    assert chosen("comparison-b-id", b_id=" #17 ")["b"] == "r:17"
    assert chosen("comparison-b-id", b_id="other:17")["b"] == "other:17"
    with pytest.raises(PreventUpdate):
        chosen("comparison-b-id", b_id="")


def test_choosing_the_checkpoint_of_the_other_side_swaps_them():
    assert chosen("comparison-a-recent", a_recent="r:38") == BEFORE | {"a": "r:38", "b": "r:42"}
    assert chosen("comparison-b-recent", b_recent="r:42") == BEFORE | {"a": "r:38", "b": "r:42"}


def test_the_lists_that_the_page_fills_itself_change_nothing():
    with pytest.raises(PreventUpdate):
        chosen("comparison-b-recent", b_recent="r:38")


def test_a_vertex_is_opened_and_closed_by_button_or_click():
    trigger = {"type": "comparison-vertex", "vertex": "v1"}
    assert chosen(trigger, toggles=[1])["vertex"] == "v1"
    assert chosen(trigger, before=BEFORE | {"vertex": "v1"}, toggles=[2])["vertex"] is None
    assert chosen("comparison-graph", click={"points": [{"customdata": ["v2", 3]}]})["vertex"] == "v2"
    with pytest.raises(PreventUpdate):
        chosen(trigger, toggles=[None])
    with pytest.raises(PreventUpdate):
        chosen("comparison-graph", click=None)


def test_the_order_of_the_vertices_is_kept():
    assert chosen("comparison-order", order="difference")["order"] == "difference"


OTHER = BEFORE | {"with": "j2"}
SHOWN_BOTH = {"a": SHOWN["a"], "b": SHOWN["b"] | {"job": "j2", "key": "s:42", "run": "s"}}


def test_another_job_is_compared_by_its_own_checkpoints():
    assert chosen("comparison-other", other="j2") == BEFORE | {"with": "j2"}
    with pytest.raises(PreventUpdate):
        chosen("comparison-other", other="j")
    assert chosen("comparison-other", before=OTHER, shown=SHOWN_BOTH, other="j")["with"] is None
    next_of_b = chosen("comparison-b-next", before=OTHER, shown=SHOWN_BOTH, b_next=1)
    assert next_of_b == OTHER | {"b": "s:39", "a": "r:42"}


def test_swapping_two_jobs_leads_to_the_page_of_the_other_one():
    found = chosen("comparison-swap", before=OTHER, shown=SHOWN_BOTH, swaps=1)

    assert found["href"] == "/ui/jobs/j2/compare?a=s%3A42&b=r%3A42&with=j"


async def test_checkpoints_of_two_jobs_have_letters_and_their_settings_come_first(ui):
    answer = await ui.call(_MESSAGE, values(a="rruntime:23", b="rE:9", **{"with": "jE"}), by="look.data")

    assert "Only B #9 has" in texts(answer["comparison-settings"]["children"])
    assert "#9 of payments" in texts(answer["comparison-headline"]["children"])
    assert answer["comparison-other"]["value"] == "jE"
    assert answer["comparison-b-recent"]["value"] == "rE:9"
    assert {o["value"].split(":")[0] for o in answer["comparison-b-recent"]["data"]} == {"rE"}


def test_without_a_checkpoint_of_the_other_job_its_run_is_not_guessed():
    shown = {"a": SHOWN["a"], "b": None}
    for trigger, given in (("comparison-b-next", {"b_next": 1}), ("comparison-b-id", {"b_id": "7"})):
        with pytest.raises(PreventUpdate):
            chosen(trigger, before=OTHER, shown=shown, **given)
    assert chosen("comparison-b-recent", before=OTHER, shown=shown, b_recent="s:7")["b"] == "s:7"
