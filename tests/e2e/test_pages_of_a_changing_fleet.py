"""The fleet page in a real Chromium while clusters come and go: 200 of 1,000 jobs are replaced, five in a second.

The API is a fake one, because the test is about the tab: its rows, its errors and its memory.
``tests/integration/test_discovered_fleet.py`` has the same churn with a real discovery, store and API.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from itertools import count

import pytest
from playwright.sync_api import expect

from tests.support.browsing import opened
from tests.support.dashboard_site import site_over
from tests.support.fake_api import FakeApi
from tests.support.waiting import until

pytestmark = pytest.mark.slow
_COUNT, _CHANGES, _EACH, _PAUSE_MS = 1_000, 50, 4, 200
_ROWS = """() => Object.fromEntries([...document.querySelectorAll('#fleet-grid .ag-center-cols-container .ag-row')]
    .map(row => [row.getAttribute('row-index'), row.getAttribute('row-id')]))"""
# The grid draws rows some time after it was scrolled.
_IS_FILLED = """node => {
    const area = node.getBoundingClientRect(), rows = [...node.querySelectorAll('.ag-center-cols-container .ag-row')];
    const places = rows.map(row => row.getBoundingClientRect());
    const end = Math.min(area.bottom, area.top + node.scrollHeight - node.scrollTop);
    return !node.querySelector('.ag-row-loading') && Math.min(...places.map(p => p.top)) <= area.top + 1
        && Math.max(...places.map(p => p.bottom)) >= end - 60;
}"""
_SCROLL = "(node, top) => { node.scrollTop = top; return node.scrollHeight - node.clientHeight; }"


class _Tab:
    """What a tab uses, after it was asked to free what it does not need."""

    def __init__(self, page):
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable")

    def uses(self):
        self._session.send("HeapProfiler.collectGarbage")
        metrics = {m["name"]: m["value"] for m in self._session.send("Performance.getMetrics")["metrics"]}
        return metrics["JSHeapUsedSize"] / 2**20, metrics["Nodes"], metrics["JSEventListeners"]


def _replaced(fake, number):
    """Replace the oldest made-up cluster by a new one, which is shown first or last in turn."""
    new = fake._plain(number)
    gone = min((job for job in fake.jobs if job.startswith("jplain")), key=lambda job: int(job.removeprefix("jplain")))
    others = {key: fake.jobs[key] for key in fake.jobs if key != gone}
    mine = {new.detail.id: new}
    # The pages read the jobs meanwhile, so the mapping is replaced as a whole.
    fake.jobs = mine | others if number % 2 else others | mine


def _drawn(page):
    return [job for _, job in sorted((int(index), job) for index, job in page.evaluate(_ROWS).items())]


def _whole_list(page):
    """Scroll through the whole list, and return the ids of its rows in their order."""
    viewport, found, top, most = page.locator("#fleet-grid .ag-body-viewport"), {}, 0, 1
    while top <= most + 400:
        most = viewport.evaluate(_SCROLL, top)
        until(lambda: viewport.evaluate(_IS_FILLED), "the rows are loaded and drawn")
        found |= {int(index): job for index, job in page.evaluate(_ROWS).items()}
        top += 400
    return [found[index] for index in sorted(found)]


def test_a_tab_over_a_fleet_with_churn_shows_the_right_rows_and_its_memory_is_bounded(browser):
    fake = FakeApi(now=lambda: datetime.fromtimestamp(time.time(), UTC), job_count=_COUNT)
    numbers = count(_COUNT + 4)
    with site_over(fake) as url, opened(browser, url) as (page, watch):
        page.goto("/ui/")
        expect(page.locator("#fleet-grid .ag-row a.row-link").first).to_be_visible()
        tab, used = _Tab(page), []
        for _ in range(_EACH):
            for _ in range(_CHANGES):
                _replaced(fake, next(numbers))
                # The page has to see the changes one after another.
                page.wait_for_timeout(_PAUSE_MS)
            used.append(tab.uses())
        ids = list(fake.jobs)
        # The rows that were drawn before the last change are those of an older list until the page reads again.
        until(lambda: (drawn := _drawn(page)) and drawn == ids[: len(drawn)], "the rows are those of the newest list")
        assert _whole_list(page) == ids
        assert watch.found == []
    print("\n" + "\n".join(f"{heap:.1f} MiB, {nodes:.0f} nodes, {ears:.0f} listeners" for heap, nodes, ears in used))
    assert used[-1][0] - used[0][0] < 15
    assert used[-1][1] - used[0][1] < 3_000
    assert used[-1][2] - used[0][2] < 1_000
