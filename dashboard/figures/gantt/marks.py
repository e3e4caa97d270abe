"""Draws the marks around the bars of the phase chart: timeouts, bands behind vertices, and clock skew."""

from __future__ import annotations

from collections.abc import Sequence

from backend.contracts.api import CheckpointDetailOut
from backend.domain.checkpoint import CheckpointStatus
from dashboard import text
from dashboard.figures.base import note
from dashboard.figures.gantt.rows import GanttRow
from dashboard.palette import FAILED, Theme


def limits(
    checkpoint: CheckpointDetailOut, end_ms: float, theme: Theme, *, shift_px: int, is_narrow: bool
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    shapes, notes = [], []
    marks: list[tuple[float | None, str, str]] = [
        (checkpoint.aligned_timeout_ms or None, "aligned timeout", theme.muted)
    ]
    if checkpoint.status is CheckpointStatus.FAILED:
        reason = checkpoint.failure_reason.value if checkpoint.failure_reason else "failed"
        marks.append((checkpoint.end_to_end_duration_ms, reason, FAILED))
    else:
        marks.append((checkpoint.timeout_ms, "timeout", FAILED))
    for at_ms, word, color in marks:
        if at_ms is None or at_ms > end_ms * 1.02:
            continue
        shapes.append(
            {
                "type": "line", "x0": at_ms, "x1": at_ms, "yref": "paper", "y0": 0, "y1": 1,
                "line": {"color": color, "width": 1.5, "dash": "dash"},
            }
        )  # fmt: skip
        # Right of this place, the words would leave the chart.
        anchor = "right" if at_ms > end_ms * (0.7 if is_narrow else 0.85) else "left"
        notes.append(
            note(
                theme, f"{word} {text.duration(at_ms)}", at_ms, 1, yref="paper", yanchor="bottom", xanchor=anchor,
                font={"size": 11, "color": theme.bad if color == FAILED else color}, yshift=shift_px,
            )
        )  # fmt: skip
    return shapes, notes


def vertex_bands(rows: Sequence[GanttRow], theme: Theme) -> list[dict[str, object]]:
    return [
        {
            "type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": index - 0.5, "y1": index + 0.5,
            "fillcolor": theme.grid, "opacity": 0.45, "line": {"width": 0}, "layer": "below",
        }
        for index, row in enumerate(rows)
        if row.is_vertex and len(rows) > len({r.vertex.vertex_id for r in rows})
    ]  # fmt: skip


def clock_skews(rows: Sequence[GanttRow], theme: Theme) -> list[dict[str, object]]:
    return [
        note(
            theme, "clock skew", 1, index, xref="paper", xanchor="right", bordercolor=FAILED, borderpad=1,
            bgcolor=theme.surface, font={"size": 10, "color": theme.text},
        )
        for index, row in enumerate(rows)
        if row.subtask is not None and row.subtask.has_clock_skew
    ]  # fmt: skip
