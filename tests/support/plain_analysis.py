"""The analysis of subtasks one by one, in plain Python: the reference for the array code of ``backend/analysis``.

Every function reads ``SubtaskPhases`` or the values of single subtasks, and follows the rules word by word. This code
is slow, but speed does not matter in tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

import numpy as np

from backend.analysis.measures.phases import SubtaskPhases
from backend.analysis.words.thresholds import PRESSURE_WINDOW_S, RATE_WINDOW_S
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Edge, Topology

Value = float | None
PlainPhases = Mapping[VertexId, Sequence[SubtaskPhases]]


def known(values: Iterable[Value]) -> list[float]:
    """Return the values that are not None."""
    return [v for v in values if v is not None]


def columns(rows: Sequence[Sequence[Value]]) -> list[list[float]]:
    """Return the reported values of each column; a row may be shorter than others."""
    width = max((len(row) for row in rows), default=0)
    return [known(row[i] for row in rows if i < len(row)) for i in range(width)]


def mean(values: Sequence[float]) -> Value:
    """Return NumPy's mean, or None if there are no values."""
    return float(np.mean(values)) if values else None


def quantile(values: Sequence[float], q: float) -> Value:
    """Return NumPy's quantile, or None if there are no values."""
    return float(np.quantile(values, q)) if values else None


def loads(pressure: Sequence[VertexPressure]) -> dict[VertexId, dict[str, list[Value]]]:
    """Return the mean shares and the records of each vertex over its newest readings in which it ran."""
    alive = [r for r in pressure if any(_is_running(r, i) for i in range(len(r.busy_ratio)))]
    if not alive:
        return {}
    since = max(r.observed_at for r in alive) - timedelta(seconds=PRESSURE_WINDOW_S)
    by_vertex: dict[VertexId, list[VertexPressure]] = {}
    for reading in alive:
        if reading.observed_at >= since:
            by_vertex.setdefault(reading.vertex_id, []).append(reading)
    return {v: _load(readings) for v, readings in by_vertex.items()}


def _is_running(reading: VertexPressure, i: int) -> bool:
    shares = (reading.busy_ratio, reading.backpressured_ratio, reading.idle_ratio)
    reported = known(s[i] for s in shares if i < len(s))
    return bool(reported) and (len(reported) < len(shares) or sum(reported) >= 0.5)


def _load(readings: Sequence[VertexPressure]) -> dict[str, list[Value]]:
    found: dict[str, list[Value]] = {}
    for name in ("busy", "backpressured", "idle"):
        rows = [[v if _is_running(r, i) else None for i, v in enumerate(getattr(r, f"{name}_ratio"))] for r in readings]
        found[name] = [mean(values) for values in columns(rows)]
    counted = [r for r in readings if known(r.records_in_count)]
    total: list[Value] = []
    recent: list[Value] = []
    if counted:
        first, last = counted[0], counted[-1]
        total = list(last.records_in_count)
        if len(first.records_in_count) == len(total):
            pairs = zip(first.records_in_count, total, strict=True)
            recent = [b - a if a is not None and b is not None and b >= a else None for a, b in pairs]
        recent = recent if sum(known(recent)) > 0 else []
        is_short = (last.observed_at - first.observed_at).total_seconds() < RATE_WINDOW_S
        found["records"] = total if is_short or not recent else recent
    return {"records": total, "recent_records": recent} | found


def senders(topology: Topology, vertex_id: VertexId, subtask: int, phases: PlainPhases) -> list[tuple[VertexId, int]]:
    """Return those upstream subtasks with a channel to this subtask whose details are known."""
    return [
        (edge.source, i)
        for edge in topology.edges
        if edge.target == vertex_id and edge.source in phases
        for i in range(len(phases[edge.source]))
        if _has_channel(edge, i, subtask, phases)
    ]


def _has_channel(edge: Edge, source: int, target: int, phases: PlainPhases) -> bool:
    is_pointwise = edge.ship_strategy == "FORWARD" and len(phases[edge.source]) == len(phases[edge.target])
    return source == target or not is_pointwise


def sender(
    topology: Topology, phases: PlainPhases, vertex_id: VertexId, subtask: int, reached_ms: int
) -> tuple[VertexId, int, int] | None:
    """Return the subtask that most likely sent the barrier that arrived at ``reached_ms``, and the time of sending."""
    times = [
        (v, i, max(0, sent))
        for v, i in senders(topology, vertex_id, subtask, phases)
        if (sent := phases[v][i].snapshot_at_ms) is not None
    ]
    in_time = [t for t in times if t[2] <= reached_ms]
    if in_time:
        return max(in_time, key=lambda t: (t[2], -t[1]))
    return min(times, key=lambda t: (t[2], t[1]), default=None)


def last(topology: Topology, phases: PlainPhases) -> tuple[VertexId, int] | None:
    """Return the subtask that acknowledged last, or the one that the checkpoint waits for."""
    order = {v.id: n for n, v in enumerate(topology.vertices)}
    pending = [(v, p) for v, rows in phases.items() for p in rows if not p.is_acknowledged]
    seen = [(v, p) for v, p in pending if p.first_barrier_ms is not None]
    done = [(v, p) for v, rows in phases.items() for p in rows if p.is_acknowledged]
    if seen:
        v, p = max(seen, key=lambda x: (x[1].first_barrier_ms, -order.get(x[0], 0), -x[1].subtask))
    elif pending:
        v, p = min(pending, key=lambda x: (order.get(x[0], len(order)), x[1].subtask))
    elif done:
        v, p = max(done, key=lambda x: (x[1].ack_ms, order.get(x[0], 0), -x[1].subtask))
    else:
        return None
    return v, p.subtask


def without(phases: PlainPhases, vertex_id: VertexId, subtask: int, *, end_ms: int | None) -> int | None:
    """Return when the last of all other subtasks acknowledged, or None if one of them has not acknowledged.

    The time is neither before the trigger nor after the end of the checkpoint.
    """
    others = [p.ack_ms for v, rows in phases.items() for p in rows if (v, p.subtask) != (vertex_id, subtask)]
    found = max(known(others), default=None) if None not in others else None
    return None if found is None else max(0, found if end_ms is None else min(found, end_ms))


def hop(topology: Topology, phases: PlainPhases, vertex_id: VertexId, duration_ms: int) -> list[Value]:
    """Return, for each subtask of the vertex, how long the barrier took from the subtask's latest sender."""
    found: list[Value] = []
    for p in phases[vertex_id]:
        sent = [phases[v][i].snapshot_at_ms for v, i in senders(topology, vertex_id, p.subtask, phases)]
        is_awaited = not p.is_acknowledged and p.travel_ms is None
        reached = duration_ms if is_awaited else p.travel_ms
        is_known = reached is not None and sent and None not in sent
        found.append(max(0, reached - max(sent)) if is_known else None)
    return found


def async_parts(topology: Topology, phases: PlainPhases, vertex_id: VertexId) -> list[Value]:
    """Return the part of each async part after the barrier reached the last receiver.

    Before that, the async part may only be waiting until all receivers consume the barrier.
    """
    found: list[Value] = []
    for p in phases[vertex_id]:
        arrived: list[Value] = []
        for edge in (e for e in topology.edges if e.source == vertex_id):
            below = phases.get(edge.target)
            arrived += (
                [None]
                if below is None
                else [q.travel_ms for q in below if _has_channel(edge, p.subtask, q.subtask, phases)]
            )
        is_known = arrived and None not in arrived and None not in (p.own_async_ms, p.async_end_ms)
        found.append(min(p.own_async_ms, max(0, p.async_end_ms - max(arrived))) if is_known else None)
    return found
