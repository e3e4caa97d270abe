"""Recomputes the recorded checkpoints under each candidate mode (runtime.md, CM-1 to CM-7, R-AT-3).

An aligned barrier waits behind the queued data. An unaligned barrier waits for the current record at each hop, and the
checkpoint writes the data that it overtook. With an aligned timeout, a checkpoint becomes unaligned if its barriers
have not arrived by then; the recorded arrival times show how far the barriers were.

Known errors, which the intervals include: queues and checkpoints are read at different instants, gauges leave out
buffers in use, and the store's speed is assumed if no upload was measured. An interval spans all recorded checkpoints
and the extremes of these errors. It holds for the median of the next checkpoints if the load stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backend.advisor.advice import Candidate, Interval
from backend.advisor.situation import Queues, Recorded, Situation
from backend.advisor.thresholds import (
    NOISE_MS,
    QUEUE_FACTOR,
    QUEUE_HIGH_FACTOR,
    QUEUE_LOW_FACTOR,
    STEP_HIGH_FACTOR,
    STEP_LOW_FACTOR,
    WRITE_BYTES_PER_MS,
    WRITE_FAST_BYTES_PER_MS,
    WRITE_SLOW_BYTES_PER_MS,
    WRITE_SPREAD,
)
from backend.analysis.phases import SubtaskPhases
from backend.analysis.statistics import highest, median
from backend.domain.advice import Mode
from backend.domain.ids import VertexId

DURATION_METHOD = (
    "replay of the last {count} checkpoints: measured start delay of the sources, one record at each hop, measured "
    "sync and async parts, and the time to write the overtaken data. The interval spans the checkpoints, {store}, "
    "and 100 ms of noise"
)
PERSISTED_METHOD = (
    "replay of the last {count} checkpoints: bytes queued before the barrier when it overtakes, from {readings} "
    "of the queues. The interval spans the checkpoints, the readings and the known error of the gauges (measured over "
    "read: 0.8 to 1.45)"
)
_HOP_MS = (0.0, 1.0, 10.0)
_STEP_UNKNOWN_MS = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One checkpoint under one candidate: its duration in milliseconds and its persisted bytes."""

    duration_ms: Interval
    persisted_bytes: float
    is_natural: bool
    """Whether it stays as recorded: aligned, and complete before the timeout."""


@dataclass(frozen=True, slots=True)
class Replay:
    """All recorded checkpoints under one candidate."""

    mode: Mode
    aligned_timeout_ms: int | None
    outcomes: tuple[Outcome, ...]
    duration_ms: Interval
    persisted_bytes: Interval
    expired_ratio: Interval | None

    def candidate(self, *, is_current: bool = False, is_proposed: bool = False) -> Candidate:
        """The row that the recommendation shows for this candidate."""
        return Candidate(
            mode=self.mode,
            aligned_timeout_ms=self.aligned_timeout_ms,
            duration_ms=self.duration_ms,
            persisted_bytes=self.persisted_bytes,
            expired_ratio=self.expired_ratio.value if self.expired_ratio is not None else None,
            is_current=is_current,
            is_proposed=is_proposed,
        )


class Recordings:
    """The recorded checkpoints of a job, for replay under several candidates."""

    def __init__(self, known: Situation) -> None:
        self._known = known
        rows = [r for r in known.recorded if r.phases and not (r.is_failed and not r.is_expired)]
        self._arrivals = [_Arrivals(known, known.queues, r) for r in rows] if known.queues is not None else []
        self._late_ms = median(r.travel_ms for r in rows if r.travel_ms is not None) or 0.0

    def replay(self, aligned_timeout_ms: int | None) -> Replay | None:
        """The checkpoints under an aligned timeout (None: barriers never overtake; 0: they overtake at once).

        Returns None if the queues, or the subtasks of all checkpoints, are not known.
        """
        queues = self._known.queues
        if queues is None or not self._arrivals:
            return None
        outcomes = tuple(_outcome(self._known, a, aligned_timeout_ms, self._late_ms) for a in self._arrivals)
        return Replay(
            mode=_mode(aligned_timeout_ms),
            aligned_timeout_ms=aligned_timeout_ms,
            outcomes=outcomes,
            duration_ms=_spread([o.duration_ms for o in outcomes]),
            persisted_bytes=_persisted(queues, [o.persisted_bytes for o in outcomes]),
            expired_ratio=_expired(self._known, outcomes),
        )


def write_ms(known: Situation, total_bytes: float, most_bytes: float) -> Interval:
    """Milliseconds to write ``total_bytes`` of in-flight data; the subtask with the most has ``most_bytes``."""
    speed = known.store_bytes_per_ms
    if speed is not None:
        likely = total_bytes / speed
        return Interval(likely, likely / WRITE_SPREAD, likely * WRITE_SPREAD)
    return Interval(
        most_bytes / WRITE_BYTES_PER_MS,
        most_bytes / WRITE_FAST_BYTES_PER_MS,
        max(most_bytes / WRITE_SLOW_BYTES_PER_MS, total_bytes / WRITE_BYTES_PER_MS),
    )


