"""Full subtasks below back-pressured ones: the reliable sign of a culprit.

A culprit is busy nearly all the time, is not back-pressured itself, and the vertex above it is (flink-baseline.md,
"What real runs teach", 11). If all subtasks of the vertex are full, the vertex lacks capacity. If only some are, they
get more records than their siblings (skew) or need longer for each record (straggler). Lateness is no sign, because
everything below the culprit is late and idle.

Invariant: the result does not depend on the order of subtasks. A subtask without readings is neither full nor idle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from backend.analysis.statistics import column_means, highest, known, mean, ratio
from backend.analysis.thresholds import (
    BACKPRESSURED_MIN_RATIO,
    BACKPRESSURED_OK_RATIO,
    BUSY_MIN_RATIO,
    HOP_MIN_MS,
    PRESSURE_WINDOW_S,
    RATE_WINDOW_S,
    SIBLINGS_BUSY_RATIO,
)
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Topology
from backend.domain.verdict import VerdictKind

Ratios = tuple[float | None, ...]

# The shares of one window add up to one. If they add up to less than this, the subtask did not run in the window.
_ALIVE_SUM = 0.5


@dataclass(frozen=True, slots=True)
class VertexLoad:
    """Means over the readings of one vertex, by subtask.

    ``recent_records`` are the records read between the first and the last reading. ``records`` are the same, or the
    records since the start if the readings are too close together (``is_total``).
    """

    vertex_id: VertexId
    reading_count: int
    busy: Ratios
    backpressured: Ratios
    idle: Ratios
    records: Ratios = ()
    is_total: bool = False
    recent_records: Ratios = ()

    def is_full(self, subtask: int) -> bool:
        """Whether the subtask is busy nearly all the time and not back-pressured."""
        busy, held = self.busy[subtask], self.backpressured[subtask]
        return busy is not None and busy >= BUSY_MIN_RATIO and (held is None or held <= BACKPRESSURED_OK_RATIO)

    @property
    def known_subtasks(self) -> tuple[int, ...]:
        """The subtasks that have a reading."""
        return tuple(i for i, b in enumerate(self.busy) if b is not None)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A vertex with full subtasks below a back-pressured vertex (``feeder``).

    ``share_ratio`` compares the records of the full subtasks with those of their siblings, ``cost_ratio`` the busy
    time for a record.
    """

    vertex_id: VertexId
    full: tuple[int, ...]
    kind: VerdictKind
    feeder_id: VertexId
    feeder_backpressured: float
    busy: float
    siblings_busy: float | None = None
    siblings_backpressured: float | None = None
    share_ratio: float | None = None
    cost_ratio: float | None = None
    is_contradicted: bool = False
    """Whether the records of the last seconds alone would give another kind."""
    queue_ms: float | None = None
    """The barrier's time in the queue before it, if that is the sign because nothing is back-pressured yet."""


def vertex_loads(pressure: Sequence[VertexPressure]) -> dict[VertexId, VertexLoad]:
    """The mean load of each vertex over its newest readings, without readings from times when it did not run."""
    alive = [r for r in pressure if _is_alive(r)]
    if not alive:
        return {}
    since = max(r.observed_at for r in alive) - timedelta(seconds=PRESSURE_WINDOW_S)
    by_vertex: dict[VertexId, list[VertexPressure]] = {}
    for reading in alive:
        if reading.observed_at >= since:
            by_vertex.setdefault(reading.vertex_id, []).append(reading)
    return {v: _load(v, readings) for v, readings in by_vertex.items()}


def of_parallelism(
    readings: Sequence[VertexPressure], parallelism: Mapping[VertexId, int]
) -> tuple[VertexPressure, ...]:
    """The readings at the given parallelism: those before or after a rescale are of other subtasks.

    A reading without subtasks, or of a vertex that is not in ``parallelism``, is kept.
    """
    return tuple(
        r for r in readings if not r.busy_ratio or len(r.busy_ratio) == parallelism.get(r.vertex_id, len(r.busy_ratio))
    )


