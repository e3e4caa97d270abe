"""A folder of event logs in S3 or HDFS as a source, with the meaning of a folder of this machine (``log_folder``).

A plain file is read from where it was read the last time, and a file that has not grown is not asked for. A compressed
file is read again if it has grown. What is listed and read is bounded: ``FILES_MAX`` files, and a few pieces of a log.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog

from backend.domain.clock import to_epoch_ms
from backend.domain.engines import SPARK_FOLDER, EngineCapabilities
from backend.domain.errors import TargetProtocolError
from backend.domain.text import clean
from collectors.spark.applications import Attempt
from collectors.spark.arriving import FAILURES, WHOLE_S, parsed, reason_of
from collectors.spark.log_folder import (
    CODECS,
    LISTED_MAX,
    OPEN,
    ROLLING,
    UNDATED,
    attempt_of,
    id_of,
    is_dated,
    problems_of,
)
from collectors.spark.log_source import Cost, LogFailedError
from collectors.spark.log_stream import LogRead, index_of, is_compacted, is_finished, read_file
from collectors.spark.remote_files import Listing, RemoteFile, RemoteFiles

_log = structlog.get_logger(__name__)

_THREADS: Final = ThreadPoolExecutor(max_workers=4, thread_name_prefix="log-store")
"""Not those of folders and history servers, so that a slow store keeps none of them waiting."""
_ID_MAX: Final = 200


@dataclass(slots=True)
class RemoteLog:
    """The files of one log, by their numbers. ``is_open`` is whether its application still writes it."""

    app_id: str
    files: dict[int, RemoteFile] = field(default_factory=dict)
    is_open: bool = False
    changed_ms: int = 0

    @property
    def content(self) -> int:
        """A number that is another one if a file has come, gone or grown."""
        return hash((self.is_open, tuple(sorted((f.path, f.size or 0, f.changed_ms) for f in self.files.values()))))

    def add(self, file: RemoteFile) -> None:
        """Add a file of the log."""
        name = file.path.rpartition("/")[2]
        index = index_of(name)
        self.is_open |= name.endswith(OPEN)
        self.changed_ms = max(self.changed_ms, file.changed_ms)
        if index is not None:
            self.files[index] = file


def logs_of(listing: Listing) -> dict[str, RemoteLog]:
    """Return the logs among the files, by the id of their application."""
    logs: dict[str, RemoteLog] = {}
    for file in listing.files:
        folder, _, name = file.path.rpartition("/")
        if folder.startswith(ROLLING) and name:
            app_id = folder.removeprefix(ROLLING)
        elif not folder and index_of(name) is not None:
            app_id = id_of(name)
            known = logs.get(app_id)
            if known is not None and name.endswith(OPEN):
                # A store may show both names while a log gets its last one.
                continue
            if known is not None and 0 in known.files:
                known.is_open = False
        else:
            continue
        if app_id and len(app_id) <= _ID_MAX and app_id.isprintable():
            logs.setdefault(app_id, RemoteLog(app_id)).add(file)
    return {app_id: log for app_id, log in logs.items() if log.files}


def is_packed(path: str) -> bool:
    """Return whether the name of a file says that it is compressed."""
    return path.removesuffix(".compact").removesuffix(OPEN).endswith(CODECS)


@dataclass(slots=True)
class RemoteFolder:
    """Implements ``LogSource`` for a folder in a store. ``problem`` is what the newest list leaves out."""

    files: RemoteFiles
    problem: str | None = None
    is_partial: bool = False
    """Whether the newest list has not come to the end of the folder, so that later polls go on with it."""
    _logs: dict[str, RemoteLog] = field(default_factory=dict)
    _read_sizes: dict[str, int] = field(default_factory=dict)
    _packed: set[str] = field(default_factory=set)
    _versions: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of each log its content, and the time that stands for it."""

    @property
    def cost(self) -> Cost:
        """What the store was asked for."""
        return self.files.cost

    @property
    def clock_ahead(self) -> timedelta:
        """By how much the clock of the store is ahead of ours; see ``LogSource``."""
        return self.files.clock_ahead

    @property
    def url(self) -> str:
        """The address of the folder."""
        return self.files.url

    @property
    def engine(self) -> EngineCapabilities:
        """Spark, read from a folder."""
        return SPARK_FOLDER

    @property
    def version(self) -> str | None:
        """None: each application has its own version."""
        return None

    async def check(self) -> None:
        """Check that the folder can be listed; see ``LogSource``."""
        await self._listed()

    async def list_since(self, since: datetime) -> list[Attempt]:
        """List the logs; see ``LogSource``. Those that are still written count as those of running applications."""
        listing, logs = await self._listed()
        kept = heapq.nsmallest(LISTED_MAX, logs.values(), key=lambda log: (not log.is_open, -log.changed_ms))
        self.is_partial = listing.is_partial
        since_ms = to_epoch_ms(since + self.clock_ahead)
        wanted = sum(log.is_open or log.changed_ms >= since_ms for log in logs.values())
        self._note(listing, wanted - sum(log.is_open or log.changed_ms >= since_ms for log in kept))
        self._versions = {log.app_id: self._version_of(log) for log in kept}
        self._logs = {log.app_id: log for log in kept}
        paths = {file.path for log in kept for file in log.files.values()}
        self._read_sizes = {path: size for path, size in self._read_sizes.items() if path in paths}
        self._packed &= paths
        attempts = (attempt_of(log.app_id, log.changed_ms, is_open=log.is_open) for log in kept)
        return [a for a in attempts if a.ended_at is None or a.updated_ms >= since_ms]

    async def _listed(self) -> tuple[Listing, dict[str, RemoteLog]]:
        listing = await self.files.listed()
        listing, logs = _dated(listing, logs_of(listing))
        if listing.unreadable_count and not logs:
            raise TargetProtocolError(
                url=self.url, reason=f"it has no log that can be read: {_problem_of(listing, left_out_count=0)}"
            )
        return listing, logs

    def _version_of(self, log: RemoteLog) -> tuple[int, int]:
        """Give a log that has changed a later time than before. S3 dates objects in whole seconds."""
        content = log.content
        before, at_ms = self._versions.get(log.app_id, (content, 0))
        log.changed_ms = max(log.changed_ms, at_ms + (content != before))
        return content, log.changed_ms

    def _note(self, listing: Listing, left_out_count: int) -> None:
        problem = _problem_of(listing, left_out_count)
        if problem != self.problem and problem is not None:
            _log.warning("event logs left out", folder=self.url, reason=problem)
        self.problem = problem

    async def look_up(self, attempt: Attempt) -> list[Attempt]:
        """Return the attempt if its log still exists; see ``LogSource``. The newest list has every log."""
        log = self._logs.get(attempt.app_id)
        return [] if log is None else [attempt_of(log.app_id, log.changed_ms, is_open=log.is_open)]

    async def fetch(self, attempt: Attempt, found: LogRead, before: Mapping[int, int]) -> None:
        """Read the files of a log that are new; see ``LogSource``."""
        log = self._logs.get(attempt.app_id)
        shown = clean(attempt.app_id, length_max=100)
        if log is None:
            raise LogFailedError(f"the event log {shown} cannot be read: it is no longer there")
        found.begins |= {min(log.files)}
        try:
            async with asyncio.timeout(WHOLE_S):
                for index, file in sorted(log.files.items()):
                    if not is_finished(file.path, index, before):
                        await self._read(file, found, index, before.get(index, 0))
        except FAILURES as error:
            raise LogFailedError(f"the event log {shown} cannot be read: {reason_of(error)}") from None

    async def _read(self, file: RemoteFile, found: LogRead, index: int, skip: int) -> None:
        """Read a file into ``found``, from the position ``skip`` of its unpacked content."""
        begin = 0 if is_packed(file.path) or file.path in self._packed else skip
        work = partial(
            read_file, found=found, index=index, skip=skip, begin=begin, is_compacted=is_compacted(file.path)
        )
        is_known = file.size is not None and skip > 0 and file.size <= max(begin, self._read_sizes.get(file.path, 0))
        if is_known:
            work(_nothing)
            return
        async with self.files.opened(file, begin) as read:
            end, head = begin, b""

            async def counted(size: int) -> bytes:
                nonlocal end, head
                piece = await read(size)
                head = head or piece[:1]
                end += len(piece)
                found.packed_bytes += len(piece)
                self.files.cost.response_bytes += len(piece)
                return piece

            await parsed(counted, work, _THREADS)
        if begin == 0 and head not in (b"", b"{"):
            self._packed.add(file.path)
        self._read_sizes[file.path] = end


def _problem_of(listing: Listing, left_out_count: int) -> str | None:
    """Return what a list leaves out, as the end of a sentence."""
    problems = problems_of(listing.unreadable_count, listing.unreadable, left_out_count)
    if listing.waiting_count:
        problems.append(f"{listing.waiting_count:,} rolling logs are listed by the next polls")
    if listing.is_cut:
        problems.append("the folder has more files than are kept, so the oldest are left out")
    return ", ".join(problems) or None


def _dated(listing: Listing, logs: dict[str, RemoteLog]) -> tuple[Listing, dict[str, RemoteLog]]:
    """Return the logs whose times a calendar has. The others count as entries that cannot be read."""
    undated = [app_id for app_id, log in logs.items() if not is_dated(log.changed_ms)]
    if not undated:
        return listing, logs
    first = listing.unreadable or f"{clean(undated[0], length_max=100)}: {UNDATED}"
    found = replace(listing, unreadable_count=listing.unreadable_count + len(undated), unreadable=first)
    return found, {app_id: log for app_id, log in logs.items() if is_dated(log.changed_ms)}


def _nothing(size: int) -> bytes:
    return b""
