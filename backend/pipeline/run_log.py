"""The pipeline's log in PostgreSQL: the stale hours, the runs, and the move of staged rollups into their tables.

Transaction ids, not clocks, show which hours have changed. An hour is rolled up with a horizon: every transaction with
a lower id had ended before the hour was read. The hour is stale if a transaction at or above the horizon wrote one of
its checkpoints, so a late or slow writer, or one with a wrong clock, is not missed. Only one run works at a time: it
holds an advisory lock on the connection that moves the rollups, so a run that loses the lock cannot write. This module
does not import pyspark.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg

from backend.domain.errors import HostError, StoreUnavailableError
from backend.domain.rollup import RollupRunState, hour_of

LOCK_KEY = 0x62617275
"""The active run holds this advisory lock, and the API checks it to show the progress."""
JOB = "rollups"
DEMO_JOB = "spark-demo"
"""The demo query of ``up``. It has no runs, and its row shows whether it runs."""
_CONNECT_TIMEOUT_S = 10
_OPTIONS = "-c statement_timeout=600000 -c lock_timeout=30000 -c timezone=UTC"
_REASON_MAX = 500

_HOUR = "date_trunc('hour', c.triggered_at, 'UTC')"
# The watermark only saves reading completed hours; the horizon of each hour decides.
_STALE = f"""
SELECT DISTINCT {_HOUR} FROM checkpoints c LEFT JOIN rollup_hours h ON h.hour = {_HOUR}
WHERE c.kind = 'checkpoint' AND c.triggered_at < %(closed)s AND c.changed_xid >= coalesce(h.horizon_xid, 0)
AND (c.changed_xid >= %(xid)s OR c.triggered_at >= %(from)s) ORDER BY 1
"""  # noqa: S608
_PRESENT = f"""
SELECT DISTINCT {_HOUR} FROM checkpoints c WHERE c.kind = 'checkpoint'
AND c.triggered_at >= %(since)s AND c.triggered_on >= (%(since)s AT TIME ZONE 'UTC')::date
AND c.triggered_at < %(until)s AND c.triggered_on <= (%(until)s AT TIME ZONE 'UTC')::date ORDER BY 1
"""  # noqa: S608
_MOVE_COUNTS = """
INSERT INTO rollups (job_id, hour, triggered_count, completed_count, failed_count, failed_by_reason, last_completed_at)
SELECT job_id, hour, triggered_count, completed_count, failed_count, failed_by_reason::jsonb, last_completed_at
FROM rollup_staging WHERE run_id = %(run)s AND measure IS NULL ORDER BY job_id, hour
"""
_MOVE_MEASURES = """
INSERT INTO rollup_measures (job_id, measure, hour, present_count, minimum, maximum, total, p50, p95, p99,
    bucket_index, bucket_count)
SELECT job_id, measure, hour, present_count, minimum, maximum, total::numeric, p50, p95, p99,
    bucket_index::int2[], bucket_count::int8[]
