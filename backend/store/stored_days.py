"""The stored days with their sizes, and how many days fit into the size limit at the present rate.

The forecast needs only the size of one day, so it is known long before the limit is reached. It assumes that every
later day is as large as the newest whole day, and it ignores age rules, which apply to some targets only. A day in
which the store has data of a part only is extrapolated from the time since its first data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.store.downsampling import Removed
from backend.store.postgres.connections import reading
from backend.store.schema import tables
from backend.store.schema.partitions import Retention, StoredPartition, day_of, list_partitions, size_of_other_tables

DOWNSAMPLED_RATIO = 0.25
"""The assumed share of a day's size that stays after down-sampling, until a day was down-sampled.

Measured: 0.14 to 0.24 (docs/sizing.md).
"""
# A size is extrapolated to a whole day only if it is of at least this time. In less, empty partitions would count too
# much.
_PROJECTED_AFTER = timedelta(hours=2)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class StoredDay:
    """The partitions of one day: their size, and what was removed from all of them."""

    day: date
    size_bytes: int
    removed: Removed = field(default_factory=Removed)


@dataclass(frozen=True, slots=True)
class SizeForecast:
    """How many past days fit into the size limit, in addition to today.

    A field is None until the size of a whole day can be measured or extrapolated.
    """

    size_bytes: int
    size_limit_bytes: int
    oldest_day: date | None
    promised_days: float
    """The age limit in days."""
    promised_whole_days: float
    """The age limit of arrays in days."""
    whole_day_bytes: int | None = None
    held_days: float | None = None
    """The number of days that fit if the arrays of all of them are removed; at most ``promised_days``."""
    held_whole_days: float | None = None
    """The number of days that can keep their arrays while ``promised_days`` are stored."""
    needed_bytes: int | None = None
    """The size limit that both age limits require."""

    @property
    def is_short(self) -> bool:
        """Whether the size limit will drop days before they reach their age limit."""
        return self.held_days is not None and self.held_days < self.promised_days


def days_of(partitions: Sequence[StoredPartition]) -> list[StoredDay]:
    """Return the stored days, oldest first."""
    of_day: dict[date, list[StoredPartition]] = {}
    for partition in partitions:
        of_day.setdefault(partition.day, []).append(partition)
    return [
        StoredDay(day, sum(p.size_bytes for p in found), _common([Removed.parse(p.removed) for p in found]))
        for day, found in sorted(of_day.items())
    ]


def _common(removed: Sequence[Removed]) -> Removed:
    return Removed(all(r.arrays for r in removed), frozenset.intersection(*(r.expired for r in removed)))


async def read_forecast(engine: AsyncEngine, retention: Retention, now: datetime) -> SizeForecast:
    """Read the stored days, and return how many days fit.

    Raises:
        StoreUnavailableError: PostgreSQL is unreachable.
    """
    days = days_of(await list_partitions(engine))
    others_bytes = await size_of_other_tables(engine)
    return forecast(days, others_bytes, retention, now, await _first_data_at(engine))


async def _first_data_at(engine: AsyncEngine) -> datetime | None:
    # The table has one row for each job, and a job is stored with its first data. The partitions are not read.
    async with reading(engine) as connection:
        first: datetime | None = await connection.scalar(select(func.min(tables.jobs.c.first_seen_at)))
    return first


def forecast(
    days: Sequence[StoredDay], others_bytes: int, retention: Retention, now: datetime, first_data_at: datetime | None
) -> SizeForecast:
    """Return how many days fit. ``others_bytes`` is the size of everything that belongs to no day.

    ``first_data_at`` is the time since which data is stored, or None if there is none.
    """
    limit, promised = retention.max_size_bytes, retention.max_age / _DAY
    arrays = min(retention.arrays_max_age / _DAY, promised)
    size = others_bytes + sum(d.size_bytes for d in days)
    known = SizeForecast(size, limit, min((d.day for d in days), default=None), promised, arrays)
    whole = None if first_data_at is None else _whole_day_bytes(days, now, first_data_at)
    if not whole:
        return known
    past = [d for d in days if d.day < day_of(now)]
    small = next((d.size_bytes for d in reversed(past) if d.removed.arrays), round(whole * DOWNSAMPLED_RATIO))
    small = max(1, min(small, whole))
    room = limit - others_bytes - whole
    extra = whole - small
    held_whole = arrays if extra == 0 else min(arrays, max(0.0, (room - small * promised) / extra))
    return SizeForecast(
        **{name: getattr(known, name) for name in ("size_bytes", "size_limit_bytes", "oldest_day")},
        promised_days=promised,
        promised_whole_days=arrays,
        whole_day_bytes=whole,
        held_days=min(promised, max(0.0, room / small)),
        held_whole_days=held_whole,
        needed_bytes=round(others_bytes + whole * (1 + arrays) + small * (promised - arrays)),
    )


def _whole_day_bytes(days: Sequence[StoredDay], now: datetime, first_data_at: datetime) -> int | None:
    sizes = []
    for found in days:
        begin = datetime.combine(found.day, time.min, UTC)
        # A day before the first data was imported, perhaps in part, so its size says nothing about a whole day.
        covered = min(now, begin + _DAY) - max(begin, first_data_at)
        if found.day > day_of(now) - 2 * _DAY and not found.removed.arrays and covered >= _PROJECTED_AFTER:
            sizes.append(round(found.size_bytes * (_DAY / covered)))
    return max(sizes, default=None)
