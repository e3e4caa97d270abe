"""The gate: who gets in, under which name, and what a stranger learns."""

from __future__ import annotations

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from backend.api.access import Access, AccessRules

pytestmark = pytest.mark.anyio

TOKEN = "a-token-of-some-length"


def _client(token, *, base_url="http://127.0.0.1:8050", hosts=frozenset()):
    async def answer(request: Request):
        return PlainTextResponse("inside")

    app = Starlette(routes=[Route("/{rest:path}", answer, methods=["GET", "POST"])])
    transport = httpx.ASGITransport(app=Access(app, AccessRules(token, hosts)))
    return httpx.AsyncClient(transport=transport, base_url=base_url)


@pytest.mark.parametrize("base_url", ["http://127.0.0.1:8050", "http://localhost:8050", "http://[::1]:8050"])
async def test_on_loopback_nobody_logs_in(base_url):
    async with _client(None, base_url=base_url) as client:
        assert (await client.get("/api/v1/jobs")).text == "inside"
        assert (await client.get("/ui/")).text == "inside"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8050", "127.0.0.1.evil.example", ""])
async def test_on_loopback_a_name_that_was_rebound_is_refused(host):
    async with _client(None) as client:
        answer = await client.get("/api/v1/jobs", headers={"Host": host})

    assert answer.status_code == 403
    assert answer.headers["content-type"] == "application/problem+json"


async def test_the_host_it_listens_on_is_a_name_of_its_own():
    async with _client(None, hosts=frozenset({"127.0.0.5"}), base_url="http://127.0.0.5:8050") as client:
        assert (await client.get("/")).status_code == 200


@pytest.mark.parametrize("token", [None, TOKEN])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999"])
async def test_a_page_of_another_site_is_refused(token, origin):
    headers = {"Origin": origin, "Authorization": f"Bearer {TOKEN}"}
    async with _client(token) as client:
        assert (await client.post("/api/v1/targets", headers=headers)).status_code == 403


async def test_the_own_page_is_not_foreign():
    async with _client(None) as client:
        answer = await client.post("/api/v1/targets", headers={"Origin": "http://127.0.0.1:8050"})

    assert answer.text == "inside"


@pytest.mark.parametrize("given", [None, "Bearer", "Bearer wrong", f"Basic {TOKEN}", "Bearer ä", f"Bearer {TOKEN}x"])
async def test_elsewhere_a_request_without_the_token_learns_nothing(given):
    headers = {} if given is None else {"Authorization": given.encode()}
    async with _client(TOKEN, base_url="http://barrierscope.example") as client:
        answer = await client.get("/api/v1/jobs", headers=headers)

    assert answer.status_code == 401
    assert answer.json()["type"].endswith("token-needed")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert TOKEN not in answer.text


async def test_elsewhere_the_token_opens():
    async with _client(TOKEN, base_url="http://barrierscope.example") as client:
        answer = await client.get("/api/v1/jobs", headers={"Authorization": f"bearer {TOKEN}"})

    assert answer.text == "inside"


async def test_a_person_logs_in_once_and_the_cookie_holds_no_token():
    async with _client(TOKEN, base_url="https://barrierscope.example") as client:
        sent_away = await client.get("/ui/")
        form = await client.get("/login")
        logged_in = await client.post("/login", data={"token": TOKEN})

        assert (sent_away.status_code, sent_away.headers["location"]) == (303, "/login")
        assert "<form" in form.text
        assert (logged_in.status_code, logged_in.headers["location"]) == (303, "/ui/")
        cookie = logged_in.headers["set-cookie"]
        assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", "Secure"))
        assert TOKEN not in cookie
        assert (await client.get("/ui/")).text == "inside"
        assert (await client.get("/api/v1/jobs")).text == "inside"


@pytest.mark.parametrize("body", [{"token": "wrong"}, {}, {"token": "x" * 10_000}])
async def test_a_wrong_token_opens_nothing(body):
    async with _client(TOKEN, base_url="http://barrierscope.example") as client:
        answer = await client.post("/login", data=body)

        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers
        assert (await client.get("/api/v1/jobs")).status_code == 401


async def test_a_cookie_that_was_made_up_opens_nothing():
    async with _client(TOKEN, base_url="http://barrierscope.example") as client:
        for value in ("barrierscope_session=", f"barrierscope_session={TOKEN}", "a=b; ;;=;", 'barrierscope_session="'):
            assert (await client.get("/api/v1/jobs", headers={"Cookie": value})).status_code == 401
