"""The stored days with their sizes, and how many days fit into the size limit at the present rate.

The forecast needs only the size of one day, so it is known long before the limit is reached. It assumes that every
later day is as large as the newest whole day, and it ignores age rules, which apply to some targets only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta

from backend.store.downsampling import Removed
from backend.store.schema.partitions import Retention, StoredPartition, day_of

DOWNSAMPLED_RATIO = 0.25
"""The assumed share of a day's size that stays after down-sampling, until a day was down-sampled.

Measured: 0.14 to 0.24 (docs/sizing.md).
"""
# Today's size is extrapolated to a whole day only after this time. Before it, empty partitions would count too much.
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


def forecast(days: Sequence[StoredDay], others_bytes: int, retention: Retention, now: datetime) -> SizeForecast:
    """Return how many days fit. ``others_bytes`` is the size of everything that belongs to no day."""
    limit, promised = retention.max_size_bytes, retention.max_age / _DAY
    arrays = min(retention.arrays_max_age / _DAY, promised)
    size = others_bytes + sum(d.size_bytes for d in days)
    known = SizeForecast(size, limit, min((d.day for d in days), default=None), promised, arrays)
    whole = _whole_day_bytes(days, now)
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


def _whole_day_bytes(days: Sequence[StoredDay], now: datetime) -> int | None:
    today = day_of(now)
    passed = now - datetime.combine(today, time.min, UTC)
    sizes = [d.size_bytes for d in days if today - 2 * _DAY < d.day < today and not d.removed.arrays]
    if passed >= _PROJECTED_AFTER:
        sizes += [round(d.size_bytes * (_DAY / passed)) for d in days if d.day == today]
    return max(sizes, default=None)
