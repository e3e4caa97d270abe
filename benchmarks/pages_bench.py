"""Measures what the pages cost a viewer: bytes received, layout shifts, and CPU time in a real Chromium.

A temporary ``barrierscope up`` serves its demo jobs. Each page is opened twice: first with an empty cache, and then
again. A page is opened when the browser has finished with the one before. The CPU time is that of the browser's
renderers until all charts of the page are drawn. It is divided by the CPU time of a page of text in the same run, which
loads the same scripts but has no charts. At the end, the pages stay open for a minute while their target is paused, so
that nothing changes.

A value over its limit is printed with the word FAIL, and the command then ends with status 1. Other work on the machine
makes CPU time longer, so the limit of 1.5 s is for a quiet machine.

    python benchmarks/pages_bench.py [--idle-s 60] [--json]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from playwright.sync_api import Page

from tests.support.benchmarking import parser_of, print_json, renderers_cpu_s
from tests.support.browsing import Browser, Weight, launched, opened, required_chromium
from tests.support.running_up import Up, temporary_up
from tests.support.waiting import until

_JOB = "orders-aligned"
# A browser at rest uses less than this in a quarter of a second. An end to the wait, if it never comes to rest.
_STILL_S, _SETTLED_MAX = 0.02, 40
_DRAWN = """() => [...document.querySelectorAll('[id$=-graph]')]
    .filter(chart => chart.getClientRects().length).every(chart => chart.querySelector('.main-svg'))"""


@dataclass(frozen=True, slots=True)
class View:
    """One page: its address, and the elements that show that it is complete."""

    name: str
    path: str
    shows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What one page cost. The CPU ratio is the page's CPU time divided by that of the page of text."""

    page: str
    first_kb: float
    again_kb: float
    shifts: float
    cpu_s: float
    cpu_ratio: float
    idle_kb_per_min: float
    idle_shifts_per_min: float


LIMITS = {
    "first_kb": 1_500.0, "again_kb": 150.0, "shifts": 0.05, "cpu_s": 1.5, "idle_kb_per_min": 50.0,
    "idle_shifts_per_min": 0.01,
}  # fmt: skip
"""The largest allowed values of a ``Result``, by their names."""


def failures(result: Result) -> list[str]:
    """Return the names of the values that are over their limits."""
    return [f"{name} over {limit:g}" for name, limit in LIMITS.items() if getattr(result, name) > limit]


def _views(up: Up) -> list[View]:
    job = _job(up)
    listed = _items(up, f"/api/v1/jobs/{job}/checkpoints?limit=20")
    ended = next(c for c in listed if c["status"] != "in-progress")
    checkpoint = f"/ui/jobs/{job}/runs/{ended['run_id']}/checkpoints/{ended['checkpoint_id']}"
    incidents, alerts = _items(up, "/api/v1/incidents?limit=1"), _items(up, "/api/v1/alerts?limit=1")
    of_alerts = [View("incident", f"/ui/incidents/{i['id']}", ("#incident-strip-graph .main-svg",)) for i in incidents]
    of_alerts += [View("alert", f"/ui/alerts/{a['id']}", ("#alert-strip-graph .main-svg",)) for a in alerts]
    return [
        View("text", "/ui/runbooks/CheckpointExpired", (".runbook",)),
        View("fleet", "/ui/", ("#fleet-grid .ag-row",)),
        View("job", f"/ui/jobs/{job}", ("#timeline-graph .points path", "#pressure-graph .barlayer path")),
        View("checkpoint", checkpoint, ("#gantt-graph .barlayer path", "#front-graph .scatterlayer path")),
        View("space-time", f"{checkpoint}/space-time", ("#space-time-graph .scatterlayer path",)),
        View("comparison", f"/ui/jobs/{job}/compare", ("#comparison-graph .barlayer path",)),
        View("windows", f"/ui/jobs/{job}/compare-windows", ("#windows-graph .main-svg",)),
        View("what-if", f"/ui/jobs/{job}/whatif?mode=unaligned", ("#whatif-said > *",)),
        View("pressure", f"/ui/jobs/{job}/pressure", ("#pressure-history-graph .scatterlayer .js-line",)),
        View("advice", f"/ui/jobs/{job}/advice", ("#advice-head h1",)),
        View("lab", "/ui/lab", ("#page form, #page button",)),
        View("alerts", "/ui/alerts", ("#alerts-open .card",)),
        *of_alerts,
        View("rules", "/ui/alerts/rules", ("#rules-list .rule-row",)),
        View("receivers", "/ui/alerts/receivers", ("#alerts-receivers > *",)),
        View("silences", "/ui/alerts/silences", ("#silence-preview",)),
        View("targets", "/ui/targets", ("#targets-list table, #targets-list div",)),
    ]


