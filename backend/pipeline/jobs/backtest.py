"""The backtest of a fleet: what the warning of timeouts would have said of stored checkpoints, and how it fared.

It runs in this process, job by job, or as a Spark job in which each task replays whole jobs. Both read the same rows
and call the same function, so the results are equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from backend.backtest.jobs import JobResult, result_of
from backend.pipeline.cluster import Cluster
from backend.pipeline.history import StoredJob, open_history
from backend.pipeline.java import SparkRuntime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Found = tuple[StoredJob, JobResult]


def here(
    database_url: str,
    jobs: Sequence[str] = (),
    since: datetime | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Found]:
    """Replay the jobs in this process, one after the other. ``on_progress`` gets the checkpoints done and all of them.

    Raises:
        UnknownEntityError: one of ``jobs`` is neither the name nor the id of a job.
        StoreUnavailableError: PostgreSQL does not respond.
    """
    since_s = _seconds(since)
    with open_history(database_url) as history:
        wanted = history.jobs(jobs, since_s)
        total, done = sum(job.checkpoint_count for job in wanted), 0
        on_progress(0, total)
        found: list[Found] = []
        for job in wanted:

            def counted(job: StoredJob = job, before: int = done) -> Iterator[Any]:
                for number, row in enumerate(history.rows(job.id, since_s), 1):
                    yield row
                    on_progress(before + number, total)

            found.append((job, result_of(job.id, counted())))
            done += job.checkpoint_count
    return found


def on_spark(
    database_url: str,
    runtime: SparkRuntime,
    cluster: Cluster,
    since: datetime | None = None,
    started: SparkSession | None = None,
) -> list[Found]:
    """Replay all jobs with Spark. ``started`` is a session to use instead of an own one.

    Raises:
        PipelineFailedError: Spark did not start, or a Spark job failed.
        StoreUnavailableError: PostgreSQL does not respond.
    """
    from backend.pipeline.session import database_options, spark_session, translated

    since_s = _seconds(since)
    with open_history(database_url) as history:
        wanted = history.jobs((), since_s)
    with translated(), database_options(database_url, cluster) as database:
        if started is not None:
            results = replayed(started, database, since_s, tasks=cluster.tasks)
        else:
            with spark_session(runtime, cluster) as own:
                results = replayed(own, database, since_s, tasks=cluster.tasks)
    return [(job, results.get(job.id, JobResult(job.id))) for job in wanted]


def replayed(
    session: SparkSession, database: Mapping[str, str], since_s: int | None, *, tasks: int
) -> dict[str, JobResult]:
    """Return the result of each job with ended checkpoints. ``database`` has the options of ``database_options``."""
    from backend.pipeline.backtest_source import BacktestSource

    session.dataSource.register(BacktestSource)
    source = session.read.format(BacktestSource.name()).options(**database).option("tasks", str(tasks))
    found = source.option("since", "" if since_s is None else str(since_s)).load().collect()
    return {row.job_id: JobResult.of(json.loads(row.document)) for row in found}


def _seconds(since: datetime | None) -> int | None:
    return None if since is None else int(since.timestamp())
