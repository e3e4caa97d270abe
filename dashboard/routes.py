"""Builds and parses the addresses of pages.

An address contains job, run, checkpoint and the viewer's selection, so it is a permalink. Identifiers are opaque:
they are quoted in an address and never interpreted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from urllib.parse import parse_qs, quote, unquote, urlencode

from backend.contracts.subtask_matrix import MatrixGroup
from backend.domain.checkpoint import SubtaskMeasure
from backend.domain.pressure import PressureMeasure
from dashboard import compare_address, incidents_address, lab_address, space_time_address, whatif_address
from dashboard.span import WINDOWS

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


class SubtaskOrder(StrEnum):
    """The order of the subtasks of an opened vertex in the phase chart."""

    INDEX = "topology"
    FINISH = "finish"
    START_DELAY = "start-delay"
    ALIGNMENT = "alignment"
    ASYNC = "async"
    HOST = "host"


class Heat(StrEnum):
    """What fills the vertices of the barrier front."""

    NONE = "none"
    START_DELAY = "start-delay"
    ALIGNMENT = "alignment"
    PRESSURE = "pressure"
    SKEW = "skew"


@dataclass(frozen=True, slots=True)
class Selection:
    """What the viewer chose on a page."""

    opened: tuple[str, ...] | None = None
    """Ids of the vertices whose subtasks are shown. None means the default: the vertex that the verdict names."""
    sort: SubtaskOrder = SubtaskOrder.INDEX
    at_ms: int | None = None
    """Position of the scrubber, in milliseconds since the trigger."""
    picked: str | None = None
    """The picked subtask, as ``vertex id:subtask``."""
    heat: Heat = Heat.NONE
    """What fills the vertices of the barrier front."""
    found: str | None = None
    """Id of the vertex that the viewer searched for in the barrier front."""
    is_folded: bool = False
    """Whether the barrier front folds the vertices far from ``found``."""
    centre: tuple[float, float] | None = None
    """The middle of the visible part of a large barrier front, in the units of the drawing."""
    since_ms: int | None = None
    """Start of the range chosen on a job's timeline, in epoch milliseconds, included. None means no limit."""
    until_ms: int | None = None
    """End of the range chosen on a job's timeline, in epoch milliseconds, included. None means no limit."""
    window: str | None = None
    """The name of a range up to now, one of ``span.WINDOWS``. It replaces the two limits."""
    measure: SubtaskMeasure = SubtaskMeasure.DURATION
    """The measure that a job's heatmap shows."""
    heat_vertex: str | None = None
    """Id of the vertex whose subtasks a job's heatmap or its page of pressure shows. None means all vertices."""
    heat_group: MatrixGroup = MatrixGroup.VERTEX
    """What the rows of a job's heatmap are sorted by."""
    is_heat_log: bool = False
    """Whether the colour scale of a job's heatmap is logarithmic."""
    share: PressureMeasure = PressureMeasure.BACKPRESSURED
    """The share of time of subtasks that the page of pressure shows."""
    last: str | None = None
    """The name of the length of the range that the page of pressure shows. None means the default."""
    is_log: bool = False
    """Whether the durations on a job's timeline have a logarithmic axis."""
    has_ended: bool = False
    """Whether the fleet shows ended jobs."""
    column: str | None = None
    """The column by which the fleet is sorted. None means the most urgent job first."""
    is_descending: bool = False
    """Whether the fleet is sorted by ``column`` in descending order."""

    @property
    def has_ends(self) -> bool:
        """Whether the range on a job's timeline has a start or an end."""
        return self.since_ms is not None or self.until_ms is not None


@dataclass(frozen=True, slots=True)
class Route:
    """A page, and what it shows: the identifiers in its address and the viewer's selection."""

    page: PageKind
    job: str | None = None
    run: str | None = None
    checkpoint: int | None = None
    selection: Selection = field(default_factory=Selection)
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
            return Route(PageKind.FLEET, selection=_order_of_fleet(search))
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
            return Route(PageKind.JOB, job=job, selection=_selection(search))
        case ["jobs", job, "advice"]:
            return Route(PageKind.ADVICE, job=job)
        case ["jobs", job, "whatif"]:
            return Route(PageKind.WHAT_IF, job=job, what_if=whatif_address.parse(search))
        case ["jobs", job, "backtest"]:
            return Route(PageKind.BACKTEST, job=job, backtest=parse_qs((search or "").lstrip("?")).get("id", [None])[0])
        case ["jobs", job, "pressure"]:
            return Route(PageKind.PRESSURE, job=job, selection=_of_pressure(search))
        case ["jobs", job, "compare"]:
            return Route(PageKind.COMPARISON, job=job, compared=compare_address.compared(search))
        case ["jobs", job, "compare-windows"]:
            return Route(PageKind.WINDOWS, job=job, windows=compare_address.windows(search))
        case ["jobs", job, "runs", run, "checkpoints", number] if number.isdecimal() and number.isascii():
            return Route(PageKind.CHECKPOINT, job=job, run=run, checkpoint=int(number), selection=_selection(search))
        case ["jobs", job, "runs", run, "checkpoints", number, "space-time"] if number.isdecimal() and number.isascii():
            chosen = space_time_address.parse(search)
            return Route(PageKind.SPACE_TIME, job=job, run=run, checkpoint=int(number), space_time=chosen)
        case _:
            return Route(PageKind.UNKNOWN)


