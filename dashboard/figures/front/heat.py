"""Computes the heat of the barrier front: one value for each vertex or subtask, shown as its fill.

The ring around a vertex still shows the states of its subtasks. A missing value has no fill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboard import text
from dashboard.checkpoint_address import Heat
from dashboard.figures.front.readings import Reading
from dashboard.figures.front.times import Front, FrontVertex, SubtaskTimes

SHADES = ("#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838")
"""The colours of the scale cividis, from the smallest to the largest value. Viewers with the common kinds of colour
blindness can distinguish them."""

WORDS: Mapping[Heat, str] = {
    Heat.NONE: "none",
    Heat.START_DELAY: "start delay",
    Heat.ALIGNMENT: "alignment",
    Heat.PRESSURE: "backpressure",
    Heat.SKEW: "skew of records",
}
HINTS: Mapping[Heat, str] = {
    Heat.START_DELAY: "largest start delay of a subtask",
    Heat.ALIGNMENT: "longest alignment of a subtask",
    Heat.PRESSURE: "largest backpressured share of a subtask at this time",
    Heat.SKEW: "most records that a subtask read, divided by the mean",
}


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The values of one heat and the ends of its scale."""

    heat: Heat
    by_vertex: Mapping[str, float]
    low: float
    high: float

    def shade(self, value: float) -> int:
        """Return the index of the colour of ``value`` in ``SHADES``."""
        share = (value - self.low) / (self.high - self.low)
        return min(len(SHADES) - 1, max(0, int(share * len(SHADES))))

    def words(self, value: float | None) -> str:
        """Return a value with its unit."""
        if value is None:
            return text.MISSING
        if self.heat is Heat.PRESSURE:
            return text.percent(value)
        return f"{text.factor(value)} ×" if self.heat is Heat.SKEW else text.duration(round(value))


def heat_map(front: Front, heat: Heat, readings: Mapping[str, Reading]) -> HeatMap | None:
    """Return the values of ``heat``, or None if the viewer chose none."""
    if heat is Heat.NONE:
        return None
    # A fold has the largest value of its vertices.
    largest = {v.vertex_id: _largest(v, heat, readings) for v in front.vertices}
    known = {vertex: value for vertex, value in largest.items() if value is not None}
    low = 1.0 if heat is Heat.SKEW else 0.0
    most = max(known.values(), default=low)
    high = {Heat.PRESSURE: 1.0, Heat.SKEW: max(2.0, most)}.get(heat, max(1.0, most))
    return HeatMap(heat, known, low, high)


def of_subtask(s: SubtaskTimes, heat: Heat) -> float | None:
    """Return the heat of one subtask. Backpressure and skew are known for whole vertices only."""
    return {Heat.START_DELAY: s.start_delay_ms, Heat.ALIGNMENT: s.alignment_ms}.get(heat)


def _largest(vertex: FrontVertex, heat: Heat, readings: Mapping[str, Reading]) -> float | None:
    if heat in (Heat.START_DELAY, Heat.ALIGNMENT):
        return _max([of_subtask(s, heat) for s in vertex.subtasks])
    own = [readings[v] for v in vertex.folded or (vertex.vertex_id,) if v in readings]
    return _max([r.backpressured_ratio if heat is Heat.PRESSURE else r.skew_ratio for r in own])


def _max(values: Sequence[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)
