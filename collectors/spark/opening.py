"""Opens what a target of kind ``spark`` is: a history server, a driver, or a folder of event logs or a checkpoint."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from backend.domain.clock import from_epoch_ms
from backend.domain.connection import Reach
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.ids import TargetId
from backend.domain.observation import Observation
from backend.domain.target_url import is_folder
from collectors.base import Effort, KnownRuns
from collectors.flink.client import open_transport
from collectors.spark.applications import is_driver
from collectors.spark.checkpoint_collector import CheckpointCollector
from collectors.spark.checkpoint_folder import is_checkpoint_folder
from collectors.spark.collector import LogCollector, LogOptions, Start, tasks
from collectors.spark.driver import DriverCollector
from collectors.spark.history_server import HistoryServer
from collectors.spark.log_folder import LogFolder

ENGINE: Final = "Spark"


@dataclass(slots=True)
class SparkCollector:
    """Implements ``Collector``. What answers is known after the first poll, and asked for again if it changes."""

    server: HistoryServer | None
    folder: LogFolder | None
    target_id: TargetId
    known: KnownRuns
    start: Start
    options: LogOptions = field(default_factory=LogOptions)
    monotonic_s: Callable[[], float] = time.monotonic
    driver: DriverCollector | None = None
    logs: LogCollector | None = None
    checkpoint: CheckpointCollector | None = None

    @property
    def poll_within_s(self) -> float | None:
        """None: what Spark lists stays for long."""
        return None

    @property
    def request_count(self) -> int:
        """The requests of all polls."""
        return 0 if self.server is None else self.server.cost.total_count

    def forget(self) -> None:
        """Read everything again at the next poll."""
        if self.driver is not None:
            self.driver.forget()
        if self.logs is not None:
            self.logs.forget()
        if self.checkpoint is not None:
            self.checkpoint.forget()

    def close(self) -> None:
        """End the reading of logs."""
        if self.logs is not None:
            self.logs.close()

    async def collect(self, now: datetime, *, effort: Effort = Effort.FULL) -> Observation:
        """Read what is new; see ``Collector``."""
        began_s = self.monotonic_s()
        if self.server is None:
            if self.folder is None:
                raise ValueError("a target is a server or a folder")
            if self.checkpoint is not None and await asyncio.to_thread(is_checkpoint_folder, self.checkpoint.path):
                return await self.checkpoint.collect(now)
            self.logs = self.logs or self._log_collector(self.folder)
            return await self.logs.collect(now)
        listed = await self.server.list_since(now - timedelta(seconds=self.options.ended_within_s))
        if is_driver(listed):
            if self.driver is None:
                self.driver = DriverCollector(self.server, self.target_id, self.known, self.monotonic_s)
            return await self.driver.observe(listed[0], now, began_s)
        self.logs = self.logs or self._log_collector(self.server)
        if self.options.is_dated_by_list and listed:
            now = from_epoch_ms(max(0, *(attempt.updated_ms for attempt in listed)))
        return await self.logs.observe(listed, now, began_s)

    def _log_collector(self, source: HistoryServer | LogFolder) -> LogCollector:
        return LogCollector(source, self.target_id, self.known, self.monotonic_s, self.start, self.options)


@asynccontextmanager
async def opened(
    url: str,
    target_id: TargetId,
    known: KnownRuns,
    *,
    timeout_s: float,
    reach: Reach,
    may_be_folder: bool,
    options: LogOptions | None = None,
) -> AsyncIterator[SparkCollector]:
    """Open a collector with its own connections to the target.

    Raises:
        InvalidInputError: the address is no http(s) address, or that of a folder, which the operator did not declare.
    """
    wanted = options or LogOptions()
    async with tasks() as start:
        if is_folder(url):
            if not may_be_folder:
                problem = FieldProblem(
                    "url", "is a folder, which only the targets file may name", "http:// or https://"
                )
                raise InvalidInputError([problem], what="target")
            path = Path(url.removeprefix("file://"))
            collector = SparkCollector(None, LogFolder(path), target_id, known, start, wanted)
            # Whether it has logs or is a checkpoint folder is seen at each poll: it may be empty at first.
            collector.checkpoint = CheckpointCollector(path, target_id, collector.monotonic_s)
            try:
                yield collector
            finally:
                collector.close()
            return
        async with open_transport(url, timeout_s=timeout_s, reach=reach, engine=ENGINE) as transport:
            collector = SparkCollector(HistoryServer(transport), None, target_id, known, start, wanted)
            try:
                yield collector
            finally:
                collector.close()
