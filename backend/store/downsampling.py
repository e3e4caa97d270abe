"""Removes the data of a past day that has passed its age limit, and leaves the rest of the day readable.

Two things are removed. *Arrays*: the values by subtask, the barrier events and the readings of backpressure of
healthy checkpoints. Headers always stay, and so do all arrays of a checkpoint that

* failed, is still in progress, or is a savepoint;
* took more than twice as long as the median of its run's completed checkpoints on that day;
* is the last checkpoint before such a checkpoint, or the last one of its run on that day, so that a healthy
  checkpoint stays for comparison;
* is the first healthy checkpoint of its run in an hour, as a sample.

Of the readings of backpressure, those from around these checkpoints stay, and so does the first reading in each ten
minutes.

*Expired runs*: every row of the runs on targets whose labels give them an age limit that is shorter than the day's age.

``rewriting`` replaces each partition by a copy without these rows. A row that is written while a day is rewritten
stays. A comment on the partition records what was removed from it, so that no pass repeats the work.
"""

# ruff: noqa: S608  the statements contain only names and days that are generated here.

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial

from sqlalchemy import Table, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.domain.errors import StoreUnavailableError
from backend.store.postgres.connections import is_lock_refused, reading, session
from backend.store.rewriting import Draft, Rewrite, list_drafts, note, remove_draft, rewrite
from backend.store.schema import tables
from backend.store.schema.partitions import AgeRule, Retention, partition_name

SLOW_RATIO = 2.0
"""A checkpoint that takes longer than this multiple of the median of its run and day is not healthy."""
PRESSURE_EVERY = timedelta(minutes=10)
PRESSURE_AROUND = timedelta(minutes=1)
"""Readings of backpressure stay from this long before a kept checkpoint until this long after it."""
_STATEMENT_TIMEOUT_S = 1800
_WORK_MEM = "64MB"
# The key of an advisory lock that allows only one process at a time to rewrite a partition.
_LOCK_KEY = 0x62617274
NO_RULE = ""
"""Stands for the runs that no age rule selects."""
_BELONGS_TO_KEPT = "EXISTS (SELECT 1 FROM kept k WHERE k.run_id = t.run_id AND k.checkpoint_id = t.checkpoint_id)"
_BELONGS_TO_READING = (
    "EXISTS (SELECT 1 FROM kept_readings k WHERE k.run_id = t.run_id AND k.vertex_id = t.vertex_id"
    " AND k.observed_at = t.observed_at)"
)

# Headers are rewritten last, because they decide which rows of the other tables stay.
_ORDER = (*(name for name in tables.PARTITIONED if name != "checkpoints"), "checkpoints")
_WITH_ARRAYS = ("checkpoint_details", "barrier_events", "pressure")


@dataclass(frozen=True, slots=True)
class Removed:
    """What was removed, or is to be removed, from a partition.

    ``arrays``: the arrays of healthy checkpoints. ``expired``: every row of the runs that these age rules select. Each
    rule is given as text (``environment=dev``). ``NO_RULE`` stands for the runs that no age rule selects.
    """

    arrays: bool = False
    expired: frozenset[str] = frozenset()

    def __or__(self, other: Removed) -> Removed:
        return Removed(self.arrays or other.arrays, self.expired | other.expired)

    @classmethod
    def parse(cls, comment: str) -> Removed:
        """Return the value that ``comment`` records. Text that is not ours records nothing."""
        try:
            document = json.loads(comment or "{}")
            return cls(bool(document.get("arrays", False)), frozenset(map(str, document.get("expired", ()))))
        except (ValueError, TypeError, AttributeError):
            return cls()

    def __str__(self) -> str:
        return json.dumps({"arrays": self.arrays, "expired": sorted(self.expired)})


async def remove_from_day(engine: AsyncEngine, day: date, removed: Removed, retention: Retention) -> bool:
    """Rewrite the partitions of ``day`` without what ``removed`` names. Return False if a lock was not granted in time.

    What was done stays. The next call continues, even if this one was interrupted.

    Raises:
        StoreUnavailableError: PostgreSQL is unreachable.
    """
    try:
        async with _rewriting(engine) as connection:
            if connection is None:
                return False
            return await _remove_from_all(connection, removed, _StayingRows(connection, day, removed, retention))
    except StoreUnavailableError as error:
        if is_lock_refused(error):
            return False
        raise


