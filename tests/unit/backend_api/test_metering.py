"""Tests of the counters of requests: by route, method and class of status."""

from __future__ import annotations

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.responses import PlainTextResponse
from prometheus_client import generate_latest

from backend.api.leaving import EndsWithClient
from backend.api.metering import Metered
from backend.metrics.registry import REGISTRY

pytestmark = pytest.mark.anyio


def _site():
    router = APIRouter()

    @router.get("/jobs/{job_id}")
    async def metered_job(job_id: str) -> dict[str, str]:
        return {"id": job_id}

    @router.get("/broken")
    async def metered_broken() -> None:
        raise RuntimeError("broken")

    app = FastAPI()
    app.include_router(router, prefix="/api/v1")
    app.add_middleware(EndsWithClient)
    return app


async def _ask(app, path, method="GET"):
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.request(method, path)


def _counts():
    lines = generate_latest(REGISTRY).decode().splitlines()
    name = "barrierscope_http_request_duration_seconds_count"
    return {line.split()[0].removeprefix(name): float(line.split()[1]) for line in lines if line.startswith(name)}


async def _added(app, *requests):
    before = _counts()
    for request in requests:
        await _ask(app, *request)
    return {key: n - before.get(key, 0) for key, n in _counts().items() if n != before.get(key, 0)}


async def test_requests_count_by_the_template_of_their_path():
    added = await _added(Metered(_site()), ("/api/v1/jobs/a",), ("/api/v1/jobs/b",))

    assert added == {'{method="GET",route="/api/v1/jobs/{job_id}",status="2xx"}': 2}


async def test_a_path_without_a_route_and_an_unknown_method_make_no_series_of_their_own():
    added = await _added(Metered(_site()), ("/x/hunter2",), ("/x/other",), ("/x", "BREW"))

    assert added == {
        '{method="GET",route="other",status="4xx"}': 2,
        '{method="other",route="other",status="4xx"}': 1,
    }


async def test_an_error_counts_as_5xx():
    added = await _added(Metered(_site()), ("/api/v1/broken",))

    assert added == {'{method="GET",route="/api/v1/broken",status="5xx"}': 1}


async def test_all_pages_are_one_route():
    added = await _added(Metered(PlainTextResponse("page"), "/ui/*"), ("/ui/a",), ("/ui/b",))

    assert added == {'{method="GET",route="/ui/*",status="2xx"}': 2}
