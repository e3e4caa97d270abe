"""Finds a slow host: its subtasks need longer for each record than those of other hosts, in several vertices.

One slow subtask is a straggler, whatever the reason. If all subtasks of a host are slow, in two vertices at least, then
the host is the cause: code or data would slow down the subtasks of one vertex, on all hosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.measures.pressure import VertexLoad
from backend.analysis.numbers.arrays import Floats, median_of
from backend.analysis.words.thresholds import HOST_COST_TIMES
from backend.domain.ids import VertexId

# A subtask that is busy for a smaller share of the time does not show how long it needs for a record.
_BUSY_MIN_RATIO = 0.02
_VERTICES_MIN = 2


@dataclass(frozen=True, slots=True)
class SlowHost:
    """A host, and for each vertex with subtasks there and elsewhere how many times as long a record takes there."""

    host: str
    cost_ratios: Mapping[VertexId, float]
    subtasks: Mapping[VertexId, tuple[int, ...]]


def slow_host(
    evidence: JobEvidence, loads: Mapping[VertexId, VertexLoad], vertex_id: VertexId, subtasks: Sequence[int]
) -> SlowHost | None:
    """Return the host of these subtasks, if they are on one host and the host is slow in other vertices too.

    Every vertex that shows the host's speed must agree. A vertex does not show it if it has no subtasks on another
    host, or if its subtasks are hardly busy.
    """
    named = evidence.hosts(vertex_id, tuple(subtasks))
    if len(named) != 1 or not subtasks:
        return None
    host = named[0]
    ratios: dict[VertexId, float] = {}
    there: dict[VertexId, tuple[int, ...]] = {}
    for placement in evidence.placements:
        load = loads.get(placement.vertex_id)
        own = tuple(i for i, h in enumerate(placement.hosts) if h == host)
        if load is None or not own or len(own) == len(placement.hosts):
            continue
        there[placement.vertex_id] = own
        found = _cost_ratio(load, own)
        if found is not None:
            ratios[placement.vertex_id] = found
    is_slow = len(ratios) >= _VERTICES_MIN and vertex_id in ratios and min(ratios.values()) >= HOST_COST_TIMES
    return SlowHost(host, ratios, there) if is_slow else None


def _cost_ratio(load: VertexLoad, own: Sequence[int]) -> float | None:
    """Return the time per record of these subtasks, divided by that of the others."""
    if load.records.size != load.busy.size or max(own) >= load.busy.size:
        return None
    is_shown = (load.busy >= _BUSY_MIN_RATIO) & (load.records > 0)
    costs: Floats = np.where(is_shown, load.busy / np.where(load.records > 0, load.records, np.nan), np.nan)
    is_own = np.zeros(costs.size, dtype=np.bool_)
    is_own[list(own)] = True
    mine, others = median_of(costs[is_own]), median_of(costs[~is_own])
    return mine / others if mine is not None and others else None