async def sweep_drafts(engine: AsyncEngine) -> list[Draft]:
    """Remove what interrupted rewrites have left, and return it. Call it only if no day is to be rewritten.

    A draft stays if another process rewrites a day, or if a lock is not granted in time.

    Raises:
        StoreUnavailableError: PostgreSQL is unreachable.
    """
    async with reading(engine) as connection:
        if not await list_drafts(connection):
            return []
    async with _rewriting(engine) as connection:
        if connection is None:
            return []
        drafts = await list_drafts(connection)
        return [draft for draft in drafts if await remove_draft(connection, draft.table, draft.day)]


async def rewrite_in_progress(connection: AsyncConnection) -> Draft | None:
    """Return the rewrite on which a process works now, or None if there is none."""
    held = text(
        "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = 0 AND objid = :key"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND granted)"
    )
    if not (await connection.execute(held, {"key": _LOCK_KEY})).scalar_one():
        return None
    return next(iter(await list_drafts(connection)), None)


async def _lock(connection: AsyncConnection) -> bool:
    """Take the lock for rewriting partitions. Return False if another process holds it."""
    return bool((await connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": _LOCK_KEY})).scalar_one())


@asynccontextmanager
async def _rewriting(engine: AsyncEngine) -> AsyncIterator[AsyncConnection | None]:
    """Open a connection, and hold the lock for rewriting partitions while it is open.

    Yield None if another process holds it.
    """
    async with session(engine, statement_timeout_s=_STATEMENT_TIMEOUT_S) as connection:
        is_alone = await _lock(connection)
        await connection.commit()
        yield connection if is_alone else None
        if is_alone:
            # The lock is released explicitly. A busy server may end a closed session, and release its lock, so late
            # that the rewrite of the next day would find the lock held.
            await connection.rollback()
            await connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK_KEY})
            await connection.commit()


async def _remove_from_all(connection: AsyncConnection, removed: Removed, rows: _StayingRows) -> bool:
    await connection.exec_driver_sql(f"SET work_mem = '{_WORK_MEM}'")
    await connection.commit()
    for name in _ORDER:
        if not await _remove(connection, tables.metadata.tables[name], removed, rows):
            return False
    return True


async def _remove(connection: AsyncConnection, table: Table, removed: Removed, rows: _StayingRows) -> bool:
    name = partition_name(table.name, rows.day)
    found = text(
        "SELECT obj_description(to_regclass(:name), 'pg_class'), to_regclass(:name) IS NULL,"
        " pg_relation_size(to_regclass(:name)) = 0"
    )
    comment, is_missing, is_empty = (await connection.execute(found, {"name": name})).one()
    await connection.commit()
    before = Removed.parse(comment or "")
    after = before | removed
    if is_missing or after == before:
        return True
    has_arrays = after.arrays and not before.arrays and table.name in _WITH_ARRAYS
    has_expired = after.expired != before.expired
    if not is_empty and (has_arrays or has_expired):
        target = Rewrite(table, rows.day, str(after))
        wanted = partial(rows.condition, table, has_arrays=has_arrays, has_expired=has_expired)
        return await rewrite(connection, target, wanted)
    await note(connection, name, str(after))
    await connection.commit()
    return True


class _StayingRows:
    """Finds the rows of a day that stay, and writes the keys that select them to temporary tables."""

    def __init__(self, connection: AsyncConnection, day: date, removed: Removed, retention: Retention) -> None:
        self.day = day
        self._connection = connection
        self._removed = removed
        self._retention = retention
        self._has_expired_runs = False

    async def condition(self, table: Table, *, has_arrays: bool, has_expired: bool) -> str:
        """Return the condition for the rows ``t`` of ``table`` that stay."""
        conditions = ["true"]
        if has_expired:
            if not self._has_expired_runs:
                await _collect_expired(self._connection, self._removed.expired, self._retention.rules)
                self._has_expired_runs = True
            conditions.append("NOT EXISTS (SELECT 1 FROM expired_runs e WHERE e.run_id = t.run_id)")
        if has_arrays:
            # The checkpoints that stay are found again for each table. Rows written from now on are logged by the
            # table's trigger, so none is missed.
            await self._connection.execute(text("DROP TABLE IF EXISTS kept"))
            await _collect_kept(self._connection, self.day)
            if table.name == "pressure":
                await _collect_readings(self._connection, self.day)
            conditions.append(_BELONGS_TO_READING if table.name == "pressure" else _BELONGS_TO_KEPT)
        return " AND ".join(conditions)


