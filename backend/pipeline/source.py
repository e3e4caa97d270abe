"""The store as a Spark data source: it reads checkpoints and writes staged rollups, as Arrow over ADBC.

A task reads whole hours in one statement, so each hour is read at one instant. A task writes in one transaction, with
a name for each attempt; the rows of failed and repeated attempts are deleted before the rollups are used. The URL of
the database comes only from the file in the option ``url_file``.
"""

# ruff: noqa: S608  statements hold this module's own column lists and whole numbers.

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

if TYPE_CHECKING:
    import pyarrow as pa
    from adbc_driver_postgresql.dbapi import Connection

HOUR_S = 3600
_STATEMENT_TIMEOUT_MS = 600_000
# Longer than any real checkpoint (30 years); beyond it, the instant of the end cannot be represented.
DURATION_MAX_MS = 10**12

CHECKPOINT_SCHEMA = "job_id string, hour timestamp, status string, failure_reason string, completed_at timestamp, " + (
    ", ".join(f"{measure} bigint" for measure in Measure)
)
STAGING_SCHEMA = (
    "job_id string, hour timestamp, measure string, triggered_count bigint, completed_count bigint,"
    " failed_count bigint, failed_by_reason string, last_completed_at timestamp, present_count bigint,"
    " minimum bigint, maximum bigint, total string, p50 double, p95 double, p99 double,"
    " bucket_index string, bucket_count string"
)
_SELECT = (
    "SELECT job_id, date_trunc('hour', triggered_at, 'UTC') AS hour, status, failure_reason,"
    " CASE WHEN status = 'completed' THEN"
    f" triggered_at + LEAST(end_to_end_duration_ms, {DURATION_MAX_MS}) * interval '1 ms' END AS completed_at, "
    + ", ".join(Measure)
    + " FROM checkpoints WHERE kind = 'checkpoint'"
)


@dataclass
class HourSpan(InputPartition):
    """Consecutive hours, as seconds since the epoch. ``end_s`` is exclusive."""

    start_s: int
    end_s: int


@dataclass
class Staged(WriterCommitMessage):
    """The name and the row count of a task's attempt."""

    part: str
    row_count: int


def spans(hours: Sequence[int], *, most: int) -> list[HourSpan]:
    """Group ``hours`` (seconds since the epoch, any order) into spans of at most ``most`` consecutive hours."""
    found: list[HourSpan] = []
    for hour in sorted(set(hours)):
        last = found[-1] if found else None
        if last is not None and last.end_s == hour and hour - last.start_s < most * HOUR_S:
            last.end_s = hour + HOUR_S
        else:
            found.append(HourSpan(hour, hour + HOUR_S))
    return found


class CheckpointSource(DataSource):
    """Checkpoints (no savepoints) triggered in given hours. Options: ``url_file``, ``hours`` (JSON), ``span``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format in Spark."""
        return "barrierscope_checkpoints"

    def schema(self) -> str:
        """One row for each checkpoint."""
        return CHECKPOINT_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of the checkpoints."""
        return _CheckpointReader(self.options)


class _CheckpointReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._url_file = options["url_file"]
        self._hours: list[int] = json.loads(options["hours"])
        self._span = int(options.get("span", "12"))

    def partitions(self) -> Sequence[InputPartition]:
        return spans(self._hours, most=self._span)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, HourSpan)
        with _connected(self._url_file) as connection, connection.cursor() as cursor:
            cursor.execute(
                f"{_SELECT} AND triggered_at >= to_timestamp({partition.start_s})"
                f" AND triggered_at < to_timestamp({partition.end_s})"
                f" AND triggered_on >= (to_timestamp({partition.start_s}) AT TIME ZONE 'UTC')::date"
                f" AND triggered_on <= (to_timestamp({partition.end_s - 1}) AT TIME ZONE 'UTC')::date"
            )
            yield from cursor.fetch_record_batch()


class StagingSink(DataSource):
    """Writes rows of ``STAGING_SCHEMA`` for one run. Options: ``url_file``, ``run_id``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format in Spark."""
        return "barrierscope_rollup_staging"

    def schema(self) -> str:
        """One row for each hour of a job, and one for each of its measures."""
        return STAGING_SCHEMA

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """The writer of the staged rows."""
        return StagingWriter(self.options)


class StagingWriter(DataSourceArrowWriter):
    """Writes each attempt in one transaction. ``commit`` keeps only the rows of the attempts that Spark accepts."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._url_file = options["url_file"]
        self._run_id = options["run_id"]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
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
        with _connected(self._url_file) as connection, connection.cursor() as cursor:
            reader = pa.RecordBatchReader.from_batches(schema, named())
            cursor.adbc_ingest("rollup_staging", reader, mode="append")
            connection.commit()
        return Staged(part, row_count)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the rows of the attempts that Spark does not accept."""
        parts = sorted(m.part for m in messages if isinstance(m, Staged))
        # The names of runs and parts are hexadecimal numbers that this module creates.
        kept = ", ".join(f"'{part}'" for part in parts) or "''"
        with _connected(self._url_file) as connection, connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM rollup_staging WHERE run_id = '{self._run_id}' AND part NOT IN ({kept})")
            connection.commit()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: rows that are not moved have no effect, and the next run deletes them."""

    def _named(self, batch: pa.RecordBatch, part: str) -> pa.RecordBatch:
        import pyarrow as pa

        names = ["run_id", "part", *batch.schema.names]
        of_all = [pa.array([value] * batch.num_rows, pa.string()) for value in (self._run_id, part)]
        return pa.RecordBatch.from_arrays([*of_all, *batch.columns], names=names)


@contextmanager
def _connected(url_file: str) -> Iterator[Connection]:
    """An ADBC connection. Its errors become one line without the URL."""
    from adbc_driver_postgresql import dbapi

    try:
        with dbapi.connect(Path(url_file).read_text()) as connection:
            with connection.cursor() as cursor:
                cursor.execute(f"SET statement_timeout = {_STATEMENT_TIMEOUT_MS}")
                cursor.execute("SET timezone = 'UTC'")
            yield connection
    except dbapi.Error as error:
        raise RuntimeError(f"the store does not answer Spark: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
