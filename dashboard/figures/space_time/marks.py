"""Draws the parts of the space-time diagram: arrows, stretches, the phases of a lane, and the cut.

Each kind of mark is one trace, so that the number of traces does not grow with the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from backend.contracts.space_time import ArrowOut, LaneOut, SpaceTimeOut, StretchOut
from backend.domain.verdict import Basis, Phase
from dashboard.figures.base import Trace
from dashboard.figures.space_time import words
from dashboard.palette import ACKED, FAILED, IN_TRANSIT, PHASE_COLORS, UNALIGNED, Theme

_MANY_ARROWS = 200
_PATTERNS_MAX = 100


def arrows(diagram: SpaceTimeOut, theme: Theme) -> Iterator[Trace]:
    """Yield the barriers: those that kept their place, those that overtook data, and those never received."""
    kept = [a for a in diagram.arrows if not a.overtook_bytes]
    overtaking = [a for a in diagram.arrows if a.overtook_bytes]
    dash = "dot" if diagram.basis is Basis.RECONSTRUCTED else "solid"
    yield from _arrow_trace("barrier", kept, diagram, color=theme.muted, dash=dash)
    yield from _arrow_trace("overtaking barrier", overtaking, diagram, color=UNALIGNED, dash="dash")
    lost = [a for a in diagram.arrows if a.unreceived_count]
    if lost:
        lines = [(a, a.emitted_last_ms, diagram.end_ms) for a in lost]
        yield _lines("barrier not received", lines, diagram, color=IN_TRANSIT, dash="solid", has_head=False)


def _arrow_trace(
    name: str, arrows: Sequence[ArrowOut], diagram: SpaceTimeOut, *, color: str, dash: str
) -> Iterator[Trace]:
    lines = [(a, a.emitted_ms, a.received_ms) for a in arrows if a.received_ms is not None]
    # If the arrow stands for several channels, the latest barrier is drawn too.
    lines += [
        (a, a.emitted_last_ms, a.received_last_ms)
        for a in arrows
        if a.channel_count > 1 and a.received_last_ms is not None
    ]
    if lines:
        yield _lines(name, lines, diagram, color=color, dash=dash, has_head=True)


def _lines(
    name: str,
    lines: Sequence[tuple[ArrowOut, float, float]],
    diagram: SpaceTimeOut,
    *,
    color: str,
    dash: str,
    has_head: bool,
) -> Trace:
    said = [words.of_arrow(a, diagram.lanes, diagram.basis) for a, _, _ in lines]
    is_dense = len(diagram.arrows) > _MANY_ARROWS
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [x for _, begin, end in lines for x in (begin, end, None)],
        "y": [y for a, _, _ in lines for y in (a.source, a.target, None)],
        "text": [t for hover in said for t in ("", hover, "")],
        "hoverinfo": "text",
        "opacity": 0.45 if is_dense else 0.9,
        "line": {"color": color, "width": 1 if is_dense else 1.3, "dash": dash},
        "marker": {
            "symbol": "arrow",
            "angleref": "previous",
            "color": color,
            "size": [s for _ in lines for s in (0, (7 if is_dense else 9) if has_head else 0, 0)],
            "opacity": 1,
        },
    }


@dataclass(frozen=True, slots=True)
class _Bar:
    row: int
    begin_ms: float
    end_ms: float
    said: str


def stretches(diagram: SpaceTimeOut, theme: Theme) -> Iterator[Trace]:
    """Yield what happened over time at the lanes: blocked channels, recorded input, and the two parts of a snapshot."""
    blocked = _of_stretches(diagram, lambda lane: lane.blocked, "channels", "blocked")
    recorded = _of_stretches(diagram, lambda lane: [lane.recorded] if lane.recorded else [], "input", "recorded")
    sync, written = _snapshot_parts(diagram)
    alignment = PHASE_COLORS[Phase.ALIGNMENT]
    yield from _bars("blocked", blocked, alignment, theme, width=0.5, pattern="\\")
    yield from _bars("recorded", recorded, UNALIGNED, theme, width=0.5, opacity=0.55)
    yield from _bars("sync", sync, PHASE_COLORS[Phase.SYNC], theme, width=0.24)
    yield from _bars("async", written, PHASE_COLORS[Phase.ASYNC], theme, width=0.24)


def _of_stretches(
    diagram: SpaceTimeOut, which: Callable[[LaneOut], Sequence[StretchOut]], subject: str, verb: str
) -> list[_Bar]:
    return [
        _Bar(
            row, s.begin_ms, diagram.end_ms if s.end_ms is None else s.end_ms, words.of_stretch(lane, s, subject, verb)
        )
        for row, lane in enumerate(diagram.lanes)
        for s in which(lane)
    ]


def _snapshot_parts(diagram: SpaceTimeOut) -> tuple[list[_Bar], list[_Bar]]:
    """Return the bars of the sync and the async parts, each from its earliest begin to its latest end."""
    sync: list[_Bar] = []
    written: list[_Bar] = []
    for row, lane in enumerate(diagram.lanes):
        for bars, begin_ms, end_ms, part in (
            (sync, lane.snapshot_ms, lane.sync_end_last_ms, "sync"),
            (written, lane.sync_end_ms, lane.async_end_last_ms, "async"),
        ):
            if begin_ms is not None and end_ms is not None and begin_ms <= end_ms:
                bars.append(_Bar(row, begin_ms, end_ms, words.of_part(lane, part, begin_ms, end_ms)))
    return sync, written


def _bars(
    name: str,
    bars: Sequence[_Bar],
    color: str,
    theme: Theme,
    *,
    width: float,
    pattern: str | None = None,
    opacity: float = 1.0,
) -> Iterator[Trace]:
    if not bars:
        return
    marker: dict[str, object] = {"color": color, "line": {"color": theme.outline, "width": 0.5}}
    if pattern is not None and len(bars) <= _PATTERNS_MAX:
        marker["pattern"] = {"shape": pattern, "size": 5, "solidity": 0.2, "fgcolor": theme.outline, "bgcolor": color}
    yield {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [b.row for b in bars],
        "base": [b.begin_ms for b in bars],
        "x": [b.end_ms - b.begin_ms for b in bars],
        "width": width,
        "text": [b.said for b in bars],
        "textposition": "none",
        "hoverinfo": "text",
        "opacity": opacity,
        "marker": marker,
    }


def cut(diagram: SpaceTimeOut, theme: Theme) -> Iterator[Trace]:
    """Yield the consistent cut: a line through the snapshots of all lanes. A lane without a snapshot interrupts it."""
    lanes = list(enumerate(diagram.lanes))
    if all(lane.snapshot_count == 0 for _, lane in lanes):
        return
    spread = [
        _Bar(row, lane.snapshot_ms, lane.snapshot_last_ms, words.of_snapshot(lane))
        for row, lane in lanes
        if lane.subtask is None and lane.snapshot_ms is not None and lane.snapshot_last_ms is not None
    ]
    yield from _bars("snapshots", spread, theme.text, theme, width=0.12)
    is_whole = all(lane.snapshot_count == lane.subtask_count for _, lane in lanes)
    dash = "dot" if diagram.basis is Basis.RECONSTRUCTED else "solid" if is_whole else "dash"
    yield {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "cut",
        "x": [lane.snapshot_last_ms for _, lane in lanes],
        "y": [row for row, _ in lanes],
        "connectgaps": False,
        "text": [words.of_snapshot(lane) for _, lane in lanes],
        "customdata": [[lane.vertex_id, lane.subtask] for _, lane in lanes],
        "hoverinfo": "text",
        "line": {"color": theme.path, "width": 2.4, "dash": dash},
        "marker": {
            "symbol": "diamond",
            "size": 9,
            "color": theme.surface,
            "line": {"color": theme.path, "width": 2},
        },
    }


def points(diagram: SpaceTimeOut, theme: Theme) -> Iterator[Trace]:
    """Yield the marks at an instant: acknowledgements, switches to unaligned, and aborts."""
    lanes = diagram.lanes
    acks = [(i, lane.ack_last_ms, words.of_ack(lane)) for i, lane in enumerate(lanes) if lane.ack_last_ms is not None]
    switches = [
        (i, lane.switched_ms, f"<b>{words.name_of(lane)}</b><br>switched to unaligned at {words.at(lane.switched_ms)}")
        for i, lane in enumerate(lanes)
        if lane.switched_ms is not None
    ]
    aborts = [
        (i, lane.aborted_ms, f"<b>{words.name_of(lane)}</b><br>given up at {words.at(lane.aborted_ms)}")
        for i, lane in enumerate(lanes)
        if lane.aborted_ms is not None
    ]
    for name, marks, symbol, color in (
        ("acknowledged", acks, "square", ACKED),
        ("switched", switches, "star-triangle-up", UNALIGNED),
        ("given up", aborts, "x", FAILED),
    ):
        if marks:
            yield {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [x for _, x, _ in marks],
                "y": [row for row, _, _ in marks],
                "text": [said for _, _, said in marks],
                "customdata": [[lanes[row].vertex_id, lanes[row].subtask] for row, _, _ in marks],
                "hoverinfo": "text",
                "marker": {"symbol": symbol, "size": 9, "color": color, "line": {"color": theme.surface, "width": 1}},
            }
