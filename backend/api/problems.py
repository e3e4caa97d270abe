"""Turns errors into RFC 9457 problem documents. Only this module does so.

The branch of the error tree determines the status: 4xx if the caller must change the request, 503 if a later attempt
may succeed. The response to an unexpected error contains only a reference. The log has the traceback with the same
reference.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.contracts.api import Problem, ProblemField
from backend.domain.errors import (
    BarrierscopeError,
    ConflictError,
    InvalidInputError,
    NotModelledError,
    RateLimitedError,
    StoreUnavailableError,
    TooLargeError,
    UnknownEntityError,
    UpstreamError,
)

MEDIA_TYPE = "application/problem+json"
_TYPE_ROOT = "urn:barrierscope:problem:"
_RETRY_AFTER_S = "5"

_log = structlog.get_logger(__name__)


def problem(
    status: int,
    slug: str,
    detail: str,
    *,
    instance: str | None = None,
    errors: Sequence[ProblemField] = (),
    headers: dict[str, str] | None = None,
) -> Response:
    """Build a response with a problem document.

    ``slug`` names the kind of problem and does not change between versions.
    """
    document = Problem(
        type=_TYPE_ROOT + slug,
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        instance=instance,
        errors=list(errors),
    )
    return Response(document.model_dump_json(), status, media_type=MEDIA_TYPE, headers=headers)


def add_problem_handlers(app: FastAPI) -> None:
    """Make ``app`` return a problem document for every error."""
    app.add_exception_handler(BarrierscopeError, _own)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _http)
    app.add_middleware(_Unforeseen)


async def _own(request: Request, error: Exception) -> Response:
    where = request.url.path
    match error:
        case InvalidInputError():
            fields = [ProblemField(pointer=f.field, detail=f.problem, allowed=f.allowed) for f in error.problems]
            return problem(422, "invalid-input", f"the {error.what} is invalid", instance=where, errors=fields)
        case TooLargeError():
            too_large = ProblemField(pointer=error.field, detail=error.problem, allowed=error.fix)
            return problem(422, f"{error.what}-too-large", str(error), instance=where, errors=[too_large])
        case UnknownEntityError():
            return problem(404, f"unknown-{error.kind}", str(error), instance=where)
        case NotModelledError():
            problems = [ProblemField(pointer="job", detail=error.problem, allowed=error.fix)]
            return problem(422, "job-not-modelled", str(error), instance=where, errors=problems)
        case ConflictError():
            return problem(409, error.kind, str(error), instance=where)
        case RateLimitedError():
            headers = {"Retry-After": str(error.retry_after_s)}
            return problem(429, "too-many-requests", str(error), instance=where, headers=headers)
        case StoreUnavailableError():
            _log.warning(error.summary, reason=error.reason)
            headers = {"Retry-After": _RETRY_AFTER_S}
            detail = f"{error.summary}; try again later"
            return problem(503, f"store-{error.kind}", detail, instance=where, headers=headers)
        case UpstreamError():
            return problem(503, "upstream", str(error), instance=where, headers={"Retry-After": _RETRY_AFTER_S})
    return problem(400, "refused", str(error), instance=where)


async def _malformed(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    fields = [_field(str(e["type"]), tuple(e["loc"]), _words(e), dict(e.get("ctx") or {})) for e in error.errors()]
    detail = "the request is malformed: " + "; ".join(f"{f.pointer}: {f.detail}" for f in fields[:3])
    return problem(422, "invalid-input", detail, instance=request.url.path, errors=fields)


def _words(error: Mapping[str, Any]) -> str:
    """Return the message of Pydantic, or our own where that shows a pattern or counts characters as items."""
    context = error.get("ctx") or {}
    match error["type"]:
        case "string_pattern_mismatch" if "\0" in str(error["input"]):
            return "contains a NUL character"
        case "string_pattern_mismatch":
            return "does not have the form that the description of this field names"
        case "too_long" if isinstance(error["input"], str):
            return f"has {context['actual_length']} characters; at most {context['max_length']} are allowed"
    return str(error["msg"])


def _field(kind: str, loc: tuple[int | str, ...], message: str, context: dict[str, object]) -> ProblemField:
    # For invalid JSON, the location is a position in the text and not a field, so it is left out.
    place, *path = [str(part) for i, part in enumerate(loc) if i == 0 or kind != "json_invalid"]
    if place == "body":
        pointer = "#" + "".join("/" + p.replace("~", "~0").replace("/", "~1") for p in path)
    else:
        pointer = ".".join(path) or place
    allowed = context.get("expected")
    if kind == "json_invalid":
        message = f"is not JSON ({context['error']})" if context.get("error") else "is not JSON"
        allowed = "JSON"
    return ProblemField(pointer=pointer, detail=message, allowed=str(allowed) if allowed is not None else None)


async def _http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    where = request.url.path
    headers = dict(error.headers or {})
    if error.status_code == 404:
        return problem(404, "unknown-path", f"the path {where} does not exist", instance=where)
    if error.status_code == 405:
        detail = (
            f"{request.method} is not allowed for {where}; allowed: {headers.get('allow') or headers.get('Allow', '')}"
        )
        return problem(405, "method-not-allowed", detail, instance=where, headers=headers)
    return problem(error.status_code, "http", str(error.detail), instance=where, headers=headers)


class _Unforeseen:
    """The outermost ASGI middleware. It logs an unexpected error with its traceback and returns only a reference."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_started = False

        async def noting(message: Message) -> None:
            nonlocal has_started
            has_started = has_started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception:  # an unexpected error in a request must not end the service
            reference = secrets.token_hex(6)
            _log.exception("unexpected error", reference=reference, method=scope["method"], path=scope["path"])
            if has_started:
                raise
            detail = f"unexpected error; see reference {reference} in the log of the api role"
            await problem(500, "unforeseen", detail, instance=scope["path"])(scope, receive, send)
