"""Draws the edges of the barrier front: a line per edge, or per channel if the viewer opened the receiving vertex."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dashboard import text
from dashboard.figures.base import Trace, note
from dashboard.figures.front.places import RADIUS
from dashboard.figures.front.readings import Reading
from dashboard.figures.front.times import BarrierPlace, FrontEdge, FrontVertex
from dashboard.figures.front.vertices import DOT, Outline, block_of, dot_places, shown_subtasks
from dashboard.palette import ACKED, IN_TRANSIT, Theme

_CHANNELS_DRAWN_MAX = 256

WIDTH_UNKNOWN = 1.2
WIDTH_EMPTY = 2.5
WIDTH_MAX = 7.0
"""The widths of an edge in pixels: if the queue is not reported, if it is empty, and if it is very long."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The data from which all edges of one front are drawn: vertices, places, opened vertices, instant and queues."""

    by_id: Mapping[str, FrontVertex]
    places: Mapping[str, tuple[float, float]]
    open_ids: Collection[str]
    at_ms: float
    theme: Theme
    readings: Mapping[str, Reading]

    def queued_bytes(self, edge: FrontEdge) -> int | None:
        """Return the bytes that are queued in front of the receiver of ``edge``, or None if they are not reported."""
        receiver = self.by_id[edge.target]
        own = [self.readings[v].queued_bytes for v in receiver.folded or (edge.target,) if v in self.readings]
        known = [q for q in own if q is not None]
        return sum(known) if known else None


# Places of a label along its line, the best one first.
_SHARES = (0.5, 0.36, 0.64, 0.27, 0.73)
_SHARES_OPEN = (0.36, 0.27, 0.45)
# About the size of a character and of a line of a label, with room for wide fonts.
_CHARACTER_PX = 6.0
_LINE_PX = 14.0


def edge_traces(edges: Sequence[FrontEdge], drawn: Drawn) -> list[Trace]:
    """Draw all edges. Edges that look alike are one trace, because each trace takes time to draw."""
    alike: dict[tuple[BarrierPlace, str, float], Outline] = {}
    traces: list[Trace] = []
    for edge in edges:
        source, target = drawn.by_id[edge.source], drawn.by_id[edge.target]
        is_open = edge.target in drawn.open_ids
        if edge.channels and is_open and len(edge.channels) <= _CHANNELS_DRAWN_MAX:
            traces += _channel_lines(edge, source, target, drawn)
        elif not edge.is_measured and is_open and target.subtasks:
            traces += _receiver_lines(source, target, drawn)
        else:
            key = _edge_state(edge, source, target, drawn.at_ms), _dash(edge), _width(drawn.queued_bytes(edge))
            _line(alike.setdefault(key, ([], [])), edge, drawn)
    order = {BarrierPlace.BEFORE: 0, BarrierPlace.AFTER: 1, BarrierPlace.IN_TRANSIT: 2}
    lines = [_arrows(outline, key, drawn.theme) for key, outline in sorted(alike.items(), key=lambda e: order[e[0][0]])]
    return [*traces, *lines]


def _width(queued_bytes: int | None) -> float:
    """Return the width of an edge, in steps. It is thinnest if the queue is not reported."""
    if queued_bytes is None:
        return WIDTH_UNKNOWN
    return min(WIDTH_MAX, WIDTH_EMPTY + round(math.log2(1 + queued_bytes / 4096)) / 3)


def _line(outline: Outline, edge: FrontEdge, drawn: Drawn) -> None:
    (x0, y0), (x1, y1) = drawn.places[edge.source], drawn.places[edge.target]
    gap0, gap1 = _gap(edge.source, drawn) + 4, _gap(edge.target, drawn) + 6
    length = math.hypot(x1 - x0, y1 - y0) or 1.0
    ux, uy = (x1 - x0) / length, (y1 - y0) / length
    outline[0].extend([x0 + ux * gap0, x1 - ux * gap1, None])
    outline[1].extend([y0 + uy * gap0, y1 - uy * gap1, None])


def _gap(vertex: str, drawn: Drawn) -> float:
    """Return the distance from the middle of a vertex to its edge."""
    return DOT * block_of(drawn.by_id[vertex])[0] / 2 if vertex in drawn.open_ids else RADIUS


def _arrows(outline: Outline, key: tuple[BarrierPlace, str, float], theme: Theme) -> Trace:
    state, dash, width = key
    count = len(outline[0]) // 3
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": outline[0],
        "y": outline[1],
        "line": {"color": _edge_color(state, theme), "width": width, "dash": dash},
        "marker": {
            "symbol": ["circle", "arrow", "circle"] * count, "size": [0, 2 * width + 7, 0] * count,
            "angleref": "previous", "color": _edge_color(state, theme), "opacity": 1, "line": {"width": 0},
        },
        "hoverinfo": "skip",
    }  # fmt: skip


