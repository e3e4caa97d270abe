"""Replaces a partition by a copy with fewer rows, while other sessions read and write it.

A partition is not changed by DELETE, because that would not return disk space. These steps replace it:

1. A trigger on the partition begins to log the key of every row that is written. Creating it waits for the writers of
   that day, and for no reader.
2. The rows that stay are copied to a new table, the *draft*, a range of disk blocks in each transaction. This locks out
   neither readers nor writers.
3. The logged rows are copied again, also those that the condition leaves out, until few new ones are logged.
4. In one transaction, the parent table and the partition are locked exclusively, the last logged rows are copied, and
   the draft replaces the partition. This takes some milliseconds for any number of rows. The locks are taken in the
   order that readers and writers use, parent first, so no deadlock is possible. A wait for them is short, and is
   repeated.

A comment on the draft records what has been copied, in the transaction that copied it. So a rewrite that was
interrupted at any point, even by ``kill -9``, continues there, and until step 4 the partition is as it was.
"""

# ruff: noqa: S608  the statements contain only names and days that are generated here.

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, timedelta

import structlog
from sqlalchemy import Date, Table, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.store.postgres.connections import is_lock_refused
from backend.store.schema.partitions import draft_name, partition_name, place_of_draft

_log = structlog.get_logger(__name__)

BATCH_BLOCKS = 4096
"""The number of disk blocks, usually of 8 KiB, that one transaction copies."""
LOCK_TIMEOUT = "200ms"
"""How long the replacement waits for a lock. As long as it waits, new readers wait too."""
SWAP_ATTEMPTS = 30
SWAP_PAUSE_S = 0.5
# The trigger's lock makes only the writers to a past day wait. The time suffices for PostgreSQL to end an automatic
# vacuum that holds the lock.
_TRIGGER_LOCK_TIMEOUT = "3s"
# The replacement begins when at most this many logged rows are left for it.
_FEW_ROWS = 500
_PROGRESS_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The partition that is rewritten, and the comment that the new one gets."""

    table: Table
    day: date
    comment: str

    @property
    def name(self) -> str:
        """The name of the partition."""
        return partition_name(self.table.name, self.day)

    @property
    def draft(self) -> str:
        """The name of the new table until it replaces the partition."""
        return draft_name(self.table.name, self.day)

    @property
    def log(self) -> str:
        """The name of the table with the keys of the rows that were written meanwhile, and of its trigger."""
        return f"{self.draft}_log"

    @property
    def columns(self) -> str:
        """The columns of the table, separated by commas."""
        return ", ".join(c.name for c in self.table.c)

    @property
    def keys(self) -> Sequence[str]:
        """The columns of the primary key."""
        return [c.name for c in self.table.primary_key]

    @property
    def bound(self) -> str:
        """The condition for the rows of the day."""
        [day] = [c.name for c in self.table.primary_key if isinstance(c.type, Date)]
        return f"{day} >= DATE '{self.day}' AND {day} < DATE '{self.day + timedelta(days=1)}'"


@dataclass(frozen=True, slots=True)
class _Progress:
    """What the draft contains. It is stored as the comment on the draft."""

    comment: str
    """The comment for which the draft was begun. A draft with another comment has other rows."""
    file: int
    """The number of the partition's file. ``VACUUM FULL`` changes this number and the blocks."""
    revision: str
    """The revision of the schema."""
    end_block: int
    next_block: int = 0


async def rewrite(connection: AsyncConnection, target: Rewrite, condition: Callable[[], Awaitable[str]]) -> bool:
    """Rewrite a partition. Return False if a lock was not granted in time; the next call continues.

    ``condition`` returns the SQL condition for the rows ``t`` that stay. It is called only if rows must be copied. The
    caller must not allow two rewrites at a time. The transactions on ``connection`` are committed here.
    """
    progress = await _begun(connection, target)
    if progress is None:
        return False
    if not await _copy(connection, target, progress, condition):
        return False
    await connection.exec_driver_sql(f"ANALYZE {target.draft}")
    await connection.commit()
    for attempt in range(SWAP_ATTEMPTS):
        if attempt:
            await asyncio.sleep(SWAP_PAUSE_S)
        while await _catch_up(connection, target) > _FEW_ROWS:
            await connection.commit()
        await connection.commit()
        if await _swap(connection, target):
            return True
    return False


def drop_statements(table: str, day: date) -> Sequence[str]:
    """Return the statements that drop a partition, and what an interrupted rewrite of it has left."""
    draft = draft_name(table, day)
    return (
        f"DROP TABLE IF EXISTS {partition_name(table, day)}, {draft}, {draft}_log",
        f"DROP FUNCTION IF EXISTS {draft}_log()",
    )


