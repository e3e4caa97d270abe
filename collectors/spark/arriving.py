"""Parses an event log while it arrives.

Unpacking and parsing take a while, so a thread does both. It asks the event loop for the next bytes when it needs them.
So no more than a few pieces of a log are in memory, however large it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from backend.domain.errors import UpstreamError
from collectors.spark.log_stream import LogRefusedError, Read

WAIT_S: Final = 30.0
"""The next bytes of a log must arrive within this time."""
WHOLE_S: Final = 900.0
"""A server that sends a byte now and then must not keep a thread for ever."""
_RATE_PERIOD_S: Final = 30.0
_RATE_BYTES: Final = 64 * 1024
"""A server that sends fewer bytes of a log within ``_RATE_PERIOD_S`` is given up, so that others get its thread."""

AsyncRead = Callable[[int], Awaitable[bytes]]
"""Returns up to so many of the next bytes, b"" at the end."""


class _StoppedError(Exception):
    """The reading was given up."""


class TooSlowError(Exception):
    """The log arrives too slowly."""


FAILURES: Final = (LogRefusedError, UpstreamError, TimeoutError, TooSlowError)
"""What ``parsed`` raises, with the timeout of ``WHOLE_S`` around it."""


def reason_of(error: Exception) -> str:
    """Return one of ``FAILURES`` as the end of a sentence."""
    if isinstance(error, LogRefusedError):
        return error.reason
    if isinstance(error, TimeoutError):
        return f"it did not arrive within {WHOLE_S / 60:g} min"
    if isinstance(error, TooSlowError):
        return f"it arrives too slowly, with less than {_RATE_BYTES // 1024} KiB in {_RATE_PERIOD_S:g} s"
    return str(error)


@dataclass(slots=True)
class _Pace:
    """Counts the bytes of a log, and the time that its server takes for them. The time of the parser is not counted."""

    waited_s: float = 0.0
    byte_count: int = 0

    async def taken(self, read: AsyncRead, size: int) -> bytes:
        """Return the next bytes.

        Raises:
            TooSlowError: the server has sent too few within ``_RATE_PERIOD_S``.
        """
        began_s = time.monotonic()
        piece = await read(size)
        self.waited_s += time.monotonic() - began_s
        self.byte_count += len(piece)
        if self.waited_s >= _RATE_PERIOD_S:
            if piece and self.byte_count < _RATE_BYTES:
                raise TooSlowError
            self.waited_s, self.byte_count = 0.0, 0
        return piece


async def parsed(read: AsyncRead, work: Callable[[Read], None], threads: ThreadPoolExecutor) -> None:
    """Call ``work`` in one of ``threads`` with a function that returns the next bytes. Return when it has ended.

    This raises what ``work`` and ``read`` raise, and ``TooSlowError``.
    """
    loop = asyncio.get_running_loop()
    is_stopped = False
    pace = _Pace()

    async def ask(size: int) -> bytes:
        if is_stopped:
            raise _StoppedError
        return await pace.taken(read, size)

    def pull(size: int) -> bytes:
        return asyncio.run_coroutine_threadsafe(ask(size), loop).result(2 * WAIT_S)

    done = loop.run_in_executor(threads, work, pull)
    # If the reading is given up, nothing waits for the thread.
    done.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    try:
        await asyncio.shield(done)
    except asyncio.CancelledError:
        is_stopped = True
        raise