def edge_hovers(edges: Sequence[FrontEdge], drawn: Drawn) -> Trace:
    """Return an invisible mark on each edge, whose hover text has the state of the edge and the queue."""
    places = [_along(e, drawn, 0.4) for e in edges]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [x for x, _ in places],
        "y": [y for _, y in places],
        "marker": {"size": 18, "color": "rgba(0,0,0,0)"},
        "hovertext": [_edge_hover(e, drawn) for e in edges],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _edge_hover(edge: FrontEdge, drawn: Drawn) -> str:
    source, target = drawn.by_id[edge.source], drawn.by_id[edge.target]
    queued = drawn.queued_bytes(edge)
    return "<br>".join(
        [
            f"<b>{text.plain(text.short(source.name, 40))}</b> to <b>{text.plain(text.short(target.name, 40))}</b>",
            edge_words(edge, drawn),
            f"queued in front of the receiver, over all its inputs: {text.size(queued)}"
            + (" (not reported)" if queued is None else ""),
        ]
    )


def _along(edge: FrontEdge, drawn: Drawn, share: float) -> tuple[float, float]:
    (x0, y0), (x1, y1) = drawn.places[edge.source], drawn.places[edge.target]
    return x0 + share * (x1 - x0), y0 + share * (y1 - y0)


def _dash(edge: FrontEdge) -> str:
    if not edge.is_measured:
        return "dot"
    return "dash" if any(c.overtook_bytes for c in edge.channels) else "solid"


def _channel_lines(edge: FrontEdge, source: FrontVertex, target: FrontVertex, drawn: Drawn) -> list[Trace]:
    at_ms, theme = drawn.at_ms, drawn.theme
    ends = dot_places(target, drawn.places[target.vertex_id])
    starts = dot_places(source, drawn.places[source.vertex_id]) if source.vertex_id in drawn.open_ids else {}
    x, y = drawn.places[source.vertex_id]
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


def _receiver_lines(source: FrontVertex, target: FrontVertex, drawn: Drawn) -> list[Trace]:
    """Draw one dotted line to each receiving subtask.

    Each line starts at the sending vertex, because the sending subtask is unknown.
    """
    at_ms, theme = drawn.at_ms, drawn.theme
    x, y = drawn.places[source.vertex_id]
    ends = dot_places(target, drawn.places[target.vertex_id])
    is_sent = any(s.snapshot_ms is not None and at_ms >= s.snapshot_ms for s in source.subtasks)
    groups: dict[BarrierPlace, tuple[list[float | None], list[float | None]]] = {}
    for s in shown_subtasks(target):
        is_through = s.last_ms is not None and at_ms >= s.last_ms
        xs, ys = groups.setdefault(
            BarrierPlace.AFTER if is_through else BarrierPlace.IN_TRANSIT if is_sent else BarrierPlace.BEFORE, ([], [])
        )
        end = ends[s.subtask]
        xs += [x + _gap(source.vertex_id, drawn) + 4, end[0] - 13, None]
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


def edge_words(edge: FrontEdge, drawn: Drawn) -> str:
    """Return the state of an edge: how many of its channels the barrier has passed, or an interval on Flink."""
    if not edge.channels:
        if drawn.by_id[edge.source].has_finished:
            return "sender ended"
        if edge.is_measured:
            return "no barrier yet"
        return _interval(drawn.by_id[edge.source], drawn.by_id[edge.target])
    states = [c.state(drawn.at_ms) for c in edge.channels]
    through, held = states.count(BarrierPlace.AFTER), states.count(BarrierPlace.IN_TRANSIT)
    words = f"{through}/{len(states)} through" + (f"<br>{held} in transit" if held else "")
    overtaken = sum(c.overtook_bytes or 0 for c in edge.channels if c.state(drawn.at_ms) == BarrierPlace.AFTER)
    return words + (f"<br>overtook {text.size(overtaken)}" if overtaken else "")


def edge_labels(edges: Sequence[FrontEdge], drawn: Drawn, scale: float) -> list[dict[str, object]]:
    """Return the labels of the edges. Each is at the first place along its line where it covers no other label.

    Lines that cross, as between several sources and several receivers, have the same middle. A label without a free
    place is left out; the hover text of the edge has its words. ``scale`` is the pixels of a unit.
    """
    taken: list[tuple[float, float, float, float]] = []
    labels = []
    for edge in edges:
        words = edge_words(edge, drawn)
        # If the receiver is opened, lines fan out to its subtasks, so the label is nearer to the sender, where the
        # lines are close together.
        for share in _SHARES_OPEN if edge.target in drawn.open_ids else _SHARES:
            x, y = _along(edge, drawn, share)
            lines = words.split("<br>")
            wide, high = _CHARACTER_PX * max(map(len, lines)) / 2, _LINE_PX * len(lines) / 2
            box = (scale * x - wide, scale * y - high, scale * x + wide, scale * y + high)
            if not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken):
                taken.append(box)
                labels.append(_label(words, x, y, drawn))
                break
    return labels


def _label(words: str, x: float, y: float, drawn: Drawn) -> dict[str, object]:
    font = {"size": 10, "color": drawn.theme.muted}
    return note(drawn.theme, words, x, y, yshift=20, bgcolor=drawn.theme.surface, opacity=0.92, font=font)


def _interval(source: FrontVertex, target: FrontVertex) -> str:
    sent = [s.snapshot_ms for s in source.subtasks if s.snapshot_ms is not None]
    got = [s.first_ms for s in target.subtasks if s.first_ms is not None]
    if not sent or not got:
        return "not reported"
    return f"sent {_range(sent)}<br>first barrier {_range(got)}"


def _range(times: Sequence[float]) -> str:
    first, last = text.duration(round(min(times))), text.duration(round(max(times)))
    return f"at {first}" if first == last else f"{first} to {last}"
