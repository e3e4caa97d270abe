"""The backtest as a Spark data source: each task replays whole jobs.

The options are those of ``backend.pipeline.job_source``; ``since``, the first trigger in seconds since the epoch, or
empty; and ``parts``, a JSON list of what is replayed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from backend.backtest.jobs import result_of
from backend.domain.backtest import Part
from backend.pipeline.job_source import JobReader, JobSource
from backend.store.history import StoredJobHistory, Texts


class BacktestSource(JobSource):
    """Has one row for each job: its id, and the document of its result."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format in Spark."""
        return "barrierscope_backtest"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the results."""
        return _BacktestReader(self.options)


class _BacktestReader(JobReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._since_s = int(options["since"]) if options.get("since") else None
        self._parts = frozenset(Part(part) for part in json.loads(options["parts"]))

    def document_of(self, job_id: str, texts: Texts) -> Mapping[str, Any]:
        history = StoredJobHistory(texts, job_id, self._since_s)
        return result_of(job_id, history, self._parts).document()
