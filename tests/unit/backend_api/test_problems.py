"""Tests that every error response is a problem document that reveals no internals."""

from __future__ import annotations

from typing import Annotated

import httpx
import pytest
from fastapi import FastAPI, Query
from structlog.testing import capture_logs

from backend.api.app import BoundedBody
from backend.api.problems import add_problem_handlers
from backend.contracts.api import Problem, TargetIn
from backend.contracts.model import Rfc3339
from backend.domain.errors import (
    ConflictError,
    FieldProblem,
    InvalidInputError,
    StoreBusyError,
    StoreFullError,
    StoreUnavailableError,
    TargetUnavailableError,
    UnknownEntityError,
)

pytestmark = pytest.mark.anyio

ERRORS = {
    "invalid": InvalidInputError([FieldProblem("from", "is late", "earlier")], what="query"),
    "unknown": UnknownEntityError(kind="job", id="j1"),
    "conflict": ConflictError("watched already", kind="target-exists"),
    "store": StoreUnavailableError("connection to server at 10.0.0.1, user secret-user failed"),
    "store-busy": StoreBusyError("every connection of this process is in use"),
    "store-full": StoreFullError("could not extend file: No space left on device"),
    "target": TargetUnavailableError(url="http://flink:8081", reason="refused"),
    "unforeseen": ZeroDivisionError("the password is hunter2"),
}


@pytest.fixture
async def client():
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    add_problem_handlers(app)
    app.add_middleware(BoundedBody)

    @app.get("/raise/{which}")
    async def fail(which: str):
        raise ERRORS[which]

    @app.post("/body")
    async def body(value: TargetIn):
        return value

    @app.get("/asked")
    async def asked(
        to: Rfc3339 | None = None,
        one: Annotated[str | None, Query(pattern=r"^[^\x00]{1,100}:[0-9]{1,18}$")] = None,
    ):
        return [to, one]

    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as opened:
        yield opened


@pytest.mark.parametrize(
    ("which", "status", "slug"),
    [
        ("invalid", 422, "invalid-input"),
        ("unknown", 404, "unknown-job"),
        ("conflict", 409, "target-exists"),
        ("store", 503, "store-unavailable"),
        ("store-busy", 503, "store-busy"),
        ("store-full", 503, "store-full"),
        ("target", 503, "upstream"),
        ("unforeseen", 500, "unforeseen"),
    ],
)
async def test_the_class_of_an_error_decides_the_status(client, which, status, slug):
    with capture_logs():
        answer = await client.get(f"/raise/{which}")

    assert answer.headers["content-type"] == "application/problem+json"
    found = Problem.model_validate_json(answer.content)
    assert (answer.status_code, found.status, found.type) == (status, status, f"urn:barrierscope:problem:{slug}")
    assert found.instance == f"/raise/{which}"


async def test_invalid_input_is_reported_by_field(client):
    found = Problem.model_validate_json((await client.get("/raise/invalid")).content)

    assert [(e.pointer, e.detail, e.allowed) for e in found.errors] == [("from", "is late", "earlier")]


async def test_an_unexpected_error_is_logged_and_the_answer_has_only_a_reference(client):
    with capture_logs() as logs:
        answer = await client.get("/raise/unforeseen")

    assert "hunter2" not in answer.text
    assert logs[0]["event"] == "unexpected error"
    assert logs[0]["reference"] in answer.json()["detail"]


async def test_the_message_of_the_store_is_not_in_the_answer(client):
    with capture_logs():
        answer = await client.get("/raise/store")

    assert "secret-user" not in answer.text
    assert answer.headers["retry-after"] == "5"


@pytest.mark.parametrize(
    ("content", "pointer"),
    [
        (b'{"url": 7}', "#/url"),
        (b'{"url": "http://x", "nmae": "y"}', "#/nmae"),
        (b"{}", "#/url"),
        (b'{"url": ', "#"),
        (b"[]", "#"),
    ],
)
async def test_a_malformed_body_names_the_field(client, content, pointer):
    answer = await client.post("/body", content=content, headers={"Content-Type": "application/json"})

    assert answer.status_code == 422
    assert [e.pointer for e in Problem.model_validate_json(answer.content).errors] == [pointer]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"to": "0001-01-01T00:00:00Z"}, "Input should be an instant from 1970 to 2199"),
        ({"to": "9999-01-01T00:00:00Z"}, "Input should be an instant from 1970 to 2199"),
        ({"one": "x:-1"}, "does not have the form that the description of this field names"),
        ({"one": "x\0:1"}, "contains a NUL character"),
    ],
)
async def test_a_refused_value_is_told_without_patterns_and_words_of_python(client, asked, said):
    (error,) = Problem.model_validate_json((await client.get("/asked", params=asked)).content).errors

    assert error.detail.startswith(said)


async def test_a_long_name_is_counted_in_characters(client):
    body = {"url": "http://x", "name": "n" * 500}
    (error,) = Problem.model_validate_json((await client.post("/body", json=body)).content).errors

    assert error.detail == "has 500 characters; at most 200 are allowed"


async def test_a_body_that_is_not_json_is_refused_in_plain_words(client):
    answer = await client.post("/body", content=b"{garbage", headers={"Content-Type": "application/json"})

    problem = Problem.model_validate_json(answer.content)
    assert problem.detail.startswith("the request is malformed: #: is not JSON (")
    assert problem.errors[0].allowed == "JSON"


async def test_a_body_that_is_not_utf_8_is_a_problem(client):
    answer = await client.post("/body", content=b"\xff", headers={"Content-Type": "application/json"})

    assert Problem.model_validate_json(answer.content).status == answer.status_code == 400


@pytest.mark.parametrize("path", ["/nope", "/raise", "/body/"])
async def test_an_unknown_path_is_a_problem(client, path):
    answer = await client.get(path)

    assert (answer.status_code, answer.json()["type"]) == (404, "urn:barrierscope:problem:unknown-path")


async def test_a_wrong_method_is_answered_with_the_allowed_methods(client):
    answer = await client.delete("/body")

    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert "POST" in answer.json()["detail"]


async def test_an_endless_body_is_refused(client):
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 1
            yield b"x" * 65536

    answer = await client.post("/body", content=endless(), headers={"Content-Type": "application/json"})

    assert answer.status_code == 413
    assert sent < 10
