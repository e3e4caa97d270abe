"""The Lab page in a real Chromium over a fake API: a run from the keyboard, charts, permalink, and a dark phone."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect

from tests.support.browsing import Weight, focus, opened, overflowing, small_targets
from tests.support.dashboard_site import site_over
from tests.support.fake_api import FakeApi

_SMALL = "shape=backpressured&protocol=aligned&with=unaligned&parallelism=2&duration=20&seed=7"
_SHIFTS_MAX = 0.02
_DRAWN = """() => [...document.querySelectorAll('#lab-results .js-plotly-plot')]
    .filter(e => e.querySelector('.trace')).map(e => e.closest('[id$=-graph]').id)"""


@pytest.fixture
def site():
    with site_over(FakeApi(now=lambda: datetime.fromtimestamp(time.time(), UTC))) as url:
        yield url


def test_a_simulation_runs_and_its_address_shows_the_same_results(browser, site):
    with opened(browser, site) as (page, watch):
        weight = Weight(page)
        page.goto(f"/ui/lab?{_SMALL}")
        expect(page.locator("#lab-status")).to_contain_text("not run yet")
        # A slider moves with the keyboard, and the address follows.
        focus(page.locator(".lab-slider [role=slider]").nth(1))
        page.keyboard.press("ArrowRight")
        expect(page).to_have_url(re.compile(r"duration=30"))
        # The other settings open with the keyboard. A value that cannot be used is said at its field.
        # They push down what is below them. On a busy machine, that is more than half a second after the key, so the
        # browser does not see that the viewer caused it.
        before_open = weight.shifts()
        focus(page.locator("#lab-more-summary"))
        page.keyboard.press("Enter")
        field = page.locator(".lab-setting", has_text="execution.buffer-timeout.interval")
        field.locator("input").fill("soon")
        expect(field.locator(".lab-problem")).to_contain_text("'soon' is not a valid value; a duration")
        expect(page).to_have_url(re.compile(r"execution\.buffer-timeout\.interval=soon"))
        assert overflowing(page) == []
        assert small_targets(page) == []
        by_opening = weight.shifts() - before_open
        field.locator("input").fill("")
        expect(field.locator(".lab-problem")).to_be_empty()
        page.locator("#lab-more-summary").click()
        focus(page.locator("#lab-run"))
        page.keyboard.press("Enter")
        expect(page.locator("#lab-status")).to_contain_text("completed")
        expect(page.locator("#lab-differences")).to_contain_text("times shorter")
        # Charts below the window are not drawn before they come into view.
        assert page.evaluate(_DRAWN) == []
        for chart in ("timeline", "gantt", "front", "space-time"):
            page.locator(f"#lab-{chart}-b-figure").scroll_into_view_if_needed()
            expect(page.locator(f"#lab-{chart}-b-graph .trace").first).to_be_attached()
        # The button plays the front and the diagram, and the address follows the slider.
        play, at = page.locator("#lab-play"), page.locator("#lab-at-words")
        half = at.inner_text()
        play.click()
        expect(play).to_have_attribute("aria-pressed", "true")
        expect(at).not_to_have_text(half)
        play.click()
        expect(play).to_have_attribute("aria-pressed", "false")
        expect(play).to_have_text("Play")
        newest, before = page.locator("#lab-pick").input_value(), page.locator("#lab-head-a").inner_text()
        page.locator("#lab-back").click()
        expect(page).to_have_url(re.compile(r"checkpoint=\d+"))
        # The address changes before the field and the cards do.
        number = re.search(r"checkpoint=(\d+)", page.url)
        assert number
        assert not newest.startswith(f"{number[1]}:")
        expect(page.locator("#lab-pick")).to_have_value(re.compile(rf"^{number[1]}:"))
        expect(page.locator("#lab-head-a")).not_to_have_text(before, use_inner_text=True)
        assert overflowing(page) == []
        assert small_targets(page) == []
        assert weight.shifts() - by_opening < _SHIFTS_MAX, weight.moved()
        chosen, head = page.locator("#lab-pick").input_value(), page.locator("#lab-head-a").inner_text()

        address = page.url
        page.goto("about:blank")
        page.goto(address)
        expect(page.locator("#lab-pick")).to_have_value(chosen)
        expect(page.locator("#lab-head-a")).to_have_text(re.compile(re.escape(head.split("\n")[-1])))
        page.evaluate("0")
        assert watch.found == []


_CURVE = "shape=backpressured&protocol=capped&parallelism=2&duration=10&seed=7&caps=0%2C+8+kb%2C+32+kb"


def test_a_curve_over_the_cap_is_drawn_and_its_address_shows_it_again(browser, site):
    with opened(browser, site) as (page, watch):
        weight = Weight(page)
        page.goto(f"/ui/lab?{_CURVE}")
        expect(page.locator("#lab-curve-status")).to_contain_text("not drawn yet")
        focus(page.locator("#lab-curve-run"))
        page.keyboard.press("Enter")
        expect(page.locator("#lab-curve-status")).to_contain_text("5 runs of 10.0 s simulated")
        expect(page.locator("#lab-curve-graph .trace .point")).to_have_count(10)
        expect(page.locator("#lab-curve-sentence")).to_contain_text("From aligned to unaligned")
        assert weight.shifts() < _SHIFTS_MAX
        page.locator("#lab-curve-caps").fill("0")
        expect(page.locator("#lab-curve-status")).to_contain_text("not drawn yet")
        expect(page).to_have_url(re.compile(r"caps=0(&|$)"))
        assert overflowing(page) == []
        assert small_targets(page) == []
        page.goto(f"/ui/lab?{_CURVE}")
        expect(page.locator("#lab-curve-graph .trace .point")).to_have_count(10)
        page.evaluate("0")
        assert watch.found == []


@pytest.mark.slow
def test_the_page_fits_a_phone_in_the_dark(browser, site):
    with opened(browser, site, theme="dark") as (page, watch):
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(f"/ui/lab?{_SMALL}")
        page.locator(".lab-slider").first.wait_for()
        page.click("#lab-run")
        expect(page.locator("#lab-status")).to_contain_text("completed")
        for side in ("a", "b"):
            page.locator(f"#lab-space-time-{side}-figure").scroll_into_view_if_needed()
            expect(page.locator(f"#lab-space-time-{side}-graph .trace").first).to_be_attached()
        assert overflowing(page) == []
        assert small_targets(page) == []
        page.evaluate("0")
        assert watch.found == []
