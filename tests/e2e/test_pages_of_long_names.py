"""The pages with names of 300 characters without a space, which users choose: they never make a page wider."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.support.browsing import opened, overflowing, scrolled_sideways
from tests.support.dashboard_site import site_over
from tests.support.long_names import LENGTH, LongNamesApi, long
from tests.support.page_register import PAGES, StandingClock, begin, every_page_api, resize, show

_LAPTOP_PX, _PHONE_PX = 1440, 390
_NAMED = (
    "fleet", "job", "pressure", "checkpoint-expired", "advice", "targets",
    "alerts", "incident", "alert", "alert-rules", "alert-receivers", "alert-silences",
)  # fmt: skip


@pytest.fixture(scope="module")
def page(browser):
    with (
        site_over(every_page_api(StandingClock(), LongNamesApi), has_date=False) as url,
        opened(browser, url) as (found, _),
    ):
        begin(found, width=_LAPTOP_PX)
        yield found


def _faults(page, names):
    found = {}
    for example in PAGES:
        if example.name not in names:
            continue
        page.set_viewport_size({"width": _LAPTOP_PX, "height": 900})
        show(page, example)
        for width in (_LAPTOP_PX, _PHONE_PX):
            resize(page, example, width)
            found[f"{example.name}, {width} px"] = [*overflowing(page), *scrolled_sideways(page)]
    return {name: faults for name, faults in found.items() if faults}


def test_the_pages_that_show_names_are_never_wider_than_the_window(page):
    assert _faults(page, _NAMED) == {}


@pytest.mark.slow
def test_no_page_is_wider_than_the_window(page):
    # The login page shows no name and leaves the application.
    assert _faults(page, [example.name for example in PAGES if example.kind and not example.is_heavy]) == {}


def test_the_line_of_alerts_over_a_job_cuts_only_the_sentence_which_is_whole_on_demand(page):
    page.set_viewport_size({"width": _LAPTOP_PX, "height": 900})
    show(page, next(e for e in PAGES if e.name == "job"))
    line = page.locator("#job-alerts .alert-line")
    link, since = line.locator("a"), line.locator(".age")
    assert long("payments-settlement") in (link.get_attribute("title") or "")
    box, card = since.bounding_box(), page.locator("#job-alerts .card").first.bounding_box()
    assert box is not None
    assert card is not None
    assert box["x"] + box["width"] <= card["x"] + card["width"]


def test_the_whole_names_of_an_incident_are_there_on_demand(page):
    page.set_viewport_size({"width": _LAPTOP_PX, "height": 900})
    show(page, next(e for e in PAGES if e.name == "alerts"))
    job, receiver, vertex, host = (long(name) for name in ("payments-settlement", "on-call", "enrich", "worker-3"))
    assert len(job) == len(receiver) == LENGTH
    card = page.locator(".incident")
    expect(card.locator(".strong-link")).to_contain_text(job)
    badge = card.locator(".badge:has-text('notified')")
    assert len(badge.inner_text()) < 50
    assert receiver in (badge.get_attribute("title") or "")
    place = card.locator(".incident-place")
    assert len(place.inner_text()) < 200
    assert vertex in (place.get_attribute("title") or "")
    assert host in (place.get_attribute("title") or "")
