"""Selects the metrics of a vertex, packs them into few requests, and converts their values. Does no I/O.

The shares of busy, idle and backpressured time are read as metrics, in the same requests as queues and gauges. This
saves one request per vertex, because Flink's backpressure endpoint only computes its response from the same three
metrics. The length of a request line is limited, so a vertex with many subtasks takes several requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import TypeVar

from backend.contracts import flink
from backend.domain.ids import VertexId
from backend.domain.pressure import Ratios, Values, VertexPressure
from collectors.flink.parse_metrics import Readings, ratio

T = TypeVar("T")

_NANOS_PER_MS = 1_000_000
_INT64 = 2**63
# A vertex is a chain of operators, of which more than a few commit only if somebody made up the names.
_COMMITTERS_MAX = 8
# Bytes reserved for "GET " and " HTTP/1.1", and for a prefix that a proxy may add to the path.
_LINE_OVERHEAD_BYTES = 256
# The paths of a vertex are kept if they name at most this many metrics, about 15 kB. A process keeps at most 1024 sets.
_KEPT_METRICS_MAX = 600


@dataclass(frozen=True, slots=True)
class MetricNames:
    """The names of one vertex's metrics that we read. A name is None if the vertex does not have this metric."""

    busy: str | None
    backpressured: str | None
    idle: str | None
    out_pool_usage: str | None
    in_pool_usage: str | None
    queued_in: str | None
    queued_out: str | None
    records_in: str | None
    records_out: str | None
    bytes_in: str | None
    records_in_per_s: str | None
    records_out_per_s: str | None
    start_delay: str | None
    alignment: str | None
    failed_commits: tuple[str, ...] = ()
    """The counters of failed commits, one for each operator that commits."""

    @property
    def pressure(self) -> tuple[str, ...]:
        """All metric names, to be requested for a complete reading of the vertex."""
        shares = (self.busy, self.backpressured, self.idle, self.out_pool_usage, self.in_pool_usage)
        amounts = (self.queued_in, self.queued_out, self.records_in, self.records_out, self.bytes_in)
        rates = (self.records_in_per_s, self.records_out_per_s)
        return tuple(n for n in shares + amounts + rates if n is not None) + self.gauges + self.failed_commits

    @property
    def without_rates(self) -> MetricNames:
        """These names without those of rates, which say too little while an attempt is young."""
        return replace(self, records_in_per_s=None, records_out_per_s=None)

    @property
    def gauges(self) -> tuple[str, ...]:
        """The names of those gauges that change when a barrier arrives."""
        return tuple(n for n in (self.start_delay, self.alignment) if n is not None)


def wanted_of(offered: frozenset[str], *, is_source: bool) -> MetricNames:
    """Select the metrics to read from ``offered``.

    If a metric has two names, the shorter name is used, to keep requests short. For the same reason one rate is read
    of each vertex: what a source emits, and what any other vertex reads. The other rate follows from the counts, which
    have the same age.
    """

    def one(*names: str) -> str | None:
        return next((n for n in names if n in offered), None)

    return MetricNames(
        busy=one(flink.BUSY),
        backpressured=one(flink.BACKPRESSURED),
        idle=one(flink.IDLE),
        out_pool_usage=one(*flink.OUT_POOL_USAGE),
        in_pool_usage=one(*flink.IN_POOL_USAGE),
        queued_in=one(*flink.INPUT_QUEUE_BYTES),
        queued_out=one(*flink.OUTPUT_QUEUE_BYTES),
        records_in=one(flink.RECORDS_IN),
        records_out=one(flink.RECORDS_OUT),
        bytes_in=one(flink.BYTES_IN),
        records_in_per_s=None if is_source else one(flink.RECORDS_IN_PER_S),
        records_out_per_s=one(flink.RECORDS_OUT_PER_S) if is_source else None,
        start_delay=one(flink.START_DELAY),
        alignment=one(flink.ALIGNMENT_TIME),
        failed_commits=tuple(sorted(n for n in offered if n.endswith(flink.FAILED_COMMITTABLES))[:_COMMITTERS_MAX]),
    )


