"""Changes that are confirmed by keyboard, in a real Chromium over a fake API: advice, and actions on checkpoints."""

from __future__ import annotations

from playwright.sync_api import expect

from backend.domain.advice import AdviceState
from tests.support.browsing import LAPTOP, opened, overflowing, small_targets, until_charts_fit
from tests.support.made_up_alerts import ADVISED
from tests.support.waiting import until
from tests.support.walking import Hand

# Without a focus, the active element is the body, whose text contains the text of every button.
_HAS_FOCUS = "s => document.activeElement.matches(s)"


def test_a_change_is_applied_measured_and_rolled_back_by_keyboard_only(browser, site, fake):
    alerting = fake.alerting
    with opened(browser, site) as (page, watch):
        hand = Hand(page, is_keyboard=True)
        page.goto(f"/ui/jobs/{ADVISED}/advice")
        page.wait_for_selector("#candidates-graph .scatterlayer .point")
        expect(page.locator("#candidates-graph .annotation-text")).to_have_count(2)
        expect(page.locator("#outcome-graph")).to_be_hidden()
        expect(page.locator("#advice-cards .thumbnail")).to_have_count(2)

        hand.press(page.locator("#advice-cards button[id*=advice-apply]"))
        dialog = page.locator("[role=dialog]")
        expect(dialog).to_contain_text(f"Change these settings of {ADVISED} now?")
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        assert alerting.card.state is AdviceState.NEW
        # The focus is back on the button, so that the viewer can go on from there.
        until(lambda: page.evaluate(_HAS_FOCUS, "button[id*=advice-apply]"), "the focus returns")
        hand.press(page.locator("#advice-cards button[id*=advice-apply]"))
        expect(dialog).to_be_visible()
        # The label of the guard is text like the question above it.
        sizes = [dialog.locator(s).first.evaluate("e => getComputedStyle(e).fontSize") for s in ("p", "label")]
        assert sizes[0] == sizes[1]
        hand.press(page.locator("#advice-confirm"))
        expect(page.locator("#advice-message")).to_contain_text("Sent")

        alerting.verify()
        page.wait_for_selector("#outcome-graph .scatterlayer .point")
        expect(page.locator("#advice-cards .button:has-text('Apply now')")).to_have_count(0)
        expect(page.locator("#candidates-graph .annotation-text").first).to_contain_text("before")
        for width, height in ((390, 844), LAPTOP):
            page.set_viewport_size({"width": width, "height": height})
            until_charts_fit(page, f"advice at {width} px")
            until(lambda: overflowing(page) == [], "the page fits")
            assert small_targets(page) == []

        hand.press(page.locator("#advice-cards button[id*=advice-undo]"))
        expect(dialog).to_contain_text(f"Set these settings of {ADVISED} back now?")
        expect(dialog.locator(".diff-new").first).to_contain_text("unaligned.enabled: false")
        assert alerting.card.state is AdviceState.VERIFIED
        hand.press(page.locator("#undo-confirm"))
        expect(page.locator("#advice-message")).to_contain_text("rolled back when the engine reports")
        expect(page.locator("#advice-cards .card-tools")).to_contain_text("rolled back")
        assert alerting.card.state is AdviceState.ROLLED_BACK
        assert watch.found == []


def test_an_action_on_the_open_checkpoint_is_confirmed_by_keyboard_only(browser, site, fake):
    with opened(browser, site) as (page, watch):
        hand = Hand(page, is_keyboard=True)
        page.goto("/ui/jobs/jruntime/runs/rruntime/checkpoints/24")
        expect(page.locator("#cp-progress-head .finish")).to_contain_text("predict")
        actions = page.locator("#cp-progress-actions")
        expect(actions.locator("button")).to_have_count(4)
        # An action that the engine does not allow is inactive, and its reason can be read without hovering.
        expect(actions.locator("button:has-text('Abort')")).to_be_disabled()
        expect(actions).to_contain_text("Abort is not possible: Flink has no request that aborts a checkpoint.")

        hand.press(page.locator("#cp-progress-actions button[id*=extend-timeout]"))
        dialog = page.locator("[role=dialog]")
        expect(dialog).to_contain_text("Extend the timeout (checkpoint 24 of job demo-backpressured) now?")
        expect(dialog.locator(".diff-new")).to_have_text("+ execution.checkpointing.timeout: 120000 ms")
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        assert fake.actions_taken == []

        until(lambda: page.evaluate(_HAS_FOCUS, "button[id*=extend-timeout]"), "the focus returns")
        hand.press(page.locator("#cp-progress-actions button[id*=extend-timeout]"))
        expect(dialog).to_be_visible()
        hand.press(page.locator("#cp-action-confirm"))
        expect(page.locator("#cp-action-message")).to_contain_text("Sent. Checkpoint 24: extend-timeout taken.")
        ((number, body),) = fake.actions_taken
        assert (number, body.settings) == (24, {"execution.checkpointing.timeout": "120000 ms"})
        for width, height in ((390, 844), LAPTOP):
            page.set_viewport_size({"width": width, "height": height})
            until(lambda: overflowing(page) == [], "the page fits")
            assert small_targets(page) == []
        assert watch.found == []
