"""Builds and parses the addresses of pages.

An address contains job, run, checkpoint and the viewer's selection, so it is a permalink. Identifiers are opaque:
they are quoted in an address and never interpreted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from urllib.parse import parse_qs, quote, unquote, urlencode

from backend.domain.pressure import PressureMeasure
from dashboard import (
    checkpoint_address,
    compare_address,
    fleet_address,
    incidents_address,
    job_address,
    lab_address,
    pressure_address,
    space_time_address,
    whatif_address,
)

BASE = "/ui/"


class PageKind(StrEnum):
    """The kinds of pages."""

    FLEET = "fleet"
    JOB = "job"
    ADVICE = "advice"
    WHAT_IF = "what-if"
    BACKTEST = "backtest"
    PRESSURE = "pressure"
    CHECKPOINT = "checkpoint"
    SPACE_TIME = "space-time"
    COMPARISON = "comparison"
    WINDOWS = "windows"
    TARGETS = "targets"
    LAB = "lab"
    ALERTS = "alerts"
    ALERT = "alert"
    ALERT_RULES = "alert-rules"
    ALERT_RECEIVERS = "alert-receivers"
    ALERT_SILENCES = "alert-silences"
    INCIDENT = "incident"
    RUNBOOK = "runbook"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Route:
    """A page, and what it shows: the identifiers in its address and the viewer's selection."""

    page: PageKind
    job: str | None = None
    run: str | None = None
    checkpoint: int | None = None
    fleet: fleet_address.FleetView = field(default_factory=fleet_address.FleetView)
    job_view: job_address.JobView = field(default_factory=job_address.JobView)
    checkpoint_view: checkpoint_address.CheckpointView = field(default_factory=checkpoint_address.CheckpointView)
    pressure: pressure_address.PressureView = field(default_factory=pressure_address.PressureView)
    alert: str | None = None
    rule: str | None = None
    incident: str | None = None
    incidents: incidents_address.IncidentList = field(default_factory=incidents_address.IncidentList)
    matchers: str = ""
    """The matchers with which the form for a silence begins."""
    compared: compare_address.Compared = field(default_factory=compare_address.Compared)
    windows: compare_address.Windows = field(default_factory=compare_address.Windows)
    space_time: space_time_address.SpaceTime = field(default_factory=space_time_address.SpaceTime)
    lab: lab_address.Lab = field(default_factory=lab_address.Lab)
    what_if: whatif_address.WhatIfView = field(default_factory=whatif_address.WhatIfView)
    backtest: str | None = None
    """Id of the shown backtest."""


def parse(pathname: str | None, search: str | None = None) -> Route:
    """Return the route at an address. Its ``page`` is ``UNKNOWN`` if there is no such page."""
    path = (pathname or BASE).rstrip("/") + "/"
    if not path.startswith(BASE):
        return Route(PageKind.UNKNOWN)
    parts = [unquote(p) for p in path[len(BASE) :].split("/") if p]
    match parts:
        case []:
            return Route(PageKind.FLEET, fleet=fleet_address.parse(search))
        case ["targets"]:
            return Route(PageKind.TARGETS)
        case ["lab"]:
            return Route(PageKind.LAB, lab=lab_address.parse(search))
        case ["alerts"]:
            return Route(PageKind.ALERTS, incidents=incidents_address.parse(search))
        case ["alerts", "rules"]:
            return Route(PageKind.ALERT_RULES)
        case ["alerts", "receivers"]:
            return Route(PageKind.ALERT_RECEIVERS)
        case ["alerts", "silences"]:
            matchers = parse_qs((search or "").lstrip("?")).get("match", [""])[0]
            return Route(PageKind.ALERT_SILENCES, matchers=matchers)
        case ["incidents", incident]:
            return Route(PageKind.INCIDENT, incident=incident)
        case ["alerts", alert]:
            return Route(PageKind.ALERT, alert=alert)
        case ["runbooks", rule]:
            return Route(PageKind.RUNBOOK, rule=rule)
        case ["jobs", job]:
            return Route(PageKind.JOB, job=job, job_view=job_address.parse(search))
        case ["jobs", job, "advice"]:
            return Route(PageKind.ADVICE, job=job)
        case ["jobs", job, "whatif"]:
            return Route(PageKind.WHAT_IF, job=job, what_if=whatif_address.parse(search))
        case ["jobs", job, "backtest"]:
            return Route(PageKind.BACKTEST, job=job, backtest=parse_qs((search or "").lstrip("?")).get("id", [None])[0])
        case ["jobs", job, "pressure"]:
            return Route(PageKind.PRESSURE, job=job, pressure=pressure_address.parse(search))
        case ["jobs", job, "compare"]:
            return Route(PageKind.COMPARISON, job=job, compared=compare_address.compared(search))
        case ["jobs", job, "compare-windows"]:
            return Route(PageKind.WINDOWS, job=job, windows=compare_address.windows(search))
        case ["jobs", job, "runs", run, "checkpoints", number] if number.isdecimal() and number.isascii():
            view = checkpoint_address.parse(search)
            return Route(PageKind.CHECKPOINT, job=job, run=run, checkpoint=int(number), checkpoint_view=view)
        case ["jobs", job, "runs", run, "checkpoints", number, "space-time"] if number.isdecimal() and number.isascii():
            chosen = space_time_address.parse(search)
            return Route(PageKind.SPACE_TIME, job=job, run=run, checkpoint=int(number), space_time=chosen)
        case _:
            return Route(PageKind.UNKNOWN)


