"""Builds the API application: its routes, problem documents and OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.api import examples
from backend.api.deps import Services
from backend.api.leaving import EndsWithClient
from backend.api.problems import MEDIA_TYPE, add_problem_handlers, problem
from backend.api.routes import (
    advice,
    alerts,
    backtests,
    board,
    cap_curves,
    causes,
    checkpoints,
    comparing,
    history,
    incidents,
    job_annotations,
    jobs,
    links,
    rollups,
    simulations,
    spark,
    status,
    targets,
    whatif,
)
from backend.contracts.api import Problem
from backend.services.presenting import API_ROOT

_ROUTERS: Final = (
    status.router,
    targets.router,
    jobs.router,
    board.router,
    job_annotations.router,
    history.router,
    rollups.router,
    checkpoints.router,
    comparing.router,
    alerts.router,
    incidents.router,
    spark.router,
    advice.router,
    whatif.router,
    backtests.router,
    simulations.router,
    cap_curves.router,
    links.router,
    causes.router,
)
_BODY_MAX_BYTES = 256 * 1024
_DESCRIPTION = (
    "Checkpoints of stream processors: which subtask holds the barrier, in which phase, and why. "
    "Instants are RFC 3339 in UTC, durations are milliseconds, `null` means *not reported*. Lists have pages: "
    "pass `next` as `cursor` to get the next page. Every error is a problem document (RFC 9457)."
)
_PROBLEM: Final[dict[int | str, dict[str, Any]]] = {
    "default": {
        "description": "A problem document",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}


@dataclass(frozen=True, slots=True)
class AppDeps:
    """What the application is built from. ``running`` is a context that lasts while the application serves."""

    services: Services
    version: str
    running: Callable[[], AbstractAsyncContextManager[None]] = nullcontext


def create_app(deps: AppDeps) -> FastAPI:
    """Build the API under ``/api/v1``. It returns a problem document for an unknown path or an invalid request."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with deps.running():
            yield

    app = FastAPI(
        title="Barrierscope",
        version=deps.version,
        description=_DESCRIPTION,
        openapi_url=f"{API_ROOT}/openapi.json",
        # FastAPI's documentation pages load scripts from another site, which a closed network cannot reach.
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
        responses=_PROBLEM,
        generate_unique_id_function=_operation_id,
    )
    app.state.services = deps.services
    for router in _ROUTERS:
        app.include_router(router, prefix=API_ROOT)
    app.add_middleware(EndsWithClient)
    add_problem_handlers(app)
    app.add_middleware(BoundedBody)
    _describe_in_full(app)
    return app


class BoundedBody:
    """ASGI middleware that refuses a body larger than ``max_bytes``, with or without a declared length."""

    def __init__(self, app: ASGIApp, max_bytes: int = _BODY_MAX_BYTES) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            if len(body) > self._max_bytes:
                detail = f"the body is larger than {self._max_bytes} bytes"
                await problem(413, "body-too-large", detail, instance=scope["path"])(scope, receive, send)
                return
            if not message.get("more_body", False):
                break
        pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return pending.pop() if pending else await receive()

        await self._app(scope, replay, send)


def _operation_id(route: APIRoute) -> str:
    return route.name


def _describe_in_full(app: FastAPI) -> None:
    """Add what FastAPI leaves out of the OpenAPI document: the schema of problems, and nulls in examples."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        document = described()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        if "Problem" not in schemas:
            schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(schema.pop("$defs", {}))
            schemas["Problem"] = schema | {"example": examples.read("problem")}
            for router in _ROUTERS:
                for route in router.routes:
                    if isinstance(route, APIRoute):
                        _restore_examples(route, document["paths"][API_ROOT + route.path_format])
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _restore_examples(route: APIRoute, methods: dict[str, Any]) -> None:
    for method in route.methods or ():
        for code, response in route.responses.items():
            content = response.get("content", {}).get("application/json")
            if content is not None:
                described = methods[method.lower()]["responses"][str(code)]
                described["content"]["application/json"]["example"] = content["example"]
