"""HealthProbe: one word to anyone, whatever name and token they come with; the store is asked once a second at most."""

from __future__ import annotations

import httpx
import pytest
from starlette.responses import PlainTextResponse

from backend.api.access import Access, AccessRules
from backend.api.health import LIVE_PATH, READY_PATH, HealthProbe

pytestmark = pytest.mark.anyio


class Store:
    """Answers as it is told, and counts how often it was asked."""

    def __init__(self, *, is_ready: bool) -> None:
        self.is_well = is_ready
        self.asked_count = 0

    async def is_ready(self) -> bool:
        self.asked_count += 1
        return self.is_well


class Time:
    """A clock that the test moves."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def _client(store, time=None):
    gate = Access(PlainTextResponse("inside"), AccessRules("a-token-of-some-length"))
    transport = httpx.ASGITransport(app=HealthProbe(gate, store.is_ready, time or Time()))
    # A kubelet asks by the pod's address.
    return httpx.AsyncClient(transport=transport, base_url="http://10.2.3.4:8050")


@pytest.mark.parametrize("path", [LIVE_PATH, READY_PATH])
async def test_a_kubelet_without_a_token_hears_one_word(path):
    async with _client(Store(is_ready=True)) as client:
        answer = await client.get(path)

    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_without_the_store_it_lives_and_is_not_ready():
    store = Store(is_ready=False)
    async with _client(store) as client:
        live, ready = await client.get(LIVE_PATH), await client.get(READY_PATH)

    assert (live.status_code, ready.status_code) == (200, 503)
    assert ready.headers["content-type"] == "application/problem+json"
    assert ready.json()["detail"] == "not ready"
    assert store.asked_count == 1


async def test_the_store_is_asked_once_a_second_at_most():
    store, time = Store(is_ready=True), Time()
    async with _client(store, time) as client:
        for _ in range(5):
            await client.get(READY_PATH)
        store.is_well = False
        time.now_s += 1
        answer = await client.get(READY_PATH)

    assert store.asked_count == 2
    assert answer.status_code == 503


async def test_health_is_read_and_not_written():
    async with _client(Store(is_ready=True)) as client:
        assert (await client.post(LIVE_PATH)).status_code == 405


async def test_everything_else_meets_the_gate():
    async with _client(Store(is_ready=True)) as client:
        for path in ("/health", "/health/live/", "/health/ready/../../api/v1/jobs", "/api/v1/jobs"):
            assert (await client.get(path)).status_code in (303, 401)
