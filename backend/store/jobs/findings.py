"""Stores the newest finding of each run, so that one process computes it and the others read it.

A process that wants to compute findings locks their runs, reads again what is stored, computes the rest, and commits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from sqlalchemy import ARRAY, BigInteger, bindparam, exc, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.ids import RunId
from backend.store.postgres.connections import store_error
from backend.store.postgres.statements import beside_key, one_of, replaced
from backend.store.schema import tables
from backend.store.schema.rows import value_of


@dataclass(frozen=True, slots=True)
class FindingRecord:
    """A stored finding. ``fingerprint`` identifies what it was computed from."""

    run_id: RunId
    fingerprint: str
    found_at: datetime
    document: Mapping[str, Any]


_OF_RUNS = select(tables.findings).where(one_of(tables.findings.c.run_id, "runs"))
# The keys are sorted by the caller, and PostgreSQL takes the locks in this order.
_LOCK = select(func.pg_advisory_xact_lock(func.unnest(bindparam("keys", type_=ARRAY(BigInteger)))))
# These errors mean that the disk is full, the statement took too long, or the database is read-only. Managed servers
# make a database read-only if its disk is nearly full.
_NOT_WRITTEN = (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction)
_INSERT = insert(tables.findings)
_KEEP = _INSERT.on_conflict_do_update(
    index_elements=[tables.findings.c.run_id], set_=replaced(_INSERT, beside_key(tables.findings))
)


async def findings_of(connection: AsyncConnection, run_ids: Sequence[str]) -> dict[str, FindingRecord]:
    """Return the stored findings of these runs. A run without one is absent."""
    rows = (await connection.execute(_OF_RUNS, {"runs": list(run_ids)})).mappings()
    return {row["run_id"]: value_of(FindingRecord, row) for row in rows}


async def lock_findings(connection: AsyncConnection, run_ids: Sequence[str]) -> bool:
    """Lock the findings of these runs until the transaction ends.

    All processes lock in the same order, so they cannot deadlock. If a lock is not granted in time, return False; the
    transaction is then rolled back.
    """
    try:
        await connection.execute(_LOCK, {"keys": sorted(_key(run_id) for run_id in run_ids)})
    except exc.OperationalError as error:
        if not isinstance(error.orig, psycopg.errors.LockNotAvailable):
            raise
        await connection.rollback()
        return False
    return True


async def keep_findings(connection: AsyncConnection, records: Sequence[FindingRecord]) -> str | None:
    """Store findings and commit. Each finding replaces the older finding on its run.

    If PostgreSQL does not store them, for example on a full disk, roll back and return the reason. The caller has the
    findings and does not fail.
    """
    # The rows are written in the order of their keys, so that two processes without the lock cannot deadlock.
    rows = [{c.name: getattr(r, c.name) for c in tables.findings.c} for r in sorted(records, key=lambda r: r.run_id)]
    try:
        if rows:
            await connection.execute(_KEEP, rows)
        await connection.commit()
    except exc.DBAPIError as error:
        if not isinstance(error.orig, _NOT_WRITTEN):
            raise
        await connection.rollback()
        return store_error(error.orig).reason
    return None


def _key(run_id: str) -> int:
    digest = hashlib.blake2b(f"finding {run_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)
