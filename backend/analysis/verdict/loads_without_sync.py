"""Computes how busy the vertices would be without a long sync part, to find what would then limit the checkpoints.

While a subtask is in its sync part it counts as busy, the vertices above it are held back, and those below it get no
records. So a vertex above or below it that lacks capacity does not show as full: it is held back or idle for as long as
the sync part lasts. The checkpoints show how long sync parts last. This time is taken out of the loads, so that they
become shares of the time in which no sync part runs. These are reconstructed, not measured.

How much more input waits at the sources is not reported. So a vertex that has no time to spare besides the sync part
counts as full, even if it would keep up once it got the time of the sync part as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from backend.analysis.measures import pressure
from backend.analysis.measures.pressure import VertexLoad
from backend.analysis.numbers.arrays import Floats, column_means, highest_of, stacked
from backend.analysis.verdict.case import Case
from backend.analysis.words.thresholds import PHASE_MIN_MS, RELIEVED_BUSY_MIN_RATIO, RELIEVED_SPENT_MIN_RATIO
from backend.domain.ids import VertexId

# With less time than this left, what a vertex does in it is within the error of the readings.
_LEFT_MIN_RATIO = 0.1


def without_sync(case: Case, vertex_id: VertexId) -> Case | None:
    """Return the case without the sync parts of a vertex, or None if no other cause shows then.

    The suspect of the case is the vertex that has no time to spare when no sync part runs. It may be the vertex of the
    sync parts itself.
    """
    if case.report.is_mixed:
        # The readings of the struck checkpoints alone do not show how much of the time is left.
        return None
    shares = _sync_shares(case, vertex_id)
    longest = None if shares is None else highest_of(shares)
    if shares is None or longest is None or not 0 < longest <= 1 - _LEFT_MIN_RATIO:
        return None
    topology = case.evidence.topology
    below = pressure.descendants(topology, vertex_id)
    loads = {}
    for v, load in case.loads.items():
        if v == vertex_id:
            loads[v] = _less(load, busy=shares) if shares.size == load.busy.size else load
        elif v in below:
            loads[v] = _less(load, idle=np.full(load.idle.size, longest))
        elif vertex_id in pressure.descendants(topology, v):
            loads[v] = _less(load, backpressured=np.full(load.backpressured.size, longest))
        else:
            loads[v] = load
    suspect = pressure.root_suspect(topology, pressure.suspects(topology, loads))
    if suspect is None or suspect.busy < RELIEVED_BUSY_MIN_RATIO:
        return None
    spent = case.loads[suspect.vertex_id].busy - (shares if suspect.vertex_id == vertex_id else 0.0)
    if (highest_of(spent[list(suspect.full)]) or 0.0) < RELIEVED_SPENT_MIN_RATIO:
        return None
    return replace(case, loads=loads, suspect=replace(suspect, without=f"the sync part of {case.name(vertex_id)}"))


def is_endless(case: Case, vertex_id: VertexId, subtasks: Sequence[int]) -> bool:
    """Return whether no checkpoint shows a long sync part of these subtasks, because it does not end.

    All readings are then from the time of the sync part, so what the vertices do without it is not known.
    """
    parts = case.subtasks_of(vertex_id)
    shown = (highest_of(p.sync_duration_ms[[i for i in subtasks if i < len(p)]]) for p in parts)
    return all((ms or 0.0) < PHASE_MIN_MS for ms in shown)


def _sync_shares(case: Case, vertex_id: VertexId) -> Floats | None:
    """Return the share of the time in which each subtask was in its sync part, or None if it is not known."""
    rows = [w.phases[vertex_id].sync_duration_ms for w in case.walked if vertex_id in w.phases]
    times = [w.checkpoint.header.triggered_at for w in case.walked]
    if not rows or len({row.size for row in rows}) > 1:
        return None
    spent_ms = column_means(stacked(rows))
    # The last checkpoint lasts as long as its duration, and the others until the next trigger.
    span_ms = (times[-1] - times[0]).total_seconds() * 1000 + case.walked[-1].duration_ms
    return np.nan_to_num(spent_ms * len(rows) / span_ms) if span_ms > 0 else None


def _less(
    load: VertexLoad, *, busy: Floats | None = None, backpressured: Floats | None = None, idle: Floats | None = None
) -> VertexLoad:
    """Return the load without some of its time: ``busy``, ``backpressured`` or ``idle`` are the shares to take out.

    The result has shares of the time that is left.
    """
    nothing = np.zeros(load.busy.size)
    parts = [(load.busy, busy), (load.backpressured, backpressured), (load.idle, idle)]
    taken = [nothing if out is None else np.minimum(part, out) for part, out in parts]
    left = 1 - sum(taken, start=nothing)
    rest = [np.maximum(0.0, (part - out) / left) for (part, _), out in zip(parts, taken, strict=True)]
    return replace(load, busy=rest[0], backpressured=rest[1], idle=rest[2])
