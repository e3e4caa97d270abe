"""Measures what the pages of one large job cost a viewer: 40 vertices of 400 subtasks each, and 5,000 checkpoints.

A fake API serves the job to the pages in a real Chromium. The CPU time is that of the browser's renderers, from the
navigation until the charts are drawn and the page is idle. Time in which other processes ran does not count. An
interaction is measured in the same way, and the CPU time of an idle page of the same length is subtracted.

    python benchmarks/large_job_pages_bench.py [--json]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from playwright.sync_api import Page

from tests.support.benchmarking import parser_of, print_json, renderers_cpu_s
from tests.support.browsing import go, launched, opened, required_chromium
from tests.support.dashboard_site import site_over
from tests.support.large_job import CHECKPOINTS, CULPRIT, LARGE, LargeJobApi

_JOB = f"/ui/jobs/{LARGE}"
_CHECKPOINT = f"{_JOB}/runs/r{LARGE[1:]}/checkpoints/{CHECKPOINTS}"
# The page is idle if it used at most this much CPU time in each of some steps. Other processes may delay its work.
_STEP_MS, _CALM_S, _CALM_COUNT = 500, 0.03, 4


@dataclass(frozen=True, slots=True)
class Result:
    """The CPU time of the renderers for one view, and for each of its interactions."""

    view: str
    drawn_s: float
    interactions_ms: dict[str, float]


class Meter:
    """Measures the CPU time of the browser's renderers."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def cpu_s(self, act: Callable[[], object], *, until: str | None = None) -> float:
        """Return the CPU time from the start of ``act`` until the page shows ``until`` and is idle."""
        before_s = renderers_cpu_s()
        act()
        if until is not None:
            self._page.wait_for_selector(until, state="attached")
        self.settle()
        return renderers_cpu_s() - before_s

    def settle(self) -> None:
        """Wait until the renderers use hardly any CPU time."""
        calm = 0
        while calm < _CALM_COUNT:
            before_s = renderers_cpu_s()
            self._page.wait_for_timeout(_STEP_MS)
            calm = calm + 1 if renderers_cpu_s() - before_s <= _CALM_S else 0


def measure(executable: str) -> list[Result]:
    """Open each view of the large job, and return what it and its interactions cost."""
    fake = LargeJobApi(now=lambda: datetime.fromtimestamp(time.time(), UTC))
    results: list[Result] = []
    with site_over(fake) as url, launched(executable) as browser, opened(browser, url) as (page, watch):
        page.goto("/ui/")
        page.wait_for_selector("#fleet-grid .ag-row")
        # Without ticks, the measured work is that of the view alone.
        page.click("#pause-toggle")
        meter = Meter(page)

        def view(name: str, path: str, shows: str, acts: dict[str, Callable[[], object]]) -> None:
            go(page, "/ui/targets")
            page.wait_for_selector("#targets-list table")
            meter.settle()
            drawn_s = meter.cpu_s(lambda: go(page, path), until=shows)
            idle_s = meter.cpu_s(lambda: None)
            found = {act: 1e3 * max(0.0, meter.cpu_s(do) - idle_s) for act, do in acts.items()}
            results.append(Result(name, drawn_s, found))

        view("job", _JOB, "#heatmap-graph .heatmaplayer image", {
            "hover timeline": lambda: _hover(page, "timeline"),
            "hover heatmap": lambda: _hover(page, "heatmap"),
        })  # fmt: skip
        view("job, heatmap of one vertex", f"{_JOB}?vertex={CULPRIT}", "#heatmap-graph .heatmaplayer image", {
            "hover heatmap": lambda: _hover(page, "heatmap"),
        })  # fmt: skip
        view("pressure", f"{_JOB}/pressure", "#pressure-history-graph .scatterlayer .js-line", {
            "hover": lambda: _hover(page, "pressure-history"),
        })  # fmt: skip
        view(
            "pressure, one vertex opened",
            f"{_JOB}/pressure?vertex={CULPRIT}",
            "#pressure-history-graph .heatmaplayer image",
            {"hover": lambda: _hover(page, "pressure-history")},
        )
        view("checkpoint", f"{_CHECKPOINT}?open=", "#front-graph .scatterlayer", {
            "hover phases": lambda: _hover(page, "gantt"),
            "hover front": lambda: _hover(page, "front"),
            "one step back": lambda: page.click("#front-back"),
        })  # fmt: skip
        view("checkpoint, one vertex opened", f"{_CHECKPOINT}?open={CULPRIT}", "#front-graph .scatterlayer", {
            "hover phases": lambda: _hover(page, "gantt"),
        })  # fmt: skip
        assert watch.found == [], watch.found
    return results


def _hover(page: Page, chart: str) -> None:
    page.locator(f"#{chart}-graph").scroll_into_view_if_needed()
    area = page.locator(f"#{chart}-graph .nsewdrag").first.bounding_box()
    assert area is not None
    page.mouse.move(area["x"] + area["width"] * 0.4, area["y"] + min(area["height"], 300) * 0.4)
    page.mouse.move(area["x"] + area["width"] * 0.5, area["y"] + min(area["height"], 300) * 0.5)


def _line(r: Result) -> str:
    acts = ", ".join(f"{name} {ms:.0f} ms" for name, ms in r.interactions_ms.items())
    return f"{r.view:30} drawn in {r.drawn_s:5.2f} s of CPU   {acts}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the pages and print the results."""
    parser = parser_of(__doc__)
    options = parser.parse_args(arguments)
    executable = required_chromium()
    results = measure(executable)
    if options.json:
        print_json(results)
    else:
        print(*map(_line, results), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
