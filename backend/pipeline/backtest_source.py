"""The backtest as a Spark data source: each task reads what is stored of whole jobs and replays it.

The replay is part of the read, so the checkpoints of a job are never shuffled, and Spark needs no pandas. The options
of the database are those of ``backend.pipeline.source``. ``shares`` is a JSON list of lists of job ids, one for each
task; ``since`` the first trigger in seconds since the epoch, or empty; ``parts`` a JSON list of what is replayed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from backend.backtest.jobs import result_of
from backend.domain.backtest import Part
from backend.pipeline.history import StoredJobHistory
from backend.pipeline.source import connected, task_url

if TYPE_CHECKING:
    from adbc_driver_postgresql.dbapi import Connection


@dataclass
class JobShare(InputPartition):
    """A Spark partition: the ids of some jobs."""

    jobs: tuple[str, ...]


class BacktestSource(DataSource):
    """Has one row for each job: its id, and the document of its result."""

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
        self._shares = [tuple(jobs) for jobs in json.loads(options["shares"])]
        self._since_s = int(options["since"]) if options.get("since") else None
        self._parts = frozenset(Part(part) for part in json.loads(options["parts"]))

    def partitions(self) -> Sequence[InputPartition]:
        return [JobShare(jobs) for jobs in self._shares]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str]]:
        assert isinstance(partition, JobShare)
        with connected(task_url(self._options)) as connection:
            for job_id in partition.jobs:
                history = StoredJobHistory(_Texts(connection), job_id, self._since_s)
                yield job_id, json.dumps(result_of(job_id, history, self._parts).document())


class _Texts:
    """Runs statements over ADBC, and returns the texts of their only column."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __call__(self, statement: str) -> list[str]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return [text for batch in cursor.fetch_record_batch() for text in batch.column(0).to_pylist()]
