"""Tests in a browser of the barrier front of a large job, and of the search for a time zone.

The front has a search, a fold, a map, heat and another form for reduced motion.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Page, expect

from tests.support.browsing import opened
from tests.support.dashboard_site import site_over
from tests.support.large_job import CHECKPOINTS, CULPRIT, LARGE, LargeJobApi

_PAGE = f"/ui/jobs/{LARGE}/runs/r{LARGE[1:]}/checkpoints/{CHECKPOINTS}?open=&t=6000"


@pytest.fixture(scope="module")
def large() -> Iterator[str]:
    with site_over(LargeJobApi(now=lambda: datetime.fromtimestamp(time.time(), UTC))) as url:
        yield url


def _centre(page: Page) -> list[float]:
    range_of = "document.querySelector('#front-graph .js-plotly-plot')._fullLayout.{}axis.range"
    return [sum(page.evaluate(range_of.format(axis))) / 2 for axis in "xy"]


def _shows_the_map(page: Page) -> None:
    expect(page.locator("#front-map circle")).to_have_count(40)
    expect(page.locator("#front-map .visible-part")).not_to_have_attribute("width", "0")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_large_graph_is_searched_folded_and_moved_and_the_address_keeps_it(browser, large, scheme):
    with opened(browser, large) as (page, watch):
        page.emulate_media(color_scheme=scheme)
        page.goto(_PAGE)
        _shows_the_map(page)
        # A click at the left end of the map shows the sources.
        before = _centre(page)
        page.locator("#front-map circle").first.click()
        expect(page).to_have_url(re.compile(r"view=-?\d+"))
        moved = _centre(page)
        assert moved[0] < before[0]
        # A step in time keeps the visible part.
        page.click("#front-back")
        expect(page.locator("#front-position")).not_to_have_text("6.0 s")
        assert _centre(page) == pytest.approx(moved, abs=2)

        page.focus("#front-find")
        page.keyboard.type("operator-22")
        expect(page.locator("[role=option]:visible")).to_have_count(1)
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(rf"find={CULPRIT}"))
        page.click("#front-fold")
        expect(page.locator("#front-graph .annotation-text", has_text="upstream")).to_have_count(1)
        expect(page.locator("#front-map circle")).to_have_count(0)
        page.click("#front-heat")
        page.click("[role=option]:has-text('backpressure')")
        expect(page).to_have_url(re.compile(r"heat=pressure"))
        expect(page.locator("#front-heat-scale")).to_contain_text("largest backpressured share")

        # Opening the address again shows the same view.
        page.goto(page.url)
        expect(page.locator("#front-graph .annotation-text", has_text="upstream")).to_have_count(1)
        expect(page.locator("#front-fold")).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#front-heat-scale")).to_contain_text("largest backpressured share")
        assert watch.found == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 2560])
def test_a_large_graph_fits_into_narrow_and_wide_windows(browser, large, width):
    with opened(browser, large) as (page, watch):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(_PAGE)
        _shows_the_map(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("#front-graph").bounding_box()["height"] > 300
        assert watch.found == []


@pytest.mark.slow
def test_with_reduced_motion_five_instants_replace_the_play_button(browser, large):
    with opened(browser, large) as (page, watch):
        page.emulate_media(reduced_motion="reduce")
        page.goto(_PAGE)
        expect(page.locator("#front-multiples .annotation-text")).to_have_count(5)
        expect(page.locator("#front-play")).to_be_hidden()
        expect(page.locator("#front-multiples-words")).to_contain_text("16000 of 16000 subtasks")
        page.focus("#front-slider [role=slider]")
        page.keyboard.press("Space")
        page.evaluate("0")
        expect(page.locator("#front-play")).to_have_attribute("aria-pressed", "false")
        page.emulate_media(reduced_motion="no-preference")
        assert watch.found == []


@pytest.mark.parametrize("width", [390, 1366])
def test_a_time_zone_is_found_by_typing_and_kept_in_the_address(browser, large, width):
    with opened(browser, large) as (page, watch):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto("/ui/targets")
        page.focus("#zone-open")
        page.keyboard.press("Enter")
        expect(page.locator("#zone-find")).to_be_focused()
        expect(page.locator("[role=option]:visible").first).to_have_text("UTC (+00:00)")
        page.keyboard.type("new york")
        expect(page.locator("[role=option]:visible")).to_have_count(1)
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(r"tz=America%2FNew_York"))
        expect(page.locator("#zone-toggle-word")).to_have_text("America/New_York")
        page.keyboard.press("Escape")
        expect(page.locator("#zone-find")).to_be_hidden()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.click("#zone-toggle")
        expect(page).not_to_have_url(re.compile(r"tz="))
        assert watch.found == []
