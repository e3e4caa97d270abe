"""Reads and writes the address of a job's backpressure over time, which holds its range, vertex and measure."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from backend.domain.pressure import PressureMeasure
from dashboard.query_strings import first_values, number


@dataclass(frozen=True, slots=True)
class PressureView:
    """What the viewer chose on the page of pressure."""

    vertex: str | None = None
    """Id of the vertex whose subtasks are shown. None means that no vertex is opened."""
    share: PressureMeasure = PressureMeasure.BACKPRESSURED
    """The share of time of subtasks that the page shows."""
    since_ms: int | None = None
    """Start of the range, in epoch milliseconds, included."""
    until_ms: int | None = None
    """End of the range, in epoch milliseconds, included."""
    last: str | None = None
    """The name of the length of a range up to now. None means the default."""


def parse(search: str | None) -> PressureView:
    """Return what the query string of an address holds."""
    query = first_values(search)
    return PressureView(
        vertex=query.get("vertex"),
        share=share_of(query.get("measure")),
        since_ms=number(query.get("from"), 13),
        until_ms=number(query.get("to"), 13),
        last=query.get("last"),
    )


def query_of(view: PressureView) -> str:
    """Return the query string of the choices, or an empty string if everything has its default."""
    pairs = [("vertex", view.vertex), ("from", view.since_ms), ("to", view.until_ms), ("last", view.last)]
    known = [(name, str(value)) for name, value in pairs if value is not None]
    if view.share is not PressureMeasure.BACKPRESSURED:
        known.append(("measure", view.share.value))
    return "?" + urlencode(known) if known else ""


def share_of(value: str | None) -> PressureMeasure:
    """Return the measure called ``value``, or the back-pressured time if there is no measure of that name."""
    return PressureMeasure(value) if value in set(PressureMeasure) else PressureMeasure.BACKPRESSURED
