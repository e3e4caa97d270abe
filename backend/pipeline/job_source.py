"""What is computed of whole jobs as a Spark data source: each task reads what is stored of its jobs, and computes.

The computation is part of the read, so the checkpoints of a job are never shuffled, and Spark needs no pandas. The
options of the database are those of ``backend.pipeline.source``. ``shares`` is a JSON list of lists of job ids, one for
each task.
"""

from __future__ import annotations

import json
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from backend.pipeline.source import connected, task_url
from backend.store.history import Texts

if TYPE_CHECKING:
    from adbc_driver_postgresql.dbapi import Connection
    from pyspark.sql import SparkSession

    from backend.store.history_connection import StoredJob

_JOBS_PER_TASK_MAX: Final = 8
_LOOK_S: Final = 0.5


@dataclass
class JobShare(InputPartition):
    """A Spark partition: the ids of some jobs."""

    jobs: tuple[str, ...]


class JobSource(DataSource):
    """Has one row for each job: its id, and the JSON document of what was computed of it."""

    def schema(self) -> str:
        """Return the columns."""
        return "job_id string, document string"


class JobReader(DataSourceReader):
    """Computes the documents of jobs. A source has a reader of its own."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._shares = [tuple(jobs) for jobs in json.loads(options["shares"])]

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each task."""
        return [JobShare(jobs) for jobs in self._shares]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str]]:
        """Yield the rows of one task."""
        assert isinstance(partition, JobShare)
        with connected(task_url(self._options)) as connection:
            for job_id in partition.jobs:
                yield job_id, json.dumps(self.document_of(job_id, _Texts(connection)))

    @abstractmethod
    def document_of(self, job_id: str, texts: Texts) -> Mapping[str, Any]:
        """Return the document of one job. ``texts`` runs a statement in the database."""


class _Texts:
    """Runs statements over ADBC, and returns the texts of their only column."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __call__(self, statement: str) -> list[str]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return [text for batch in cursor.fetch_record_batch() for text in batch.column(0).to_pylist()]


def documents_of(
    session: SparkSession,
    source: type[JobSource],
    options: Mapping[str, str],
    jobs: Sequence[StoredJob],
    tasks: int,
    on_progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Return the document of each of ``jobs``. ``options`` are those of the database and of the source."""
    if not jobs:
        return {}
    session.dataSource.register(source)
    shares = shares_of(jobs, tasks)
    read = session.read.format(source.name()).options(**options).option("shares", json.dumps(shares))
    size = max(map(len, shares))
    with _watched(session, lambda done: on_progress(min(done * size, len(jobs)), len(jobs))):
        rows = read.load().collect()
    on_progress(len(jobs), len(jobs))
    return {row.job_id: json.loads(row.document) for row in rows}


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
