"""Reads the address of a job's page, which holds the range of its timeline and the choices of its heatmap."""

from __future__ import annotations

from dataclasses import dataclass

from backend.contracts.subtask_matrix import MatrixGroup
from backend.domain.checkpoint import SubtaskMeasure
from dashboard.query_strings import first_values, number
from dashboard.span import WINDOWS


@dataclass(frozen=True, slots=True)
class JobView:
    """What the viewer chose on the page of a job."""

    since_ms: int | None = None
    """Start of the range chosen on the timeline, in epoch milliseconds, included. None means no limit."""
    until_ms: int | None = None
    """End of the range chosen on the timeline, in epoch milliseconds, included. None means no limit."""
    window: str | None = None
    """The name of a range up to now, one of ``span.WINDOWS``. It replaces the two limits."""
    is_log: bool = False
    """Whether the durations on the timeline have a logarithmic axis."""
    measure: SubtaskMeasure = SubtaskMeasure.DURATION
    """The measure that the heatmap shows."""
    heat_vertex: str | None = None
    """Id of the vertex whose subtasks the heatmap shows. None means all vertices."""
    heat_group: MatrixGroup = MatrixGroup.VERTEX
    """What the rows of the heatmap are sorted by."""
    is_heat_log: bool = False
    """Whether the colour scale of the heatmap is logarithmic."""

    @property
    def has_ends(self) -> bool:
        """Whether the range on the timeline has a start or an end."""
        return self.since_ms is not None or self.until_ms is not None


def parse(search: str | None) -> JobView:
    """Return the choices in the query string of an address. Invalid values are ignored."""
    query = first_values(search, keeps_empty=True)
    window = query.get("range")
    return JobView(
        since_ms=number(query.get("from"), 13),
        until_ms=number(query.get("to"), 13),
        window=window if window in WINDOWS else None,
        is_log=query.get("log") == "1",
        measure=measure_of(query.get("measure")),
        heat_vertex=query.get("vertex") or None,
        heat_group=MatrixGroup.HOST if query.get("rows") == MatrixGroup.HOST else MatrixGroup.VERTEX,
        is_heat_log=query.get("heat-scale") == "log",
    )


def measure_of(value: str | None) -> SubtaskMeasure:
    """Return the measure called ``value``, or the duration if there is no measure of that name."""
    return SubtaskMeasure(value) if value in set(SubtaskMeasure) else SubtaskMeasure.DURATION
