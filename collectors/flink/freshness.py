"""Decides when a job's metrics may be read, so that two readings come from two fetches of the engine. Does no I/O.

Flink's JobManager fetches the metrics of all TaskManagers only if a request asks for metrics, at most once in
``metrics.fetcher.update-interval`` (10 s by default), and answers that request with the values that it had before
(``MetricFetcherImpl.update``). So the first answer may be of any age, and two answers within one interval are equal
although the job goes on. Taken as two readings, they would say that no record was read.

Therefore each reading follows a request of an earlier poll that made the engine fetch, and that request comes at least
one interval after the reading before. If the interval is not known, Flink's default is assumed, and a reading that
differs from the one before in no value of any vertex does not count.

Invariant: the values of a reading that counts were fetched after those of the reading before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum

from backend.domain.pressure import VertexPressure

# After this time, a job of which no value moved stands still, whatever the interval is.
_UNMOVED_MAX = timedelta(minutes=2)
_NO_TIME = datetime.min.replace(tzinfo=UTC)


class Step(Enum):
    """What a poll does about the metrics of a job."""

    NOTHING = 0
    PREPARE = 1
    """Ask for any metric, so that the engine fetches all of them."""
    READ = 2


@dataclass(frozen=True, slots=True)
class FetchInterval:
    """The engine's shortest time between two fetches of its metrics; 0 if it keeps no copies of them."""

    time: timedelta
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class Freshness:
    """When the metrics of a run were last prepared and read.

    ``prepared_at`` is the time of the request that made the engine fetch for the next reading. ``read_at`` is the end
    of the newest reading, and ``counted_at`` that of the newest one that counts. ``values`` identifies its values.
    """

    prepared_at: datetime | None = None
    read_at: datetime | None = None
    counted_at: datetime | None = None
    values: int | None = None

    def step(self, now: datetime, *, poll_began_at: datetime, every: timedelta, interval: FetchInterval) -> Step:
        """Return what is due. A reading is due ``every`` after the one before, and later if the metrics are not new."""
        if self.read_at is not None and now - self.read_at < max(every, interval.time):
            return Step.NOTHING
        if not interval.time:
            return Step.READ
        if self.prepared_at is None:
            return Step.PREPARE
        return Step.READ if self.prepared_at < poll_began_at else Step.NOTHING

    def has_fetched(self, *, poll_began_at: datetime, interval: FetchInterval) -> bool:
        """Return whether an earlier poll made the engine fetch. Before that, values may be of any age."""
        is_prepared = self.prepared_at is not None and self.prepared_at < poll_began_at
        return not interval.time or self.read_at is not None or is_prepared

    def prepared(self, at: datetime, interval: FetchInterval) -> Freshness:
        """Return the state after a request for metrics that was sent at ``at``.

        A request that comes too soon after the newest reading may be answered from the fetch of that reading.
        """
        is_early = self.read_at is not None and at - self.read_at < interval.time
        return self if is_early or self.prepared_at is not None else replace(self, prepared_at=at)

    def read(self, readings: Sequence[VertexPressure], at: datetime, interval: FetchInterval) -> tuple[Freshness, bool]:
        """Return the state after a reading that ended at ``at``, and whether the reading counts."""
        values = None if interval.is_known else hash(tuple(replace(r, observed_at=_NO_TIME) for r in readings))
        is_same = values is not None and values == self.values
        counts = not is_same or self.counted_at is None or at - self.counted_at >= _UNMOVED_MAX
        counted_at = at if counts else self.counted_at
        return Freshness(prepared_at=None, read_at=at, counted_at=counted_at, values=values), counts
