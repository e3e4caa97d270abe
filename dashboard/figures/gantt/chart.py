"""V3: draws the phases of one checkpoint, with a row for each vertex and for each subtask of an opened vertex.

The x axis is milliseconds since the trigger. The segments are start delay, alignment, sync, async and ack wait. If
the snapshot starts before the last barrier arrives, the rest of the alignment is a thin bar over the async segment.

A closed vertex shows its envelope (earliest first barrier to latest acknowledgement) and one subtask: its slowest or,
if the critical path is pinned, the one on the path. A subtask that has not acknowledged is hatched. A first barrier
that was read from a gauge is a triangle. Subtasks with clock skew are marked.
"""

from __future__ import annotations

from collections.abc import Sequence

from backend.contracts.api import CheckpointDetailOut
from backend.domain.verdict import Phase
from dashboard.checkpoint_address import SubtaskOrder
from dashboard.figures.base import MEASURED_NAMES, Chart, Trace, axis, empty, labels_above, layout, ticks_ms
from dashboard.figures.gantt.bars import (
    critical_path,
    envelopes,
    gauge_marks,
    overlaid_alignment,
    phase_bars,
    pointer_bars,
    unacknowledged,
)
from dashboard.figures.gantt.marks import clock_skews, limits, vertex_bands
from dashboard.figures.gantt.rows import GanttRow, rows_of
from dashboard.figures.gantt.words import summary, table
from dashboard.palette import Theme

_ROW_PX = 22

_ROWS_SHOWN = 24

_LABELS_PX = 236

# In a narrow window, a row has its label above its bars. The bars keep their thickness in pixels.
_NARROW_ROW_PX = 40
_NARROW_MARGIN_PX = 8
_NARROW_STEPS = 5


def gantt(
    checkpoint: CheckpointDetailOut,
    *,
    theme: Theme,
    opened: Sequence[str] = (),
    sort: SubtaskOrder = SubtaskOrder.INDEX,
    is_path_pinned: bool = True,
    elapsed_ms: int | None = None,
    is_narrow: bool = False,
    axis_ms: float = 0.0,
) -> Chart:
    """Draw the phase chart of one checkpoint. The ``customdata`` of a bar is ``[vertex id, subtask or null]``.

    ``elapsed_ms`` is how long a checkpoint in progress has taken so far. In a narrow window, the labels stand above
    the bars. The axis goes at least to ``axis_ms``.
    """
    rows = rows_of(checkpoint, opened, sort, is_path_pinned=is_path_pinned)
    if not rows:
        return empty(theme, "The engine no longer had the subtasks of this checkpoint when Barrierscope read it.")
    end_ms = end_of(checkpoint, elapsed_ms)
    axis_ms = max(axis_ms, end_ms)
    traces = [
        envelopes(rows, theme),
        *unacknowledged(rows, theme, end_ms),
        *(phase_bars(p, rows, theme) for p in Phase),
        overlaid_alignment(rows),
        gauge_marks(rows, theme),
        *(critical_path(checkpoint, rows, theme) if is_path_pinned else []),
        pointer_bars(rows, axis_ms),
    ]
    row_px = _NARROW_ROW_PX if is_narrow else _ROW_PX
    height_px = (108 if _is_long(rows) else 70) + row_px * len(rows)
    if is_narrow:
        traces = [_thinner(t) for t in traces]
    figure = {"data": traces, "layout": _layout(checkpoint, rows, theme, axis_ms, height_px, is_narrow=is_narrow)}
    return Chart(figure, table(checkpoint), summary(checkpoint), height_px)


def _is_long(rows: Sequence[GanttRow]) -> bool:
    """Return whether the rows need more height than a screen has. If so, the time axis is drawn above the rows."""
    return len(rows) > _ROWS_SHOWN


def _thinner(trace: Trace) -> Trace:
    """Return a trace whose bars leave space for the label above them. The bars that take clicks keep the whole row."""
    width, factor = trace.get("width"), _ROW_PX / _NARROW_ROW_PX
    if trace["name"] == "row" or not isinstance(width, list | int | float):
        return trace
    return trace | {"width": [w * factor for w in width] if isinstance(width, list) else width * factor}


def _layout(
    checkpoint: CheckpointDetailOut,
    rows: Sequence[GanttRow],
    theme: Theme,
    end_ms: float,
    height_px: int,
    *,
    is_narrow: bool,
) -> dict[str, object]:
    is_long = _is_long(rows)
    values, labels = ticks_ms(end_ms, steps_max=_NARROW_STEPS if is_narrow else 9)
    shapes, notes = limits(checkpoint, end_ms, theme, shift_px=40 if is_long else 0, is_narrow=is_narrow)
    side = "top" if is_long else "bottom"
    span = [0, end_ms * 1.02]
    times = axis(theme, "since trigger", tickvals=values, ticktext=labels, range=span, side=side, tickangle=0)
    names = axis(
        theme,
        tickvals=list(range(len(rows))),
        ticktext=[r.label for r in rows],
        range=[len(rows) - 0.4, -0.6],
        tickfont={"size": 11, "color": theme.text},
        showgrid=False,
        fixedrange=True,
        # The automatic margin is off, because the browser needs seconds to fit it to hundreds of labels.
        automargin=False,
        # The browser would need many seconds to find which of hundreds of labels reach beyond the chart.
        ticklabeloverflow="allow",
    )
    if is_narrow:
        names["showticklabels"] = False
        notes += labels_above(theme, [r.label for r in rows], font_px=11, thickness_px=0.62 * _ROW_PX)
    return layout(
        theme,
        height_px=height_px,
        meta=MEASURED_NAMES,
        revision=f"gantt{checkpoint.run_id}/{checkpoint.checkpoint_id}/{len(rows)}/{is_narrow}",
        barmode="overlay",
        margin={"l": _NARROW_MARGIN_PX if is_narrow else _LABELS_PX, "r": 20, "t": 60 if is_long else 22, "b": 42},
        xaxis=times,
        yaxis=names,
        shapes=[*vertex_bands(rows, theme), *shapes],
        annotations=[*notes, *clock_skews(rows, theme)],
        hovermode="closest",
    )


def end_of(checkpoint: CheckpointDetailOut, elapsed_ms: int | None = None) -> float:
    """Return the last time that the phase chart of a checkpoint shows, in milliseconds since the trigger."""
    ends: list[float] = [1.0, float(checkpoint.end_to_end_duration_ms or 0), float(elapsed_ms or 0)]
    for vertex in checkpoint.vertices:
        for s in vertex.subtasks:
            ends += [float(v) for v in (s.ack_ms, s.async_end_ms, s.first_barrier_ms) if v is not None]
            if not s.is_acknowledged and s.first_barrier_ms is not None and elapsed_ms is None:
                # Leave space for the hatching, which begins at a late barrier.
                ends.append(1.05 * s.first_barrier_ms)
    return max(ends)
