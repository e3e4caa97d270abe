"""The tour of a first-time viewer, in a real Chromium over a fake API, by keyboard only."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect

from dashboard import routes, tour
from tests.support.browsing import LAPTOP, focus, opened, overflowing, small_targets
from tests.support.dashboard_site import site_over
from tests.support.fake_api import FakeApi
from tests.support.made_up_alerts import ADVISED
from tests.support.waiting import until

_FOCUSED = "s => !!document.activeElement && document.activeElement.matches(s)"
_BEFORE = ("A job in trouble", "What is wrong", "Since when", "The culprit", "The barrier front", "The cure")


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(tour, "TROUBLED", "demo-backpressured")
    return FakeApi(now=lambda: datetime.fromtimestamp(time.time(), UTC))


@pytest.fixture
def site(fake):
    with site_over(fake) as url:
        yield url


def _is_focused(page, selector):
    until(lambda: page.evaluate(_FOCUSED, selector), f"the focus is on {selector}")


def _focus(page, selector, *, key="Tab"):
    def is_reached():
        if page.evaluate(_FOCUSED, selector):
            return True
        page.keyboard.press(key)
        return False

    # The tour looks every 200 ms for an element that the page has replaced. Until then, the key does not lead to it.
    until(is_reached, f"{key} leads to {selector}")


def test_the_tour_is_offered_once_leads_to_the_measured_effect_and_gives_the_focus_back(browser, site, fake):
    with opened(browser, site, is_first_visit=True) as (page, watch):
        lazy = []
        page.on("request", lambda request: lazy.append(request.url) if "/lazy/" in request.url else None)
        title, words = page.locator(".driver-popover-title"), page.locator(".driver-popover-description")
        page.goto("/ui/")
        expect(page.locator("#tour-note")).to_contain_text("A tour of three minutes")
        assert lazy == [], "nothing of the tour is loaded before it starts"

        _focus(page, "#tour-note .primary", key="Shift+Tab")
        page.keyboard.press("Enter")
        for number, expected in enumerate(_BEFORE):
            expect(title).to_have_text(expected)
            _is_focused(page, ".driver-popover-next-btn")
            page.keyboard.press("Enter" if number % 2 else "ArrowRight")
        assert len(lazy) == 4

        expect(title).to_have_text("Apply it")
        page.keyboard.press("ArrowLeft")
        expect(title).to_have_text("The cure")
        page.reload()
        expect(title).to_have_text("The cure")
        for width, height in ((390, 844), LAPTOP):
            page.set_viewport_size({"width": width, "height": height})
            expect(title).to_be_in_viewport()
            until(lambda: overflowing(page) == [], "the page fits")
            assert small_targets(page) == []

        _is_focused(page, ".driver-popover-next-btn")
        page.keyboard.press("ArrowRight")
        expect(title).to_have_text("Apply it")
        _focus(page, "[id*=advice-apply]")
        page.keyboard.press("Enter")
        # While the dialog of the page is open, it receives the keys, and the tour waits.
        expect(page.locator("#advice-confirm")).to_be_visible()
        expect(title).to_have_count(0)
        _focus(page, "#advice-confirm")
        page.keyboard.press("Enter")
        expect(title).to_have_text("The effect")
        expect(words).to_contain_text("being measured")
        fake.alerting.verify()
        expect(words).to_contain_text("Predicted and measured")
        _is_focused(page, ".driver-popover-next-btn")
        page.keyboard.press("Enter")
        expect(title).to_have_text("Your own jobs")
        page.keyboard.press("Enter")
        expect(title).to_have_count(0)
        _is_focused(page, "#tour-start")

        page.goto("/ui/")
        page.wait_for_selector("#fleet-grid .ag-row")
        page.keyboard.press("Shift+Tab")
        expect(page.locator("#tour-note")).to_have_count(0)
        focus(page.locator("#tour-start"))
        page.keyboard.press("Enter")
        expect(title).to_have_text("A job in trouble")
        page.keyboard.press("Escape")
        expect(title).to_have_count(0)
        _is_focused(page, "#tour-start")
        assert watch.found == []


@pytest.mark.slow
def test_a_viewer_who_leaves_the_path_can_go_on_and_without_demo_jobs_the_reason_is_said(browser, site, fake):
    with opened(browser, site) as (page, watch):
        title, note = page.locator(".driver-popover-title"), page.locator("#tour-note")
        page.goto(routes.targets())
        page.click("#tour-start")
        expect(title).to_have_text("A job in trouble")
        page.click("#nav-alerts")
        expect(note).to_contain_text("paused")
        expect(title).to_have_count(0)
        page.click("#tour-note .primary")
        expect(title).to_have_text("A job in trouble")
        # The viewer may click the row of the page instead of the tour's button.
        page.locator(f"#fleet-grid [row-id={ADVISED}]").click()
        expect(title).to_have_text("What is wrong")
        page.click(".driver-popover-close-btn")
        expect(title).to_have_count(0)

        del fake.targets["tdemo"]
        page.click("#tour-start")
        expect(note).to_contain_text("The tour needs the demo jobs of `barrierscope up`")
        assert watch.found == []
