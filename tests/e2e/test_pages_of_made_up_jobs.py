"""The pages in a real Chromium over answers that no live demo gives: hostile names, 500 subtasks, a dead API.

The same walk over the live service is ``test_pages.py``.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from playwright.sync_api import expect

from dashboard.role import create_app
from tests.support.browsing import chromium, launched, opened, overflowing
from tests.support.fake_api import HOSTILE, FakeApi
from tests.support.running_up import free_port
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
}
SHOWN = {
    "fleet": "#fleet-grid .ag-row", "job": "#job-verdict .verdict-sentence", "wide job": "#job-recent a",
    "new job": "#job-verdict .verdict-sentence", "expired": "#front-graph .scatterlayer",
    "wide": "#gantt-graph .barlayer", "open": "#cp-acks-graph .scatterlayer", "targets": "#targets-list table",
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
    app = create_app(transport=httpx.MockTransport(fake.handle), api_base_url="http://api.test")
    config = uvicorn.Config(app, host="127.0.0.1", port=free_port(), log_level="error", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="dashboard")
    thread.start()
    try:
        until(lambda: server.started, "the dashboard serves")
        yield f"http://127.0.0.1:{config.port}"
    finally:
        server.should_exit = True
        thread.join(20)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_opens_without_an_error_and_fits_a_laptop(browser, site, theme):
    with opened(browser, site, theme=theme) as (page, watch):
        for name, path in PAGES.items():
            page.goto(path)
            page.wait_for_selector(SHOWN[name])
            assert page.locator("html").get_attribute("data-mantine-color-scheme") == theme
            assert overflowing(page) == [], name
            assert watch.found == [], name


def test_nothing_leaves_this_machine_and_a_hostile_name_stays_a_name(browser, site):
    with opened(browser, site) as (page, watch):
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto("/ui/jobs/jwide")
        expect(page.locator("#job-head h1")).to_have_text(HOSTILE)
        page.goto(PAGES["wide"])
        page.wait_for_selector("#gantt-graph .barlayer")
        assert page.locator("img[src='x']").count() == 0
        assert {urlsplit(u).hostname for u in asked if not u.startswith(("data:", "blob:"))} == {"127.0.0.1"}
        assert watch.found == []


def test_while_the_api_is_away_the_page_keeps_what_it_shows_and_recovers(browser, site, fake):
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


def test_the_table_behind_the_phases_leaves_missing_missing(browser, site):
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


def test_a_pause_stops_the_asking(browser, site, fake):
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


def test_a_target_is_tried_added_and_removed(browser, site, fake):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/targets")
        page.fill("#target-url", "http://nowhere.invalid")
        page.click("#target-test")
        expect(page.locator("#target-answer")).to_contain_text("does not resolve")
        page.fill("#target-url", "http://my-flink:8081")
        page.click("#target-test")
        expect(page.locator("#target-answer")).to_contain_text("It answers: flink 1.20.5")
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
            timeout_s=60,
        )
        expect(page.locator("#cp-progress-waiting")).to_contain_text("ledger-sink")
        assert watch.found == []
