"""A what-if of a live demo job in a real Chromium: its prediction stands beside what then happened."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import expect

from dashboard.text import duration
from tests.support.browsing import opened, overflowing
from tests.support.running_up import jobs_of
from tests.support.waiting import PATIENCE_S, until

_TROUBLED = "orders-aligned"
_MAX_MS = 4 * PATIENCE_S * 1_000


@pytest.mark.slow
def test_four_clicks_lead_from_an_alert_to_a_cure_whose_numbers_stand_beside_what_then_happened(browser, start):
    up = start()
    up.wait_until_says("ready: open")
    job = jobs_of(up)[_TROUBLED]

    def alerts():
        return (up.get(f"/api/v1/alerts?job={job}&state=firing") or {"items": []})["items"]

    def proposals():
        return (up.get(f"/api/v1/jobs/{job}/advice") or {"cards": []})["cards"]

    def tier():
        answer = httpx.post(
            f"http://127.0.0.1:{up.port}/api/v1/jobs/{job}/whatif", json={"settings": {"mode": "unaligned"}}, timeout=60
        )
        return answer.json()["asked"]["tier"] if answer.status_code == 200 else None

    until(lambda: alerts() and proposals(), "an alert fires, and the rules have advice")
    until(lambda: tier() == "fast", "the fast simulation is compiled", timeout_s=4 * PATIENCE_S)
    with opened(browser, f"http://127.0.0.1:{up.port}") as (page, watch):
        page.goto(f"/ui/alerts/{alerts()[0]['id']}")
        # 1
        page.get_by_role("link", name="What if").first.click()
        expect(page.locator("#whatif-said")).to_contain_text("Move a slider")
        # 2
        page.get_by_role("button", name="Take the proposal").click()
        expect(page.locator("#whatif-said")).to_contain_text("checkpoints would take")
        expect(page.locator("#whatif-said")).to_contain_text("Predicted by the fast simulation")
        # 3
        page.locator("#whatif-apply").click()
        expect(page.locator("#whatif-change-question")).to_contain_text(
            "execution.checkpointing.unaligned.enabled: true"
        )
        # 4
        page.get_by_role("dialog").get_by_role("button", name="Apply now").click()
        expect(page.locator("#whatif-message")).to_contain_text("Sent.")

        expect(page.locator("#whatif-then")).to_contain_text("predictions held", timeout=_MAX_MS)
        (card,) = [
            c
            for c in up.get(f"/api/v1/jobs/{job}/recommendations")["items"]
            if c["recommendation"]["topic"] == "what-if"
        ]
        assert card["state"] == "verified"
        took = next(m for m in card["measured"] if m["metric"] == "end_to_end_duration_ms")
        assert took["predicted"]["low"] <= took["measured"] <= took["predicted"]["high"]
        assert took["measured"] * 4 < card["recommendation"]["expected"][0]["before"]
        row = page.locator("#whatif-then tr:has-text('End-to-end duration')")
        for ms in (took["predicted"]["value"], took["measured"]):
            expect(row).to_contain_text(duration(ms))
        expect(row).to_contain_text("inside the interval")
        assert "fast tier" in card["recommendation"]["expected"][0]["method"]
        page.set_viewport_size({"width": 390, "height": 844})
        assert overflowing(page) == []
        assert watch.found == []
