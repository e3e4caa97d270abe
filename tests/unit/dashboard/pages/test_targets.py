"""Tests of the targets page. Its callbacks are called as a browser calls them."""

from __future__ import annotations

import json
import re

import pytest

from backend.contracts.status import StatusOut
from backend.domain.target import TargetState
from tests.support.api_examples import example
from tests.support.dash_calls import LOOK, elements, pressed, texts

pytestmark = pytest.mark.anyio


async def _send(ui, by: str, url: str | None, name: str | None = None):
    values = {"target-url.value": url, "target-name.value": name, f"{by}.n_clicks": 1}
    return await ui.call("target-answer.children", values, by=f"{by}.n_clicks")


async def test_a_connection_is_tested_without_adding_anything(ui):
    before = dict(ui.fake.targets)

    good = await _send(ui, "target-test", "http://my-flink:8081")
    bad = await _send(ui, "target-test", "http://nowhere.invalid")

    assert "Connected: flink 1.20.5, running: orders" in texts(good["target-answer"]["children"])
    assert "does not resolve" in texts(bad["target-answer"]["children"])
    assert ui.fake.targets == before


async def test_the_test_of_a_connection_says_what_answers_if_the_engine_does_not(ui):
    answer = await _send(ui, "target-test", "http://spark-history:18080")

    said = "Connected: Spark history server 4.3.0, 2 applications running or ended within an hour, no running job"
    assert said in texts(answer["target-answer"]["children"])


async def test_a_target_is_added_once_and_the_refusal_of_the_second_is_shown(ui):
    first = await _send(ui, "target-add", "http://my-flink:8081", "mine")
    second = await _send(ui, "target-add", "http://my-flink:8081")

    assert "mine was added" in texts(first["target-answer"]["children"])
    assert first["target-url"]["value"] == ""
    assert "is a target already" in texts(second["target-answer"]["children"])
    assert "target-url" not in second


async def test_the_address_of_a_page_is_replaced_by_the_root_that_was_found(ui):
    answer = await _send(ui, "target-test", "http://my-flink:8081/#/overview")

    assert "the REST root of the target is http://my-flink:8081" in texts(answer["target-answer"]["children"])
    assert answer["target-url"]["value"] == "http://my-flink:8081"


async def test_a_target_that_does_not_answer_is_added_with_the_reason(ui):
    answer = await _send(ui, "target-add", "http://nowhere.invalid", "later")

    assert "later was added. It does not answer now (the name does not resolve)" in texts(
        answer["target-answer"]["children"]
    )


async def test_an_empty_or_overlong_address_is_refused_before_it_is_sent(ui):
    empty = await _send(ui, "target-add", "  ")
    long = await _send(ui, "target-add", "http://x/" + "y" * 3000)

    assert "Enter an address" in texts(empty["target-answer"]["children"])
    assert "at most 2000" in texts(long["target-answer"]["children"])
    assert not any(r.startswith("POST") for r in ui.fake.requests)


async def test_the_list_shows_health_with_its_reason_and_what_a_poll_costs(ui):
    answer = await ui.call("targets-rows.nodes", LOOK, by="look.data")
    shown = texts(elements(answer, "targets-rows"))

    assert "connection refused (10.9.8.7:8081); 14 attempts in a row" in shown
    assert "7.4 requests, 21.3 kB, 38 ms" in shown
    assert shown.count("not read in time") == 1
    assert "not read in time: 3 checkpoints, details of 1 204 more" in shown


@pytest.mark.parametrize(("mean_s", "is_late"), [(2.5, False), (22.0, True)])
async def test_a_target_that_is_polled_less_often_than_set_shows_both_intervals(ui, mean_s, is_late):
    polled = ui.fake.targets["tflink"]
    cost = polled.cost.model_copy(update={"poll_interval_s": mean_s, "set_interval_s": 2.0})
    ui.fake.targets["tflink"] = polled.model_copy(update={"cost": cost})

    answer = await ui.call("targets-rows.nodes", LOOK, by="look.data")

    assert ("every 22.0 s (set to 2.0 s)" in texts(elements(answer, "targets-rows"))) == is_late


