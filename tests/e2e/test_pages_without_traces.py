"""A page of a test has nothing that the page of an earlier test left in the shared browser."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.support.browsing import opened

_THEN = datetime(2020, 1, 1, tzinfo=UTC)
_MAY_WRITE = "async () => (await navigator.permissions.query({ name: 'clipboard-write' })).state"


def test_the_clock_and_the_permissions_of_a_page_end_with_it(browser, site):
    with opened(browser, site) as (page, _):
        page.goto("/ui/targets")
        before = page.evaluate(_MAY_WRITE)
        assert page.evaluate("() => Date.now()") > _THEN.timestamp() * 1000
        page.clock.set_fixed_time(_THEN)
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        assert page.evaluate("() => Date.now()") == _THEN.timestamp() * 1000
        assert page.evaluate(_MAY_WRITE) == "granted" != before
    with opened(browser, site) as (page, _):
        page.goto("/ui/targets")
        assert page.evaluate("() => Date.now()") > _THEN.timestamp() * 1000
        assert page.evaluate(_MAY_WRITE) == before
