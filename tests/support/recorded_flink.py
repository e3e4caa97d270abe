"""Play back a recording of Flink as a ``FlinkTransport`` in virtual time, or as a real HTTP server.

The response to a path is the last one that was recorded at or before the virtual time. A path that was never recorded
gets a 404. The recorder requested other sets of metrics than a collector, and did not use ``maxExceptions``. So a
metric is looked up by name in all recorded metric queries, and ``maxExceptions`` is ignored. For a store that accepts
only recent data, all recorded instants can be moved by the same amount.
"""

from __future__ import annotations

import asyncio
import bisect
import gzip
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from backend.domain.errors import TargetProtocolError
from tests.support.waiting import PATIENCE_S

RECORDINGS = Path(__file__).resolve().parent.parent / "contract" / "recordings"
NAMES = ("A", "B2", "C2", "E", "G", "H")

Answer = tuple[int, Any]

_NEAR_MS = 30 * 86_400_000


class Recording:
    """All responses of one recording, by path and in the order of time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = orjson.loads((folder / "run.json").read_bytes())
        self.times: dict[str, list[float]] = defaultdict(list)
        self.answers: dict[str, list[Answer]] = defaultdict(list)
        self.rounds: list[float] = []
        self.last_running_s = 0.0
        with gzip.open(folder / "rest.jsonl.gz") as lines:
            for line in lines:
                self._add(orjson.loads(line))
        self.end_s = max(times[-1] for times in self.times.values())

    def _add(self, row: dict[str, Any]) -> None:
        if not self.times:
            self.began_at = datetime.fromtimestamp(row["t"] - row["dt"], UTC)
            self._poll = row["poll"]
        if row["poll"] != self._poll:
            # A new poll number ends the previous round: all requests of that round were answered by now.
            self.rounds.append(row["dt"] - 0.001)
            self._poll = row["poll"]
        if row["phase"] == "run":
            self.last_running_s = row["dt"]
        answered_s = row["dt"] + row["ms"] / 1000
        times = self.times[row["path"]]
        times.append(max([answered_s, *times[-1:]]))
        self.answers[row["path"]].append((row["status"], self._only_own(row["path"], row["body"])))

    def _only_own(self, path: str, body: Any) -> Any:
        """Leave out of the list the jobs that ran beside the recorded one, because nothing more of them was recorded.

        Jobs that had ended before stay.
        """
        if path != "/jobs/overview" or not isinstance(body, dict) or "job_id" not in self.run:
            return body
        return {"jobs": [j for j in body["jobs"] if j["jid"] == self.job_id or j["end-time"] >= 0]}

    @property
    def begins_s(self) -> float:
        """The end of the first round in seconds. From then on, every path has a response."""
        return self.rounds[0]

    @property
    def job_id(self) -> str:
        return self.run["job_id"]

    def last(self, path: str, at_s: float) -> Answer | None:
        """Return the last response to exactly this path at or before ``at_s``, or None."""
        n = bisect.bisect_right(self.times.get(path, []), at_s)
        return self.answers[path][n - 1] if n else None


@cache
def recording(folder: Path) -> Recording:
    return Recording(folder)


class RecordedFlink:
    """A ``FlinkTransport`` over a recording. Move ``at_s``, the seconds since its beginning, to let time pass."""

    def __init__(self, folder: Path, at_s: float = 0.0, *, now: datetime | None = None) -> None:
        """Open the recording in ``folder``.

        If ``now`` is passed, move all recorded instants so that ``at_s`` becomes ``now``.
        """
        self.recording = recording(folder)
        self.at_s = at_s
        self._moved_ms = 0
        if now is not None:
            self._moved_ms = round((now - self.now) / timedelta(milliseconds=1))
        self.asked: list[str] = []
        self.url = f"recording://{folder.name}"

    @property
    def now(self) -> datetime:
        return self.recording.began_at + timedelta(seconds=self.at_s, milliseconds=self._moved_ms)

    def monotonic_s(self) -> float:
        return self.at_s

    async def get(self, path: str) -> bytes:
        self.asked.append(path)
        status, body = self.answer(path)
        if status != 200:
            line = str(body["errors"][0]) if isinstance(body, dict) else str(body)
            raise TargetProtocolError(url=self.url + path, reason=f"HTTP {status}: {line[:200]}", status=status)
        return orjson.dumps(body)

    def answer(self, path: str) -> Answer:
        """Return the status and the JSON body of the response at ``path``."""
        status, body = self._recorded(path)
        return status, self._moved(body) if self._moved_ms else body

    def _moved(self, body: Any) -> Any:
        if isinstance(body, dict):
            return {key: self._moved(value) for key, value in body.items()}
        if isinstance(body, list):
            return [self._moved(value) for value in body]
        if isinstance(body, int) and abs(body - self.recording.began_at.timestamp() * 1000) < _NEAR_MS:
            return body + self._moved_ms
        return body

    def _recorded(self, path: str) -> Answer:
        if len(path) > 4000:
            return 404, {"errors": ["Unable to load requested file /bad-request."]}
        bare, _, query = path.partition("?")
        if query.startswith("get="):
            return self._metrics(bare, query.removeprefix("get=").split(","))
        if bare == "/jobmanager/config":
            return 200, self._cluster_settings()
        found = self.recording.last(bare, self.at_s)
        return found or (404, {"errors": [f"Not found: {bare}"]})

    def _cluster_settings(self) -> list[dict[str, str]]:
        """Return the cluster settings in ``run.json``.

        Recorded metrics may be older than the fetch interval by one polling period of the recorder, so the period is
        added to the interval.
        """
        settings = dict(self.recording.run["cluster_settings"])
        # Without the setting, Flink fetches every 10 s.
        fetch_ms = int(settings.get("metrics.fetcher.update-interval", 10_000))
        fetch_ms += 1000 * self.recording.run["poll_seconds"]
        settings["metrics.fetcher.update-interval"] = str(round(fetch_ms))
        return [{"key": key, "value": value} for key, value in settings.items()]

    def _metrics(self, bare: str, names: list[str]) -> Answer:
        paths = [p for p in self.recording.times if p.startswith(bare + "?get=")]
        offered: dict[str, object] = {}
        is_known = False
        for path in paths:
            found = self.recording.last(path, self.at_s)
            if found is not None and found[0] == 200:
                is_known = True
                offered |= {row["id"]: row for row in found[1]}
        if not is_known:
            return 404, {"errors": [f"Not found: {bare}"]}
        return 200, [offered[name] for name in names if name in offered]


def web_app(flink: RecordedFlink) -> web.Application:
    """Return an HTTP application that plays back the recording."""

    async def handle(request: web.Request) -> web.Response:
        flink.asked.append(request.path_qs)
        status, body = flink.answer(request.path_qs)
        return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")

    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    return app


@asynccontextmanager
async def serve_app(app: web.Application) -> AsyncIterator[str]:
    """Serve any application on a free port of 127.0.0.1 and yield its root URL."""
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serve(flink: RecordedFlink) -> AsyncIterator[str]:
    """Serve a recording over HTTP and yield its root URL."""
    async with serve_app(web_app(flink)) as url:
        yield url


_served: list[RecordedFlink] = []


def let_time_pass(seconds: float) -> None:
    """Move every recording that is served in a thread."""
    for flink in _served:
        flink.at_s += seconds


@contextmanager
def served(flink: RecordedFlink) -> Iterator[str]:
    """Serve a recording as ``serve`` does, but in a thread, for synchronous callers such as the command line."""
    ready, box = threading.Event(), {}
    _served.append(flink)

    async def main() -> None:
        box["stop"] = asyncio.Event()
        box["loop"] = asyncio.get_running_loop()
        async with serve(flink) as url:
            box["url"] = url
            ready.set()
            await box["stop"].wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),), name="recorded-flink")
    thread.start()
    assert ready.wait(PATIENCE_S), "the server did not start"
    try:
        yield box["url"]
    finally:
        _served.remove(flink)
        box["loop"].call_soon_threadsafe(box["stop"].set)
        thread.join(PATIENCE_S)