def without_unset(topology: Topology, loads: Mapping[VertexId, VertexLoad]) -> dict[VertexId, VertexLoad]:
    """The loads without values that only look measured.

    An engine computes busy as the time that is neither idle nor back-pressured. Until these two are first updated, in
    the first seconds of a task, a subtask shows as always busy. Such values are left out unless the vertex above is
    back-pressured.
    """

    def is_unset(load: VertexLoad) -> bool:
        rows = [(load.busy[i], load.backpressured[i], load.idle[i]) for i in load.known_subtasks]
        feeder = _feeder(topology, loads, load.vertex_id)
        is_pressed = feeder is not None and feeder[1] >= BACKPRESSURED_MIN_RATIO
        return not is_pressed and all(row == (1.0, 0.0, 0.0) for row in rows)

    return {v: load for v, load in loads.items() if not is_unset(load)}


def suspects(topology: Topology, loads: Mapping[VertexId, VertexLoad]) -> tuple[Suspect, ...]:
    """The vertices that show the sign, in topological order."""
    found: list[Suspect] = []
    for vertex in topology.vertices:
        load, feeder = loads.get(vertex.id), _feeder(topology, loads, vertex.id)
        if load is not None and feeder is not None and feeder[1] >= BACKPRESSURED_MIN_RATIO:
            full = tuple(i for i in load.known_subtasks if load.is_full(i))
            found += [_suspect(load, full, feeder)] if full else []
    return tuple(found)


def queued_suspects(
    topology: Topology, loads: Mapping[VertexId, VertexLoad], hops: Mapping[VertexId, Ratios]
) -> tuple[Suspect, ...]:
    """As ``suspects``, while queues still fill: full, with a long hop of the barrier before it (``hops``, in ms)."""
    found: list[Suspect] = []
    for vertex in topology.vertices:
        load, feeder, hop = loads.get(vertex.id), _feeder(topology, loads, vertex.id), hops.get(vertex.id, ())
        if load is None or feeder is None:
            continue
        full = tuple(i for i in load.known_subtasks if load.is_full(i))
        met = highest(hop[i] for i in full if i < len(hop))
        if met is not None and met >= HOP_MIN_MS:
            found.append(replace(_suspect(load, full, feeder), queue_ms=met))
    return tuple(found)


def root_suspect(topology: Topology, found: Sequence[Suspect]) -> Suspect | None:
    """The suspect at the root: no other is below it; of several, the one whose feeder is back-pressured most."""
    ids = {s.vertex_id for s in found}
    roots = [s for s in found if not (ids & descendants(topology, s.vertex_id))]
    return max(roots, key=lambda s: s.feeder_backpressured, default=None)


def descendants(topology: Topology, vertex_id: VertexId) -> set[VertexId]:
    """All vertices below this one."""
    below: set[VertexId] = set()
    todo = [vertex_id]
    while todo:
        for target in topology.downstream(todo.pop()):
            if target not in below:
                below.add(target)
                todo.append(target)
    return below


def backpressured_max(loads: Mapping[VertexId, VertexLoad]) -> tuple[VertexId, float] | None:
    """The vertex with the most back-pressured subtask, and that subtask's ratio; None without readings."""
    held = [(v, h) for v, load in loads.items() if (h := highest(load.backpressured)) is not None]
    return max(held, key=lambda x: x[1], default=None)


def _is_alive(reading: VertexPressure) -> bool:
    return any(_is_subtask_alive(reading, i) for i in range(len(reading.busy_ratio)))


def _is_subtask_alive(reading: VertexPressure, i: int) -> bool:
    parts = [values[i] for values in _shares(reading) if i < len(values)]
    return sum(known(parts)) >= _ALIVE_SUM


def _shares(reading: VertexPressure) -> tuple[Ratios, Ratios, Ratios]:
    return reading.busy_ratio, reading.backpressured_ratio, reading.idle_ratio


