"""The port through which event logs are read from a store that is no folder of this machine."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from collectors.spark.arriving import AsyncRead
from collectors.spark.log_source import Cost

FILES_MAX: Final = 100_000
"""So many files are listed at most."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file in the folder. ``path`` is relative to the folder and has one or two parts.

    ``size`` is in bytes; None if the store does not know it while the file is written. ``changed_ms`` is on the clock
    of the store, in ms since the epoch.
    """

    path: str
    size: int | None
    changed_ms: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a folder and of the folders in it. ``is_cut`` is whether there are more than ``FILES_MAX``."""

    files: tuple[RemoteFile, ...]
    is_cut: bool = False
    unreadable_count: int = 0
    unreadable: str | None = None
    """The first entry that cannot be read, with the reason."""
    waiting_count: int = 0
    """The folders that later polls list."""
    is_partial: bool = False
    """Whether later polls go on with the list."""


class RemoteFiles(Protocol):
    """Lists and reads the files of one folder."""

    @property
    def url(self) -> str:
        """The address of the folder, without credentials."""
        ...

    @property
    def cost(self) -> Cost: ...

    @property
    def clock_ahead(self) -> timedelta:
        """By how much the clock of the store is ahead of ours, as far as its newest answer shows."""
        ...

    async def listed(self) -> Listing:
        """Return the files.

        Raises:
            TargetUnavailableError, TargetProtocolError: as ``collectors.base.Collector.collect``.
        """
        ...

    def opened(self, file: RemoteFile, begin: int) -> AbstractAsyncContextManager[AsyncRead]:
        """Open a file at the byte ``begin``. The context raises as ``listed``, also while the file is read."""
        ...
