"""Tests of the fleet page. Its callbacks are called as a browser calls them."""

from __future__ import annotations

import pytest

from backend.domain.freshness import Freshness
from backend.domain.observation import JobState
from backend.domain.verdict import Health
from dashboard.pages.fleet import SHORT_HEALTH
from dashboard.palette import HEALTH_WORDS
from tests.support.api_examples import stale
from tests.support.dash_calls import texts
from tests.support.fake_api import HOSTILE

pytestmark = pytest.mark.anyio

_ALL = {"number": 1, "startRow": 0, "endRow": 50, "sortModel": [], "filterModel": {}}


async def _block(ui, **asked):
    values = {"fleet-request.data": _ALL | asked}
    answer = await ui.call("fleet-rows.data", values, by="fleet-request.data")
    return answer["fleet-rows"]["data"]


async def _refresh(ui, view, digest=""):
    values = {"fleet-view.data": view, "fleet-page.data-digest": digest}
    return await ui.call("fleet-delta.data", values, by="fleet-view.data")


async def test_the_fleet_keeps_the_order_of_urgency_and_shows_one_status_each(ui):
    found = await _block(ui)
    rows = found["rows"]

    assert [r["id"] for r in rows] == list(ui.fake.jobs)
    assert found["total"] == len(rows)
    assert rows[0]["health_badge"]["word"] == "failing"
    assert rows[0]["verdict_badge"]["word"] == "vertex at capacity"
    assert rows[0]["href"] == "/ui/jobs/jE"
    assert "old data" in next(r for r in rows if r["id"] == "jwide")["target"]
    assert next(r for r in rows if r["id"] == "jwide")["name"] == HOSTILE
    answer = await _refresh(ui, {"first": 0, "ids": []})
    assert texts(answer["fleet-counts"]["children"]).startswith("1 failing")


async def test_a_stale_row_is_grey_in_the_past_tense_and_not_counted_as_failing(ui):
    job = ui.fake.jobs["jE"]
    before = job.detail
    job.detail = before.model_copy(update={"freshness": stale(Freshness.NO_COLLECTOR)})
    try:
        found = (await _block(ui))["rows"][0]
        answer = await _refresh(ui, {"first": 0, "ids": []})
    finally:
        job.detail = before

    assert (found["id"], found["was"], found["was_at"]) == ("jE", "was failing", "2026-11-21T12:00:00+00:00")
    assert (found["health_badge"]["word"], found["health_badge"]["tone"]) == ("stale", "quiet")
    assert (found["verdict_badge"]["word"], found["verdict_badge"]["tone"]) == ("vertex at capacity", "quiet")
    assert found["verdict_badge"]["hint"].startswith("at the last reading (no collector runs): ")
    assert "(no collector)" in found["target"]
    assert "1 of " in texts(answer["fleet-stale"]["children"])
    counts = texts(answer["fleet-counts"]["children"])
    assert "1 stale" in counts
    assert not counts.startswith("1 failing")


async def test_a_row_whose_driver_is_silent_has_a_verdict_of_now(ui):
    job = ui.fake.jobs["jE"]
    before = job.detail
    job.detail = before.model_copy(update={"freshness": stale(Freshness.JOB_SILENT)})
    try:
        found = (await _block(ui))["rows"][0]
    finally:
        job.detail = before
    assert (found["was"], found["verdict_badge"]["hint"]) == ("last event", before.verdict.sentence)


async def test_ended_jobs_are_folded_below_the_others_until_they_are_opened(ui):
    job = ui.fake.jobs["jE"]
    before = job.detail
    job.detail = before.model_copy(update={"state": JobState.ENDED})
    try:
        folded = await _block(ui)
        values = {"fleet-request.data": _ALL, "fleet-ended.aria-pressed": "true"}
        answer = await ui.call("fleet-rows.data", values, by="fleet-request.data")
        refreshed = await _refresh(ui, {"first": 0, "ids": [], "ended": "false"})
    finally:
        job.detail = before
    opened = answer["fleet-rows"]["data"]

    assert "jE" not in [r["id"] for r in folded["rows"]]
    assert opened["rows"][-1]["id"] == "jE"
    assert opened["total"] == folded["total"] + 1
    assert refreshed["fleet-ended"] == {"children": "▸ 1 ended job", "hidden": False}


async def test_values_that_a_job_does_not_report_are_dashes_in_the_fleet(ui):
    new = next(r for r in (await _block(ui))["rows"] if r["id"] == "jnew")

    assert new["success_text"] == new["p50_text"] == new["pressure_text"] == "–"
    assert new["debt"] is None
    assert new["debt_hint"] == "not known what a failure would restore"
    assert new["mode_chip"] is None
    assert new["phase_chip"] is None


async def test_the_grid_gets_the_block_order_and_search_that_it_requests(ui):
    by_name = await _block(ui, startRow=1, endRow=3, sortModel=[{"colId": "name", "sort": "desc"}])
    names = sorted((j.detail.name for j in ui.fake.jobs.values()), key=str.casefold, reverse=True)
    assert [r["name"] for r in by_name["rows"]] == names[1:3]
    assert by_name["total"] == len(names)

    one = names[0]
    found = await _block(ui, filterModel={"name": {"filterType": "text", "type": "contains", "filter": one}})
    assert [r["name"] for r in found["rows"]] == [one]


async def test_a_refresh_sends_only_the_rows_that_changed_among_those_that_are_shown(ui):
    rows = (await _block(ui))["rows"]
    shown = [r["id"] for r in rows[:3]]
    view = {"first": 0, "ids": shown, "since": rows[0]["version"], "total": len(rows)}

    first = await _refresh(ui, view)
    again = await _refresh(ui, view, first["fleet-page"]["data-digest"])
    assert "fleet-delta" not in first
    assert set(again) == {"fleet-message"}, "nothing is sent if nothing changed"

    moved = await _refresh(ui, view | {"total": 2})
    assert (moved["fleet-delta"]["data"]["ids"], moved["fleet-delta"]["data"]["rows"]) == (shown, [])
    assert moved["fleet-delta"]["data"]["total"] == len(rows)

    whole = await _refresh(ui, view | {"since": None})
    assert [r["id"] for r in whole["fleet-delta"]["data"]["rows"]] == shown


async def test_a_block_that_cannot_be_read_has_no_rows_and_the_refresh_names_the_error(ui):
    ui.fake.is_down = True
    assert await _block(ui, number=7) == {"number": 7, "rows": None}
    answer = await _refresh(ui, {"first": 0, "ids": ["jE"], "since": "fake-1"})
    assert answer["fleet-message"]["children"]
    assert "fleet-delta" not in answer


def test_the_word_of_each_health_fits_into_the_column_of_a_row():
    """The pill of *intermittent* is the longest that the column has room for."""
    words = [SHORT_HEALTH.get(health, HEALTH_WORDS[health]) for health in Health]

    assert max(map(len, words)) == len("intermittent")
