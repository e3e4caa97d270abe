"""A small NameNode and DataNode that speak WebHDFS, written after "WebHDFS REST API" of Hadoop 3.4.

No HDFS runs here, so this stands for one. As in HDFS, the NameNode knows neither size nor time of a file while it is
written: its length is that of its finished blocks, here 0. ``noredirect`` makes the NameNode answer with the address of
the DataNode.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

ROOT = "/spark-events"


@dataclass
class _File:
    content: bytes
    changed_ms: int
    is_open: bool


@dataclass
class FakeHdfs:
    """The files of the folder by their relative path. ``sent_bytes`` is what DataNodes sent."""

    port: int = 0
    files: dict[str, _File] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    sent_bytes: int = 0
    location: str = ""
    opening: tuple[int, str, str] | None = None
    """The status, the exception and the message with which the NameNode refuses OPEN."""
    batch_size: int | None = None
    """So many entries has a batch of a folder whose list is too large, 0 if the server has no batches."""
    unlisted: tuple[int, str, str] | None = None
    """The same for the lists of the folders in the folder."""

    @property
    def url(self) -> str:
        return f"webhdfs://spark@127.0.0.1:{self.port}{ROOT}"

    def write(self, name: str, content: bytes) -> None:
        """Write a file; one with ``.inprogress`` in its name stays open, and so does the newest of an open log."""
        now_ms = round(1000 * time.time())
        folder = name.rpartition("/")[0]
        status = [n for n in self.files if n.startswith(f"{folder}/appstatus") and n.endswith(".inprogress")]
        is_open = name.endswith(".inprogress") or bool(folder and status and "/events_" in name)
        known = self.files.get(name)
        changed_ms = known.changed_ms if known is not None and is_open and known.is_open else now_ms
        if folder and known is None:
            self.folders[folder] = max(now_ms, self.folders.get(folder, 0) + 1)
        self.files[name] = _File(content, changed_ms, is_open)

    def remove(self, name: str) -> None:
        del self.files[name]
        folder = name.rpartition("/")[0]
        if folder:
            self.folders[folder] += 1
            for other, file in self.files.items():
                file.is_open &= not other.startswith(f"{folder}/")

    async def name_node(self, request: web.Request) -> web.Response:
        operation, path = request.query["op"], request.path.removeprefix("/webhdfs/v1").removeprefix(ROOT).strip("/")
        self.asked.append(f"{operation} {path}")
        self.headers.append(dict(request.headers))
        if request.query.get("user.name") != "spark":
            return _refused(403, "AccessControlException", "Permission denied")
        if operation == "LISTSTATUS" and path and self.unlisted is not None:
            return _refused(*self.unlisted)
        if operation == "LISTSTATUS_BATCH" and self.batch_size:
            return self._batch(request.query.get("startAfter", ""), self.batch_size)
        if operation == "LISTSTATUS":
            return self._list(path)
        if operation != "OPEN":
            return _refused(400, "IllegalArgumentException", f"Invalid value for webhdfs parameter op: {operation}")
        if self.opening is not None:
            return _refused(*self.opening)
        file = self.files.get(path)
        if file is None:
            return _refused(404, "FileNotFoundException", f"File {path} not found.")
        length, offset = 0 if file.is_open else len(file.content), int(request.query["offset"])
        if length and offset >= length:
            return _refused(403, "IOException", f"Offset={offset} out of the range [0, {length})")
        tail = f"/webhdfs/v1{ROOT}/{path}?op=OPEN&offset={offset}&namenoderpcaddress=nn:8020"
        if "length" in request.query:
            tail += f"&length={request.query['length']}"
        place = self.location or f"http://127.0.0.1:{self.data_port}"
        assert request.query["noredirect"] == "true"
        return web.json_response({"Location": place + tail})

    data_port: int = 0

    def _list(self, path: str) -> web.Response:
        if not path and self.batch_size is not None:
            return web.Response(body=b" " * (9 * 2**20), content_type="application/json")
        if path in self.files:
            file = self.files[path]
            return web.json_response(
                {"FileStatuses": {"FileStatus": [_status("", "FILE", len(file.content), file.changed_ms)]}}
            )
        if path and path not in self.folders:
            return _refused(404, "FileNotFoundException", f"File {path} does not exist.")
        found: list[dict[str, Any]] = []
        before = f"{path}/" if path else ""
        for name, file in self.files.items():
            if name.startswith(before) and "/" not in name.removeprefix(before):
                length = 0 if file.is_open else len(file.content)
                found.append(_status(name.removeprefix(before), "FILE", length, file.changed_ms))
        if not path:
            found += [_status(name, "DIRECTORY", 0, at_ms) for name, at_ms in self.folders.items()]
        return web.json_response({"FileStatuses": {"FileStatus": found}})

    def _batch(self, after: str, size: int) -> web.Response:
        found = [_status(n, "FILE", len(f.content), f.changed_ms) for n, f in sorted(self.files.items()) if n > after]
        listing = {"FileStatuses": {"FileStatus": found[:size]}}
        left = max(0, len(found) - size)
        return web.json_response({"DirectoryListing": {"partialListing": listing, "remainingEntries": left}})

    async def data_node(self, request: web.Request) -> web.Response:
        path = request.path.removeprefix("/webhdfs/v1").removeprefix(ROOT).strip("/")
        self.asked.append(f"READ {path} {request.query['offset']}")
        self.headers.append(dict(request.headers))
        content, offset = self.files[path].content, int(request.query["offset"])
        if offset > len(content):
            return _refused(403, "IOException", "Cannot seek after EOF")
        length = int(request.query.get("length", len(content)))
        body = content[offset : offset + length]
        self.sent_bytes += len(body)
        return web.Response(body=body, content_type="application/octet-stream")


def _status(name: str, kind: str, length: int, at_ms: int) -> dict[str, Any]:
    return {"pathSuffix": name, "type": kind, "length": length, "modificationTime": at_ms, "permission": "660"}


def _refused(status: int, kind: str, message: str) -> web.Response:
    return web.json_response({"RemoteException": {"exception": kind, "message": message}}, status=status)


@asynccontextmanager
async def running_hdfs() -> AsyncIterator[FakeHdfs]:
    """Run a NameNode and a DataNode on two ports of this machine."""
    hdfs = FakeHdfs()
    names, data = web.Application(), web.Application()
    names.router.add_get("/webhdfs/v1/{path:.*}", hdfs.name_node)
    data.router.add_get("/webhdfs/v1/{path:.*}", hdfs.data_node)
    async with TestServer(names, host="127.0.0.1") as first, TestServer(data, host="127.0.0.1") as second:
        assert first.port is not None
        assert second.port is not None
        hdfs.port, hdfs.data_port = first.port, second.port
        yield hdfs
