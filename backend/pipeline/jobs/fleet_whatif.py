"""What-ifs on a whole fleet: each running job as it is, and under the same changed settings.

It runs as a Spark job in which each task predicts whole jobs. Each job's model is built from its newest checkpoints.
``here`` does the same in this process, job by job, so that tests can compare the two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from backend.advisor.twin.tiers.fleet import JobAnswer
from backend.pipeline.cluster import Cluster
from backend.pipeline.java import SparkRuntime
from backend.pipeline.newest import answer_from, prepared_tiers
from backend.store.history_connection import StoredJob, open_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Answered = tuple[StoredJob, JobAnswer]
Progress = Callable[[int, int], None]


def here(
    database_url: str, settings: Mapping[str, str], on_progress: Progress = lambda done, total: None
) -> list[Answered]:
    """Predict the running jobs in this process, one after the other. ``on_progress`` gets the jobs done and all jobs.

    Raises:
        StoreUnavailableError: PostgreSQL does not respond.
    """
    with open_history(database_url) as history:
        jobs = history.jobs((), None, is_running=True)
        found: list[Answered] = []
        on_progress(0, len(jobs))
        for job in jobs:
            found.append((job, answer_from(history.texts, job.id, settings)))
            on_progress(len(found), len(jobs))
    return found


def on_spark(
    database_url: str,
    settings: Mapping[str, str],
    runtime: SparkRuntime,
    cluster: Cluster,
    on_progress: Progress = lambda done, total: None,
) -> list[Answered]:
    """Predict the running jobs with Spark.

    Raises:
        PipelineFailedError: Spark did not start, or a Spark job failed.
        StoreUnavailableError: PostgreSQL does not respond.
    """
    from backend.pipeline.session import database_options, spark_session, translated

    with open_history(database_url) as history:
        jobs = history.jobs((), None, is_running=True)
    on_progress(0, len(jobs))
    if not jobs:
        return []
    if cluster.is_local:
        # The tasks then find the compiled simulation, and do not compile it at the same time.
        prepared_tiers()
    with (
        translated(),
        database_options(database_url, cluster) as database,
        spark_session(runtime, cluster) as session,
    ):
        answers = answered(session, database, jobs, settings, cluster.tasks, on_progress)
    return [(job, answers[job.id]) for job in jobs]


def answered(
    session: SparkSession,
    database: Mapping[str, str],
    jobs: Sequence[StoredJob],
    settings: Mapping[str, str],
    tasks: int,
    on_progress: Progress = lambda done, total: None,
) -> dict[str, JobAnswer]:
    """Return the answer of each of ``jobs``. ``database`` has the options of ``database_options``."""
    from backend.pipeline.job_source import documents_of
    from backend.pipeline.what_if_source import WhatIfSource

    options = {**database, "settings": json.dumps(dict(settings))}
    documents = documents_of(session, WhatIfSource, options, jobs, tasks, on_progress)
    return {job_id: JobAnswer.of(document) for job_id, document in documents.items()}
