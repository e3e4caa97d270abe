"""The pipeline's log in PostgreSQL: finds stale hours, records runs, and moves staged rollups into their tables.

Transaction ids, not clocks, show which hours have changed. Each hour that was rolled up has a horizon, which is a
transaction id: every transaction with a lower id had ended before the hour was read. The hour is stale if a transaction
at or above the horizon wrote one of its checkpoints. A late or slow writer, or one with a wrong clock, is therefore not
missed.

Only one run works at a time. It holds an advisory lock on the connection that moves the rollups, so a run that loses
the lock cannot write. This module does not import pyspark.
"""

# ruff: noqa: S608  the statements hold this module's own table and column names.

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.abc import PQGen

from backend.domain.errors import HostError, StoreUnavailableError
from backend.domain.rollup import RUN_LOCK_KEY, RollupRunState, hour_of
from backend.store.pipeline import in_sql

JOB = "rollups"
DEMO_JOB = "spark-demo"
"""The demo query that the command ``up`` starts. It has no runs; its row in the schedule shows whether it runs."""
CONNECT_TIMEOUT_S = 10
CONNECTION_OPTIONS = "-c statement_timeout=600000 -c lock_timeout=30000 -c timezone=UTC"
# A working server stops a statement after 600 s and reports that, so a server that is silent for longer does not work.
_ANSWER_TIMEOUT_S = 610.0
_REASON_MAX = 500

_T = TypeVar("_T")

_HOUR = "date_trunc('hour', c.triggered_at, 'UTC')"
# The horizon of each hour decides whether the hour is stale. The mark of the last run (xid, from) only makes the
# query faster: it skips hours that were up to date then.
_STALE = f"""
SELECT DISTINCT {_HOUR} FROM checkpoints c LEFT JOIN rollup_hours h ON h.hour = {_HOUR}
WHERE c.kind = 'checkpoint' AND c.triggered_at < %(closed)s AND c.changed_xid >= coalesce(h.horizon_xid, 0)
AND (c.changed_xid >= %(xid)s OR c.triggered_at >= %(from)s) ORDER BY 1
"""
_PRESENT = f"""
SELECT DISTINCT {_HOUR} FROM checkpoints c WHERE c.kind = 'checkpoint'
AND c.triggered_at >= %(since)s AND c.triggered_on >= (%(since)s AT TIME ZONE 'UTC')::date
AND c.triggered_at < %(until)s AND c.triggered_on <= (%(until)s AT TIME ZONE 'UTC')::date ORDER BY 1
"""
# Only rows of accepted parts are used, because attempts of tasks that Spark did not accept may write rows at any time.
_STAGED = (
    "rollup_staging WHERE run_id = %(run)s"
    f" AND part IN (SELECT part FROM rollup_staging WHERE run_id = %(run)s || '{in_sql.ACCEPTED}')"
)
_ACCEPT = "INSERT INTO rollup_staging (run_id, part, job_id, hour) VALUES (%(accepted)s, %(part)s, '', to_timestamp(0))"
_MOVE_COUNTS = f"""
INSERT INTO rollups (job_id, hour, triggered_count, completed_count, failed_count, failed_by_reason, last_completed_at,
    restorable_at)
SELECT job_id, hour, triggered_count, completed_count, failed_count, failed_by_reason::jsonb, last_completed_at,
    restorable_at
FROM {_STAGED} AND measure IS NULL ORDER BY job_id, hour
"""
_MOVE_MEASURES = f"""
INSERT INTO rollup_measures (job_id, measure, hour, present_count, minimum, maximum, total, p50, p95, p99,
    expired_min, exact_max, bucket_index, bucket_count)
SELECT job_id, measure, hour, present_count, minimum, maximum, total::numeric, p50, p95, p99,
    expired_min, exact_max, bucket_index::int2[], bucket_count::int8[]
FROM {_STAGED} AND measure IS NOT NULL ORDER BY job_id, measure, hour
"""


@dataclass(frozen=True, slots=True)
class RolledUpMark:
    """Marks how far the rollups are complete.

    The rollups of all hours before ``hour`` contain every change by a transaction with an id below ``xid``.
    """

    xid: int
    hour: datetime


_NOTHING = RolledUpMark(0, datetime(1970, 1, 1, tzinfo=UTC))


