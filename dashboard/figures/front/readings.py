"""Looks up the backpressure readings around a checkpoint: queues, backpressure and skew at an instant."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from backend.contracts.pressure_history import PressureHistoryOut

AROUND = timedelta(seconds=30)
"""Readings are used up to this long before and after an instant. Readings further away count as missing."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The values of one vertex in one bucket. None means *not reported*."""

    queued_bytes: int | None
    backpressured_ratio: float | None
    """The largest value of a subtask."""
    skew_ratio: float | None
    """The most records that a subtask has read, divided by the mean over the subtasks."""


@dataclass(frozen=True, slots=True)
class Readings:
    """The readings around a checkpoint that was triggered at ``began``."""

    history: PressureHistoryOut | None
    began: datetime | None

    def at(self, at_ms: float) -> dict[str, Reading]:
        """Return the reading of each vertex nearest to ``at_ms`` since the trigger. A vertex without one is absent."""
        if self.history is None or self.began is None:
            return {}
        middle = timedelta(seconds=self.history.bucket_s / 2)
        instant = self.began + timedelta(milliseconds=at_ms)
        near = sorted(
            (abs(b + middle - instant), i)
            for i, b in enumerate(self.history.buckets)
            if abs(b + middle - instant) <= AROUND + middle
        )
        readings: dict[str, Reading] = {}
        # A target may read its vertices at different instants, so each vertex has a nearest bucket of its own.
        for v in self.history.vertices:
            rows = (
                Reading(v.queued_max_bytes[i], v.backpressured_max_ratio[i], v.records_in_skew_ratio[i])
                for _, i in near
            )
            reading = next((r for r in rows if r != _NOTHING), None)
            if reading is not None:
                readings[v.vertex_id] = reading
        return readings


_NOTHING = Reading(None, None, None)
NO_READINGS = Readings(None, None)
