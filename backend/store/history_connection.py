"""Opens what is stored of jobs for this process, with psycopg. Tasks of Spark read the same over ADBC."""

# ruff: noqa: S608  the statement holds conditions of this package and whole numbers.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from backend.domain.errors import StoreUnavailableError, UnknownEntityError
from backend.store.history import ENDED, IS_RUNNING, StoredJobHistory, since_condition
from backend.store.pipeline.run_log import CONNECT_TIMEOUT_S, CONNECTION_OPTIONS


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job with stored checkpoints: its id, its name, and the number of those that have ended."""

    id: str
    name: str
    checkpoint_count: int


class History:
    """The stored jobs, read in this process. All are read as of one instant."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def jobs(self, wanted: Sequence[str], since_s: int | None, *, is_running: bool = False) -> list[StoredJob]:
        """Return the jobs whose name or id is in ``wanted``, or all jobs, with their ended checkpoints.

        If ``is_running``, jobs without a run that has not ended are left out.

        Raises:
            UnknownEntityError: one of ``wanted`` is no job.
        """
        counted = (
            "SELECT j.id, j.name, (SELECT count(*) FROM checkpoints c WHERE c.job_id = j.id AND c.kind = 'checkpoint'"
            f" AND {ENDED}{since_condition(since_s)}) FROM jobs j"
            " WHERE (%(all)s OR j.id = ANY(%(wanted)s) OR j.name = ANY(%(wanted)s))"
            f"{IS_RUNNING if is_running else ''} ORDER BY j.name, j.id"
        )
        rows = self._connection.execute(counted, {"all": not wanted, "wanted": list(wanted)}).fetchall()
        stored_jobs = [StoredJob(*row) for row in rows]
        for name in wanted:
            if not any(name in (job.id, job.name) for job in stored_jobs):
                raise UnknownEntityError(kind="job", id=name)
        return stored_jobs

    def of_job(self, job_id: str, since_s: int | None = None, newest_max: int | None = None) -> StoredJobHistory:
        """Return what is stored of a job; see ``StoredJobHistory``."""
        return StoredJobHistory(self.texts, job_id, since_s, newest_max)

    def texts(self, statement: str) -> list[str]:
        """Run a statement, and return the texts of its only column."""
        return [row[0] for row in self._connection.execute(statement.encode()).fetchall()]


@contextmanager
def open_history(database_url: str) -> Iterator[History]:
    """Connect to the database at ``database_url`` and yield what is stored in it, as of now.

    Raises:
        StoreUnavailableError: PostgreSQL does not respond, at the start or within the block.
    """
    try:
        with psycopg.connect(
            database_url,
            connect_timeout=CONNECT_TIMEOUT_S,
            options=CONNECTION_OPTIONS,
            application_name="barrierscope-backtest",
        ) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            yield History(connection)
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        lines = str(error).strip().splitlines()
        raise StoreUnavailableError(lines[0] if lines else type(error).__name__) from error