async def test_a_poll_changes_the_cells_of_a_row_whose_buttons_keep_their_keys(ui):
    first = await ui.call("targets-rows.nodes", LOOK, by="look.data")
    seen = LOOK | {"targets-digest.data": first["targets-digest"]["data"]}
    polled = ui.fake.targets["tflink"]
    health = polled.health.model_copy(update={"state": TargetState.UNREACHABLE, "reason": "connection reset"})
    ui.fake.targets["tflink"] = polled.model_copy(update={"health": health})

    again = await ui.call("targets-rows.nodes", seen, by="tick.n_intervals")

    assert again["targets-digest"]["data"] != first["targets-digest"]["data"]
    assert "connection reset" in texts(elements(again, "targets-rows"))
    assert _keys(again) == _keys(first)
    ui.fake.targets["tflink"] = ui.fake.targets["tflink"].model_copy(update={"is_enabled": False})
    paused = await ui.call("targets-rows.nodes", seen, by="tick.n_intervals")
    assert "Resume" in texts(elements(paused, "targets-rows"))
    assert _keys(paused) != _keys(first), "a button with another word is another button"


async def test_a_poll_that_changes_nothing_sends_no_rows(ui):
    first = await ui.call("targets-rows.nodes", LOOK, by="look.data")
    seen = LOOK | {"targets-digest.data": first["targets-digest"]["data"]}

    again = await ui.call("targets-rows.nodes", seen, by="tick.n_intervals")

    assert set(again) == {"targets-message", "targets-source"}


async def test_the_rows_of_a_long_list_are_one_component_without_ids(ui):
    answer = await ui.call("targets-rows.nodes", LOOK, by="look.data")

    # The browser compares each id with all others, and calls every component at each change of one.
    assert '"id":' not in json.dumps(answer["targets-rows"]["nodes"])
    assert len(_keys(answer)) == 2 * len(ui.fake.targets)


def _keys(answer):
    """Return the keys of the rows, and those of their buttons, in reading order."""
    return re.findall(r'"key": ("[^"]*")', json.dumps(answer["targets-rows"]["nodes"]))


def _links(components):
    """Return the addresses of the links to other pages of the list."""
    return [link["props"]["href"] for link in components]


async def test_a_long_list_has_pages_and_a_target_of_the_fifth_is_changed_and_removed(ui):
    whole = await ui.call("targets-rows.nodes", LOOK, by="look.data")
    one = ui.fake.targets["tflink"]
    long = {f"t{n}": one.model_copy(update={"id": f"t{n}", "name": f"cluster {n} " + "n" * 180}) for n in range(997)}
    ui.fake.targets |= long
    assert whole["targets-pages"]["children"] == []
    assert "on this page" not in texts(whole["targets-source"]["children"])

    page, seen = await ui.call("targets-rows.nodes", LOOK, by="look.data"), []
    assert "200 of 1 000 targets on this page" in texts(page["targets-source"]["children"])
    before = page["targets-digest"]["data"]
    for _ in range(4):
        seen.append(page)
        address = _links(page["targets-pages"]["children"])[-1]
        assert address.startswith("/ui/targets?cursor=")
        given = LOOK | {"url.search": address.partition("/ui/targets")[2], "targets-digest.data": before}
        page = await ui.call("targets-rows.nodes", given, by="url.search")
        before = page["targets-digest"]["data"]
    assert "cluster 996 nnn" in texts(elements(page, "targets-rows"))
    assert not any("cluster 996 nnn" in texts(elements(earlier, "targets-rows")) for earlier in seen)

    edit = pressed("target-edit", "t996")
    opened = await ui.call("edit-body.children", edit, by="target-edit.n_clicks")
    assert opened["edit-dialog"]["title"].startswith("Change cluster 996 nnn")
    links = pressed("target-links", "t996")
    assert (await ui.call("links-rows.children", links, by="target-links.n_clicks"))["links-dialog"]["opened"] is True
    drop = pressed("target-remove", "t996")
    asked = await ui.call("target-question.children", drop, by="target-remove.n_clicks")
    assert "Stop reading cluster 996 nnn" in texts(asked["target-question"]["children"])


