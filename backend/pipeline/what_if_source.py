"""What-ifs on a fleet as a Spark data source: each task predicts whole jobs under the same settings.

The options are those of ``backend.pipeline.job_source``, and ``settings``, a JSON object of the changed settings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from backend.pipeline.job_source import JobReader, JobSource
from backend.pipeline.newest import answer_from
from backend.store.history import Texts


class WhatIfSource(JobSource):
    """Has one row for each job: its id, and the document of its answer."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format in Spark."""
        return "barrierscope_what_if"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the answers."""
        return _WhatIfReader(self.options)


class _WhatIfReader(JobReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._settings: Mapping[str, str] = json.loads(options["settings"])

    def document_of(self, job_id: str, texts: Texts) -> Mapping[str, Any]:
        return answer_from(texts, job_id, self._settings).document()
