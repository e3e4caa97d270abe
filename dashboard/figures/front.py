"""V5, the barrier front on the job graph at one instant of a checkpoint.

``build`` turns a checkpoint, its graph and its barrier events into times; ``draw`` shows their state at one instant.
A vertex is a ring of its subtasks' states (not reached, aligning, snapshotting, acknowledged); an opened vertex is a
column of its subtasks. An edge is its channels: before, in transit, through. The reference runtime reports channels and
they are drawn as measured; Flink does not, so there an edge is dotted, its state follows from what sender and receiver
reported, and its label gives the interval between them, never an instant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.contracts.api import BarriersOut, CheckpointDetailOut, EdgeOut, SubtaskPhasesOut, VertexOut
from backend.domain.barriers import BarrierEventKind as Kind
from backend.domain.verdict import Basis, Phase, VerdictKind
from dashboard import text
from dashboard.figures.base import Chart, Table, Trace, empty, layout, note
from dashboard.palette import ACKED, IN_TRANSIT, PHASE_COLORS, UNALIGNED, Theme

_LAYER = 260.0
_ROW = 190.0
_RADIUS = 34.0
_DOT = 26.0
_DOTS_MAX = 16
_CHANNELS_DRAWN_MAX = 256
_HEIGHT_MIN_PX = 250
_HEIGHT_MAX_PX = 560

STATES = ("not reached", "aligning", "snapshotting", "acknowledged")


@dataclass(frozen=True, slots=True)
class SubtaskTimes:
    """When a subtask changed its state, in ms since the trigger; None is *not reported* or *not yet*."""

    subtask: int
    first_ms: float | None
    snapshot_ms: float | None
    ack_ms: float | None
    host: str | None = None

    def state(self, at_ms: float) -> str:
        """One of ``STATES``."""
        if self.ack_ms is not None and at_ms >= self.ack_ms:
            return "acknowledged"
        if self.snapshot_ms is not None and at_ms >= self.snapshot_ms:
            return "snapshotting"
        return "aligning" if self.first_ms is not None and at_ms >= self.first_ms else "not reached"


@dataclass(frozen=True, slots=True)
class ChannelTimes:
    """When a barrier entered and left one channel."""

    source_subtask: int
    target_subtask: int
    emitted_ms: float | None
    received_ms: float | None
    overtook_bytes: int | None = None

    def state(self, at_ms: float) -> str:
        """before, in or after."""
        if self.received_ms is not None and at_ms >= self.received_ms:
            return "after"
        return "in" if self.emitted_ms is not None and at_ms >= self.emitted_ms else "before"


@dataclass(frozen=True, slots=True)
class FrontVertex:
    """A vertex in its place with the times of its subtasks, by index."""

    vertex_id: str
    name: str
    layer: int
    row: int
    subtasks: tuple[SubtaskTimes, ...]
    is_guilty: bool


@dataclass(frozen=True, slots=True)
class FrontEdge:
    """An edge; ``channels`` is empty where the engine does not report them."""

    source: str
    target: str
    channels: tuple[ChannelTimes, ...]


@dataclass(frozen=True, slots=True)
class Front:
    """Everything the drawing needs, independent of the instant."""

    vertices: tuple[FrontVertex, ...]
    edges: tuple[FrontEdge, ...]
    steps_ms: tuple[float, ...]
    """Instants at which something changed, ascending: where the keyboard stops."""
    end_ms: float
    basis: Basis


# --- build --------------------------------------------------------------------------------------------------------


def build(
    checkpoint: CheckpointDetailOut,
    vertices: Sequence[VertexOut],
    edges: Sequence[EdgeOut],
    barriers: BarriersOut | None,
    *,
    elapsed_ms: int | None = None,
) -> Front:
    """The times of one checkpoint on the graph of its job.

    A vertex of the checkpoint that the graph no longer has (the job was redeployed) gets a layer of its own.
    """
    is_measured = barriers is not None and barriers.basis is Basis.MEASURED
    seen = _subtask_events(barriers) if barriers is not None and is_measured else {}
    places = {v.id: (v.layer, v.row) for v in vertices}
    guilty = checkpoint.verdict.vertex_id if checkpoint.verdict.kind is not VerdictKind.NONE else None
    placed = []
    for index, v in enumerate(checkpoint.vertices):
        layer, row = places.get(v.vertex_id, (index, 0))
        times = tuple(_times(s, seen.get((v.vertex_id, s.subtask), {})) for s in v.subtasks)
        placed.append(FrontVertex(v.vertex_id, v.vertex, layer, row, times, v.vertex_id == guilty))
    channels = _channels(barriers) if barriers is not None and is_measured else {}
    known = {v.vertex_id for v in placed}
    drawn = tuple(
        FrontEdge(e.source, e.target, channels.get((e.source, e.target), ()))
        for e in edges
        if e.source in known and e.target in known
    )
    steps = _steps(placed, drawn)
    end_ms = max([*steps, float(checkpoint.end_to_end_duration_ms or 0), float(elapsed_ms or 0), 1.0])
    return Front(tuple(placed), drawn, steps, end_ms, Basis.MEASURED if is_measured else Basis.RECONSTRUCTED)


_Seen = dict[tuple[str, int], dict[str, float]]


def _subtask_events(barriers: BarriersOut) -> _Seen:
    seen: _Seen = {}
    for event in barriers.events:
        own = seen.setdefault((event.vertex_id, event.subtask), {})
        match event.kind:
            case Kind.BARRIER_RECEIVED:
                own["first"] = min(event.at_ms, own.get("first", event.at_ms))
            case Kind.SNAPSHOT_SYNC_START:
                own.setdefault("snapshot", event.at_ms)
            case Kind.ACKED:
                own.setdefault("ack", event.at_ms)
            case _:
                pass
    for own in seen.values():
        # A source has no input channels: its snapshot is where the barrier begins.
        if "first" not in own and "snapshot" in own:
            own["first"] = own["snapshot"]
    return seen


def _times(subtask: SubtaskPhasesOut, seen: dict[str, float]) -> SubtaskTimes:
    def reported(key: str, value: int | None) -> float | None:
        return seen.get(key, None if value is None else float(value))

    return SubtaskTimes(
        subtask.subtask,
        first_ms=reported("first", subtask.first_barrier_ms),
        snapshot_ms=reported("snapshot", subtask.snapshot_at_ms),
        ack_ms=reported("ack", subtask.ack_ms),
        host=subtask.host,
    )


def _channels(barriers: BarriersOut) -> dict[tuple[str, str], tuple[ChannelTimes, ...]]:
    emitted: dict[tuple[str, str, int, int], float] = {}
    received: dict[tuple[str, str, int, int], float] = {}
    overtook: dict[tuple[str, str, int, int], int] = {}
    for event in barriers.events:
        if event.channel is None:
            continue
        c = event.channel
        key = (c.source, c.target, c.source_subtask, c.target_subtask)
        if event.kind is Kind.BARRIER_EMITTED:
            emitted.setdefault(key, event.at_ms)
        elif event.kind is Kind.BARRIER_RECEIVED:
            received.setdefault(key, event.at_ms)
        elif event.kind is Kind.OVERTOOK:
            overtook[key] = overtook.get(key, 0) + (event.size_bytes or 0)
    found: dict[tuple[str, str], list[ChannelTimes]] = {}
    for key in sorted(emitted.keys() | received.keys()):
        times = ChannelTimes(key[2], key[3], emitted.get(key), received.get(key), overtook.get(key))
        found.setdefault((key[0], key[1]), []).append(times)
    return {edge: tuple(channels) for edge, channels in found.items()}


def _steps(vertices: Sequence[FrontVertex], edges: Sequence[FrontEdge]) -> tuple[float, ...]:
    steps = {0.0}
    for vertex in vertices:
        for s in vertex.subtasks:
            steps.update(round(v, 1) for v in (s.first_ms, s.snapshot_ms, s.ack_ms) if v is not None and v >= 0)
    for edge in edges:
        for c in edge.channels:
            steps.update(round(v, 1) for v in (c.emitted_ms, c.received_ms) if v is not None and v >= 0)
    return tuple(sorted(steps))


# --- draw ---------------------------------------------------------------------------------------------------------


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
    places = {v.vertex_id: (v.layer * _LAYER, -v.row * _ROW) for v in front.vertices}
    open_ids = {v.vertex_id for v in front.vertices if v.vertex_id in opened}
    by_id = {v.vertex_id: v for v in front.vertices}
    traces: list[Trace] = []
    notes: list[dict[str, object]] = []
    for edge in front.edges:
        traces += _edge(edge, by_id, places, open_ids, at_ms, theme, (queued_bytes or {}).get(edge.target))
        notes.append(_edge_label(edge, by_id, places, at_ms, theme))
    traces += _rings([v for v in front.vertices if v.vertex_id not in open_ids], places, at_ms, theme)
    traces += _columns([v for v in front.vertices if v.vertex_id in open_ids], places, at_ms, theme)
    for v in front.vertices:
        notes += _labels(v, places[v.vertex_id], at_ms, theme, is_open=v.vertex_id in open_ids)
    xs, ys = _extent(front, places, open_ids)
    height_px = int(min(_HEIGHT_MAX_PX, max(_HEIGHT_MIN_PX, ys[1] - ys[0])))
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
    vertices: Sequence[FrontVertex], places: Mapping[str, tuple[float, float]], at_ms: float, theme: Theme
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
                "hovertext": [_subtask_hover(v, s, at_ms) for s in shown],
                "hovertemplate": "%{hovertext}<extra></extra>",
            }
        )
    return traces


def _ink(state: str, theme: Theme) -> str:
    if state == "not reached":
        return theme.text
    return "#ffffff" if state == "acknowledged" else "#10151d"


def _subtask_hover(vertex: FrontVertex, s: SubtaskTimes, at_ms: float) -> str:
    host = f" on {text.plain(s.host)}" if s.host else ""
    return "<br>".join(
        [
            f"<b>{text.plain(vertex.name)}</b> subtask {s.subtask}{host}",
            f"now {s.state(at_ms)}",
            f"first barrier at {text.duration(s.first_ms)}",
            f"snapshot from {text.duration(s.snapshot_ms)}",
            f"acknowledged at {text.duration(s.ack_ms)}",
        ]
    )


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
                "color": _edge_color(state, theme), "opacity": 1,
            },
            "hoverinfo": "skip",
        }
    ]  # fmt: skip


def _dash(edge: FrontEdge) -> str:
    if not edge.channels:
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


def _edge_state(edge: FrontEdge, source: FrontVertex, target: FrontVertex, at_ms: float) -> str:
    if edge.channels:
        states = {c.state(at_ms) for c in edge.channels}
        if states == {"after"}:
            return "after"
        return "before" if states == {"before"} else "in"
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
) -> dict[str, object]:
    (x0, y0), (x1, y1) = places[edge.source], places[edge.target]
    if edge.channels:
        through = sum(c.state(at_ms) == "after" for c in edge.channels)
        held = sum(c.state(at_ms) == "in" for c in edge.channels)
        label = f"{through}/{len(edge.channels)} through" + (f"<br>{held} in transit" if held else "")
        overtaken = sum(c.overtook_bytes or 0 for c in edge.channels if c.state(at_ms) == "after")
        if overtaken:
            label += f"<br>overtook {text.size(overtaken)}"
    else:
        label = _interval(by_id[edge.source], by_id[edge.target])
    # Between two layers the label stands clear of the line; the background keeps it legible over channels.
    return note(
        theme, label, (x0 + x1) / 2, (y0 + y1) / 2, yshift=20, bgcolor=theme.surface, opacity=0.92,
        font={"size": 10, "color": theme.muted},
    )  # fmt: skip


def _interval(source: FrontVertex, target: FrontVertex) -> str:
    sent = [s.snapshot_ms for s in source.subtasks if s.snapshot_ms is not None]
    got = [s.first_ms for s in target.subtasks if s.first_ms is not None]
    if not sent or not got:
        return "not reported"
    when_sent = f"sent {text.duration(min(sent))} to {text.duration(max(sent))}"
    return f"{when_sent}<br>first at {text.duration(min(got))} to {text.duration(max(got))}"


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
        (v.name, s.subtask, s.host, s.state(at_ms), s.first_ms, s.snapshot_ms, s.ack_ms)
        for v in front.vertices
        for s in v.subtasks
    )
    columns = ("vertex", "subtask", "host", f"state at {at_ms:g} ms", "first barrier (ms)", "snapshot (ms)", "ack (ms)")
    return Table(columns, rows)