def _number(value: str | None, digits_max: int) -> int | None:
    return int(value) if value and value.isascii() and value.isdecimal() and len(value) <= digits_max else None


def _selection(search: str | None) -> Selection:
    query = parse_qs((search or "").lstrip("?"), keep_blank_values=True)

    def first(key: str) -> str | None:
        return query.get(key, [None])[0]

    def number(key: str, digits_max: int) -> int | None:
        return _number(first(key), digits_max)

    sort = first("sort")
    return Selection(
        opened=tuple(v for v in query["open"] if v) if "open" in query else None,
        sort=order_of(sort),
        at_ms=number("t", 11),
        picked=first("pick") or None,
        heat=heat_of(first("heat")),
        found=first("find") or None,
        is_folded=first("fold") == "1",
        centre=centre_of(first("view")),
        since_ms=number("from", 13),
        until_ms=number("to", 13),
        window=window if (window := first("range")) in WINDOWS else None,
        measure=measure_of(first("measure")),
        heat_vertex=first("vertex") or None,
        heat_group=MatrixGroup.HOST if first("rows") == MatrixGroup.HOST else MatrixGroup.VERTEX,
        is_heat_log=first("heat-scale") == "log",
        is_log=first("log") == "1",
    )


def _order_of_fleet(search: str | None) -> Selection:
    query = parse_qs((search or "").lstrip("?"))
    return Selection(
        column=query.get("sort", [None])[0],
        is_descending=query.get("desc") == ["1"],
        has_ended=query.get("ended") == ["1"],
    )


def _of_pressure(search: str | None) -> Selection:
    query = parse_qs((search or "").lstrip("?"))

    def first(key: str) -> str | None:
        return query.get(key, [None])[0]

    return Selection(
        heat_vertex=first("vertex"),
        share=share_of(first("measure")),
        last=first("last"),
        since_ms=_number(first("from"), 13),
        until_ms=_number(first("to"), 13),
    )


def share_of(value: str | None) -> PressureMeasure:
    """Return the measure called ``value``, or the back-pressured time if there is no measure of that name."""
    return PressureMeasure(value) if value in set(PressureMeasure) else PressureMeasure.BACKPRESSURED


def order_of(value: str | None) -> SubtaskOrder:
    """Return the order called ``value``, or the order by index if there is no order of that name."""
    return SubtaskOrder(value) if value in set(SubtaskOrder) else SubtaskOrder.INDEX


def heat_of(value: str | None) -> Heat:
    """Return the heat called ``value``, or none if there is no heat of that name."""
    return Heat(value) if value in set(Heat) else Heat.NONE


def centre_of(value: str | None) -> tuple[float, float] | None:
    """Return the two numbers in ``value``, such as ``1200,-380``, or None if it is something else."""
    found = re.fullmatch(r"(-?[0-9]{1,7}),(-?[0-9]{1,7})", value or "", re.ASCII)
    return None if found is None else (float(found[1]), float(found[2]))


def measure_of(value: str | None) -> SubtaskMeasure:
    """Return the measure called ``value``, or the duration if there is no measure of that name."""
    return SubtaskMeasure(value) if value in set(SubtaskMeasure) else SubtaskMeasure.DURATION


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
    pairs = [("vertex", vertex), ("from", since_ms), ("to", until_ms), ("last", last)]
    known = [(name, str(value)) for name, value in pairs if value is not None]
    if share is not PressureMeasure.BACKPRESSURED:
        known.append(("measure", share.value))
    return f"{job(job_id)}/pressure" + ("?" + urlencode(known) if known else "")


def checkpoint(job_id: str, run_id: str, checkpoint_id: int) -> str:
    """Return the address of a checkpoint."""
    return f"{job(job_id)}/runs/{_quote(run_id)}/checkpoints/{checkpoint_id}"


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


def query(selection: Selection) -> str:
    """Return the query string of a selection, or an empty string if everything has its default."""
    opened = selection.opened
    # An empty ``open`` means that no vertex is open. If ``open`` is missing, the page opens the vertex that the
    # verdict names.
    pairs: list[tuple[str, str]] = [] if opened is None else [("open", v) for v in opened or ("",)]
    if selection.sort is not SubtaskOrder.INDEX:
        pairs.append(("sort", selection.sort))
    if selection.at_ms is not None:
        pairs.append(("t", str(selection.at_ms)))
    if selection.picked:
        pairs.append(("pick", selection.picked))
    if selection.heat is not Heat.NONE:
        pairs.append(("heat", selection.heat))
    if selection.found:
        pairs.append(("find", selection.found))
    if selection.is_folded:
        pairs.append(("fold", "1"))
    ends = (("from", selection.since_ms), ("to", selection.until_ms))
    pairs += [(name, str(value)) for name, value in ends if value is not None]
    if selection.is_log:
        pairs.append(("log", "1"))
    return "?" + urlencode(pairs) if pairs else ""


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
