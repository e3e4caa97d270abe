"""The proxy of ``make test-versions``: a prefix, and a fault in every few answers."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web

from tests.simulators.versions.proxy import Fault, proxied
from tests.support.recorded_flink import serve_app

pytestmark = pytest.mark.anyio


async def asked(fault: Fault, count: int) -> list[int | str]:
    """Return the status or the error of each request behind a proxy in which every second one has a fault."""

    async def flink(request: web.Request) -> web.Response:
        assert request.raw_path == "/jobs/a%2Fb?get=1,2"
        return web.json_response({"path": request.path}, status=200)

    app = web.Application()
    app.router.add_get("/{path:.*}", flink)
    async with (
        serve_app(app) as url,
        proxied(url, fault, every=2, slow_s=0.0) as behind,
        aiohttp.ClientSession() as session,
    ):
        return [await _status(session, behind) for _ in range(count)]


async def _status(session: aiohttp.ClientSession, url: str) -> int | str:
    try:
        async with session.get(f"{url}/jobs/a%2Fb?get=1,2", allow_redirects=False) as answer:
            await answer.read()
            return answer.status
    except aiohttp.ClientPayloadError:
        return "cut"


@pytest.mark.parametrize(
    ("fault", "statuses"),
    [
        (Fault.NONE, [200, 200, 200, 200]),
        (Fault.BAD_GATEWAY, [200, 502, 200, 502]),
        (Fault.LOGIN, [200, 302, 200, 302]),
        (Fault.SLOW, [200, 200, 200, 200]),
        (Fault.CUT, [200, "cut", 200, "cut"]),
    ],
)
async def test_every_second_answer_has_the_fault_and_the_others_are_flinks(fault, statuses, anyio_backend):
    assert await asked(fault, 4) == statuses


async def test_a_path_without_the_prefix_is_not_flinks(anyio_backend):
    async with (
        serve_app(web.Application()) as url,
        proxied(url, Fault.NONE) as behind,
        aiohttp.ClientSession() as session,
        session.get(f"{behind.split('/teams')[0]}/jobs") as answer,
    ):
        assert answer.status == 404
        assert "log in" in await answer.text()
