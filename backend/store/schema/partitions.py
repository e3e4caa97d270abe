"""Day partitions: the range of kept days, and the partitions, created ahead and on demand.

Invariant: a partition for written data has a day within [now - retention, now + 1 day]. Data outside is refused before
it is written, so a target with a broken clock cannot fill the catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.store.postgres.connections import reading, writing
from backend.store.schema.tables import PARTITIONED

DAYS_AHEAD = 2
_FUTURE_MAX = timedelta(days=1)
# Serialises creating and dropping partitions across all processes.
PARTITION_LOCK_KEY = 0x62617273
_NAME = re.compile(rf"^({'|'.join(PARTITIONED)})_p(\d{{4}})(\d\d)(\d\d)$")


@dataclass(frozen=True, slots=True)
class Retention:
    """The limits of kept data: age and total size; the oldest days are dropped first."""

    max_age: timedelta = timedelta(days=7)
    max_size_bytes: int = 2 * 2**30
    rollups_max_age: timedelta = timedelta(days=90)
    """The age limit of hourly rollups; the effective limit is at least ``max_age``."""

    def accepts(self, instant: datetime, now: datetime) -> bool:
        """Whether data of ``instant`` is accepted at ``now`` (both aware)."""
        return now - self.max_age <= instant <= now + _FUTURE_MAX

    def oldest_day(self, now: datetime) -> date:
        """Return the oldest day that is kept."""
        return day_of(now - self.max_age)


def day_of(instant: datetime) -> date:
    """Return the UTC day of an aware instant, which determines its partition."""
    return instant.astimezone(UTC).date()


def partition_name(table: str, day: date) -> str:
    """Return the name of the partition of ``table`` for ``day``."""
    return f"{table}_p{day:%Y%m%d}"


def day_of_partition(name: str) -> date | None:
    """Return the day of a partition; None if ``name`` is not one of our partitions."""
    found = _NAME.match(name)
    return None if found is None else date(int(found[2]), int(found[3]), int(found[4]))


class Partitions:
    """Creates partitions, and remembers which days exist."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._known: set[date] = set()

    async def ensure(self, days: Iterable[date]) -> None:
        """Create the missing partitions of ``days`` in every partitioned table."""
        for day in sorted(set(days) - self._known):
            for table in PARTITIONED:
                await self._make(table, day)
            self._known.add(day)

    async def ensure_ahead(self, now: datetime) -> None:
        """Create the partitions of today and the next days, so that no write at midnight has to."""
        today = day_of(now)
        await self.ensure(today + timedelta(days=n) for n in range(DAYS_AHEAD + 1))

    def forget(self) -> None:
        """Forget the known days, because another process may have dropped partitions."""
        self._known.clear()

    async def _make(self, table: str, day: date) -> None:
        name = partition_name(table, day)
        # This queries the catalogue's tables, because ``to_regclass`` may return a cached miss.
        exists = text(
            "SELECT EXISTS (SELECT 1 FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = CAST(:parent AS regclass) AND c.relname = :name)"
        )
        names = {"parent": table, "name": name}
        async with writing(self._engine) as connection:
            if (await connection.execute(exists, names)).scalar_one():
                return
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": PARTITION_LOCK_KEY})
            # Another process may have created it while this one waited for the lock.
            if (await connection.execute(exists, names)).scalar_one():
                return
            # Created as a table and then attached: creating it as a partition would block all readers and writers.
            # Names and days are generated here and contain no text of a caller.
            await connection.execute(text(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)"))
            await connection.execute(
                text(
                    f"ALTER TABLE {table} ATTACH PARTITION {name}"
                    f" FOR VALUES FROM ('{day}') TO ('{day + timedelta(days=1)}')"
                )
            )


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """One partition with its size on disk, including indexes."""

    name: str
    day: date
    size_bytes: int


async def list_partitions(engine: AsyncEngine) -> Sequence[PartitionSize]:
    """Return every existing partition, oldest day first."""
    query = text(
        "SELECT c.relname, pg_total_relation_size(c.oid) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " JOIN pg_class p ON p.oid = i.inhparent WHERE p.relname = ANY(:tables) AND c.relkind = 'r'"
    )
    async with reading(engine) as connection:
        rows = (await connection.execute(query, {"tables": list(PARTITIONED)})).all()
    found = [PartitionSize(name, day, size) for name, size in rows if (day := day_of_partition(name)) is not None]
    return sorted(found, key=lambda p: (p.day, p.name))