async def remove_draft(connection: AsyncConnection, table: str, day: date) -> bool:
    """Remove what an interrupted rewrite has left of a partition that stays as it is.

    Return False if a lock was not granted in time. The transaction is committed here.
    """
    draft, name = draft_name(table, day), partition_name(table, day)
    try:
        for statement in (
            f"SET LOCAL lock_timeout = '{_TRIGGER_LOCK_TIMEOUT}'",
            f"DROP TABLE IF EXISTS {draft}, {draft}_log",
            # This also drops the trigger.
            f"DROP FUNCTION IF EXISTS {draft}_log() CASCADE",
            f"ALTER TABLE IF EXISTS {name} RESET (autovacuum_enabled, toast.autovacuum_enabled)",
        ):
            await connection.exec_driver_sql(statement)
    except OperationalError as error:
        await connection.rollback()
        if is_lock_refused(error):
            return False
        raise
    await connection.commit()
    return True


@dataclass(frozen=True, slots=True)
class Draft:
    """A rewrite that has begun and not ended: the partition's table and day, and the percentage that was copied."""

    table: str
    day: date
    percent: int


async def list_drafts(connection: AsyncConnection) -> list[Draft]:
    """Return the rewrites that have begun and not ended, whether or not a process works on them."""
    query = text(
        "SELECT c.relname, obj_description(c.oid, 'pg_class') FROM pg_class c JOIN pg_namespace n"
        " ON n.oid = c.relnamespace WHERE n.nspname = current_schema() AND c.relkind = 'r' ORDER BY c.relname"
    )
    drafts = []
    for name, comment in (await connection.execute(query)).all():
        if (place := place_of_draft(name)) is not None:
            progress = _parsed(comment)
            drafts.append(Draft(*place, 0 if progress is None else _share(progress)["percent"]))
    return drafts


async def _begun(connection: AsyncConnection, target: Rewrite) -> _Progress | None:
    """Find the draft, or create it. Return None if the partition could not be locked in time."""
    found = text(
        "SELECT obj_description(to_regclass(:draft), 'pg_class'), pg_relation_filenode(:name),"
        " (SELECT version_num FROM alembic_version)"
    )
    values = {"draft": target.draft, "name": target.name}
    written, file, revision = (await connection.execute(found, values)).one()
    await connection.commit()
    progress = _parsed(written)
    if progress is not None and progress == replace(progress, comment=target.comment, file=file, revision=revision):
        return progress
    try:
        await _create(connection, target)
    except OperationalError as error:
        await connection.rollback()
        if is_lock_refused(error):
            return None
        raise
    # The number of blocks is read after the trigger was committed, so later blocks contain only logged rows.
    size = text("SELECT pg_relation_size(:name) / current_setting('block_size')::int8")
    blocks = (await connection.execute(size, {"name": target.name})).scalar_one()
    progress = _Progress(target.comment, file, revision, blocks)
    await note(connection, target.draft, json.dumps(asdict(progress)))
    await connection.commit()
    return progress


def _parsed(written: str | None) -> _Progress | None:
    try:
        return _Progress(**json.loads(written or ""))
    except (ValueError, TypeError):
        return None


async def _create(connection: AsyncConnection, target: Rewrite) -> None:
    def values(row: str) -> str:
        return ", ".join(f"{row}.{key}" for key in target.keys)

    # Automatic vacuum is off for both tables, because it would hold locks on them.
    no_vacuum = "autovacuum_enabled = false, toast.autovacuum_enabled = false"
    for statement in (
        f"SET LOCAL lock_timeout = '{_TRIGGER_LOCK_TIMEOUT}'",
        # Remove what a rewrite with other limits or another schema has left, including its trigger.
        f"DROP TABLE IF EXISTS {target.draft}, {target.log}",
        f"DROP FUNCTION IF EXISTS {target.log}() CASCADE",
        f"CREATE TABLE {target.draft} (LIKE {target.table.name} INCLUDING ALL) WITH ({no_vacuum})",
        # With this constraint, attaching the partition need not read its rows.
        f"ALTER TABLE {target.draft} ADD CONSTRAINT {target.draft}_day CHECK ({target.bound})",
        f"CREATE TABLE {target.log} AS SELECT {', '.join(target.keys)} FROM {target.draft} WITH NO DATA",
        f"CREATE FUNCTION {target.log}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF TG_OP <> 'INSERT' THEN INSERT INTO {target.log} VALUES ({values('OLD')}); END IF;"
        f" IF TG_OP <> 'DELETE' THEN INSERT INTO {target.log} VALUES ({values('NEW')}); END IF;"
        " RETURN NULL; END $$",
        f"CREATE TRIGGER {target.log} AFTER INSERT OR UPDATE OR DELETE ON {target.name}"
        f" FOR EACH ROW EXECUTE FUNCTION {target.log}()",
        f"ALTER TABLE {target.name} SET ({no_vacuum})",
    ):
        await connection.exec_driver_sql(statement)
    await connection.commit()


