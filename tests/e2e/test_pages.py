"""The pages of a live ``barrierscope up`` in a real Chromium: from the fleet to the cause of a failure and its fix.

The tests open pages in both themes, drag and step the scrubber, and apply a recommendation. A console error or
a failed request fails a test. Tests that do not use the failing demo job come first, because that job needs
half a minute until its first checkpoint expires.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Page, expect

from backend.store.wall_clock import WallClock
from dashboard.text import duration
from tests.support.browsing import Watch, Weight, drag, go, opened, overflowing
from tests.support.recorded_flink import RECORDINGS, RecordedFlink, served
from tests.support.running_up import Up
from tests.support.waiting import PATIENCE_S, until
from tests.support.walking import Hand, press_key

_DEMOS = 7
_TROUBLED = "orders-aligned"
_HOLDER = "aggregate"
# The job needs five completed checkpoints. They take half a minute if the demo jobs keep up with the clock.
_RECOVERY_MAX_MS = 2 * PATIENCE_S * 1_000


@pytest.fixture(scope="module")
def up(live_up):
    return live_up()


@pytest.fixture
def troubled(up):
    """Return the demo job whose checkpoints expire.

    Wait until its newest checkpoint has expired, because an earlier test may have changed and restored its
    settings.
    """
    until(lambda: _newest_ended(up).get("failure_reason") == "expired", "its newest one has expired")
    return _job(up, _TROUBLED)


@pytest.fixture
def put_back(up, troubled):
    """Restore the settings of the failing demo job after the test."""
    runtime = f"http://127.0.0.1:{up.runtime_port}/runtime/v1/jobs"
    with httpx.Client(trust_env=False, timeout=PATIENCE_S) as http:
        jobs = http.get(f"{runtime}/overview").raise_for_status().json()["jobs"]
        settings = f"{runtime}/{next(j['jid'] for j in jobs if j['name'] == _TROUBLED)}/settings"
        before = http.get(settings).raise_for_status().json()
        yield
        http.patch(settings, json={k: v for k, v in before.items() if "aligned" in k}).raise_for_status()


def _newest_ended(up: Up) -> dict:
    job = _job(up, _TROUBLED)
    page = (up.get(f"/api/v1/jobs/{job['id']}/checkpoints?limit=5") if job else None) or {"items": []}
    return next((c for c in page["items"] if c["status"] != "in-progress"), {})


def _job(up: Up, name: str) -> dict:
    return next((job for job in _jobs(up) if job["name"] == name), {})


def _jobs(up: Up) -> list[dict]:
    return (up.get("/api/v1/jobs?limit=100") or {"items": []})["items"]


def _url(up: Up) -> str:
    return f"http://127.0.0.1:{up.port}"


def _is_clean(page: Page, watch: Watch, theme: str) -> None:
    assert page.locator("html").get_attribute("data-mantine-color-scheme") == theme
    assert page.locator("#unexpected .message").count() == 0
    assert watch.found == []


def test_a_flink_cluster_is_tested_and_added_and_its_front_is_reconstructed(browser, up):
    with (
        served(RecordedFlink(RECORDINGS / "B2", at_s=60, now=WallClock().now())) as flink,
        opened(browser, _url(up)) as (page, watch),
    ):
        page.goto("/ui/targets")
        page.fill("#target-url", flink)
        page.fill("#target-name", "recorded")
        page.click("#target-test")
        expect(page.locator("#target-answer")).to_contain_text("Connected: flink 1.20.5")
        page.click("#target-add")
        expect(page.locator("#targets-list")).to_contain_text("recorded")
        until(lambda: any(j["target_name"] == "recorded" for j in _jobs(up)), "its job is known")
        job = next(j for j in _jobs(up) if j["target_name"] == "recorded")
        until(lambda: _completed(up, job["id"]), "its checkpoints are known")
        page.goto(f"/ui/jobs/{job['id']}")
        page.click("#job-recent tr:has-text('completed') a >> nth=0")
        expect(page.locator("#cp-verdict .verdict-sentence")).to_contain_text("at capacity")
        expect(page.locator("#front-basis")).to_contain_text("reconstructed")
        expect(page.locator("#cp-source")).to_contain_text("REST API of the cluster")
        at_end = page.locator("#front-summary").inner_text()
        drag(page, "#front-slider [role=slider]", "#front-slider .mantine-Slider-track", to_ratio=0.3)
        expect(page.locator("#front-summary")).not_to_have_text(at_end)
        assert watch.found == []


def _completed(up: Up, job: str) -> list[dict]:
    page = up.get(f"/api/v1/jobs/{job}/checkpoints?limit=50") or {"items": []}
    return [c for c in page["items"] if c["status"] == "completed"]


def test_the_unaligned_demo_job_is_healthy(browser, up):
    with opened(browser, _url(up)) as (page, watch):
        page.goto("/")
        healthy = page.locator("#fleet-grid .ag-row:has-text('orders-unaligned')")
        expect(healthy).to_contain_text("healthy")
        healthy.click()
        expect(page.locator("#job-head")).to_contain_text("unaligned")
        expect(page.locator("#job-verdict .verdict-sentence")).to_contain_text("healthy")
        assert watch.found == []


@pytest.mark.slow
def test_every_page_of_the_live_service_opens_in_the_dark_theme(browser, up):
    with opened(browser, _url(up), theme="dark") as (page, watch):
        page.goto("/")
        expect(page.locator("#fleet-grid .ag-row:has(.sub:text-is('demo · deployment=demo'))")).to_have_count(_DEMOS)
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
        _is_clean(page, watch, "dark")


def test_pages_are_light_and_their_parts_do_not_move_while_they_load(browser, up, troubled):
    job = f"/ui/jobs/{_job(up, _TROUBLED)['id']}"
    with opened(browser, _url(up)) as (page, watch):
        weight = Weight(page)
        weight.forget_files()
        page.goto(job)
        page.wait_for_selector("#timeline-graph .points path")
        page.wait_for_selector("#pressure-graph .barlayer path")
        first = weight.received_bytes
        assert first <= 1_500_000
        assert weight.shifts() <= 0.05
        page.goto(job)
        page.wait_for_selector("#timeline-graph .points path")
        page.wait_for_selector("#pressure-graph .barlayer path")
        assert weight.received_bytes - first <= 150_000
        assert weight.shifts() <= 0.05
        page.goto("/ui/")
        expect(page.locator("#fleet-grid .ag-row:has(.sub:text-is('demo · deployment=demo'))")).to_have_count(_DEMOS)
        assert weight.shifts() <= 0.05
        assert watch.found == []


def test_new_checkpoints_appear_without_a_reload_and_the_open_one_shows_what_it_waits_for(browser, up, troubled):
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


def _go_to_the_held_checkpoint(page: Page) -> None:
    """Click twice from the fleet: on the failing demo job, and on its newest expired checkpoint."""
    page.goto("/")
    page.click(f"#fleet-grid .ag-row:has-text('{_TROUBLED}'):not(:has-text('{_TROUBLED}-timeout'))")
    page.wait_for_url(re.compile(r"/ui/jobs/[^/]+$"))
    expect(page.locator("#job-verdict .verdict-sentence")).to_contain_text(_HOLDER)
    page.click("#job-recent tr:has-text('expired') a >> nth=0")
    page.wait_for_url(re.compile(r"/runs/[^/]+/checkpoints/\d+"))
    expect(page.locator("#cp-verdict .verdict-sentence")).to_contain_text(_HOLDER)


def test_two_clicks_lead_from_the_fleet_to_the_vertex_that_holds_the_barrier(browser, up, troubled):
    with opened(browser, _url(up)) as (page, watch):
        _go_to_the_held_checkpoint(page)
        expect(page.locator("#cp-verdict")).to_contain_text("vertex at capacity")
        expect(page.locator("#cp-evidence")).to_contain_text("reconstructed")
        page.wait_for_selector("#gantt-graph .barlayer path")
        page.wait_for_selector("#front-graph .textpoint text")
        expect(page.locator("#front-basis")).to_contain_text("measured per channel")
        at_end = page.locator("#front-summary").inner_text()

        # The slider's scale ends at the latest barrier or acknowledgement, which may be long after the expiry.
        drag(page, "#front-slider [role=slider]", "#front-slider .mantine-Slider-track", to_ratio=0.05)

        # The page follows the drag, and now shows the position at which the drag ended.
        expect(page.locator("#front-summary")).to_contain_text(f"{_HOLDER}: barrier at 0 of 4")
        early = page.locator("#front-summary").inner_text()
        assert early != at_end
        expect(page).to_have_url(re.compile(r"[?&]t=\d+"))
        press_key(page.locator("#front-slider [role=slider]"), "ArrowRight")
        expect(page.locator("#front-summary")).not_to_have_text(early)
        assert overflowing(page) == []
        _is_clean(page, watch, "light")


def test_the_table_behind_a_chart_has_the_same_checkpoints(browser, up, troubled):
    with opened(browser, _url(up)) as (page, watch):
        page.goto(f"/ui/jobs/{_job(up, _TROUBLED)['id']}")
        page.wait_for_selector("#timeline-graph .points path")
        press_key(page.locator("#timeline-toggle"), "Enter")
        expect(page.locator("#timeline-grid .ag-row").first).to_be_visible()
        expect(page.locator("#timeline-graph")).to_be_hidden()
        expect(page.locator("#timeline-grid .ag-header")).to_contain_text("duration (ms)")
        with page.expect_download() as download:
            page.click("#timeline-csv")
        lines = Path(download.value.path()).read_text(encoding="utf-8-sig").splitlines()
        assert lines[0].startswith("checkpoint,run,kind,status,mode,triggered (UTC),duration (ms)")
        assert any(",failed," in line for line in lines[1:])
        assert watch.found == []


def test_the_keyboard_alone_reaches_the_verdict_and_opens_a_vertex(browser, up, troubled):
    with opened(browser, _url(up)) as (page, watch):
        page.goto("/")
        page.wait_for_selector("#fleet-grid .ag-row")
        press_key(page.locator(f"#fleet-grid .ag-row:has-text('{_TROUBLED}') .ag-cell"), "Enter")
        page.wait_for_url(re.compile(r"/ui/jobs/[^/]+$"))
        page.locator("#job-verdict summary").first.click()
        link = page.locator("#job-recent tbody tr:has-text('expired') a").first
        address = link.get_attribute("href")
        # If a refresh replaces the link at this moment, the link does not get the focus. Therefore, try again.
        until(lambda: _has_focus(page, address), "the link has the focus")
        # A refresh replaces the panels. The focus must stay on the link, and opened details must stay open.
        newest = page.locator("#job-recent tbody tr a").first.inner_text()
        expect(page.locator("#job-recent tbody tr a").first).not_to_have_text(newest)
        expect(page.locator(f"#job-recent a[href='{address}']")).to_be_focused()
        expect(page.locator("#job-verdict details").first).to_have_attribute("open", "")
        press_key(page.locator(f"#job-recent a[href='{address}']"), "Enter")
        page.wait_for_selector("#cp-verdict .verdict-sentence")
        button = page.locator("#cp-vertices button").first
        expect(button).to_have_attribute("aria-pressed", "false")
        press_key(page.locator("#cp-vertices button"), "Enter")
        expect(page.locator("#cp-vertices button").first).to_have_attribute("aria-pressed", "true")
        expect(page).to_have_url(re.compile(r"[?&]open="))
        assert watch.found == []


def _has_focus(page: Page, address: str | None) -> bool:
    page.locator(f"#job-recent a[href='{address}']").focus()
    return bool(page.evaluate("address => document.activeElement.getAttribute('href') === address", address))


def test_the_keyboard_alone_leads_from_an_alert_to_a_change_whose_measured_effect_is_shown_next_to_the_prediction(
    browser, up, troubled, put_back
):
    with opened(browser, _url(up)) as (page, watch):
        hand = Hand(page, is_keyboard=True)
        page.goto("/")
        hand.press_cell(_TROUBLED, "alerts")
        hand.press(page.locator(f".incident a.strong-link:has-text('{_TROUBLED}: ')"))
        expect(page.locator("#incident-words")).to_contain_text(_HOLDER)
        hand.press(page.locator("#incident-words a:has-text('expired after')"))
        expect(page.locator("#alert-words")).to_contain_text(_HOLDER)
        expect(page).to_have_url(re.compile(r"/ui/alerts/"))
        alert = page.url
        hand.press(page.locator("#alert-head a:has-text('To the incident')"))
        hand.press(page.locator("#incident-head a:has-text('To the job')"))
        expect(page.locator("#job-verdict .verdict-sentence")).to_contain_text(_HOLDER)
        hand.press(page.locator("#job-recent tr:has-text('expired') a"))
        expect(page.locator("#cp-verdict .verdict-sentence")).to_contain_text(_HOLDER)
        hand.press(page.locator("#cp-head a:has-text('Advice')"))
        card = page.locator("#advice-cards section").first
        expect(card).to_contain_text("unaligned")
        prediction = card.locator("tr:has-text('End-to-end duration') b")
        expect(prediction).to_have_text(re.compile(r"^\d.* m?s$"))

        hand.press(page.locator("#advice-cards button:has-text('Apply now')"))
        expect(page.locator("[role=dialog]")).to_contain_text(f"Change these settings of {_TROUBLED} now?")
        hand.press(page.locator("#advice-confirm"))

        expect(page.locator("#advice-message")).to_contain_text("Sent")
        expect(card.locator(".card-tools")).to_contain_text("applied")
        # Advice is computed again until it is sent. The prediction at that time is the one that is judged.
        predicted = prediction.inner_text()
        expect(card.locator(".card-tools")).to_contain_text(
            re.compile("verified|not as predicted"), timeout=_RECOVERY_MAX_MS
        )
        row = card.locator("table").first.locator("tr:has-text('End-to-end duration')")
        expect(row).to_contain_text(predicted)
        expect(row).to_contain_text("inside the interval")
        cards = up.get(f"/api/v1/jobs/{troubled['id']}/recommendations")["items"]
        # Later checkpoints may have completed by now. The card lists the checkpoints that it measured.
        measured = set(next(c["measured_ids"] for c in cards if c["state"] == "verified"))
        after = [c for c in _completed(up, troubled["id"]) if c["checkpoint_id"] in measured]
        assert len(after) == len(measured) >= 5
        assert row.locator("b").inner_text() == duration(median(c["end_to_end_duration_ms"] for c in after))
        assert all(c["mode"] == "unaligned" and c["persisted_bytes"] > 0 for c in after)
        go(page, urlsplit(alert).path)
        expect(page.locator("#alert-head")).to_contain_text("resolved", timeout=_RECOVERY_MAX_MS)
        go(page, f"/ui/jobs/{troubled['id']}")
        expect(page.locator("#job-head")).to_contain_text("healthy")
        assert watch.found == []
