"""Tests of the requests by which ``up`` asks its own API whether a collector has read the demo jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import unquote

import httpx
import pytest

from backend.cli.own_api import OwnApi
from backend.contracts.api import Page, TargetOut
from tests.support.api_examples import example
from tests.support.streamed_answers import streamed

_DEMO = "http://127.0.0.1:18050/runtime/v1"
_NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.parametrize(("status", "is_ready"), [(200, True), (503, False)])
def test_the_api_is_ready_although_other_requests_fail(status, is_ready):
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status if request.url.path == "/health/ready" else 500, json={"status": "ok"})

    with _asking(answer) as api:
        assert api.is_ready() is is_ready


def test_an_api_that_does_not_respond_is_not_ready():
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with _asking(refuse) as api:
        assert not api.is_ready()


def _target(number: int, url: str, *, is_enabled: bool = True) -> TargetOut:
    return example("target").model_copy(update={"id": f"t{number}", "url": url, "is_enabled": is_enabled})


def _api(targets: list[TargetOut], jobs: list[object]) -> OwnApi:
    """Return an API that lists two targets per page."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/v1/jobs":
            return httpx.Response(200, json={"items": jobs, "next": None, "as_of": _NOW.isoformat()})
        begin = int(unquote(request.url.params.get("cursor", "0+/=")).rstrip("+/="))
        more = f"{begin + 2}+/=" if begin + 2 < len(targets) else None
        page = Page[TargetOut](items=targets[begin : begin + 2], next=more, as_of=_NOW)
        return httpx.Response(200, text=page.model_dump_json())

    return _asking(answer)


def _asking(answer: Callable[[httpx.Request], httpx.Response]) -> OwnApi:
    api = OwnApi("http://up", None)
    api._http._http = httpx.AsyncClient(base_url="http://up", transport=streamed(answer))
    return api


@pytest.mark.parametrize("before", [0, 1, 2, 5])
def test_the_demo_target_is_found_on_any_page(before):
    others = [_target(n, f"http://flink-{n}:8081") for n in range(before)]
    job = example("job").model_dump(mode="json")
    with _api([*others, _target(99, _DEMO)], [job]) as api:
        assert api.has_read(_DEMO)
    with _api([*others, _target(99, _DEMO)], [job | {"sparkline": []}]) as api:
        assert not api.has_read(_DEMO)
    with _api(others, [job]) as api:
        assert not api.has_read(_DEMO)


def test_a_paused_target_is_not_waited_for():
    with _api([_target(1, "http://flink:8081"), _target(99, _DEMO, is_enabled=False)], []) as api:
        assert api.has_read(_DEMO)
