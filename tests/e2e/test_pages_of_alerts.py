"""Tests of what a viewer can do on the pages of incidents, rules, receivers and silences, over a fake API."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from tests.support.browsing import (
    LAPTOP,
    focus,
    go,
    opened,
)
from tests.support.made_up_alerts import JOB, MadeUpAlerts
from tests.support.waiting import until


@pytest.fixture
def alerting(fake):
    """Reset the alerts and recommendations of the fake API to their first state, and return them."""
    fake.alerting = MadeUpAlerts(now=lambda: datetime.fromtimestamp(time.time(), UTC))
    return fake.alerting


def test_a_threshold_out_of_bounds_is_refused_and_a_valid_one_is_saved(browser, site, alerting):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/alerts/rules")
        row = page.locator(".rule-row:has-text('CheckpointExpired')")
        threshold = row.locator("label:has-text('Among the newest') input")
        threshold.fill("40")
        row.locator("button:has-text('Save')").click()
        expect(page.locator("#rules-answer")).to_contain_text("Among the newest: 40 is out of bounds")
        expect(page.locator("#rules-answer")).to_contain_text("1 to 20")
        threshold.fill("")
        row.locator("button:has-text('Save')").click()
        expect(page.locator("#rules-answer")).to_contain_text("Among the newest must be a number")
        assert alerting.rules["CheckpointExpired"].version == 0
        threshold.fill("7")
        row.locator("button:has-text('Save')").click()
        expect(page.locator("#rules-answer")).to_contain_text("CheckpointExpired was saved as version 1")
        expect(row).to_contain_text("version 1")
        expect(threshold).to_have_value("7")
        assert alerting.rules["CheckpointExpired"]["window_count"] == 7
        assert watch.found == []


def test_an_alert_is_silenced_with_a_reason_and_the_silence_is_ended(browser, site, alerting):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/incidents/i1")
        expect(page.locator("#silence-matchers")).to_have_value("job_name=payments-settlement")
        expect(page.locator("#silence-preview")).to_contain_text("Would hide 1 open alert of 1 job.")
        page.get_by_label("By (as typed)").fill("maria")
        page.click("#silence-add")
        expect(page.locator("#silence-answer")).to_contain_text("Enter a reason")
        page.fill("#silence-reason", "scaled up at noon")
        page.click("#silence-minutes")
        page.click("[role=option]:has-text('8 hours')")
        page.click("#silence-add")
        expect(page.locator("#silence-answer")).to_contain_text("It hides 1 alert now")
        expect(page.locator("#incident-head")).to_contain_text("silenced")
        (silence,) = alerting.silences.values()
        assert round((silence.ends_at - silence.added_at).total_seconds() / 60) == 480
        # The time that is left is rounded to minutes, so it would show half a minute later that it goes down.
        alerting.silences[silence.id] = silence.model_copy(update={"ends_at": silence.ends_at - timedelta(minutes=1)})
        go(page, "/ui/alerts/silences")
        expect(page.locator("#alerts-silences tbody")).to_contain_text("scaled up at noon")
        expect(page.locator("#alerts-silences tbody")).to_contain_text("currently hiding 1")
        expect(page.locator("#alerts-silences .countdown")).to_have_attribute("data-left", re.compile(r"^7 h 5\d min"))
        expect(page.locator("#alerts-silences thead")).to_contain_text("By (as typed)")
        page.click("button:has-text('End now')")
        expect(page.locator("#alerts-silences tbody")).to_have_count(0)
        assert alerting.silences == {}
        assert watch.found == []


def test_an_incident_is_acknowledged_taken_commented_and_released_with_the_keyboard(browser, site, alerting):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/incidents/i1")
        expect(page.locator("#incident-say")).to_be_visible()
        expect(page.locator("#incident-release")).to_be_disabled()
        page.locator("#incident-say").press("Enter")
        expect(page.locator("#incident-answer")).to_contain_text("Enter a comment")
        page.locator("#incident-acknowledge").press("Enter")
        expect(page.locator("#incident-answer")).to_contain_text("Enter your name")
        focus(page.get_by_label("Your name (as typed)"))
        page.keyboard.type("maria")
        page.keyboard.press("Tab")
        page.keyboard.type("the disk is full")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator(".thread")).to_contain_text("the disk is full")
        expect(page.locator("#incident-comment")).to_have_value("")
        page.locator("#incident-acknowledge").press("Enter")
        expect(page.locator("#incident-head")).to_contain_text("acknowledged by maria")
        expect(page.locator("#incident-acknowledge")).to_be_disabled()
        page.locator("#incident-claim").press("Enter")
        expect(page.locator("#incident-head")).to_contain_text("taken by maria")
        expect(page.locator("#incident-claim")).to_contain_text("Take over from maria")
        page.locator("#incident-release").press("Enter")
        expect(page.locator("#incident-head")).not_to_contain_text("taken by")
        assert [n.kind for n in alerting.notes] == ["comment", "acknowledged", "claimed", "released"]
        assert watch.found == []


_PHONE = {"width": 390, "height": 664}
"""A phone whose browser shows its own bars."""


def test_the_first_incident_is_in_sight_on_a_phone_and_the_filters_unfold(browser, site, alerting):
    with opened(browser, site) as (page, watch):
        page.set_viewport_size(_PHONE)
        page.goto("/ui/alerts?severity=warning")
        fold, filters = page.locator("#alerts-filters-fold"), page.locator("#alerts-filters")
        box = page.locator(".incident").first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < _PHONE["height"]
        # A folded filter is not forgotten.
        expect(fold).to_have_text("Filters: 1 set")
        expect(fold).to_have_attribute("aria-expanded", "false")
        expect(filters).to_be_hidden()
        fold.press("Enter")
        expect(fold).to_have_attribute("aria-expanded", "true")
        page.click(".choice:has-text('Severity') a:text-is('all')")
        expect(fold).to_have_text("Filters")
        page.set_viewport_size({"width": LAPTOP[0], "height": LAPTOP[1]})
        expect(fold).to_be_hidden()
        expect(filters).to_be_visible()
        assert watch.found == []


def test_the_filters_of_incidents_are_in_the_address(browser, site, alerting, fake):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/alerts")
        page.wait_for_selector(".incident")
        page.click(".choice:has-text('State') a:text-is('past')")
        expect(page).to_have_url(re.compile(r"\?state=past$"))
        expect(page.locator("#alerts-open")).to_contain_text("No incident fits these filters")
        page.click("a:has-text('Remove the filters')")
        page.wait_for_selector(".incident")
        page.fill("#alerts-search", "pay")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(r"\?search=pay$"))
        by_cause = page.locator(".choice:has-text('Group by') a:has-text('cause')")
        # The links follow the address, so a link of the address before would drop the typed filter.
        expect(by_cause).to_have_attribute("href", re.compile("search=pay"))
        by_cause.click()
        expect(page).to_have_url(re.compile(r"\?group=cause&search=pay$"))
        expect(page.locator(".incident-group")).to_have_text("vertex at capacity")
        page.reload()
        expect(page.locator("#alerts-search")).to_have_value("pay")
        expect(page.locator(".choice:has-text('Group by') .is-here")).to_contain_text("cause")
        page.click(".choice:has-text('State') a:text-is('past')")
        page.click("a:has-text('Remove the filters')")
        expect(page.locator("#alerts-search")).to_have_value("")
        expect(page).to_have_url(re.compile(r"/ui/alerts$"))
        assert watch.found == []


def test_a_receiver_is_added_tested_and_removed(browser, site, alerting):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/alerts/receivers")
        expect(page.locator("#alerts-receivers")).to_contain_text("No receivers yet")
        page.click("#receiver-add")
        expect(page.locator("#receiver-answer")).to_contain_text("Enter an address")
        for name, address, said in (
            ("pager", "http://down.example/hook", "Test message not accepted: cannot connect"),
            ("on-call", "https://pager.example/hook", "Test message accepted: HTTP 200 (after 14 ms)"),
        ):
            page.fill("#receiver-name", name)
            page.fill("#receiver-url", address)
            page.click("#receiver-add")
            expect(page.locator("#receiver-answer")).to_contain_text(f"{name} was added. {said}")
            expect(page.locator("#alerts-receivers tbody")).to_contain_text(address)
        assert [r.kind for r in alerting.receivers.values()] == ["webhook", "webhook"]
        page.click("button[aria-label='Remove pager']")
        expect(page.locator("[role=dialog]")).to_contain_text("Send no more alerts to pager?")
        page.click("#receiver-confirm")
        expect(page.locator("#alerts-receivers tbody tr")).to_have_count(1)
        expect(page.locator("#alerts-receivers tbody")).to_contain_text("on-call")
        assert watch.found == []


def test_a_link_that_is_replaced_while_it_is_pressed_is_followed(browser, site, alerting):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/alerts")
        link = page.locator("#alerts-open a.strong-link").first
        link.hover()
        link.evaluate("node => { window.pressed = node; }")
        page.mouse.down()
        # The text changes, so the refresh replaces the element of the link while the mouse button is down.
        alerting.summary = "payments-settlement: checkpoint 15 expired after 3.0 s"
        until(lambda: page.evaluate("() => !window.pressed.isConnected"), "the list is drawn again")
        page.mouse.up()
        page.wait_for_selector("#incident-head h1")
        expect(page).to_have_url(re.compile(r"/ui/incidents/"))
        page.click("#incident-head a:has-text('advice')")
        page.wait_for_selector("#advice-head h1")
        expect(page).to_have_url(re.compile(rf"/ui/jobs/{re.escape(JOB)}/advice(\?|$)"))
        assert watch.found == []


def test_a_name_that_was_typed_once_is_in_the_field_of_every_page_until_it_is_changed(browser, site):
    advice, silence = "Your name for the history (optional, as typed)", "By (as typed)"
    with opened(browser, site) as (page, watch):
        page.goto("/ui/incidents/i1")
        incident = page.get_by_label("Your name (as typed)")
        focus(incident)
        incident.press_sequentially("maria")
        expect(incident).to_have_value("maria")
        expect(page.get_by_label(silence)).to_have_value("maria")
        page.goto("/ui/jobs/jruntime/whatif?mode=unaligned")
        expect(page.get_by_label(advice)).to_be_visible()
        expect(page.get_by_label(advice)).to_have_value("maria")
        page.get_by_label(advice).fill("")
        go(page, "/ui/jobs/jE/advice")
        expect(page.get_by_label(advice)).to_have_value("")
        page.get_by_label(advice).fill("ben")
        go(page, "/ui/alerts/silences")
        expect(page.get_by_label(silence)).to_have_value("ben")
        assert watch.found == []
