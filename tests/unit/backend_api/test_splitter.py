"""Tests of two applications at one address: each path belongs to one of them, and both start and stop together."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from backend.api.splitter import Splitter
from dashboard.asgi import DashboardApp
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio


def _app(name, log, *, fails_at=None):
    async def app(scope, receive, send):
        if scope["type"] != "lifespan":

            async def answer(request: Request):
                return PlainTextResponse(f"{name} {request.url.path}")

            await Starlette(routes=[Route("/{rest:path}", answer)])(scope, receive, send)
            return
        for step in ("startup", "shutdown"):
            await receive()
            if fails_at == step:
                raise RuntimeError(f"{name} broke")
            log.append(f"{name} {step}")
            await send({"type": f"lifespan.{step}.complete"})

    return app


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/ui/", "pages /ui/"),
        ("/ui/jobs/j1", "pages /ui/jobs/j1"),
        ("/uix", "api /uix"),
        ("/api/v1/jobs", "api /api/v1/jobs"),
        ("/nope", "api /nope"),
    ],
)
async def test_each_path_is_answered_by_one_application(path, answer):
    splitter = Splitter(api=_app("api", []), pages=_app("pages", []))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=splitter), base_url="http://x") as client:
        assert (await client.get(path)).text == answer


@pytest.mark.parametrize("path", ["/", "/ui"])
async def test_the_root_leads_to_the_pages(path):
    splitter = Splitter(api=_app("api", []), pages=_app("pages", []))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=splitter), base_url="http://x") as client:
        answer = await client.get(path)

    assert (answer.status_code, answer.headers["location"]) == (307, "/ui/")


_BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


async def _asked(path, accept, *, method="GET"):
    async def close():
        pass

    pages = DashboardApp(_app("pages", []), content_security_policy="", close=close)
    splitter = Splitter(api=_app("api", []), pages=_app("pages", []), is_page=pages.is_page)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=splitter), base_url="http://x") as client:
        headers = {"Accept": accept}
        return await client.send(client.build_request(method, httpx.URL("http://x", raw_path=path), headers=headers))


@pytest.mark.parametrize("path", [
    b"/alerts", b"/alerts?state=open&search=a%20b", b"/targets", b"/lab", b"/jobs/j1/advice", b"/incidents/i%2F1",
    b"/alerts/rules", b"/jobs/j1/runs/r1/checkpoints/7", b"//alerts", b"/jobs/%0d%0aSet-Cookie:%20a=b",
])  # fmt: skip
async def test_a_browser_without_ui_is_sent_to_the_page_of_this_service(path):
    answer = await _asked(path, _BROWSER)

    assert (answer.status_code, answer.headers["location"]) == (307, f"/ui{path.decode()}")
    assert answer.headers["vary"] == "Accept"
    assert "set-cookie" not in answer.headers
    assert answer.url.join(answer.headers["location"]).host == "x"


@pytest.mark.parametrize(
    ("path", "accept", "method"),
    [
        *((path, _BROWSER, "GET") for path in (b"/jobs", b"/nope", b"/api/v1/alerts", b"/metrics", b"/_dash-layout")),
        *((path, _BROWSER, "GET") for path in (b"//evil.example", b"//evil.example/..%2falerts", b"/\\evil.example")),
        (b"/alerts", "*/*", "GET"),
        (b"/alerts", "application/json", "GET"),
        (b"/alerts", "application/json, text/html;q=0.5", "GET"),
        (b"/alerts", "text/html;q=0", "GET"),
        (b"/alerts", "text/html;q=x", "GET"),
        (b"/alerts", "", "GET"),
        (b"/alerts", _BROWSER, "POST"),
    ],
)
async def test_what_is_no_page_and_what_no_browser_asks_is_answered_by_the_api(path, accept, method):
    answer = await _asked(path, accept, method=method)

    assert "location" not in answer.headers
    assert answer.status_code in (200, 405)


async def _live(splitter):
    """Send a startup event and a shutdown event to the splitter, and return the messages with which it responds."""
    asked, answers = asyncio.Queue(), []
    for step in ("startup", "shutdown"):
        asked.put_nowait({"type": f"lifespan.{step}"})

    async def send(message):
        answers.append(message)

    await asyncio.wait_for(splitter({"type": "lifespan", "state": {}}, asked.get, send), PATIENCE_S)
    return answers


async def test_both_start_and_then_stop_in_reverse_order():
    log = []
    answers = await _live(Splitter(api=_app("api", log), pages=_app("pages", log)))

    assert log == ["api startup", "pages startup", "pages shutdown", "api shutdown"]
    assert [a["type"] for a in answers] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


@pytest.mark.parametrize("broken", ["api", "pages"])
async def test_an_application_that_cannot_start_fails_the_start_and_is_named(broken):
    log = []
    apps = {name: _app(name, log, fails_at="startup" if name == broken else None) for name in ("api", "pages")}
    answers = await _live(Splitter(api=apps["api"], pages=apps["pages"]))

    assert [a["type"] for a in answers] == ["lifespan.startup.failed"]
    assert f"{broken} broke" in answers[0]["message"]


async def test_if_one_application_fails_to_stop_the_other_still_stops():
    log = []
    answers = await _live(Splitter(api=_app("api", log), pages=_app("pages", log, fails_at="shutdown")))

    assert log[-1] == "api shutdown"
    assert answers[-1]["type"] == "lifespan.shutdown.failed"
