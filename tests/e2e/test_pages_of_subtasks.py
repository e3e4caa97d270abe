"""The heatmap and the page of pressure in a real Chromium over a fake API: clicks, drags and addresses."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.support.browsing import opened


def test_the_heatmap_opens_the_clicked_subtask_and_its_choices_are_in_the_address(browser, site, fake):
    last = [c for c in fake.jobs["jE"].checkpoints if c.status.is_terminal][-1]
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jE?measure=async&heat-scale=log")
        page.wait_for_selector("#heatmap-graph .heatmaplayer image")
        expect(page.locator("#heatmap-measure")).to_have_value("async")
        expect(page.locator("#heatmap-log")).to_have_attribute("aria-pressed", "true")
        page.click("#heatmap-log")
        page.click("#heatmap-measure")
        page.get_by_role("option", name="start delay").click()
        expect(page).to_have_url(re.compile(r"/ui/jobs/jE\?measure=start-delay$"))

        page.locator("#heatmap-graph").scroll_into_view_if_needed()
        area = page.locator("#heatmap-graph .heatmaplayer image").bounding_box()
        assert area is not None
        page.mouse.move(area["x"] + area["width"] - 25, area["y"] + area["height"] - 12)
        # Plotly reports a click only on a mark over which it has registered the pointer before.
        expect(page.locator("#heatmap-graph .hoverlayer")).to_contain_text("start delay")
        page.mouse.down()
        page.mouse.up()
        expect(page).to_have_url(re.compile(rf"/checkpoints/{last.checkpoint_id}\?open=.+&pick=.+"))
        assert watch.found == []


def test_the_pressure_page_opens_the_subtasks_of_a_clicked_row_and_keeps_them_in_the_address(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jE")
        page.click("#job-verdict a:has-text('Pressure over time')")
        expect(page.locator("#pressure-suspects li")).to_contain_text("slow-stage-2")
        page.wait_for_selector("#pressure-history-graph .scatterlayer .js-line")
        area = page.locator("#pressure-history-graph .nsewdrag").first.bounding_box()
        assert area is not None
        # The upper left part of the rows is the first vertex.
        page.mouse.move(area["x"] + area["width"] * 0.2, area["y"] + 30)
        expect(page.locator("#pressure-history-graph .hoverlayer")).to_contain_text("Source: main-source")
        page.mouse.down()
        page.mouse.up()
        expect(page).to_have_url(re.compile(r"/pressure\?vertex=.+"))
        page.wait_for_selector("#pressure-history-graph .heatmaplayer image")
        page.click("#pressure-length")
        page.get_by_role("option", name="24 hours").click()
        expect(page).to_have_url(re.compile(r"last=24h"))
        expect(page.locator("#pressure-notes")).to_contain_text("Each point is 12 min")

        page.click("#pressure-suspects a:has-text('its phases')")
        page.wait_for_selector("#cp-picked-panel b")
        expect(page).to_have_url(re.compile(r"/checkpoints/\d+\?open=.+&pick=.+"))
        page.click("#cp-verdict a:has-text('Pressure at that time')")
        expect(page.locator("#pressure-length")).to_have_value("as linked")
        page.wait_for_selector("#pressure-history-graph .scatterlayer .js-line")
        assert watch.found == []


def test_dragging_over_columns_of_the_heatmap_chooses_the_range_of_the_whole_page(browser, site):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jE")
        page.wait_for_selector("#heatmap-graph .heatmaplayer image")
        columns = page.locator("#heatmap-graph .draglayer .xy .nsewdrag")
        # The cards above the heatmap may still grow. Playwright's hover waits until the chart stands still.
        columns.hover()
        area = columns.bounding_box()
        assert area is not None
        middle = area["y"] + area["height"] / 2
        page.mouse.move(area["x"] + area["width"] * 0.3, middle)
        page.mouse.down()
        page.mouse.move(area["x"] + area["width"] * 0.6, middle, steps=5)
        page.mouse.up()
        expect(page).to_have_url(re.compile(r"from=\d+&to=\d+"))
        words = page.locator("#job-range-words")
        expect(words).to_have_text(re.compile(r"^[2-9] checkpoints, "))
        expect(page.locator("#job-recent .table-scroll tbody tr")).to_have_count(int(words.inner_text().split()[0]))
        page.click("#job-range-back")
        expect(words).to_have_text(re.compile(r"^The newest 17 checkpoints"))
        assert watch.found == []
