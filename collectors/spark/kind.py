"""The collector for targets of kind ``spark``: a history server of Spark.

A listener in a query's driver (``collectors.spark.listener``) pushes its events to the API instead. The target of such
a deployment is of this kind too, and no collector polls it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from backend.domain import engines
from backend.domain.connection import Reach
from collectors.base import Collector, CollectorKind, KnownRuns, TargetRow
from collectors.flink.client import open_transport
from collectors.spark.collector import HistoryCollector, tasks
from collectors.spark.probe import ENGINE, probe

_REQUEST_TIMEOUT_S = 10.0


@asynccontextmanager
async def open_target(target: TargetRow, known: KnownRuns, *, reach: Reach) -> AsyncIterator[Collector]:
    """Open a collector with its own connections to the target.

    Raises:
        InvalidInputError: the target's address is not an http(s) address.
    """
    async with (
        open_transport(target.url, timeout_s=_REQUEST_TIMEOUT_S, reach=reach, engine=ENGINE) as transport,
        tasks() as start,
    ):
        collector = HistoryCollector(transport, target.id, known, time.monotonic, start)
        try:
            yield collector
        finally:
            collector.close()


SPARK: Final = CollectorKind(
    kind="spark",
    engines=(engines.SPARK, engines.SPARK_HISTORY, engines.SPARK_DRIVER, engines.SPARK_FOLDER),
    open=open_target,
    probe=probe,
)
