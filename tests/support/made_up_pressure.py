"""The backpressure over time of a job of the fake API: its latest readings, with waves and one gap."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from backend.contracts.backpressure import VertexPressureOut
from backend.contracts.pressure_history import PressureHistoryOut, SubtaskHistoryOut, SuspectOut, VertexHistoryOut
from backend.domain.pressure import PressureMeasure
from backend.domain.verdict import VerdictKind

_Ratios = npt.NDArray[np.float64]
_BUCKETS = 120
_GAP = range(40, 52)


def pressure_history_of(
    latest: Sequence[VertexPressureOut],
    *,
    until: datetime,
    length: timedelta = timedelta(hours=1),
    vertex_id: str | None = None,
    measure: PressureMeasure = PressureMeasure.BACKPRESSURED,
) -> PressureHistoryOut:
    """Return a history that ends with the readings ``latest``.

    Raises:
        LookupError: there is no vertex ``vertex_id``.
    """
    found = {v.vertex_id: v for v in latest}
    if vertex_id is not None and vertex_id not in found:
        raise LookupError(f"vertex '{vertex_id}'")
    step = length / _BUCKETS
    columns = [i for i in range(_BUCKETS) if i not in _GAP] if latest else []
    full = [v for v in latest if max(v.busy_ratio, default=0) >= 0.9]  # type: ignore[type-var]
    return PressureHistoryOut(
        since=until - length,
        until=until,
        bucket_s=max(1, round(step.total_seconds())),
        buckets=[until - length + step * i for i in columns],
        vertices=[_vertex(v, columns) for v in latest],
        subtasks=None if vertex_id is None else _subtasks(found[vertex_id], measure, columns),
        suspects=[
            SuspectOut(
                vertex_id=v.vertex_id,
                vertex=v.vertex,
                subtasks=[i for i, b in enumerate(v.busy_ratio) if (b or 0) >= 0.9],
                kind=VerdictKind.CAPACITY,
                reason=f"{v.vertex} is at capacity: its subtasks are busy nearly all the time",
            )
            for v in full
        ],
        readings_count=6 * len(columns),
        readings_used_count=len(columns),
        as_of=until,
    )


def _vertex(v: VertexPressureOut, columns: Sequence[int]) -> VertexHistoryOut:
    rows = {m: _of(v, m, columns) for m in PressureMeasure}
    means = {m: _mean(row) for m, row in rows.items()}
    greatest = {m: _per_bucket(row.max(axis=0)) for m, row in rows.items()}
    sums = _per_bucket(rows[PressureMeasure.BACKPRESSURED].sum(axis=0))
    count = len(v.busy_ratio)
    busy_max = greatest[PressureMeasure.BUSY]
    return VertexHistoryOut(
        vertex_id=v.vertex_id,
        vertex=v.vertex,
        parallelism=count,
        busy_ratio=means[PressureMeasure.BUSY],
        backpressured_ratio=means[PressureMeasure.BACKPRESSURED],
        idle_ratio=means[PressureMeasure.IDLE],
        busy_max_ratio=busy_max,
        backpressured_max_ratio=greatest[PressureMeasure.BACKPRESSURED],
        queued_bytes=[round(30_000 * count * (1 + held)) for held in sums],
        queued_max_bytes=[round(40_000 * count * (1 + held)) for held in sums],
        time_to_consume_s=[None if v.vertex.startswith("Source") else round(0.3 + 4 * b, 3) for b in busy_max],
        records_in_skew_ratio=_skew(v.records_in_count, len(columns)),
    )


def _skew(counts: Sequence[int | None], columns: int) -> list[float | None]:
    known = [c for c in counts if c is not None]
    return [round(max(known) * len(known) / sum(known), 4) if known and sum(known) else None] * columns


def _subtasks(v: VertexPressureOut, measure: PressureMeasure, columns: Sequence[int]) -> SubtaskHistoryOut:
    values = [_per_bucket(row) for row in _of(v, measure, columns)]
    return SubtaskHistoryOut(vertex_id=v.vertex_id, measure=measure, values=values)


def _of(v: VertexPressureOut, measure: PressureMeasure, columns: Sequence[int]) -> _Ratios:
    """Return the values of a measure, shaped subtasks x buckets."""
    busy, held = _over(v.busy_ratio, columns), _over(v.backpressured_ratio, columns)
    if measure is PressureMeasure.IDLE:
        idle: _Ratios = 1 - busy - held
        return idle.clip(0.0, 1.0).round(4)
    return busy if measure is PressureMeasure.BUSY else held


def _over(values: Sequence[float | None], columns: Sequence[int]) -> _Ratios:
    """Return the latest reading of each subtask, reduced by a wave over time, shaped subtasks x buckets."""
    latest, bucket = np.array([v or 0.0 for v in values])[:, None], np.array(columns, dtype=int)[None, :]
    wave = 0.75 + 0.25 * np.cos((_BUCKETS - 1 - bucket) / 6)
    reduced: _Ratios = latest * wave * (1 - 0.12 * ((np.arange(len(values))[:, None] + bucket) % 3))
    return reduced.round(4)


def _per_bucket(values: _Ratios) -> list[float]:
    return [float(value) for value in values]


def _mean(values: _Ratios) -> list[float]:
    return _per_bucket(values.mean(axis=0).round(4))
