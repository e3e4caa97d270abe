"""Tests that changing the live runtime needs the token, and reading it does not."""

from __future__ import annotations

import httpx
import pytest
from starlette.responses import PlainTextResponse

from backend.access.attempts import WRONG_MAX
from backend.live.access import TokenToChange, guard_changes

pytestmark = pytest.mark.anyio

TOKEN = "a-token-of-some-length"


def _client(token):
    transport = httpx.ASGITransport(app=TokenToChange(PlainTextResponse("inside"), token))
    return httpx.AsyncClient(transport=transport, base_url="http://runtime:18050")


async def _patch(client, given=None):
    headers = {} if given is None else {"Authorization": given}
    return await client.patch("/runtime/v1/jobs/x/settings", headers=headers)


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_reading_needs_no_token_as_with_a_real_flink(token):
    async with _client(token) as client:
        assert (await client.get("/runtime/v1/overview")).text == "inside"


async def test_if_no_token_is_configured_every_change_is_refused():
    async with _client(None) as client:
        answer = await _patch(client, "Bearer anything")

    assert answer.status_code == 403
    assert "BARRIERSCOPE_API_TOKEN" in answer.json()["errors"][0]


@pytest.mark.parametrize("given", [None, "Bearer wrong", TOKEN])
async def test_a_change_without_the_token_is_refused(given):
    async with _client(TOKEN) as client:
        answer = await _patch(client, given)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert TOKEN not in answer.text


async def test_a_change_with_the_token_is_accepted():
    async with _client(TOKEN) as client:
        assert (await _patch(client, f"Bearer {TOKEN}")).text == "inside"


async def test_after_wrong_tokens_an_address_must_wait_and_the_right_token_need_not():
    async with _client(TOKEN) as client:
        for number in range(WRONG_MAX):
            await _patch(client, f"Bearer guess{number}")

        assert (await _patch(client, "Bearer another")).status_code == 429
        assert (await _patch(client, f"Bearer {TOKEN}")).text == "inside"


@pytest.mark.parametrize(
    ("token", "is_local", "status"), [(None, True, 200), (None, False, 403), (TOKEN, True, 401), (TOKEN, False, 401)]
)
async def test_a_configured_token_is_required_on_loopback_as_well(token, is_local, status):
    app = guard_changes(PlainTextResponse("inside"), token, is_local=is_local)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as client:
        assert (await _patch(client)).status_code == status
        assert (await client.get("/runtime/v1/overview")).text == "inside"


async def test_a_refusal_is_not_stored_by_browsers_and_proxies():
    async with _client(TOKEN) as client:
        assert (await _patch(client)).headers["cache-control"] == "no-store"