def request_paths(
    job_id: str, vertex_id: VertexId, subtasks: range | tuple[int, ...], names: tuple[str, ...], *, prefix_bytes: int
) -> Sequence[str]:
    """Return the paths that read ``names`` of ``subtasks``.

    Each path is short enough for a request line, in which ``prefix_bytes`` precede the path.
    """
    is_kept = len(subtasks) * len(names) <= _KEPT_METRICS_MAX
    return (_kept_paths if is_kept else _paths)(job_id, vertex_id, subtasks, names, prefix_bytes)


def _paths(
    job_id: str, vertex_id: VertexId, subtasks: range | tuple[int, ...], names: tuple[str, ...], prefix_bytes: int
) -> Sequence[str]:
    room = flink.REQUEST_LINE_MAX_BYTES - _LINE_OVERHEAD_BYTES - prefix_bytes
    room -= len(flink.vertex_metrics(job_id, vertex_id))
    paths: list[str] = []
    ids: list[str] = []
    used = 0
    for metric in (f"{n}.{name}" for n in subtasks for name in names):
        if ids and used + len(metric) + 1 > room:
            paths.append(flink.vertex_metrics(job_id, vertex_id, tuple(ids)))
            ids, used = [], 0
        ids.append(metric)
        used += len(metric) + 1
    if ids:
        paths.append(flink.vertex_metrics(job_id, vertex_id, tuple(ids)))
    return tuple(paths)


# A poll usually reads the same metrics of the same subtasks as the one before.
_kept_paths = lru_cache(maxsize=1024)(_paths)


def vertex_pressure(
    vertex_id: VertexId, *, parallelism: int, readings: Readings, names: MetricNames, at: datetime
) -> VertexPressure | None:
    """Make one reading of one vertex, or return None if there are no readings."""
    if not readings:
        return None

    def column(name: str | None) -> list[float | None]:
        return [None if name is None else readings.get((n, name)) for n in range(parallelism)]

    return VertexPressure(
        vertex_id=vertex_id,
        observed_at=at,
        busy_ratio=_shares(column(names.busy)),
        backpressured_ratio=_shares(column(names.backpressured)),
        idle_ratio=_shares(column(names.idle)),
        out_pool_usage_ratio=_usages(column(names.out_pool_usage)),
        in_pool_usage_ratio=_usages(column(names.in_pool_usage)),
        queued_in_bytes=_wholes(column(names.queued_in)),
        queued_out_bytes=_wholes(column(names.queued_out)),
        records_in_count=_wholes(column(names.records_in)),
        records_out_count=_wholes(column(names.records_out)),
        bytes_in_count=_wholes(column(names.bytes_in)),
        records_in_per_s=_rates(column(names.records_in_per_s)),
        records_out_per_s=_rates(column(names.records_out_per_s)),
        start_delay_gauge_ms=_wholes(column(names.start_delay), divisor=_NANOS_PER_MS),
        alignment_gauge_ms=_wholes(column(names.alignment), divisor=_NANOS_PER_MS),
    )


def gauge_values(readings: Readings, name: str | None) -> Mapping[int, int]:
    """Return the values of one gauge by subtask, in the gauge's unit, without negative sentinels."""
    return {n: int(value) for (n, found), value in readings.items() if found == name and 0 <= value < _INT64}


def _shares(column: list[float | None]) -> Ratios:
    return tuple(ratio(None if v is None else v / 1000) for v in column)


def _usages(column: list[float | None]) -> Ratios:
    return _or_nothing(tuple(ratio(v) for v in column))


def _rates(column: list[float | None]) -> Ratios:
    return _or_nothing(tuple(None if v is None or v < 0 else v for v in column))


def _wholes(column: list[float | None], *, divisor: int = 1) -> Values:
    return _or_nothing(tuple(None if v is None or not 0 <= v < _INT64 else int(v) // divisor for v in column))


def _or_nothing(column: tuple[T | None, ...]) -> tuple[T | None, ...]:
    """Return ``column``, or an empty tuple (*not offered*) if no subtask reported a value."""
    return column if any(v is not None for v in column) else ()
