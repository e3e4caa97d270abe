"""The register of pages: one list with every page of the product and the address of a good example of it.

Tests that are about every page, such as those of widths, accessibility and pictures, go through this list.
``every_page_api`` serves what the addresses name. A kind of page without an example fails a test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import httpx
from playwright.sync_api import Page, expect

from backend.api.access import LOGIN_PATH
from backend.contracts.simulations import SimulationIn
from backend.domain.verdict import Health
from dashboard import lab_address
from dashboard.routes import PageKind
from tests.support.browsing import clock_of, count_requests, go, settle, show_whole
from tests.support.fake_api import FakeApi
from tests.support.fake_spark import BEHIND, FAILED_BATCH, add_spark
from tests.support.large_job import CHECKPOINTS, CULPRIT, LARGE, LargeJobApi
from tests.support.made_up_backtests import COMPLETED
from tests.support.waiting import until

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
"""The time at which the clocks of these tests stand."""
HEIGHT = 900
"""The height of the window in pixels."""


@dataclass(frozen=True, slots=True)
class Example:
    """One page with content."""

    name: str
    """Unique. It is also the name of its pictures."""
    kind: PageKind | None
    """None if the page is no part of the application in the browser."""
    path: str
    shows: str
    """Playwright selector of an element that exists only when the page has its content."""
    is_lazy: bool = False
    """Whether the page draws its charts only when they come into view."""
    is_heavy: bool = False
    """Whether the page takes seconds to draw, so that only the long tests open it."""


class StandingClock:
    """A clock that stands at ``NOON`` until a test advances it."""

    def __init__(self) -> None:
        self._at = NOON

    def __call__(self) -> datetime:
        """Return the time."""
        return self._at

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self._at += timedelta(seconds=seconds)

    def reset(self) -> None:
        """Set the clock to ``NOON`` again."""
        self._at = NOON


_LARGE_CHECKPOINT = f"/ui/jobs/{LARGE}/runs/r{LARGE[1:]}/checkpoints/{CHECKPOINTS}"
_SIMULATED = "?shape=backpressured&protocol=aligned&with=unaligned&parallelism=2&duration=20&seed=7"
_HEATMAP = "#heatmap-graph .heatmaplayer image"
_FRONT = "#front-graph .scatterlayer path"

PAGES = (
    Example("fleet", PageKind.FLEET, "/ui/", "#fleet-grid .ag-row a.row-link"),
    Example("job", PageKind.JOB, "/ui/jobs/jE", _HEATMAP),
    Example("job-in-progress", PageKind.JOB, "/ui/jobs/jruntime", _HEATMAP),
    Example("job-new", PageKind.JOB, "/ui/jobs/jnew", "#job-verdict .verdict-sentence"),
    Example("job-wide", PageKind.JOB, "/ui/jobs/jwide", _HEATMAP),
    Example("job-large", PageKind.JOB, f"/ui/jobs/{LARGE}?vertex={CULPRIT}", _HEATMAP, is_heavy=True),
    Example("job-spark", PageKind.JOB, f"/ui/jobs/{BEHIND}", "#job-batches-graph .barlayer path"),
    Example("job-unknown", PageKind.JOB, "/ui/jobs/jnone", "#page .not-found h1"),
    Example("advice", PageKind.ADVICE, "/ui/jobs/jruntime/advice", "#candidates-graph .scatterlayer .point"),
    Example("advice-none", PageKind.ADVICE, "/ui/jobs/jE/advice", "#advice-head h1"),
    Example(
        "what-if",
        PageKind.WHAT_IF,
        "/ui/jobs/jruntime/whatif?mode=unaligned",
        "#whatif-pareto-graph .scatterlayer .point",
    ),
    Example("backtest-empty", PageKind.BACKTEST, "/ui/jobs/jE/backtest", "#backtest-state .lab-state"),
    Example(
        "backtest",
        PageKind.BACKTEST,
        f"/ui/jobs/jruntime/backtest?id={COMPLETED}",
        "#backtest-effects-graph .scatterlayer .point",
        is_lazy=True,
    ),
    Example("pressure", PageKind.PRESSURE, "/ui/jobs/jE/pressure", "#pressure-history-graph .scatterlayer .js-line"),
    Example(
        "pressure-of-a-vertex",
        PageKind.PRESSURE,
        "/ui/jobs/jruntime/pressure?vertex=enrich&measure=busy",
        "#pressure-history-graph .heatmaplayer image",
    ),
    Example("checkpoint-expired", PageKind.CHECKPOINT, "/ui/jobs/jE/runs/rE/checkpoints/14", _FRONT),
    Example(
        "checkpoint-picked",
        PageKind.CHECKPOINT,
        "/ui/jobs/jruntime/runs/rruntime/checkpoints/20?open=enrich&pick=enrich:2&t=3000",
        "#cp-picked-panel b",
    ),
    Example(
        "checkpoint-in-progress",
        PageKind.CHECKPOINT,
        "/ui/jobs/jruntime/runs/rruntime/checkpoints/24",
        "#cp-acks-graph .scatterlayer path",
    ),
    Example("checkpoint-wide", PageKind.CHECKPOINT, "/ui/jobs/jwide/runs/rwide/checkpoints/22?open=w1", _FRONT),
    Example(
        "checkpoint-large", PageKind.CHECKPOINT, f"{_LARGE_CHECKPOINT}?open=&t=6000", "#front-map circle", is_heavy=True
    ),
    Example(
        "checkpoint-spark",
        PageKind.CHECKPOINT,
        f"/ui/jobs/{BEHIND}/runs/r{BEHIND[1:]}/checkpoints/{FAILED_BATCH - 1}",
        "#cp-batch-graph .barlayer path",
    ),
    Example(
        "space-time",
        PageKind.SPACE_TIME,
        "/ui/jobs/jruntime/runs/rruntime/checkpoints/20/space-time",
        "#space-time-graph .scatterlayer path",
    ),
    Example(
        "space-time-flink",
        PageKind.SPACE_TIME,
        "/ui/jobs/jE/runs/rE/checkpoints/14/space-time",
        "#space-time-graph .scatterlayer path",
    ),
    Example(
        "comparison",
        PageKind.COMPARISON,
        "/ui/jobs/jruntime/compare?a=rruntime:23&b=rruntime:3&vertex=enrich",
        "#comparison-graph .barlayer path",
    ),
    Example("windows", PageKind.WINDOWS, "/ui/jobs/jE/compare-windows", "#windows-graph .scatterlayer .points path"),
    Example("targets", PageKind.TARGETS, "/ui/targets", "#targets-list table"),
    Example("lab-guide", PageKind.LAB_GUIDE, "/ui/lab/settings", ".lab-guide h3"),
    Example("lab", PageKind.LAB, f"/ui/lab{_SIMULATED}", "#lab-timeline-a-graph .points path", is_lazy=True),
    Example("alerts", PageKind.ALERTS, "/ui/alerts", ".incident"),
    Example("incident", PageKind.INCIDENT, "/ui/incidents/i1", "#incident-strip-graph .barlayer path"),
    Example("alert", PageKind.ALERT, "/ui/alerts/a1", "#alert-strip-graph .barlayer path"),
    Example("alert-rules", PageKind.ALERT_RULES, "/ui/alerts/rules", "#rules-list .rule-row"),
    Example("alert-receivers", PageKind.ALERT_RECEIVERS, "/ui/alerts/receivers", "#alerts-receivers tbody tr"),
    Example(
        "alert-silences",
        PageKind.ALERT_SILENCES,
        "/ui/alerts/silences?match=job_name%3Dpayments-settlement",
        "#silence-preview b",
    ),
    Example("runbook", PageKind.RUNBOOK, "/ui/runbooks/CheckpointExpired", ".runbook p"),
    Example("cause", PageKind.CAUSE, "/ui/causes/capacity", ".runbook p"),
    Example("unknown", PageKind.UNKNOWN, "/ui/nothing", ".empty-state h1"),
    # The last one, because it leaves the application.
    Example("login", None, LOGIN_PATH, "#token"),
)


def every_page_api(now: Callable[[], datetime], made: type[LargeJobApi] = LargeJobApi) -> FakeApi:
    """Create a fake API with the content of all examples, of the class ``made``."""
    fake = add_spark(made(now=now))
    for name, url in (("on-call", "https://pager.example/hook"), ("pager", "http://down.example/hook")):
        body = {"name": name, "kind": "webhook", "url": url}
        fake.handle(httpx.Request("POST", "http://api.test/api/v1/receivers", json=body))
    simulated = lab_address.request_of(lab_address.parse(_SIMULATED).wanted)
    assert isinstance(simulated, SimulationIn)
    fake.simulations.add_completed(simulated)
    urgent = (Health.FAILING, Health.SLOW, Health.TOO_FEW, Health.HEALTHY)
    fake.jobs = dict(sorted(fake.jobs.items(), key=lambda item: urgent.index(item[1].detail.health)))
    return fake


def begin(page: Page, *, width: int, theme: str = "light") -> None:
    """Open the fleet at the time ``NOON``. ``show`` then opens pages without loading the application again."""
    clock_of(page).set_fixed_time(NOON)
    page.set_viewport_size({"width": width, "height": HEIGHT})
    count_requests(page)
    page.goto("/ui/")
    page.wait_for_selector(PAGES[0].shows)
    expect(page.locator("html")).to_have_attribute("data-mantine-color-scheme", theme)


def show(page: Page, example: Example) -> None:
    """Open the page of an example, and wait until it is drawn."""
    if example.kind is None:
        page.goto(example.path)
    else:
        go(page, example.path)
    if example.is_lazy:
        # The results may come after the page was scrolled through.
        until(lambda: _is_whole(page, example), "the charts that come into view are drawn")
        # What was passed before the results came is drawn now.
        show_whole(page)
    page.wait_for_selector(example.shows, state="attached")
    settle(page)


def _is_whole(page: Page, example: Example) -> bool:
    show_whole(page)
    return page.query_selector(example.shows) is not None


def show_complete(page: Page, example: Example) -> None:
    """Open the page of an example as ``show`` does, and wait until its charts far below the window are drawn too."""
    show(page, example)
    # Before a page is printed, it draws every chart at once.
    page.evaluate("() => { window.dispatchEvent(new Event('beforeprint')); }")
    settle(page)


def resize(page: Page, example: Example, width: int) -> None:
    """Change the width of the window, and wait until the page is drawn again."""
    page.set_viewport_size({"width": width, "height": HEIGHT})
    settle(page)
    if example.is_lazy:
        show_whole(page)