async def _collect_expired(connection: AsyncConnection, expired: Iterable[str], rules: Iterable[AgeRule]) -> None:
    """Fill the temporary table ``expired_runs`` with the runs that the rules named in ``expired`` select."""
    await connection.execute(text("CREATE TEMPORARY TABLE expired_runs (run_id text)"))
    cases: list[str] = []
    values: dict[str, object] = {}
    for number, rule in enumerate(rules):
        cases.append(f"WHEN t.labels ->> :label_{number} = :value_{number} THEN :rule_{number}")
        values |= {f"label_{number}": rule.label, f"value_{number}": rule.value, f"rule_{number}": str(rule)}
    which = f"CASE {' '.join(cases)} ELSE :no_rule END" if cases else ":no_rule"
    await connection.execute(
        text(
            "INSERT INTO expired_runs SELECT r.id FROM runs r JOIN targets t ON t.id = r.target_id"
            f" WHERE CAST({which} AS text) = ANY(:expired)"
        ),
        values | {"no_rule": NO_RULE, "expired": sorted(expired)},
    )
    await connection.execute(text("ANALYZE expired_runs"))


async def _collect_kept(connection: AsyncConnection, day: date) -> None:
    """Fill the temporary table ``kept`` with the checkpoints whose arrays stay, and with the time range around each."""
    checkpoints = partition_name("checkpoints", day)
    around = f"interval '{PRESSURE_AROUND.total_seconds()} s'"
    await connection.execute(
        text("CREATE TEMPORARY TABLE kept (run_id text, checkpoint_id int8, since timestamptz, until timestamptz)")
    )
    await connection.execute(
        text(
            "WITH usual AS (SELECT run_id, percentile_cont(0.5) WITHIN GROUP (ORDER BY end_to_end_duration_ms) AS ms"
            f" FROM {checkpoints} WHERE status = 'completed' AND kind = 'checkpoint' GROUP BY run_id),"
            " judged AS (SELECT c.run_id, c.checkpoint_id, c.triggered_at, c.end_to_end_duration_ms AS duration_ms,"
            " COALESCE(c.status = 'completed' AND c.kind = 'checkpoint'"
            f" AND c.end_to_end_duration_ms <= {SLOW_RATIO} * u.ms, false) AS is_healthy"
            f" FROM {checkpoints} c LEFT JOIN usual u ON u.run_id = c.run_id),"
            " placed AS (SELECT *, lead(is_healthy) OVER (PARTITION BY run_id ORDER BY triggered_at, checkpoint_id)"
            " AS is_next_healthy, row_number() OVER (PARTITION BY run_id, is_healthy,"
            " date_trunc('hour', triggered_at, 'UTC') ORDER BY triggered_at, checkpoint_id) AS number FROM judged)"
            f" INSERT INTO kept SELECT run_id, checkpoint_id, triggered_at - {around},"
            # At most one day of a duration counts, because the partition contains the readings of only one day.
            f" triggered_at + LEAST(COALESCE(duration_ms, 0), 86400000) * interval '1 ms' + {around} FROM placed"
            " WHERE NOT is_healthy OR NOT COALESCE(is_next_healthy, false) OR number = 1"
        )
    )
    await connection.execute(text("CREATE INDEX ON kept (run_id, checkpoint_id)"))
    await connection.execute(text("ANALYZE kept"))


async def _collect_readings(connection: AsyncConnection, day: date) -> None:
    """Fill the temporary table ``kept_readings`` with the readings of backpressure that stay."""
    readings = partition_name("pressure", day)
    every = f"date_bin('{PRESSURE_EVERY.total_seconds()} s', observed_at, timestamptz 'epoch')"
    for statement in (
        "CREATE TEMPORARY TABLE kept_readings (run_id text, vertex_id text, observed_at timestamptz)",
        "INSERT INTO kept_readings SELECT p.run_id, p.vertex_id, p.observed_at FROM kept k"
        f" JOIN {readings} p ON p.run_id = k.run_id AND p.observed_at BETWEEN k.since AND k.until"
        f" UNION SELECT run_id, vertex_id, min(observed_at) FROM {readings} GROUP BY run_id, vertex_id, {every}",
        "CREATE INDEX ON kept_readings (run_id, observed_at, vertex_id)",
        "ANALYZE kept_readings",
    ):
        await connection.execute(text(statement))
