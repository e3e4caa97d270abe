"""The backtest of a fleet: what warnings, verdicts and advice would have said of the past, and how they fared.

It runs in this process, job by job, or as a Spark job in which each task replays whole jobs. Both read the same values
and call the same function, so the results are equal.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING, Final

from backend.advisor.choosing import choose
from backend.backtest.jobs import JobResult, result_of
from backend.domain.backtest import EVERY_PART, Part
from backend.pipeline.cluster import Cluster
from backend.pipeline.history import StoredJob, open_history
from backend.pipeline.java import SparkRuntime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Found = tuple[StoredJob, JobResult]
Progress = Callable[[int, int], None]
_JOBS_PER_TASK_MAX: Final = 8
_LOOK_S: Final = 0.5


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

            found.append((job, result_of(job.id, history.of_job(job.id, since_s), parts, note, choose)))
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

    if not jobs:
        return {}
    session.dataSource.register(BacktestSource)
    shares = shares_of(jobs, tasks)
    source = session.read.format(BacktestSource.name()).options(**database).option("shares", json.dumps(shares))
    source = source.option("parts", json.dumps(sorted(parts))).option("since", "" if since_s is None else str(since_s))
    size = max(map(len, shares))
    with _watched(session, lambda done: on_progress(min(done * size, len(jobs)), len(jobs))):
        rows = source.load().collect()
    on_progress(len(jobs), len(jobs))
    return {row.job_id: JobResult.of(json.loads(row.document)) for row in rows}


def shares_of(jobs: Sequence[StoredJob], tasks: int) -> list[list[str]]:
    """Divide the jobs into tasks: at least ``tasks`` if there are so many jobs, of at most a few jobs each.

    The largest jobs come first, so that no task begins late and then takes long.
    """
    size = max(1, min(_JOBS_PER_TASK_MAX, len(jobs) // max(1, tasks)))
    count = ceil(len(jobs) / size)
    ordered = sorted(jobs, key=lambda job: (-job.checkpoint_count, job.id))
    return [[job.id for job in ordered[n::count]] for n in range(count)]


@contextmanager
def _watched(session: SparkSession, on_tasks: Callable[[int], None]) -> Iterator[None]:
    """Call ``on_tasks`` with the number of tasks that are done, while the block runs."""
    tracker = session.sparkContext.statusTracker()
    stop = threading.Event()

    def look() -> None:
        shown = 0
        while not stop.wait(_LOOK_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
            if done > shown:
                shown = done
                on_tasks(done)

    thread = threading.Thread(target=look, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _seconds(since: datetime | None) -> int | None:
    return None if since is None else int(since.timestamp())