def duration_method(known: Situation) -> str:
    """How durations were computed, in words."""
    if known.store_bytes_per_ms is not None:
        store = f"half to twice the measured {known.store_bytes_per_ms / 1000:.1f} MB/s of the store"
    else:
        store = "a store of 5 to 500 MB/s a subtask, because no upload was large enough to measure its speed"
    return DURATION_METHOD.format(count=len(known.recorded), store=store)


def persisted_method(known: Situation) -> str:
    """How persisted bytes were computed, in words."""
    readings = known.queues.reading_count if known.queues is not None else 0
    many = "one reading" if readings == 1 else f"{readings} readings"
    return PERSISTED_METHOD.format(count=len(known.recorded), readings=many)


def _mode(aligned_timeout_ms: int | None) -> Mode:
    if aligned_timeout_ms is None:
        return Mode.ALIGNED
    return Mode.ALIGNED_WITH_TIMEOUT if aligned_timeout_ms > 0 else Mode.UNALIGNED


def _spread(values: Sequence[Interval]) -> Interval:
    return Interval(median(v.value for v in values) or 0.0, min(v.low for v in values), max(v.high for v in values))


def _persisted(queues: Queues, values: Sequence[float]) -> Interval:
    low = queues.total_min / queues.total if queues.total else 1.0
    high = queues.total_max / queues.total if queues.total else 1.0
    return Interval(
        QUEUE_FACTOR * (median(values) or 0.0),
        QUEUE_LOW_FACTOR * low * min(values),
        QUEUE_HIGH_FACTOR * high * max(values),
    )


def _expired(known: Situation, outcomes: Sequence[Outcome]) -> Interval | None:
    timeout_ms = known.evidence.config.timeout_ms if known.evidence.config is not None else None
    if not timeout_ms:
        return None
    count = len(outcomes)
    return Interval(
        sum(o.duration_ms.value >= timeout_ms for o in outcomes) / count,
        sum(o.duration_ms.low >= timeout_ms for o in outcomes) / count,
        sum(o.duration_ms.high >= timeout_ms for o in outcomes) / count,
    )


def _outcome(known: Situation, arrivals: _Arrivals, timeout_ms: int | None, late_ms: float) -> Outcome:
    r = arrivals.recorded
    natural = arrivals.duration_ms
    is_natural = timeout_ms is None or natural <= timeout_ms
    if is_natural and not arrivals.is_guessed:
        return Outcome(Interval(natural, natural, natural), 0.0, is_natural=True)
    if timeout_ms is None or is_natural:
        # The timeout cut it off: its duration is a lower bound, and twice the time to drain the queues an upper one.
        return Outcome(Interval(natural, r.duration_ms, 2.0 * natural), 0.0, is_natural=True)
    overtaken = arrivals.overtaken(timeout_ms)
    # The queues were read while barriers were late; a checkpoint with an earlier barrier met shorter queues.
    scale = min(1.0, (r.travel_ms or late_ms) / late_ms) if late_ms > 0 else 1.0
    persisted = scale * sum(overtaken.values())
    most = scale * max(overtaken.values(), default=0.0)
    overtaking = _unaligned(known, r, write_ms(known, persisted, most))
    shifted = Interval(*(v + timeout_ms for v in (overtaking.value, overtaking.low, overtaking.high)))
    return Outcome(shifted, persisted, is_natural=False)


def _unaligned(known: Situation, r: Recorded, written: Interval) -> Interval:
    """CM-4: the barrier's time past the queues, the snapshot, and the time to write the overtaken data."""
    hops, steps = _longest_way(known)
    source = r.source_delay_ms or 0.0
    own = (r.sync_ms or 0.0) + (r.own_async_ms or 0.0)
    return Interval(
        source + hops * _HOP_MS[1] + steps + own + written.value,
        hops * _HOP_MS[0] + STEP_LOW_FACTOR * steps * 0.5 + own * 0.5 + written.low,
        source + hops * _HOP_MS[2] + STEP_HIGH_FACTOR * steps + own + written.high + NOISE_MS,
    )


def _longest_way(known: Situation) -> tuple[int, float]:
    """The path with the longest record times: its number of exchanges, and the sum of these times in milliseconds."""
    topology = known.evidence.topology
    best: dict[VertexId, tuple[float, int]] = {}
    for vertex in topology.vertices:
        above = [best[u] for u in topology.upstream(vertex.id) if u in best]
        if not above:
            best[vertex.id] = (0.0, 0)
            continue
        total, hops = max(above)
        best[vertex.id] = (total + known.steps_ms.get(vertex.id, _STEP_UNKNOWN_MS), hops + 1)
    total, hops = max(best.values(), default=(0.0, 0))
    return hops, total


