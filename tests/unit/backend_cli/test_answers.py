"""Tests of the limits on answers that commands with ``--api`` read."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
from collections.abc import AsyncIterator
from functools import partial

import httpx
import pytest

from backend.cli.answers import Answers, NoAnswerError
from backend.cli.targets import Client
from backend.contracts.api import Page, TargetOut
from backend.domain.bounded_body import BODY_MAX_BYTES
from backend.domain.errors import ApiUnavailableError
from tests.support.api_examples import example
from tests.support.streamed_answers import streamed


class _Stream(httpx.AsyncByteStream):
    """Sends a chunk again and again, or sends it once and then nothing for ever."""

    def __init__(self, chunk: bytes, *, is_endless: bool) -> None:
        self._chunk = chunk
        self._is_endless = is_endless

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self._is_endless:
            yield self._chunk
        yield self._chunk
        await asyncio.Event().wait()


def _answering(monkeypatch: pytest.MonkeyPatch, stream: httpx.AsyncByteStream, **headers: str) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, stream=stream))
    monkeypatch.setattr(httpx, "AsyncClient", partial(httpx.AsyncClient, transport=transport))


def test_an_endless_answer_ends_at_the_limit(monkeypatch):
    _answering(monkeypatch, _Stream(b" " * 2**16, is_endless=True))
    with (
        Answers("http://api", None, deadline_s=60.0) as answers,
        pytest.raises(NoAnswerError, match="larger than 8 MiB"),
    ):
        answers.ask("GET", "/api/v1/targets")


def test_a_bomb_takes_no_more_memory_than_the_limit(monkeypatch):
    bomb = gzip.compress(bytes(256 * 2**20), compresslevel=1)
    _answering(monkeypatch, httpx.ByteStream(bomb), **{"Content-Encoding": "gzip"})
    tracemalloc.start()
    try:
        with Answers("http://api", None, deadline_s=60.0) as answers, pytest.raises(NoAnswerError, match="larger"):
            answers.ask("GET", "/api/v1/targets")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 3 * BODY_MAX_BYTES


def test_the_deadline_holds_for_the_whole_answer(monkeypatch):
    _answering(monkeypatch, _Stream(b"{", is_endless=False))
    with Answers("http://api", None, deadline_s=0.01) as answers, pytest.raises(NoAnswerError, match=r"within 0\.01 s"):
        answers.ask("GET", "/api/v1/targets")


def test_a_compressed_answer_is_read(monkeypatch):
    _answering(monkeypatch, httpx.ByteStream(gzip.compress(b'{"a": 1}')), **{"Content-Encoding": "gzip"})
    with Answers("http://api", None, deadline_s=60.0) as answers:
        assert answers.ask("GET", "/x").content == b'{"a": 1}'


def test_a_list_whose_pages_never_end_is_left(monkeypatch):
    page = Page[TargetOut](items=[example("target")], next="again", as_of=example("target").added_at)
    transport = streamed(lambda _: httpx.Response(200, text=page.model_dump_json()))
    monkeypatch.setattr(httpx, "AsyncClient", partial(httpx.AsyncClient, transport=transport))
    with Client("http://api") as client, pytest.raises(ApiUnavailableError, match="more than 500 pages"):
        list(client.targets())
