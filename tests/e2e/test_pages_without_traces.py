"""A page of a test has nothing that the page of an earlier test left in the shared browser."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Error

from tests.support.browsing import clock_of, opened

_THEN = datetime(2020, 1, 1, tzinfo=UTC)
_THEN_MS = _THEN.timestamp() * 1000
_MAY_READ = "async () => (await navigator.permissions.query({ name: 'clipboard-read' })).state"


def _nothing(page):
    pass


def _crash(page):
    with suppress(Error):
        page.goto("chrome://crash")


@pytest.mark.parametrize("end", [_nothing, lambda page: page.close(), _crash], ids=["usual", "closed", "crashed"])
def test_the_clock_and_the_permissions_of_a_page_end_with_it(browser, site, end):
    with opened(browser, site) as (page, _):
        page.goto("/ui/targets")
        before = page.evaluate(_MAY_READ)
        assert page.evaluate("() => Date.now()") > _THEN_MS
        clock_of(page).set_fixed_time(_THEN)
        page.context.grant_permissions(["clipboard-read"])
        assert page.evaluate("() => Date.now()") == _THEN_MS
        assert page.evaluate(_MAY_READ) == "granted" != before
        end(page)
    with opened(browser, site) as (page, _):
        page.goto("/ui/targets")
        assert page.evaluate("() => Date.now()") > _THEN_MS
        assert page.evaluate(_MAY_READ) == before


def test_each_clock_of_a_page_is_set_in_the_way_that_ends_with_the_page():
    files = [path for path in Path(__file__).parents[1].rglob("*.py") if ".clock." in path.read_text(encoding="utf-8")]
    direct = [path.name for path in files if "page.clock." in path.read_text(encoding="utf-8")]
    assert direct == [Path(__file__).name]