async def test_what_is_searched_for_is_in_the_address_and_the_list_begins_with_its_first_page(ui):
    one = ui.fake.targets["tflink"]
    ui.fake.targets |= {f"t{n}": one.model_copy(update={"id": f"t{n}", "name": f"cluster {n}"}) for n in range(1_000)}
    given = {"targets-search.value": " Cluster 77 ", "url.search": "?cursor=400"}

    asked = await ui.call("url.search", given, by="targets-search.value")
    assert asked["url"]["search"] == "?search=Cluster+77"
    found = await ui.call("targets-rows.nodes", LOOK | {"url.search": "?search=Cluster+77"}, by="url.search")
    shown = texts(elements(found, "targets-rows"))
    assert ("cluster 777" in shown, "cluster 888" in shown, found["targets-pages"]["children"]) == (True, False, [])
    none = await ui.call("targets-rows.nodes", LOOK | {"url.search": "?search=nowhere"}, by="url.search")
    assert "No target has this in its name or address." in texts(elements(none, "targets-rows"))


async def test_a_target_is_paused_and_removed(ui):
    pause = pressed("target-pause", "tflink", to="off")

    await ui.call("targets-changed.data", pause, by="target-pause.n_clicks")
    remove = pressed("target-remove", "told")
    asked = await ui.call("target-question.children", remove, by="target-remove.n_clicks")
    assert "Stop reading staging ? http://10.9.8.7:8081" in texts(asked["target-question"]["children"])
    assert asked["target-dialog"]["opened"] is True
    assert "told" in ui.fake.targets, "nothing is removed before the viewer confirms"
    confirmed = {"target-confirm.n_clicks": 1, "target-subject.data": asked["target-subject"]["data"]}
    await ui.call("targets-changed.data", confirmed, by="target-confirm.n_clicks")

    assert ui.fake.targets["tflink"].is_enabled is False
    assert "told" not in ui.fake.targets


async def test_a_target_that_was_changed_since_the_question_is_not_removed(ui):
    remove = pressed("target-remove", "told")
    asked = await ui.call("target-question.children", remove, by="target-remove.n_clicks")
    changed = ui.fake.targets["told"].model_copy(update={"name": "production", "version": "other"})
    ui.fake.targets["told"] = changed
    confirmed = {"target-confirm.n_clicks": 1, "target-subject.data": asked["target-subject"]["data"]}
    answer = await ui.call("targets-changed.data", confirmed, by="target-confirm.n_clicks")

    said = "production was changed meanwhile; look at it again and remove it then"
    assert said in json.dumps(answer["targets-message"]["children"])
    assert ui.fake.targets["told"] == changed


async def test_pausing_a_target_that_is_gone_is_answered_and_does_not_replace_the_page(ui):
    del ui.fake.targets["tflink"]
    pause = pressed("target-pause", "tflink", to="off")

    answer = await ui.call("targets-changed.data", pause, by="target-pause.n_clicks")

    shown = json.dumps(answer["targets-message"]["children"])
    assert "tflink" in shown
    assert "not-found" not in shown


async def test_what_a_discovery_left_out_is_on_the_page_until_it_ends(ui):
    ui.fake.partial_sources = StatusOut.model_validate(example("status")).partial_sources
    page = await ui.call("targets-rows.nodes", LOOK, by="look.data")
    assert "The targets are current." in texts(page["targets-gaps"]["children"])

    ui.fake.partial_sources = []
    before = LOOK | {"targets-digest.data": page["targets-digest"]["data"]}
    ended = await ui.call("targets-rows.nodes", before, by="look.data")
    assert ended["targets-gaps"]["children"] == []
