"""Creates and lists the day partitions of tables, and decides for which days data is accepted.

Invariant: data is written only to partitions of days within [now - retention, now + 1 day]. Data outside this range is
refused before it is written, so a target with a wrong clock cannot fill the catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.store.postgres.connections import reading, writing
from backend.store.schema.tables import PARTITIONED

DAYS_AHEAD = 2
_FUTURE_MAX = timedelta(days=1)
# The key of an advisory lock that allows only one process at a time to create or drop partitions.
PARTITION_LOCK_KEY = 0x62617273
_NAME = re.compile(rf"^({'|'.join(PARTITIONED)})_p(\d{{4}})(\d\d)(\d\d)$")
_DRAFT = re.compile(rf"^({'|'.join(PARTITIONED)})_n(\d{{4}})(\d\d)(\d\d)$")


@dataclass(frozen=True, slots=True)
class AgeRule:
    """The age limit of the jobs on targets that have one label with one value."""

    label: str
    value: str
    max_age: timedelta

    def __str__(self) -> str:
        return f"{self.label}={self.value}"


@dataclass(frozen=True, slots=True)
class Retention:
    """The limits of stored data: its age and its total size.

    If the data exceeds the size limit, the arrays of healthy checkpoints are removed first, beginning with the oldest
    day. If that is not enough, the oldest days are dropped.
    """

    max_age: timedelta = timedelta(days=7)
    """The age limit of data on targets that no rule selects."""
    max_size_bytes: int = 2 * 2**30
    rollups_max_age: timedelta = timedelta(days=90)
    """The age limit of hourly rollups. The limit in effect is at least ``longest_age``."""
    arrays_max_age: timedelta = timedelta(days=2)
    """The age limit of the arrays of healthy checkpoints. Samples of them stay for as long as their checkpoints."""
    rules: tuple[AgeRule, ...] = ()
    """Other age limits for targets with certain labels. The first rule that matches a target is used."""

    @property
    def longest_age(self) -> timedelta:
        """The largest of all age limits. Days older than this are dropped as a whole."""
        return max(self.max_age, *(rule.max_age for rule in self.rules)) if self.rules else self.max_age

    def age_of(self, labels: Mapping[str, str]) -> timedelta:
        """Return the age limit of data on a target with these labels."""
        return next((r.max_age for r in self.rules if labels.get(r.label) == r.value), self.max_age)

    def accepts(self, instant: datetime, now: datetime, *, max_age: timedelta | None = None) -> bool:
        """Return whether data of ``instant`` is accepted at ``now``. Both must be timezone-aware.

        ``max_age`` is the age limit of the data's target, by default the longest one.
        """
        return now - (self.longest_age if max_age is None else max_age) <= instant <= now + _FUTURE_MAX

    def oldest_day(self, now: datetime) -> date:
        """Return the oldest day that is not dropped for its age."""
        return day_of(now - self.longest_age)


def day_of(instant: datetime) -> date:
    """Return the UTC day of a timezone-aware instant. The day determines the partition."""
    return instant.astimezone(UTC).date()


def partition_name(table: str, day: date) -> str:
    """Return the name of the partition of ``table`` for ``day``."""
    return f"{table}_p{day:%Y%m%d}"


def draft_name(table: str, day: date) -> str:
    """Return the name of the table that will replace the partition of ``table`` for ``day`` (``store.rewriting``)."""
    return f"{table}_n{day:%Y%m%d}"


def place_of_draft(name: str) -> tuple[str, date] | None:
    """Return the table and the day of a draft, or None if ``name`` is not a name that ``draft_name`` returns."""
    match = _DRAFT.match(name)
    return None if match is None else (match[1], date(int(match[2]), int(match[3]), int(match[4])))


def day_of_partition(name: str) -> date | None:
    """Return the day of a partition, or None if ``name`` is not one of our partitions."""
    match = _NAME.match(name)
    return None if match is None else date(int(match[2]), int(match[3]), int(match[4]))


class Partitions:
    """Creates partitions, and remembers for which days they exist."""

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
        """Create the partitions of today and the next days, so that no write at midnight must create them."""
        today = day_of(now)
        await self.ensure(today + timedelta(days=n) for n in range(DAYS_AHEAD + 1))

    def forget(self) -> None:
        """Forget the known days, because another process may have dropped partitions."""
        self._known.clear()

    async def _make(self, table: str, day: date) -> None:
        name = partition_name(table, day)
        # The query reads the catalogue's tables, because ``to_regclass`` may return an outdated negative result from
        # a cache.
        exists = text(
            "SELECT EXISTS (SELECT 1 FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = CAST(:parent AS regclass) AND c.relname = :name)"
        )
        names = {"parent": table, "name": name}
        async with writing(self._engine) as connection:
            if (await connection.execute(exists, names)).scalar_one():
                return
            await connection.execute(select(func.pg_advisory_xact_lock(PARTITION_LOCK_KEY)))
            # Another process may have created the partition while this one waited for the lock, so this is checked
            # again.
            if (await connection.execute(exists, names)).scalar_one():
                return
            # The partition is created as a table and then attached, because creating it as a partition would block
            # all readers and writers. The names and days in the statements are generated here and contain no text of
            # a caller.
            await connection.execute(text(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)"))
            await connection.execute(
                text(
                    f"ALTER TABLE {table} ATTACH PARTITION {name}"
                    f" FOR VALUES FROM ('{day}') TO ('{day + timedelta(days=1)}')"
                )
            )


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """One partition with its size on disk, including indexes, and what retention has removed from it."""

    name: str
    day: date
    size_bytes: int
    removed: str = ""
    """What ``store.downsampling`` has removed from the partition, in the words of its comment; empty if nothing."""


async def list_partitions(engine: AsyncEngine) -> Sequence[StoredPartition]:
    """Return every existing partition, oldest day first."""
    query = text(
        "SELECT c.relname, pg_total_relation_size(c.oid), obj_description(c.oid, 'pg_class')"
        " FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " JOIN pg_class p ON p.oid = i.inhparent WHERE p.relname = ANY(:tables) AND c.relkind = 'r'"
    )
    async with reading(engine) as connection:
        rows = (await connection.execute(query, {"tables": list(PARTITIONED)})).all()
    stored = [
        StoredPartition(name, day, size, removed or "")
        for name, size, removed in rows
        # The size is NULL if the partition was dropped or replaced during the query. Such a partition is left out.
        if size is not None and (day := day_of_partition(name)) is not None
    ]
    return sorted(stored, key=lambda p: (p.day, p.name))


async def size_of_other_tables(engine: AsyncEngine) -> int:
    """Return the size on disk of all tables that are not partitions, including their indexes.

    It does not include the drafts of partitions that are being rewritten.
    """
    query = text(
        "SELECT COALESCE(sum(pg_total_relation_size(c.oid)), 0)::int8 FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'm') AND NOT c.relispartition"
        " AND c.relname !~ '_n[0-9]{8}(_log)?$'"
    )
    async with reading(engine) as connection:
        return int((await connection.execute(query)).scalar_one())
