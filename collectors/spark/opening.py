"""Opens what a target of kind ``spark`` is: a server of Spark, a folder of event logs (also remote) or a checkpoint."""

from __future__ import annotations

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
from backend.domain.target_url import is_folder, is_store
from collectors.base import Effort, KnownRuns
from collectors.flink.client import open_transport
from collectors.spark.applications import is_driver
from collectors.spark.checkpoint_collector import CheckpointCollector
from collectors.spark.collector import LogCollector, LogOptions, Start, tasks
from collectors.spark.driver import DriverCollector
from collectors.spark.history_server import HistoryServer
from collectors.spark.log_folder import LogFolder
from collectors.spark.remote_files import RemoteFiles
from collectors.spark.remote_folder import RemoteFolder
from collectors.spark.s3_files import open_s3
from collectors.spark.webhdfs_files import open_webhdfs

ENGINE: Final = "Spark"


@dataclass(slots=True)
class SparkCollector:
    """Implements ``Collector``. What answers is known after the first poll, and asked for again if it changes."""

    server: HistoryServer | None
    folder: LogFolder | RemoteFolder | None
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
            if self.checkpoint is not None and await self.checkpoint.is_checkpoint():
                return await self.checkpoint.collect(now)
            return await self._collect_logs(self.folder, now)
        listed = await self.server.list_since(now - timedelta(seconds=self.options.ended_within_s))
        if is_driver(listed):
            if self.driver is None:
                self.driver = DriverCollector(self.server, self.target_id, self.known, self.monotonic_s)
            return await self.driver.observe(listed[0], now, began_s)
        self.logs = self.logs or self._log_collector(self.server)
        if self.options.is_dated_by_list and listed:
            now = from_epoch_ms(max(0, *(attempt.updated_ms for attempt in listed)))
        return await self.logs.observe(listed, now, began_s)

    async def _collect_logs(self, folder: LogFolder | RemoteFolder, now: datetime) -> Observation:
        self.logs = self.logs or self._log_collector(folder)
        is_known = False
        try:
            found = await self.logs.collect(now)
            is_known = bool(found.jobs)
        finally:
            if self.checkpoint is not None:
                self.checkpoint.has_logs(is_known=is_known)
        return found

    def _log_collector(self, source: HistoryServer | LogFolder | RemoteFolder) -> LogCollector:
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
        if is_folder(url) or is_store(url):
            if not may_be_folder:
                problem = FieldProblem(
                    "url", "is a folder, which only the targets file may name", "http:// or https://"
                )
                raise InvalidInputError([problem], what="target")
            async with open_folder(url, timeout_s=timeout_s, reach=reach) as folder:
                collector = SparkCollector(None, folder, target_id, known, start, wanted)
                if not is_store(url):
                    # Whether it has logs or is a checkpoint folder is seen once it is not empty.
                    path = Path(url.removeprefix("file://"))
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


@asynccontextmanager
async def open_folder(url: str, *, timeout_s: float, reach: Reach) -> AsyncIterator[LogFolder | RemoteFolder]:
    """Open the folder of event logs at a normalised address.

    Raises:
        InvalidInputError: a package that it needs is not installed.
        TargetUnavailableError: a credential cannot be read.
    """
    if is_store(url):
        async with open_store(url, timeout_s=timeout_s, reach=reach) as files:
            yield RemoteFolder(files)
    else:
        yield LogFolder(Path(url.removeprefix("file://")))


@asynccontextmanager
async def open_store(url: str, *, timeout_s: float, reach: Reach) -> AsyncIterator[RemoteFiles]:
    """Open the files of a folder in S3 or HDFS; see ``open_folder``."""
    if url.startswith("s3://"):
        async with open_s3(url, timeout_s=timeout_s, reach=reach) as objects:
            yield objects
    else:
        async with open_webhdfs(url, timeout_s=timeout_s, reach=reach) as files:
            yield files
