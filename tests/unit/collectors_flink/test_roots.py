"""Tests of the search for Flink's REST root near a wrong address: which paths are tried, and what is said."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from backend.domain.connection import ANYWHERE
from backend.domain.errors import TargetProtocolError, TargetUnavailableError, WrongRootError
from collectors.flink.probe import probe
from collectors.flink.roots import TRIES_MAX, better_error, paths_to_try
from tests.support.recorded_flink import serve_app

pytestmark = pytest.mark.anyio


def flink_at(prefix: str, asked: list[str], *, elsewhere=None) -> web.Application:
    """Return an application with a Flink below ``prefix``. It adds every path that is asked for to ``asked``."""
    answers = {"/config": {"flink-version": "1.20.5"}, "/jobs/overview": {"jobs": []}}

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.path)
        body = answers.get(request.path.removeprefix(prefix)) if request.path.startswith(prefix) else None
        if body is None:
            return web.Response(status=404, text="nothing here") if elsewhere is None else elsewhere(request)
        return web.json_response(body)

    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    return app


@pytest.mark.parametrize(
    ("prefix", "given"),
    [
        ("", "/jobs/overview"),
        ("", "/index.html"),
        ("", "/v1/jobs/0123/checkpoints/details/7"),
        ("/runtime/v1", ""),
        ("/runtime/v1", "/runtime"),
        ("/runtime/v1", "/runtime/v1/jobs"),
        ("/proxy/app", "/proxy/app/runtime/v1"),
        ("/ns/flink", "/ns"),
    ],
)
async def test_a_path_too_short_or_too_long_is_answered_with_the_right_root(prefix, given):
    asked: list[str] = []
    async with serve_app(flink_at(prefix, asked)) as url:
        with pytest.raises(WrongRootError) as raised:
            await probe(url + given, 5.0, reach=ANYWHERE)

    assert raised.value.root == url + prefix
    assert str(raised.value).endswith(f"; the REST root of the target is {url}{prefix}")
    assert len(asked) <= 2 + 2 * TRIES_MAX


async def test_a_redirect_on_the_same_origin_names_the_prefix_of_the_proxy_and_is_not_followed():
    asked: list[str] = []

    def redirect(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/behind/the/gate/"})

    async with serve_app(flink_at("/behind/the/gate", asked, elsewhere=redirect)) as url:
        with pytest.raises(WrongRootError) as raised:
            await probe(url, 5.0, reach=ANYWHERE)

    assert raised.value.root == f"{url}/behind/the/gate"


@pytest.mark.parametrize(
    "location", ["http://elsewhere.invalid/flink", "//elsewhere.invalid/", "file:///etc", "http://["]
)
async def test_a_redirect_to_another_origin_is_not_tried(location):
    asked: list[str] = []

    def redirect(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": location})

    async with serve_app(flink_at("/no/where", asked, elsewhere=redirect)) as url:
        with pytest.raises(TargetProtocolError) as raised:
            await probe(url, 5.0, reach=ANYWHERE)

    assert not isinstance(raised.value, WrongRootError)
    assert not any("elsewhere" in path or "etc" in path for path in asked)


async def test_barrierscopes_own_address_is_answered_with_its_live_runtime_on_the_same_host_only():
    listed = [
        {"url": "http://other.invalid/runtime/v1", "origin": "built-in", "kind": "flink"},
    ]

    def own(request: web.Request) -> web.Response:
        if request.path == "/api/v1/targets":
            return web.json_response({"items": listed})
        return web.Response(status=404)

    async with serve_app(flink_at("/no/where", [], elsewhere=own)) as url:
        with pytest.raises(TargetProtocolError) as foreign:
            await probe(url, 5.0, reach=ANYWHERE)
        listed[0]["url"] = "http://127.0.0.1:18050/runtime/v1"
        with pytest.raises(WrongRootError) as own_address:
            await probe(url, 5.0, reach=ANYWHERE)

    assert not isinstance(foreign.value, WrongRootError)
    assert (
        "this is the address of Barrierscope itself; the REST root of its live jobs is http://127.0.0.1:18050"
        in str(own_address.value)
    )


async def test_a_root_that_is_found_is_shown_without_credentials():
    async with serve_app(flink_at("", [])) as url:
        with pytest.raises(WrongRootError) as raised:
            await probe(url.replace("http://", "http://me:hunter2@") + "/flink", 5.0, reach=ANYWHERE)

    assert raised.value.root == url
    assert "hunter2" not in str(raised.value)


async def test_no_other_path_is_tried_if_the_server_fails_or_no_longer_answers():
    tried: list[str] = []

    async def ask(address: str) -> None:
        tried.append(address)
        raise TargetUnavailableError(url=address, reason="gone")

    failing = TargetProtocolError(url="http://x", reason="HTTP 503", status=503)
    missing = TargetProtocolError(url="http://x", reason="HTTP 404", status=404)

    assert await better_error(failing, "http://x/a/b", ask, reach=ANYWHERE, timeout_s=5.0) is failing
    assert tried == []
    assert await better_error(missing, "http://x/a/b", ask, reach=ANYWHERE, timeout_s=5.0) is missing
    assert tried == ["http://x/a"]


async def test_the_search_ends_at_its_deadline():
    async def ask(address: str) -> None:
        await asyncio.Event().wait()

    missing = TargetProtocolError(url="http://x", reason="HTTP 404", status=404)

    assert await better_error(missing, "http://x/a", ask, reach=ANYWHERE, timeout_s=0.0) is missing


def test_at_most_a_few_paths_are_tried_however_long_the_address_is():
    found = paths_to_try("/a" * 500, "/to/jobs/overview")

    assert len(found) == TRIES_MAX
    assert found[0] == "/to"
    assert "" in found
