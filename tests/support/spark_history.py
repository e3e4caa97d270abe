"""History servers of Spark for tests. They answer as the recorded servers of 3.5.9 and 4.3.0 do.

The recordings in ``tests/contract/recordings_spark_history`` have the events of the queries of two real applications,
and a few events of their tasks. Paths of the machine that ran them were replaced.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pyarrow

from backend.domain.clock import from_epoch_ms

FOLDER = Path(__file__).resolve().parents[1] / "contract" / "recordings_spark_history"
STARTED_MS = 1_796_034_132_104
"""The start of the recorded application of 4.3.0."""


class Unseekable(io.RawIOBase):
    """Collects what is written. A zip that is written into it has the sizes after the data, as Java writes them."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.parts.append(bytes(data))
        return len(data)


def zipped(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a zip of the files, as a history server sends it."""
    to = Unseekable()
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:  # type: ignore[call-overload]
        for name, content in files:
            archive.writestr(name, content)
    return b"".join(to.parts)


def zstd(content: bytes) -> bytes:
    """Return the content as a file of Spark 4."""
    return bytes(pyarrow.compress(content, codec="zstd", asbytes=True))


def recorded(version: str = "43") -> list[dict[str, Any]]:
    """Return the recorded events of an application."""
    lines = gzip.decompress((FOLDER / f"log_{version}.jsonl.gz").read_bytes()).splitlines()
    return [orjson.loads(line) for line in lines]


def text_of(events: Iterable[dict[str, Any]]) -> bytes:
    """Return events as the lines of a log."""
    return b"".join(orjson.dumps(event) + b"\n" for event in events)


def batch_of(event: dict[str, Any]) -> int:
    """Return the number of the micro-batch that an event reports; -1 if it reports none."""
    return int(event.get("progress", {}).get("batchId", -1))


def query_lines(*numbers: int) -> bytes:
    """Return the events of the windowed query with these batches, as the lines of a log; -1 names those without one."""
    events = [e for e in recorded() if "windowed" in str(e) or "Log" in e["Event"] or "Application" in e["Event"]]
    return text_of(e for e in events if batch_of(e) in numbers)


@dataclass
class Application:
    """One application of a history server. ``files`` are its log, ``updated_ms`` is when the server saw it grow."""

    id: str = "local-1796034137932"
    name: str = "orders-app"
    files: Sequence[tuple[str, bytes]] = ()
    started_ms: int = STARTED_MS
    ended_ms: int | None = None
    updated_ms: int = STARTED_MS + 10_000
    attempt: str | None = None
    archive: bytes | None = None
    """The bytes of the zip, if they are not those of ``files``."""

    def listed(self) -> dict[str, Any]:
        """Return the entry in the list."""
        entry = {
            "startTimeEpoch": self.started_ms,
            "endTimeEpoch": -1 if self.ended_ms is None else self.ended_ms,
            "lastUpdatedEpoch": self.updated_ms,
            "duration": 0,
            "sparkUser": "root",
            "completed": self.ended_ms is not None,
            "appSparkVersion": "4.3.0",
            "logSourceName": "file:///srv/events",
        }
        if self.attempt is not None:
            entry["attemptId"] = self.attempt
        return {"id": self.id, "name": self.name, "attempts": [entry]}

    @property
    def path(self) -> str:
        """The path of its log."""
        attempt = "" if self.attempt is None else f"/{self.attempt}"
        return f"/api/v1/applications/{self.id}{attempt}/logs"


@dataclass
class HistoryServer:
    """What a history server answers. ``asked`` has the path and the number of bytes of each answer."""

    apps: list[Application] = field(default_factory=list)
    version: str = "4.3.0"
    asked: list[tuple[str, int]] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, bytes]:
        """Return the status and the body of the answer to a path with its query."""
        status, body = self._answer(path.partition("?")[0])
        self.asked.append((path, len(body)))
        return status, body

    def _answer(self, path: str) -> tuple[int, bytes]:
        if path == "/api/v1/version":
            return 200, orjson.dumps({"spark": self.version})
        if path == "/api/v1/applications":
            return 200, orjson.dumps([app.listed() for app in self.apps])
        for app in self.apps:
            if path == app.path:
                return 200, zipped(app.files) if app.archive is None else app.archive
            if path == f"/api/v1/applications/{app.id}":
                return 200, orjson.dumps(app.listed())
        return 404, b"no such app"


class HistorySource:
    """A target for the collector contract: a running application of which more and more batches are in the log."""

    prefix = ""

    def __init__(self) -> None:
        self.app = Application()
        self.server = HistoryServer([self.app])
        self._batch = 2
        self._written = [e for e in self._all() if batch_of(e) <= self._batch]
        self._write()

    @property
    def now(self) -> datetime:
        return from_epoch_ms(self.app.updated_ms) + timedelta(seconds=1)

    def advance(self) -> None:
        self._batch += 1
        self._written += [e for e in self._all() if batch_of(e) == self._batch]
        self.app.updated_ms += 2000
        self._write()

    @staticmethod
    def _all() -> list[dict[str, Any]]:
        return [e for e in recorded() if not (e["Event"].endswith("QueryTerminatedEvent") and not e.get("exception"))]

    def _write(self) -> None:
        folder = f"eventlog_v2_{self.app.id}"
        self.app.files = [
            (f"{folder}/", b""),
            (f"{folder}/appstatus_{self.app.id}.inprogress", b""),
            (f"{folder}/events_1_{self.app.id}.zstd", zstd(text_of(self._written))),
        ]

    async def answer(self, path: str) -> tuple[int, bytes]:
        return self.server.answer(path)
