"""Finds out from metrics when the first barrier reached a subtask that has not acknowledged. Does no I/O.

A subtask that has not acknowledged is missing from the checkpoint's detail. But its metric (a gauge)
``checkpointStartDelayNanos`` is set when the first barrier arrives, even if the checkpoint has already expired. Until
then the gauge shows the value of an earlier checkpoint, and nothing shows which. The value 0 means that the gauge was
never set (flink-recordings, ``E``).

Therefore a value counts only if it *changed* between two readings. It belongs to the checkpoint whose trigger time
plus the value lies between the two readings. A JobManager fetches metrics periodically, so the change may have
happened up to one fetch interval before the earlier reading. Barriers arrive in order, so checkpoints up to the last
matched one are excluded. If two checkpoints still fit, the value is assigned to neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from backend.domain.checkpoint import LateBarrier, Values, VertexDetail
from backend.domain.ids import VertexId

_NANOS_PER_MS = 1_000_000
# Tolerance for rounding, and for the difference between the clocks of two machines.
_SLACK = timedelta(milliseconds=500)
_RECENT_MAX = 16


@dataclass(frozen=True, slots=True)
class GaugeReading:
    """The value of one gauge at one instant."""

    value: int
    at: datetime


@dataclass(frozen=True, slots=True)
class GaugeCandidate:
    """A checkpoint to which a gauge's value may belong.

    ``pending`` contains the subtasks that have not acknowledged. ``start_delay_ms`` contains the known start delays
    of the other subtasks.
    """

    checkpoint_id: int
    triggered_at: datetime
    pending: Mapping[VertexId, frozenset[int]]
    start_delay_ms: Mapping[VertexId, Values] = field(default_factory=dict)

    def arrival(self, value_ns: int) -> datetime:
        """Return the time at which the first barrier arrived if the value belongs to this checkpoint."""
        return self.triggered_at + timedelta(milliseconds=value_ns // _NANOS_PER_MS)

    def is_pending(self, vertex_id: VertexId, subtask: int) -> bool:
        """Return whether the subtask has not acknowledged."""
        return subtask in self.pending.get(vertex_id, frozenset())

    def acknowledged_ms(self, vertex_id: VertexId, subtask: int) -> int | None:
        """Return the start delay that the subtask reported with its acknowledgement, or None if it is not known."""
        row = self.start_delay_ms.get(vertex_id, ())
        return row[subtask] if subtask < len(row) else None


@dataclass(slots=True)
class GaugeMemory:
    """The newest reading of each gauge.

    ``late`` contains, for each checkpoint, the arrivals of first barriers that were found in gauges so far.
    """

    start_delay: dict[tuple[VertexId, int], GaugeReading] = field(default_factory=dict)
    alignment: dict[tuple[VertexId, int], GaugeReading] = field(default_factory=dict)
    late: dict[int, dict[tuple[VertexId, int], LateBarrier]] = field(default_factory=dict)
    owner_id: dict[tuple[VertexId, int], int] = field(default_factory=dict)
    """For each subtask, the checkpoint to which its last matched gauge value belongs."""
    aligning: dict[tuple[VertexId, int], int] = field(default_factory=dict)
    """The alignment so far, in milliseconds, of each subtask whose alignment gauge grew between its last two
    readings.
    """

    def copy(self) -> GaugeMemory:
        """Return an independent copy."""
        late = {cid: dict(found) for cid, found in self.late.items()}
        return GaugeMemory(dict(self.start_delay), dict(self.alignment), late, dict(self.owner_id), dict(self.aligning))

    def read_start_delay(
        self,
        vertex_id: VertexId,
        values_ns: Mapping[int, int],
        *,
        at: datetime,
        fetch_interval: timedelta,
        candidates: Iterable[GaugeCandidate],
    ) -> None:
        """Process a reading of ``checkpointStartDelayNanos``, by subtask. ``at`` is on the engine's clock.

        If a value has changed and fits exactly one checkpoint, it belongs to that checkpoint. If the subtask has not
        acknowledged the checkpoint, the value is stored as a late barrier.
        """
        known = tuple(candidates)
        for subtask, value in values_ns.items():
            key = (vertex_id, subtask)
            before = self.start_delay.get(key)
            self.start_delay[key] = GaugeReading(value, at)
            if before is None or value in (0, before.value):
                continue
            earliest, latest = before.at - fetch_interval - _SLACK, at + _SLACK
            owner_id = self.owner_id.get(key, -1)
            fitting = [c for c in known if c.checkpoint_id > owner_id and earliest < c.arrival(value) <= latest]
            owner = _owner(vertex_id, subtask, value, fitting)
            if owner is None:
                continue
            self.owner_id[key] = owner.checkpoint_id
            if owner.is_pending(vertex_id, subtask):
                self.late.setdefault(owner.checkpoint_id, {})[key] = LateBarrier(
                    vertex_id=vertex_id,
                    subtask=subtask,
                    start_delay_ms=value // _NANOS_PER_MS,
                    seen_at=at,
                    resolution_ms=(at - before.at) // timedelta(milliseconds=1),
                )

    def read_alignment(self, vertex_id: VertexId, values_ns: Mapping[int, int], *, at: datetime) -> None:
        """Process a reading of ``checkpointAlignmentTime``, by subtask.

        A subtask is aligning now if its value has grown since the previous reading.
        """
        for subtask, value in values_ns.items():
            key = (vertex_id, subtask)
            before = self.alignment.get(key)
            self.alignment[key] = GaugeReading(value, at)
            if before is not None and value > before.value:
                self.aligning[key] = value // _NANOS_PER_MS
            else:
                self.aligning.pop(key, None)

    def keep_only(self, checkpoint_ids: Iterable[int]) -> None:
        """Drop the late barriers of every checkpoint that is not in ``checkpoint_ids``."""
        kept = set(checkpoint_ids)
        self.late = {cid: found for cid, found in self.late.items() if cid in kept}


def _owner(vertex_id: VertexId, subtask: int, value_ns: int, fitting: list[GaugeCandidate]) -> GaugeCandidate | None:
    """Return the checkpoint to which the value belongs, or None if that is not certain.

    ``fitting`` are the checkpoints whose trigger time fits the value.
    """
    value_ms = value_ns // _NANOS_PER_MS
    equal = [c for c in fitting if c.acknowledged_ms(vertex_id, subtask) == value_ms]
    # A checkpoint that the subtask acknowledged with a different start delay is excluded.
    left = equal or [c for c in fitting if c.acknowledged_ms(vertex_id, subtask) is None]
    return left[0] if len(left) == 1 else None


def candidate(
    checkpoint_id: int,
    triggered_at: datetime,
    *,
    details: Iterable[VertexDetail],
    pending: Mapping[VertexId, frozenset[int]],
) -> GaugeCandidate:
    """Make a candidate from the known details of a checkpoint."""
    return GaugeCandidate(checkpoint_id, triggered_at, pending, {d.vertex_id: d.start_delay_ms for d in details})


def newest(candidates: Mapping[int, GaugeCandidate]) -> dict[int, GaugeCandidate]:
    """Return only the newest candidates.

    Older ones are not needed, because a gauge contains only the value of the last barrier.
    """
    kept = sorted(candidates.values(), key=lambda c: c.triggered_at)[-_RECENT_MAX:]
    return {c.checkpoint_id: c for c in kept}