class RunLog:
    """The log over one connection. Instants are aware and in UTC. An hour is identified by its first instant."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def claim(self) -> None:
        """Become the active run, and remove the staged rows of a killed run.

        Raises:
            HostError: another run is active.
        """
        if not self._value("SELECT pg_try_advisory_lock(%(key)s)", key=RUN_LOCK_KEY):
            raise HostError("another run is writing the rollups", fix="wait until it has ended")
        with self._connection.transaction():
            self._run(
                "UPDATE pipeline_runs SET state = %(interrupted)s, ended_at = now(),"
                " reason = 'it was killed; the next run does the remaining hours' WHERE state = %(running)s",
                interrupted=RollupRunState.INTERRUPTED.value,
                running=RollupRunState.RUNNING.value,
            )
            self._run("DELETE FROM rollup_staging")

    def horizon(self) -> int:
        """Return a transaction id below which every transaction has ended.

        If the database has moved to a server with lower transaction ids, also mark all hours as stale.
        """
        horizon, newest = self._row(
            "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint,"
            " greatest((SELECT max(horizon_xid) FROM rollup_hours), (SELECT max(complete_xid) FROM pipeline_schedule))"
        )
        if newest is not None and newest > horizon:
            # A stored id can be above the horizon for two reasons. Either a long transaction began before the last
            # run and is still open, or the database was copied to another server, whose ids cannot be compared with
            # the stored ones. Only in the second case can the stored id be one that this server has not assigned yet.
            ahead = self._value("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
            if newest > ahead:
                with self._connection.transaction():
                    self._run("DELETE FROM rollup_hours")
                    self._run("UPDATE pipeline_schedule SET complete_xid = NULL, complete_hour = NULL")
        return int(horizon)

    def stale_hours(self, now: datetime) -> list[datetime]:
        """Return the stale hours that are over, oldest first: never rolled up, or changed since their rollup."""
        mark = self._rolled_up_mark()
        values = {"closed": hour_of(now), "xid": mark.xid, "from": mark.hour}
        return [hour for (hour,) in self._run(_STALE, **values)]

    def hours_between(self, since: datetime, until: datetime, now: datetime) -> list[datetime]:
        """Return the hours that begin in the range, are over, and have checkpoints, oldest first."""
        values = {"since": since, "until": min(until, hour_of(now))}
        return [hour for (hour,) in self._run(_PRESENT, **values) if hour >= since]

    def begin(self, now: datetime) -> str:
        """Record the start of a run, and return the id of the run. Delete the records of runs older than 30 days."""
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
        """Record how many hours the run has to roll up."""
        self._run("UPDATE pipeline_runs SET hours_total = %(n)s WHERE id = %(run)s", n=hours_total, run=run_id)

    def checkpoint_count(self, hours: Sequence[datetime], *, most: int) -> int:
        """Return the number of checkpoints in ``hours``, but at most ``most``."""
        return int(self._value(in_sql.COUNT_UP_TO, **in_sql.span_of(hours), most=most))

    def stage(self, run_id: str, hours: Sequence[datetime]) -> None:
        """Compute the rollups of ``hours`` in PostgreSQL, and write them to the staging table."""
        with self._connection.transaction():
            # One process of the server works, so that the pages keep the other cores.
            self._run("SET LOCAL max_parallel_workers_per_gather = 0")
            for first in range(0, len(hours), in_sql.STATEMENT_HOURS):
                span = in_sql.span_of(hours[first : first + in_sql.STATEMENT_HOURS])
                self._run(in_sql.STAGE, **span, run=run_id, bounds=in_sql.BOUNDS)
            self._run(_ACCEPT, accepted=run_id + in_sql.ACCEPTED, part=in_sql.PART)

    def move(self, run_id: str, horizon: int, hours_done: int) -> list[datetime]:
        """Replace the rollups of all hours that the run has staged, in one transaction. Return these hours."""
        with self._connection.transaction():
            rows = self._run(f"SELECT DISTINCT hour FROM {_STAGED} ORDER BY 1", run=run_id)
            # If retention dropped the day of an hour while the hour was read, the hour has no staged rows, and its
            # existing rollups stay.
            hours = [hour for (hour,) in rows]
            for table in ("rollups", "rollup_measures"):
                self._run(f"DELETE FROM {table} WHERE hour = ANY(%(hours)s)", hours=hours)
            self._run(_MOVE_COUNTS, run=run_id)
            self._run(_MOVE_MEASURES, run=run_id)
            self._run(
                "INSERT INTO rollup_hours (hour, horizon_xid) SELECT h, %(xid)s FROM unnest(%(hours)s::timestamptz[]) h"
                " ON CONFLICT (hour) DO UPDATE SET horizon_xid = excluded.horizon_xid",
                hours=hours,
                xid=horizon,
            )
            self._run("DELETE FROM rollup_staging")
            self._run("UPDATE pipeline_runs SET hours_done = %(n)s WHERE id = %(run)s", n=hours_done, run=run_id)
        return hours

    def complete(self, mark: RolledUpMark, now: datetime) -> None:
        """Record that all changes up to ``mark`` have been rolled up. The next run looks only at later changes."""
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
        """Record the end of a run: its final state and, if it did not complete, the reason. Delete staged rows."""
        self._run(
            "UPDATE pipeline_runs SET state = %(state)s, ended_at = %(now)s, reason = %(reason)s WHERE id = %(run)s",
            state=state.value,
            now=now,
            reason=None if reason is None else reason[:_REASON_MAX],
            run=run_id,
        )
        self._run("DELETE FROM rollup_staging")

    def schedule(self, now: datetime, *, next_run_at: datetime | None, reason: str | None, job: str = JOB) -> None:
        """Record when the next run of a job is due, or the reason why no run is due.

        A job without runs has no due time. Its reason is None if the job is running, and otherwise states why it is
        not.
        """
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
        """Remove the row of a job from the schedule."""
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


class _Connection(psycopg.Connection[Any]):
    """A connection that is closed if the server does not respond in time, for example because it is suspended."""

    def wait(self, gen: PQGen[_T], interval: float = 0.1, timeout: float | None = None) -> _T:
        try:
            return super().wait(gen, interval, timeout or _ANSWER_TIMEOUT_S)
        except psycopg.OperationalError:
            if self.pgconn.transaction_status != pq.TransactionStatus.ACTIVE:
                raise
            self.pgconn.finish()
            raise StoreUnavailableError(f"the server did not respond within {_ANSWER_TIMEOUT_S:g} s") from None


@contextmanager
def open_run_log(database_url: str) -> Iterator[RunLog]:
    """Connect to the database at ``database_url`` (``postgresql://...``), and yield the pipeline's log in it.

    Raises:
        StoreUnavailableError: PostgreSQL does not respond, at the start or within the block.
    """
    with (
        _translated(),
        _Connection.connect(
            database_url,
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_S,
            options=CONNECTION_OPTIONS,
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
