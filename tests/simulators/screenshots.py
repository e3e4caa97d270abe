"""``make screenshots``: take every screenshot of the documentation from a temporary ``barrierscope up``.

This instance uses free ports and a data folder that is removed at the end. Each screenshot waits until the page shows
its subject. The demo jobs need about a minute until their checkpoints expire.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.support.browsing import chromium, drag, launched, opened
from tests.support.running_up import Up, jobs_of
from tests.support.waiting import until

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "screenshots"

_TROUBLED = "orders-aligned"
_HOLDER = "aggregate"
_READY_S = 300.0
_MARGIN_PX = 12


@dataclass(frozen=True, slots=True)
class Picture:
    """One screenshot: its file name, a function that opens its page, and the element at whose lower edge it ends."""

    name: str
    show: Callable[[Page, str], None]
    until: str
    """Playwright selector. The screenshot ends below the first element that matches."""


def _fleet(page: Page, _: str) -> None:
    page.goto("/ui/")
    expect(page.locator("#fleet-grid .ag-row:has(.sub:text-is('demo · deployment=demo'))")).to_have_count(7)
    expect(page.locator(f"#fleet-grid .ag-row:has-text('{_TROUBLED}')").first).to_contain_text("failing")
    # Wait until this job is shown as healthy. On a busy machine, readings come late, and a checkpoint may seem open
    # for long.
    expect(page.locator("#fleet-grid .ag-row:has-text('orders-healthy')")).to_contain_text("nothing wrong")


def _job(page: Page, job: str) -> None:
    page.goto(f"/ui/jobs/{job}")
    expect(page.locator("#job-verdict .verdict-sentence")).to_contain_text(_HOLDER)
    page.wait_for_selector("#timeline-graph .points path")
    # The panel has a title at any time: between two checkpoints, it shows the last checkpoint that ended.
    page.wait_for_selector("#job-progress-head .progress-title")


def _checkpoint(page: Page, job: str) -> None:
    _job(page, job)
    page.click("#job-recent tr:has-text('expired') a >> nth=0")
    page.wait_for_url(re.compile(r"/runs/[^/]+/checkpoints/\d+"))
    expect(page.locator("#cp-verdict .verdict-sentence")).to_contain_text(_HOLDER)
    page.wait_for_selector("#gantt-graph .barlayer path")
    page.wait_for_selector("#front-graph .textpoint text")
    # At this slider position, the barrier has reached some subtasks and not yet the others.
    drag(page, "#front-slider [role=slider]", "#front-slider .mantine-Slider-track", to_ratio=0.6)
    page.evaluate("window.scrollTo(0, 0)")


def _advice(page: Page, job: str) -> None:
    page.goto(f"/ui/jobs/{job}/advice")
    page.wait_for_selector("text=unaligned")


PICTURES = (
    Picture("fleet", _fleet, "#fleet-source"),
    Picture("job", _job, "section:has(#timeline-graph)"),
    Picture("checkpoint", _checkpoint, "section:has(#front-slider)"),
    Picture("advice", _advice, ".advice-lists"),
)


def _has_expired(up: Up, job: str | None, *, count: int) -> bool:
    page = up.get(f"/api/v1/jobs/{job}/checkpoints?limit=50") if job else None
    return sum(c.get("failure_reason") == "expired" for c in (page or {"items": []})["items"]) >= count


def _take(page: Page, picture: Picture, job: str) -> None:
    picture.show(page, job)
    # A live page never stops sending requests, so the network is never idle. Wait for the fonts and two frames
    # instead.
    page.evaluate(
        "document.fonts.ready.then(() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r))))"
    )
    last = page.locator(picture.until).first.bounding_box()
    assert last is not None
    width = page.evaluate("document.documentElement.clientWidth")
    clip = {"x": 0, "y": 0, "width": width, "height": last["y"] + last["height"] + _MARGIN_PX}
    page.screenshot(path=FOLDER / f"{picture.name}.png", full_page=True, clip=clip)
    print(f"{picture.name}.png  {clip['width']:.0f} x {clip['height']:.0f}", flush=True)


def main(arguments: list[str]) -> int:
    """Take the screenshots that are named in ``arguments``, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulators.screenshots", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="screenshots to take; default: all")
    names = parser.parse_args(arguments).names or [picture.name for picture in PICTURES]
    unknown = sorted(set(names) - {picture.name for picture in PICTURES})
    executable = chromium()
    if unknown or executable is None:
        reason = f"no picture {', '.join(unknown)}" if unknown else "no Chromium on this machine"
        print(f"screenshots: {reason}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="barrierscope-") as folder:
        up = Up(Path(folder) / "data")
        try:
            up.wait_until_says("ready: open")
            until(lambda: _has_expired(up, jobs_of(up).get(_TROUBLED), count=6), "six expired", timeout_s=_READY_S)
            job = jobs_of(up)[_TROUBLED]
            base_url = f"http://127.0.0.1:{up.port}"
            with launched(executable) as browser, opened(browser, base_url) as (page, _):
                for picture in PICTURES:
                    if picture.name in names:
                        _take(page, picture, job)
        finally:
            up.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
