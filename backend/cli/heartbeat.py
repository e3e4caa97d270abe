"""Keeps the heartbeat file of a role up to date.

A liveness probe reads the age of the file to check that the event loop runs. The heartbeat does not depend on the
store or on the targets, because restarting the role would repair neither of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from backend.domain.errors import HostError

INTERVAL_S = 5.0


@asynccontextmanager
async def beating(path: Path | None, interval_s: float = INTERVAL_S) -> AsyncIterator[None]:
    """Touch ``path`` every ``interval_s`` while the block runs, then remove it. Do nothing if ``path`` is None.

    Raises:
        HostError: the file cannot be written.
    """
    if path is None:
        yield
        return
    _touch(path)
    try:
        async with asyncio.TaskGroup() as group:
            beat = group.create_task(_beat(path, interval_s))
            yield
            beat.cancel()
    except ExceptionGroup as errors:
        # If one task fails, the group cancels the other, so there is only one error.
        raise errors.exceptions[0] from errors
    finally:
        _remove(path)


async def _beat(path: Path, interval_s: float) -> None:
    while True:
        await asyncio.sleep(interval_s)
        _touch(path)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def _touch(path: Path) -> None:
    try:
        path.touch()
    except OSError as error:
        what = f"the heartbeat file {path} cannot be written ({error.strerror})"
        raise HostError(what, fix="set BARRIERSCOPE_HEARTBEAT_FILE to a writable file") from None
