"""Draws each vertex of the barrier front: as a ring of its subtasks' states or, if opened, as a column of subtasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from backend.domain.verdict import Phase
from dashboard import text
from dashboard.figures.base import Trace
from dashboard.figures.front.times import FrontVertex, SubtaskState, SubtaskTimes
from dashboard.palette import ACKED, PHASE_COLORS, Theme

RADIUS = 34.0

DOT = 26.0

_DOTS_MAX = 16


def colors(theme: Theme) -> dict[SubtaskState, str]:
    """Return the colour of each state."""
    return {
        SubtaskState.NOT_REACHED: theme.idle,
        SubtaskState.ALIGNING: PHASE_COLORS[Phase.ALIGNMENT],
        SubtaskState.SNAPSHOTTING: PHASE_COLORS[Phase.ASYNC],
        SubtaskState.ACKNOWLEDGED: ACKED,
    }


def state_counts(vertex: FrontVertex, at_ms: float) -> dict[SubtaskState, int]:
    counts = dict.fromkeys(SubtaskState, 0)
    for s in vertex.subtasks:
        counts[s.state(at_ms)] += 1
    return counts


def rings(
    vertices: Sequence[FrontVertex], places: Mapping[str, tuple[float, float]], at_ms: float, theme: Theme
) -> list[Trace]:
    outlines: dict[SubtaskState, tuple[list[float | None], list[float | None]]] = {
        state: ([], []) for state in SubtaskState
    }
    for v in vertices:
        x, y = places[v.vertex_id]
        start = 0.0
        for state, count in state_counts(v, at_ms).items():
            end = start + count / max(1, len(v.subtasks))
            if count:
                _arc(outlines[state], x, y, start, end)
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
    if vertices:
        traces.append(_centres(vertices, places, at_ms, theme))
    return traces


def _arc(outline: tuple[list[float | None], list[float | None]], x: float, y: float, start: float, end: float) -> None:
    steps = max(2, math.ceil(48 * (end - start)))
    turns = [start + (end - start) * i / steps for i in range(steps + 1)]
    ring = [(t, RADIUS) for t in turns] + [(t, RADIUS * 0.66) for t in reversed(turns)]
    ring.append(ring[0])
    # The ring is drawn clockwise from the top.
    outline[0].extend([*(x + r * math.sin(2 * math.pi * t) for t, r in ring), None])
    outline[1].extend([*(y + r * math.cos(2 * math.pi * t) for t, r in ring), None])


def _centres(
    vertices: Sequence[FrontVertex], places: Mapping[str, tuple[float, float]], at_ms: float, theme: Theme
) -> Trace:
    def past(v: FrontVertex) -> int:
        return len(v.subtasks) - state_counts(v, at_ms)[SubtaskState.NOT_REACHED]

    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [places[v.vertex_id][0] for v in vertices],
        "y": [places[v.vertex_id][1] for v in vertices],
        "text": [f"{past(v)}/{len(v.subtasks)}" for v in vertices],
        "textfont": {"size": 13, "color": theme.text},
        "marker": {"size": 46, "color": "rgba(0,0,0,0)"},
        "customdata": [[v.vertex_id, None] for v in vertices],
        "hovertext": [_vertex_hover(v, at_ms) for v in vertices],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _vertex_hover(vertex: FrontVertex, at_ms: float) -> str:
    counts = state_counts(vertex, at_ms)
    return "<br>".join(
        [f"<b>{text.plain(vertex.name)}</b>", *(f"{state}: {n}" for state, n in counts.items()), "click to open"]
    )


def shown_subtasks(vertex: FrontVertex) -> tuple[SubtaskTimes, ...]:
    """Return the subtasks that an opened vertex shows: all of them or, if there are too many, the slowest ones."""
    if len(vertex.subtasks) <= _DOTS_MAX:
        return vertex.subtasks

    def lateness(s: SubtaskTimes) -> tuple[float, float]:
        never = float("inf")
        return (-(never if s.ack_ms is None else s.ack_ms), -(never if s.first_ms is None else s.first_ms))

    slowest = sorted(vertex.subtasks, key=lateness)[:_DOTS_MAX]
    return tuple(sorted(slowest, key=lambda s: s.subtask))


def dot_places(vertex: FrontVertex, place: tuple[float, float]) -> dict[int, tuple[float, float]]:
    shown = shown_subtasks(vertex)
    top = place[1] + DOT * (len(shown) - 1) / 2
    return {s.subtask: (place[0], top - DOT * i) for i, s in enumerate(shown)}


def columns(
    vertices: Sequence[FrontVertex],
    places: Mapping[str, tuple[float, float]],
    at_ms: float,
    theme: Theme,
    held: Mapping[str, Mapping[int, str]],
) -> list[Trace]:
    shades = colors(theme)
    traces: list[Trace] = []
    for v in vertices:
        dots = dot_places(v, places[v.vertex_id])
        shown = shown_subtasks(v)
        states = [s.state(at_ms) for s in shown]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "x": [dots[s.subtask][0] for s in shown],
                "y": [dots[s.subtask][1] for s in shown],
                "text": [str(s.subtask) for s in shown],
                "textfont": {"size": 10, "color": [_ink(state, theme) for state in states]},
                "marker": {
                    "size": 21,
                    "color": [shades[state] for state in states],
                    "line": {"color": theme.outline, "width": 1},
                },
                "customdata": [[v.vertex_id, s.subtask] for s in shown],
                "hovertext": [_subtask_hover(v, s, at_ms, held[v.vertex_id].get(s.subtask)) for s in shown],
                "hovertemplate": "%{hovertext}<extra></extra>",
            }
        )
    return traces


def _ink(state: SubtaskState, theme: Theme) -> str:
    if state == SubtaskState.NOT_REACHED:
        return theme.text
    return "#ffffff" if state == SubtaskState.ACKNOWLEDGED else "#10151d"


def _subtask_hover(vertex: FrontVertex, s: SubtaskTimes, at_ms: float, held: str | None) -> str:
    host = f" on {text.plain(s.host)}" if s.host else ""
    lines = [
        f"<b>{text.plain(vertex.name)}</b> subtask {s.subtask}{host}",
        f"now {s.state(at_ms)}",
        f"first barrier at {text.duration(s.first_ms)}, last at {text.duration(s.last_ms)}",
        f"snapshot from {text.duration(s.snapshot_ms)}",
        f"acknowledged at {text.duration(s.ack_ms)}",
    ]
    return "<br>".join([*lines, *([text.plain(held)] if held else [])])
