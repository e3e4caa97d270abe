"""V4: draws the space-time diagram of a checkpoint: a lane for each subtask, with the time to the right.

Arrows are barriers on channels. A line through all snapshots is the cut: the state of the checkpoint is what happened
before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backend.contracts.space_time import SpaceTimeOut
from dashboard.figures.base import Chart, axis, empty, labels_above, layout, note
from dashboard.figures.space_time import marks, words
from dashboard.palette import Theme

HEIGHT_PX = 420
_BELOW_PX, _ABOVE_PX = 44, 12
_NAME_MAX = 24
_NOTHING = "No times of this checkpoint are known yet."


@dataclass(frozen=True, slots=True)
class View:
    """How the diagram is shown."""

    theme: Theme
    is_narrow: bool = False
    ends_ms: tuple[float, float] | None = None
    """The shown range, in milliseconds since the trigger. None means all of it."""
    at_ms: float | None = None
    """The instant that the viewer marked."""
    axis_ms: float = 0.0
    """Without ``ends_ms``, the axis goes at least to this time, which a diagram beside this one needs."""


def space_time(diagram: SpaceTimeOut, view: View, *, revision: str) -> Chart:
    """Draw the diagram. The ``customdata`` of a mark is ``[vertex id, subtask or null]``."""
    if all(lane.first_ms is None for lane in diagram.lanes):
        return empty(view.theme, _NOTHING)
    theme = view.theme
    row_px = _row_px(len(diagram.lanes), is_narrow=view.is_narrow)
    height_px = _ABOVE_PX + _BELOW_PX + row_px * len(diagram.lanes)
    whole_ms = max(diagram.end_ms, view.axis_ms)
    begin, end = view.ends_ms or (-0.01 * whole_ms, 1.02 * whole_ms)
    ticks, tick_words = _ticks(max(begin, 0.0), end)
    return Chart(
        {
            "data": [
                *marks.stretches(diagram, theme),
                *marks.arrows(diagram, theme),
                *marks.cut(diagram, theme),
                *marks.points(diagram, theme),
            ],
            "layout": layout(
                theme,
                height_px=height_px,
                revision=revision,
                barmode="overlay",
                hovermode="closest",
                hoverdistance=12,
                margin={"l": 12 if view.is_narrow else 64, "r": 16, "t": _ABOVE_PX, "b": _BELOW_PX},
                # The margins are large enough for the labels. A margin that fits itself depends on earlier drawings.
                xaxis=axis(
                    theme, "time since the trigger", range=[begin, end], tickvals=ticks, ticktext=tick_words,
                    automargin=False,
                ),
                yaxis=_lanes_axis(diagram, view),
                shapes=_lines(diagram, theme) + _marked(view),
                annotations=_labels(diagram, view, row_px),
            ),
        },
        words.table(diagram),
        words.summary(diagram),
        height_px,
    )  # fmt: skip


def _row_px(count: int, *, is_narrow: bool) -> int:
    """Return the height of a lane. On a phone, its label stands above it."""
    if is_narrow:
        return 44
    return 40 if count <= 10 else 30 if count <= 24 else 22


def _lanes_axis(diagram: SpaceTimeOut, view: View) -> dict[str, object]:
    count = len(diagram.lanes)
    more: dict[str, Any] = {"range": [count - 0.4, -0.6], "fixedrange": True, "showgrid": False}
    if view.is_narrow:
        return axis(view.theme, **more, showticklabels=False, automargin=False)
    labels = words.labels(diagram.lanes, name_max=_NAME_MAX)
    ticks: dict[str, Any] = {"ticks": "outside", "ticklen": 6, "tickcolor": "rgba(0,0,0,0)"}
    return axis(view.theme, **more, **ticks, tickvals=list(range(count)), ticktext=labels)


def _labels(diagram: SpaceTimeOut, view: View, row_px: int) -> list[dict[str, object]]:
    said = []
    if view.is_narrow:
        said = labels_above(view.theme, words.labels(diagram.lanes, name_max=40), font_px=11, thickness_px=0.5 * row_px)
    if view.at_ms is not None:
        said.append(
            note(view.theme, words.at(view.at_ms), view.at_ms, 1, yref="paper", yanchor="top", xanchor="left", xshift=4)
        )
    return said


def _lines(diagram: SpaceTimeOut, theme: Theme) -> list[dict[str, object]]:
    """Return the line of each lane, and a line between the lanes of two vertices."""
    lanes = diagram.lanes
    rows = range(len(lanes))
    between = [row - 0.5 for row in rows if row and lanes[row].vertex_id != lanes[row - 1].vertex_id]
    whole = [(row, 0.0, diagram.end_ms, "x", theme.border) for row in rows]
    apart = [(y, 0.0, 1.0, "paper", theme.grid) for y in between]
    return [
        {
            "type": "line", "xref": xref, "x0": begin, "x1": end, "y0": y, "y1": y, "layer": "below",
            "line": {"color": color, "width": 1},
        }
        for y, begin, end, xref, color in (*whole, *apart)
    ]  # fmt: skip


def _marked(view: View) -> list[dict[str, object]]:
    if view.at_ms is None:
        return []
    line = {"color": view.theme.text, "width": 1, "dash": "dot"}
    return [{"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": view.at_ms, "x1": view.at_ms, "line": line}]


def _ticks(begin_ms: float, end_ms: float) -> tuple[Sequence[float], Sequence[str]]:
    """Return round positions between two times, and their labels. The runtime's times need less than a millisecond."""
    width = max(end_ms - begin_ms, 1e-3)
    power = 10.0 ** math.floor(math.log10(width / 8))
    step = next(power * s for s in (1, 2, 5, 10) if width / (power * s) <= 9)
    first = math.ceil(begin_ms / step)
    values = [round(step * i, 6) for i in range(first, math.floor(end_ms / step) + 1)]
    return values, [f"{v / 1000:g} s" if step >= 100 else f"{v:g} ms" for v in values]
