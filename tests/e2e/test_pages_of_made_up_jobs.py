"""The pages in a real Chromium over a fake API: names with markup, 500 subtasks, and an API that is down.

``test_pages.py`` tests the pages of the live service.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Route, expect

from backend.contracts.status import StatusOut
from backend.domain.advice import AdviceState
from tests.support.api_examples import example
from tests.support.browsing import (
    LAPTOP,
    Weight,
    go,
    opened,
    overflowing,
    small_targets,
    until_charts_fit,
)
from tests.support.fake_api import HOSTILE
from tests.support.made_up_alerts import ADVISED, MadeUpAlerts
from tests.support.waiting import until
from tests.support.walking import Hand

PAGES = {
    "fleet": "/ui/",
    "job": "/ui/jobs/jE",
    "wide job": "/ui/jobs/jwide",
    "new job": "/ui/jobs/jnew",
    "expired": "/ui/jobs/jE/runs/rE/checkpoints/14",
    "wide": "/ui/jobs/jwide/runs/rwide/checkpoints/22?open=w1",
    "open": "/ui/jobs/jruntime/runs/rruntime/checkpoints/24",
    "comparison": "/ui/jobs/jruntime/compare?a=rruntime:23&b=rruntime:3&vertex=enrich",
    "windows": "/ui/jobs/jE/compare-windows",
    "targets": "/ui/targets",
    "alerts": "/ui/alerts",
    "incident": "/ui/incidents/i1",
    "rules": "/ui/alerts/rules",
    "receivers": "/ui/alerts/receivers",
    "silences": "/ui/alerts/silences?match=job_name%3Dpayments-settlement",
    "alert": "/ui/alerts/a1",
    "advice": "/ui/jobs/jruntime/advice",
    "pressure": "/ui/jobs/jruntime/pressure?vertex=enrich&measure=busy",
    "wide pressure": "/ui/jobs/jwide/pressure?vertex=w1",
}
SHOWN = {
    "fleet": "#fleet-grid .ag-row", "job": "#job-verdict .verdict-sentence", "wide job": "#job-recent a",
    "new job": "#job-verdict .verdict-sentence", "expired": "#front-graph .scatterlayer",
    "wide": "#gantt-graph .barlayer", "open": "#cp-acks-graph .scatterlayer", "targets": "#targets-list table",
    "alerts": ".incident", "incident": "#incident-strip-graph .barlayer", "rules": "#rules-list .rule-row",
    "receivers": "#alerts-receivers p", "silences": "#silence-preview b",
    "alert": "#alert-strip-graph .barlayer", "advice": "#advice-cards section",
    "pressure": "#pressure-history-graph .heatmaplayer image",
    "wide pressure": "#pressure-history-graph .heatmaplayer image",
    "comparison": "#comparison-graph .barlayer path",
    "windows": "#windows-graph .scatterlayer .points path",
}  # fmt: skip


@pytest.fixture
def alerting(fake):
    """Reset the alerts and recommendations of the fake API to their first state, and return them."""
    fake.alerting = MadeUpAlerts(now=lambda: datetime.fromtimestamp(time.time(), UTC))
    return fake.alerting


def test_every_page_fits_a_phone(browser, site):
    with opened(browser, site) as (page, watch):
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto("/ui/")
        for name, path in PAGES.items():
            go(page, path)
            page.wait_for_selector(SHOWN[name])
            until(lambda: overflowing(page) == [], f"{name} fits a phone")
            assert small_targets(page) == [], name
            # Nothing is squeezed into a column of single letters.
            narrow = "e => { const box = e.getBoundingClientRect(); return box.width && box.height > 6 * box.width; }"
            cells = page.locator("td, .alert-line a, .fact").evaluate_all(f"found => found.filter({narrow}).length")
            assert cells == 0, name
        go(page, PAGES["expired"])
        plot = page.locator("#gantt-graph .nsewdrag").first
        until(lambda: (plot.bounding_box() or {"width": 0})["width"] >= 250, "the phases have most of the width")
        assert watch.found == []
        page.set_viewport_size({"width": LAPTOP[0], "height": LAPTOP[1]})


def test_a_chart_that_was_hidden_while_the_window_was_resized_fits_when_it_is_shown_again(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto(PAGES["job"])
        page.wait_for_selector("#timeline-graph .points path")
        page.click("#timeline-toggle")
        expect(page.locator("#timeline-graph")).to_be_hidden()
        page.set_viewport_size({"width": 900, "height": 700})
        # Another theme draws every chart again, including the hidden one.
        page.click("#theme-toggle")
        page.wait_for_selector("#timeline-grid .ag-row")
        page.click("#timeline-toggle")
        until_charts_fit(page, "the timeline")
        assert watch.found == []
        page.set_viewport_size({"width": LAPTOP[0], "height": LAPTOP[1]})


def test_no_request_leaves_this_machine_and_markup_in_names_is_escaped(browser, site):
    with opened(browser, site) as (page, watch):
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto("/ui/jobs/jwide")
        expect(page.locator("#job-head h1")).to_have_text(HOSTILE)
        go(page, PAGES["wide"])
        page.wait_for_selector("#gantt-graph .barlayer")
        assert page.locator("img[src='x']").count() == 0
        assert {urlsplit(u).hostname for u in asked if not u.startswith(("data:", "blob:"))} == {"127.0.0.1"}
        assert watch.found == []


def test_if_the_api_is_down_the_page_keeps_its_content_and_recovers(browser, site, fake):
    with opened(browser, site) as (page, _watch):
        page.goto("/ui/jobs/jE")
        page.wait_for_selector("#job-verdict .verdict-sentence")
        fake.is_down = True
        try:
            expect(page.locator("#job-message")).to_contain_text("No fresh data")
            expect(page.locator("#job-verdict .verdict-sentence")).to_be_visible()
        finally:
            fake.is_down = False
        expect(page.locator("#job-message .message")).to_have_count(0)


def test_the_table_of_the_phases_leaves_missing_values_empty(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto(PAGES["expired"])
        page.wait_for_selector("#gantt-graph .barlayer path")
        page.click("#gantt-toggle")
        late = page.locator("#gantt-grid .ag-row:has-text('slow-stage-2')").first
        expect(late).to_contain_text("–")
        expect(late.locator("[col-id=c6]")).to_have_text("–")
        expect(late.locator("[col-id=c4]")).to_have_text("3200")
        expect(page.locator("#gantt-grid")).not_to_contain_text("Invalid")
        assert watch.found == []


def test_answers_slower_than_a_tick_fill_every_part_of_the_page(browser, site):
    with opened(browser, site) as (page, watch):
        page.add_init_script(
            """const fetched = window.fetch;
            window.fetch = (...args) => new Promise(resolve => setTimeout(() => resolve(fetched(...args)), 2300));"""
        )
        page.goto("/ui/jobs/jE")
        page.wait_for_selector("#job-progress-head .progress-title")
        expect(page.locator("#job-recent")).to_contain_text("expired")
        assert watch.found == []


def test_pause_stops_all_requests(browser, site, fake):
    with opened(browser, site) as (page, _watch):
        page.add_init_script(
            """const fetched = window.fetch;
            window.fetch = (...args) => { window.lastAskedAt = Date.now(); return fetched(...args); };"""
        )
        page.goto("/ui/jobs/jE")
        page.wait_for_selector("#timeline-graph .points path")
        page.click("#pause-toggle")
        expect(page.locator("#live-word")).to_have_text("paused")
        # An answer that was under way at the press may still lead to one request. Two ticks without any follow.
        until(lambda: page.evaluate("() => Date.now() - window.lastAskedAt") > 4500, "no request for two ticks")


def test_the_logarithmic_axis_is_part_of_the_address(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jE")
        page.click("#job-log")
        page.wait_for_url("**/ui/jobs/jE?log=1")
        page.reload()
        expect(page.locator("#job-log")).to_have_attribute("aria-pressed", "true")
        page.wait_for_selector("#timeline-graph .points path")
        page.click("#job-log")
        page.wait_for_url("**/ui/jobs/jE")
        assert watch.found == []


def test_a_page_whose_subject_does_not_exist_shows_one_message_and_no_chart(browser, site):
    with opened(browser, site) as (page, watch):
        for path in ("/ui/jobs/jnone", "/ui/jobs/jE/runs/rE/checkpoints/999"):
            page.goto(path)
            expect(page.locator("#page .not-found:visible h1")).to_have_text("Nothing at this address")
            expect(page.locator("#page .card:visible")).to_have_count(0)
            expect(page.locator(".nav-link.is-here")).to_have_text("Fleet")
        go(page, "/ui/nothing")
        expect(page.locator("#page .not-found:visible h1")).to_have_text("Page not found")
        expect(page.locator(".nav-link.is-here")).to_have_count(0)
        assert watch.found == []


def test_nothing_on_a_job_s_page_moves_when_an_alert_fires_or_ends(browser, site, alerting):
    with opened(browser, site) as (page, watch):
        weight = Weight(page)
        page.goto("/ui/jobs/jE")
        page.wait_for_selector("#pressure-graph .barlayer path")
        page.wait_for_selector("#job-acks-graph .scatterlayer")
        strip = page.locator("#job-alerts")
        expect(strip).to_contain_text("checkpoint 14 expired")
        before = weight.shifts()
        alerting.is_firing = False
        expect(strip).to_contain_text("No alert is open.")
        alerting.is_firing = True
        expect(strip).to_contain_text("checkpoint 14 expired")
        assert weight.shifts() - before <= 0.01
        assert watch.found == []


def test_copy_buttons_are_reached_and_pressed_with_the_keyboard(browser, site):
    with opened(browser, site) as (page, watch):
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.goto(f"/ui/jobs/{ADVISED}/advice")
        copy = page.locator("#advice-cards button[data-copy]").first
        copy.wait_for()
        label = copy.inner_text()
        hand = Hand(page, is_keyboard=True)

        def is_copied() -> bool:
            hand.press(copy)
            return copy.inner_text() == "Copied"

        # The button says it for about a second, and a refresh may replace the button meanwhile. Therefore, try again.
        until(is_copied, "the button says that it copied")
        copy.press("Enter")  # again, while it says so
        expect(copy).to_have_text(label)
        assert page.evaluate("navigator.clipboard.readText()") == copy.get_attribute("data-copy")
        assert watch.found == []


def test_a_target_is_tested_added_and_removed(browser, site, fake):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/targets")
        page.fill("#target-url", "http://nowhere.invalid")
        page.click("#target-test")
        expect(page.locator("#target-answer")).to_contain_text("does not resolve")
        page.fill("#target-url", "http://my-flink:8081")
        page.click("#target-test")
        expect(page.locator("#target-answer")).to_contain_text("Connected: flink 1.20.5")
        page.fill("#target-name", "mine")
        page.click("#target-add")
        expect(page.locator("#targets-list")).to_contain_text("mine")
        page.click("button[aria-label='Remove mine']")
        expect(page.locator("[role=dialog]")).to_contain_text("Stop reading mine?")
        assert small_targets(page) == []
        page.keyboard.press("Escape")
        expect(page.locator("[role=dialog]")).to_have_count(0)
        expect(page.locator("#targets-list")).to_contain_text("mine")
        page.click("button[aria-label='Remove mine']")
        page.click("#target-confirm")
        expect(page.locator("#targets-list")).not_to_contain_text("mine")
        assert watch.found == []


def test_a_target_on_the_fifth_page_is_edited_and_removed(browser, site, fake):
    kept, one = dict(fake.targets), fake.targets["tflink"]
    fake.targets |= {
        f"t{n}": one.model_copy(update={"id": f"t{n}", "name": f"cluster {n}-" + "n" * 180}) for n in range(997)
    }
    with opened(browser, site) as (page, watch):
        page.goto("/ui/targets")
        listed, pages = page.locator("#targets-list"), page.locator("#targets-pages")
        expect(page.locator("#targets-source")).to_contain_text("200 of 1 000 targets on this page")
        for first in (197, 397, 597, 797):
            pages.get_by_role("link", name="Next page").click()
            expect(listed.locator("tbody tr b").first).to_contain_text(f"cluster {first}-")
        page.reload()
        expect(listed).to_contain_text("cluster 996-")
        expect(pages.get_by_role("link")).to_have_text(["First page"])
        assert (overflowing(page), small_targets(page)) == ([], [])
        page.click("button[aria-label^='Edit cluster 996-']")
        dialog = page.locator("[role=dialog]")
        dialog.get_by_label("Name", exact=True).fill("the last one")
        dialog.get_by_label("Labels, one on each line").fill("team=a, env=b")
        dialog.get_by_role("button", name="Save").click()
        expect(page.locator("#edit-answer")).to_contain_text("write the value in double quotes")
        dialog.get_by_label("Labels, one on each line").fill("team=a, b\nenv=prod")
        dialog.get_by_role("button", name="Save").click()
        expect(dialog).to_have_count(0)
        expect(listed).to_contain_text("the last one")
        assert fake.targets["t996"].labels == {"team": "a, b", "env": "prod"}
        page.fill("#targets-search", "the last")
        page.keyboard.press("Enter")
        expect(listed.locator("tbody tr")).to_have_count(1)
        page.go_back()
        expect(page.locator("#targets-search")).to_have_value("")
        page.go_forward()
        expect(page.locator("#targets-search")).to_have_value("the last")
        page.click("button[aria-label='Remove the last one']")
        page.click("#target-confirm")
        expect(listed).to_contain_text("No target has this in its name or address.")
        assert "t996" not in fake.targets
        assert watch.found == []
    fake.targets = kept


def test_a_press_that_lasts_longer_than_a_poll_is_not_lost(browser, site, fake):
    kept = dict(fake.targets)
    with opened(browser, site) as (page, watch):
        page.goto("/ui/targets")
        button = page.locator("button[aria-label='Edit production-eu']")
        button.hover()
        page.mouse.down()
        health = fake.targets["tflink"].health.model_copy(update={"reason": "connection reset"})
        fake.targets["tflink"] = fake.targets["tflink"].model_copy(update={"health": health})
        # A row that is added before the pressed one must not take its press.
        fake.targets = {"tfirst": kept["tflink"].model_copy(update={"id": "tfirst", "name": "first"}), **fake.targets}
        expect(page.locator("#targets-list tbody tr").first).to_contain_text("first")
        expect(page.locator("#targets-list")).to_contain_text("connection reset")
        button.hover()
        page.mouse.up()
        expect(page.locator("[role=dialog] .mantine-Modal-title")).to_have_text("Change production-eu")
        assert watch.found == []
    fake.targets = kept


def test_a_target_is_changed_after_a_test_and_a_wrong_list_of_targets_is_said_on_the_page(browser, site, fake):
    kept, fake.unread_sources = dict(fake.targets), StatusOut.model_validate(example("status")).unread_sources
    with opened(browser, site) as (page, watch):
        page.goto("/ui/targets")
        expect(page.locator("#unread-sources")).to_contain_text("did you mean interval?")
        page.click("button[aria-label='Edit production-eu']")
        dialog = page.locator("[role=dialog]")
        dialog.get_by_label("Name", exact=True).fill("production")
        dialog.get_by_label("Bearer token").fill("canary")
        dialog.get_by_role("button", name="Save").click()
        expect(page.locator("#edit-answer")).to_contain_text("connection.bearer")
        expect(page.locator("#edit-answer")).not_to_contain_text("canary")
        dialog.get_by_label("Bearer token").fill("env:FLINK_TOKEN")
        dialog.get_by_role("button", name="Test connection").click()
        expect(page.locator("#edit-answer")).to_contain_text("Connected: flink 1.20.5")
        assert small_targets(page) == []
        dialog.get_by_role("button", name="Save").click()
        expect(dialog).to_have_count(0)
        expect(page.locator("#targets-list")).to_contain_text("bearer env:FLINK_TOKEN")
        page.click("button[aria-label='Edit production']")
        expect(dialog.get_by_label("Bearer token")).to_have_value("env:FLINK_TOKEN")
        assert watch.found == []
    fake.unread_sources, fake.targets = [], kept


def test_an_open_checkpoint_gains_acknowledgements_without_a_reload(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto(PAGES["open"])
        page.wait_for_selector("#cp-progress-head .progress-title")
        counts = set()
        until(
            lambda: counts.add(page.locator("#cp-progress-head .fact-value").first.inner_text()) or len(counts) >= 3,
            "acknowledgements change",
        )
        expect(page.locator("#cp-progress-waiting")).to_contain_text("ledger-sink")
        assert watch.found == []


def test_advice_is_dismissed_only_with_a_reason(browser, site, alerting):
    with opened(browser, site) as (page, watch):
        page.goto(f"/ui/jobs/{ADVISED}/advice")
        page.click("button:has-text('Dismiss')")
        expect(page.locator("#advice-message")).to_contain_text("Enter a reason")
        assert alerting.card.state is AdviceState.NEW
        page.fill(".advice-actions input", "it is scaled up on Monday")
        page.click("button:has-text('Dismiss')")
        expect(page.locator("#advice-message")).to_contain_text("not recommended again for 30 days")
        expect(page.locator("#advice-history")).to_contain_text("it is scaled up on Monday")
        expect(page.locator(".advice-actions")).to_have_count(0)
        assert alerting.card.state is AdviceState.DISMISSED
        assert watch.found == []


def test_advice_is_applied_only_after_confirmation_and_shows_the_measured_effect(browser, site, alerting):
    with opened(browser, site) as (page, watch):
        page.goto(f"/ui/jobs/{ADVISED}/advice")
        page.click("#advice-cards button:has-text('Apply now')")
        # The dialog names the job and shows the change.
        dialog = page.locator("[role=dialog]")
        expect(dialog).to_contain_text(f"Change these settings of {ADVISED} now?")
        expect(dialog.locator(".diff-new").first).to_be_visible()
        page.click("#advice-cancel")
        expect(dialog).to_have_count(0)
        # Nothing was sent, and the advice can still be applied.
        assert alerting.card.state is AdviceState.NEW
        page.click("#advice-cards button:has-text('Apply now')")
        page.click("#advice-confirm")
        expect(page.locator("#advice-message")).to_contain_text("Sent")
        expect(page.locator("#advice-cards")).to_contain_text("waiting for it to report")
        alerting.verify()
        # The table has a row for each prediction.
        row = page.locator("#advice-cards table").first.locator("tbody tr", has_text="228 ms")
        expect(row).to_contain_text("228 ms (202 ms to 441 ms)")
        expect(row).to_contain_text("231 ms")
        expect(row).to_contain_text("inside the interval")
        assert watch.found == []


def test_a_link_may_name_any_time_zone(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jE?tz=Asia/Kolkata&range=30d")
        expect(page.locator("#timeline-graph .xtitle")).to_contain_text("Asia/Kolkata")
        expect(page.locator("#zone-toggle-word")).to_have_text("Asia/Kolkata")
        page.click("#nav-fleet")
        expect(page).to_have_url(re.compile(r"tz=Asia%2FKolkata"))
        page.click("#zone-toggle")
        expect(page.locator("#zone-toggle-word")).to_have_text("UTC")
        expect(page).not_to_have_url(re.compile(r"tz="))
        page.click("#zone-toggle")
        expect(page.locator("#zone-toggle-word")).to_have_text("Local time")
        page.goto("/ui/jobs/jE?tz=Mars/Olympus")
        # An answer for a page that the viewer has left changes nothing, and raises no exception.
        page.evaluate("() => window.barrierscope.setProps('fleet-news', { data: 1 })")
        expect(page.locator("#zone-toggle-word")).to_have_text("Local time")
        assert watch.found == []


def test_the_barrier_front_plays_to_its_end_and_the_space_bar_stops_it(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jruntime/runs/rruntime/checkpoints/20?t=3000")
        at, play = page.locator("#front-position"), page.locator("#front-play")
        expect(at).to_have_text("3.0 s")
        play.click()
        expect(at).not_to_have_text("3.0 s")
        page.focus("#front-slider [role=slider]")
        page.keyboard.press("Space")
        expect(play).to_have_attribute("aria-pressed", "false")
        assert 3_000 < int(page.locator("#front-slider [role=slider]").get_attribute("aria-valuenow") or 0) < 6_767

        page.click("#front-speed")
        page.click("[role=option]:has-text('50×')")
        page.focus("#front-slider [role=slider]")
        page.keyboard.press("Space")
        expect(at).to_have_text("6.8 s")
        expect(play).to_have_text("Play")
        assert watch.found == []


def test_the_barrier_front_of_an_expired_checkpoint_opens_at_its_timeout_and_plays_from_the_trigger(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto(PAGES["expired"])
        at, thumb = page.locator("#front-position"), page.locator("#front-slider [role=slider]")
        expect(at).to_have_text("3.0 s")
        expect(thumb).to_have_attribute("aria-valuenow", "3000")
        # Barriers that came after the timeout are shown on request, and the address then contains the instant.
        thumb.press("End")
        expect(at).to_have_text("3.4 s")
        expect(page).to_have_url(re.compile(r"[?&]t=3380"))
        page.reload()
        expect(at).to_have_text("3.4 s")
        page.goto(PAGES["expired"])
        expect(at).to_have_text("3.0 s")
        page.click("#front-play")
        until(lambda: int(thumb.get_attribute("aria-valuenow") or 3_000) < 2_000, "it plays from the trigger")
        page.click("#front-play")
        assert watch.found == []


def test_pages_of_ended_checkpoints_are_final_that_of_an_open_one_is_live_and_the_lab_is_neither(browser, site):
    with opened(browser, site) as (page, watch):
        word = page.locator("#live-word")
        for path in (PAGES["expired"], f"{PAGES['expired']}/space-time"):
            page.goto(path)
            expect(word).to_have_text("final")
        go(page, PAGES["open"])
        expect(word).to_have_text("live")
        go(page, PAGES["comparison"])
        expect(word).to_have_text("final")
        # Nothing in the Lab follows a job.
        page.goto("/ui/lab")
        expect(word).to_be_hidden()
        assert watch.found == []


def test_a_page_of_a_slow_service_asks_for_nothing_new_until_it_has_its_answers(browser, site):
    held: list[Route] = []
    is_slow = True
    ticks = "() => { const p = window.dash_component_api.getLayout('tick').props; return [p.disabled, p.n_intervals]; }"
    with opened(browser, site) as (page, watch):
        page.route("**/_dash-update-component**", lambda route: held.append(route) if is_slow else route.continue_())
        page.goto("/ui/jobs/jE")
        # The layout of the page is its first answer. Every part of the page then asks for its data.
        until(
            lambda: page.evaluate("() => true") and len(held) >= 2,
            "the page and the state of the service are requested",
        )
        first, held[:] = held[:], []
        for route in first:
            route.continue_()
        until(lambda: page.evaluate("() => true") and len(held) >= 4, "the parts of the page are requested")
        # Dash sets the words of the switch together with everything else that the browser computed at the start.
        expect(page.locator("#pause-toggle-word")).to_have_text("Pause")
        until(lambda: page.evaluate(ticks) == [True, None], "no tick comes while answers are outstanding")
        page.evaluate("() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
        assert page.evaluate(ticks) == [True, None]
        is_slow = False
        for route in held:
            route.continue_()
        until(lambda: page.evaluate(ticks)[1] is not None, "the ticks go on")
        assert watch.found == []
