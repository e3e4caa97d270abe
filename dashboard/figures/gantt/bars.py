"""Draws the bars and lines of the phase chart: segments, envelopes, unacknowledged subtasks and the critical path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.contracts.api import CheckpointDetailOut, SubtaskPhasesOut
from backend.domain.verdict import Phase
from dashboard.figures.base import Trace
from dashboard.figures.gantt.rows import GanttRow
from dashboard.figures.gantt.words import hover
from dashboard.palette import PHASE_COLORS, PHASE_WORDS, Theme

_PATTERNS_MAX = 100


@dataclass(frozen=True, slots=True)
class Segment:
    phase: Phase
    start_ms: float
    end_ms: float


def segments(subtask: SubtaskPhasesOut) -> list[Segment]:
    """Return the segments of one subtask. They do not overlap. A phase that was not reported has no segment."""
    s = subtask
    parts: list[Segment] = []
    if s.first_barrier_ms is not None:
        parts.append(Segment(Phase.START_DELAY, 0, s.first_barrier_ms))
    if s.first_barrier_ms is not None and s.alignment_end_ms is not None and not s.is_alignment_overlaid:
        parts.append(Segment(Phase.ALIGNMENT, s.first_barrier_ms, s.alignment_end_ms))
    elif s.first_barrier_ms is not None and s.snapshot_at_ms is not None and s.is_alignment_overlaid:
        parts.append(Segment(Phase.ALIGNMENT, s.first_barrier_ms, s.snapshot_at_ms))
    if s.snapshot_at_ms is not None and s.sync_end_ms is not None:
        parts.append(Segment(Phase.SYNC, s.snapshot_at_ms, s.sync_end_ms))
    if s.sync_end_ms is not None and s.async_end_ms is not None:
        parts.append(Segment(Phase.ASYNC, s.sync_end_ms, s.async_end_ms))
    if s.async_end_ms is not None and s.ack_ms is not None:
        parts.append(Segment(Phase.ACK_WAIT, s.async_end_ms, s.ack_ms))
    return [seg for seg in parts if seg.end_ms > seg.start_ms]


def phase_bars(phase: Phase, rows: Sequence[GanttRow], theme: Theme) -> Trace:
    bars = [
        (index, segment, row)
        for index, row in enumerate(rows)
        if row.subtask is not None
        for segment in segments(row.subtask)
        if segment.phase is phase
    ]
    marker: dict[str, object] = {"color": PHASE_COLORS[phase], "line": {"color": theme.outline, "width": 0.5}}
    # A pattern costs more than a bar itself, so hundreds of bars have only their colour.
    if phase is Phase.ALIGNMENT and len(bars) <= _PATTERNS_MAX:
        marker["pattern"] = {
            "shape": "\\",
            "size": 5,
            "solidity": 0.15,
            "fgcolor": theme.outline,
            "bgcolor": PHASE_COLORS[phase],
        }
    return {
        "type": "bar",
        "orientation": "h",
        "name": PHASE_WORDS[phase],
        "y": [index for index, _, _ in bars],
        "base": [segment.start_ms for _, segment, _ in bars],
        "x": [segment.end_ms - segment.start_ms for _, segment, _ in bars],
        "width": [0.62 if row.is_vertex else 0.5 for _, _, row in bars],
        "hoverinfo": "skip",
        "marker": marker,
    }


def pointer_bars(rows: Sequence[GanttRow], end_ms: float) -> Trace:
    """Draw an invisible bar over each row that carries the row's hover text.

    A hover text on each segment would need five times as many bytes.
    """
    return {
        "type": "bar",
        "orientation": "h",
        "name": "row",
        "y": list(range(len(rows))),
        "base": 0,
        "x": [end_ms * 1.02] * len(rows),
        "width": 1,
        "customdata": [_custom(row) for row in rows],
        "hovertext": [hover(row) for row in rows],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"color": "rgba(0,0,0,0)"},
    }


def overlaid_alignment(rows: Sequence[GanttRow]) -> Trace:
    bars = []
    for index, row in enumerate(rows):
        s = row.subtask
        if (
            s is not None
            and s.is_alignment_overlaid
            and s.snapshot_at_ms is not None
            and s.alignment_end_ms is not None
        ):
            bars.append((index, s.snapshot_at_ms, s.alignment_end_ms, row))
    return {
        "type": "bar",
        "orientation": "h",
        "name": "alignment inside async",
        "y": [index for index, *_ in bars],
        "base": [start for _, start, _, _ in bars],
        "x": [max(0, end - start) for _, start, end, _ in bars],
        "width": 0.16,
        "hoverinfo": "skip",
        "marker": {"color": PHASE_COLORS[Phase.ALIGNMENT]},
    }


def envelopes(rows: Sequence[GanttRow], theme: Theme) -> Trace:
    spans = []
    for index, row in enumerate(rows):
        firsts = [s.first_barrier_ms for s in row.vertex.subtasks if s.first_barrier_ms is not None]
        acks = [s.ack_ms for s in row.vertex.subtasks if s.ack_ms is not None]
        if row.is_vertex and firsts and acks and max(acks) > min(firsts):
            spans.append((index, min(firsts), max(acks), row))
    return {
        "type": "bar",
        "orientation": "h",
        "name": "envelope",
        "y": [index for index, *_ in spans],
        "base": [start for _, start, _, _ in spans],
        "x": [end - start for _, start, end, _ in spans],
        "width": 0.94,
        "hoverinfo": "skip",
        "marker": {"color": theme.unknown, "opacity": 0.35},
    }


def unacknowledged(rows: Sequence[GanttRow], theme: Theme, end_ms: float) -> list[Trace]:
    missing = []
    for index, row in enumerate(rows):
        s = row.subtask
        if s is not None and not s.is_acknowledged:
            missing.append((index, float(s.first_barrier_ms or 0), row))
    if not missing:
        return []
    return [
        {
            "type": "bar",
            "orientation": "h",
            "name": "not acknowledged",
            "y": [index for index, *_ in missing],
            "base": [start for _, start, _ in missing],
            "x": [max(0.0, end_ms - start) for _, start, _ in missing],
            "width": 0.5,
            "hoverinfo": "skip",
            "marker": {
                "color": "rgba(0,0,0,0)",
                "line": {"color": theme.unknown, "width": 1},
                "pattern": {"shape": "/", "size": 6, "solidity": 0.25, "fgcolor": theme.unknown},
            },
        }
    ]


def gauge_marks(rows: Sequence[GanttRow], theme: Theme) -> Trace:
    marks = []
    for index, row in enumerate(rows):
        s = row.subtask
        if s is not None and s.first_barrier_ms is not None and s.first_barrier_resolution_ms is not None:
            marks.append((index, s.first_barrier_ms, s.first_barrier_resolution_ms, row))
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "first barrier (gauge)",
        "x": [at for _, at, _, _ in marks],
        "y": [index for index, *_ in marks],
        "hoverinfo": "skip",
        "marker": {"symbol": "triangle-left", "size": 9, "color": theme.text},
    }


def critical_path(checkpoint: CheckpointDetailOut, rows: Sequence[GanttRow], theme: Theme) -> list[Trace]:
    if checkpoint.critical_path is None or not checkpoint.critical_path.steps:
        return []
    at: dict[tuple[str, int], int] = {}
    for index, row in enumerate(rows):
        if row.subtask is not None:
            at[(row.vertex.vertex_id, row.subtask.subtask)] = index
    xs: list[float | None] = []
    ys: list[float | None] = []
    for step in checkpoint.critical_path.steps:
        y = at.get((step.vertex_id, step.subtask))
        if y is not None:
            xs += [step.start_ms, step.end_ms]
            ys += [y + 0.42, y + 0.42]
    line = {"color": theme.path, "width": 2}
    marker = {"symbol": "diamond", "size": 8, "color": theme.path}
    common: Trace = {"type": "scatter", "name": "critical path", "hoverinfo": "skip"}
    end = [{**common, "mode": "markers", "x": [xs[-1]], "y": [ys[-1]], "marker": marker}] if xs else []
    return [{**common, "mode": "lines", "x": xs, "y": ys, "line": line}, *end]


def _custom(row: GanttRow) -> list[object]:
    return [row.vertex.vertex_id, None if row.subtask is None else row.subtask.subtask]
