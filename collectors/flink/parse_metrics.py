"""Converts metrics and barrier events of Flink's monitoring REST API to values. Does no I/O.

Flink sends the values of metrics as text, among them "NaN" and "true". A value that is not a number is left out.
Source: recordings of Flink.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from backend.contracts import flink
from backend.domain.barriers import BarrierEvent, BarrierEventKind, ChannelId
from backend.domain.checkpoint import ClusterSettings
from backend.domain.ids import VertexId
from collectors.flink.document import Document, number
from collectors.flink.parse import NAME_MAX

_BARRIER_EVENTS_MAX = 200_000

Readings = Mapping[tuple[int, str], float]
"""(subtask, metric name) -> value."""


def metric_names(document: Document) -> frozenset[str]:
    """Return the names of a vertex's metrics. The set is empty for some seconds after the vertex started."""
    return frozenset(row.get("id").text(length_max=NAME_MAX) for row in document.items())


def job_metrics(document: Document) -> dict[str, float]:
    """Read ``/jobs/:id/metrics``: the numeric metrics of a job, by name."""
    values = {row.get("id").text(length_max=NAME_MAX): number(row.get("value").value) for row in document.items()}
    return {name: value for name, value in values.items() if value is not None}


def vertex_metrics(document: Document) -> dict[tuple[int, str], float]:
    """Read ``/vertices/:vid/metrics?get=0.a,1.a``: the numeric metrics of a vertex, by subtask and name."""
    values: dict[tuple[int, str], float] = {}
    for n, row in enumerate(document.array()):
        text, reading = (row.get("id"), row.get("value")) if isinstance(row, dict) else (None, None)
        if not isinstance(text, str) or reading is None or len(text) > NAME_MAX or not text.isprintable():
            # The row does not look like one of Flink. It is read again by functions that raise an error with the path
            # of a wrong value.
            checked = document.item(n)
            text, reading = checked.get("id").text(length_max=NAME_MAX), checked.get("value").value
        key, value = _metric_of_subtask(text), number(reading)
        if value is not None and key is not None:
            values[key] = value
    return values


# All vertices of all jobs have the same metrics, so few texts are split again.
@lru_cache(maxsize=16_384)
def _metric_of_subtask(text: str) -> tuple[int, str] | None:
    """Return the subtask and the name of a metric such as ``7.busyTime``, or None if no subtask is named."""
    index, _, name = text.partition(".")
    return (int(index), name) if index.isascii() and index.isdecimal() and len(index) <= 5 else None


_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "min": 60_000, "m": 60_000}
_FETCH_INTERVAL_MAX_MS = 3_600_000
_DURATION = re.compile(r"(\d{1,9})\s*([a-z]*)")


def fetch_interval_ms(document: Document) -> int:
    """Return the cluster's interval for fetching metrics, from ``/jobmanager/config``, or else Flink's default."""
    duration_ms = _duration_ms(_cluster_setting(document, flink.METRICS_FETCH_INTERVAL))
    return flink.METRICS_FETCH_INTERVAL_DEFAULT_MS if duration_ms is None else min(duration_ms, _FETCH_INTERVAL_MAX_MS)


def debloat_target_ms(document: Document) -> int | None:
    """Return the cluster's target of buffer debloating, from ``/jobmanager/config``, or None if it is off."""
    if (_cluster_setting(document, flink.DEBLOAT_ENABLED) or "").lower() != "true":
        return None
    target = _cluster_setting(document, flink.DEBLOAT_TARGET)
    return flink.DEBLOAT_TARGET_DEFAULT_MS if target is None else _duration_ms(target)


def cluster_settings(document: Document) -> ClusterSettings:
    """Return the settings from ``/jobmanager/config`` that concern checkpoints, in the order of their keys.

    The interval for fetching metrics is among them, also if it is Flink's default.
    """
    settings = {key: value for key in flink.CLUSTER_KEYS if (value := _cluster_setting(document, key)) is not None}
    settings[flink.METRICS_FETCH_INTERVAL] = f"{fetch_interval_ms(document)} ms"
    return tuple(sorted(settings.items()))


def _cluster_setting(document: Document, key: str) -> str | None:
    for row in document.items():
        if row.get("key").value == key:
            return row.get("value").text(length_max=NAME_MAX).strip()
    return None


def _duration_ms(text: str | None) -> int | None:
    # Flink 1.x sends milliseconds, 2.x a duration such as "10 s".
    match = _DURATION.fullmatch((text or "").lower())
    return int(match[1]) * _UNITS_MS[match[2]] if match is not None and match[2] in _UNITS_MS else None


def ratio(value: float | None) -> float | None:
    """Return a share of time, cut to 1, because Flink's averages can exceed 1 slightly.

    A negative share (-1) was not measured and becomes None.
    """
    if value is None or value < 0:
        return None
    return min(value, 1.0)


# --- the live runtime's barrier events ----------------------------------------------------------------------------


def barriers(document: Document) -> tuple[BarrierEvent, ...]:
    """Read ``/jobs/:id/checkpoints/:cid/barriers``: the barrier events of one checkpoint."""
    barrier_events: list[BarrierEvent] = []
    for row in document.items():
        event, positions = _barrier(row), row.find("positions")
        if positions is None:
            barrier_events.append(event)
            continue
        # A position takes less than 10 bytes of the response, so the limit on the size of a response would allow too
        # many events.
        if len(barrier_events) + len(positions.array()) > _BARRIER_EVENTS_MAX:
            raise positions.fail(f"exceed {_BARRIER_EVENTS_MAX} barrier events, the largest number that is read")
        barrier_events += _positions(event, _between(row.get("between")), positions)
    return tuple(barrier_events)


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


def _between(document: Document) -> tuple[VertexId, VertexId]:
    if len(document.array()) != 2:
        raise document.fail("is not a pair of vertices")
    source, target = (VertexId(v.text(length_max=NAME_MAX)) for v in document.items())
    return source, target


def _positions(event: BarrierEvent, between: tuple[VertexId, VertexId], rows: Document) -> Iterator[BarrierEvent]:
    """Yield one event for each position: the sending subtask, the receiving subtask, and the bytes."""
    for row in rows.items():
        if len(row.array()) != 3:
            raise row.fail("is not two subtasks and a number of bytes")
        source_subtask, target_subtask, size_bytes = (value.count() for value in row.items())
        channel = ChannelId(*between, source_subtask, target_subtask)
        yield replace(event, channel=channel, size_bytes=size_bytes)


def _channel(document: Document) -> ChannelId:
    return ChannelId(
        VertexId(document.get("source").text(length_max=NAME_MAX)),
        VertexId(document.get("target").text(length_max=NAME_MAX)),
        document.get("source_subtask").count(),
        document.get("target_subtask").count(),
    )


def _count(document: Document | None) -> int | None:
    return None if document is None else document.count()
