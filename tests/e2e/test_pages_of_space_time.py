"""The space-time diagram in a real Chromium over a fake API: widths, themes, keyboard, drags and addresses."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.support.browsing import opened, overflowing, small_targets
from tests.support.walking import press_key

_DRAWN = "#space-time-graph .scatterlayer path.point"


def checkpoint_of(fake, job):
    found = [c for c in fake.jobs[job].checkpoints if c.status.is_terminal][-1]
    return f"/ui/jobs/{job}/runs/{found.run_id}/checkpoints/{found.checkpoint_id}"


@pytest.mark.parametrize(
    ("job", "theme", "width"),
    [("jruntime", "light", 1440), ("jruntime", "dark", 390), ("jwide", "dark", 1440), ("jE", "light", 390)],
)
def test_the_diagram_fits_each_width_and_theme(browser, site, fake, job, theme, width):
    with opened(browser, site, theme=theme) as (page, watch):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(checkpoint_of(fake, job) + "/space-time")
        page.wait_for_selector(_DRAWN, state="attached")
        assert overflowing(page) == []
        assert small_targets(page) == []
        page.evaluate("0")
        assert watch.found == []


def test_the_keyboard_opens_the_diagram_and_a_vertex_and_the_address_keeps_it(browser, site, fake):
    with opened(browser, site) as (page, watch):
        page.goto(checkpoint_of(fake, "jwide"))
        press_key(page.locator("#cp-head a:has-text('Space-time')"), "Enter")
        expect(page.locator("h1")).to_have_text("Space-time diagram")
        press_key(page.locator("#st-vertices button"), "Enter")
        expect(page).to_have_url(re.compile(r"/space-time\?open=.+"))
        expect(page.locator("#st-vertices button").first).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#st-notes")).to_contain_text("500 subtasks in 60 lanes")
        address = page.url
        page.goto(address)
        expect(page.locator("#st-vertices button").first).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#st-notes")).to_contain_text("500 subtasks in 60 lanes")
        page.evaluate("0")
        assert watch.found == []


def test_a_drag_zooms_a_click_marks_a_time_and_the_whole_time_comes_back(browser, site, fake):
    with opened(browser, site) as (page, watch):
        page.goto(checkpoint_of(fake, "jruntime") + "/space-time")
        expect(page.locator("#st-cut")).to_contain_text("consistent cut")
        page.wait_for_selector(_DRAWN, state="attached")
        graph = page.locator("#space-time-graph")
        graph.scroll_into_view_if_needed()
        graph.hover()
        # The last green square is an acknowledgement.
        mark = page.locator("#space-time-graph .scatterlayer .trace").last.locator("path.point").last
        box = mark.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expect(page.locator("#space-time-graph .hoverlayer")).to_contain_text("acknowledged at")
        page.mouse.down()
        page.mouse.up()
        expect(page).to_have_url(re.compile(r"\?t=[0-9.]+$"))
        expect(page.locator("#st-notes a")).to_contain_text("Barrier front at")

        area = page.locator("#space-time-graph .nsewdrag").first.bounding_box()
        assert area is not None
        page.mouse.move(area["x"] + area["width"] * 0.2, area["y"] + 30)
        page.mouse.down()
        page.mouse.move(area["x"] + area["width"] * 0.6, area["y"] + 30, steps=5)
        page.mouse.up()
        expect(page).to_have_url(re.compile(r"from=[0-9.]+&to=[0-9.]+"))
        page.click("#st-whole")
        expect(page).to_have_url(re.compile(r"/space-time$"))
        expect(page.locator("#st-notes a")).to_have_count(0)
        page.evaluate("0")
        assert watch.found == []
