"""Event logs at an address of S3 or HDFS, read once and by code without a loop: for ``diagnose --event-log``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from backend.domain.connection import Reach
from backend.domain.errors import FieldProblem, InvalidInputError, TargetProtocolError
from backend.domain.target_url import normalised_store
from backend.domain.text import clean
from collectors.spark.log_stream import LogRefusedError, index_of, unpacked
from collectors.spark.opening import open_store
from collectors.spark.remote_files import Listing, RemoteFile, RemoteFiles
from collectors.spark.remote_folder import logs_of

_TIMEOUT_S: Final = 10.0
_SHOWN_MAX: Final = 200
_MISSING: Final = 404
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredLog:
    """A file of an event log. ``name`` is its whole address."""

    name: str
    file: RemoteFile
    files: RemoteFiles
    runner: asyncio.Runner

    def blocks(self) -> Iterator[bytes]:
        """Yield its unpacked content in pieces.

        Raises:
            InvalidInputError: it is no event log, or its codec cannot be read.
            TargetUnavailableError, TargetProtocolError: the store does not answer, or not as it should.
        """
        with _entered(self.runner, self.files.opened(self.file, 0)) as read:

            def pull(size: int) -> bytes:
                async def asked() -> bytes:
                    return await read(size)

                return self.runner.run(asked())

            try:
                yield from unpacked(pull)
            except LogRefusedError as error:
                shown = clean(self.name, length_max=_SHOWN_MAX)
                raise InvalidInputError([FieldProblem("file", f"{shown!r}: {error.reason}")], what="option") from None


@contextmanager
def stored_logs(text: str, *, option: str, reach: Reach) -> Iterator[list[StoredLog]]:
    """Yield the files at the address of a folder of logs, of one rolling log, or of one file.

    Raises:
        InvalidInputError: it is no address, there is no log at it, or a package is not installed.
        TargetUnavailableError, TargetProtocolError: the store does not answer, or not as it should.
    """
    url = normalised_store(text, what="option", field=option)
    with asyncio.Runner() as runner:
        with _entered(runner, open_store(url, timeout_s=_TIMEOUT_S, reach=reach)) as files:
            found = _found(runner, files)
            if found:
                yield [StoredLog(f"{url}/{file.path}", file, files, runner) for file in found]
                return
        parent, _, name = url.rpartition("/")
        if parent.count("/") > 1:
            with _entered(runner, open_store(parent, timeout_s=_TIMEOUT_S, reach=reach)) as files:
                found = [file for file in _found(runner, files) if file.path == name]
                if found:
                    yield [StoredLog(url, found[0], files, runner)]
                    return
    problem = FieldProblem(option, f"{clean(text, length_max=_SHOWN_MAX)!r} has no event log", "a folder or a file")
    raise InvalidInputError([problem], what="option")


def _found(runner: asyncio.Runner, files: RemoteFiles) -> list[RemoteFile]:
    """Return the files of logs in the folder; none if the address is that of a file."""

    async def listed() -> Listing:
        return await files.listed()

    try:
        listing = runner.run(listed())
    except TargetProtocolError as error:
        if error.is_passing or error.status not in (None, _MISSING):
            raise
        return []
    of_logs = [file for log in logs_of(listing).values() for file in log.files.values()]
    # Of one rolling log, all files have the number in their names.
    of_rolling = [f for f in listing.files if "/" not in f.path and f.path.startswith("events_") and index_of(f.path)]
    return list({f.path: f for f in (*of_logs, *of_rolling)}.values())


@contextmanager
def _entered(runner: asyncio.Runner, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter an asynchronous context from code that is not."""

    async def enter() -> T:
        return await context.__aenter__()

    async def leave() -> None:
        await context.__aexit__(None, None, None)

    entered = runner.run(enter())
    try:
        yield entered
    finally:
        runner.run(leave())
