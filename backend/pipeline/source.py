"""The store as a Spark data source: reads checkpoints and writes staged rollups, as Arrow data over ADBC.

A task reads whole hours of a share of the jobs in one statement, so each hour of a job is read at one instant. Each
attempt of a task writes in one transaction and labels its rows with a unique name. Only the rows of attempts that Spark
accepted are used. A task of a run that has ended writes nothing.

The options state where the URL of the database is. Tasks read the URL from the file that ``url_file`` names, or get it
without a password in ``url``. The process that starts Spark reads it from the file that ``driver_url_file`` names.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from backend.domain.rollup import Measure
from backend.store.pipeline import of_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from adbc_driver_postgresql.dbapi import Connection

HOUR_S = 3600
SPAN_MAX_HOURS = 12

CHECKPOINT_SCHEMA = (
    "job_id string, hour timestamp, status string, failure_reason string, completed_at timestamp,"
    " restorable_at timestamp, " + ", ".join(f"{measure} bigint" for measure in Measure)
)
_STATISTICS = (
    "present_count bigint, minimum bigint, maximum bigint, total string, p50 double, p95 double, p99 double,"
    " expired_min bigint, exact_max bigint, bucket_index string, bucket_count string"
)
STAGING_SCHEMA = (
    "job_id string, hour timestamp, measure string, triggered_count bigint, completed_count bigint,"
    " failed_count bigint, failed_by_reason string, last_completed_at timestamp, restorable_at timestamp,"
    f" {_STATISTICS}"
)


@dataclass
class HourSpan(InputPartition):
    """A Spark partition: consecutive hours, as seconds since the epoch. ``end_s`` is exclusive.

    The partition contains only the jobs whose hash, modulo ``slices``, equals ``slice``.
    """

    start_s: int
    end_s: int
    slice: int = 0
    slices: int = 1


@dataclass
class Staged(WriterCommitMessage):
    """The name of one attempt of a task, and the number of rows that the attempt wrote."""

    part: str
    row_count: int


def spans(hours: Sequence[int], *, most: int) -> list[HourSpan]:
    """Group ``hours`` (seconds since the epoch, any order) into spans of at most ``most`` consecutive hours."""
    hour_spans: list[HourSpan] = []
    for hour in sorted(set(hours)):
        last = hour_spans[-1] if hour_spans else None
        if last is not None and last.end_s == hour and hour - last.start_s < most * HOUR_S:
            last.end_s = hour + HOUR_S
        else:
            hour_spans.append(HourSpan(hour, hour + HOUR_S))
    return hour_spans


def shares(hours: Sequence[int], *, tasks: int) -> list[HourSpan]:
    """Divide ``hours`` into about ``tasks`` partitions: first by hour and, if there are fewer hours, also by job.

    A partition by job reads the rows of all jobs of its hours, so dividing by hour costs PostgreSQL less.
    """
    whole = spans(hours, most=max(1, min(SPAN_MAX_HOURS, len(set(hours)) // tasks)))
    slices = -(-tasks // len(whole)) if whole else 1
    return [HourSpan(span.start_s, span.end_s, k, slices) for span in whole for k in range(slices)]


class CheckpointSource(DataSource):
    """Reads the checkpoints, but not the savepoints, that were triggered in given hours.

    Options: those of the database (see the module); ``hours``, a JSON list of hours as seconds since the epoch;
    ``tasks``, about the number of tasks that read in parallel.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format in Spark."""
        return "barrierscope_checkpoints"

    def schema(self) -> str:
        """Return the columns. Each checkpoint is one row."""
        return CHECKPOINT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the checkpoints."""
        return _CheckpointReader(self.options)


class _CheckpointReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._hours: list[int] = json.loads(options["hours"])
        self._tasks = int(options.get("tasks", "1"))

    def partitions(self) -> Sequence[InputPartition]:
        return shares(self._hours, tasks=self._tasks)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, HourSpan)
        with connected(task_url(self._options)) as connection, connection.cursor() as cursor:
            cursor.execute(
                of_tasks.checkpoints_of(partition.start_s, partition.end_s, partition.slice, partition.slices)
            )
            yield from cursor.fetch_record_batch()


class StagingSink(DataSource):
    """Writes rows of ``STAGING_SCHEMA`` for one run.

    Options: those of the database (see the module); ``run_id``, the id of the run.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format in Spark."""
        return "barrierscope_rollup_staging"

    def schema(self) -> str:
        """Return the columns. Each hour of a job has one row with counts, and one row for each measure."""
        return STAGING_SCHEMA

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of the staged rows."""
        return StagingWriter(self.options)


class StagingWriter(DataSourceArrowWriter):
    """Writes the rows of each attempt in one transaction. ``commit`` records the attempts that Spark accepted."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._run_id = options["run_id"]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task, and return the name of this attempt with its number of rows."""
        import pyarrow as pa

        part, row_count = uuid.uuid4().hex, 0
        first = next(iterator, None)
        if first is None:
            return Staged(part, 0)

        def named() -> Iterator[pa.RecordBatch]:
            nonlocal row_count
            for batch in (first, *iterator):
                row_count += batch.num_rows
                yield self._named(batch, part)

        schema = self._named(first, part).schema
        with connected(task_url(self._options)) as connection, connection.cursor() as cursor:
            reader = pa.RecordBatchReader.from_batches(schema, named())
            cursor.adbc_ingest(of_tasks.STAGING, reader, mode="append")
            # The run may have ended: if the process that started Spark was killed, its tasks may still run during the
            # next run.
            cursor.execute(of_tasks.is_running(self._run_id))
            if cursor.fetchone() is None:
                raise RuntimeError("the run of this task has ended")
            connection.commit()
        return Staged(part, row_count)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Record the attempts that Spark accepted. Rows of other attempts, even of later ones, have no effect."""
        parts = sorted(m.part for m in messages if isinstance(m, Staged))
        if not parts:
            return
        with connected(_read_url(self._options["driver_url_file"])) as connection, connection.cursor() as cursor:
            cursor.execute(of_tasks.accepting(self._run_id, parts))
            connection.commit()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing. Rows that were not moved have no effect, and the next run deletes them."""

    def _named(self, batch: pa.RecordBatch, part: str) -> pa.RecordBatch:
        import pyarrow as pa

        names = ["run_id", "part", *batch.schema.names]
        of_all = [pa.array([value] * batch.num_rows, pa.string()) for value in (self._run_id, part)]
        return pa.RecordBatch.from_arrays([*of_all, *batch.columns], names=names)


def task_url(options: Mapping[str, str]) -> str:
    return options["url"] if "url" in options else _read_url(options["url_file"])


def _read_url(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise RuntimeError(f"the database's URL cannot be read from {path} ({error.strerror})") from None


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """Yield an ADBC connection. Turn its errors into a message of one line that does not contain the URL."""
    from adbc_driver_postgresql import dbapi

    try:
        with dbapi.connect(url) as connection:
            with connection.cursor() as cursor:
                for setting in of_tasks.SETTINGS:
                    cursor.execute(setting)
            yield connection
    except dbapi.Error as error:
        raise RuntimeError(f"the store does not answer Spark: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
