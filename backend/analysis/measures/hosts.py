"""Finds a slow host: its subtasks need longer for each record than those of other hosts, in several vertices.

One slow subtask is a straggler, whatever the reason. If all subtasks of a host are slow, in two vertices at least, then
the host is the cause: code or data would slow down the subtasks of one vertex, on all hosts. A host that stands still
for a while, such as in a garbage collection, needs no longer for each record, but all its subtasks are late at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backend.analysis.measures.critical_path import Phases
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.measures.pressure import VertexLoad
from backend.analysis.numbers.arrays import Floats, median_of
from backend.analysis.words.thresholds import HOST_COST_TIMES
from backend.domain.ids import VertexId

# A subtask that is busy for a smaller share of the time does not show how long it needs for a record.
_BUSY_MIN_RATIO = 0.02
_VERTICES_MIN = 2
# Over these, a subtask gets its barrier from one sender only, which may be late itself.
_FROM_ONE = frozenset({"FORWARD", "RESCALE"})
# Where a host stood still, first barriers are this late, as a share of the delay at the source; elsewhere they are not.
_LATE_RATIO, _SOON_RATIO = 0.5, 0.25


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
        cost_ratio = _cost_ratio(load, own)
        if cost_ratio is not None:
            ratios[placement.vertex_id] = cost_ratio
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


@dataclass(frozen=True, slots=True)
class StillHost:
    """A host on which everything is late at once, in ``checkpoint_count`` checkpoints.

    ``there_ms`` and ``elsewhere_ms`` are the first barriers of its subtasks and of the others in ``vertices``, which
    show it: the medians over these checkpoints.
    """

    host: str
    vertices: tuple[VertexId, ...]
    there_ms: float
    elsewhere_ms: float
    checkpoint_count: int


def still_host(
    evidence: JobEvidence, checkpoints: Sequence[Phases], vertex_id: VertexId, subtasks: Sequence[int], late_ms: float
) -> StillHost | None:
    """Return the host of these late subtasks of a source, if first barriers are as late at all its other subtasks.

    A subtask that has all subtasks of a source as senders gets a first barrier from those that are in time. If it gets
    none for as long as the source is late, and the subtasks on other hosts do, then it stood still as well.
    """
    named = evidence.hosts(vertex_id, tuple(subtasks))
    if len(named) != 1:
        return None
    places = {p.vertex_id: tuple(i for i, h in enumerate(p.hosts) if h == named[0]) for p in evidence.placements}
    asked = [
        (v.id, own)
        for v in evidence.topology.vertices
        if (own := places.get(v.id)) and len(own) < v.parallelism and _gets_from_all(evidence, v.id)
    ]
    shown = [found for phases in checkpoints if (found := _late_together(phases, asked, late_ms)) is not None]
    if not asked or 2 * len(shown) <= len(checkpoints):
        return None
    there, elsewhere = (median_of(np.array(row)) for row in zip(*shown, strict=True))
    return StillHost(named[0], tuple(v for v, _ in asked), there or 0.0, elsewhere or 0.0, len(shown))


def _gets_from_all(evidence: JobEvidence, vertex_id: VertexId) -> bool:
    inputs = evidence.topology.inputs(vertex_id)
    return bool(inputs) and all(e.ship_strategy not in _FROM_ONE for e in inputs)


def _late_together(
    phases: Phases, asked: Sequence[tuple[VertexId, tuple[int, ...]]], late_ms: float
) -> tuple[float, float] | None:
    """Return the first barriers there and elsewhere, if all there are late and those elsewhere are not."""
    there: list[float] = []
    elsewhere: list[float] = []
    for vertex_id, own in asked:
        if vertex_id not in phases:
            return None
        first = phases[vertex_id].first_barrier_ms
        if max(own) >= first.size:
            return None
        there += first[list(own)].tolist()
        elsewhere.append(median_of(np.delete(first, list(own))) or 0.0)
    if not there or not min(there) >= _LATE_RATIO * late_ms or max(elsewhere) > _SOON_RATIO * late_ms:
        return None
    return min(there), max(elsewhere)
