"""First barriers of subtasks that do not acknowledge, told from their gauges. Pure.

A subtask that has not acknowledged reports nothing in the checkpoint's detail, but its gauge
``checkpointStartDelayNanos`` is set when its first barrier arrives, also after the checkpoint expired. Until then it
shows an earlier checkpoint's value with nothing to date it; 0 means never (flink-recordings, ``E``).

So a value counts only where it *changed* between two readings, and belongs to the checkpoint for which trigger +
value falls between them. A JobManager fetches metrics now and then only, so what a reading shows may have happened
one fetch interval before the reading it differs from. Barriers come in order, so a checkpoint at or before the one
told last is out. Where two checkpoints would still do, the value is given to none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from backend.domain.checkpoint import LateBarrier, Values, VertexDetail
from backend.domain.ids import VertexId

_NANOS_PER_MS = 1_000_000
# Two machines' clocks, and the rounding of both.
_SLACK = timedelta(milliseconds=500)
_RECENT_MAX = 16


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of one gauge."""

    value: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint that a gauge may speak of.

    ``pending`` are the subtasks that have not acknowledged; ``start_delay_ms`` are those that did, where known.
    """

    checkpoint_id: int
    triggered_at: datetime
    pending: Mapping[VertexId, frozenset[int]]
    start_delay_ms: Mapping[VertexId, Values] = field(default_factory=dict)

    def arrival(self, value_ns: int) -> datetime:
        """When the first barrier arrived, if the value is this checkpoint's."""
        return self.triggered_at + timedelta(milliseconds=value_ns // _NANOS_PER_MS)

    def is_pending(self, vertex_id: VertexId, subtask: int) -> bool:
        """Whether the subtask has not acknowledged."""
        return subtask in self.pending.get(vertex_id, frozenset())

    def acknowledged_ms(self, vertex_id: VertexId, subtask: int) -> int | None:
        """The start delay the subtask reported with its acknowledgement."""
        row = self.start_delay_ms.get(vertex_id, ())
        return row[subtask] if subtask < len(row) else None


@dataclass(slots=True)
class GaugeMemory:
    """The newest reading of each gauge, and what was told from changes, by checkpoint."""

    start_delay: dict[tuple[VertexId, int], Reading] = field(default_factory=dict)
    alignment: dict[tuple[VertexId, int], Reading] = field(default_factory=dict)
    late: dict[int, dict[tuple[VertexId, int], LateBarrier]] = field(default_factory=dict)
    owner_id: dict[tuple[VertexId, int], int] = field(default_factory=dict)
    """The checkpoint whose barrier was the last one told at a subtask."""
    aligning: dict[tuple[VertexId, int], int] = field(default_factory=dict)
    """Alignment so far (ms) of the subtasks whose gauge grew between their last two readings."""

    def copy(self) -> GaugeMemory:
        """An independent copy."""
        late = {cid: dict(found) for cid, found in self.late.items()}
        return GaugeMemory(dict(self.start_delay), dict(self.alignment), late, dict(self.owner_id), dict(self.aligning))

    def read_start_delay(
        self,
        vertex_id: VertexId,
        values_ns: Mapping[int, int],
        *,
        at: datetime,
        fetch_interval: timedelta,
        candidates: Iterable[Candidate],
    ) -> None:
        """Take a reading of ``checkpointStartDelayNanos`` by subtask, in the engine's time ``at``."""
        known = tuple(candidates)
        for subtask, value in values_ns.items():
            key = (vertex_id, subtask)
            before = self.start_delay.get(key)
            self.start_delay[key] = Reading(value, at)
            if before is None or value in (0, before.value):
                continue
            earliest, latest = before.at - fetch_interval - _SLACK, at + _SLACK
            told_id = self.owner_id.get(key, -1)
            fitting = [c for c in known if c.checkpoint_id > told_id and earliest < c.arrival(value) <= latest]
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
        """Take a reading of ``checkpointAlignmentTime`` by subtask: one that grew belongs to a task aligning now."""
        for subtask, value in values_ns.items():
            key = (vertex_id, subtask)
            before = self.alignment.get(key)
            self.alignment[key] = Reading(value, at)
            if before is not None and value > before.value:
                self.aligning[key] = value // _NANOS_PER_MS
            else:
                self.aligning.pop(key, None)

    def keep_only(self, checkpoint_ids: Iterable[int]) -> None:
        """Drop what was told of other checkpoints."""
        kept = set(checkpoint_ids)
        self.late = {cid: found for cid, found in self.late.items() if cid in kept}


def _owner(vertex_id: VertexId, subtask: int, value_ns: int, fitting: list[Candidate]) -> Candidate | None:
    """The checkpoint the value belongs to, of those it fits in time; None where there is none, or more than one."""
    value_ms = value_ns // _NANOS_PER_MS
    equal = [c for c in fitting if c.acknowledged_ms(vertex_id, subtask) == value_ms]
    # A subtask that acknowledged with another start delay has shown that the value is not that checkpoint's.
    left = equal or [c for c in fitting if c.acknowledged_ms(vertex_id, subtask) is None]
    return left[0] if len(left) == 1 else None


def candidate(
    checkpoint_id: int,
    triggered_at: datetime,
    *,
    details: Iterable[VertexDetail],
    pending: Mapping[VertexId, frozenset[int]],
) -> Candidate:
    """A checkpoint as far as it is known."""
    return Candidate(checkpoint_id, triggered_at, pending, {d.vertex_id: d.start_delay_ms for d in details})


def newest(candidates: Mapping[int, Candidate]) -> dict[int, Candidate]:
    """The newest few: a gauge holds the last barrier only."""
    kept = sorted(candidates.values(), key=lambda c: c.triggered_at)[-_RECENT_MAX:]
    return {c.checkpoint_id: c for c in kept}
