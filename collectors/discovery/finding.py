"""Finds the targets of a section: the port, and the finders that read lists of Prometheus.

A finder never touches the store. It notes what it finds or why it finds nothing, as often as it likes; the section
brings the newest note into the store.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import orjson
import yaml

from backend.contracts.yaml_lines import ExcessError, loaded
from backend.domain.cluster_history import News
from backend.domain.connection import Reach
from backend.domain.discovery import FileSd, Found, HttpSd
from backend.domain.errors import InvalidInputError, TargetProtocolError, TargetUnavailableError
from backend.domain.target import TargetOrigin
from collectors.base import Pause
from collectors.discovery.groups import AllowedHosts, ListError, found_in
from collectors.flink.client import open_transport

LIST_MAX_BYTES: Final = 8 * 2**20
_FILES_MAX: Final = 1_000
_LOOK_S: Final = 2.0
_TIMEOUT_S: Final = 10.0
_RETRY_S: Final = 30.0

_Signature = tuple[tuple[str, int, int, int], ...]


class Notes(Protocol):
    """Where a finder notes what it finds. The methods return at once."""

    def found(self, found: Found) -> None: ...

    def failed(self, problem: str) -> None: ...

    def happened(self, news: Sequence[News]) -> None: ...

    def lacks(self, problem: str | None) -> None: ...


class Finder(Protocol):
    """Finds the targets of one section until ``stop`` is set."""

    async def run(self, notes: Notes, stop: asyncio.Event) -> None: ...


class FileFinder:
    """Reads files. They are looked at every 2 s, and read when one of them changes."""

    def __init__(self, section: FileSd, limits: Reach, *, pause: Pause) -> None:
        self._section = section
        self._hosts = AllowedHosts(section.allowed, limits.rules)
        self._pause = pause
        self._read: _Signature | None = None

    async def run(self, notes: Notes, stop: asyncio.Event) -> None:
        """Look at the files until ``stop`` is set."""
        while not stop.is_set():
            await asyncio.to_thread(self.look, notes)
            await self._pause(_LOOK_S, stop)

    def look(self, notes: Notes) -> None:
        """Look at the files once, and read them if one has changed."""
        try:
            signature = self._signature()
            if signature == self._read:
                return
            notes.found(self._found([Path(path) for path, *_ in signature]))
            self._read = signature
        except ListError as error:
            # A file that comes back unchanged is read again, and so ends the problem.
            self._read = None
            notes.failed(error.reason)

    def _signature(self) -> _Signature:
        found: list[tuple[str, int, int, int]] = []
        for pattern in self._section.patterns:
            paths = _matching(Path(pattern))
            if not paths:
                raise ListError(f"{pattern}: there is no such file; for no targets, write a file with []")
            found += [_looked_at(path) for path in paths]
        if len(found) > _FILES_MAX:
            raise ListError(f"{self._section.place}: there are more than {_FILES_MAX} files")
        return tuple(found)

    def _found(self, paths: Sequence[Path]) -> Found:
        documents = []
        for path in paths:
            try:
                document = _read_list(path)
                found_in([document], self._section.template, self._hosts)
            except ListError as error:
                raise ListError(f"{path}: {error.reason}") from None
            documents.append(document)
        return found_in(documents, self._section.template, self._hosts)


class HttpFinder:
    """Asks a server every ``every_s`` seconds. Redirects are not followed."""

    def __init__(self, section: HttpSd, limits: Reach, *, pause: Pause) -> None:
        self._section = section
        self._hosts = AllowedHosts(section.allowed, limits.rules)
        # The operator named the server and its credentials, so nothing is refused.
        self._reach = limits.towards(section.connection, TargetOrigin.CONFIGURATION)
        self._pause = pause

    async def run(self, notes: Notes, stop: asyncio.Event) -> None:
        """Ask until ``stop`` is set."""
        while not stop.is_set():
            is_good = await self.ask(notes)
            every_s = self._section.every_s
            await self._pause(every_s if is_good else min(every_s, _RETRY_S), stop)

    async def ask(self, notes: Notes) -> bool:
        """Ask once. Return whether the answer is a list."""
        parts = urlsplit(self._section.url)
        path = (parts.path or "/") + (f"?{self._section.query}" if self._section.query else "")
        try:
            origin = f"{parts.scheme}://{parts.netloc}"
            async with open_transport(origin, timeout_s=_TIMEOUT_S, reach=self._reach) as transport:
                body = await transport.get(path)
            notes.found(await asyncio.to_thread(self._found, body))
        except (TargetUnavailableError, TargetProtocolError, InvalidInputError) as error:
            # The transport is made for Flink. The server of a list is another program.
            notes.failed(str(error).replace("Flink's JSON", "a list in JSON").replace("Flink", "the server"))
            return False
        except ListError as error:
            notes.failed(f"{self._section.place}: {error.reason}")
            return False
        return True

    def _found(self, body: bytes) -> Found:
        return found_in([_json(body)], self._section.template, self._hosts)


def _matching(pattern: Path) -> list[Path]:
    if "*" not in pattern.name:
        return [pattern] if pattern.exists() else []
    try:
        names = sorted(name for name in os.listdir(pattern.parent) if fnmatchcase(name, pattern.name))
    except OSError:
        return []
    return [pattern.parent / name for name in names]


def _looked_at(path: Path) -> tuple[str, int, int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise ListError(f"{path}: cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(found.st_mode):
        raise ListError(f"{path}: is not a regular file")
    return str(path), found.st_ino, found.st_size, found.st_mtime_ns


def _read_list(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            content = file.read(LIST_MAX_BYTES + 1)
    except OSError as error:
        raise ListError(f"cannot be read ({error.strerror})") from None
    if len(content) > LIST_MAX_BYTES:
        raise ListError(f"is larger than {LIST_MAX_BYTES // 2**20} MiB")
    return _json(content) if path.suffix == ".json" else _yaml(content)


def _json(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        raise ListError("is not JSON") from None


def _yaml(content: bytes) -> Any:
    try:
        return loaded(content)
    except ExcessError as error:
        raise ListError(str(error)) from None
    except (yaml.YAMLError, ValueError):
        raise ListError("is not YAML") from None
