"""The backtest of a fleet: what warnings, verdicts and advice would have said of the past, and how they fared.

It runs in this process, job by job, or as a Spark job in which each task replays whole jobs. Both read the same values
and call the same function, so the results are equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from backend.advisor.simulating import simulate
from backend.backtest.jobs import JobResult, result_of
from backend.domain.backtest import EVERY_PART, Part
from backend.pipeline.cluster import Cluster
from backend.pipeline.java import SparkRuntime
from backend.store.history_connection import StoredJob, open_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Found = tuple[StoredJob, JobResult]
Progress = Callable[[int, int], None]


def here(
    database_url: str,
    jobs: Sequence[str] = (),
    since: datetime | None = None,
    on_progress: Progress = lambda done, total: None,
    parts: Collection[Part] = EVERY_PART,
) -> list[Found]:
    """Replay the jobs in this process, one after the other. ``on_progress`` gets the checkpoints done and all of them.

    The fast simulation chooses settings, as in the service. It is compiled when a job first needs it.

    Raises:
        UnknownEntityError: one of ``jobs`` is neither the name nor the id of a job.
        StoreUnavailableError: PostgreSQL does not respond.
    """
    since_s = _seconds(since)
    with open_history(database_url) as history:
        wanted = history.jobs(jobs, since_s)
        total, before = sum(job.checkpoint_count for job in wanted), 0
        on_progress(0, total)
        found: list[Found] = []
        for job in wanted:

            def note(done: int, before: int = before) -> None:
                on_progress(before + done, total)

            found.append((job, result_of(job.id, history.of_job(job.id, since_s), parts, note, simulate)))
            before += job.checkpoint_count
    return found


def on_spark(
    database_url: str,
    runtime: SparkRuntime,
    cluster: Cluster,
    since: datetime | None = None,
    on_progress: Progress = lambda done, total: None,
    parts: Collection[Part] = EVERY_PART,
) -> list[Found]:
    """Replay all jobs with Spark. ``on_progress`` gets the number of jobs done and of all jobs.

    Raises:
        PipelineFailedError: Spark did not start, or a Spark job failed.
        StoreUnavailableError: PostgreSQL does not respond.
    """
    from backend.pipeline.session import database_options, spark_session, translated

    since_s = _seconds(since)
    with open_history(database_url) as history:
        wanted = history.jobs((), since_s)
    on_progress(0, len(wanted))
    with (
        translated(),
        database_options(database_url, cluster) as database,
        spark_session(runtime, cluster) as session,
    ):
        results = replayed(session, database, wanted, since_s, cluster.tasks, on_progress, parts)
    return [(job, results[job.id]) for job in wanted]


def replayed(
    session: SparkSession,
    database: Mapping[str, str],
    jobs: Sequence[StoredJob],
    since_s: int | None,
    tasks: int,
    on_progress: Progress = lambda done, total: None,
    parts: Collection[Part] = EVERY_PART,
) -> dict[str, JobResult]:
    """Return the result of each of ``jobs``. ``database`` has the options of ``database_options``."""
    from backend.pipeline.backtest_source import BacktestSource
    from backend.pipeline.job_source import documents_of

    options = {**database, "parts": json.dumps(sorted(parts)), "since": "" if since_s is None else str(since_s)}
    documents = documents_of(session, BacktestSource, options, jobs, tasks, on_progress)
    return {job_id: JobResult.of(document) for job_id, document in documents.items()}


def _seconds(since: datetime | None) -> int | None:
    return None if since is None else int(since.timestamp())
