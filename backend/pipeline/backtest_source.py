"""The backtest as a Spark data source: each task reads the ended checkpoints of whole jobs and replays them.

The replay is part of the read, so the checkpoints of a job are never shuffled, and Spark needs no pandas. The options
of the database are those of ``backend.pipeline.source``. ``tasks`` is the number of partitions, and ``since`` the first
trigger in seconds since the epoch, or empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from backend.backtest.jobs import result_of
from backend.pipeline.history import COLUMNS, ORDER, SELECT, row_of, since_condition, slice_condition
from backend.pipeline.source import connected, task_url


@dataclass
class JobShare(InputPartition):
    """A Spark partition: the jobs whose hash, modulo ``slices``, equals ``slice``."""

    slice: int
    slices: int


class BacktestSource(DataSource):
    """Has one row for each job that has ended checkpoints: its id, and the document of its result."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format in Spark."""
        return "barrierscope_backtest"

    def schema(self) -> str:
        """Return the columns."""
        return "job_id string, document string"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the results."""
        return _BacktestReader(self.options)


class _BacktestReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._tasks = int(options.get("tasks", "1"))
        self._since_s = int(options["since"]) if options.get("since") else None

    def partitions(self) -> Sequence[InputPartition]:
        return [JobShare(n, self._tasks) for n in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str]]:
        assert isinstance(partition, JobShare)
        where = slice_condition(partition.slice, partition.slices) + since_condition(self._since_s)
        with connected(task_url(self._options)) as connection, connection.cursor() as cursor:
            cursor.execute(f"{SELECT}{where}{ORDER}")
            rows = (row for batch in cursor.fetch_record_batch() for row in _rows(batch))
            for job_id, of_job in groupby(rows, key=lambda row: str(row["job_id"])):
                yield job_id, json.dumps(result_of(job_id, map(row_of, of_job)).document())


def _rows(batch: Any) -> Iterator[dict[str, Any]]:
    for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        yield dict(zip(COLUMNS, values, strict=True))