def _load(vertex_id: VertexId, readings: Sequence[VertexPressure]) -> VertexLoad:
    def means(which: int) -> Ratios:
        rows = [[v if _is_subtask_alive(r, i) else None for i, v in enumerate(_shares(r)[which])] for r in readings]
        return column_means(rows)

    total, recent, seconds = _records(readings)
    is_total = seconds < RATE_WINDOW_S or not recent
    return VertexLoad(
        vertex_id, len(readings), means(0), means(1), means(2), total if is_total else recent, is_total, recent
    )


def _records(readings: Sequence[VertexPressure]) -> tuple[Ratios, Ratios, float]:
    """Records since the start, records between the first and the last count, and the seconds between these two."""
    counted = [r for r in readings if any(c is not None for c in r.records_in_count)]
    if not counted:
        return (), (), 0.0
    first, last = counted[0], counted[-1]
    total = tuple(None if c is None else float(c) for c in last.records_in_count)
    if len(first.records_in_count) != len(total):
        return total, (), 0.0
    pairs = zip(first.records_in_count, last.records_in_count, strict=True)
    # A counter that decreased belongs to a new attempt: the records between the two are not known.
    recent = tuple(float(b - a) if a is not None and b is not None and b >= a else None for a, b in pairs)
    seconds = (last.observed_at - first.observed_at).total_seconds()
    return total, recent if sum(known(recent)) > 0 else (), seconds


def _feeder(
    topology: Topology, loads: Mapping[VertexId, VertexLoad], vertex_id: VertexId
) -> tuple[VertexId, float] | None:
    held = [
        (source, most)
        for source in topology.upstream(vertex_id)
        if source in loads and (most := highest(loads[source].backpressured)) is not None
    ]
    return max(held, key=lambda x: x[1], default=None)


def _suspect(load: VertexLoad, full: tuple[int, ...], feeder: tuple[VertexId, float]) -> Suspect:
    rest = tuple(i for i in load.known_subtasks if i not in full)
    busy = mean(load.busy[i] for i in full) or 0.0
    siblings_busy = mean(load.busy[i] for i in rest)
    share, cost = _share_and_cost(load, load.records, full, rest)
    kind = _kind(siblings_busy, share, cost)
    recent = _kind(siblings_busy, *_share_and_cost(load, load.recent_records, full, rest))
    return Suspect(
        vertex_id=load.vertex_id,
        full=full,
        kind=kind,
        is_contradicted=recent not in (kind, VerdictKind.UNDECIDED),
        feeder_id=feeder[0],
        feeder_backpressured=feeder[1],
        busy=busy,
        siblings_busy=siblings_busy,
        siblings_backpressured=mean(load.backpressured[i] for i in rest),
        share_ratio=share,
        cost_ratio=cost,
    )


def _share_and_cost(
    load: VertexLoad, counts: Ratios, full: Sequence[int], rest: Sequence[int]
) -> tuple[float | None, float | None]:
    """Records of a full subtask over those of a sibling, and busy time per record of the one over the other."""

    def of(values: Ratios, which: Sequence[int]) -> float | None:
        return mean(values[i] for i in which if i < len(values))

    records, sibling_records = of(counts, full), of(counts, rest)
    share = ratio(records, sibling_records)
    cost = ratio(ratio(of(load.busy, full), records), ratio(of(load.busy, rest), sibling_records))
    if share is None and records is not None and sibling_records == 0 and records > 0:
        share = float("inf")
    return share, cost


def _kind(siblings_busy: float | None, share: float | None, cost: float | None) -> VerdictKind:
    if siblings_busy is None or siblings_busy >= SIBLINGS_BUSY_RATIO:
        return VerdictKind.CAPACITY
    if share is None:
        return VerdictKind.UNDECIDED
    # Share times cost is the ratio of the busy times, which is large here: the larger factor is the cause.
    if cost is None or share >= cost:
        return VerdictKind.SKEW
    return VerdictKind.STRAGGLER
