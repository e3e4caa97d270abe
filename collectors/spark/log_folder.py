"""A folder of event logs of Spark as a source: logs of one file, and rolling logs, which are folders of files.

The folder is one of the collector's machine, so only the operator may declare it. Users of Spark can write into it:
links are not followed, and only regular files are opened. A plain file is read from where it was read the last time.
An entry that cannot be read leaves the others as they are, and is counted.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import stat
import threading
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from backend.domain.clock import from_epoch_ms, to_epoch_ms
from backend.domain.engines import SPARK_FOLDER, EngineCapabilities
from backend.domain.errors import TargetProtocolError, TargetUnavailableError
from backend.domain.spelling import duration
from backend.domain.text import clean
from collectors.spark.applications import UPDATED_MS_MAX, Attempt
from collectors.spark.arriving import WHOLE_S
from collectors.spark.folder_threads import AtMostOne, FolderCall, FolderThreads, MountHangsError
from collectors.spark.log_source import Cost, LogFailedError
from collectors.spark.log_stream import LogRead, LogRefusedError, index_of, is_compacted, is_finished, read_file

_log = structlog.get_logger(__name__)

_LISTS: Final = FolderThreads("log-list")
"""Apart from the logs that are read, so that long logs of other folders keep no list waiting."""
_THREADS: Final = FolderThreads("log-folder", late_s=60.0, hung_max=4)
"""Not those of the history servers, so that a slow server keeps no folder waiting. Few may be late: if they are not
hung, they parse, and compete for the processor."""
_WAIT_S: Final = 20.0
"""A poll waits so long for the list. It is less than a poll may take."""
ROLLING: Final = "eventlog_v2_"
OPEN: Final = ".inprogress"
CODECS: Final = (".zstd", ".lz4", ".snappy", ".lzf")
LISTED_MAX: Final = 20_000
_FIRST_MS: Final = to_epoch_ms(datetime(2, 1, 1, tzinfo=UTC))
_LAST_MS: Final = UPDATED_MS_MAX
"""A year is left on both sides, so that a difference of clocks can be added."""
UNDATED: Final = "its time is not one of the years 2 to 9998"


@dataclass(slots=True)
class _Listed:
    """The logs of a folder. ``unreadable`` is the first that cannot be read, with the reason.

    ``times_ms`` has ``updated_ms`` of all logs that ended, and ``open_count`` is the number of the others.
    """

    attempts: list[Attempt] = field(default_factory=list)
    times_ms: array[int] = field(default_factory=lambda: array("q"))
    open_count: int = 0
    unreadable: str | None = None
    unreadable_count: int = 0

    def since(self, since_ms: int) -> list[Attempt]:
        """Return the logs that are still written, and those that were since then."""
        return [a for a in self.attempts if a.ended_at is None or a.updated_ms >= since_ms]

    def problem(self, since_ms: int) -> str | None:
        """Return what is missing in ``since``, as the end of a sentence.

        The age of an entry that cannot be read is not known: the time of a folder is not that of its files.
        """
        left_out_count = self.open_count + sum(at >= since_ms for at in self.times_ms) - len(self.since(since_ms))
        return ", ".join(problems_of(self.unreadable_count, self.unreadable, left_out_count)) or None


def problems_of(unreadable_count: int, unreadable: str | None, left_out_count: int) -> list[str]:
    """Return what a list of logs lacks, each as the end of a sentence. ``unreadable`` is the first unreadable entry."""
    problems = []
    if unreadable_count:
        entries = f"{unreadable_count:,} {'entry' if unreadable_count == 1 else 'entries'}"
        problems.append(f"{entries} of the folder cannot be read (such as {unreadable})")
    if left_out_count:
        problems.append(f"the oldest {left_out_count:,} of more than {LISTED_MAX:,} logs are left out")
    return problems


@dataclass(slots=True)
class LogFolder:
    """Implements ``LogSource`` for a folder of this machine. ``problem`` is what the newest list leaves out."""

    folder: Path
    cost: Cost = field(default_factory=Cost)
    problem: str | None = None
    _listing: AtMostOne[_Listed] = field(init=False)
    _given_up: dict[str, FolderCall[None]] = field(default_factory=dict)
    """The readings that had not ended in time, by application. Each may still hang."""

    def __post_init__(self) -> None:
        self._listing = AtMostOne(_LISTS, self.folder)

    @property
    def clock_ahead(self) -> timedelta:
        """Zero: the files of this machine have times of our clock."""
        return timedelta(0)

    @property
    def url(self) -> str:
        """The address of the folder."""
        return f"file://{self.folder}"

    @property
    def engine(self) -> EngineCapabilities:
        """Spark, read from a folder."""
        return SPARK_FOLDER

    @property
    def version(self) -> str | None:
        """None: each application has its own version."""
        return None

    async def check(self) -> None:
        """Check that the folder can be read; see ``LogSource``."""
        await self._listed()

    async def list_since(self, since: datetime) -> list[Attempt]:
        """List the logs; see ``LogSource``. Those that are still written count as those of running applications."""
        listed, since_ms = await self._listed(), to_epoch_ms(since)
        problem = listed.problem(since_ms)
        if problem != self.problem and problem is not None:
            _log.warning("event logs left out", folder=self.url, reason=problem)
        self.problem = problem
        return listed.since(since_ms)

    async def _listed(self) -> _Listed:
        self.cost.request_count += 1
        try:
            listed = await self._listing.result(partial(_logs, self.folder), wait_s=_WAIT_S)
        except MountHangsError as error:
            raise TargetUnavailableError(url=self.url, reason=error.reason) from None
        except TimeoutError:
            reason = f"the folder has not answered within {_WAIT_S:g} s"
            raise TargetUnavailableError(url=self.url, reason=reason) from None
        except OSError as error:
            reason = f"the folder cannot be read on the machine of the collector ({error.strerror})"
            raise TargetUnavailableError(url=self.url, reason=reason) from None
        if listed.unreadable_count and not listed.attempts:
            raise TargetProtocolError(url=self.url, reason=f"it has no log that can be read: {listed.problem(0)}")
        return listed

    async def look_up(self, attempt: Attempt) -> list[Attempt]:
        """Return the attempt if its log still exists; see ``LogSource``."""
        return [a for a in (await self._listed()).attempts if a.key == attempt.key]

    async def fetch(self, attempt: Attempt, found: LogRead, before: Mapping[int, int]) -> None:
        """Read the files of a log that are new; see ``LogSource``. A log that hangs is not read a second time."""
        app_id = attempt.app_id
        self._given_up = {key: call for key, call in self._given_up.items() if not call.future.done()}
        if app_id in self._given_up:
            raise LogFailedError(f"the event log {app_id} cannot be read: an earlier reading of it has not ended")
        is_given_up = threading.Event()
        made = _THREADS.submit(self.folder, partial(_read_log, self.folder, app_id, found, before, is_given_up))
        running = _THREADS.awaited(made)
        try:
            done, _ = await asyncio.wait({running}, timeout=WHOLE_S)
            if not done:
                what = "it was not begun" if made.began_s is None else "its reading has not ended"
                raise LogRefusedError(f"{what} within {duration(WHOLE_S * 1000)}")
            running.result()
        except (LogRefusedError, OSError) as error:
            reason = error.reason if isinstance(error, LogRefusedError) else str(error.strerror)
            raise LogFailedError(f"the event log {app_id} cannot be read: {reason}") from None
        finally:
            if not running.done():
                # Its result is not asked for any more. A call that has not begun never begins.
                is_given_up.set()
                running.cancel()
                self._given_up[app_id] = made
            self.cost.response_bytes += found.packed_bytes


def _logs(folder: Path) -> _Listed:
    """Return the logs that count most: those that are still written, then the newest. Of the others the times."""
    listed = _Listed()
    listed.attempts = heapq.nsmallest(
        LISTED_MAX, _each(folder, listed), key=lambda a: (a.ended_at is not None, -a.updated_ms)
    )
    return listed


def _each(folder: Path, listed: _Listed) -> Iterator[Attempt]:
    """Yield each log of the folder, and count in ``listed`` what cannot be read."""
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                attempt = _log_of(entry)
            except FileNotFoundError:
                # A log gets another name when its application ends. It is then looked up by its id.
                continue
            except (LogRefusedError, OSError) as error:
                reason = error.reason if isinstance(error, LogRefusedError) else error.strerror
                listed.unreadable_count += 1
                listed.unreadable = listed.unreadable or f"{clean(entry.name, length_max=100)}: {reason}"
                continue
            if attempt is not None:
                if attempt.ended_at is None:
                    listed.open_count += 1
                else:
                    listed.times_ms.append(attempt.updated_ms)
                yield attempt


def _log_of(entry: os.DirEntry[str]) -> Attempt | None:
    """Return the log that an entry of the folder is; None if it is none."""
    if entry.is_file(follow_symlinks=False) and index_of(entry.name) is not None:
        status = entry.stat(follow_symlinks=False)
        return attempt_of(id_of(entry.name), round(1000 * status.st_mtime), is_open=entry.name.endswith(OPEN))
    if entry.is_dir(follow_symlinks=False) and entry.name.startswith(ROLLING):
        names = os.listdir(entry.path)
        times = [os.lstat(os.path.join(entry.path, name)).st_mtime for name in names]
        is_open = any(name.endswith(OPEN) for name in names)
        if times:
            return attempt_of(entry.name.removeprefix(ROLLING), round(1000 * max(times)), is_open=is_open)
    return None


def is_dated(updated_ms: int) -> bool:
    """Return whether a time in ms since the epoch is one that a calendar has. File systems keep any of 64 bits."""
    return _FIRST_MS <= updated_ms < _LAST_MS


def attempt_of(app_id: str, updated_ms: int, *, is_open: bool) -> Attempt:
    """Return a log as an attempt of its application. One that is still written is that of a running application.

    Raises:
        LogRefusedError: its time is not ``is_dated``.
    """
    if not is_dated(updated_ms):
        raise LogRefusedError(UNDATED)
    at = from_epoch_ms(updated_ms)
    return Attempt(app_id, None, app_id, at, None if is_open else at, updated_ms, is_named=False)


def id_of(name: str) -> str:
    """Return the id of the application whose log is the file ``name``."""
    base = name.removesuffix(OPEN)
    for codec in CODECS:
        base = base.removesuffix(codec)
    return base


def _read_log(
    folder: Path, app_id: str, found: LogRead, before: Mapping[int, int], is_given_up: threading.Event
) -> None:
    files = sorted(_files(folder, app_id))
    found.begins |= {index for index, _ in files[:1]}
    for index, path in files:
        if not is_finished(path.name, index, before):
            _read_one(path, found, index, before.get(index, 0), is_given_up)


def _files(folder: Path, app_id: str) -> Iterator[tuple[int, Path]]:
    rolling = folder / f"{ROLLING}{app_id}"
    if rolling.is_dir():
        for path in rolling.iterdir():
            index = index_of(path.name)
            if index is not None:
                yield index, path
        return
    # The name changes when the application ends.
    for codec in ("", *CODECS):
        for suffix in ("", OPEN):
            path = folder / f"{app_id}{codec}{suffix}"
            if path.exists():
                yield 0, path
                return


def _read_one(path: Path, found: LogRead, index: int, skip: int, is_given_up: threading.Event) -> None:
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise LogRefusedError("it is no regular file")
        is_plain = file.read(1) == b"{"
        begin = skip if is_plain else 0
        file.seek(begin)

        def read(size: int) -> bytes:
            piece = file.read(size)
            if is_given_up.is_set():
                # What was read by then was taken over already.
                raise LogRefusedError("its reading was given up")
            found.packed_bytes += len(piece)
            return piece

        read_file(read, found, index, skip, begin=begin, is_compacted=is_compacted(path.name))
