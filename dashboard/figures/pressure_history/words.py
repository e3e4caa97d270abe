"""Builds the table of a pressure history, and its summary for screen readers."""

from __future__ import annotations

from collections.abc import Sequence

from backend.contracts.api import CheckpointOut
from backend.contracts.pressure_history import PressureHistoryOut, VertexHistoryOut
from backend.domain.checkpoint import CheckpointStatus
from dashboard import text
from dashboard.figures.base import Cell, Table

_COLUMNS = (
    "vertex",
    "from (UTC)",
    "length (s)",
    "busy (ratio)",
    "backpressured (ratio)",
    "idle (ratio)",
    "busiest subtask (ratio)",
    "most backpressured subtask (ratio)",
    "buffered, mean (bytes)",
    "buffered, largest (bytes)",
    "time to consume, reconstructed (s)",
)


def table(history: PressureHistoryOut, opened: VertexHistoryOut | None) -> Table:
    """Return the values of each vertex in each bucket. If a vertex is opened, it has a column for each subtask."""
    if opened is not None and history.subtasks is not None:
        heads = ("from (UTC)", *(f"subtask {i} (ratio)" for i in range(len(history.subtasks.values))))
        return Table(
            heads,
            tuple(
                (begin.isoformat(), *(row[i] for row in history.subtasks.values))
                for i, begin in enumerate(history.buckets)
            ),
        )
    rows: list[tuple[Cell, ...]] = []
    for v in history.vertices:
        columns = (
            v.busy_ratio,
            v.backpressured_ratio,
            v.idle_ratio,
            v.busy_max_ratio,
            v.backpressured_max_ratio,
            v.queued_bytes,
            v.queued_max_bytes,
            v.time_to_consume_s,
        )
        rows += [
            (v.vertex, begin.isoformat(), history.bucket_s, *(c[i] for c in columns))
            for i, begin in enumerate(history.buckets)
            if any(c[i] is not None for c in columns)
        ]
    return Table(_COLUMNS, tuple(rows))


def summary(history: PressureHistoryOut, checkpoints: Sequence[CheckpointOut]) -> str:
    """Return what stands out: the busiest and the most back-pressured subtask, and how the checkpoints fared."""
    parts = [f"{len(history.vertices)} vertices in {len(history.buckets)} intervals of {history.bucket_s} s."]
    for word, most in (
        ("busiest", [(_most(v.busy_max_ratio), v.vertex) for v in history.vertices]),
        ("most backpressured", [(_most(v.backpressured_max_ratio), v.vertex) for v in history.vertices]),
    ):
        value, name = max(most)
        if value >= 0:
            parts.append(f"The {word} subtask, at {text.percent(value)}, is of {name}.")
    failed = sum(c.status is CheckpointStatus.FAILED for c in checkpoints)
    parts.append(f"{len(checkpoints)} checkpoints began in this time, of which {failed} failed.")
    return " ".join(parts)


def _most(values: Sequence[float | None]) -> float:
    return max((v for v in values if v is not None), default=-1.0)
