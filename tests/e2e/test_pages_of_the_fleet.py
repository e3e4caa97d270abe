"""The fleet page over a fake API: loading rows, sorting, changes, errors, and the keyboard."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from playwright.sync_api import expect

from tests.support.browsing import (
    opened,
)
from tests.support.dashboard_site import site_over
from tests.support.fake_api import FakeApi
from tests.support.waiting import until


def test_a_large_fleet_loads_rows_while_it_is_scrolled_and_shows_what_changes(browser):
    fake = FakeApi(now=lambda: datetime.fromtimestamp(time.time(), UTC), job_count=300)
    with site_over(fake) as url, opened(browser, url) as (page, watch):
        page.goto("/ui/")
        page.wait_for_selector("#fleet-grid .ag-row a.row-link")
        assert page.locator("#fleet-grid .ag-row").count() < 60, "only the rows that are shown are drawn"
        asked = [r for r in fake.requests if "/jobs" in r]
        assert asked == [], "the page reads no list of all jobs"

        # The last rows are in a block that is loaded only now.
        ids = list(fake.jobs)
        last = fake.jobs[ids[-1]]
        page.locator("#fleet-grid .ag-body-viewport").evaluate("node => { node.scrollTop = 1e6; }")
        shown = page.locator(f"#fleet-grid .ag-row:has(a.row-link[href='/ui/jobs/{ids[-1]}'])")
        expect(shown).to_be_visible()

        sentence = "it waits for a slow disk"
        verdict = last.detail.verdict.model_copy(update={"sentence": sentence})
        last.detail = last.detail.model_copy(update={"verdict": verdict})
        expect(shown.locator(f".badge[title='{sentence}']")).to_be_visible()

        # The job becomes the most urgent one. The rows that are shown move by one.
        fake.jobs = {ids[-1]: fake.jobs[ids[-1]]} | fake.jobs
        expect(page.locator(f"#fleet-grid .ag-row[row-index='{len(ids) - 1}']")).to_have_attribute("row-id", ids[-2])
        page.locator("#fleet-grid .ag-body-viewport").evaluate("node => { node.scrollTop = 0; }")
        expect(page.locator("#fleet-grid .ag-row[row-index='0']")).to_have_attribute("row-id", ids[-1])
        assert watch.found == []


def test_the_fleet_is_sorted_by_the_server(browser, site, fake):
    names = sorted((j.detail.name for j in fake.jobs.values()), key=str.casefold)
    with opened(browser, site) as (page, watch):
        page.goto("/ui/")
        page.wait_for_selector("#fleet-grid .ag-row a.row-link")
        page.click("#fleet-grid .ag-header-cell[col-id=name] .ag-header-cell-label")
        expect(page.locator("#fleet-grid .ag-row[row-index='0'] a.row-link")).to_have_text(names[0])
        page.click("#fleet-grid .ag-header-cell[col-id=name] .ag-header-cell-label")
        expect(page.locator("#fleet-grid .ag-row[row-index='0'] a.row-link")).to_have_text(names[-1])
        # The order is part of the address, so a reload restores it.
        page.wait_for_url("**/ui/?sort=name&desc=1")
        page.reload()
        expect(page.locator("#fleet-grid .ag-row[row-index='0'] a.row-link")).to_have_text(names[-1])
        assert watch.found == []


def test_if_the_api_is_down_the_fleet_keeps_its_rows_and_sorts_them_when_it_is_back(browser, site, fake):
    names = sorted((j.detail.name for j in fake.jobs.values()), key=str.casefold)
    first = "#fleet-grid .ag-row[row-index='0'] a.row-link"
    with opened(browser, site) as (page, _watch):
        page.goto("/ui/")
        expect(page.locator(first)).to_have_count(1)
        before = page.locator(first).inner_text()
        assert before != names[0]
        fake.is_down = True
        try:
            page.click("#fleet-grid .ag-header-cell[col-id=name] .ag-header-cell-label")
            expect(page.locator("#fleet-message")).to_contain_text("No fresh data")
            expect(page.locator(first)).to_have_text(before)
            expect(page.locator("#fleet-grid .ag-row a.row-link")).to_have_count(len(names))
            expect(page.locator("#fleet-board")).to_have_attribute("aria-busy", "true")
        finally:
            fake.is_down = False
        expect(page.locator(first)).to_have_text(names[0])
        expect(page.locator("#fleet-message .message")).to_have_count(0)
        expect(page.locator("#fleet-board")).to_have_attribute("aria-busy", "false")


def test_a_fleet_on_which_nothing_changes_requests_nothing_and_hears_of_a_change(browser, site, fake):
    job = fake.jobs["jB2"]
    told = job.detail.verdict
    with opened(browser, site) as (page, watch):
        page.goto("/ui/")
        with page.expect_websocket():
            page.wait_for_selector("#fleet-grid .ag-row a.row-link")
        asked: list[str] = []
        page.on("request", lambda r: asked.append(r.post_data or "") if "fleet-delta" in (r.post_data or "") else None)

        def requests_nothing() -> bool:
            asked.clear()
            before = fake.requests.count("GET /api/v1/board")
            # For a page that listens, the server reads the board every two seconds.
            until(lambda: fake.requests.count("GET /api/v1/board") >= before + 3, "the server has read the board")
            # Playwright reports requests of the page only during a call, so make one.
            page.evaluate("0")
            return asked == []

        # The page requests its rows, and the changes once more when it begins to listen.
        until(requests_nothing, "the page requests nothing")
        try:
            job.detail = job.detail.model_copy(update={"verdict": told.model_copy(update={"sentence": "a slow disk"})})
            expect(page.locator("#fleet-grid .badge[title='a slow disk']")).to_be_visible()
            # A view that the browser sends before it has the change is compared with the old rows, so a second request
            # may follow.
            assert 1 <= len(asked) <= 2
        finally:
            job.detail = job.detail.model_copy(update={"verdict": told})
        assert watch.found == []


def test_head_and_rows_of_the_fleet_have_one_tab_stop_each_and_the_arrow_keys_move_in_them(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/")
        page.wait_for_selector("#fleet-grid .ag-row a.row-link")
        page.focus("#theme-toggle")
        page.keyboard.press("Tab")
        expect(page.locator("#fleet-grid .ag-header-cell[col-id=name]")).to_be_focused()
        page.keyboard.press("Tab")
        row = page.locator("#fleet-grid .ag-row:has(:focus)")
        expect(row).to_have_attribute("row-index", "0")
        page.keyboard.press("ArrowDown")
        expect(row).to_have_attribute("row-index", "1")
        # The next Tab stop is after the grid, and Shift and Tab lead back to the rows.
        page.keyboard.press("Tab")
        assert page.locator("#fleet-grid :focus").count() == 0
        page.keyboard.press("Shift+Tab")
        expect(row).to_have_count(1)
        page.keyboard.press("Home")
        address = row.locator("a.row-link").get_attribute("href") or ""
        page.keyboard.press("Enter")
        page.wait_for_url(f"**{address}")
        assert watch.found == []


def test_the_first_row_is_in_sight_on_a_phone(browser, site):
    with opened(browser, site) as (page, _):
        page.set_viewport_size({"width": 390, "height": 664})
        page.goto("/ui/")
        page.wait_for_selector("#fleet-grid .ag-row a.row-link")
        box = page.locator("#fleet-grid .ag-row[row-index='0']").first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 664
