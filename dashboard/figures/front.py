"""V5, the barrier front on the job graph at one instant of a checkpoint.

``front_times.build`` turns a checkpoint, its graph and its barrier events into times; ``draw`` shows their state at one
instant. A vertex is a ring of its subtasks' states (not reached, aligning, snapshotting, acknowledged); an opened
vertex is a column of its subtasks. An edge is its channels: before, in transit, through. The reference runtime reports
channels and they are drawn as measured; Flink does not, so there an edge is dotted, its state follows from what sender
and receiver reported, and its label gives the interval between them, never an instant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from backend.domain.verdict import Phase
from dashboard import text
from dashboard.figures.base import Chart, Table, Trace, empty, layout, note
from dashboard.figures.front_times import STATES, Front, FrontEdge, FrontVertex, SubtaskTimes, held_by
from dashboard.palette import ACKED, IN_TRANSIT, PHASE_COLORS, UNALIGNED, Theme

_LAYER_MIN = 260.0
_LAYER_MAX = 400.0
_ROW = 190.0
_RADIUS = 34.0
_DOT = 26.0
_DOTS_MAX = 16
_CHANNELS_DRAWN_MAX = 256
_HEIGHT_MIN_PX = 190
_HEIGHT_MAX_PX = 620
# What a card of a laptop's screen leaves for the drawing, and how far a small graph is enlarged there.
_WIDTH_PX = 1250
_SCALE_MAX = 1.25


def draw(
    front: Front,
    at_ms: float,
    *,
    theme: Theme,
    opened: Sequence[str] = (),
    queued_bytes: Mapping[str, int] | None = None,
) -> Chart:
    """The graph at ``at_ms`` since the trigger. ``customdata`` of a mark is ``[vertex id, subtask or null]``.

    ``queued_bytes`` by receiving vertex, where it is known for this very instant: it sets the width of the edges.
    """
    if not front.vertices:
        return empty(theme, "The engine no longer had the subtasks of this checkpoint when it was read.")
    gap = _layer_gap(front)
    places = {v.vertex_id: (v.layer * gap, -v.row * _ROW) for v in front.vertices}
    open_ids = {v.vertex_id for v in front.vertices if v.vertex_id in opened}
    by_id = {v.vertex_id: v for v in front.vertices}
    traces: list[Trace] = []
    notes: list[dict[str, object]] = []
    for edge in front.edges:
        traces += _edge(edge, by_id, places, open_ids, at_ms, theme, (queued_bytes or {}).get(edge.target))
        notes.append(_edge_label(edge, by_id, places, at_ms, theme, open_ids))
    traces += _rings([v for v in front.vertices if v.vertex_id not in open_ids], places, at_ms, theme)
    held = {v.vertex_id: held_by(v, front) for v in front.vertices if v.vertex_id in open_ids}
    traces += _columns([v for v in front.vertices if v.vertex_id in open_ids], places, at_ms, theme, held)
    for v in front.vertices:
        notes += _labels(v, places[v.vertex_id], at_ms, theme, is_open=v.vertex_id in open_ids)
    xs, ys = _extent(front, places, open_ids)
    scale = min(_SCALE_MAX, _WIDTH_PX / (xs[1] - xs[0]))
    height_px = int(min(_HEIGHT_MAX_PX, max(_HEIGHT_MIN_PX, scale * (ys[1] - ys[0]))))
    hidden: dict[str, object] = {"visible": False, "fixedrange": True}
    figure = {
        "data": traces,
        "layout": layout(
            theme,
            height_px=height_px,
            revision="front",
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            xaxis={**hidden, "range": xs},
            yaxis={**hidden, "range": ys, "scaleanchor": "x", "scaleratio": 1},
            annotations=notes,
            hovermode="closest",
            dragmode=False,
        ),
    }
    return Chart(figure, _table(front, at_ms), summary(front, at_ms), height_px)


def _layer_gap(front: Front) -> float:
    """Few layers stand wider apart: their edges have room for what is said of them."""
    layers = max(v.layer for v in front.vertices) - min(v.layer for v in front.vertices)
    return min(_LAYER_MAX, max(_LAYER_MIN, (_WIDTH_PX / _SCALE_MAX - 240) / max(1, layers)))


def summary(front: Front, at_ms: float) -> str:
    """Where the barrier is at ``at_ms``, in words."""
    parts = []
    for v in front.vertices:
        counts = _counts(v, at_ms)
        past = len(v.subtasks) - counts["not reached"]
        parts.append(f"{v.name}: barrier at {past} of {len(v.subtasks)}, {counts['acknowledged']} acknowledged")
    return f"{text.duration(at_ms)} after the trigger. " + "; ".join(parts) + "."


def colors(theme: Theme) -> dict[str, str]:
    """The colour of each state."""
    return {
        "not reached": theme.idle,
        "aligning": PHASE_COLORS[Phase.ALIGNMENT],
        "snapshotting": PHASE_COLORS[Phase.ASYNC],
        "acknowledged": ACKED,
    }


def _counts(vertex: FrontVertex, at_ms: float) -> dict[str, int]:
    counts = dict.fromkeys(STATES, 0)
    for s in vertex.subtasks:
        counts[s.state(at_ms)] += 1
    return counts


def _rings(
    vertices: Sequence[FrontVertex], places: Mapping[str, tuple[float, float]], at_ms: float, theme: Theme
) -> list[Trace]:
    outlines: dict[str, tuple[list[float | None], list[float | None]]] = {state: ([], []) for state in STATES}
    for v in vertices:
        x, y = places[v.vertex_id]
        start = 0.0
        for state, count in _counts(v, at_ms).items():
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
    ring = [(t, _RADIUS) for t in turns] + [(t, _RADIUS * 0.66) for t in reversed(turns)]
    ring.append(ring[0])
    # Clockwise from the top, as a clock face.
    outline[0].extend([*(x + r * math.sin(2 * math.pi * t) for t, r in ring), None])
    outline[1].extend([*(y + r * math.cos(2 * math.pi * t) for t, r in ring), None])


def _centres(
    vertices: Sequence[FrontVertex], places: Mapping[str, tuple[float, float]], at_ms: float, theme: Theme
) -> Trace:
    def past(v: FrontVertex) -> int:
        return len(v.subtasks) - _counts(v, at_ms)["not reached"]

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
    counts = _counts(vertex, at_ms)
    return "<br>".join(
        [f"<b>{text.plain(vertex.name)}</b>", *(f"{state}: {n}" for state, n in counts.items()), "click to open"]
    )


def shown_subtasks(vertex: FrontVertex) -> tuple[SubtaskTimes, ...]:
    """Of an opened vertex: all subtasks, or the slowest ones where they are too many to draw."""
    if len(vertex.subtasks) <= _DOTS_MAX:
        return vertex.subtasks

    def lateness(s: SubtaskTimes) -> tuple[float, float]:
        never = float("inf")
        return (-(never if s.ack_ms is None else s.ack_ms), -(never if s.first_ms is None else s.first_ms))

    slowest = sorted(vertex.subtasks, key=lateness)[:_DOTS_MAX]
    return tuple(sorted(slowest, key=lambda s: s.subtask))


def _dot_places(vertex: FrontVertex, place: tuple[float, float]) -> dict[int, tuple[float, float]]:
    shown = shown_subtasks(vertex)
    top = place[1] + _DOT * (len(shown) - 1) / 2
    return {s.subtask: (place[0], top - _DOT * i) for i, s in enumerate(shown)}


def _columns(
    vertices: Sequence[FrontVertex],
    places: Mapping[str, tuple[float, float]],
    at_ms: float,
    theme: Theme,
    held: Mapping[str, Mapping[int, str]],
) -> list[Trace]:
    shades = colors(theme)
    traces: list[Trace] = []
    for v in vertices:
        dots = _dot_places(v, places[v.vertex_id])
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


def _ink(state: str, theme: Theme) -> str:
    if state == "not reached":
        return theme.text
    return "#ffffff" if state == "acknowledged" else "#10151d"


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


# --- edges --------------------------------------------------------------------------------------------------------


def _edge(
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
    gap0 = 14.0 if edge.source in open_ids else _RADIUS + 4
    gap1 = 18.0 if edge.target in open_ids else _RADIUS + 6
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
    ends = _dot_places(target, places[target.vertex_id])
    starts = _dot_places(source, places[source.vertex_id]) if source.vertex_id in open_ids else {}
    x, y = places[source.vertex_id]
    groups: dict[tuple[str, bool], tuple[list[float | None], list[float | None]]] = {}
    for c in edge.channels:
        end = ends.get(c.target_subtask)
        start = starts.get(c.source_subtask) if starts else (x + _RADIUS - 8, y)
        if end is None or start is None:
            continue
        xs, ys = groups.setdefault((c.state(at_ms), bool(c.overtook_bytes)), ([], []))
        xs += [start[0] + 12, end[0] - 13, None]
        ys += [start[1], end[1], None]
    order = {"before": 0, "after": 1, "in": 2}
    return [
        {
            "type": "scatter", "mode": "lines", "x": xs, "y": ys, "hoverinfo": "skip",
            "line": {
                "color": _edge_color(state, theme), "width": 2.2 if state == "in" else 1.1,
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
    """One dotted line a receiver, from the vertex as a whole: which sender is not known."""
    x, y = places[source.vertex_id]
    ends = _dot_places(target, places[target.vertex_id])
    is_sent = any(s.snapshot_ms is not None and at_ms >= s.snapshot_ms for s in source.subtasks)
    groups: dict[str, tuple[list[float | None], list[float | None]]] = {}
    for s in shown_subtasks(target):
        is_through = s.last_ms is not None and at_ms >= s.last_ms
        xs, ys = groups.setdefault("after" if is_through else "in" if is_sent else "before", ([], []))
        end = ends[s.subtask]
        xs += [x + (14.0 if source.vertex_id in open_ids else _RADIUS + 4), end[0] - 13, None]
        ys += [y, end[1], None]
    return [
        {
            "type": "scatter", "mode": "lines", "x": xs, "y": ys, "hoverinfo": "skip",
            "line": {"color": _edge_color(state, theme), "width": 1.8, "dash": "dot"},
        }
        for state, (xs, ys) in groups.items()
    ]  # fmt: skip


def _edge_state(edge: FrontEdge, source: FrontVertex, target: FrontVertex, at_ms: float) -> str:
    if edge.channels:
        states = {c.state(at_ms) for c in edge.channels}
        if states == {"after"}:
            return "after"
        return "before" if states == {"before"} else "in"
    if edge.is_measured:
        return "before"
    # Without channels: a barrier leaves a sender when its snapshot begins, and is at a receiver with its first.
    sent = [s.snapshot_ms for s in source.subtasks]
    got = [s.first_ms for s in target.subtasks]
    if got and all(g is not None and at_ms >= g for g in got):
        return "after"
    return "in" if any(t is not None and at_ms >= t for t in sent) else "before"


def _edge_color(state: str, theme: Theme) -> str:
    return {"before": theme.border, "in": IN_TRANSIT, "after": ACKED}[state]


def _edge_label(
    edge: FrontEdge,
    by_id: Mapping[str, FrontVertex],
    places: Mapping[str, tuple[float, float]],
    at_ms: float,
    theme: Theme,
    open_ids: set[str],
) -> dict[str, object]:
    (x0, y0), (x1, y1) = places[edge.source], places[edge.target]
    if edge.channels:
        through = sum(c.state(at_ms) == "after" for c in edge.channels)
        held = sum(c.state(at_ms) == "in" for c in edge.channels)
        label = f"{through}/{len(edge.channels)} through" + (f"<br>{held} in transit" if held else "")
        overtaken = sum(c.overtook_bytes or 0 for c in edge.channels if c.state(at_ms) == "after")
        if overtaken:
            label += f"<br>overtook {text.size(overtaken)}"
    elif edge.is_measured:
        label = "no barrier yet"
    else:
        label = _interval(by_id[edge.source], by_id[edge.target])
    # Above the line between two layers; where lines fan out to subtasks, where they are still close together.
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


# --- labels, table ------------------------------------------------------------------------------------------------


def _labels(
    vertex: FrontVertex, place: tuple[float, float], at_ms: float, theme: Theme, *, is_open: bool
) -> list[dict[str, object]]:
    shown = len(shown_subtasks(vertex))
    half = _DOT * (shown - 1) / 2 + 16 if is_open else _RADIUS + 4
    name = text.plain(text.short(vertex.name, 28))
    notes = [
        note(
            theme, f"<b>{name}</b>", place[0], place[1] + half, yanchor="bottom",
            font={"size": 12, "color": theme.text}, bgcolor=theme.surface,
        )
    ]  # fmt: skip
    below = []
    if is_open and shown < len(vertex.subtasks):
        below.append(f"the {shown} slowest of {len(vertex.subtasks)}")
    if is_open:
        counts = _counts(vertex, at_ms)
        below.append(f"{len(vertex.subtasks) - counts['not reached']}/{len(vertex.subtasks)} reached")
    if below:
        notes.append(note(theme, "<br>".join(below), place[0], place[1] - half, yanchor="top"))
    if vertex.is_guilty:
        notes.append(
            note(
                theme, "named by the verdict", place[0], place[1] - half, yanchor="top", yshift=-16 * len(below) - 2,
                font={"size": 11, "color": theme.text}, bordercolor=UNALIGNED, borderpad=2, bgcolor=theme.surface,
            )
        )  # fmt: skip
    return notes


def _extent(
    front: Front, places: Mapping[str, tuple[float, float]], open_ids: set[str]
) -> tuple[list[float], list[float]]:
    tops, bottoms = [], []
    for v in front.vertices:
        half = _DOT * len(shown_subtasks(v)) / 2 if v.vertex_id in open_ids else _RADIUS
        tops.append(places[v.vertex_id][1] + half + 44)
        bottoms.append(places[v.vertex_id][1] - half - 52)
    xs = [x for x, _ in places.values()]
    return [min(xs) - 120, max(xs) + 120], [min(bottoms), max(tops)]


def _table(front: Front, at_ms: float) -> Table:
    rows = tuple(
        (
            v.name, s.subtask, s.host, s.state(at_ms), s.first_ms, s.last_ms, s.snapshot_ms, s.ack_ms,
            front.basis.value, held.get(s.subtask),
        )
        for v, held in ((v, held_by(v, front)) for v in front.vertices)
        for s in v.subtasks
    )  # fmt: skip
    columns = (
        "vertex", "subtask", "host", f"state at {at_ms:g} ms", "first barrier (ms)", "last barrier (ms)",
        "snapshot (ms)", "ack (ms)", "basis", "last barrier from",
    )  # fmt: skip
    return Table(columns, rows)
