"""The page of a job's backtest in a real Chromium over a fake API: it is started, cancelled, followed and read."""

from __future__ import annotations

import re

from playwright.sync_api import Route, expect

from backend.domain.backtest import Part
from tests.support.browsing import opened, overflowing
from tests.support.waiting import until

_TICK = '["backtest-tick.n_intervals"]'
_INTERVALS = "() => window.dash_component_api.getLayout('backtest-tick').props.max_intervals"


def test_from_the_advice_a_backtest_is_started_cancelled_and_started_again_and_its_result_has_an_address(
    browser, site, fake
):
    with opened(browser, site) as (page, watch):
        page.goto("/ui/jobs/jruntime/advice")
        page.get_by_role("link", name="Backtest").click()
        expect(page.locator("#backtest-state")).to_contain_text("not run yet")
        assert not page.locator("#backtest-results").is_visible()
        fake.backtests.is_held = True
        page.get_by_role("checkbox", name="Warnings of timeouts").uncheck()
        page.get_by_text("2\u202f000").click()
        page.get_by_role("button", name="Run the backtest").click()
        expect(page.locator("#backtest-state")).to_contain_text("queued")
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#backtest-state")).to_contain_text("cancelled")
        fake.backtests.is_held = False
        # A poll waits for the answer that it asked for, however long it takes.
        held: list[Route] = []
        is_slow = True
        page.route(
            "**/_dash-update-component**",
            lambda r: held.append(r) if is_slow and _TICK in (r.request.post_data or "") else r.continue_(),
        )
        page.get_by_role("button", name="Run the backtest").click()
        until(lambda: page.evaluate(_INTERVALS) == 0 and len(held) == 1, "the poll waits for its answer")
        is_slow = False
        held[0].continue_()
        expect(page.locator("#backtest-state")).to_contain_text("Replayed.")
        asked = list(fake.backtests.known.values())[-1].request
        assert (set(asked.parts), asked.checkpoint_count) == ({Part.VERDICT, Part.ADVICE}, 2_000)
        expect(page.locator("#backtest-verdict")).to_contain_text("It would have named a cause in 2 episodes.")
        expect(page.locator("#backtest-episodes")).to_contain_text("straggler: last")
        expect(page.locator("#backtest-advice")).to_contain_text(
            "The rules would have opened 2 cards: 1 withdrawn later"
        )
        expect(page.locator("#backtest-cards")).to_contain_text("221 ms")
        expect(page.locator("#backtest-warning")).to_contain_text("It was not asked for.")
        expect(page.locator("#backtest-said-graph .trace").first).to_be_attached()
        expect(page.locator("#backtest-warnings-graph")).to_contain_text("This part was not replayed.")
        expect(page).to_have_url(re.compile(r"/backtest\?id=b\d+"))
        # The address leads to the same result.
        page.reload()
        expect(page.locator("#backtest-cards")).to_contain_text("221 ms")
        # So do the controls, until the viewer changes them. The result then still says what it is of.
        chosen = page.locator("#backtest-count input:checked")
        expect(chosen).to_have_value("2000")
        expect(page.get_by_role("checkbox", name="Warnings of timeouts")).not_to_be_checked()
        page.locator("#backtest-count").get_by_text("100", exact=True).click()
        page.evaluate("() => window.barrierscope.setProps('backtest-pressed', { data: 100 })")
        expect(chosen).to_have_value("100")
        expect(page.locator("#backtest-state")).to_contain_text("at most the newest 2\u202f000 checkpoints")
        link = page.locator("#backtest-episodes a").first
        assert re.fullmatch(r"/ui/jobs/jruntime/runs/r/checkpoints/1", link.get_attribute("href") or "")
        page.set_viewport_size({"width": 390, "height": 800})
        assert overflowing(page) == []
        # An error of this page is not shown on the next one.
        page.evaluate("() => window.barrierscope.setProps('unexpected', { children: 'an error' })")
        expect(page.locator("#unexpected")).to_have_text("an error")
        page.locator(".crumbs a").last.click()
        expect(page.locator("#unexpected")).to_be_empty()
        assert watch.found == []


def test_a_backtest_that_is_not_kept_and_one_without_parts_say_what_to_do(browser, site):
    with opened(browser, site) as (page, _):
        page.goto("/ui/jobs/jruntime/backtest?id=bgone")
        expect(page.locator("#backtest-state")).to_contain_text("not known any more")
        for box in page.get_by_role("checkbox").all():
            box.uncheck()
        page.get_by_role("button", name="Run the backtest").click()
        expect(page.locator("#backtest-message")).to_contain_text("Choose at least one part")
        page.goto("/ui/jobs/jnone/backtest")
        expect(page.locator("#page .not-found h1")).to_be_visible()
