"""Builds and parses the addresses of pages. An address holds job, run, checkpoint and selection: it is a permalink.

Identifiers are opaque. They are quoted in an address and never interpreted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import parse_qs, quote, unquote, urlencode

BASE = "/ui/"


class PageKind(StrEnum):
    """The kinds of pages."""

    FLEET = "fleet"
    JOB = "job"
    ADVICE = "advice"
    CHECKPOINT = "checkpoint"
    TARGETS = "targets"
    ALERTS = "alerts"
    ALERT = "alert"
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


@dataclass(frozen=True, slots=True)
class Selection:
    """What the viewer chose on a page."""

    opened: tuple[str, ...] | None = None
    """Ids of the vertices whose subtasks are shown. None: the vertex that the verdict names."""
    sort: SubtaskOrder = SubtaskOrder.INDEX
    at_ms: int | None = None
    """Position of the scrubber, in milliseconds since the trigger."""
    picked: str | None = None
    """The picked subtask, as ``vertex id:subtask``."""
    since_ms: int | None = None
    """Start of the chosen range on a job's timeline, in epoch milliseconds, included. None: no limit."""
    until_ms: int | None = None
    """End of that range, included."""


@dataclass(frozen=True, slots=True)
class Route:
    """A page and what it shows."""

    page: PageKind
    job: str | None = None
    run: str | None = None
    checkpoint: int | None = None
    selection: Selection = field(default_factory=Selection)
    alert: str | None = None
    rule: str | None = None


def parse(pathname: str | None, search: str | None = None) -> Route:
    """The route at an address; its ``page`` is ``UNKNOWN`` if there is no such page."""
    path = (pathname or BASE).rstrip("/") + "/"
    if not path.startswith(BASE):
        return Route(PageKind.UNKNOWN)
    parts = [unquote(p) for p in path[len(BASE) :].split("/") if p]
    match parts:
        case []:
            return Route(PageKind.FLEET)
        case ["targets"]:
            return Route(PageKind.TARGETS)
        case ["alerts"]:
            return Route(PageKind.ALERTS)
        case ["alerts", alert]:
            return Route(PageKind.ALERT, alert=alert)
        case ["runbooks", rule]:
            return Route(PageKind.RUNBOOK, rule=rule)
        case ["jobs", job]:
            return Route(PageKind.JOB, job=job, selection=_selection(search))
        case ["jobs", job, "advice"]:
            return Route(PageKind.ADVICE, job=job)
        case ["jobs", job, "runs", run, "checkpoints", number] if number.isdecimal() and number.isascii():
            return Route(PageKind.CHECKPOINT, job=job, run=run, checkpoint=int(number), selection=_selection(search))
        case _:
            return Route(PageKind.UNKNOWN)


def _selection(search: str | None) -> Selection:
    query = parse_qs((search or "").lstrip("?"), keep_blank_values=True)

    def first(key: str) -> str | None:
        return query.get(key, [None])[0]

    def number(key: str, digits_max: int) -> int | None:
        value = first(key)
        return int(value) if value and value.isascii() and value.isdecimal() and len(value) <= digits_max else None

    sort = first("sort")
    return Selection(
        opened=tuple(v for v in query["open"] if v) if "open" in query else None,
        sort=order_of(sort),
        at_ms=number("t", 11),
        picked=first("pick") or None,
        since_ms=number("from", 13),
        until_ms=number("to", 13),
    )


def order_of(value: str | None) -> SubtaskOrder:
    """The order called ``value``; by index if there is none of that name."""
    return SubtaskOrder(value) if value in set(SubtaskOrder) else SubtaskOrder.INDEX


def fleet() -> str:
    """The address of the fleet."""
    return BASE


def targets() -> str:
    """The address of the targets."""
    return BASE + "targets"


def alerts() -> str:
    """The address of the alerts."""
    return BASE + "alerts"


def alert(alert_id: str) -> str:
    """The address of one alert."""
    return f"{BASE}alerts/{_quote(alert_id)}"


def runbook(rule: str) -> str:
    """The address of a rule's runbook."""
    return f"{BASE}runbooks/{_quote(rule)}"


def job(job_id: str) -> str:
    """The address of a job."""
    return f"{BASE}jobs/{_quote(job_id)}"


def advice(job_id: str) -> str:
    """The address of the recommendations for a job."""
    return f"{job(job_id)}/advice"


def checkpoint(job_id: str, run_id: str, checkpoint_id: int) -> str:
    """The address of a checkpoint."""
    return f"{job(job_id)}/runs/{_quote(run_id)}/checkpoints/{checkpoint_id}"


def query(selection: Selection) -> str:
    """The query string of a selection; empty if everything has its default."""
    opened = selection.opened
    # An empty ``open`` means that no vertex is opened. Without it, the page opens the vertex that the verdict names.
    pairs: list[tuple[str, str]] = [] if opened is None else [("open", v) for v in opened or ("",)]
    if selection.sort is not SubtaskOrder.INDEX:
        pairs.append(("sort", selection.sort))
    if selection.at_ms is not None:
        pairs.append(("t", str(selection.at_ms)))
    if selection.picked:
        pairs.append(("pick", selection.picked))
    ends = (("from", selection.since_ms), ("to", selection.until_ms))
    pairs += [(name, str(value)) for name, value in ends if value is not None]
    return "?" + urlencode(pairs) if pairs else ""


def from_api_link(link: str | None) -> str | None:
    """The address of a checkpoint's page, given the checkpoint's path in the API; None for any other path."""
    marker = "/api/v1/"
    if not link or marker not in link:
        return None
    route = parse(BASE + link.split(marker, 1)[1])
    if route.page is not PageKind.CHECKPOINT or route.job is None or route.run is None or route.checkpoint is None:
        return None
    return checkpoint(route.job, route.run, route.checkpoint)


def _quote(part: str) -> str:
    return quote(part, safe="")
