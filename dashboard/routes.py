"""Builds and parses the addresses of pages.

An address contains job, run, checkpoint and the viewer's selection, so it is a permalink. Identifiers are opaque:
they are quoted in an address and never interpreted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

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
    targets_address,
    whatif_address,
)
from dashboard.query_strings import first_values, number

BASE = "/ui/"
# Flink numbers checkpoints in 64 bits.
_DIGITS_MAX = 19


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
    LAB_GUIDE = "lab-guide"
    ALERTS = "alerts"
    ALERT = "alert"
    ALERT_RULES = "alert-rules"
    ALERT_RECEIVERS = "alert-receivers"
    ALERT_SILENCES = "alert-silences"
    INCIDENT = "incident"
    RUNBOOK = "runbook"
    CAUSE = "cause"
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
    cause: str | None = None
    incident: str | None = None
    incidents: incidents_address.IncidentList = field(default_factory=incidents_address.IncidentList)
    targets: targets_address.TargetList = field(default_factory=targets_address.TargetList)
    matchers: str = ""
    """The matchers with which the form for a silence begins."""
    compared: compare_address.Compared = field(default_factory=compare_address.Compared)
    windows: compare_address.Windows = field(default_factory=compare_address.Windows)
    space_time: space_time_address.SpaceTime = field(default_factory=space_time_address.SpaceTime)
    lab: lab_address.Lab = field(default_factory=lab_address.Lab)
    what_if: whatif_address.WhatIfView = field(default_factory=whatif_address.WhatIfView)
    backtest: str | None = None
    """Id of the shown backtest."""


@dataclass(frozen=True, slots=True)
class _Address:
    """The address of a page: its path, which names fields of the route in braces, and the reader of its query string.

    The reader returns the fields of the route that the query string holds.
    """

    path: str
    read: Callable[[str | None], Mapping[str, Any]] = lambda _search: {}

    def names(self, parts: Sequence[str]) -> dict[str, Any] | None:
        """Return the fields of the route that the parts of a path hold, or None if it is the path of another page."""
        pattern = _parts(self.path)
        pairs = list(zip(pattern, parts, strict=False))
        if len(pattern) != len(parts) or any(part != given and part[0] != "{" for part, given in pairs):
            return None
        named: dict[str, Any] = {part[1:-1]: given for part, given in pairs if part[0] == "{"}
        if "checkpoint" in named:
            named["checkpoint"] = number(named["checkpoint"], _DIGITS_MAX)
            if named["checkpoint"] is None:
                return None
        return named


# A path without names comes before those that it would match.
_ADDRESSES: Final[Mapping[PageKind, _Address]] = {
    PageKind.FLEET: _Address("", lambda search: {"fleet": fleet_address.parse(search)}),
    PageKind.TARGETS: _Address("targets", lambda search: {"targets": targets_address.parse(search)}),
    PageKind.LAB: _Address("lab", lambda search: {"lab": lab_address.parse(search)}),
    PageKind.LAB_GUIDE: _Address("lab/settings"),
    PageKind.ALERTS: _Address("alerts", lambda search: {"incidents": incidents_address.parse(search)}),
    PageKind.ALERT_RULES: _Address("alerts/rules"),
    PageKind.ALERT_RECEIVERS: _Address("alerts/receivers"),
    PageKind.ALERT_SILENCES: _Address(
        "alerts/silences", lambda search: {"matchers": first_values(search).get("match", "")}
    ),
    PageKind.ALERT: _Address("alerts/{alert}"),
    PageKind.INCIDENT: _Address("incidents/{incident}"),
    PageKind.RUNBOOK: _Address("runbooks/{rule}"),
    PageKind.CAUSE: _Address("causes/{cause}"),
    PageKind.JOB: _Address("jobs/{job}", lambda search: {"job_view": job_address.parse(search)}),
    PageKind.ADVICE: _Address("jobs/{job}/advice"),
    PageKind.WHAT_IF: _Address("jobs/{job}/whatif", lambda search: {"what_if": whatif_address.parse(search)}),
    PageKind.BACKTEST: _Address("jobs/{job}/backtest", lambda search: {"backtest": first_values(search).get("id")}),
    PageKind.PRESSURE: _Address("jobs/{job}/pressure", lambda search: {"pressure": pressure_address.parse(search)}),
    PageKind.COMPARISON: _Address("jobs/{job}/compare", lambda search: {"compared": compare_address.compared(search)}),
    PageKind.WINDOWS: _Address(
        "jobs/{job}/compare-windows", lambda search: {"windows": compare_address.windows(search)}
    ),
    PageKind.CHECKPOINT: _Address(
        "jobs/{job}/runs/{run}/checkpoints/{checkpoint}",
        lambda search: {"checkpoint_view": checkpoint_address.parse(search)},
    ),
    PageKind.SPACE_TIME: _Address(
        "jobs/{job}/runs/{run}/checkpoints/{checkpoint}/space-time",
        lambda search: {"space_time": space_time_address.parse(search)},
    ),
}


def parse(pathname: str | None, search: str | None = None) -> Route:
    """Return the route at an address. Its ``page`` is ``UNKNOWN`` if there is no such page."""
    path = (pathname or BASE).rstrip("/") + "/"
    if not path.startswith(BASE):
        return Route(PageKind.UNKNOWN)
    parts = [unquote(part) for part in _parts(path[len(BASE) :])]
    for page, address in _ADDRESSES.items():
        if (names := address.names(parts)) is not None:
            return Route(page, **names, **address.read(search))
    return Route(PageKind.UNKNOWN)


def _path(page: PageKind, **names: object) -> str:
    return BASE + _ADDRESSES[page].path.format(**{name: quote(str(value), safe="") for name, value in names.items()})


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def fleet() -> str:
    """Return the address of the fleet page."""
    return _path(PageKind.FLEET)


def targets(view: targets_address.TargetList | None = None) -> str:
    """Return the address of the list of targets, as ``view`` has it."""
    return _path(PageKind.TARGETS) + ("" if view is None else targets_address.query_of(view))


def lab() -> str:
    """Return the address of the Lab page, without a request."""
    return _path(PageKind.LAB)


def alerts(view: incidents_address.IncidentList | None = None) -> str:
    """Return the address of the list of incidents, with these filters."""
    return _path(PageKind.ALERTS) + ("" if view is None else incidents_address.query_of(view))


def alert_rules() -> str:
    """Return the address of the alert rules."""
    return _path(PageKind.ALERT_RULES)


def alert_receivers() -> str:
    """Return the address of the receivers of alerts."""
    return _path(PageKind.ALERT_RECEIVERS)


def alert_silences(matchers: str = "") -> str:
    """Return the address of the silences. ``matchers`` fill the form."""
    return _path(PageKind.ALERT_SILENCES) + ("?" + urlencode({"match": matchers}) if matchers else "")


def incident(incident_id: str) -> str:
    """Return the address of one incident."""
    return _path(PageKind.INCIDENT, incident=incident_id)


def alert(alert_id: str) -> str:
    """Return the address of one alert."""
    return _path(PageKind.ALERT, alert=alert_id)


def runbook(rule: str) -> str:
    """Return the address of a rule's runbook."""
    return _path(PageKind.RUNBOOK, rule=rule)