def fleet() -> str:
    """Return the address of the fleet page."""
    return BASE


def targets() -> str:
    """Return the address of the page of targets."""
    return BASE + "targets"


def lab() -> str:
    """Return the address of the Lab page, without a request."""
    return BASE + "lab"


def alerts(view: incidents_address.IncidentList | None = None) -> str:
    """Return the address of the list of incidents, with these filters."""
    return BASE + "alerts" + ("" if view is None else incidents_address.query_of(view))


def alert_rules() -> str:
    """Return the address of the alert rules."""
    return BASE + "alerts/rules"


def alert_receivers() -> str:
    """Return the address of the receivers of alerts."""
    return BASE + "alerts/receivers"


def alert_silences(matchers: str = "") -> str:
    """Return the address of the silences. ``matchers`` fill the form."""
    return BASE + "alerts/silences" + ("?" + urlencode({"match": matchers}) if matchers else "")


def incident(incident_id: str) -> str:
    """Return the address of one incident."""
    return f"{BASE}incidents/{_quote(incident_id)}"


def alert(alert_id: str) -> str:
    """Return the address of one alert."""
    return f"{BASE}alerts/{_quote(alert_id)}"


def runbook(rule: str) -> str:
    """Return the address of a rule's runbook."""
    return f"{BASE}runbooks/{_quote(rule)}"


def job(job_id: str) -> str:
    """Return the address of a job."""
    return f"{BASE}jobs/{_quote(job_id)}"


def advice(job_id: str) -> str:
    """Return the address of the recommendations for a job."""
    return f"{job(job_id)}/advice"


def what_if(job_id: str, settings: Mapping[str, str] | None = None) -> str:
    """Return the address of the what-ifs on a job, with these changed settings."""
    return f"{job(job_id)}/whatif" + whatif_address.query_of(settings or {})


def backtest(job_id: str, backtest_id: str | None = None) -> str:
    """Return the address of a job's backtest; without an id, of the page that starts one."""
    return f"{job(job_id)}/backtest" + ("" if backtest_id is None else "?" + urlencode({"id": backtest_id}))


def pressure(
    job_id: str,
    *,
    vertex: str | None = None,
    share: PressureMeasure = PressureMeasure.BACKPRESSURED,
    ends_ms: tuple[int, int] | None = None,
    last: str | None = None,
) -> str:
    """Return the address of a job's backpressure over time, optionally with a vertex opened.

    ``ends_ms`` is the range in epoch milliseconds, and ``last`` the name of a length up to now. Without them, the page
    shows the newest hour.
    """
    since_ms, until_ms = ends_ms or (None, None)
    view = pressure_address.PressureView(vertex, share, since_ms, until_ms, last)
    return f"{job(job_id)}/pressure" + pressure_address.query_of(view)


def checkpoint(
    job_id: str, run_id: str, checkpoint_id: int, view: checkpoint_address.CheckpointView | None = None
) -> str:
    """Return the address of a checkpoint, with these choices of its page."""
    query = "" if view is None else checkpoint_address.query_of(view)
    return f"{job(job_id)}/runs/{_quote(run_id)}/checkpoints/{checkpoint_id}" + query


def space_time(job_id: str, run_id: str, checkpoint_id: int) -> str:
    """Return the address of the space-time diagram of a checkpoint."""
    return f"{checkpoint(job_id, run_id, checkpoint_id)}/space-time"


def comparison(
    job_id: str, a: tuple[str, int] | None = None, b: tuple[str, int] | None = None, *, other: str | None = None
) -> str:
    """Return the address of the comparison of two checkpoints, each given by its run and its number.

    Without ``b``, ``a`` is compared with the last healthy checkpoint before it. ``other`` is the job of ``b``.
    """
    return f"{job(job_id)}/compare" + compare_address.compared_query(a, b, other)


def windows(
    job_id: str, before: tuple[datetime, datetime], after: tuple[datetime, datetime], *, other: str | None = None
) -> str:
    """Return the address of the comparison of two windows of time. ``other`` is the job of the window before."""
    return f"{job(job_id)}/compare-windows" + compare_address.windows_query(before, after, other)


def windows_around(job_id: str, at: datetime, width: timedelta = timedelta(hours=1)) -> str:
    """Return the address of the comparison of the time before an instant with the time after it."""
    return windows(job_id, (at - width, at), (at, at + width))


def newest_hour(job_id: str, *, other: str | None = None) -> str:
    """Return the address of the comparison of the newest hour with that of ``other``, or else with yesterday."""
    return f"{job(job_id)}/compare-windows" + compare_address.against_query(other)


def from_api_link(link: str | None) -> str | None:
    """Convert a checkpoint's path in the API to the address of its page; return None for any other path."""
    marker = "/api/v1/"
    if not link or marker not in link:
        return None
    route = parse(BASE + link.split(marker, 1)[1])
    if route.page is not PageKind.CHECKPOINT or route.job is None or route.run is None or route.checkpoint is None:
        return None
    return checkpoint(route.job, route.run, route.checkpoint)


def _quote(part: str) -> str:
    return quote(part, safe="")
