"""Tests of the health endpoints: they respond with one word under any host name and without a token.

The store is checked at most once a second.
"""

from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.responses import PlainTextResponse

from backend.api.access import Access, AccessRules
from backend.api.health import LIVE_PATH, READY_PATH, HealthProbe
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio


class Store:
    """A check of the store that returns ``is_well`` and counts its calls."""

    def __init__(self, *, is_ready: bool) -> None:
        self.is_well = is_ready
        self.asked_count = 0

    async def is_ready(self) -> bool:
        self.asked_count += 1
        await asyncio.sleep(0)
        return self.is_well


class Time:
    """A clock that the test advances."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def _client(store, time=None):
    gate = Access(PlainTextResponse("inside"), AccessRules("a-token-of-some-length"))
    transport = httpx.ASGITransport(app=HealthProbe(gate, store.is_ready, time or Time()))
    # A kubelet sends its requests with the address of the pod as host name.
    return httpx.AsyncClient(transport=transport, base_url="http://10.2.3.4:8050")


@pytest.mark.parametrize("path", [LIVE_PATH, READY_PATH])
async def test_a_kubelet_gets_one_word_without_a_token(path):
    async with _client(Store(is_ready=True)) as client:
        answer = await client.get(path)

    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_without_the_store_the_service_is_live_and_not_ready():
    store = Store(is_ready=False)
    async with _client(store) as client:
        live, ready = await client.get(LIVE_PATH), await client.get(READY_PATH)

    assert (live.status_code, ready.status_code) == (200, 503)
    assert ready.headers["content-type"] == "application/problem+json"
    assert ready.json()["detail"] == "not ready"
    assert store.asked_count == 1


async def test_the_store_is_checked_once_a_second_at_most():
    store, time = Store(is_ready=True), Time()
    async with _client(store, time) as client:
        for _ in range(5):
            await client.get(READY_PATH)
        store.is_well = False
        time.now_s += 1
        answer = await client.get(READY_PATH)

    assert store.asked_count == 2
    assert answer.status_code == 503


async def test_probes_that_arrive_during_a_check_use_its_result():
    store = Store(is_ready=True)
    async with _client(store) as client:
        answers = await asyncio.gather(*(client.get(READY_PATH) for _ in range(5)))

    assert [a.status_code for a in answers] == [200] * 5
    assert store.asked_count == 1


async def test_a_check_that_does_not_end_counts_as_failed():
    async def never():
        await asyncio.Event().wait()
        return True

    probe = HealthProbe(PlainTextResponse("inside"), never, Time(), check_max_s=0.01)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=probe), base_url="http://x") as client:
        answer = await asyncio.wait_for(client.get(READY_PATH), PATIENCE_S)

    assert answer.status_code == 503


async def test_health_paths_accept_only_reads():
    async with _client(Store(is_ready=True)) as client:
        assert (await client.post(LIVE_PATH)).status_code == 405


async def test_all_other_paths_need_access():
    async with _client(Store(is_ready=True)) as client:
        for path in ("/health", "/health/live/", "/health/ready/../../api/v1/jobs", "/api/v1/jobs"):
            assert (await client.get(path)).status_code in (303, 401)
