"""The page of what-ifs in a real Chromium over a fake API: from an alert to a cure, and a confirmation."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect

from backend.contracts.whatif import Tier
from tests.support.browsing import clock_of, focus, opened, overflowing
from tests.support.dashboard_site import site_over
from tests.support.fake_api import FakeApi
from tests.support.waiting import until


@pytest.fixture
def fake():
    return FakeApi(now=lambda: datetime.fromtimestamp(time.time(), UTC))


@pytest.fixture
def site(fake):
    with site_over(fake) as url:
        yield url


def test_from_an_alert_to_a_cure_in_four_clicks(browser, site, fake):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/alerts/a1")
        # 1
        page.get_by_role("link", name="What if").click()
        expect(page.locator("#whatif-said")).to_contain_text("Move a slider")
        # 2
        page.get_by_role("button", name="Take the proposal").click()
        expect(page.locator("#whatif-said")).to_contain_text("With mode unaligned, checkpoints would take")
        expect(page).to_have_url(re.compile(r"\?mode=unaligned$"))
        page.locator("#whatif-change .exports summary").click()
        copy = page.get_by_role("button", name="Copy the settings as job file")
        expect(copy).to_be_visible()
        assert copy.get_attribute("data-copy") == page.get_by_role("group", name="job file").inner_text()
        # 3
        page.locator("#whatif-apply").click()
        expect(page.locator("#whatif-change-question")).to_contain_text(
            "execution.checkpointing.unaligned.enabled: true"
        )
        # 4
        page.get_by_role("dialog").get_by_role("button", name="Apply now").click()
        expect(page.locator("#whatif-message")).to_contain_text("Sent.")
        page.get_by_role("link", name="Follow the effect").click()
        then = page.locator("#whatif-then")
        expect(then.get_by_role("heading", name="Change the mode to unaligned")).to_be_in_viewport()
        assert fake.what_ifs.sent == [{"mode": "unaligned"}]
        assert fake.what_ifs.named == ["a1"]
        # Until the effect is measured, the page says that its values are from before the change.
        table, stale = page.locator("#whatif-table"), page.locator("#whatif-stale")
        expect(stale).to_contain_text("A change was sent at")
        expect(stale).to_contain_text("The values below are from checkpoints before it")
        expect(table).to_contain_text("checkpoints 13 to 20")
        fake.what_ifs.measure()
        expect(table).to_contain_text("checkpoints 30 to 37")
        expect(stale).to_be_empty()
        expect(then).to_contain_text("the predictions held")
        assert watch.found == []


def test_a_prediction_that_is_no_longer_kept_is_not_applied_and_the_page_asks_again_for_the_same_settings(
    browser, site, fake
):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jruntime/whatif?mode=unaligned")
        expect(page.locator("#whatif-said")).to_contain_text("With mode unaligned")
        fake.what_ifs.model_id = "b2"
        page.locator("#whatif-apply").click()
        page.get_by_role("dialog").get_by_role("button", name="Apply now").click()
        message, gone = page.locator("#whatif-message"), page.locator("#whatif-tried")
        expect(gone).to_be_in_viewport()
        expect(gone).to_contain_text("Nothing was changed. The prediction of this answer is no longer kept")
        assert (fake.what_ifs.named, fake.what_ifs.sent) == (["a1"], [])
        gone.get_by_role("button", name="Ask again").click()
        expect(gone).to_be_empty()
        expect(page.locator("#whatif-said")).to_contain_text("With mode unaligned")
        page.locator("#whatif-apply").click()
        page.get_by_role("dialog").get_by_role("button", name="Apply now").click()
        expect(message).to_contain_text("Sent.")
        assert (fake.what_ifs.named, fake.what_ifs.sent) == (["a1", "b2"], [{"mode": "unaligned"}])
        assert watch.found == []


def test_a_dry_run_says_what_would_happen_before_anything_is_sent_and_the_dialog_says_it_too(browser, site, fake):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jruntime/whatif?mode=unaligned")
        page.get_by_role("button", name="Dry run").click()
        expect(page.locator("#whatif-tried")).to_contain_text("It would be sent to demo (http://127.0.0.1")
        expect(page.locator("#whatif-tried")).to_contain_text("accepts it")
        expect(page.locator("#whatif-failures")).to_contain_text("A task fails")
        fake.what_ifs.is_refused = True
        page.locator("#whatif-apply").click()
        question = page.locator("#whatif-change-question")
        expect(question).to_contain_text("The target was asked and refuses it: it fails a rule of the target.")
        assert fake.what_ifs.sent == []
        assert watch.found == []


def test_the_answer_of_a_better_tier_takes_the_place_of_that_of_closed_formulas_when_it_is_ready(browser, site, fake):
    fake.what_ifs.tier = Tier.FORMULAS
    with opened(browser, site) as (page, watch):
        clock_of(page).install()
        page.goto("/ui/jobs/jruntime/whatif?mode=unaligned")
        said = page.locator("#whatif-said")
        expect(said).to_contain_text("Predicted by the closed formulas")
        expect(said).to_contain_text("takes the better answer as soon as it is ready")
        fake.what_ifs.tier = Tier.FAST
        clock_of(page).run_for(5_000)
        expect(said).to_contain_text("The fast simulation is ready now, and its answer replaced that of the closed")
        expect(said).not_to_contain_text("as soon as it is ready")
        asked = fake.requests.count("POST /api/v1/jobs/jruntime/whatif")
        clock_of(page).run_for(20_000)
        assert fake.requests.count("POST /api/v1/jobs/jruntime/whatif") - asked <= 1
        assert watch.found == []


def test_a_slider_moves_with_the_keyboard_and_a_confirmation_shows_progress_is_cancelled_and_completes(
    browser, site, fake
):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jruntime/whatif?mode=unaligned")
        expect(page.locator("#whatif-said")).to_contain_text("With mode unaligned")
        slider = page.get_by_role("slider", name="Interval")
        focus(slider)
        page.keyboard.press("ArrowRight")
        expect(page.locator("#whatif-said")).to_contain_text("interval 10.0 s")
        expect(page).to_have_url(re.compile(r"interval=10000\+ms"))
        page.get_by_role("button", name="As the job is").click()
        expect(page.locator("#whatif-said")).to_contain_text("Move a slider")
        page.get_by_role("button", name="Take the proposal").click()
        expect(page.locator("#whatif-said")).to_contain_text("With mode unaligned, checkpoints")
        fake.what_ifs.is_held = True
        page.get_by_role("button", name="Confirm on the runtime").click()
        expect(page.locator("#whatif-state")).to_contain_text("queued")
        page.locator("#whatif-cancel").click()
        expect(page.locator("#whatif-state")).to_contain_text("cancelled")
        fake.what_ifs.is_held = False
        page.get_by_role("button", name="Confirm on the runtime").click()
        expect(page.locator("#whatif-state")).to_contain_text("completed")
        for chart in ("front", "space-time"):
            expect(page.locator(f"#whatif-{chart}-b-graph .trace").first).to_be_attached()
        expect(page).to_have_url(re.compile("confirmation=w"))
        # The button plays the charts to the end of the slider, and is then off again.
        play, at = page.locator("#whatif-play"), page.locator("#whatif-at-words")
        began = at.inner_text()
        play.click()
        expect(play).to_have_attribute("aria-pressed", "true")
        expect(at).not_to_have_text(began)
        expect(play).to_have_attribute("aria-pressed", "false")
        page.set_viewport_size({"width": 390, "height": 800})
        assert overflowing(page) == []
        assert watch.found == []


def test_a_setting_that_does_not_exist_is_named_and_the_sliders_stay(browser, site):
    with opened(browser, site) as (page, _):
        page.goto("/ui/jobs/jruntime/whatif?colour=red")
        expect(page.locator("#whatif-message")).to_contain_text("colour: is not a setting that a what-if can change")
        expect(page.get_by_role("slider", name="Interval")).to_be_visible()


def test_after_a_refused_request_the_page_shows_the_reason_and_the_controls_that_correct_it(browser, site):
    with opened(browser, site) as (page, _):
        page.goto("/ui/jobs/jruntime/whatif?interval=soon")
        expect(page.locator("#whatif-message")).to_contain_text("Request refused")
        page.get_by_role("button", name="As the job is").click()
        expect(page.locator("#whatif-said")).to_contain_text("Move a slider")
        expect(page.locator("#whatif-message")).to_be_empty()


def test_a_page_is_shown_even_if_one_of_its_awaited_parts_gets_no_content(browser, site):
    with opened(browser, site) as (page, _):
        page.goto("/ui/alerts/receivers")
        expect(page.locator("#receiver-add")).to_be_visible()
        page.evaluate("() => document.querySelector('#alerts-receivers').replaceChildren()")
        assert not page.locator("#receiver-add").is_visible()
        expect(page.locator("#receiver-add")).to_be_visible()


def test_a_page_that_is_opened_while_the_api_is_away_fills_itself_when_it_is_back(browser, site, fake):
    fake.is_down = True
    with opened(browser, site) as (page, _):
        clock_of(page).install()
        page.goto("/ui/jobs/jruntime/whatif?mode=unaligned")
        expect(page.locator("#whatif-message")).to_contain_text("It refreshes automatically.")
        clock_of(page).run_for(4_000)
        expect(page.locator("#whatif-message")).to_contain_text("It refreshes automatically.")
        fake.is_down = False
        clock_of(page).run_for(4_000)
        expect(page.locator("#whatif-said")).to_contain_text("With mode unaligned, checkpoints would take")
        expect(page.get_by_role("slider", name="Interval")).to_be_visible()
        expect(page.locator("#whatif-message")).to_be_empty()
        expect(page.locator("#whatif-pareto-graph .scatterlayer")).to_be_visible()
        asked = fake.requests.count("POST /api/v1/jobs/jruntime/whatif")
        told = fake.requests.count("GET /api/v1/status")
        sent: list[str] = []
        page.on("request", lambda request: sent.append(request.post_data or ""))
        clock_of(page).run_for(10_000)

        # The requests of a later tick follow those of the retries, so these have been sent and answered by then.
        def is_over() -> bool:
            clock_of(page).run_for(1_000)
            return fake.requests.count("GET /api/v1/status") > told

        until(is_over, "a tick after the retries")
        assert not any('-retry.n_intervals"' in body for body in sent)
        assert fake.requests.count("POST /api/v1/jobs/jruntime/whatif") == asked