class _Arrivals:
    """When the barrier would have reached each subtask of one recorded checkpoint, if it had stayed aligned.

    If the checkpoint was cut off or became unaligned, the rest is estimated from the drain time of the queues.
    """

    def __init__(self, known: Situation, queues: Queues, r: Recorded) -> None:
        self._known = known
        self._queues = queues
        self.recorded = r
        self.is_guessed = False
        self.first: dict[VertexId, list[float]] = {}
        self.last: dict[VertexId, list[float]] = {}
        for vertex in known.evidence.topology.vertices:
            phases = r.phases.get(vertex.id)
            if phases:
                self._add(vertex.id, phases)

    @property
    def duration_ms(self) -> float:
        """The duration of the checkpoint if it had stayed aligned."""
        if not self.is_guessed:
            return self.recorded.duration_ms
        travel = highest(v for row in self.last.values() for v in row) or 0.0
        return max(
            self.recorded.duration_ms, travel + (self.recorded.sync_ms or 0.0) + (self.recorded.own_async_ms or 0.0)
        )

    def _add(self, vertex_id: VertexId, phases: Sequence[SubtaskPhases]) -> None:
        sent = (
            highest(v for u in self._known.evidence.topology.upstream(vertex_id) for v in self.last.get(u, ())) or 0.0
        )
        drained = sent + self._drain_ms(vertex_id)
        first: list[float] = []
        last: list[float] = []
        for p in phases:
            begin, end = p.first_barrier_ms, p.travel_ms
            if end is None or self._is_overtaken(end):
                self.is_guessed = True
                end_ms = max(self.recorded.duration_ms if end is None else float(end), drained)
                first.append(end_ms if begin is None or self._is_overtaken(begin) else float(begin))
                last.append(end_ms)
            else:
                first.append(float(begin if begin is not None else end))
                last.append(float(end))
        self.first[vertex_id], self.last[vertex_id] = first, last

    def _is_overtaken(self, arrived_ms: float) -> bool:
        timeout_ms = self._known.aligned_timeout_ms
        return timeout_ms is not None and bool(self.recorded.persisted_bytes) and arrived_ms >= timeout_ms

    def _drain_ms(self, vertex_id: VertexId) -> float:
        speed = self._known.drain_bytes_per_ms.get(vertex_id)
        if not speed:
            return 0.0
        above = self._known.evidence.topology.upstream(vertex_id)
        queued = sum(sum(self._queues.out_bytes.get(u, ())) for u in above)
        return (queued + sum(self._queues.in_bytes.get(vertex_id, ()))) / speed

    def overtaken(self, at_ms: float) -> Mapping[tuple[VertexId, int], float]:
        """Bytes still queued before the barrier ``at_ms`` after the trigger, by the subtask that writes them."""
        found: dict[tuple[VertexId, int], float] = {}
        topology = self._known.evidence.topology
        for vertex in topology.vertices:
            below = [w for w in topology.downstream(vertex.id) if w in self.last]
            for i, queued in enumerate(self._queues.out_bytes.get(vertex.id, ())):
                left = [self._left(vertex.id, i, w, at_ms) for w in below]
                found[vertex.id, i] = queued * sum(left) / len(left) if left else 0.0
            above = [u for u in topology.upstream(vertex.id) if u in self.last]
            for i, queued in enumerate(self._queues.in_bytes.get(vertex.id, ())):
                if above and queued and vertex.id in self.last:
                    part = self._left(above[0], 0, vertex.id, at_ms)
                    found[vertex.id, i] = found.get((vertex.id, i), 0.0) + queued * part
        return found

    def _left(self, sender: VertexId, subtask: int, vertex_id: VertexId, at_ms: float) -> float:
        """The share of a sender's queue that is still before its barriers, over all its receivers.

        A channel's part of the queue is the data that its receiver reads until the barrier arrives, at a constant
        rate. The engine does not report the last channel: the one from the latest sender is assumed.
        """
        row = self.last[sender]
        sent = row[subtask] if subtask < len(row) else 0.0
        if at_ms <= sent:
            return 1.0
        first, last = np.asarray(self.first[vertex_id]), np.asarray(self.last[vertex_id])
        arrived = last if sent >= max(row, default=0.0) else np.maximum(first, sent)
        way = np.maximum(arrived - sent, 0.0)
        intake = np.asarray(self._known.intake_bytes_per_ms.get(vertex_id, ()))
        size = way * intake if len(intake) == len(way) and intake.sum() > 0 else way
        total = float(size.sum())
        if total <= 0:
            return 0.0
        part = np.clip((arrived - at_ms) / np.where(way > 0, way, 1.0), 0.0, 1.0)
        return float((size * part).sum()) / total