def setting_anchor(key: str) -> str:
    """Return the id of the explanation of a setting. Ids of components have no dots."""
    return f"setting-{key.replace('.', '-')}"


def lab_guide(key: str) -> str:
    """Return the address of the explanation of a setting of the Lab."""
    return f"{_path(PageKind.LAB_GUIDE)}#{setting_anchor(key)}"


def cause(kind: str) -> str:
    """Return the address of the page of a cause."""
    return _path(PageKind.CAUSE, cause=kind)


def job(job_id: str) -> str:
    """Return the address of a job."""
    return _path(PageKind.JOB, job=job_id)


def advice(job_id: str) -> str:
    """Return the address of the recommendations for a job."""
    return _path(PageKind.ADVICE, job=job_id)


def what_if(job_id: str, settings: Mapping[str, str] | None = None) -> str:
    """Return the address of the what-ifs on a job, with these changed settings."""
    return _path(PageKind.WHAT_IF, job=job_id) + whatif_address.query_of(settings or {})


def backtest(job_id: str, backtest_id: str | None = None) -> str:
    """Return the address of a job's backtest; without an id, of the page that starts one."""
    return _path(PageKind.BACKTEST, job=job_id) + ("" if backtest_id is None else "?" + urlencode({"id": backtest_id}))


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
    return _path(PageKind.PRESSURE, job=job_id) + pressure_address.query_of(view)


def checkpoint(
    job_id: str, run_id: str, checkpoint_id: int, view: checkpoint_address.CheckpointView | None = None
) -> str:
    """Return the address of a checkpoint, with these choices of its page."""
    query = "" if view is None else checkpoint_address.query_of(view)
    return _path(PageKind.CHECKPOINT, job=job_id, run=run_id, checkpoint=checkpoint_id) + query


def space_time(job_id: str, run_id: str, checkpoint_id: int) -> str:
    """Return the address of the space-time diagram of a checkpoint."""
    return _path(PageKind.SPACE_TIME, job=job_id, run=run_id, checkpoint=checkpoint_id)


def comparison(
    job_id: str, a: tuple[str, int] | None = None, b: tuple[str, int] | None = None, *, other: str | None = None
) -> str:
    """Return the address of the comparison of two checkpoints, each given by its run and its number.

    Without ``b``, ``a`` is compared with the last healthy checkpoint before it. ``other`` is the job of ``b``.
    """
    return _path(PageKind.COMPARISON, job=job_id) + compare_address.compared_query(a, b, other)


def windows(
    job_id: str, before: tuple[datetime, datetime], after: tuple[datetime, datetime], *, other: str | None = None
) -> str:
    """Return the address of the comparison of two windows of time. ``other`` is the job of the window before."""
    return _path(PageKind.WINDOWS, job=job_id) + compare_address.windows_query(before, after, other)


def windows_around(job_id: str, at: datetime, width: timedelta = timedelta(hours=1)) -> str:
    """Return the address of the comparison of the time before an instant with the time after it."""
    return windows(job_id, (at - width, at), (at, at + width))


def newest_hour(job_id: str, *, other: str | None = None) -> str:
    """Return the address of the comparison of the newest hour with that of ``other``, or else with yesterday."""
    return _path(PageKind.WINDOWS, job=job_id) + compare_address.against_query(other)


def from_api_link(link: str | None) -> str | None:
    """Convert a checkpoint's path in the API to the address of its page; return None for any other path."""
    marker = "/api/v1/"
    if not link or marker not in link:
        return None
    route = parse(BASE + link.split(marker, 1)[1])
    if route.page is not PageKind.CHECKPOINT or route.job is None or route.run is None or route.checkpoint is None:
        return None
    return checkpoint(route.job, route.run, route.checkpoint)
