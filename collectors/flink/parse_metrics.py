"""Metrics, backpressure and barrier events of Flink's monitoring REST -> values. Pure.

Metric values are text, including "NaN" and "true"; values that are not numbers are left out. Source: recordings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from backend.contracts import flink
from backend.domain.barriers import BarrierEvent, BarrierEventKind, ChannelId
from backend.domain.ids import VertexId
from backend.domain.pressure import Ratios
from collectors.flink.document import Document, number
from collectors.flink.parse import NAME_MAX

Readings = Mapping[tuple[int, str], float]
"""(subtask, metric name) -> value."""


def metric_names(document: Document) -> frozenset[str]:
    """The names of a vertex's metrics; empty for some seconds after its start."""
    return frozenset(row.get("id").text(length_max=NAME_MAX) for row in document.items())


def job_metrics(document: Document) -> dict[str, float]:
    """``/jobs/:id/metrics``: name -> value."""
    found = {row.get("id").text(length_max=NAME_MAX): number(row.get("value").value) for row in document.items()}
    return {name: value for name, value in found.items() if value is not None}


def vertex_metrics(document: Document) -> dict[tuple[int, str], float]:
    """``/vertices/:vid/metrics?get=0.a,1.a``: by subtask and name."""
    found: dict[tuple[int, str], float] = {}
    for row in document.items():
        index, _, name = row.get("id").text(length_max=NAME_MAX).partition(".")
        value = number(row.get("value").value)
        if value is not None and index.isascii() and index.isdecimal() and len(index) <= 5:
            found[int(index), name] = value
    return found


_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "min": 60_000, "m": 60_000}
_FETCH_INTERVAL_MAX_MS = 3_600_000
_DURATION = re.compile(r"(\d{1,9})\s*([a-z]*)")


def fetch_interval_ms(document: Document) -> int:
    """Return the cluster's interval for fetching metrics, from ``/jobmanager/config``; by default Flink's default."""
    for row in document.items():
        if row.get("key").value == flink.METRICS_FETCH_INTERVAL:
            # Milliseconds in 1.x, a duration such as "10 s" in 2.x.
            found = _DURATION.fullmatch(row.get("value").text(length_max=NAME_MAX).strip().lower())
            if found is not None and found[2] in _UNITS_MS:
                return min(int(found[1]) * _UNITS_MS[found[2]], _FETCH_INTERVAL_MAX_MS)
    return flink.METRICS_FETCH_INTERVAL_DEFAULT_MS


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the time of each subtask, 0..1."""

    busy_ratio: Ratios
    backpressured_ratio: Ratios
    idle_ratio: Ratios


def backpressure(document: Document) -> Shares | None:
    """``/vertices/:vid/backpressure``; None before Flink has fetched the vertex's metrics."""
    if document.get("status").value == flink.BACKPRESSURE_NOT_MEASURED:
        return None
    found = {_position(row): row for row in document.get("subtasks").items()}
    rows = [found.get(n) for n in range(max(found, default=-1) + 1)]
    return Shares(_ratios(rows, "busyRatio"), _ratios(rows, "ratio"), _ratios(rows, "idleRatio"))


def _position(row: Document) -> int:
    index = row.get("subtask")
    if index.count() >= flink.PARALLELISM_MAX:
        raise index.fail(f"is {index.value}, fewer than {flink.PARALLELISM_MAX} subtasks are possible")
    return index.count()


def _ratios(rows: list[Document | None], key: str) -> Ratios:
    return tuple(None if row is None else ratio(_value(row.find(key))) for row in rows)


def _value(document: Document | None) -> float | None:
    return None if document is None else number(document.value)


def ratio(value: float | None) -> float | None:
    """Return a share of time, at most 1; None if not measured (-1). Flink's averages can exceed 1 slightly."""
    if value is None or value < 0:
        return None
    return min(value, 1.0)


# --- the live runtime's barrier events ----------------------------------------------------------------------------


def barriers(document: Document) -> tuple[BarrierEvent, ...]:
    """``/jobs/:id/checkpoints/:cid/barriers``."""
    return tuple(_barrier(row) for row in document.items())


def _barrier(row: Document) -> BarrierEvent:
    word = row.get("kind")
    try:
        kind = BarrierEventKind(str(word.value))
    except ValueError:
        raise word.fail(f"is {str(word.value)[:60]!r}, a kind of barrier event is needed") from None
    channel, reason = row.find("channel"), row.find("reason")
    return BarrierEvent(
        kind=kind,
        vertex_id=VertexId(row.get("vertex").text(length_max=NAME_MAX)),
        subtask=row.get("subtask").count(),
        at_us=row.get("at_us").whole(),
        lamport=row.get("lamport").whole(),
        channel=None if channel is None else _channel(channel),
        size_bytes=_count(row.find("bytes")),
        records=_count(row.find("records")),
        reason=None if reason is None else reason.text(length_max=NAME_MAX),
    )


def _channel(document: Document) -> ChannelId:
    return ChannelId(
        VertexId(document.get("source").text(length_max=NAME_MAX)),
        VertexId(document.get("target").text(length_max=NAME_MAX)),
        document.get("source_subtask").count(),
        document.get("target_subtask").count(),
    )


def _count(document: Document | None) -> int | None:
    return None if document is None else document.count()
