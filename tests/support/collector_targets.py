"""Targets that collectors read over HTTP in tests. Each can advance, fail in several ways, and recover."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

import orjson
from aiohttp import web

from backend.domain.clock import from_epoch_ms, to_epoch_ms
from backend.domain.connection import PLAIN, ConnectionOptions
from backend.domain.ids import TargetId
from backend.domain.target import TargetOrigin
from backend.live.rest import PREFIX
from tests.support.live_runtime import ORIGIN_MS, LiveRuntime
from tests.support.observations import NOW
from tests.support.recorded_flink import RECORDINGS, RecordedFlink, serve_app
from tests.support.runtime_jobs import small_job


class Fault(StrEnum):
    """The ways in which a target can fail."""

    AWAY = "away"
    SLOW = "slow"
    GARBLED = "garbled"
    EMPTY = "empty"
    ERROR = "error"


class Source(Protocol):
    """The content that a target serves. ``prefix`` is the path of the target's root."""

    prefix: str

    @property
    def now(self) -> datetime:
        """The instant of the next poll."""
        ...

    def advance(self) -> None:
        """Advance the target until at least one more checkpoint has completed."""
        ...

    async def answer(self, path: str) -> tuple[int, bytes]:
        """Return the status and the body for a GET of ``path``."""
        ...


class FlinkSource:
    """A target that plays back a recording of a real Flink."""

    prefix = ""

    def __init__(self) -> None:
        self._flink = RecordedFlink(RECORDINGS / "B2", at_s=30.0)

    @property
    def now(self) -> datetime:
        return self._flink.now

    def advance(self) -> None:
        self._flink.at_s += 10.0

    async def answer(self, path: str) -> tuple[int, bytes]:
        status, body = self._flink.answer(path)
        return status, orjson.dumps(body)


class RuntimeSource:
    """A target with one job of the live runtime."""

    prefix = PREFIX

    def __init__(self) -> None:
        self._runtime = LiveRuntime(small_job("aligned", records=None))
        self._runtime.advance_to(2.0)

    @property
    def now(self) -> datetime:
        return from_epoch_ms(ORIGIN_MS) + timedelta(seconds=self._runtime.now_s)

    def advance(self) -> None:
        self._runtime.advance_to(self._runtime.now_s + 2.0)

    async def answer(self, path: str) -> tuple[int, bytes]:
        answer = await self._runtime.client.get(f"http://127.0.0.1:8081{path}")
        return answer.status_code, answer.content


@dataclass
class ToySource:
    """A target with the JSON page of a toy engine that has one job."""

    prefix: str = ""
    began_at: datetime = NOW
    checkpoint_count: int = 3

    @property
    def now(self) -> datetime:
        return self.began_at + timedelta(seconds=self.checkpoint_count)

    def advance(self) -> None:
        self.checkpoint_count += 1

    async def answer(self, path: str) -> tuple[int, bytes]:
        began_ms = to_epoch_ms(self.began_at)
        checkpoints = [{"id": n, "at_ms": began_ms + 1000 * n, "took_ms": 70} for n in range(self.checkpoint_count)]
        job = {"id": "j1", "name": "toy job", "started_ms": began_ms, "checkpoints": checkpoints}
        return (200, orjson.dumps({"version": "3", "jobs": [job]})) if path == "/toy.json" else (404, b"{}")


TARGET = TargetId("t-contract")


@dataclass(frozen=True)
class Row:
    """The fields of a stored target that a collector reads (``TargetRow``)."""

    kind: str
    url: str
    id: TargetId = TARGET
    name: str = "target"
    labels: Mapping[str, str] = field(default_factory=dict)
    origin: TargetOrigin = TargetOrigin.API
    connection: ConnectionOptions = PLAIN
    interval_s: float | None = None


@dataclass
class Served:
    """A source that is served on a free port. ``fault`` is the current failure, or None."""

    source: Source
    url: str = ""
    fault: Fault | None = None

    async def handle(self, request: web.Request) -> web.Response:
        """Respond to one request, or fail in the way that ``fault`` states."""
        match self.fault:
            case Fault.AWAY:
                assert request.transport is not None
                request.transport.abort()
            case Fault.SLOW:
                await asyncio.Event().wait()
            case Fault.GARBLED:
                return web.Response(body=b'{"jobs": [', content_type="application/json")
            case Fault.EMPTY:
                return web.Response(body=b"[]", content_type="application/json")
            case Fault.ERROR:
                return web.Response(status=500, body=b"{}", content_type="application/json")
        status, body = await self.source.answer(request.path_qs)
        return web.Response(status=status, body=body, content_type="application/json")


@asynccontextmanager
async def serving(source: Source) -> AsyncIterator[Served]:
    """Serve ``source`` over HTTP during the ``async with`` block."""
    served = Served(source)
    app = web.Application()
    app.router.add_get("/{path:.*}", served.handle)
    async with serve_app(app) as root:
        served.url = root + source.prefix
        yield served
