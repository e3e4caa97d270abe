"""Tests of the messages to open fleet pages. The test decides when the board is read again."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import httpx
import pytest

from dashboard import news
from dashboard.client import ApiClient
from dashboard.pages import fleet
from tests.support.fake_api import FakeApi

pytestmark = pytest.mark.anyio

_NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
_DISCONNECT = {"type": "websocket.disconnect", "code": 1001}


class _Browser:
    """A browser that is connected to ``FleetNews`` over a fake API."""

    def __init__(self) -> None:
        self.fake = FakeApi(now=lambda: _NOW)
        transport = httpx.MockTransport(self.fake.handle)
        self.client = ApiClient(transport=transport, base_url="http://api.test")
        self._inbox: asyncio.Queue[dict[str, object]] = asyncio.Queue()
        self.sent: asyncio.Queue[dict[str, object]] = asyncio.Queue()
        self._paused: asyncio.Queue[None] = asyncio.Queue()
        self._go_on: asyncio.Queue[None] = asyncio.Queue()
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> _Browser:
        async def pause() -> None:
            await self._paused.put(None)
            await self._go_on.get()

        application = news.FleetNews(self.client, pause)
        await self._inbox.put({"type": "websocket.connect"})
        await self._group.__aenter__()
        self._group.create_task(application({"type": "websocket"}, self._inbox.get, self.sent.put))
        assert await self.sent.get() == {"type": "websocket.accept"}
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._inbox.put(_DISCONNECT)
        await self._group.__aexit__(None, None, None)
        await self.client.close()

    async def view(self) -> dict[str, object]:
        """Return the view of a browser that shows the first three rows as they are now."""
        board = await self.client.board(fleet.query_of({"ids": list(self.fake.jobs)[:3]}))
        known = list(self.fake.jobs)[:3]
        shown = {"first": 0, "ids": known, "since": board.version, "total": board.total}
        return shown | {"digest": f"{fleet.totals_of(board, shown)}.x"}

    async def show(self, view: object) -> list[object]:
        """Send the server what the browser shows. Return the messages until the server waits."""
        await self._inbox.put({"type": "websocket.receive", "text": json.dumps(view)})
        return await self._until_it_waits()

    async def later(self) -> list[object]:
        """Let the server read the board once more. Return the messages that it sends."""
        await self._go_on.put(None)
        return await self._until_it_waits()

    async def _until_it_waits(self) -> list[object]:
        await self._paused.get()
        return [json.loads(str(self.sent.get_nowait()["text"])) for _ in range(self.sent.qsize())]


async def test_a_page_is_told_once_that_its_rows_have_changed_and_otherwise_that_the_service_answers():
    async with _Browser() as browser:
        told = await browser.show(await browser.view())
        assert [set(m) for m in told] == [{"newest_observed_at"}]
        assert await browser.later() == [{}]

        shown = browser.fake.jobs[next(iter(browser.fake.jobs))]
        verdict = shown.detail.verdict.model_copy(update={"sentence": "it waits for a slow disk"})
        shown.detail = shown.detail.model_copy(update={"verdict": verdict})
        assert await browser.later() == [{"is_changed": True}]
        assert await browser.later() == [{}]


async def test_a_page_is_told_of_another_order_and_of_another_number_of_jobs():
    async with _Browser() as browser:
        await browser.show(await browser.view())
        browser.fake.jobs = dict(reversed(browser.fake.jobs.items()))
        assert await browser.later() == [{"is_changed": True}]
        removed = next(iter(browser.fake.jobs))
        browser.fake.jobs = {name: job for name, job in browser.fake.jobs.items() if name != removed}
        assert await browser.later() == [{"is_changed": True}]


async def test_a_page_whose_view_is_out_of_date_is_told_at_once():
    async with _Browser() as browser:
        view = await browser.view()
        assert await browser.show(view | {"total": 1}) == [{"is_changed": True}]
        assert await browser.show(view | {"digest": ""}) == [{"is_changed": True}]


async def test_while_the_api_is_down_the_page_is_told_to_ask_so_that_it_shows_the_error():
    async with _Browser() as browser:
        await browser.show(await browser.view())
        browser.fake.is_down = True
        assert await browser.later() == [{"is_changed": True}]


@pytest.mark.parametrize("text", ["", "[]", "{", "x" * 70_000, None])
async def test_a_connection_that_sends_something_else_is_closed(text):
    sent: list[dict[str, object]] = []
    inbox = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": text}]

    async def receive() -> dict[str, object]:
        return inbox.pop(0)

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    fake = FakeApi(now=lambda: _NOW)
    client = ApiClient(transport=httpx.MockTransport(fake.handle), base_url="http://api.test")
    await news.FleetNews(client)({"type": "websocket"}, receive, send)
    await client.close()
    assert [m["type"] for m in sent] == ["websocket.accept", "websocket.close"]
