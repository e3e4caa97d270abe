"""Finds full subtasks downstream of back-pressured ones, which are the reliable sign of a culprit.

A subtask is full if it is busy nearly all the time and not back-pressured itself. A vertex with full subtasks is a
culprit if the vertex upstream of it is back-pressured (flink-baseline.md, "What real runs teach", 11). If all its
subtasks are full, the vertex lacks capacity. If only some are full, these get more records than their siblings (skew)
or need longer for each record (straggler). A late barrier is not a sign, because everything downstream of the culprit
is late and idle.

Invariant: the result does not depend on the order of subtasks. A subtask without readings is neither full nor idle.
A share that is not reported says nothing about the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import numpy as np

from backend.analysis.numbers.arrays import (
    Flags,
    Floats,
    array_for,
    array_of,
    column_means,
    highest_of,
    indices_of,
    mean_of,
    missing,
)
from backend.analysis.numbers.statistics import ratio
from backend.analysis.words.thresholds import (
    BACKPRESSURED_MIN_RATIO,
    BACKPRESSURED_OK_RATIO,
    BUSY_MIN_RATIO,
    HOP_MIN_MS,
    PRESSURE_WINDOW_S,
    RATE_WINDOW_S,
    SIBLINGS_BUSY_RATIO,
    UNEVEN_MIN_RATIO,
)
from backend.domain.ids import VertexId
from backend.domain.pressure import Ratios, VertexPressure
from backend.domain.topology import Topology
from backend.domain.verdict import VerdictKind

# The busy, back-pressured and idle shares of a window add up to one. If all three are reported and add up to less than
# this, the subtask did not run in the window. A share that is not reported may be all the rest.
_ALIVE_SUM = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class VertexLoad:
    """Means over the readings of one vertex, by subtask. NaN means *not known*.

    ``recent_records`` has the number of records read between the first and the last reading. ``records`` has the same
    numbers if these readings are far enough apart. Otherwise it has the number of records since the start of the
    task, and ``is_total`` is True.
    """

    vertex_id: VertexId
    reading_count: int
    busy: Floats
    backpressured: Floats
    idle: Floats
    records: Floats = field(default_factory=lambda: missing(0))
    is_total: bool = False
    recent_records: Floats = field(default_factory=lambda: missing(0))

    @property
    def full_subtasks(self) -> tuple[int, ...]:
        """The subtasks that are busy nearly all the time and not back-pressured."""
        return indices_of((self.busy >= BUSY_MIN_RATIO) & ~(self.backpressured > BACKPRESSURED_OK_RATIO))

    @property
    def known_subtasks(self) -> tuple[int, ...]:
        """The subtasks that have a reading of at least one share."""
        return indices_of(~(np.isnan(self.busy) & np.isnan(self.backpressured) & np.isnan(self.idle)))

    @property
    def has_busy(self) -> bool:
        """Whether the engine reports a busy time. Flink reports none of a source that is a ``SourceFunction``."""
        return not np.isnan(self.busy).all()


@dataclass(frozen=True, slots=True)
class Suspect:
    """A vertex with full subtasks that is downstream of a back-pressured vertex (``feeder``).

    ``share_ratio`` is the number of records that a full subtask read, divided by the number that a sibling read.
    ``cost_ratio`` is the busy time per record of a full subtask, divided by that of a sibling.
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
    """Whether the records of the last seconds alone would lead to a different kind of verdict."""
    queue_ms: float | None = None
    """The barrier's time in the queue in front of the vertex.

    It is set only if the suspect was found by this time, because nothing was back-pressured yet.
    """
    without: str | None = None
    """What was taken out of the loads, in words, if the suspect shows only then."""


