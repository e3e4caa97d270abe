"""The pages of Spark jobs in a real Chromium over a fake API: barrier views are hidden, and no elements overlap."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Page, expect

from tests.support.browsing import LAPTOP, opened, overflowing, small_targets, until_charts_fit
from tests.support.dashboard_site import site_over
from tests.support.fake_api import FakeApi
from tests.support.fake_spark import BEHIND, add_spark

_JOB = f"/ui/jobs/{BEHIND}"


@pytest.fixture(scope="module")
def site():
    fake = add_spark(FakeApi(now=lambda: datetime.fromtimestamp(time.time(), UTC)))
    with site_over(fake) as url:
        yield url


def test_the_pages_of_a_spark_job_show_its_batches_and_its_week_without_overlaps(browser, site):
    with opened(browser, site, theme="dark") as (page, watch):
        page.goto(_JOB)
        page.wait_for_selector("#job-batches-graph .barlayer path")
        expect(page.locator("#timeline-legend")).to_contain_text("one mark for each micro-batch")
        for hidden in ("#job-progress-panel", "#job-pressure"):
            expect(page.locator(hidden)).to_be_hidden()
        legend = page.locator("#job-micro-batches .legend > span").all_text_contents()
        assert (legend[0], legend[-1]) == ("ask sources", "other")
        # The card of the week reports that the API computed its hours without rollups, because the last run of the
        # pipeline failed.
        expect(page.locator("#trend-source")).to_contain_text("computed from the checkpoints")
        expect(page.locator("#pipeline-state")).to_have_text("the last rollup failed")
        assert "no space left on device" in (page.get_attribute("#pipeline-state", "title") or "")
        expect(page.locator("#job-batch-work")).to_contain_text("Reported by: history server")
        expect(page.locator("#job-query-state h2")).to_have_text(["State by operator", "Checkpoint folder"])
        page.locator("#job-query-state summary").first.click()
        expect(page.locator("#job-query-state details[open]")).to_contain_text("Partition 41")
        assert overflowing(page) == []
        assert small_targets(page) == []
        _resize(page, "job")

        page.locator("#job-recent a", has_text="batch 3").first.click()
        page.wait_for_selector("#cp-batch-graph .barlayer path")
        expect(page.locator("#cp-head h1")).to_have_text("Batch 3")
        expect(page.locator("#cp-barrier-views")).to_be_hidden()
        bars = page.locator("#cp-batch-graph .main-svg").first.bounding_box()
        sources = page.locator("#cp-batch-facts").bounding_box()
        assert bars["y"] + bars["height"] <= sources["y"]
        assert overflowing(page) == []
        _resize(page, "batch")
        assert watch.found == []


def _resize(page: Page, name: str) -> None:
    for width, height in ((1000, 900), (390, 844), LAPTOP):
        page.set_viewport_size({"width": width, "height": height})
        until_charts_fit(page, f"{name} at {width} px")
