"""Pages of ``barrierscope up`` while its collector or its API is frozen.

These tests use the same instance as ``test_pages.py``, because a start is slow.
"""

from __future__ import annotations

from contextlib import contextmanager

from playwright.sync_api import expect

from tests.support.browsing import opened
from tests.support.running_up import jobs_of
from tests.support.waiting import PATIENCE_S

_WAIT_MS = PATIENCE_S * 1000


@contextmanager
def _frozen(process):
    process.suspend()
    try:
        yield
    finally:
        process.resume()


def test_while_the_collector_is_frozen_rows_and_pages_are_stale_and_name_the_reason(browser, live_up):
    up = live_up()
    job = jobs_of(up)["orders-aligned"]
    with opened(browser, f"http://127.0.0.1:{up.port}") as (page, watch):
        page.goto("/ui/")
        page.wait_for_selector("#fleet-grid .ag-row a.row-link")
        # Other tests of this instance leave targets that are gone.
        expect(page.locator("#fleet-stale")).not_to_contain_text("no collector runs", timeout=_WAIT_MS)
        with _frozen(up.child("collect")):
            expect(page.locator("#fleet-stale")).to_contain_text("no collector runs", timeout=_WAIT_MS)
            expect(page.locator("#live-word")).to_have_text("stale")
            row = page.locator("#fleet-grid .ag-row.is-stale").first
            expect(row.locator(".cell-past .sub")).to_contain_text("was ")
            page.goto(f"/ui/jobs/{job}")
            expect(page.locator("#job-stale")).to_contain_text("no collector runs", timeout=_WAIT_MS)
            expect(page.locator("#live-word")).to_have_text("stale")
        expect(page.locator("#job-stale > *")).to_have_count(0, timeout=_WAIT_MS)
        expect(page.locator("#live-word")).to_have_text("live", timeout=_WAIT_MS)
        assert watch.found == []


def test_while_the_api_is_frozen_an_open_page_says_by_its_own_clock_that_there_is_no_answer(browser, live_up):
    up = live_up()
    with opened(browser, f"http://127.0.0.1:{up.port}") as (page, _):
        page.goto("/ui/")
        page.wait_for_selector("#fleet-grid .ag-row a.row-link")
        expect(page.locator("#api-silence")).to_be_hidden()
        with _frozen(up.child("api")):
            expect(page.locator("#live-word")).to_have_text("no answer", timeout=_WAIT_MS)
            expect(page.locator("#api-silence")).to_contain_text("The service does not answer")
        expect(page.locator("#api-silence")).to_be_hidden(timeout=_WAIT_MS)
        expect(page.locator("#live-word")).not_to_have_text("no answer")
