"""Recomputes the recorded checkpoints under each candidate mode (runtime.md, CM-1 to CM-7, R-AT-3).

An aligned barrier waits behind the queued data. An unaligned barrier waits at each hop only for the current record,
and the checkpoint writes the data that the barrier has overtaken. With an aligned timeout, a checkpoint becomes
unaligned if its barriers have not arrived when the timeout ends. The recorded arrival times show how far the barriers
were then.

The intervals include three known errors. Queues and checkpoints are read at different instants. The queue metrics
leave out buffers in use. The store's speed is assumed if no upload was measured. An interval spans all recorded
checkpoints and the extremes of these errors. It holds for the median of the next checkpoints, if the load stays the
same.
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
from backend.analysis.measures.phases import VertexPhases
from backend.analysis.numbers.arrays import Flags, Floats, array_of, highest_of
from backend.analysis.numbers.statistics import highest, median
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
    """One recorded checkpoint under one candidate: its computed duration in milliseconds and its persisted bytes."""

    duration_ms: Interval
    persisted_bytes: float
    is_natural: bool
    """Whether the checkpoint stays aligned to its end: it completes before its aligned timeout, or has none."""


@dataclass(frozen=True, slots=True)
class Replay:
    """All recorded checkpoints recomputed under one candidate."""

    mode: Mode
    aligned_timeout_ms: int | None
    outcomes: tuple[Outcome, ...]
    duration_ms: Interval
    persisted_bytes: Interval
    expired_ratio: Interval | None

    def candidate(self, *, is_current: bool = False, is_proposed: bool = False) -> Candidate:
        """Return this replay as the row that the recommendation shows for the candidate."""
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
    """The recorded checkpoints of a job, prepared for replay under several candidates."""

    def __init__(self, situation: Situation) -> None:
        self._known = situation
        rows = [r for r in situation.recorded if r.phases and not (r.is_failed and not r.is_expired)]
        rooms = None if situation.queues is None else _Rooms.of(situation, situation.queues)
        self._arrivals = [] if rooms is None else [_Arrivals(situation, rooms, r) for r in rows]
        self._late_ms = median(r.travel_ms for r in rows if r.travel_ms is not None) or 0.0
        self._way = _longest_way(situation)
        self._replays: dict[int | None, Replay] = {}

    @property
    def rows(self) -> tuple[Recorded, ...]:
        """The checkpoints that are replayed, in the order of the outcomes."""
        return tuple(a.recorded for a in self._arrivals)

    def prepare(self, aligned_timeouts_ms: Sequence[int]) -> None:
        """Compute at once what ``replay`` needs for several timeouts. Its results stay the same."""
        for arrivals in self._arrivals:
            arrivals.prepare(aligned_timeouts_ms)

    def replay(self, aligned_timeout_ms: int | None) -> Replay | None:
        """Recompute the checkpoints under an aligned timeout.

        A timeout of None means that barriers never overtake data, and 0 means that they overtake it at once. Return
        None if the queues are not known, or if no checkpoint has details of its subtasks.
        """
        queues = self._known.queues
        if queues is None or not self._arrivals:
            return None
        known_replay = self._replays.get(aligned_timeout_ms)
        if known_replay is not None:
            return known_replay
        outcomes = tuple(_outcome(self._known, a, aligned_timeout_ms, self._late_ms, self._way) for a in self._arrivals)
        self._replays[aligned_timeout_ms] = made = Replay(
            mode=_mode(aligned_timeout_ms),
            aligned_timeout_ms=aligned_timeout_ms,
            outcomes=outcomes,
            duration_ms=_spread([o.duration_ms for o in outcomes]),
            persisted_bytes=_persisted(queues, [o.persisted_bytes for o in outcomes]),
            expired_ratio=_expired(self._known, outcomes),
        )
        return made


def write_ms(situation: Situation, total_bytes: float, most_bytes: float) -> Interval:
    """Return the milliseconds to write ``total_bytes`` of in-flight data.

    ``most_bytes`` is what the subtask with the most data writes. If the store's speed was not measured, this amount
    determines the time.
    """
    speed = situation.store_bytes_per_ms
    if speed is not None:
        likely = total_bytes / speed
        return Interval(likely, likely / WRITE_SPREAD, likely * WRITE_SPREAD)
    return Interval(
        most_bytes / WRITE_BYTES_PER_MS,
        most_bytes / WRITE_FAST_BYTES_PER_MS,
        max(most_bytes / WRITE_SLOW_BYTES_PER_MS, total_bytes / WRITE_BYTES_PER_MS),
    )


def duration_method(situation: Situation) -> str:
    """Return the text that explains how durations were computed."""
    if situation.store_bytes_per_ms is not None:
        store = f"half to twice the measured {situation.store_bytes_per_ms / 1000:.1f} MB/s of the store"
    else:
        store = "a store of 5 to 500 MB/s a subtask, because no upload was large enough to measure its speed"
    return DURATION_METHOD.format(count=len(situation.recorded), store=store)


def persisted_method(situation: Situation) -> str:
    """Return the text that explains how persisted bytes were computed."""
    readings = situation.queues.reading_count if situation.queues is not None else 0
    many = "one reading" if readings == 1 else f"{readings} readings"
    return PERSISTED_METHOD.format(count=len(situation.recorded), readings=many)


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


def _expired(situation: Situation, outcomes: Sequence[Outcome]) -> Interval | None:
    timeout_ms = situation.evidence.config.timeout_ms if situation.evidence.config is not None else None
    if not timeout_ms:
        return None
    count = len(outcomes)
    return Interval(
        sum(o.duration_ms.value >= timeout_ms for o in outcomes) / count,
        sum(o.duration_ms.low >= timeout_ms for o in outcomes) / count,
        sum(o.duration_ms.high >= timeout_ms for o in outcomes) / count,
    )


def _outcome(
    situation: Situation, arrivals: _Arrivals, timeout_ms: int | None, late_ms: float, way: tuple[int, float]
) -> Outcome:
    r = arrivals.recorded
    natural = arrivals.duration_ms
    is_natural = timeout_ms is None or natural <= timeout_ms
    if is_natural and not arrivals.is_guessed:
        return Outcome(Interval(natural, natural, natural), 0.0, is_natural=True)
    if timeout_ms is None or is_natural:
        # The checkpoint expired or became unaligned, so ``natural`` is an estimate. The recorded duration is the
        # lower bound of the interval, and twice the estimate is the upper bound.
        return Outcome(Interval(natural, r.duration_ms, 2.0 * natural), 0.0, is_natural=True)
    overtaken = arrivals.overtaken(timeout_ms)
    # The queues were read while barriers were late. If this checkpoint's barriers were earlier, its queues were
    # shorter.
    scale = min(1.0, (r.travel_ms or late_ms) / late_ms) if late_ms > 0 else 1.0
    persisted = scale * sum(float(row.sum()) for row in overtaken)
    most = scale * max((float(row.max(initial=0.0)) for row in overtaken), default=0.0)
    overtaking = _unaligned(r, write_ms(situation, persisted, most), way)
    shifted = Interval(*(v + timeout_ms for v in (overtaking.value, overtaking.low, overtaking.high)))
    return Outcome(shifted, persisted, is_natural=False)


def _unaligned(r: Recorded, written: Interval, way: tuple[int, float]) -> Interval:
    """Return the duration of an unaligned checkpoint: barrier travel, snapshot, writing overtaken data (CM-4).

    ``way`` is what ``_longest_way`` returns.
    """
    hops, steps = way
    source = r.source_delay_ms or 0.0
    own = (r.sync_ms or 0.0) + (r.own_async_ms or 0.0)
    return Interval(
        source + hops * _HOP_MS[1] + steps + own + written.value,
        hops * _HOP_MS[0] + STEP_LOW_FACTOR * steps + own * 0.5 + written.low,
        source + hops * _HOP_MS[2] + STEP_HIGH_FACTOR * steps + own + written.high + NOISE_MS,
    )


def _longest_way(situation: Situation) -> tuple[int, float]:
    """Find the path from a source that takes longest if each vertex on it processes one record.

    Return the number of exchanges on this path, and the sum of the record times in milliseconds.
    """
    topology = situation.evidence.topology
    best: dict[VertexId, tuple[float, int]] = {}
    for vertex in topology.vertices:
        above = [best[u] for u in topology.upstream(vertex.id) if u in best]
        if not above:
            best[vertex.id] = (0.0, 0)
            continue
        total, hops = max(above)
        best[vertex.id] = (total + situation.steps_ms.get(vertex.id, _STEP_UNKNOWN_MS), hops + 1)
    total, hops = max(best.values(), default=(0.0, 0))
    return hops, total


@dataclass(frozen=True, slots=True, eq=False)
class _Rooms:
    """What the arrivals of all checkpoints share: the queued bytes and the read bytes of each subtask, as arrays."""

    out_bytes: Mapping[VertexId, Floats]
    in_bytes: Mapping[VertexId, Floats]
    intake: Mapping[VertexId, Floats]
    above: Mapping[VertexId, Sequence[VertexId]]
    below: Mapping[VertexId, Sequence[VertexId]]
    drain_ms: Mapping[VertexId, float]
    """How long the queues in front of a vertex take to drain; 0 if that is not known."""

    @classmethod
    def of(cls, situation: Situation, queues: Queues) -> _Rooms:
        topology = situation.evidence.topology
        ids = [v.id for v in topology.vertices]
        above = {v: topology.upstream(v) for v in ids}
        return cls(
            out_bytes={v: array_of(queues.out_bytes.get(v, ())) for v in ids},
            in_bytes={v: array_of(queues.in_bytes.get(v, ())) for v in ids},
            intake={v: array_of(situation.intake_bytes_per_ms.get(v, ())) for v in ids},
            above=above,
            below={v: topology.downstream(v) for v in ids},
            drain_ms={v: _drain_ms(situation, queues, v, above[v]) for v in ids},
        )


def _drain_ms(situation: Situation, queues: Queues, vertex_id: VertexId, above: Sequence[VertexId]) -> float:
    speed = situation.drain_bytes_per_ms.get(vertex_id)
    if not speed:
        return 0.0
    queued = sum(sum(queues.out_bytes.get(u, ())) for u in above)
    return (queued + sum(queues.in_bytes.get(vertex_id, ()))) / speed


class _Arrivals:
    """The times at which the barriers of a recorded checkpoint reach each subtask if the checkpoint stays aligned.

    If the checkpoint expired or became unaligned, the missing times are estimated from the time that the queues take
    to drain.
    """

    def __init__(self, situation: Situation, rooms: _Rooms, r: Recorded) -> None:
        self._known = situation
        self._rooms = rooms
        self.recorded = r
        self.is_guessed = False
        self.first: dict[VertexId, Floats] = {}
        self.last: dict[VertexId, Floats] = {}
        self._exchanges: dict[tuple[VertexId, VertexId], _Exchange] = {}
        self._overtaken: dict[float, list[Floats]] = {}
        for vertex in situation.evidence.topology.vertices:
            phases = r.phases.get(vertex.id)
            if phases:
                self._add(vertex.id, phases)

    @property
    def duration_ms(self) -> float:
        """The duration that the checkpoint would have had if it had stayed aligned."""
        if not self.is_guessed:
            return self.recorded.duration_ms
        travel = highest(highest_of(row) for row in self.last.values()) or 0.0
        return max(
            self.recorded.duration_ms, travel + (self.recorded.sync_ms or 0.0) + (self.recorded.own_async_ms or 0.0)
        )

    def _add(self, vertex_id: VertexId, phases: VertexPhases) -> None:
        above = [self.last[u] for u in self._rooms.above[vertex_id] if u in self.last]
        drained = (highest(map(highest_of, above)) or 0.0) + self._rooms.drain_ms[vertex_id]
        begin, end = phases.first_barrier_ms, phases.travel_ms
        is_guess = np.isnan(end) | self._is_overtaken(end)
        guess = np.maximum(np.where(np.isnan(end), self.recorded.duration_ms, end), drained)
        self.is_guessed |= bool(is_guess.any())
        self.last[vertex_id] = last = np.where(is_guess, guess, end)
        has_no_begin = np.isnan(begin) | (is_guess & self._is_overtaken(begin))
        self.first[vertex_id] = np.where(has_no_begin, last, begin)

    def _is_overtaken(self, arrived_ms: Floats) -> Flags:
        timeout_ms = self._known.aligned_timeout_ms
        if timeout_ms is None or not self.recorded.persisted_bytes:
            return np.zeros(arrived_ms.shape, dtype=np.bool_)
        found: Flags = arrived_ms >= timeout_ms
        return found

    def prepare(self, timeouts_ms: Sequence[int]) -> None:
        """Compute the overtaken bytes at those of ``timeouts_ms`` at which the checkpoint becomes unaligned."""
        natural = self.duration_ms
        at_ms = [t for t in timeouts_ms if natural > t and t not in self._overtaken]
        if at_ms:
            rows = self._overtaken_at(np.array(at_ms, dtype=np.float64))
            self._overtaken |= {t: [row[i] for row in rows] for i, t in enumerate(at_ms)}

    def overtaken(self, at_ms: float) -> list[Floats]:
        """Return the bytes still queued in front of the barrier ``at_ms`` milliseconds after the trigger.

        The result has one array for each vertex, with the bytes that each subtask writes.
        """
        if at_ms not in self._overtaken:
            self._overtaken[at_ms] = [row[0] for row in self._overtaken_at(np.array([at_ms], dtype=np.float64))]
        return self._overtaken[at_ms]

    def _overtaken_at(self, at_ms: Floats) -> list[Floats]:
        """Return for each vertex the overtaken bytes, with a row for each time and a column for each subtask."""
        rooms = self._rooms
        found: list[Floats] = []
        for vertex in self._known.evidence.topology.vertices:
            out_bytes, in_bytes = rooms.out_bytes[vertex.id], rooms.in_bytes[vertex.id]
            below = [w for w in rooms.below[vertex.id] if w in self.last]
            above = [u for u in rooms.above[vertex.id] if u in self.last]
            own = np.zeros((at_ms.size, max(out_bytes.size, in_bytes.size)))
            if below and out_bytes.any():
                left = [self._left(vertex.id, w, at_ms)[:, : out_bytes.size] for w in below]
                own[:, : out_bytes.size] = out_bytes * sum(left) / len(left)
            if above and vertex.id in self.last and in_bytes.any():
                own[:, : in_bytes.size] += in_bytes * self._left(above[0], vertex.id, at_ms)[:, :1]
            found.append(own)
        return found

    def _left(self, sender: VertexId, receiver: VertexId, at_ms: Floats) -> Floats:
        """Return the share of each sender's queue that is still in front of its barriers, over all its receivers.

        The result has a row for each time, with a value for each subtask of the vertex ``sender``. If the receivers
        read nothing in front of the barriers, the share is 0.
        """
        exchange = self._exchange(sender, receiver)
        at_ms = at_ms[:, np.newaxis]
        last, first = (
            (exchange.rates * np.maximum(arrived - at_ms, 0.0)).sum(axis=1, keepdims=True)
            for arrived in (self.last[receiver], self.first[receiver])
        )
        rest = np.where(exchange.is_latest, last, first)
        shares = np.divide(rest, exchange.whole, out=np.zeros_like(rest), where=exchange.whole > 0.0)
        return np.where(at_ms <= exchange.sent_ms, 1.0, np.minimum(shares, 1.0))

    def _exchange(self, sender: VertexId, receiver: VertexId) -> _Exchange:
        exchange = self._exchanges.get((sender, receiver))
        if exchange is None:
            row = self.last[sender]
            sent = np.zeros(max(row.size, self._rooms.out_bytes[sender].size))
            sent[: row.size] = row
            first, last = self.first[receiver], self.last[receiver]
            intake = self._rooms.intake[receiver]
            rates = intake if intake.size == last.size and intake.sum() > 0 else np.ones(last.size)
            is_latest = sent >= row.max()
            whole = np.where(is_latest, _read_bytes(last, rates, sent), _read_bytes(first, rates, sent))
            exchange = self._exchanges[sender, receiver] = _Exchange(sent, is_latest, rates, whole)
        return exchange


@dataclass(frozen=True, slots=True, eq=False)
class _Exchange:
    """The channels from all subtasks of one vertex to all subtasks of another vertex.

    Each channel's part of a sender's queue is estimated from the data that its receiver reads until the barrier
    arrives, at a constant rate. The engine does not report which channel delivered its barrier last. It is assumed to
    be the channel of the latest sender.

    ``sent_ms`` is when each sender forwards its barrier. ``rates`` are the bytes per millisecond that each receiver
    reads, or 1 for all of them if they are not known. ``whole`` is what all receivers read of each sender's queue.
    """

    sent_ms: Floats
    is_latest: Flags
    rates: Floats
    whole: Floats


def _read_bytes(arrived_ms: Floats, rates: Floats, sent_ms: Floats) -> Floats:
    """Return, for each sender, what all receivers read from ``sent_ms`` until the arrival of their barriers.

    The cost grows with the number of senders plus receivers, not with the number of channels between them.
    """
    order = np.argsort(arrived_ms)
    arrived, rate = arrived_ms[order], rates[order]
    # At index i: the sums over the receivers from the i-th earliest arrival on.
    rate_sums, sums = np.zeros(rate.size + 1), np.zeros(rate.size + 1)
    np.cumsum(rate[::-1], out=rate_sums[-2::-1])
    np.cumsum((rate * arrived)[::-1], out=sums[-2::-1])
    later = np.searchsorted(arrived, sent_ms, side="right")
    return np.asarray(sums[later] - sent_ms * rate_sums[later])
