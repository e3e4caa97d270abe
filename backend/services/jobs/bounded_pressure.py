"""Bounds the newest readings of backpressure in an answer: of a very large job, only the highest values of each vertex.

A subtask has ten values, so the readings of a hundred thousand subtasks would be an answer of many megabytes. The
highest values are those that the graph of a job shows, and that tell which subtask is at capacity or held back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from backend.contracts.backpressure import VertexPressureOut

WHOLE_MAX: Final = 10_000
"""If a job has at most this many subtasks, the values of all are in the answer."""

_ARRAYS = (
    *("busy_ratio", "backpressured_ratio", "idle_ratio", "out_pool_usage_ratio", "in_pool_usage_ratio"),
    *("queued_in_bytes", "queued_out_bytes", "records_in_count", "records_in_per_s", "records_out_per_s"),
    "records_per_s",
)
_HIGHEST_OF = ("busy_ratio", "backpressured_ratio", "queued_in_bytes", "queued_out_bytes")


def bounded_pressure(readings: Sequence[VertexPressureOut], vertex_id: str | None) -> list[VertexPressureOut]:
    """Return the readings, or that of one vertex. If they have too many subtasks, only the highest values are kept."""
    wanted = [v for v in readings if vertex_id in (None, v.vertex_id)]
    if vertex_id is not None or sum(_length(v) for v in wanted) <= WHOLE_MAX:
        return wanted
    return [_highest(v) for v in wanted]


def _length(vertex: VertexPressureOut) -> int:
    return max(len(getattr(vertex, name)) for name in _ARRAYS)


def _highest(vertex: VertexPressureOut) -> VertexPressureOut:
    arrays = {name: getattr(vertex, name) for name in _ARRAYS}
    kept = sorted({i for name in _HIGHEST_OF if (i := _argmax(arrays[name])) is not None})
    # An array may be shorter than another, because the engine did not report it.
    shown = {name: [values[i] for i in kept if i < len(values)] for name, values in arrays.items()}
    return vertex.model_copy(update=shown | {"subtasks": kept})


def _argmax(values: Sequence[float | None]) -> int | None:
    known = [i for i, value in enumerate(values) if value is not None]
    return max(known, key=lambda i: values[i] or 0.0, default=None)