def vertex_loads(pressure: Sequence[VertexPressure]) -> dict[VertexId, VertexLoad]:
    """Return the mean load of each vertex over its newest readings, without readings from times when it did not run."""
    places: dict[VertexId, list[int]] = {}
    for place, reading in enumerate(pressure):
        places.setdefault(reading.vertex_id, []).append(place)
    shares = {v: _Shares([pressure[i] for i in rows]) for v, rows in places.items()}
    alive = [
        pressure[i].observed_at
        for v, rows in places.items()
        for i, is_alive in zip(rows, shares[v].is_alive, strict=True)
        if is_alive
    ]
    if not alive:
        return {}
    since = max(alive) - timedelta(seconds=PRESSURE_WINDOW_S)
    counted = {
        v: np.array([pressure[i].observed_at >= since for i in rows]) & shares[v].is_alive for v, rows in places.items()
    }
    # The vertices are in the order of their first readings that count.
    order = sorted((rows[int(counted[v].argmax())], v) for v, rows in places.items() if counted[v].any())
    return {v: shares[v].load(v, counted[v]) for _, v in order}


def of_parallelism(
    readings: Sequence[VertexPressure], parallelism: Mapping[VertexId, int]
) -> tuple[VertexPressure, ...]:
    """Return the readings whose number of subtasks equals the vertex's value in ``parallelism``.

    The other readings are from before or after a rescale.

    A reading without subtasks, or of a vertex that is not in ``parallelism``, is returned too.
    """
    return tuple(
        r for r in readings if not r.busy_ratio or len(r.busy_ratio) == parallelism.get(r.vertex_id, len(r.busy_ratio))
    )


def without_unset(topology: Topology, loads: Mapping[VertexId, VertexLoad]) -> dict[VertexId, VertexLoad]:
    """Return the loads without those that look measured but are not.

    An engine computes the busy time as the time that is neither idle nor back-pressured. Idle and back-pressured times
    are first updated some seconds after the start of a task. Until then a subtask shows as always busy. Such loads are
    left out unless the vertex upstream is back-pressured. If a source reports no busy time, its other shares are 0
    both before the first update and if nothing holds it back. They count if any load of the job is set.
    """

    def is_set(load: VertexLoad) -> bool:
        shows_more = (load.busy < 1.0) | (load.backpressured > 0.0) | (load.idle > 0.0)
        feeder = _feeder(topology, loads, load.vertex_id)
        is_pressed = feeder is not None and feeder[1] >= BACKPRESSURED_MIN_RATIO
        return is_pressed or bool(shows_more.any())

    known_loads = {v: load for v, load in loads.items() if is_set(load)}
    return {v: load for v, load in loads.items() if v in known_loads or (known_loads and not load.has_busy)}


def suspects(topology: Topology, loads: Mapping[VertexId, VertexLoad]) -> tuple[Suspect, ...]:
    """Return the vertices with full subtasks downstream of a back-pressured vertex, in topological order."""
    candidates: list[Suspect] = []
    for vertex in topology.vertices:
        load, feeder = loads.get(vertex.id), _feeder(topology, loads, vertex.id)
        if load is not None and feeder is not None and feeder[1] >= BACKPRESSURED_MIN_RATIO:
            full = load.full_subtasks
            candidates += [suspect_of(load, full, feeder)] if full else []
    return tuple(candidates)


def queued_suspects(
    topology: Topology, loads: Mapping[VertexId, VertexLoad], hops: Mapping[VertexId, Floats]
) -> tuple[Suspect, ...]:
    """Find suspects while the queues are filling up and no vertex is back-pressured yet.

    A vertex is a suspect if the barrier's hop to one of its full subtasks is long. ``hops`` has the hops in
    milliseconds.
    """
    candidates: list[Suspect] = []
    for vertex in topology.vertices:
        load, feeder, hop = loads.get(vertex.id), _feeder(topology, loads, vertex.id), hops.get(vertex.id)
        if load is None or feeder is None or hop is None:
            continue
        full = load.full_subtasks
        met = highest_of(_at(hop, full))
        if met is not None and met >= HOP_MIN_MS:
            candidates.append(replace(suspect_of(load, full, feeder), queue_ms=met))
    return tuple(candidates)


def root_suspect(topology: Topology, candidates: Sequence[Suspect]) -> Suspect | None:
    """Return the first suspect of ``ranked``, or None if there are no suspects."""
    return next(iter(ranked(topology, candidates)), None)


