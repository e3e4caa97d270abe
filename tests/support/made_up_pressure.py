"""The backpressure over time of a job of the fake API: its latest readings, with waves and one gap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from backend.contracts.backpressure import VertexPressureOut
from backend.contracts.pressure_history import PressureHistoryOut, SubtaskHistoryOut, SuspectOut, VertexHistoryOut
from backend.domain.pressure import PressureMeasure
from backend.domain.verdict import VerdictKind

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
    rows = {m: [_of(v, m, c) for c in columns] for m in PressureMeasure}
    busy, held = rows[PressureMeasure.BUSY], rows[PressureMeasure.BACKPRESSURED]
    means = {m: [round(sum(r) / len(r), 4) for r in row] for m, row in rows.items()}
    count = len(v.busy_ratio)
    return VertexHistoryOut(
        vertex_id=v.vertex_id,
        vertex=v.vertex,
        parallelism=count,
        busy_ratio=means[PressureMeasure.BUSY],
        backpressured_ratio=means[PressureMeasure.BACKPRESSURED],
        idle_ratio=means[PressureMeasure.IDLE],
        busy_max_ratio=[max(r) for r in busy],
        backpressured_max_ratio=[max(r) for r in held],
        queued_bytes=[round(30_000 * count * (1 + sum(r))) for r in held],
        queued_max_bytes=[round(40_000 * count * (1 + sum(r))) for r in held],
        time_to_consume_s=[None if v.vertex.startswith("Source") else round(0.3 + 4 * max(r), 3) for r in busy],
        records_in_skew_ratio=_skew(v.records_in_count, len(columns)),
    )


def _skew(counts: Sequence[int | None], columns: int) -> list[float | None]:
    known = [c for c in counts if c is not None]
    return [round(max(known) * len(known) / sum(known), 4) if known and sum(known) else None] * columns


def _subtasks(v: VertexPressureOut, measure: PressureMeasure, columns: Sequence[int]) -> SubtaskHistoryOut:
    by_column = [_of(v, measure, c) for c in columns]
    values = [[column[i] for column in by_column] for i in range(len(v.busy_ratio))]
    return SubtaskHistoryOut(vertex_id=v.vertex_id, measure=measure, values=values)


def _of(v: VertexPressureOut, measure: PressureMeasure, column: int) -> list[float]:
    busy, held = _at(v.busy_ratio, column), _at(v.backpressured_ratio, column)
    idle = [round(max(0.0, 1 - b - h), 4) for b, h in zip(busy, held, strict=True)]
    return {PressureMeasure.BUSY: busy, PressureMeasure.BACKPRESSURED: held, PressureMeasure.IDLE: idle}[measure]


def _at(values: Sequence[float | None], column: int) -> list[float]:
    """Return the values of all subtasks in one bucket: those of the latest reading, reduced by a wave over time."""
    wave = 0.75 + 0.25 * math.cos((_BUCKETS - 1 - column) / 6)
    return [round((v or 0.0) * wave * (1 - 0.12 * ((i + column) % 3)), 4) for i, v in enumerate(values)]
