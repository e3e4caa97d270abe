"""A folder of event logs in HDFS, read by its REST (WebHDFS) with the HTTP client of the other targets.

The NameNode lists folders and names the DataNode that has a file; it is asked not to redirect (``noredirect``, since
Hadoop 2.9). Whoever controls the NameNode chooses that address, so it is checked: credentials never go to another host
than that of the target, and an address of this machine, of its network segment or of its cloud account is refused
unless it is the target's own. HDFS knows neither size nor time of a file while it is written. So if such a file was
read, a poll asks for the byte after it: two requests.

Source: "WebHDFS REST API" of Hadoop 3.4, operations LISTSTATUS, LISTSTATUS_BATCH and OPEN.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final
from urllib.parse import quote, urlsplit

from yarl import URL

from backend.domain.address_rules import AddressRules
from backend.domain.clock import to_epoch_ms
from backend.domain.connection import ConnectionOptions, Reach
from backend.domain.errors import TargetProtocolError, UpstreamError
from backend.domain.text import clean
from collectors.flink.client import AiohttpTransport, open_transport
from collectors.flink.document import Document, read
from collectors.spark.arriving import WAIT_S, AsyncRead
from collectors.spark.log_folder import OPEN, ROLLING
from collectors.spark.log_source import Cost
from collectors.spark.log_stream import index_of
from collectors.spark.remote_files import FILES_MAX, Listing, RemoteFile
from collectors.wall_clock import WallClock

ENGINE: Final = "HDFS"
_ROOT: Final = "/webhdfs/v1"
_NAME_MAX: Final = 500
_LOCATION_MAX: Final = 8000
_AT_ONCE: Final = 8
_FOLDERS_MAX: Final = 2_000
"""So many rolling logs are listed at most in one poll, and for so many seconds."""
_LIST_S: Final = 20.0
_CHECKED_MAX: Final = 100
"""So many files that are still written are asked for new bytes in one poll."""
_CHECK_S: Final = 5.0
_ACCEPT: Final = "application/octet-stream"
_MISSING: Final = 404
_REFUSED: Final = 403
_OUT_OF_RANGE: Final = 416
_AFTER_END: Final = re.compile(r"out of (the )?range|seek after EOF", re.IGNORECASE)


@dataclass(slots=True)
class _Grown:
    """How far a file that is still written was read, and when a byte after that was seen."""

    end: int
    at_ms: int | None = None
    asked: int = 0


@dataclass(frozen=True, slots=True)
class _Rolling:
    """A rolling log as it was listed in the round ``asked``. ``is_open`` is whether its application still writes."""

    changed_ms: int
    files: tuple[RemoteFile, ...]
    is_open: bool
    asked: int


@dataclass(slots=True)
class WebHdfsFiles:
    """Implements ``RemoteFiles``."""

    url: str
    transport: AiohttpTransport
    reach: Reach
    timeout_s: float
    cost: Cost = field(default_factory=Cost)
    _rolling: dict[str, _Rolling] = field(default_factory=dict)
    _grown: dict[str, _Grown] = field(default_factory=dict)
    _round: int = 0
    _is_batched: bool = False

    @property
    def clock_ahead(self) -> timedelta:
        """By how much the NameNode's clock is ahead of ours."""
        return self.transport.clock_ahead or timedelta(0)

    async def listed(self) -> Listing:
        """List the folder and the rolling logs in it; see ``RemoteFiles``."""
        files, folders = [], []
        for entry in await self._entries(""):
            if entry.is_folder and entry.file.path.startswith(ROLLING):
                folders.append(entry.file)
            elif not entry.is_folder:
                files.append(entry.file)
        problems: list[str] = []
        waiting_count = await self._list_rolling(folders, problems)
        # The files of running applications are not among those that the limit leaves out.
        known = sorted(self._rolling.values(), key=lambda r: (not r.is_open, -r.changed_ms))
        files.sort(key=lambda f: (not f.path.endswith(OPEN), -f.changed_ms))
        kept = [
            *(f for r in known if r.is_open for f in r.files),
            *files,
            *(f for r in known if not r.is_open for f in r.files),
        ]
        grown = await self._with_growth(kept[:FILES_MAX])
        return Listing(tuple(grown), len(kept) > FILES_MAX, len(problems), next(iter(problems), None), waiting_count)

    async def _list_rolling(self, folders: list[RemoteFile], problems: list[str]) -> int:
        """List the rolling logs that may have changed, those of running applications first, the others newest first.

        Return how many were never listed: a poll lists ``_FOLDERS_MAX``, and the next polls list the others.
        """
        known = {f.path: f for f in folders}
        self._rolling = {path: r for path, r in self._rolling.items() if path in known}
        self._round += 1

        def order(folder: RemoteFile) -> tuple[bool, int, int]:
            before = self._rolling.get(folder.path)
            return before is None or not before.is_open, 0 if before is None else before.asked, -folder.changed_ms

        def may_have_changed(folder: RemoteFile) -> bool:
            before = self._rolling.get(folder.path)
            return before is None or before.is_open or before.changed_ms != folder.changed_ms

        end_s = time.monotonic() + _LIST_S
        wanted = sorted(filter(may_have_changed, folders), key=order)[:_FOLDERS_MAX]
        for at in range(0, len(wanted), _AT_ONCE):
            await asyncio.gather(*(self._list_one(f, problems) for f in wanted[at : at + _AT_ONCE]))
            if time.monotonic() >= end_s:
                break
        return sum(path not in self._rolling for path in known)

    async def _list_one(self, folder: RemoteFile, problems: list[str]) -> None:
        """List a rolling log. One that cannot be listed keeps the files that it had."""
        try:
            entries = await self._entries(folder.path)
        except TargetProtocolError as error:
            if error.status == _MISSING:
                self._rolling.pop(folder.path, None)
                return
            problems.append(f"{clean(folder.path, length_max=100)}: {error.reason}")
            before = self._rolling.get(folder.path, _Rolling(-1, (), is_open=False, asked=0))
            self._rolling[folder.path] = replace(before, asked=self._round)
            return
        files = tuple(e.file for e in entries if not e.is_folder)
        is_open = any(f.path.endswith(OPEN) for f in files)
        if is_open:
            # HDFS does not know how long the newest file is.
            newest = max((index_of(f.path) or 0 for f in files), default=0)
            files = tuple(replace(f, size=None) if index_of(f.path) == newest else f for f in files)
        self._rolling[folder.path] = _Rolling(folder.changed_ms, files, is_open=is_open, asked=self._round)

    async def _entries(self, path: str) -> list[_Entry]:
        before = f"{path}/" if path else ""
        if not path and self._is_batched:
            return await self._batched()
        try:
            document = await self._asked(path, "LISTSTATUS")
        except TargetProtocolError as error:
            if path or error.status is not None:
                raise
            # The list of a large folder is larger than an answer may be. It comes in batches as well.
            try:
                entries = await self._batched()
            except TargetProtocolError:
                raise error from None
            self._is_batched = True
            return entries
        return [_entry(found, before) for found in document.get("FileStatuses").get("FileStatus").items()]

    async def _batched(self) -> list[_Entry]:
        """List the folder in batches, of 1,000 entries if HDFS is not set otherwise, ``FILES_MAX`` entries at most."""
        entries: list[_Entry] = []
        more = ""
        while len(entries) < FILES_MAX:
            listing = (await self._asked("", "LISTSTATUS_BATCH", more)).get("DirectoryListing")
            found = listing.get("partialListing").get("FileStatuses").get("FileStatus").items()
            batch = [_entry(status, "") for status in found]
            entries += batch
            if not batch or not listing.get("remainingEntries").count():
                break
            more = f"&startAfter={quote(batch[-1].file.path, safe='')}"
        return entries

    async def _with_growth(self, files: Iterable[RemoteFile]) -> list[RemoteFile]:
        """Return the files, those that are still written with the time at which they were seen to have grown."""
        files = list(files)
        is_open = {f.path for f in files if f.size is None and index_of(f.path) is not None}
        self._grown = {path: g for path, g in self._grown.items() if path in is_open}
        due = sorted((g.asked, path) for path, g in self._grown.items() if g.at_ms is None)
        try:
            async with asyncio.timeout(_CHECK_S):
                for _, path in due[:_CHECKED_MAX]:
                    await self._check(path, self._grown[path])
        except TimeoutError:
            pass
        times = {path: g.at_ms for path, g in self._grown.items() if g.at_ms is not None}
        return [replace(f, changed_ms=max(f.changed_ms, times.get(f.path, 0))) for f in files]

    async def _check(self, path: str, grown: _Grown) -> None:
        grown.asked = self._round
        try:
            async with self._stream(path, grown.end, length=1) as read:
                has_more = bool(await read(1))
        except UpstreamError:
            # There is no byte, the file has another name now, or the DataNode is away. The next list shows it.
            return
        if has_more:
            grown.at_ms = to_epoch_ms(WallClock().now() + self.clock_ahead)

    @asynccontextmanager
    async def opened(self, file: RemoteFile, begin: int) -> AsyncIterator[AsyncRead]:
        """Open a file at a position; see ``RemoteFiles``. The end of one that is still written is no error."""
        at = begin

        async def nothing(size: int) -> bytes:
            return b""

        try:
            opened = self._stream(file.path, begin)
            read = await opened.__aenter__()
        except TargetProtocolError as error:
            if file.size is not None or not begin or not _is_after_end(error):
                raise
            # The next byte is asked for again: without that, the file would never be due any more.
            self._grown[file.path] = _Grown(begin)
            yield nothing
            return
        try:

            async def counted(size: int) -> bytes:
                nonlocal at
                piece = await read(size)
                at += len(piece)
                return piece

            yield counted
        finally:
            await opened.__aexit__(None, None, None)
            if file.size is None:
                self._grown[file.path] = _Grown(at)

    @asynccontextmanager
    async def _stream(self, path: str, begin: int, *, length: int | None = None) -> AsyncIterator[AsyncRead]:
        more = "" if length is None else f"&length={length}"
        document = await self._asked(path, "OPEN", f"&offset={begin}{more}&noredirect=true")
        location = document.get("Location").text(length_max=_LOCATION_MAX)
        root, tail, reach = self._data_node(location)
        self.cost.request_count += 1
        async with (
            open_transport(root, timeout_s=self.timeout_s, reach=reach, engine=ENGINE) as transport,
            transport.stream(tail, accept=_ACCEPT, wait_s=WAIT_S) as read,
        ):
            yield read

    def _data_node(self, location: str) -> tuple[str, str, Reach]:
        """Return the root and the path of what the NameNode has named, and how it may be reached.

        Raises:
            TargetProtocolError: it is no address of WebHDFS.
        """
        own = urlsplit(self.transport.url)
        try:
            url = URL(location, encoded=True)
            host, port = url.raw_host, url.port
        except ValueError:
            host = port = None
        if host is None or port is None or url.scheme not in ("http", "https") or not url.raw_path.startswith(_ROOT):
            raise TargetProtocolError(url=self.url, reason="the NameNode names a place that is no address of WebHDFS")
        if own.scheme == "https" and url.scheme != "https":
            raise TargetProtocolError(url=self.url, reason="the NameNode names a DataNode without TLS")
        shown = f"[{host}]" if ":" in host else host
        root, tail = f"{url.scheme}://{shown}:{port}", url.raw_path_qs
        if (host, port, url.scheme) == (own.hostname, own.port, own.scheme):
            return root, tail, self.reach
        proxy = self.reach.options.proxy
        options = ConnectionOptions(
            ca=self.reach.options.ca,
            certificate=self.reach.options.certificate,
            key=self.reach.options.key,
            proxy=proxy,
        )
        if url.scheme == "http":
            options = ConnectionOptions(proxy=proxy)
        rules = self.reach.rules
        if host != own.hostname and rules.is_everything_allowed:
            # A wide network does not contain the special addresses.
            named = () if _is_address(host) else (host,)
            rules = AddressRules(is_everything_allowed=False, allowed=(*named, "0.0.0.0/0", "::/0"))
            if proxy is not None:
                # The proxy connects to the DataNode, and this process only to the proxy, which may be on this machine.
                if not rules.allows_host(host):
                    raise TargetProtocolError(url=self.url, reason=f"the DataNode's host {host} is not allowed here")
                rules = replace(rules, allowed=(*rules.allowed, URL(proxy.url).raw_host or ""))
        return root, tail, replace(self.reach, options=options, rules=rules)

    async def _asked(self, path: str, operation: str, more: str = "") -> Document:
        parts = urlsplit(self.url)
        whole = f"{parts.path}/{path}".rstrip("/") or "/"
        user = "" if parts.username is None else f"&user.name={quote(parts.username, safe='')}"
        self.cost.request_count += 1
        body = await self.transport.get(f"{quote(whole)}?op={operation}{more}{user}")
        self.cost.response_bytes += len(body)
        return read(body, url=self.transport.url + quote(whole))