def _items(up: Up, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (up.get(path) or {"items": []})["items"]
    return found


def _job(up: Up) -> str | None:
    return next((j["id"] for j in _items(up, "/api/v1/jobs?limit=100") if j["name"] == _JOB), None)


def _settle(page: Page) -> None:
    """Wait until the browser has finished with closed pages, so that their work counts for no other page."""
    before_s = renderers_cpu_s()
    for _ in range(_SETTLED_MAX):
        page.wait_for_timeout(250)
        now_s = renderers_cpu_s()
        if now_s - before_s < _STILL_S:
            return
        before_s = now_s


def _load(page: Page, view: View) -> None:
    page.goto(view.path)
    for selector in view.shows:
        page.wait_for_selector(selector, state="attached")
    page.wait_for_function(_DRAWN, polling=100)


def _is_ready(up: Up) -> bool:
    """Return whether a checkpoint of the job has ended and, because it expires, an alert has opened an incident."""
    job = _job(up)
    listed = _items(up, f"/api/v1/jobs/{job}/checkpoints?limit=20") if job else []
    has_ended = any(c["status"] != "in-progress" for c in listed)
    return has_ended and all(_items(up, f"/api/v1/{of}?limit=1") for of in ("alerts", "incidents"))


def measure(up: Up, executable: str, idle_s: float) -> list[Result]:
    """Open every page, and return what each of them cost."""
    until(lambda: _is_ready(up), "a checkpoint of the demo job has ended")
    base_url = f"http://127.0.0.1:{up.port}"
    loads: list[tuple[View, int, int, float, float]] = []
    with launched(executable) as browser:
        views = _views(up)
        for view in views:
            with opened(browser, base_url) as (page, _):
                weight = Weight(page)
                weight.forget_files()
                _settle(page)
                began_s = renderers_cpu_s()
                _load(page, view)
                first, cpu_s, shifts = weight.received_bytes, renderers_cpu_s() - began_s, weight.shifts()
                _load(page, view)
                loads.append((view, first, weight.received_bytes - first, shifts, cpu_s))
        _pause(up)
        idle = [_idle(browser, base_url, view, idle_s) for view in views]
    floor_s = loads[0][4]
    return [
        Result(view.name, first / 1e3, again / 1e3, shifts, cpu_s, cpu_s / floor_s, *of_view)
        for (view, first, again, shifts, cpu_s), of_view in zip(loads, idle, strict=True)
    ]


def _pause(up: Up) -> None:
    """Pause the target of the demo jobs, so that nothing changes any more."""
    (target,) = (t["id"] for t in up.get("/api/v1/targets")["items"] if t["origin"] == "built-in")
    with httpx.Client(base_url=f"http://127.0.0.1:{up.port}", trust_env=False) as http:
        http.patch(f"/api/v1/targets/{target}", json={"is_enabled": False}).raise_for_status()


def _idle(browser: Browser, base_url: str, view: View, idle_s: float) -> tuple[float, float]:
    """Return the kilobytes and the layout shifts per minute of an open page on which nothing changes."""
    with opened(browser, base_url) as (page, _):
        weight = Weight(page)
        _load(page, view)
        # The parts of the page that are loaded later arrive before the measurement begins.
        page.wait_for_timeout(8_000)
        received, shifts = weight.received_bytes, weight.shifts()
        page.wait_for_timeout(idle_s * 1_000)
        per_min = 60 / idle_s
        return (weight.received_bytes - received) / 1e3 * per_min, (weight.shifts() - shifts) * per_min


def _line(r: Result) -> str:
    failed = "".join(f"   FAIL: {words}" for words in failures(r))
    return (
        f"{r.page:11} {r.first_kb:7.0f} kB cold {r.again_kb:6.0f} kB again   shifts {r.shifts:.3f}   "
        f"CPU {r.cpu_s:5.2f} s, {r.cpu_ratio:5.2f} x text   "
        f"idle {r.idle_kb_per_min:6.1f} kB/min, shifts {r.idle_shifts_per_min:.3f}/min{failed}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the pages and print the results. Return 1 if a value is over its limit."""
    parser = parser_of(__doc__)
    parser.add_argument("--idle-s", type=float, default=60.0)
    options = parser.parse_args(arguments)
    executable = required_chromium()
    with temporary_up() as up:
        results = measure(up, executable, options.idle_s)
    if options.json:
        print_json(results)
    else:
        print(*map(_line, results), sep="\n")
    return 1 if any(map(failures, results)) else 0


if __name__ == "__main__":
    sys.exit(main())