def ranked(topology: Topology, candidates: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """Return the suspects, most likely culprit first.

    Suspects without another suspect downstream come first, because a suspect further upstream may only be waiting.
    Among these, and among the others, the one whose upstream vertex is back-pressured most comes first.
    """
    ids = {s.vertex_id for s in candidates}

    def rank(suspect: Suspect) -> tuple[bool, float]:
        return bool(ids & descendants(topology, suspect.vertex_id)), -suspect.feeder_backpressured

    return tuple(sorted(candidates, key=rank))


def descendants(topology: Topology, vertex_id: VertexId) -> set[VertexId]:
    """Return all vertices downstream of this one, directly or indirectly."""
    return _reached(topology.downstream, vertex_id)


def ancestors(topology: Topology, vertex_id: VertexId) -> set[VertexId]:
    """Return all vertices upstream of this one, directly or indirectly."""
    return _reached(topology.upstream, vertex_id)


def _reached(neighbours: Callable[[VertexId], Iterable[VertexId]], vertex_id: VertexId) -> set[VertexId]:
    vertex_ids: set[VertexId] = set()
    todo = [vertex_id]
    while todo:
        new = set(neighbours(todo.pop())) - vertex_ids
        vertex_ids |= new
        todo.extend(new)
    return vertex_ids


def backpressured_max(loads: Mapping[VertexId, VertexLoad]) -> tuple[VertexId, float] | None:
    """Return the vertex with the most back-pressured subtask, and that subtask's ratio, or None without readings."""
    held = [(v, h) for v, load in loads.items() if (h := highest_of(load.backpressured)) is not None]
    return max(held, key=lambda x: x[1], default=None)


class _Shares:
    """The busy, back-pressured and idle shares of all readings of one vertex, as one array."""

    def __init__(self, readings: Sequence[VertexPressure]) -> None:
        self._readings = readings
        rows = [_shares(r) for r in readings]
        widths = {len(values) for row in rows for values in row}
        self._width = max(widths)
        self._is_ragged = len(widths) > 1
        if not self._is_ragged:
            own = [array_for(r, "shares", row) for r, row in zip(readings, rows, strict=True)]
            self._values = np.concatenate(own).reshape(len(rows), 3, self._width)
        else:
            padded = [array_of((*values, *[None] * (self._width - len(values)))) for row in rows for values in row]
            self._values = np.array(padded).reshape(len(rows), 3, self._width)
        is_missing = np.isnan(self._values)
        known = np.where(is_missing, 0.0, self._values)
        is_whole = known[:, 0] + known[:, 1] + known[:, 2] >= _ALIVE_SUM
        # Each share counts by itself: Flink reports no busy time of some sources. A subtask without any share did not
        # run.
        self._is_running = np.where(is_missing.any(axis=1), ~is_missing.all(axis=1), is_whole)
        is_running = self._is_running
        if self._is_ragged:
            lengths = np.array([len(r.busy_ratio) for r in readings])
            is_running = is_running & (np.arange(self._width) < lengths[:, np.newaxis])
        self.is_alive: Flags = np.any(is_running, axis=1)
        """For each reading, whether any subtask ran."""

    def load(self, vertex_id: VertexId, is_counted: Flags) -> VertexLoad:
        """Return the means over the readings of the vertex for which ``is_counted`` is true."""
        readings = [r for r, is_one in zip(self._readings, is_counted, strict=True) if is_one]
        values = np.where(self._is_running[is_counted][:, np.newaxis], self._values[is_counted], np.nan)
        means = column_means(values.reshape(len(readings), -1)).reshape(3, self._width)
        width = self._width
        if self._is_ragged:
            width = max(len(values) for r in readings for values in _shares(r))
        busy, backpressured, idle = means[:, :width]
        total, recent, seconds = _records(readings)
        is_total = seconds < RATE_WINDOW_S or not recent.size
        records = total if is_total else recent
        return VertexLoad(vertex_id, len(readings), busy, backpressured, idle, records, is_total, recent)


def _shares(reading: VertexPressure) -> tuple[Ratios, Ratios, Ratios]:
    return reading.busy_ratio, reading.backpressured_ratio, reading.idle_ratio


def _records(readings: Sequence[VertexPressure]) -> tuple[Floats, Floats, float]:
    """Return how many records each subtask has read.

    The first value is the number of records since the start of the task. The second is the number between the first
    and the last reading of this count, and the third is the number of seconds between these readings.
    """
    first, last = next(filter(_has_count, readings), None), next(filter(_has_count, reversed(readings)), None)
    if first is None or last is None:
        return missing(0), missing(0), 0.0
    before, total = array_of(first.records_in_count), array_of(last.records_in_count)
    if before.size != total.size:
        return total, missing(0), 0.0
    # A counter that decreased belongs to a new attempt, so the records between the two counts are not known.
    recent = np.where(total >= before, total - before, np.nan)
    seconds = (last.observed_at - first.observed_at).total_seconds()
    return total, recent if (recent > 0).any() else missing(0), seconds


def _has_count(reading: VertexPressure) -> bool:
    return any(c is not None for c in reading.records_in_count)


def _feeder(
    topology: Topology, loads: Mapping[VertexId, VertexLoad], vertex_id: VertexId
) -> tuple[VertexId, float] | None:
    held = [
        (source, most)
        for source in topology.upstream(vertex_id)
        if source in loads and (most := highest_of(loads[source].backpressured)) is not None
    ]
    return max(held, key=lambda x: x[1], default=None)


def suspect_of(load: VertexLoad, full: tuple[int, ...], feeder: tuple[VertexId, float]) -> Suspect:
    """Return the suspect for these subtasks: one or few of a vertex, or all. ``feeder`` is the vertex before it."""
    named = frozenset(full)
    rest = tuple(i for i in load.known_subtasks if i not in named)
    busy = mean_of(_at(load.busy, full)) or 0.0
    siblings_busy = mean_of(_at(load.busy, rest))
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
        siblings_backpressured=mean_of(_at(load.backpressured, rest)),
        share_ratio=share,
        cost_ratio=cost,
    )


