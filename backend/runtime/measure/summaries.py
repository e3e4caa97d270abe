"""Computes statistics of one checkpoint over the subtasks of a vertex: minimum, mean, maximum, quantiles (ME-12)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from backend.runtime.measure.measures import Ack, MeasuredCheckpoint

_QUANTILES = (50, 95, 99)
_Figure = Callable[[Ack], int | None]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Statistics over the subtasks that have a value. Quantiles use the nearest rank, so each is a measured value."""

    count: int
    least: int
    mean: float
    most: int
    p50: int
    p95: int
    p99: int


def distribution(values: Iterable[int | None]) -> Distribution | None:
    """Return the distribution of the known values, or None if no value is known."""
    row = sorted(v for v in values if v is not None)
    if not row:
        return None
    p50, p95, p99 = (row[max(0, -(-q * len(row) // 100) - 1)] for q in _QUANTILES)
    return Distribution(len(row), row[0], sum(row) / len(row), row[-1], p50, p95, p99)


def vertex_summary(record: MeasuredCheckpoint, vertex: int) -> Mapping[str, Distribution | None]:
    """Return the distributions of ME-1 to ME-9 over the subtasks of one vertex, by name, in microseconds and bytes."""
    acks = [ack for (v, _), ack in record.acks.items() if v == vertex]
    return {name: distribution(value(ack) for ack in acks) for name, value in _figures(record).items()}


def _figures(record: MeasuredCheckpoint) -> Mapping[str, _Figure]:
    return {
        "start_delay_us": lambda a: a.measured.start_delay_us,
        "alignment_us": lambda a: a.measured.alignment_us,
        "processed_bytes": lambda a: a.measured.processed_bytes,
        "persisted_bytes": lambda a: a.measured.persisted_bytes,
        "sync_us": lambda a: a.measured.sync_us,
        "async_us": lambda a: a.measured.async_us,
        "state_bytes": lambda a: a.measured.state_bytes,
        "end_to_end_us": lambda a: a.at_us - record.triggered_at_us,
    }