@dataclass(frozen=True, slots=True)
class _Entry:
    file: RemoteFile
    is_folder: bool


def _entry(found: Document, before: str) -> _Entry:
    name = found.get("pathSuffix").text(length_max=_NAME_MAX)
    if not name:
        raise found.get("pathSuffix").fail("is empty, because the address is that of a file and not of a folder")
    if "/" in name or name in (".", ".."):
        raise found.get("pathSuffix").fail("is no name of a file")
    is_folder = found.get("type").text(length_max=20) == "DIRECTORY"
    is_open = name.endswith(OPEN) and index_of(name) is not None
    size = None if is_open or is_folder else found.get("length").count()
    return _Entry(RemoteFile(before + name, size, found.get("modificationTime").whole()), is_folder)


def _is_after_end(error: TargetProtocolError) -> bool:
    """Return whether the NameNode or the DataNode says that the file ends before the offset.

    The status alone does not show it: Hadoop answers 403 also to a user who may not read the file.
    """
    return error.status == _OUT_OF_RANGE or (error.status == _REFUSED and _AFTER_END.search(error.reason) is not None)


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


@asynccontextmanager
async def open_webhdfs(url: str, *, timeout_s: float, reach: Reach) -> AsyncIterator[WebHdfsFiles]:
    """Open the folder at a normalised address ``webhdfs://`` or ``swebhdfs://``; see ``open_transport``."""
    parts = urlsplit(url)
    scheme = "https" if parts.scheme == "swebhdfs" else "http"
    root = f"{scheme}://{parts.netloc.rpartition('@')[2]}{_ROOT}"
    async with open_transport(root, timeout_s=timeout_s, reach=reach, engine=ENGINE) as transport:
        yield WebHdfsFiles(url, transport, reach, timeout_s)
