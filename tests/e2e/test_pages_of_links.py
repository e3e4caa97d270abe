"""Links out, and what is read from a running subtask, in a real Chromium over a fake API."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from playwright.sync_api import expect

from tests.support.browsing import LAPTOP, opened, overflowing, small_targets, until_charts_fit
from tests.support.dashboard_site import site_over
from tests.support.fake_api import FakeApi
from tests.support.waiting import until

_CHECKPOINT = "/ui/jobs/jB2/runs/rB2/checkpoints/{}"


def test_links_are_stored_offered_at_the_guilty_subtask_and_its_stacks_are_read(browser):
    fake = FakeApi(now=lambda: datetime.fromtimestamp(time.time(), UTC))
    number = fake.jobs["jB2"].checkpoints[-1].checkpoint_id
    with site_over(fake) as site, opened(browser, site) as (page, watch):
        # The dialog of the targets: a refusal is shown, and what was typed stays.
        page.goto("/ui/targets")
        page.locator("button[aria-label='Links of production-eu']").click()
        dialog = page.locator("[role=dialog]")
        names, addresses = dialog.get_by_label("Name"), dialog.get_by_label("Address with placeholders")
        names.fill("Grafana")
        addresses.fill("https://grafana.example/{nobody}")
        dialog.get_by_role("button", name="Add a link").click()
        expect(names).to_have_count(2)
        dialog.get_by_role("button", name="Save").click()
        expect(dialog.locator("#links-answer")).to_contain_text(
            "Grafana: the template has the unknown placeholder {nobody}"
        )
        addresses.first.fill("https://grafana.example/{taskmanager}")
        dialog.get_by_role("button", name="Save").click()
        expect(dialog).to_have_count(0)
        expect(page.locator("button[aria-label='Links of production-eu']")).to_have_text("Links (1)")

        # Someone else saves while the dialog is open.
        page.locator("button[aria-label='Links of production-eu']").click()
        expect(names).to_have_value("Grafana")
        target = next(t for t in fake.targets.values() if t.name == "production-eu")
        fake.targets[target.id] = target.model_copy(update={"links_version": "of someone else"})
        dialog.get_by_role("button", name="Save").click()
        expect(dialog.locator("#links-answer")).to_contain_text("were changed meanwhile")
        dialog.get_by_role("button", name="Cancel").click()

        # The links and the stacks of the guilty subtask.
        page.goto(_CHECKPOINT.format(number))
        links = page.locator("#cp-verdict .links-out a")
        expect(links).to_have_text(["job", "back pressure", "TaskManager log", "Grafana"])
        assert {a.get_attribute("rel") for a in links.all()} == {"noopener noreferrer"}
        fake.is_down = True
        page.locator("#cp-verdict button:has-text('Thread dump')").click()
        expect(page.locator("#cp-inspect-message")).to_contain_text("It refreshes automatically.")
        fake.is_down = False
        expect(page.locator("#cp-threads .thread-stack").first).to_contain_text("example.Enrich.processElement")
        page.locator("#cp-verdict button:has-text('Flame graph')").click()
        expect(page.locator("#flame-words")).to_contain_text("99 % of 100 samples are in example.Enrich")
        page.wait_for_selector("#flame-graph .barlayer .point")
        for width, height in ((390, 844), LAPTOP):
            page.set_viewport_size({"width": width, "height": height})
            until_charts_fit(page, f"checkpoint at {width} px")
            until(lambda: overflowing(page) == [], "the page fits")
            assert small_targets(page) == []
        assert watch.found == []