FROM rollup_staging WHERE run_id = %(run)s AND measure IS NOT NULL ORDER BY job_id, measure, hour
"""


@dataclass(frozen=True, slots=True)
class RolledUpMark:
    """All changes to hours before ``hour`` by transactions below ``xid`` have been rolled up."""

    xid: int
    hour: datetime


_NOTHING = RolledUpMark(0, datetime(1970, 1, 1, tzinfo=UTC))


class RunLog:
    """The log over one connection. Instants are aware, UTC. An hour is given by its first instant."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def claim(self) -> None:
        """Become the active run, and remove the staged rows of a killed run.

        Raises:
            HostError: another run is active.

        """
        if not self._value("SELECT pg_try_advisory_lock(%(key)s)", key=LOCK_KEY):
            raise HostError("another run is writing the rollups", fix="wait until it has ended")
        with self._connection.transaction():
            self._run("DELETE FROM rollup_staging")
            self._run(
                "UPDATE pipeline_runs SET state = %(interrupted)s, ended_at = now(),"
                " reason = 'it was killed; the next run does the remaining hours' WHERE state = %(running)s",
                interrupted=RollupRunState.INTERRUPTED.value,
                running=RollupRunState.RUNNING.value,
            )

    def horizon(self) -> int:
        """Every transaction below this id has ended. If a new server's ids started again, mark all hours as stale."""
        horizon, newest = self._row(
            "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint,"
            " greatest((SELECT max(horizon_xid) FROM rollup_hours), (SELECT max(complete_xid) FROM pipeline_schedule))"
        )
        if newest is not None and newest > horizon:
            # Either a long transaction that began before the last run, or a copy of the database on another server,
            # whose ids cannot be compared with the stored ones.
            ahead = self._value("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
            if newest > ahead:
                with self._connection.transaction():
                    self._run("DELETE FROM rollup_hours")
                    self._run("UPDATE pipeline_schedule SET complete_xid = NULL, complete_hour = NULL")
        return int(horizon)

    def stale_hours(self, now: datetime) -> list[datetime]:
        """Closed hours that were never rolled up, or whose checkpoints have changed since; oldest first."""
        mark = self._rolled_up_mark()
        values = {"closed": hour_of(now), "xid": mark.xid, "from": mark.hour}
        return [hour for (hour,) in self._run(_STALE, **values)]

    def hours_between(self, since: datetime, until: datetime, now: datetime) -> list[datetime]:
        """Closed hours that begin in the range and have checkpoints, oldest first."""
        values = {"since": since, "until": min(until, hour_of(now))}
        return [hour for (hour,) in self._run(_PRESENT, **values) if hour >= since]

    def begin(self, now: datetime) -> str:
        """Open a run in the log; returns its id."""
        run_id = uuid.uuid4().hex
        self._run(
            "INSERT INTO pipeline_runs (id, started_at, state) VALUES (%(run)s, %(now)s, %(state)s)",
            state=RollupRunState.RUNNING.value,
            run=run_id,
            now=now,
        )
        self._run("DELETE FROM pipeline_runs WHERE started_at < %(now)s - interval '30 days'", now=now)
        return run_id

    def plan(self, run_id: str, hours_total: int) -> None:
        """Record the number of hours that the run has to do."""
        self._run("UPDATE pipeline_runs SET hours_total = %(n)s WHERE id = %(run)s", n=hours_total, run=run_id)

    def move(self, run_id: str, horizon: int, hours_done: int) -> list[datetime]:
        """Replace the rollups of the staged hours in one transaction. Returns the hours."""
        with self._connection.transaction():
            rows = self._run("SELECT DISTINCT hour FROM rollup_staging WHERE run_id = %(run)s ORDER BY 1", run=run_id)
            # An hour whose day was dropped while it was read has no rows, and keeps the rollups it has.
            hours = [hour for (hour,) in rows]
            for table in ("rollups", "rollup_measures"):
                self._run(f"DELETE FROM {table} WHERE hour = ANY(%(hours)s)", hours=hours)  # noqa: S608
            self._run(_MOVE_COUNTS, run=run_id)
            self._run(_MOVE_MEASURES, run=run_id)
            self._run(
                "INSERT INTO rollup_hours (hour, horizon_xid) SELECT h, %(xid)s FROM unnest(%(hours)s::timestamptz[]) h"
                " ON CONFLICT (hour) DO UPDATE SET horizon_xid = excluded.horizon_xid",
                hours=hours,
                xid=horizon,
            )
            self._run("DELETE FROM rollup_staging WHERE run_id = %(run)s", run=run_id)
            self._run("UPDATE pipeline_runs SET hours_done = %(n)s WHERE id = %(run)s", n=hours_done, run=run_id)
        return hours

    def complete(self, mark: RolledUpMark, now: datetime) -> None:
        """Every stale hour of before has been done: the next run looks at what changed since."""
        self._run(
            "INSERT INTO pipeline_schedule (job, complete_xid, complete_hour, updated_at)"
            " VALUES (%(job)s, %(xid)s, %(hour)s, %(now)s) ON CONFLICT (job) DO UPDATE SET"
            " complete_xid = excluded.complete_xid, complete_hour = excluded.complete_hour",
            job=JOB,
            xid=mark.xid,
            hour=mark.hour,
            now=now,
        )

    def end(self, run_id: str, state: RollupRunState, now: datetime, reason: str | None = None) -> None:
        """Close a run in the log."""
        self._run(
            "UPDATE pipeline_runs SET state = %(state)s, ended_at = %(now)s, reason = %(reason)s WHERE id = %(run)s",
            state=state.value,
            now=now,
            reason=None if reason is None else reason[:_REASON_MAX],
            run=run_id,
        )

    def schedule(self, now: datetime, *, next_run_at: datetime | None, reason: str | None, job: str = JOB) -> None:
        """Record when the next run is due, or why none is. For a job without runs: that it runs, or why it does not."""
        self._run(
            "INSERT INTO pipeline_schedule (job, next_run_at, reason, updated_at)"
            " VALUES (%(job)s, %(next)s, %(reason)s, %(now)s) ON CONFLICT (job) DO UPDATE SET"
            " next_run_at = excluded.next_run_at, reason = excluded.reason, updated_at = excluded.updated_at",
            job=job,
            next=next_run_at,
            reason=None if reason is None else reason[:_REASON_MAX],
            now=now,
        )

    def withdraw(self, job: str) -> None:
        """Remove the record of a job."""
        self._run("DELETE FROM pipeline_schedule WHERE job = %(job)s", job=job)

    def _rolled_up_mark(self) -> RolledUpMark:
        query = "SELECT complete_xid, complete_hour FROM pipeline_schedule WHERE job = %(job)s"
        for xid, hour in self._run(query, job=JOB):
            if xid is not None and hour is not None:
                return RolledUpMark(xid, hour)
        return _NOTHING

    def _run(self, query: str, **values: object) -> Sequence[tuple[Any, ...]]:
        with _translated():
            cursor = self._connection.execute(query.encode(), _bound(values))
            return cursor.fetchall() if cursor.description is not None else []

    def _row(self, query: str, **values: object) -> tuple[Any, ...]:
        return self._run(query, **values)[0]

    def _value(self, query: str, **values: object) -> Any:
        return self._row(query, **values)[0]


@contextmanager
def open_run_log(database_url: str) -> Iterator[RunLog]:
    """The log in the database at ``database_url`` (``postgresql://...``).

    Raises:
        StoreUnavailableError: PostgreSQL does not answer, now or within the block.

    """
    with (
        _translated(),
        psycopg.connect(
            database_url,
            autocommit=True,
            connect_timeout=_CONNECT_TIMEOUT_S,
            options=_OPTIONS,
            application_name="barrierscope-pipeline",
        ) as connection,
    ):
        yield RunLog(connection)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        lines = str(error).strip().splitlines()
        raise StoreUnavailableError(lines[0] if lines else type(error).__name__) from error


def _bound(values: Mapping[str, object]) -> Mapping[str, object] | None:
    return values or None
