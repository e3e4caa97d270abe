"""Every page of the register, and the walk of a person on call, in Firefox instead of Chromium.

The other tests of the pages use Chromium alone. These find what only another engine shows: a script or a style that it
does not know, and a chart that it draws in another size.
"""

from __future__ import annotations

import httpx
import pytest

from tests.support.browsing import collapsed
from tests.support.dashboard_site import site_over
from tests.support.firefox import firefox, opened_in_firefox
from tests.support.page_register import PAGES, StandingClock, begin, every_page_api, show
from tests.support.running_up import Up, jobs_of
from tests.support.waiting import PATIENCE_S, until
from tests.support.walking import Hand, resolve

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(firefox() is None, reason="no Firefox on this machine"),
]

_TROUBLED = "orders-aligned"


def test_firefox_shows_every_page_with_its_charts_and_reports_nothing():
    found: dict[str, list[str]] = {}
    with (
        site_over(every_page_api(StandingClock()), has_date=False) as url,
        opened_in_firefox(firefox(), url) as (page, watch),
    ):
        begin(page, width=1440)
        for example in PAGES:
            show(page, example)
            found[example.name] = [*collapsed(page), *watch.found]
            watch.found.clear()
    assert {name: faults for name, faults in found.items() if faults} == {}


def test_a_person_walks_in_firefox_from_the_fleet_to_an_incident_that_is_over(live_up):
    up = live_up()
    until(lambda: _can_be_cured(up), "the alert fires and its cure is known", timeout_s=2 * PATIENCE_S)
    settings = _settings_address(up)
    before = {key: value for key, value in httpx.get(settings, trust_env=False).json().items() if "aligned" in key}
    try:
        with opened_in_firefox(firefox(), f"http://127.0.0.1:{up.port}") as (page, watch):
            hand = Hand(page, is_keyboard=False)
            resolve(hand, _TROUBLED, patience_ms=2 * PATIENCE_S * 1_000)
            assert watch.found == []
    finally:
        httpx.patch(settings, json=before, trust_env=False).raise_for_status()
    assert hand.presses == 6


def _can_be_cured(up: Up) -> bool:
    job = jobs_of(up).get(_TROUBLED)
    if job is None:
        return False
    alerts = (up.get(f"/api/v1/alerts?job={job}&state=firing") or {"items": []})["items"]
    cards = (up.get(f"/api/v1/jobs/{job}/advice") or {"cards": []})["cards"]
    return any(a["rule"] == "CheckpointExpired" for a in alerts) and any(card["can_apply"] for card in cards)


def _settings_address(up: Up) -> str:
    jobs = f"http://127.0.0.1:{up.runtime_port}/runtime/v1/jobs"
    listed = httpx.get(f"{jobs}/overview", trust_env=False).raise_for_status().json()["jobs"]
    return f"{jobs}/{next(job['jid'] for job in listed if job['name'] == _TROUBLED)}/settings"
