"""A history server of Spark as a source of event logs: lists applications, and parses a log while it arrives.

Unpacking and parsing take a while, so a thread does both. It asks the event loop for the next bytes when it needs them.
So no more than a few pieces of a log are in memory, however large it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

from backend.domain.engines import SPARK_HISTORY, EngineCapabilities
from backend.domain.errors import TargetProtocolError, UpstreamError
from collectors.flink.document import Document
from collectors.spark import applications
from collectors.spark.applications import Attempt
from collectors.spark.log_source import Cost, LogFailedError
from collectors.spark.log_stream import LogRead, LogRefusedError, read_archive

_ACCEPT: Final = "application/octet-stream, application/zip;q=0.9, application/json;q=0.1"
_WAIT_S: Final = 30.0
_WHOLE_S: Final = 900.0
"""A server that sends a byte now and then must not keep a thread for ever."""
_RATE_PERIOD_S: Final = 30.0
_RATE_BYTES: Final = 64 * 1024
"""A server that sends fewer bytes of a log within ``_RATE_PERIOD_S`` is given up, so that others get its thread."""
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


class _StoppedError(Exception):
    """The reading was given up."""


class _TooSlowError(Exception):
    """The log arrives too slowly."""


@dataclass(slots=True)
class _Pace:
    """Counts the bytes of a log, and the time that its server takes for them. The time of the parser is not counted."""

    waited_s: float = 0.0
    byte_count: int = 0

    async def taken(self, read: Callable[[int], Awaitable[bytes]], size: int) -> bytes:
        """Return the next bytes.

        Raises:
            _TooSlowError: the server has sent too few within ``_RATE_PERIOD_S``.
        """
        began_s = time.monotonic()
        piece = await read(size)
        self.waited_s += time.monotonic() - began_s
        self.byte_count += len(piece)
        if self.waited_s >= _RATE_PERIOD_S:
            if piece and self.byte_count < _RATE_BYTES:
                raise _TooSlowError
            self.waited_s, self.byte_count = 0.0, 0
        return piece


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
    loop = asyncio.get_running_loop()
    is_stopped = False
    pace = _Pace()
    try:
        async with (
            asyncio.timeout(_WHOLE_S),
            transport.stream(f"{attempt.path}/logs", accept=_ACCEPT, wait_s=_WAIT_S) as read,
        ):

            async def ask(size: int) -> bytes:
                if is_stopped:
                    raise _StoppedError
                return await pace.taken(read, size)

            def pull(size: int) -> bytes:
                return asyncio.run_coroutine_threadsafe(ask(size), loop).result(2 * _WAIT_S)

            work = loop.run_in_executor(_THREADS, read_archive, pull, found, before)
            # If the reading is given up, nobody waits for the thread.
            work.add_done_callback(lambda done: done.cancelled() or done.exception())
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                is_stopped = True
                raise
    except (LogRefusedError, UpstreamError, TimeoutError, _TooSlowError) as error:
        reason = error.reason if isinstance(error, LogRefusedError) else str(error)
        if isinstance(error, TimeoutError):
            reason = f"it did not arrive within {_WHOLE_S / 60:g} min"
        if isinstance(error, _TooSlowError):
            reason = f"it arrives too slowly, with less than {_RATE_BYTES // 1024} KiB in {_RATE_PERIOD_S:g} s"
        raise LogFailedError(f"the event log of {attempt.name} ({attempt.app_id}) cannot be read: {reason}") from None
