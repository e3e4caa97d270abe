"""Draws what is below the rows of the vertices, on the same time axis: subtasks, buffered bytes and checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo

from backend.contracts.api import CheckpointOut
from backend.contracts.pressure_history import PressureHistoryOut, SubtaskHistoryOut, VertexHistoryOut
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.pressure import PressureMeasure
from dashboard import text
from dashboard.figures.base import Trace
from dashboard.figures.pressure_history.cells import Cells, axis_ms
from dashboard.figures.scaling import clipped_top
from dashboard.palette import ALIGNED, FAILED, IN_TRANSIT, Theme

# A checkpoint is drawn at least this part of the range wide, so that a short one is visible.
_WIDTH_MIN_RATIO = 0.003


def subtask_cells(vertex: str, subtasks: SubtaskHistoryOut, cells: Cells, theme: Theme, axis: str) -> Trace:
    """Return one row of cells for each subtask. A cell without a reading is empty."""
    x: list[int] = []
    source: list[int | None] = []
    for i, (begin, end) in enumerate(zip(cells.begins, cells.ends, strict=True)):
        if i and cells.is_after_gap[i]:
            x.append(cells.ends[i - 1])
            source.append(None)
        x.append(begin)
        source.append(i)
        if i == len(cells.begins) - 1:
            x.append(end)
    color = {
        PressureMeasure.BUSY: theme.busy,
        PressureMeasure.BACKPRESSURED: IN_TRANSIT,
        PressureMeasure.IDLE: theme.idle if theme.name == "dark" else theme.unknown,
    }[subtasks.measure]
    return {
        "type": "heatmap",
        "yaxis": axis,
        "x": x,
        "y": list(range(len(subtasks.values))),
        "z": [[None if s is None else row[s] for s in source] for row in subtasks.values],
        "text": [[text.percent(None if s is None else row[s]) for s in source] for row in subtasks.values],
        "zmin": 0,
        "zmax": 1,
        "colorscale": [[0, theme.surface], [1, color]],
        "showscale": False,
        "hoverongaps": False,
        "ygap": 1 if len(subtasks.values) <= 40 else 0,
        "hovertemplate": (
            f"<b>{text.plain(vertex)}</b> subtask %{{y}}<br>%{{x|%Y-%m-%d %H:%M:%S}}<br>"
            f"{subtasks.measure.value} %{{text}}<extra></extra>"
        ),
    }


def queue_lines(
    history: PressureHistoryOut, opened: VertexHistoryOut | None, cells: Cells, theme: Theme, axis: str
) -> list[Trace]:
    """Return the buffered bytes of all vertices together and of the opened vertex. Buckets without values are gaps.

    The values are means. Vertices are read at different instants, so the sum of maxima would be too large.
    """
    total: list[int | None] = []
    for column in zip(*(v.queued_bytes for v in history.vertices), strict=True):
        known = [q for q in column if q is not None]
        total.append(sum(known) if known else None)
    lines = [_queue("all vertices", total, cells, theme.path, axis)]
    if opened is not None:
        lines.append(_queue(opened.vertex, opened.queued_bytes, cells, IN_TRANSIT, axis))
    return lines


def _queue(name: str, values: Sequence[int | None], cells: Cells, color: str, axis: str) -> Trace:
    x: list[int | None] = []
    y: list[int | None] = []
    words: list[str | None] = []
    for run in cells.runs([v is not None for v in values]):
        x.extend([*(cells.middles[i] for i in run), None])
        y.extend([*(values[i] for i in run), None])
        words.extend([*(text.size(values[i]) for i in run), None])
    return {
        "type": "scatter", "mode": "lines+markers", "name": name, "yaxis": axis, "x": x, "y": y, "text": words,
        "line": {"color": color, "width": 1.5}, "marker": {"size": 3, "color": color},
        "hovertemplate": f"{text.plain(name)}<br>%{{x|%Y-%m-%d %H:%M:%S}}<br>buffered %{{text}} (mean)<extra></extra>",
    }  # fmt: skip


def checkpoint_bars(
    checkpoints: Sequence[CheckpointOut], now: datetime, span_ms: int, theme: Theme, where: tzinfo, axis: str
) -> tuple[list[Trace], float, int]:
    """Return the bars of the checkpoints, the top of their axis in milliseconds, and the number of bars above it.

    A bar is as wide as the checkpoint is long, and as high as its duration. A failed one is orange with a cross.
    """
    durations = {(c.run_id, c.checkpoint_id): _duration_ms(c, now) for c in checkpoints}
    top = clipped_top(list(durations.values()))
    traces: list[Trace] = []
    looks = (
        ("completed", ALIGNED, [c for c in checkpoints if c.status is CheckpointStatus.COMPLETED]),
        ("failed", FAILED, [c for c in checkpoints if c.status is CheckpointStatus.FAILED]),
        ("in progress", theme.unknown, [c for c in checkpoints if c.status is CheckpointStatus.IN_PROGRESS]),
    )
    for name, color, members in looks:
        if not members:
            continue
        heights = [durations[c.run_id, c.checkpoint_id] for c in members]
        traces.append(
            {
                "type": "bar", "name": name, "yaxis": axis, "offset": 0,
                "x": [axis_ms(c.triggered_at, where) for c in members],
                "y": [min(h, top) for h in heights],
                "width": [max(h, _WIDTH_MIN_RATIO * span_ms) for h in heights],
                "marker": {"color": color, "opacity": 0.75, "line": {"width": 0}},
                "customdata": [[None, c.run_id, c.checkpoint_id] for c in members],
                "hovertext": [
                    f"{c.kind.value} {c.checkpoint_id}: {name}<br>{text.duration(h)}<br>click to open it"
                    for c, h in zip(members, heights, strict=True)
                ],
                "hovertemplate": "%{hovertext}<br>%{x|%Y-%m-%d %H:%M:%S}<extra></extra>",
            }
        )  # fmt: skip
        if name == "failed":
            traces.append(
                {
                    "type": "scatter", "mode": "markers", "name": "failed", "yaxis": axis, "hoverinfo": "skip",
                    "x": [axis_ms(c.triggered_at, where) for c in members], "y": [min(h, top) for h in heights],
                    "marker": {"symbol": "x", "size": 8, "color": color, "line": {"width": 1, "color": theme.surface}},
                    "cliponaxis": False,
                }
            )  # fmt: skip
    return traces, top, sum(d > top for d in durations.values())


def _duration_ms(checkpoint: CheckpointOut, now: datetime) -> float:
    if checkpoint.end_to_end_duration_ms is not None:
        return float(checkpoint.end_to_end_duration_ms)
    end = checkpoint.failed_at or (checkpoint.latest_ack_at if checkpoint.is_lost else now) or checkpoint.triggered_at
    return max(0.0, (end - checkpoint.triggered_at).total_seconds() * 1000)
