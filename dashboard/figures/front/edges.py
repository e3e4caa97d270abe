"""Draws the edges of the barrier front: a line per edge, or per channel if the viewer opened the receiving vertex."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dashboard import text
from dashboard.figures.base import Trace, note
from dashboard.figures.front.times import BarrierPlace, FrontEdge, FrontVertex
from dashboard.figures.front.vertices import RADIUS, dot_places, shown_subtasks
from dashboard.palette import ACKED, IN_TRANSIT, Theme

_CHANNELS_DRAWN_MAX = 256


def edge_lines(
    edge: FrontEdge,
    by_id: Mapping[str, FrontVertex],
    places: Mapping[str, tuple[float, float]],
    open_ids: set[str],
    at_ms: float,
    theme: Theme,
    queued_bytes: int | None,
) -> list[Trace]:
    source, target = by_id[edge.source], by_id[edge.target]
    if edge.channels and edge.target in open_ids and len(edge.channels) <= _CHANNELS_DRAWN_MAX:
        return _channel_lines(edge, source, target, places, open_ids, at_ms, theme)
    if not edge.is_measured and edge.target in open_ids:
        return _receiver_lines(source, target, places, open_ids, at_ms, theme)
    state = _edge_state(edge, source, target, at_ms)
    (x0, y0), (x1, y1) = places[edge.source], places[edge.target]
    gap0 = 14.0 if edge.source in open_ids else RADIUS + 4
    gap1 = 18.0 if edge.target in open_ids else RADIUS + 6
    length = math.hypot(x1 - x0, y1 - y0) or 1.0
    ux, uy = (x1 - x0) / length, (y1 - y0) / length
    width = 2.5 if not queued_bytes else min(12.0, 2.5 + 1.2 * math.log2(1 + queued_bytes / 4096))
    return [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": [x0 + ux * gap0, x1 - ux * gap1],
            "y": [y0 + uy * gap0, y1 - uy * gap1],
            "line": {
                "color": _edge_color(state, theme),
                "width": width,
                "dash": _dash(edge),
            },
            "marker": {
                "symbol": ["circle", "arrow"], "size": [0, 13], "angleref": "previous",
                "color": _edge_color(state, theme), "opacity": 1, "line": {"width": 0},
            },
            "hoverinfo": "skip",
        }
    ]  # fmt: skip


def _dash(edge: FrontEdge) -> str:
    if not edge.is_measured:
        return "dot"
    return "dash" if any(c.overtook_bytes for c in edge.channels) else "solid"


def _channel_lines(
    edge: FrontEdge,
    source: FrontVertex,
    target: FrontVertex,
    places: Mapping[str, tuple[float, float]],
    open_ids: set[str],
    at_ms: float,
    theme: Theme,
) -> list[Trace]:
    ends = dot_places(target, places[target.vertex_id])
    starts = dot_places(source, places[source.vertex_id]) if source.vertex_id in open_ids else {}
    x, y = places[source.vertex_id]
    groups: dict[tuple[BarrierPlace, bool], tuple[list[float | None], list[float | None]]] = {}
    for c in edge.channels:
        end = ends.get(c.target_subtask)
        start = starts.get(c.source_subtask) if starts else (x + RADIUS - 8, y)
        if end is None or start is None:
            continue
        xs, ys = groups.setdefault((c.state(at_ms), bool(c.overtook_bytes)), ([], []))
        xs += [start[0] + 12, end[0] - 13, None]
        ys += [start[1], end[1], None]
    order = {BarrierPlace.BEFORE: 0, BarrierPlace.AFTER: 1, BarrierPlace.IN_TRANSIT: 2}
    return [
        {
            "type": "scatter", "mode": "lines", "x": xs, "y": ys, "hoverinfo": "skip",
            "line": {
                "color": _edge_color(state, theme), "width": 2.2 if state == BarrierPlace.IN_TRANSIT else 1.1,
                "dash": "dash" if has_overtaken else "solid",
            },
        }
        for (state, has_overtaken), (xs, ys) in sorted(groups.items(), key=lambda g: order[g[0][0]])
    ]  # fmt: skip


def _receiver_lines(
    source: FrontVertex,
    target: FrontVertex,
    places: Mapping[str, tuple[float, float]],
    open_ids: set[str],
    at_ms: float,
    theme: Theme,
) -> list[Trace]:
    """Draw one dotted line to each receiving subtask.

    Each line starts at the sending vertex, because the sending subtask is unknown.
    """
    x, y = places[source.vertex_id]
    ends = dot_places(target, places[target.vertex_id])
    is_sent = any(s.snapshot_ms is not None and at_ms >= s.snapshot_ms for s in source.subtasks)
    groups: dict[BarrierPlace, tuple[list[float | None], list[float | None]]] = {}
    for s in shown_subtasks(target):
        is_through = s.last_ms is not None and at_ms >= s.last_ms
        xs, ys = groups.setdefault(
            BarrierPlace.AFTER if is_through else BarrierPlace.IN_TRANSIT if is_sent else BarrierPlace.BEFORE, ([], [])
        )
        end = ends[s.subtask]
        xs += [x + (14.0 if source.vertex_id in open_ids else RADIUS + 4), end[0] - 13, None]
        ys += [y, end[1], None]
    return [
        {
            "type": "scatter", "mode": "lines", "x": xs, "y": ys, "hoverinfo": "skip",
            "line": {"color": _edge_color(state, theme), "width": 1.8, "dash": "dot"},
        }
        for state, (xs, ys) in groups.items()
    ]  # fmt: skip


def _edge_state(edge: FrontEdge, source: FrontVertex, target: FrontVertex, at_ms: float) -> BarrierPlace:
    if edge.channels:
        states = {c.state(at_ms) for c in edge.channels}
        if states == {BarrierPlace.AFTER}:
            return BarrierPlace.AFTER
        return BarrierPlace.BEFORE if states == {BarrierPlace.BEFORE} else BarrierPlace.IN_TRANSIT
    if edge.is_measured:
        return BarrierPlace.BEFORE
    # The engine reports no channels. A sender forwards the barrier when its snapshot begins, and a receiver reports
    # its first barrier.
    sent = [s.snapshot_ms for s in source.subtasks]
    got = [s.first_ms for s in target.subtasks]
    if got and all(g is not None and at_ms >= g for g in got):
        return BarrierPlace.AFTER
    return BarrierPlace.IN_TRANSIT if any(t is not None and at_ms >= t for t in sent) else BarrierPlace.BEFORE


def _edge_color(state: BarrierPlace, theme: Theme) -> str:
    return {BarrierPlace.BEFORE: theme.border, BarrierPlace.IN_TRANSIT: IN_TRANSIT, BarrierPlace.AFTER: ACKED}[state]


def edge_label(
    edge: FrontEdge,
    by_id: Mapping[str, FrontVertex],
    places: Mapping[str, tuple[float, float]],
    at_ms: float,
    theme: Theme,
    open_ids: set[str],
) -> dict[str, object]:
    (x0, y0), (x1, y1) = places[edge.source], places[edge.target]
    if edge.channels:
        through = sum(c.state(at_ms) == BarrierPlace.AFTER for c in edge.channels)
        held = sum(c.state(at_ms) == BarrierPlace.IN_TRANSIT for c in edge.channels)
        label = f"{through}/{len(edge.channels)} through" + (f"<br>{held} in transit" if held else "")
        overtaken = sum(c.overtook_bytes or 0 for c in edge.channels if c.state(at_ms) == BarrierPlace.AFTER)
        if overtaken:
            label += f"<br>overtook {text.size(overtaken)}"
    elif edge.is_measured:
        label = "no barrier yet"
    else:
        label = _interval(by_id[edge.source], by_id[edge.target])
    # The label is in the middle of the line. If the receiver is opened, lines fan out to its subtasks, so the label
    # is nearer to the sender, where the lines are close together.
    along = 0.36 if edge.target in open_ids else 0.5
    return note(
        theme, label, x0 + along * (x1 - x0), y0 + along * (y1 - y0), yshift=20, bgcolor=theme.surface, opacity=0.92,
        font={"size": 10, "color": theme.muted},
    )  # fmt: skip


def _interval(source: FrontVertex, target: FrontVertex) -> str:
    sent = [s.snapshot_ms for s in source.subtasks if s.snapshot_ms is not None]
    got = [s.first_ms for s in target.subtasks if s.first_ms is not None]
    if not sent or not got:
        return "not reported"
    return f"sent {_range(sent)}<br>first barrier {_range(got)}"


def _range(times: Sequence[float]) -> str:
    first, last = text.duration(round(min(times))), text.duration(round(max(times)))
    return f"at {first}" if first == last else f"{first} to {last}"
