"""Write hundreds of random checkpoints directly into the tables, with hours without checkpoints and with odd values."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import psycopg

from backend.domain.failure import FailureReason
from backend.domain.rollup import Measure
from backend.store.postgres.connections import create_store_engine
from backend.store.schema.partitions import Partitions, day_of

_FIXED = ("run_id", "checkpoint_id", "triggered_on", "job_id", "kind", "status", "triggered_at", "failure_reason")
_COLUMNS = (*_FIXED, "subtask_count", "acknowledged_count", "observed_at", *(m.value for m in Measure))


def fill(url: str, seed: int, first: datetime, last: datetime, *, count: int, jobs: int = 3) -> None:
    """Write ``count`` random checkpoints, determined by ``seed`` and triggered between ``first`` and ``last``."""
    rng = random.Random(seed)
    span_s = (last - first).total_seconds()
    rows = [
        _row(rng, f"j{rng.randrange(jobs)}", number, first + timedelta(seconds=rng.random() ** 2 * span_s))
        for number in range(count)
    ]
    insert(url, rows)


def insert(url: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write header rows into the ``checkpoints`` table, and create the partitions that they need."""
    asyncio.run(_make_partitions(url, [row["triggered_at"] for row in rows]))
    statement = f"COPY checkpoints ({', '.join(_COLUMNS)}) FROM STDIN"
    with psycopg.connect(url) as connection, connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row([row.get(name) for name in _COLUMNS])


def row(job_id: str, number: int, at: datetime, status: str = "completed", **values: Any) -> dict[str, Any]:
    """Build one header row. Measures that ``values`` does not contain are null."""
    return {
        "run_id": f"r-{job_id}",
        "checkpoint_id": number,
        "triggered_on": day_of(at),
        "job_id": job_id,
        "kind": "checkpoint",
        "status": status,
        "triggered_at": at,
        "subtask_count": 4,
        "acknowledged_count": 4,
        "observed_at": at,
    } | values


def _row(rng: random.Random, job_id: str, number: int, at: datetime) -> dict[str, Any]:
    status = rng.choices(["completed", "failed", "in-progress"], [8, 2, 1])[0]
    made = row(job_id, number, at, status, kind=rng.choices(["checkpoint", "savepoint"], [20, 1])[0])
    if status == "failed" and rng.random() < 0.9:
        made["failure_reason"] = rng.choice(list(FailureReason)).value
    for measure in Measure:
        # The values include zero, a few bytes and numbers beyond a double's precision. The last measure is rarely
        # reported.
        if rng.random() < (0.05 if measure is Measure.PROCESSED else 0.9):
            made[measure.value] = rng.choice([0, 1, rng.randrange(5_000), rng.randrange(2 ** rng.randrange(1, 63))])
    return made


async def _make_partitions(url: str, instants: Sequence[datetime]) -> None:
    engine = create_store_engine(url)
    try:
        await Partitions(engine).ensure({day_of(at) for at in instants})
    finally:
        await engine.dispose()