def _at(values: Floats, subtasks: Sequence[int]) -> Floats:
    """Return the values of these subtasks, without those beyond the end of ``values``."""
    return values[[i for i in subtasks if i < values.size]]


def _share_and_cost(
    load: VertexLoad, counts: Floats, full: Sequence[int], rest: Sequence[int]
) -> tuple[float | None, float | None]:
    """Compare the full subtasks with their siblings.

    The first value is the number of records that a full subtask read, divided by the number that a sibling read. The
    second value is the busy time per record of a full subtask, divided by that of a sibling.
    """
    records, sibling_records = mean_of(_at(counts, full)), mean_of(_at(counts, rest))
    share = ratio(records, sibling_records)
    busy, sibling_busy = mean_of(_at(load.busy, full)), mean_of(_at(load.busy, rest))
    cost = ratio(ratio(busy, records), ratio(sibling_busy, sibling_records))
    if share is None and records is not None and sibling_records == 0 and records > 0:
        share = float("inf")
    return share, cost


def _kind(siblings_busy: float | None, share: float | None, cost: float | None) -> VerdictKind:
    if siblings_busy is None or siblings_busy >= SIBLINGS_BUSY_RATIO:
        return VerdictKind.CAPACITY
    if share is None:
        return VerdictKind.UNDECIDED
    # The full subtasks are much busier than their siblings. The ratio of the busy times is share times cost, so the
    # larger of these two factors is the cause.
    # Records are counted, and busy times are samples.
    surer = UNEVEN_MIN_RATIO if share >= UNEVEN_MIN_RATIO else 1.0
    if cost is None and share < UNEVEN_MIN_RATIO:
        # The siblings are idle although they read as much, so what the full subtasks do is no matter of records.
        return VerdictKind.UNDECIDED
    if cost is None or share * surer >= cost:
        return VerdictKind.SKEW
    return VerdictKind.STRAGGLER
