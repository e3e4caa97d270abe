"""Checks which callers may call which routes of the API, the pages and the live runtime.

The routes are taken from the applications, so a new route is tested as soon as it exists. A new route that changes
something must be added to the lists here.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Mount

from backend.access.sessions import Sessions
from backend.api import server
from backend.api.app import AppDeps, create_app
from backend.domain.address_rules import EVERYWHERE
from backend.live.access import guard_changes
from backend.live.driver import RuntimeDriver
from backend.live.rest import create_runtime_app
from backend.store.schema.partitions import Retention
from dashboard import role as dashboard

pytestmark = pytest.mark.anyio

TOKEN = "a-token-of-some-length"
_OWN, _FOREIGN = "http://barrierscope.example", "http://evil.example"
_BEARER = {"Authorization": f"Bearer {TOKEN}"}
_COOKIE = {"Cookie": f"barrierscope_session={Sessions(TOKEN).open()}"}
_READING = {"GET", "HEAD", "OPTIONS"}

# The headers that each kind of caller sends.
_CALLERS: dict[str, dict[str, str]] = {
    "nobody": {},
    "a wrong token": {"Authorization": "Bearer wrong"},
    "a session": _COOKIE,
    "a session from our page": {**_COOKIE, "Origin": _OWN},
    "a session from another site": {**_COOKIE, "Origin": _FOREIGN},
    "the token": _BEARER,
    "the token from another site": {**_BEARER, "Origin": _FOREIGN},
    "a malformed origin": {**_BEARER, "Origin": "http://[x]"},
    "a malformed host": {**_BEARER, "Host": "[x]"},
}
_ADMITTED = 299
# For each caller: the status of reading an API route, the status of reading a page, and the status of any change.
_WITH_A_TOKEN = {
    "nobody": (401, 303, 401),
    "a wrong token": (401, 401, 401),
    "a session": (_ADMITTED, _ADMITTED, 403),
    "a session from our page": (_ADMITTED, _ADMITTED, _ADMITTED),
    "a session from another site": (403, 403, 403),
    "the token": (_ADMITTED, _ADMITTED, _ADMITTED),
    "the token from another site": (403, 403, 403),
    "a malformed origin": (400, 400, 400),
    "a malformed host": (400, 400, 400),
}

_CHANGES_OF_THE_API = {
    ("POST", "/api/v1/targets"),
    ("POST", "/api/v1/targets/test"),
    ("PATCH", "/api/v1/targets/{target}"),
    ("DELETE", "/api/v1/targets/{target}"),
    ("POST", "/api/v1/jobs/{job}/recommendations/{recommendation}/accept"),
    ("POST", "/api/v1/jobs/{job}/recommendations/{recommendation}/dismiss"),
    ("POST", "/api/v1/jobs/{job}/recommendations/{recommendation}/apply"),
    ("POST", "/api/v1/jobs/{job}/recommendations/{recommendation}/roll-back"),
    ("POST", "/api/v1/jobs/{job}/whatif"),
    ("POST", "/api/v1/jobs/{job}/whatif/apply"),
    ("POST", "/api/v1/jobs/{job}/whatif/dry-run"),
    ("POST", "/api/v1/jobs/{job}/whatif/accept"),
    ("DELETE", "/api/v1/jobs/{job}/whatif/confirmations/{confirmation}"),
    ("POST", "/api/v1/jobs/{job}/backtests"),
    ("DELETE", "/api/v1/jobs/{job}/backtests/{backtest}"),
    ("POST", "/api/v1/jobs/{job}/runs/{run}/checkpoints/{checkpoint}/actions"),
    ("POST", "/api/v1/jobs/{job}/annotations"),
    ("DELETE", "/api/v1/jobs/{job}/annotations/{annotation}"),
    ("POST", "/api/v1/annotations"),
    ("DELETE", "/api/v1/annotations/{annotation}"),
    ("PATCH", "/api/v1/alert-rules/{rule}"),
    ("POST", "/api/v1/incidents/{incident}/acknowledge"),
    ("POST", "/api/v1/incidents/{incident}/claim"),
    ("POST", "/api/v1/incidents/{incident}/release"),
    ("POST", "/api/v1/incidents/{incident}/comments"),
    ("POST", "/api/v1/silences"),
    ("POST", "/api/v1/silences/preview"),
    ("DELETE", "/api/v1/silences/{silence}"),
    ("POST", "/api/v1/receivers"),
    ("POST", "/api/v1/receivers/{receiver}/test"),
    ("DELETE", "/api/v1/receivers/{receiver}"),
    ("POST", "/api/v1/simulations"),
    ("POST", "/api/v1/simulations/check"),
    ("DELETE", "/api/v1/simulations/{simulation}"),
    ("POST", "/api/v1/cap-curves"),
    ("DELETE", "/api/v1/cap-curves/{curve}"),
    ("POST", "/api/v1/ingest/spark"),
}
_CHANGES_OF_THE_RUNTIME = {
    ("POST", "/runtime/v1/jobs"),
    ("PATCH", "/runtime/v1/jobs/{job}"),
    ("POST", "/runtime/v1/jobs/{job}/checkpoints"),
    ("POST", "/runtime/v1/jobs/{job}/checkpoints/{checkpoint}/abort"),
    ("POST", "/runtime/v1/jobs/{job}/savepoints"),
    ("POST", "/runtime/v1/jobs/{job}/stop"),
    ("PATCH", "/runtime/v1/jobs/{job}/settings"),
    ("POST", "/runtime/v1/jobs/{job}/settings/check"),
    ("PUT", "/runtime/v1/jobs/{job}/resource-requirements"),
    ("POST", "/runtime/v1/uploads"),
}


def _routes(routes: list[BaseRoute], prefix: str = "") -> set[tuple[str, str]]:
    """Return the method and path of every HTTP route."""
    found: set[tuple[str, str]] = set()
    for route in routes:
        nested: Any = getattr(route, "original_router", None) if not hasattr(route, "path") else None
        if isinstance(route, Mount):
            found |= _routes(list(route.routes), prefix + route.path)
        elif nested is not None:
            found |= _routes(nested.routes, prefix)
        else:
            path, methods = getattr(route, "path", ""), getattr(route, "methods", None) or ()
            found |= {(method, prefix + path) for method in methods}
    return found


@cache
def _api_routes() -> set[tuple[str, str]]:
    document = create_app(AppDeps(None, "0.1.0")).openapi()  # type: ignore[arg-type]  no route is called
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    return described | {("GET", "/api/v1/openapi.json"), ("GET", "/api/v1/unknown"), ("GET", "/other")}


@cache
def _page_routes() -> set[tuple[str, str]]:
    pages = dashboard.create_app(transport=None, api_base_url="http://127.0.0.1:8050", token=TOKEN)
    found = _routes(pages._dash_app.routes)  # type: ignore[attr-defined]
    return {(m, p) for m, p in found if p.startswith("/ui/")} | {("GET", "/"), ("GET", "/ui"), ("GET", "/ui/jobs/x")}


@cache
def _runtime_routes() -> set[tuple[str, str]]:
    return _routes(create_runtime_app(RuntimeDriver([]), version="0.1.0").routes)


def _url(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "x", path)


@pytest.fixture
def service(monkeypatch):
    """Return a function that builds the whole service around an application that responds to every request."""

    def build(token):
        monkeypatch.setattr(server, "Splitter", lambda **_: PlainTextResponse("inside", _ADMITTED))
        app = server.build(
            "postgresql://nobody@127.0.0.1:1/nothing",
            server.Listening("127.0.0.1", 8050, token),
            server.Parts(lambda **_: PlainTextResponse("unused"), None, None),  # type: ignore[arg-type]
            targets=EVERYWHERE,
            retention=Retention(),
            alerting=server.AlertingOptions(),
        )
        base_url = _OWN if token else "http://127.0.0.1:8050"
        return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=base_url)

    return build


def test_every_changing_route_is_listed():
    assert {r for r in _api_routes() if r[0] not in _READING} == _CHANGES_OF_THE_API
    assert {r for r in _runtime_routes() if r[0] not in _READING} == _CHANGES_OF_THE_RUNTIME
    assert len(_api_routes()) > 35
    assert len(_runtime_routes()) > 25
    assert ("POST", "/ui/_dash-update-component") in _page_routes()


@pytest.mark.parametrize("caller", list(_CALLERS))
async def test_with_a_token_each_caller_reaches_only_its_routes(service, caller):
    of_api, of_page, of_change = _WITH_A_TOKEN[caller]
    async with service(TOKEN) as client:
        for method, path in sorted(_api_routes() | _page_routes()):
            is_page = not path.startswith("/api/")
            expected = of_change if method not in _READING else of_page if is_page and method != "OPTIONS" else of_api
            answer = await client.request(method, _url(path), headers=_CALLERS[caller])

            assert answer.status_code == expected, (method, path)
            is_code = path.startswith(("/ui/assets/", "/ui/_dash-component-suites/"))
            assert is_code or answer.headers["cache-control"] == "no-store", (method, path)
            assert TOKEN not in answer.text + str(answer.headers)


@pytest.mark.parametrize("name", ["token", "access_token", "api_token"])
async def test_a_token_in_the_query_opens_no_route(service, name):
    async with service(TOKEN) as client:
        for method, path in sorted(_api_routes() | _page_routes()):
            answer = await client.request(method, _url(path), params={name: TOKEN})

            assert answer.status_code in (401, 303), (method, path)
            assert TOKEN not in answer.text + str(answer.headers), (method, path)


async def test_on_loopback_without_a_token_only_other_sites_are_refused(service):
    async with service(None) as client:
        for method, path in sorted(_api_routes() | _page_routes()):
            for headers, expected in (
                ({}, _ADMITTED),
                ({"Origin": "http://127.0.0.1:8050"}, _ADMITTED),
                ({"Origin": _FOREIGN}, 403),
                ({"Host": "evil.example"}, 403),
                ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
                ({"Origin": "http://[x]"}, 400),
                ({"Host": "[x]"}, 400),
            ):
                answer = await client.request(method, _url(path), headers=headers)
                assert answer.status_code == expected, (method, path, headers)


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_the_probes_and_the_login_are_open_and_reveal_nothing(service, token):
    async with service(token) as client:
        live = await client.get("/health/live", headers={"Host": "[x]"})
        ready = await client.get("/health/ready")
        form = await client.get("/login")
        left = await client.post("/logout", headers={"Origin": _OWN if token else "http://127.0.0.1:8050"})

    assert (live.json(), ready.status_code) == ({"status": "ok"}, 503)
    assert form.status_code == (200 if token else _ADMITTED)
    assert left.status_code == (303 if token else _ADMITTED)


# For each runtime: its token, whether only this machine can reach it, and the status of a change without and with the
# token.
_RUNTIMES = [(None, True, 200, 200), (None, False, 403, 403), (TOKEN, True, 401, 200), (TOKEN, False, 401, 200)]


@pytest.mark.parametrize(("token", "is_local", "without", "with_it"), _RUNTIMES)
async def test_the_live_runtime_is_read_by_everyone_and_changed_with_the_token(token, is_local, without, with_it):
    app = guard_changes(PlainTextResponse("inside"), token, is_local=is_local)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as client:
        for method, path in sorted(_runtime_routes()):
            is_change = (method, path) in _CHANGES_OF_THE_RUNTIME
            for headers, expected in (({}, without), ({"Authorization": "Bearer wrong"}, without), (_BEARER, with_it)):
                answer = await client.request(method, _url(path), headers=headers)
                assert answer.status_code == (expected if is_change else 200), (method, path, headers)


async def test_no_route_of_the_live_runtime_accepts_another_site_or_a_malformed_header():
    app = create_runtime_app(RuntimeDriver([]), version="0.1.0")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1:18050") as client:
        for method, path in sorted(_runtime_routes()):
            for headers, expected in (
                ({"Origin": _FOREIGN}, 403),
                ({"Host": "evil.example"}, 403),
                ({"Origin": "http://[x]"}, 400),
                ({"Host": "a b"}, 400),
            ):
                answer = await client.request(method, _url(path), headers=headers)
                assert answer.status_code == expected, (method, path, headers)
