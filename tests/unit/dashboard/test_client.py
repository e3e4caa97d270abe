"""Tests of the API client: it returns typed responses, raises two kinds of errors, and caches."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest

from backend.contracts import api
from backend.domain.errors import ApiRefusedError, ApiUnavailableError, NotModelledError
from dashboard.client import ApiClient
from dashboard.components import cards
from tests.support.dash_calls import texts
from tests.support.fake_api import FakeApi

pytestmark = pytest.mark.anyio

_NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def _client(handler, *, token: str | None = None, monotonic=lambda: 0.0) -> ApiClient:
    return ApiClient(
        transport=httpx.MockTransport(handler), base_url="http://api.test", token=token, monotonic=monotonic
    )


async def test_the_token_is_sent_and_identifiers_are_quoted():
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(
            404, json=api.Problem(type="about:blank", title="x", status=404, detail="none").model_dump()
        )

    client = _client(handle, token="secret")
    with pytest.raises(ApiRefusedError):
        await client.checkpoint("a/../b?c", "r#1", 3)

    assert seen[0].headers["authorization"] == "Bearer secret"
    assert seen[0].url.raw_path == b"/api/v1/jobs/a%2F..%2Fb%3Fc/runs/r%231/checkpoints/3"


async def test_a_refusal_names_the_field_that_was_wrong():
    problem = api.Problem(
        type="about:blank", title="Invalid", status=422, detail="The body is not valid.",
        errors=[api.ProblemField(pointer="#/url", detail="only http and https")],
    )  # fmt: skip

    with pytest.raises(ApiRefusedError, match=r"The body is not valid\. \(url: only http and https\)"):
        await _client(lambda _: httpx.Response(422, content=problem.model_dump_json())).add_target(
            api.TargetIn(url="ftp://x")
        )


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (httpx.Response(502, text="<html>Bad Gateway</html>"), "HTTP 502 without a reason"),
        (httpx.Response(200, text="<html>hello</html>"), "invalid answer"),
        (httpx.Response(200, text='{"version": 1'), "invalid answer"),
        (httpx.ReadTimeout("slow"), "did not answer within 10 s"),
        (httpx.ConnectError("refused"), "does not answer"),
    ],
    ids=["502", "html", "half", "timeout", "refused"],
)
async def test_every_invalid_answer_becomes_one_error_with_a_sentence(answer, says):
    def handle(_request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(ApiUnavailableError, match=says):
        await _client(handle).status()


async def test_ended_checkpoints_are_cached_longer_than_open_ones():
    fake = FakeApi(now=lambda: _NOW)
    now = [0.0]
    client = _client(fake.handle, monotonic=lambda: now[0])

    async def requests(number: int) -> int:
        before = len(fake.requests)
        await client.checkpoint("jruntime", "rruntime", number)
        return len(fake.requests) - before

    assert [await requests(22), await requests(24)] == [1, 1]
    now[0] = 0.5
    assert [await requests(22), await requests(24)] == [0, 0]
    now[0] = 1.0
    assert [await requests(22), await requests(24)] == [0, 1]
    now[0] = 3.5
    assert [await requests(22), await requests(24)] == [1, 1]


async def test_a_refusal_of_several_fields_has_a_sentence_for_each_of_them():
    problem = {
        "type": "about:blank",
        "title": "invalid",
        "status": 422,
        "detail": "the what-if is invalid",
        "errors": [
            {"pointer": "settings.interval", "detail": "'soon' cannot be read", "allowed": "a duration"},
            {"pointer": "settings.colour", "detail": "is not a setting"},
        ],
    }
    with pytest.raises(ApiRefusedError, match="the what-if is invalid") as refused:
        await _client(lambda _: httpx.Response(422, json=problem)).status()

    assert refused.value.parts == (
        "The what-if is invalid",
        "interval: 'soon' cannot be read. Allowed: a duration.",
        "colour: is not a setting.",
    )
    said = texts(cards.message(refused.value))
    assert said.count("cannot be read") == said.count("colour") == 1


async def test_a_refusal_that_names_its_only_field_in_its_sentence_says_nothing_twice():
    error = NotModelledError("stage-1 reports 140 % of the time", fix="check the clocks of its task managers")
    field = {"pointer": "job", "detail": error.problem, "allowed": error.fix}
    problem = {"type": "about:blank", "title": "t", "status": 422, "detail": str(error), "errors": [field]}
    with pytest.raises(ApiRefusedError) as refused:
        await _client(lambda _: httpx.Response(422, json=problem)).status()

    assert str(refused.value) == str(error)
    said = texts(cards.message(refused.value))
    assert said.count("140 %") == said.count("check the clocks") == 1


async def test_a_line_of_a_refusal_ends_with_one_dot():
    field = {"pointer": "settings.interval", "detail": "'soon' cannot be read.", "allowed": "a duration."}
    problem = {
        "type": "about:blank",
        "title": "t",
        "status": 422,
        "detail": "the what-if is invalid",
        "errors": [field],
    }
    with pytest.raises(ApiRefusedError) as refused:
        await _client(lambda _: httpx.Response(422, json=problem)).status()

    assert refused.value.parts[1:] == ("interval: 'soon' cannot be read. Allowed: a duration.",)