async def _copy(
    connection: AsyncConnection, target: Rewrite, progress: _Progress, condition: Callable[[], Awaitable[str]]
) -> bool:
    """Copy the rows that stay. Return False if the partition got another file meanwhile, which has other blocks."""
    if progress.next_block >= progress.end_block:
        return True
    stays = await condition()
    await connection.commit()
    if progress.next_block:
        _log.info("an interrupted rewrite continues", table=target.name, **_share(progress))
    shown_s = time.monotonic()
    while progress.next_block < progress.end_block:
        first, end = progress.next_block, progress.next_block + BATCH_BLOCKS
        # If a row is changed between two batches, both batches may find it. The row is also logged, so it is copied
        # again later.
        await connection.exec_driver_sql(
            f"INSERT INTO {target.draft} ({target.columns}) SELECT {target.columns} FROM {target.name} t"
            f" WHERE t.ctid >= '({first},0)'::tid AND t.ctid < '({end},0)'::tid AND {stays} ON CONFLICT DO NOTHING"
        )
        # The statement above holds a lock, so the file stays the same until the commit.
        file = await connection.exec_driver_sql(f"SELECT pg_relation_filenode('{target.name}')")
        if file.scalar_one() != progress.file:
            await connection.rollback()
            return False
        progress = replace(progress, next_block=end)
        await note(connection, target.draft, json.dumps(asdict(progress)))
        await connection.commit()
        if time.monotonic() - shown_s >= _PROGRESS_EVERY_S:
            shown_s = time.monotonic()
            _log.info("a day is rewritten", table=target.name, **_share(progress))
    return True


def _share(progress: _Progress) -> dict[str, int]:
    return {"percent": min(100, 100 * progress.next_block // max(1, progress.end_block))}


async def _catch_up(connection: AsyncConnection, target: Rewrite) -> int:
    """Copy the rows again whose keys were logged. Return the number of these rows."""
    equal = " AND ".join(f"c.{key} = t.{key}" for key in target.keys)
    columns = ", ".join(f"t.{c.name}" for c in target.table.c)
    for statement in (
        # The rows are few, so each is found through the index of the primary key.
        "SET LOCAL enable_hashjoin = off",
        "SET LOCAL enable_mergejoin = off",
        f"CREATE TEMPORARY TABLE changed (LIKE {target.log}) ON COMMIT DROP",
    ):
        await connection.exec_driver_sql(statement)
    taken = await connection.exec_driver_sql(
        f"WITH taken AS (DELETE FROM {target.log} RETURNING *) INSERT INTO changed SELECT DISTINCT * FROM taken"
    )
    if taken.rowcount:
        await connection.exec_driver_sql(f"DELETE FROM {target.draft} t USING changed c WHERE {equal}")
        # A write that is committed between the statements may be copied here, and again after its own log entry.
        await connection.exec_driver_sql(
            f"INSERT INTO {target.draft} ({target.columns})"
            f" SELECT {columns} FROM changed c JOIN {target.name} t ON {equal}"
        )
    return taken.rowcount


async def _swap(connection: AsyncConnection, target: Rewrite) -> bool:
    """Replace the partition by the draft. Return False if a lock was not granted, or an older snapshot is in use."""
    try:
        await connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        await connection.exec_driver_sql(f"LOCK TABLE ONLY {target.table.name} IN ACCESS EXCLUSIVE MODE")
        await connection.exec_driver_sql(f"LOCK TABLE {target.name} IN ACCESS EXCLUSIVE MODE")
        if await _is_older_snapshot_used(connection):
            await connection.rollback()
            return False
        await _catch_up(connection, target)
        first, end = target.day, target.day + timedelta(days=1)
        for statement in (
            f"DROP TABLE {target.name}, {target.log}",
            f"DROP FUNCTION {target.log}()",
            f"ALTER TABLE {target.draft} RENAME TO {target.name}",
            f"ALTER TABLE {target.table.name} ATTACH PARTITION {target.name} FOR VALUES FROM ('{first}') TO ('{end}')",
            f"ALTER TABLE {target.name} DROP CONSTRAINT {target.draft}_day",
            f"ALTER TABLE {target.name} RESET (autovacuum_enabled, toast.autovacuum_enabled)",
        ):
            await connection.exec_driver_sql(statement)
        await note(connection, target.name, target.comment)
    except OperationalError as error:
        await connection.rollback()
        if is_lock_refused(error):
            return False
        raise
    await connection.commit()
    return True


async def _is_older_snapshot_used(connection: AsyncConnection) -> bool:
    """Return whether a transaction of another program uses one snapshot for several statements, as pg_dump does.

    It would see no row of the new table, because its snapshot is older than the copy. Our own transactions of this
    kind lock the tables before their snapshot.
    """
    query = text(
        "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND application_name NOT LIKE 'barrierscope%'"
        " AND backend_xmin IS NOT NULL AND xact_start < query_start)"
    )
    return bool((await connection.execute(query)).scalar_one())


async def note(connection: AsyncConnection, table: str, comment: str) -> None:
    """Set the comment on a table."""
    statement = text("SELECT format('COMMENT ON TABLE %I IS %L', CAST(:table AS text), CAST(:comment AS text))")
    written = await connection.execute(statement, {"table": table, "comment": comment})
    # The driver would read a percent sign as a placeholder, so it is doubled.
    await connection.exec_driver_sql(written.scalar_one().replace("%", "%%"))
