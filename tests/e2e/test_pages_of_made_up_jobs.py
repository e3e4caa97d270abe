"""The pages in a real Chromium over a fake API: markup in names, 500 subtasks, an API that is down.

``test_pages.py`` tests the pages of the live service.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from backend.domain.advice import AdviceState
from tests.support.browsing import chromium, go, launched, opened, overflowing
from tests.support.dashboard_site import site_over
from tests.support.fake_api import HOSTILE, FakeApi
from tests.support.made_up_alerts import ADVISED, JOB, MadeUpAlerts
from tests.support.waiting import until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium() is None, reason="no Chromium on this machine"),
]

PAGES = {
    "fleet": "/ui/",
    "job": "/ui/jobs/jE",
    "wide job": "/ui/jobs/jwide",
    "new job": "/ui/jobs/jnew",
    "expired": "/ui/jobs/jE/runs/rE/checkpoints/14",
    "wide": "/ui/jobs/jwide/runs/rwide/checkpoints/22?open=w1",
    "open": "/ui/jobs/jruntime/runs/rruntime/checkpoints/24",
    "targets": "/ui/targets",
    "alerts": "/ui/alerts",
    "alert": "/ui/alerts/a1",
    "advice": "/ui/jobs/jruntime/advice",
}
SHOWN = {
    "fleet": "#fleet-grid .ag-row", "job": "#job-verdict .verdict-sentence", "wide job": "#job-recent a",
    "new job": "#job-verdict .verdict-sentence", "expired": "#front-graph .scatterlayer",
    "wide": "#gantt-graph .barlayer", "open": "#cp-acks-graph .scatterlayer", "targets": "#targets-list table",
    "alerts": "#rules-list .rule-row", "alert": "#alert-strip-graph .barlayer", "advice": "#advice-cards section",
}  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    with launched(chromium()) as found:
        yield found


@pytest.fixture(scope="module")
def fake():
    return FakeApi(now=lambda: datetime.fromtimestamp(time.time(), UTC))


@pytest.fixture(scope="module")
def site(fake):
    with site_over(fake) as url:
        yield url


@pytest.fixture
def alerting(fake):
    """Alerts and recommendations in their first state."""
    fake.alerting = MadeUpAlerts(now=lambda: datetime.fromtimestamp(time.time(), UTC))
    return fake.alerting


def test_every_page_opens_without_an_error_and_fits_a_laptop_in_both_themes(browser, site):
    themes = ["light", "dark"]
    with opened(browser, site, theme=themes[0]) as (page, watch):
        page.goto("/ui/")
        for name, path in PAGES.items():
            # ``go`` changes the page without loading the scripts again. The tests below load their pages in full.
            go(page, path)
            page.wait_for_selector(SHOWN[name])
            for theme in themes:
                if theme == themes[1]:
                    page.click("#theme-toggle")
                expect(page.locator("html")).to_have_attribute("data-mantine-color-scheme", theme)
                assert overflowing(page) == [], (name, theme)
                assert watch.found == [], (name, theme)
            # The next test starts in the theme that this one leaves.
            themes.reverse()


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
        page.goto("/ui/")
        page.wait_for_selector("#fleet-grid .ag-row")
        page.click("#pause-toggle")
        expect(page.locator("#live-word")).to_have_text("paused")
        assert page.evaluate(
            """() => new Promise(resolve => {
                let asked = 0;
                const fetched = window.fetch;
                window.fetch = (...args) => { asked += 1; return fetched(...args); };
                setTimeout(() => resolve(asked), 3000);
            })"""
        ) == 0  # fmt: skip


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
        page.on("dialog", lambda dialog: dialog.accept())
        page.click("button[aria-label='Remove mine']")
        expect(page.locator("#targets-list")).not_to_contain_text("mine")
        assert watch.found == []


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


def test_a_threshold_out_of_bounds_is_refused_and_a_valid_one_is_saved(browser, site, alerting):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/alerts")
        row = page.locator(".rule-row:has-text('CheckpointExpired')")
        threshold = row.locator("label:has-text('window count') input")
        threshold.fill("40")
        row.locator("button:has-text('Save')").click()
        expect(page.locator("#rules-answer")).to_contain_text("thresholds.window_count: 40 is out of bounds")
        expect(page.locator("#rules-answer")).to_contain_text("1 to 20")
        threshold.fill("")
        row.locator("button:has-text('Save')").click()
        expect(page.locator("#rules-answer")).to_contain_text("window_count must be a number")
        assert alerting.rules["CheckpointExpired"].version == 0
        threshold.fill("7")
        row.locator("button:has-text('Save')").click()
        expect(page.locator("#rules-answer")).to_contain_text("CheckpointExpired was saved as version 1")
        expect(row).to_contain_text("version 1")
        expect(threshold).to_have_value("7")
        assert alerting.rules["CheckpointExpired"]["window_count"] == 7
        assert watch.found == []


def test_an_alert_is_silenced_with_a_reason_and_the_silence_is_ended(browser, site, alerting):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/alerts")
        page.click("button:has-text('Silence …')")
        expect(page.locator("#silence-matchers")).to_have_value("alertname=CheckpointExpired, job=payments-settlement")
        page.fill("#silence-author", "maria")
        page.click("#silence-add")
        expect(page.locator("#silence-answer")).to_contain_text("Enter a reason")
        page.fill("#silence-reason", "scaled up at noon")
        page.click("#silence-minutes")
        page.click("[role=option]:has-text('8 hours')")
        page.click("#silence-add")
        expect(page.locator("#silence-answer")).to_contain_text("It hides 1 alert now")
        expect(page.locator("#alerts-silences tbody")).to_contain_text("scaled up at noon")
        expect(page.locator("#alerts-silences thead")).to_contain_text("By (as typed)")
        expect(page.locator("#alerts-open")).to_contain_text("silenced")
        (silence,) = alerting.silences.values()
        assert round((silence.ends_at - silence.added_at).total_seconds() / 60) == 480
        page.click("button:has-text('End now')")
        expect(page.locator("#alerts-silences tbody")).to_have_count(0)
        assert alerting.silences == {}
        assert watch.found == []


def test_a_receiver_is_added_tested_and_removed(browser, site, alerting):
    with opened(browser, site) as (page, watch):
        page.on("dialog", lambda dialog: dialog.accept())
        page.goto("/ui/alerts")
        expect(page.locator("#alerts-receivers")).to_contain_text("No receivers yet")
        page.click("#receiver-add")
        expect(page.locator("#receiver-answer")).to_contain_text("Enter an address")
        for name, address, said in (
            ("pager", "http://down.example/hook", "Test message not accepted: cannot connect"),
            ("on-call", "https://pager.example/hook", "Test message accepted: HTTP 200 (after 14 ms)"),
        ):
            page.fill("#receiver-name", name)
            page.fill("#receiver-url", address)
            page.click("#receiver-add")
            expect(page.locator("#receiver-answer")).to_contain_text(f"{name} was added. {said}")
            expect(page.locator("#alerts-receivers tbody")).to_contain_text(address)
        assert [r.kind for r in alerting.receivers.values()] == ["webhook", "webhook"]
        page.click("button[aria-label='Remove pager']")
        expect(page.locator("#alerts-receivers tbody tr")).to_have_count(1)
        expect(page.locator("#alerts-receivers tbody")).to_contain_text("on-call")
        assert watch.found == []


def test_a_link_that_is_replaced_while_it_is_pressed_is_followed(browser, site, alerting):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/alerts")
        link = page.locator("#alerts-open a.row-link").first
        link.hover()
        link.evaluate("node => { window.pressed = node; }")
        page.mouse.down()
        # A changed text replaces the element of the link.
        alerting.summary = "payments-settlement: checkpoint 15 expired after 3.0 s"
        until(lambda: page.evaluate("() => !window.pressed.isConnected"), "the list is drawn again")
        page.mouse.up()
        page.wait_for_selector("#alert-head h1")
        assert urlsplit(page.url).path.startswith("/ui/alerts/")
        page.click("#alert-head a:has-text('Advice')")
        page.wait_for_selector("#advice-head h1")
        assert urlsplit(page.url).path == f"/ui/jobs/{JOB}/advice"
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
        asked = []
        page.on(
            "dialog",
            lambda dialog: (asked.append(dialog.message), dialog.dismiss() if len(asked) == 1 else dialog.accept()),
        )
        page.goto(f"/ui/jobs/{ADVISED}/advice")
        page.click("button:has-text('Apply now')")
        # Nothing was sent, so the change can still be applied.
        assert alerting.card.state is AdviceState.NEW
        page.once("dialog", lambda dialog: dialog.accept())
        page.click("button:has-text('Apply now')")
        expect(page.locator("#advice-message")).to_contain_text("Sent")
        expect(page.locator("#advice-cards")).to_contain_text("waiting for it to report")
        alerting.verify()
        row = page.locator("#advice-cards table").first.locator("tbody tr")
        expect(row).to_contain_text("228 ms (202 ms to 441 ms)")
        expect(row).to_contain_text("231 ms")
        expect(row).to_contain_text("inside the interval")
        assert watch.found == []


def test_a_range_chosen_by_mouse_or_keyboard_filters_the_page_below_the_timeline(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jE")
        page.wait_for_selector("#timeline-graph .points path")
        words, rows = page.locator("#job-range-words"), page.locator("#job-recent .table-scroll tbody tr")
        area = page.locator("#timeline-graph .nsewdrag").bounding_box()
        assert area is not None
        middle = area["y"] + area["height"] / 2
        page.mouse.move(area["x"] + area["width"] * 0.3, middle)
        page.mouse.down()
        page.mouse.move(area["x"] + area["width"] * 0.6, middle, steps=5)
        page.mouse.up()
        expect(words).to_have_text(re.compile(r"^Below: \d of 17 checkpoints"))
        expect(page.locator("#job-pressure-hint")).to_contain_text("in the chosen range")
        expect(rows).to_have_count(int(words.inner_text().split()[1]))
        page.wait_for_url(re.compile(r"from=\d+&to=\d+"))

        # The address restores the range. Each key press moves an end by one of 200 places.
        page.reload()
        expect(words).to_have_text(re.compile(r"^Below: \d of 17"))
        before = words.inner_text()
        start = page.locator("#job-range-slider [role=slider]").first
        expect(start).not_to_have_attribute("aria-valuenow", "0")
        start.focus()
        for _ in range(15):
            page.keyboard.press("ArrowRight")
        expect(words).not_to_have_text(before)
        page.click("#job-range-clear")
        expect(words).to_contain_text("everything in the chart")
        expect(page.locator("#job-recent")).to_contain_text("Newest checkpoints")
        expect(page).to_have_url(re.compile(r"/ui/jobs/jE$"))
        assert watch.found == []


def test_the_barrier_front_plays_to_its_end_and_the_space_bar_stops_it(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jruntime/runs/rruntime/checkpoints/20?t=3000")
        at, play = page.locator("#front-position"), page.locator("#front-play")
        expect(at).to_have_text("3 s")
        play.click()
        expect(at).not_to_have_text("3 s")
        page.focus("#front-slider [role=slider]")
        page.keyboard.press("Space")
        expect(play).to_have_attribute("aria-pressed", "false")
        assert 3_000 < int(page.locator("#front-slider [role=slider]").get_attribute("aria-valuenow") or 0) < 6_767

        page.click("#front-speed")
        page.click("[role=option]:has-text('50×')")
        page.focus("#front-slider [role=slider]")
        page.keyboard.press("Space")
        expect(at).to_have_text("6.77 s")
        expect(play).to_have_text("Play")
        assert watch.found == []
