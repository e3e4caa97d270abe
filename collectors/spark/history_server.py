"""A history server of Spark as a source of event logs: lists applications, and parses a log while it arrives.

How a log is parsed while it arrives is in ``arriving``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol

from backend.domain.engines import SPARK_HISTORY, EngineCapabilities
from backend.domain.errors import TargetProtocolError
from collectors.flink.document import Document
from collectors.spark import applications
from collectors.spark.applications import Attempt
from collectors.spark.arriving import FAILURES, WAIT_S, WHOLE_S, parsed, reason_of
from collectors.spark.log_source import Cost, LogFailedError
from collectors.spark.log_stream import LogRead, read_archive

_ACCEPT: Final = "application/octet-stream, application/zip;q=0.9, application/json;q=0.1"
_NOT_FOUND: Final = 404
_THREADS: Final = ThreadPoolExecutor(max_workers=16, thread_name_prefix="event-log")
"""Threads of their own, so that large logs never keep other work of the process waiting."""


class SparkTransport(Protocol):
    """Sends GET requests to one history server or driver."""

    @property
    def url(self) -> str:
        """The target's root URL without credentials, for messages."""
        ...

    @property
    def clock_ahead(self) -> timedelta | None:
        """By how much the server's clock is ahead of ours; None if its answers have no date."""
        ...

    async def get(self, path: str) -> bytes:
        """Return the body of the response to ``path``; see ``collectors.base.FlinkTransport``."""
        ...

    def stream(
        self, path: str, *, accept: str, wait_s: float
    ) -> AbstractAsyncContextManager[Callable[[int], Awaitable[bytes]]]:
        """Open a response of any size; see ``collectors.flink.client.AiohttpTransport``."""
        ...


@dataclass(slots=True)
class HistoryServer:
    """Implements ``LogSource`` for a history server."""

    transport: SparkTransport
    version: str | None = None
    cost: Cost = field(default_factory=Cost)

    @property
    def url(self) -> str:
        """The root URL without credentials."""
        return self.transport.url

    @property
    def clock_ahead(self) -> timedelta:
        """By how much the server's clock is ahead of ours; see ``LogSource``."""
        return self.transport.clock_ahead or timedelta(0)

    @property
    def problem(self) -> str | None:
        """None: a history server lists all applications."""
        return None

    @property
    def engine(self) -> EngineCapabilities:
        """Spark, read from a history server."""
        return SPARK_HISTORY

    async def check(self) -> None:
        """Ask for the version; see ``LogSource``."""
        self.version = applications.version_in(await self.get(applications.VERSION))

    async def list_since(self, since: datetime) -> list[Attempt]:
        """Ask for the list of applications; see ``LogSource``."""
        if self.version is None:
            await self.check()
        # The first answer has shown the server's clock.
        return applications.attempts_in(await self.get(applications.listing(since + self.clock_ahead)))

    async def look_up(self, attempt: Attempt) -> list[Attempt]:
        """Ask for one application; see ``LogSource``."""
        path = attempt.path if attempt.attempt_id is None else attempt.path.rpartition("/")[0]
        try:
            document = await self.get(path)
        except TargetProtocolError as error:
            if error.status == _NOT_FOUND:
                return []
            raise
        again = applications.attempts_of(document)
        return [a for a in again if a.key == attempt.key]

    async def fetch(self, attempt: Attempt, found: LogRead, before: Mapping[int, int]) -> None:
        """Fetch the zip of a log, and parse it while it arrives; see ``LogSource``."""
        self.cost.request_count += 1
        try:
            await _fetched(self.transport, attempt, found, before)
        finally:
            self.cost.response_bytes += found.packed_bytes

    async def get(self, path: str) -> Document:
        """Return the JSON at ``path``. This raises as ``list_since``."""
        self.cost.request_count += 1
        body = await self.transport.get(path)
        self.cost.response_bytes += len(body)
        return applications.document_of(body, url=self.transport.url + path.partition("?")[0])


async def _fetched(transport: SparkTransport, attempt: Attempt, found: LogRead, before: Mapping[int, int]) -> None:
    """Read the log of ``attempt`` into ``found``, from the positions ``before``.

    Raises:
        LogFailedError: the log was not read to its end.
    """
    try:
        async with (
            asyncio.timeout(WHOLE_S),
            transport.stream(f"{attempt.path}/logs", accept=_ACCEPT, wait_s=WAIT_S) as read,
        ):
            await parsed(read, partial(read_archive, found=found, before=before), _THREADS)
    except FAILURES as error:
        reason = reason_of(error)
        raise LogFailedError(f"the event log of {attempt.name} ({attempt.app_id}) cannot be read: {reason}") from None
