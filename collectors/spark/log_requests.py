"""Fetches the event log of one application from a history server, and parses it while it arrives.

Unpacking and parsing take a while, so a thread does both. It asks the event loop for the next bytes when it needs them.
So no more than a few pieces of a log are in memory, however large it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from backend.domain.errors import UpstreamError
from collectors.spark.applications import Attempt
from collectors.spark.log_stream import LogRead, LogRefusedError, read_archive

_ACCEPT: Final = "application/octet-stream, application/zip;q=0.9, application/json;q=0.1"
_WAIT_S: Final = 30.0
_THREADS: Final = ThreadPoolExecutor(max_workers=4, thread_name_prefix="event-log")
"""Threads of their own, so that large logs never keep other work of the process waiting."""


class SparkTransport(Protocol):
    """Sends GET requests to one history server or driver."""

    @property
    def url(self) -> str:
        """The target's root URL without credentials, for messages."""
        ...

    async def get(self, path: str) -> bytes:
        """Return the body of the response to ``path``; see ``collectors.base.FlinkTransport``."""
        ...

    def stream(
        self, path: str, *, accept: str, wait_s: float
    ) -> AbstractAsyncContextManager[Callable[[int], Awaitable[bytes]]]:
        """Open a response of any size; see ``collectors.flink.client.AiohttpTransport``."""
        ...


class LogFailedError(Exception):
    """A log could not be read. The text is a sentence about the application."""


class _StoppedError(Exception):
    """The reading was given up."""


async def fetch_log(transport: SparkTransport, attempt: Attempt, found: LogRead, before: Mapping[int, int]) -> None:
    """Read the log of ``attempt`` into ``found``, from the positions ``before``.

    Raises:
        LogFailedError: the log was not read to its end.
    """
    loop = asyncio.get_running_loop()
    is_stopped = False
    try:
        async with transport.stream(f"{attempt.path}/logs", accept=_ACCEPT, wait_s=_WAIT_S) as read:

            async def ask(size: int) -> bytes:
                if is_stopped:
                    raise _StoppedError
                return await read(size)

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
    except (LogRefusedError, UpstreamError) as error:
        reason = error.reason if isinstance(error, LogRefusedError) else str(error)
        raise LogFailedError(f"the event log of {attempt.name} ({attempt.app_id}) cannot be read: {reason}") from None
