"""Measures barriers that were later than the simulation of a job explains, and what that means for other settings.

Bursts whose period no reading shows, or a subtask that is slow now and then, fill queues in some checkpoints only. A
model with steady rates lacks these queues: in it, aligned checkpoints are always quick, and there is nothing to
overtake. But the recorded aligned checkpoints show them. A barrier that arrived a second later than in the simulation
had the records of that second in front of it.

So each recorded checkpoint has an excess: by how much its barrier arrived later than a simulated one. An aligned
checkpoint takes longer by it. An unaligned one overtakes these records instead, so it persists what its receivers read
in that time. A subtask with a queue in front of a barrier is never idle: it reads more than on average, if it is idle
at other times. And only subtasks whose own barrier was late have such a queue. With an aligned timeout, a checkpoint
does the one until the timeout and the other after it. With a cap, it waits like an aligned one until the rest fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from backend.advisor.advice import Interval
from backend.advisor.proposing import share_interval
from backend.advisor.situation import Recorded, Situation
from backend.advisor.thresholds import NOISE_MS
from backend.analysis.numbers.arrays import Floats, array_of
from backend.domain.advice import Mode
from backend.domain.ids import VertexId

_STANDARD_ERRORS_MIN: Final = 2.0
_CHECKPOINTS_MIN: Final = 10
_OCCUPIED_MIN_RATIO: Final = 0.02
"""Shares of busy time below this are too coarse to divide by."""


@dataclass(frozen=True, slots=True, eq=False)
class LateBarriers:
    """How many milliseconds later than simulated the barrier of each recorded checkpoint arrived.

    ``excess_ms`` is empty if no barrier was late. ``usual_ms`` is the time until the barrier of a simulated aligned
    checkpoint has arrived. ``bytes_per_ms`` has a row for each checkpoint, with what each subtask of the vertex at
    which barriers are late reads in a millisecond of that excess. It is 0 for subtasks whose barrier was on time.
    """

    excess_ms: Floats
    usual_ms: float
    bytes_per_ms: Floats

    @classmethod
    def none(cls) -> Self:
        """Return barriers that are no later than simulated."""
        return cls(np.zeros(0), 0.0, np.zeros((0, 1)))

    @classmethod
    def of(cls, situation: Situation, recorded: Sequence[Recorded], simulated_ms: float) -> Self:
        """Return the late barriers of recorded checkpoints; none if chance may explain them.

        ``simulated_ms`` is the mean duration of the simulated checkpoints under the present settings. Only aligned
        checkpoints show for how long barriers wait. If they are earlier than simulated, queues may still be filling,
        and the simulation is the careful guess.
        """
        rows = [r for r in recorded if r.travel_ms is not None]
        latest = _latest_vertex(situation)
        read = None if latest is None else _read_at_full_speed(situation, latest)
        if situation.mode is not Mode.ALIGNED or len(rows) < _CHECKPOINTS_MIN or latest is None or read is None:
            return cls.none()
        travel = np.array([r.travel_ms for r in rows], dtype=np.float64)
        rest = np.array([r.duration_ms for r in rows]) - travel
        # The simulation has the usual sync and async parts. Those that took longer are no late barriers.
        usual = max(0.0, simulated_ms - float(np.median(rest)))
        more = float(travel.mean()) - usual
        if more <= max(NOISE_MS, _STANDARD_ERRORS_MIN * float(travel.std()) / len(rows) ** 0.5):
            return cls.none()
        excess = np.maximum(0.0, travel - usual)
        is_late = np.array([_late_shares(r, latest, usual, read.size) for r in rows])
        return cls(excess * more / excess.mean(), usual, is_late * read)

    def waits_ms(self, aligned_timeout_ms: int | None, cap_bytes: int | None) -> Floats:
        """Return by how much longer than simulated each checkpoint takes under a mode; empty if none does.

        An aligned timeout of None means that barriers never overtake data, and 0 that they overtake it at once.
        """
        if aligned_timeout_ms is None:
            return self.excess_ms
        waits: Floats = np.minimum(self.excess_ms, max(0.0, aligned_timeout_ms - self.usual_ms))
        return waits if cap_bytes is None else np.maximum(waits, self.excess_ms - self._within_ms(cap_bytes))

    def overtaken_bytes(self, aligned_timeout_ms: int | None, cap_bytes: int | None) -> Floats:
        """Return by how much more than simulated each checkpoint persists under a mode; empty if none does."""
        waits = self.waits_ms(aligned_timeout_ms, cap_bytes)
        found: Floats = self._overtaken(waits).sum(axis=1)
        return found

    def durations(self, simulated: Interval, waits_ms: Floats, timeout_ms: float) -> Interval:
        """Return the durations of checkpoints and their interval, if their barriers wait longer by ``waits_ms``."""
        if not waits_ms.size:
            return simulated
        middle, high = (float(v) for v in np.quantile(waits_ms, (0.5, 0.95)))
        value = min(timeout_ms, simulated.value + middle)
        return Interval(value, min(simulated.low, value), min(timeout_ms, max(simulated.high, simulated.value + high)))

    def expired_ratio(self, simulated: Interval, duration_ms: float, waits_ms: Floats, timeout_ms: float) -> Interval:
        """Return the share of checkpoints that expire, if their barriers wait longer by ``waits_ms``.

        ``duration_ms`` is the duration of a simulated checkpoint, and ``simulated`` the share of these that expires.
        """
        count = int((duration_ms + waits_ms >= timeout_ms).sum())
        if not count:
            return simulated
        seen = share_interval(count, waits_ms.size)
        return Interval(max(simulated.value, seen.value), max(simulated.low, seen.low), max(simulated.high, seen.high))

    def persisted(self, simulated: Interval, overtaken_bytes: Floats) -> Interval:
        """Return the persisted bytes of checkpoints, if they overtake so much more."""
        if not overtaken_bytes.any():
            return simulated
        mean, high = float(overtaken_bytes.mean()), float(np.quantile(overtaken_bytes, 0.95))
        value = simulated.value + mean
        return Interval(value, simulated.low, max(value, simulated.high + high))

    def _within_ms(self, cap_bytes: int) -> Floats:
        """Return, for each checkpoint, how many milliseconds of records fit the cap of every subtask (CAP-3)."""
        fastest: Floats = np.maximum.reduce(self.bytes_per_ms, axis=1)
        unlimited = np.full_like(fastest, np.inf)
        found: Floats = np.divide(cap_bytes, fastest, out=unlimited, where=fastest > 0)
        return found

    def _overtaken(self, waits: Floats) -> Floats:
        """Return the bytes that each checkpoint overtakes, a row each, in front of each subtask."""
        found: Floats = (self.excess_ms - waits)[:, np.newaxis] * self.bytes_per_ms
        return found


def _latest_vertex(situation: Situation) -> VertexId | None:
    """Return the vertex that delays barriers most; None if it is not known, or not what it reads."""
    lag: dict[VertexId, float] = {}
    topology = situation.evidence.topology
    for r in situation.recorded:
        at = {v: float(np.nanmax(p.travel_ms)) for v, p in r.phases.items() if not np.isnan(p.travel_ms).all()}
        for v, ms in at.items():
            above = [at[u] for u in topology.upstream(v) if u in at]
            if above:
                lag[v] = lag.get(v, 0.0) + ms - max(above)
    vertex = max(lag, key=lag.__getitem__, default=None)
    return vertex if vertex in situation.drain_bytes_per_ms else None


def _read_at_full_speed(situation: Situation, vertex_id: VertexId) -> Floats | None:
    """Return the bytes that each subtask reads in a millisecond in which it is not idle; None if that is not known."""
    readings = [r for r in situation.evidence.pressure if r.vertex_id == vertex_id]
    read = array_of(situation.intake_bytes_per_ms[vertex_id])
    rows = [
        array_of(r.busy_ratio) + np.nan_to_num(array_of(r.backpressured_ratio))
        for r in readings
        if len(r.busy_ratio) == len(r.backpressured_ratio) == read.size
    ]
    occupied = np.array(rows)
    # A subtask that reads nothing needs no speed.
    if not rows or (np.isnan(occupied).all(axis=0) & (read > 0)).any():
        return None
    occupied = np.nanmean(np.where(np.isnan(occupied).all(axis=0), 1.0, occupied), axis=0)
    found: Floats = read / np.clip(occupied, _OCCUPIED_MIN_RATIO, 1.0)
    return found


def _late_shares(one: Recorded, vertex_id: VertexId, usual_ms: float, count: int) -> Floats:
    """Return by what share of the checkpoint's excess the barrier of each subtask was late.

    A barrier that had not arrived when the checkpoint ended was as late as the checkpoint.
    """
    assert one.travel_ms is not None
    rows = one.phases.get(vertex_id)
    travel = np.full(count, one.travel_ms)
    if rows is not None and one.travel_ms > usual_ms:
        known_ms = rows.travel_ms[:count]
        travel[: known_ms.size] = np.where(np.isnan(known_ms), one.travel_ms, known_ms)
    shares: Floats = np.clip((travel - usual_ms) / max(1.0, one.travel_ms - usual_ms), 0.0, 1.0)
    return shares
