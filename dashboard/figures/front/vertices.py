"""Draws each vertex of the barrier front: as a ring of its subtasks' states or, if opened, as a block of subtasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from backend.domain.verdict import Phase
from dashboard import text
from dashboard.figures.base import Trace
from dashboard.figures.front.heat import SHADES, HeatMap, of_subtask
from dashboard.figures.front.places import RADIUS
from dashboard.figures.front.times import FrontVertex, SubtaskState, SubtaskTimes
from dashboard.palette import ACKED, PHASE_COLORS, Theme

DOT = 26.0
"""The distance between the subtasks of an opened vertex."""

_HOLE = 0.66

_DOTS_MAX = 16

_DOT_ROWS = 4

Outline = tuple[list[float | None], list[float | None]]
"""The points of closed lines, with None between two of them."""


def colors(theme: Theme) -> dict[SubtaskState, str]:
    """Return the colour of each state."""
    return {
        SubtaskState.NOT_REACHED: theme.idle,
        SubtaskState.ALIGNING: PHASE_COLORS[Phase.ALIGNMENT],
        SubtaskState.SNAPSHOTTING: PHASE_COLORS[Phase.ASYNC],
        SubtaskState.ACKNOWLEDGED: ACKED,
    }


def rings(
    vertices: Sequence[FrontVertex],
    places: Mapping[str, tuple[float, float]],
    at_ms: float,
    theme: Theme,
    radius: float = RADIUS,
) -> list[Trace]:
    """Draw a ring for each vertex: the share of its subtasks in each state, clockwise from the top."""
    outlines: dict[SubtaskState, Outline] = {state: ([], []) for state in SubtaskState}
    for v in vertices:
        start = 0.0
        for state, count in v.counts(at_ms).items():
            end = start + count / max(1, len(v.subtasks))
            if count:
                _arc(outlines[state], places[v.vertex_id], radius, start, end)
            start = end
    shades = colors(theme)
    traces: list[Trace] = [
        {
            "type": "scatter", "mode": "lines", "fill": "toself", "x": xs, "y": ys, "name": state, "hoverinfo": "skip",
            "fillcolor": shades[state], "line": {"color": theme.outline, "width": 0.8},
        }
        for state, (xs, ys) in outlines.items()
        if xs
    ]  # fmt: skip
    unknown = [v for v in vertices if not v.subtasks]
    return [*traces, *circles(unknown, places, radius, {"color": theme.unknown, "width": 1.5, "dash": "dot"})]


def circles(
    vertices: Sequence[FrontVertex],
    places: Mapping[str, tuple[float, float]],
    radius: float,
    line: Mapping[str, object],
    fill: str | None = None,
) -> list[Trace]:
    """Draw a circle around each vertex. Without vertices, draw nothing."""
    outline: Outline = ([], [])
    for v in vertices:
        _closed(outline, places[v.vertex_id], [(i / 40, radius) for i in range(41)])
    trace: Trace = {
        "type": "scatter", "mode": "lines", "x": outline[0], "y": outline[1], "hoverinfo": "skip", "line": line
    }  # fmt: skip
    if fill is not None:
        trace |= {"fill": "toself", "fillcolor": fill}
    return [trace] if vertices else []


def _arc(outline: Outline, place: tuple[float, float], radius: float, start: float, end: float) -> None:
    steps = max(2, math.ceil(48 * (end - start)))
    turns = [start + (end - start) * i / steps for i in range(steps + 1)]
    ring = [(t, radius) for t in turns] + [(t, radius * _HOLE) for t in reversed(turns)]
    _closed(outline, place, [*ring, ring[0]])


def _closed(outline: Outline, place: tuple[float, float], points: Sequence[tuple[float, float]]) -> None:
    """Add a closed line. A point is an angle, in turns clockwise from the top, and its distance from the middle."""
    outline[0].extend([*(place[0] + r * math.sin(2 * math.pi * t) for t, r in points), None])
    outline[1].extend([*(place[1] + r * math.cos(2 * math.pi * t) for t, r in points), None])


def discs(
    vertices: Sequence[FrontVertex], places: Mapping[str, tuple[float, float]], heat: HeatMap, theme: Theme
) -> list[Trace]:
    """Fill the rings with the colours of the heat. A vertex whose value is missing is not filled."""
    by_shade: dict[int, list[FrontVertex]] = {}
    for v in vertices:
        if v.vertex_id in heat.by_vertex:
            by_shade.setdefault(heat.shade(heat.by_vertex[v.vertex_id]), []).append(v)
    line = {"color": theme.outline, "width": 0.5}
    return [
        trace
        for shade, found in sorted(by_shade.items())
        for trace in circles(found, places, RADIUS * _HOLE - 1.5, line, SHADES[shade])
    ]


def centres(
    vertices: Sequence[FrontVertex],
    places: Mapping[str, tuple[float, float]],
    at_ms: float,
    theme: Theme,
    heat: HeatMap | None,
    scale: float,
) -> Trace:
    """Write in the middle of each ring how many subtasks the barrier has reached, or the value of the heat."""
    hole_px = 2 * RADIUS * _HOLE * scale
    words = [_centre(v, at_ms, heat, hole_px) for v in vertices]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [places[v.vertex_id][0] for v in vertices],
        "y": [places[v.vertex_id][1] for v in vertices],
        "text": words,
        "textfont": {
            "size": [_font_px(w, hole_px) for w in words],
            "color": [_ink_on(heat, v, theme) for v in vertices],
        },
        "marker": {"size": 2 * RADIUS * scale, "color": "rgba(0,0,0,0)"},
        "customdata": [[v.vertex_id, None] for v in vertices],
        "hovertext": [_vertex_hover(v, at_ms, heat) for v in vertices],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


_SMALLEST_PX = 9
_NUMBERED_SCALE = 0.6
_LETTER = 0.64


def _font_px(words: str, room_px: float) -> int:
    """Return the size at which ``words`` fit into a ring."""
    return max(_SMALLEST_PX, min(13, int(room_px / max(1, len(words)) / _LETTER)))


def _centre(v: FrontVertex, at_ms: float, heat: HeatMap | None, room_px: float) -> str:
    if heat is not None:
        return heat.words(heat.by_vertex.get(v.vertex_id))
    if not v.subtasks:
        return text.MISSING
    past = len(v.subtasks) - v.counts(at_ms)[SubtaskState.NOT_REACHED]
    words = [f"{past}/{len(v.subtasks)}", text.percent(past / len(v.subtasks))]
    if v.has_finished:
        words = ["ended"]
    # The first words that fit are shown. The hover text and the table have the numbers.
    return next((w for w in words if len(w) * _LETTER * _SMALLEST_PX <= room_px), "")


def _ink_on(heat: HeatMap | None, v: FrontVertex, theme: Theme) -> str:
    if heat is None or v.vertex_id not in heat.by_vertex:
        return theme.text
    return "#ffffff" if heat.shade(heat.by_vertex[v.vertex_id]) < len(SHADES) // 2 else "#10151d"


def _vertex_hover(vertex: FrontVertex, at_ms: float, heat: HeatMap | None) -> str:
    lines = [f"<b>{text.plain(vertex.name)}</b>"]
    if vertex.subtasks:
        lines += [f"{state}: {n}" for state, n in vertex.counts(at_ms).items()]
    else:
        lines.append("subtasks not reported")
    if heat is not None:
        lines.append(f"{heat.heat.value.replace('-', ' ')}: {heat.words(heat.by_vertex.get(vertex.vertex_id))}")
    return "<br>".join([*lines, "click to unfold" if vertex.folded else "click to open"])


def shown_subtasks(vertex: FrontVertex) -> tuple[SubtaskTimes, ...]:
    """Return the subtasks that an opened vertex shows: all of them or, if there are too many, the slowest ones."""
    if len(vertex.subtasks) <= _DOTS_MAX:
        return vertex.subtasks

    def lateness(s: SubtaskTimes) -> tuple[float, float]:
        never = float("inf")
        return (-(never if s.ack_ms is None else s.ack_ms), -(never if s.first_ms is None else s.first_ms))

    slowest = sorted(vertex.subtasks, key=lateness)[:_DOTS_MAX]
    return tuple(sorted(slowest, key=lambda s: s.subtask))


def block_of(vertex: FrontVertex) -> tuple[int, int]:
    """Return how many columns and rows the block of an opened vertex has. It fits into the room of a closed one."""
    count = max(1, len(shown_subtasks(vertex)))
    return math.ceil(count / _DOT_ROWS), min(count, _DOT_ROWS)


def dot_places(vertex: FrontVertex, place: tuple[float, float]) -> dict[int, tuple[float, float]]:
    """Return the place of each shown subtask: from top to bottom, then from left to right."""
    columns, rows = block_of(vertex)
    left, top = place[0] - DOT * (columns - 1) / 2, place[1] + DOT * (rows - 1) / 2
    shown = shown_subtasks(vertex)
    return {s.subtask: (left + DOT * (i // rows), top - DOT * (i % rows)) for i, s in enumerate(shown)}


def blocks(
    vertices: Sequence[FrontVertex],
    places: Mapping[str, tuple[float, float]],
    at_ms: float,
    theme: Theme,
    held: Mapping[str, Mapping[int, str]],
    heat: HeatMap | None,
    scale: float,
) -> list[Trace]:
    """Draw the subtasks of the opened vertices, in the colours of their states or of the heat."""
    traces: list[Trace] = []
    for v in vertices:
        dots = dot_places(v, places[v.vertex_id])
        shown = shown_subtasks(v)
        fills, inks = zip(*(_paint(s, at_ms, theme, heat) for s in shown), strict=True) if shown else ((), ())
        traces.append(
            {
                "type": "scatter",
                # In a small drawing, the numbers of the subtasks would overlap. The hover text and the table have them.
                "mode": "markers+text" if scale >= _NUMBERED_SCALE else "markers",
                "x": [dots[s.subtask][0] for s in shown],
                "y": [dots[s.subtask][1] for s in shown],
                "text": [str(s.subtask) for s in shown],
                "textfont": {"size": 10 if scale >= 0.9 else 8, "color": list(inks)},
                "marker": {
                    "size": max(8.0, min(21.0, (DOT - 2) * scale)),
                    "color": list(fills),
                    "line": {"color": theme.outline, "width": 1},
                },
                "customdata": [[v.vertex_id, s.subtask] for s in shown],
                "hovertext": [_subtask_hover(v, s, at_ms, held[v.vertex_id].get(s.subtask)) for s in shown],
                "hovertemplate": "%{hovertext}<extra></extra>",
            }
        )
    return traces


def _paint(s: SubtaskTimes, at_ms: float, theme: Theme, heat: HeatMap | None) -> tuple[str, str]:
    """Return the fill and the ink of a subtask."""
    value = of_subtask(s, heat.heat) if heat is not None else None
    if heat is not None and value is not None:
        shade = heat.shade(value)
        return SHADES[shade], "#ffffff" if shade < len(SHADES) // 2 else "#10151d"
    state = s.state(at_ms)
    if state == SubtaskState.NOT_REACHED:
        return colors(theme)[state], theme.text
    return colors(theme)[state], "#10151d"


def _subtask_hover(vertex: FrontVertex, s: SubtaskTimes, at_ms: float, held: str | None) -> str:
    host = f" on {text.plain(s.host)}" if s.host else ""
    lines = [
        f"<b>{text.plain(vertex.name)}</b> subtask {s.subtask}{host}",
        "had finished before the checkpoint" if s.has_finished else f"now {s.state(at_ms)}",
        f"first barrier at {text.duration(s.first_ms)}, last at {text.duration(s.last_ms)}",
        f"snapshot from {text.duration(s.snapshot_ms)}",
        f"acknowledged at {text.duration(s.ack_ms)}",
    ]
    return "<br>".join([*lines, *([text.plain(held)] if held else [])])
