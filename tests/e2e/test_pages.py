"""The pages of a live ``barrierscope up`` in a real Chromium: from the fleet to who holds the barrier.

Proof: every page in light and dark, the scrubber dragged and stepped, no console error, no failed request.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.browsing import Watch, chromium, drag, launched, opened, overflowing
from tests.support.recorded_flink import RECORDINGS, RecordedFlink, served
from tests.support.running_up import Up
from tests.support.waiting import until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium() is None, reason="no Chromium on this machine"),
]

_DEMOS = 7
_TROUBLED = "orders-aligned"
_HOLDER = "aggregate"


@pytest.fixture(scope="module")
def browser():
    with launched(chromium()) as found:
        yield found


@pytest.fixture(scope="module")
def up():
    folder = Path(tempfile.mkdtemp(prefix="barrierscope-pages-"))
    run = Up(folder / "data")
    try:
        run.wait_until_says("ready: open")
        until(lambda: _is_in_trouble(run), "a checkpoint of the job in trouble has expired", timeout_s=180)
        yield run
    finally:
        run.close()
        shutil.rmtree(folder)


def _job(up: Up, name: str) -> dict:
    page = up.get("/api/v1/jobs?limit=100") or {"items": []}
    return next((job for job in page["items"] if job["name"] == name), {})


def _is_in_trouble(up: Up) -> bool:
    return _job(up, _TROUBLED).get("failed_24h_count", 0) > 0


def _url(up: Up) -> str:
    return f"http://127.0.0.1:{up.port}"


def _go_to_the_held_checkpoint(page: Page) -> None:
    """Two clicks from the fleet: the job in trouble, its newest checkpoint that expired."""
    page.goto("/")
    page.click(f"#fleet-grid .ag-row:has-text('{_TROUBLED}'):not(:has-text('{_TROUBLED}-timeout'))")
    page.wait_for_url(re.compile(r"/ui/jobs/[^/]+$"))
    expect(page.locator("#job-verdict .verdict-sentence")).to_contain_text(_HOLDER)
    page.click("#job-recent tr:has-text('expired') a >> nth=0")
    page.wait_for_url(re.compile(r"/runs/[^/]+/checkpoints/\d+"))
    expect(page.locator("#cp-verdict .verdict-sentence")).to_contain_text(_HOLDER)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_two_clicks_lead_from_the_fleet_to_who_holds_the_barrier_and_the_scrubber_shows_how(browser, up, theme):
    with opened(browser, _url(up), theme=theme) as (page, watch):
        _go_to_the_held_checkpoint(page)
        expect(page.locator("#cp-verdict")).to_contain_text("vertex at capacity")
        expect(page.locator("#cp-evidence")).to_contain_text("measured")
        page.wait_for_selector("#gantt-graph .barlayer path")
        page.wait_for_selector("#front-graph .textpoint text")
        expect(page.locator("#front-basis")).to_contain_text("measured per channel")
        at_end = page.locator("#front-summary").inner_text()

        # The scale ends with the latest barrier or acknowledgement, which may come long after the expiry.
        drag(page, "#front-slider [role=slider]", "#front-slider .mantine-Slider-track", to_ratio=0.05)

        # The page follows the drag through every place in between.
        expect(page.locator("#front-summary")).to_contain_text(f"{_HOLDER}: barrier at 0 of 4")
        early = page.locator("#front-summary").inner_text()
        assert early != at_end
        assert re.search(r"[?&]t=\d+", page.url)
        page.focus("#front-slider [role=slider]")
        page.keyboard.press("ArrowRight")
        expect(page.locator("#front-summary")).not_to_have_text(early)
        assert overflowing(page) == []
        _is_clean(page, watch, theme)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_of_the_live_service_opens_in_both_themes(browser, up, theme):
    with opened(browser, _url(up), theme=theme) as (page, watch):
        page.goto("/")
        expect(page.locator("#fleet-grid .ag-center-cols-container .ag-row")).to_have_count(_DEMOS)
        for name in (_TROUBLED, "orders-unaligned"):
            page.goto(f"/ui/jobs/{_job(up, name)['id']}")
            page.wait_for_selector("#timeline-graph .points path")
            page.wait_for_selector("#pressure-graph .barlayer path")
            page.wait_for_selector("#job-progress-head .progress-title")
            assert overflowing(page) == [], name
        page.goto("/ui/targets")
        expect(page.locator("#targets-list")).to_contain_text("built in")
        expect(page.locator("#targets-list")).to_contain_text("requests")
        assert overflowing(page) == []
        _is_clean(page, watch, theme)


def _is_clean(page: Page, watch: Watch, theme: str) -> None:
    assert page.locator("html").get_attribute("data-mantine-color-scheme") == theme
    assert page.locator("#unexpected .message").count() == 0
    assert watch.found == []


def test_the_unaligned_job_beside_it_is_healthy(browser, up):
    with opened(browser, _url(up)) as (page, watch):
        page.goto("/")
        healthy = page.locator("#fleet-grid .ag-row:has-text('orders-unaligned')")
        expect(healthy).to_contain_text("healthy")
        healthy.click()
        expect(page.locator("#job-head")).to_contain_text("unaligned")
        expect(page.locator("#job-verdict .verdict-sentence")).to_contain_text("healthy")
        assert watch.found == []


def test_checkpoints_come_in_without_a_reload_and_the_open_one_says_whom_it_waits_for(browser, up):
    with opened(browser, _url(up)) as (page, watch):
        page.goto(f"/ui/jobs/{_job(up, _TROUBLED)['id']}")
        newest = page.locator("#job-recent tbody tr a").first
        newest.wait_for()
        before = newest.inner_text()
        expect(newest).not_to_have_text(before)
        expect(page.locator("#job-progress-waiting")).to_contain_text("Waiting on")
        expect(page.locator("#job-progress-waiting")).to_contain_text(_HOLDER)
        expect(page.locator("#job-progress-head .badge")).to_have_text(re.compile("progressing|slow|stuck"))
        assert watch.found == []


def test_the_table_behind_a_chart_has_the_same_checkpoints(browser, up):
    with opened(browser, _url(up)) as (page, watch):
        page.goto(f"/ui/jobs/{_job(up, _TROUBLED)['id']}")
        page.wait_for_selector("#timeline-graph .points path")
        page.focus("#timeline-toggle")
        page.keyboard.press("Enter")
        expect(page.locator("#timeline-grid .ag-row").first).to_be_visible()
        expect(page.locator("#timeline-graph")).to_be_hidden()
        expect(page.locator("#timeline-grid .ag-header")).to_contain_text("duration (ms)")
        with page.expect_download() as download:
            page.click("#timeline-csv")
        lines = Path(download.value.path()).read_text(encoding="utf-8-sig").splitlines()
        assert lines[0].startswith("checkpoint,run,kind,status,mode,triggered (UTC),duration (ms)")
        assert any(",failed," in line for line in lines[1:])
        assert watch.found == []


def _has_focus(page: Page, address: str | None) -> bool:
    page.locator(f"#job-recent a[href='{address}']").focus()
    return bool(page.evaluate("address => document.activeElement.getAttribute('href') === address", address))


def test_the_keyboard_alone_reaches_the_verdict_and_opens_a_vertex(browser, up):
    with opened(browser, _url(up)) as (page, watch):
        page.goto("/")
        page.wait_for_selector("#fleet-grid .ag-row")
        page.locator(f"#fleet-grid .ag-row:has-text('{_TROUBLED}') .ag-cell").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"/ui/jobs/[^/]+$"))
        page.locator("#job-verdict summary").first.click()
        link = page.locator("#job-recent tbody tr:has-text('expired') a").first
        address = link.get_attribute("href")
        # An element that is replaced in the very moment takes no focus: a person would press Tab again.
        until(lambda: _has_focus(page, address), "the link has the focus")
        # The panels are drawn anew while a person looks at them: what had the focus keeps it, what is open stays open.
        newest = page.locator("#job-recent tbody tr a").first.inner_text()
        expect(page.locator("#job-recent tbody tr a").first).not_to_have_text(newest)
        expect(page.locator(f"#job-recent a[href='{address}']")).to_be_focused()
        expect(page.locator("#job-verdict details").first).to_have_attribute("open", "")
        page.keyboard.press("Enter")
        page.wait_for_selector("#cp-verdict .verdict-sentence")
        button = page.locator("#cp-vertices button").first
        expect(button).to_have_attribute("aria-pressed", "false")
        button.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#cp-vertices button").first).to_have_attribute("aria-pressed", "true")
        expect(page).to_have_url(re.compile(r"[?&]open="))
        assert watch.found == []


def test_a_flink_is_tried_and_added_on_the_page_and_its_front_is_reconstructed(browser, up):
    with served(RecordedFlink(RECORDINGS / "B2", at_s=60)) as flink, opened(browser, _url(up)) as (page, watch):
        page.goto("/ui/targets")
        page.fill("#target-url", flink)
        page.fill("#target-name", "recorded")
        page.click("#target-test")
        expect(page.locator("#target-answer")).to_contain_text("It answers: flink 1.20.5")
        page.click("#target-add")
        expect(page.locator("#targets-list")).to_contain_text("recorded")
        until(lambda: any(j["target_name"] == "recorded" for j in _jobs(up)), "its job is known", timeout_s=60)
        job = next(j for j in _jobs(up) if j["target_name"] == "recorded")
        until(lambda: _completed(up, job["id"]), "its checkpoints are known", timeout_s=60)
        page.goto(f"/ui/jobs/{job['id']}")
        page.click("#job-recent tr:has-text('completed') a >> nth=0")
        expect(page.locator("#cp-verdict .verdict-sentence")).to_contain_text("at capacity")
        expect(page.locator("#front-basis")).to_contain_text("reconstructed")
        expect(page.locator("#cp-source")).to_contain_text("REST of the cluster")
        at_end = page.locator("#front-summary").inner_text()
        drag(page, "#front-slider [role=slider]", "#front-slider .mantine-Slider-track", to_ratio=0.3)
        expect(page.locator("#front-summary")).not_to_have_text(at_end)
        assert watch.found == []


def _jobs(up: Up) -> list[dict]:
    return (up.get("/api/v1/jobs?limit=100") or {"items": []})["items"]


def _completed(up: Up, job: str) -> list[dict]:
    page = up.get(f"/api/v1/jobs/{job}/checkpoints?limit=50") or {"items": []}
    return [c for c in page["items"] if c["status"] == "completed"]
