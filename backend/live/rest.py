"""The live runtime's monitoring REST under ``/runtime/v1``: Flink's paths and JSON, and some additional paths.

The driver runs the jobs. The modules ``..._json`` and ``metrics`` build the JSON. Errors have Flink's format
``{"errors": [...]}``, without stack traces. These paths do not exist in Flink:

* GET  ``/jobs/:id/checkpoints/:cid/barriers``       the events of each barrier on each channel
* GET  ``/jobs/:id/checkpoints/:cid/measurements``   more measurements of each subtask (``measure_json``)
* GET  ``/jobs/:id/restarts``                        the cost of each restart
* GET  ``/jobs/:id/rescales``                        the outcome of each change of parallelism
* GET, PATCH ``/jobs/:id/settings``                  the settings that can change while the job runs
* POST ``/jobs/:id/settings/check``                 whether settings can be changed; nothing changes
* POST ``/jobs/:id/checkpoints/:cid/abort``           abort a checkpoint in progress
* POST ``/jobs``                                      start a job, also from a checkpoint of an ended one (``starting``)
* POST ``/uploads``                                   upload a checkpoint file, from which a job can start (``uploads``)

Requests can change the settings of a job. As in Flink, they can also trigger a checkpoint or a savepoint, stop a job
with a savepoint, cancel it (``PATCH /jobs/:id?mode=cancel``), and change its parallelism (``PUT
/jobs/:id/resource-requirements``).

A request with a foreign ``Host`` or ``Origin`` header is refused, to prevent DNS rebinding and cross-site requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import orjson
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from backend.access.authority import LOOPBACK, malformed_header, without_port
from backend.domain.errors import DomainError, FieldProblem, InvalidInputError, UnknownEntityError
from backend.live import barrier_json, checkpoint_json, job_json, metrics, request_json, savepoint_json, starting
from backend.live.driver import RuntimeDriver
from backend.live.uploads import UPLOAD_MAX_BYTES
from backend.live.view import CheckpointView, JobView, VertexView
from backend.live.wire import Json

PREFIX = "/runtime/v1"
_BODY_MAX_BYTES = 64 * 1024
_TASK_MANAGER = "barrierscope-runtime"

Handler = Callable[[Request], Awaitable[Response]]


def create_runtime_app(driver: RuntimeDriver, *, version: str, hosts: frozenset[str] = frozenset()) -> Starlette:
    """Return the ASGI app. The caller must also run ``driver.run()``.

    ``hosts`` are the host names that requests may use, in addition to the names of loopback.
    """
    rest = _Rest(driver, version)
    app = Starlette(
        routes=[Mount(PREFIX, routes=rest.routes())],
        exception_handlers={HTTPException: _http_error, DomainError: _domain_error},
    )
    app.add_middleware(SameSite, hosts=LOOPBACK | hosts)
    return app


class SameSite:
    """ASGI middleware that refuses requests to another host name, and requests from a page of another site."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            if name := malformed_header(headers):
                await _errors(400, f"the header {name} is missing, repeated or malformed")(scope, receive, send)
                return
            origin = headers.get("origin")
            names = [headers["host"], *([] if origin is None else [origin.partition("://")[2]])]
            if any(without_port(name) not in self._hosts for name in names):
                await _errors(403, "this name or origin is not allowed here")(scope, receive, send)
                return
        await self._app(scope, receive, send)


class _Rest:
    """The request handlers. Each finds the objects that its path names, and calls a function that builds their JSON."""

    def __init__(self, driver: RuntimeDriver, version: str) -> None:
        self._driver = driver
        self._version = version

    def routes(self) -> list[Route]:
        """Return the routes of every path under the prefix."""
        job, vertex, checkpoint = "/jobs/{job}", "/jobs/{job}/vertices/{vertex}", "/jobs/{job}/checkpoints"
        detail = checkpoint + "/details/{checkpoint}"
        return [
            Route("/config", self._of_all(lambda _: job_json.config(self._version, self._driver.lag_max_ms()))),
            Route("/overview", self._of_all(lambda jobs: job_json.overview(jobs, self._version))),
            Route("/jobs", self._of_all(job_json.jobs)),
            Route("/jobs", self.start, methods=["POST"]),
            Route("/uploads", self.upload, methods=["POST"]),
            Route("/jobs/overview", self._of_all(job_json.jobs_overview)),
            Route("/taskmanagers", self._of_all(lambda jobs: job_json.task_managers(jobs, _TASK_MANAGER))),
            Route(job, self._of_job(job_json.job)),
            Route(job, self.cancel, methods=["PATCH"]),
            Route(job + "/plan", self._of_job(job_json.plan)),
            Route(job + "/config", self._of_job(job_json.job_config)),
            Route(job + "/exceptions", self._of_job(job_json.exceptions)),
            Route(job + "/metrics", self.job_metrics),
            Route(job + "/settings", self.settings, methods=["GET", "PATCH"]),
            Route(job + "/settings/check", self.check_settings, methods=["POST"]),
            Route(job + "/savepoints", self.trigger_savepoint, methods=["POST"]),
            Route(job + "/stop", self.stop, methods=["POST"]),
            Route(job + "/savepoints/{trigger}", self.savepoint),
            Route(job + "/resource-requirements", self.resource_requirements, methods=["GET", "PUT"]),
            Route(checkpoint, self._of_job(checkpoint_json.checkpoints)),
            Route(checkpoint, self.trigger_checkpoint, methods=["POST"]),
            Route(checkpoint + "/config", self._of_job(checkpoint_json.checkpoint_config)),
            Route(detail, self.checkpoint_details),
            Route(detail + "/subtasks/{vertex}", self.checkpoint_subtasks),
            Route(checkpoint + "/{checkpoint}/barriers", self.barriers),
            Route(checkpoint + "/{checkpoint}/measurements", self.measurements),
            Route(checkpoint + "/{checkpoint}/abort", self.abort_checkpoint, methods=["POST"]),
            # This route must be after the other paths under /checkpoints, because it matches some of them too.
            Route(checkpoint + "/{trigger}", self.requested_checkpoint),
            Route(job + "/restarts", self.restarts),
            Route(job + "/rescales", self.rescales),
            Route(vertex, self.vertex),
            Route(vertex + "/backpressure", self.backpressure),
            Route(vertex + "/metrics", self.vertex_metrics),
            Route(vertex + "/subtasks/metrics", self.aggregated_metrics),
        ]

    def _of_all(self, build: Callable[[list[JobView]], Json]) -> Handler:
        async def handle(_: Request) -> Response:
            return _json(build(self._driver.views()))

        return handle

    def _of_job(self, build: Callable[[JobView], Json]) -> Handler:
        async def handle(request: Request) -> Response:
            return _json(build(self._job(request)))

        return handle

    async def job_metrics(self, request: Request) -> Response:
        """Handle ``/jobs/:id/metrics``."""
        return _json(metrics.job_metrics(self._job(request), _listed(request, "get")))

    async def vertex(self, request: Request) -> Response:
        """Handle ``/jobs/:id/vertices/:vid``."""
        return _json(job_json.vertex(*self._vertex(request), _TASK_MANAGER))

    async def backpressure(self, request: Request) -> Response:
        """Handle ``/jobs/:id/vertices/:vid/backpressure``."""
        return _json(job_json.backpressure(*self._vertex(request)))

    async def vertex_metrics(self, request: Request) -> Response:
        """Handle ``/jobs/:id/vertices/:vid/metrics``."""
        return _json(metrics.vertex_metrics(self._vertex(request)[1], _listed(request, "get")))

    async def aggregated_metrics(self, request: Request) -> Response:
        """Handle ``/jobs/:id/vertices/:vid/subtasks/metrics``."""
        aggregates = _listed(request, "agg") or []
        return _json(metrics.aggregated_metrics(self._vertex(request)[1], _listed(request, "get"), aggregates))

    async def checkpoint_details(self, request: Request) -> Response:
        """Handle ``/jobs/:id/checkpoints/details/:cid``."""
        return _json(checkpoint_json.checkpoint_details(*self._checkpoint(request)))

    async def checkpoint_subtasks(self, request: Request) -> Response:
        """Handle ``/jobs/:id/checkpoints/details/:cid/subtasks/:vid``."""
        job, checkpoint = self._checkpoint(request)
        _, vertex = self._vertex(request)
        return _json(checkpoint_json.checkpoint_subtasks(job, checkpoint, vertex.id))

    async def barriers(self, request: Request) -> Response:
        """Handle ``/jobs/:id/checkpoints/:cid/barriers``."""
        job, number = self._job(request), _number(request)
        events = self._driver.job(job.id).engine.barriers(number)
        if events is None:
            raise UnknownEntityError(kind="checkpoint", id=number)
        return _json(barrier_json.barriers(events))

    async def measurements(self, request: Request) -> Response:
        """Handle ``/jobs/:id/checkpoints/:cid/measurements``."""
        job, number = self._job(request), _number(request)
        found = self._driver.job(job.id).engine.measurements(number)
        if found is None:
            raise UnknownEntityError(kind="checkpoint", id=number)
        return _json(found)

    async def restarts(self, request: Request) -> Response:
        """Handle ``/jobs/:id/restarts``."""
        return _json(self._driver.job(self._job(request).id).engine.restarts())

    async def rescales(self, request: Request) -> Response:
        """Handle ``/jobs/:id/rescales``."""
        return _json(self._driver.job(self._job(request).id).engine.rescales())

    async def resource_requirements(self, request: Request) -> Response:
        """Handle ``/jobs/:id/resource-requirements``: GET returns the parallelism of every vertex, PUT changes it."""
        job = self._job(request)
        if request.method != "PUT":
            return _json(request_json.resource_requirements(job))
        source = request.query_params.get("from")
        wanted = request_json.wanted_rescale(await _body(request), job, source)
        self._driver.rescale(job.id, wanted.parallelism, from_savepoint=wanted.from_savepoint)
        return _json({})

    async def trigger_checkpoint(self, request: Request) -> Response:
        """Handle POST ``/jobs/:id/checkpoints``: request a checkpoint."""
        job = self._job(request)
        trigger_id, is_full = request_json.wanted_checkpoint(await _body(request), job)
        return _json({"request-id": self._driver.trigger_checkpoint(job.id, trigger_id, is_full=is_full)}, 202)

    async def abort_checkpoint(self, request: Request) -> Response:
        """Handle POST ``/jobs/:id/checkpoints/:cid/abort``."""
        self._driver.abort_checkpoint(self._job(request).id, _number(request))
        return _json({})

    async def requested_checkpoint(self, request: Request) -> Response:
        """Handle ``/jobs/:id/checkpoints/:triggerid``: return the state of a requested checkpoint."""
        job = self._job(request)
        asked = self._driver.requested_checkpoint(job.id, _hexadecimal(request, "trigger"))
        return _json(request_json.checkpoint_status(asked))

    async def settings(self, request: Request) -> Response:
        """Handle ``/jobs/:id/settings``: GET returns the settings that can change now, PATCH changes them.

        If one of the settings in a PATCH is invalid, none is changed.
        """
        job = self._job(request)
        if request.method == "PATCH":
            return _json(dict(self._driver.change_settings(job.id, await _changes(request))))
        return _json(dict(self._driver.job(job.id).engine.settings()))

    async def check_settings(self, request: Request) -> Response:
        """Handle POST ``/jobs/:id/settings/check``: refuse what a PATCH of ``/settings`` would refuse."""
        job = self._job(request)
        changes = await _changes(request)
        self._driver.job(job.id).engine.check_settings(changes)
        return _json(dict(self._driver.job(job.id).engine.settings()) | dict(changes))

    async def trigger_savepoint(self, request: Request) -> Response:
        """Handle POST ``/jobs/:id/savepoints``: request a savepoint."""
        job = self._job(request)
        wanted = savepoint_json.wanted(await _body(request))
        trigger_id = self._driver.trigger_savepoint(job.id, wanted.form, wanted.trigger_id)
        return _json({"request-id": trigger_id}, 202)

    async def stop(self, request: Request) -> Response:
        """Handle POST ``/jobs/:id/stop``: stop the job with a savepoint.

        ``/savepoints/:triggerid`` returns the state of this savepoint.
        """
        job = self._job(request)
        wanted = savepoint_json.wanted_stop(await _body(request))
        asked = wanted.savepoint
        trigger_id = self._driver.stop(job.id, asked.form, asked.trigger_id, drains=wanted.drains)
        return _json({"request-id": trigger_id}, 202)

    async def start(self, request: Request) -> Response:
        """Handle POST ``/jobs``: start a job, and return its id."""
        job = starting.start(self._driver, starting.wanted_start(await _body(request)))
        return _json({"jobid": job.id})

    async def upload(self, request: Request) -> Response:
        """Handle POST ``/uploads``: keep the file in the body, and return the location for ``savepointPath``."""
        content = await _body(request, most=UPLOAD_MAX_BYTES)
        # Reading takes up to some tenths of a second, in which the jobs go on.
        return _json(await asyncio.to_thread(self._driver.uploads.add, content))

    async def cancel(self, request: Request) -> Response:
        """Handle PATCH ``/jobs/:id``: cancel the job, as in Flink."""
        job = self._job(request)
        if request.query_params.get("mode", "cancel") != "cancel":
            raise HTTPException(400, "mode: the only mode is cancel; POST /stop stops the job with a savepoint")
        self._driver.cancel(job.id)
        return _json({}, 202)

    async def savepoint(self, request: Request) -> Response:
        """Handle ``/jobs/:id/savepoints/:triggerid``: return the state of a requested savepoint."""
        job = self._job(request)
        return _json(savepoint_json.status(self._driver.savepoint(job.id, _hexadecimal(request, "trigger"))))

    def _job(self, request: Request) -> JobView:
        return self._driver.view(_hexadecimal(request, "job"))

    def _vertex(self, request: Request) -> tuple[JobView, VertexView]:
        job = self._job(request)
        vertex = job.vertex(_hexadecimal(request, "vertex"))
        if vertex is None:
            raise UnknownEntityError(kind="vertex", id=request.path_params["vertex"])
        return job, vertex

    def _checkpoint(self, request: Request) -> tuple[JobView, CheckpointView]:
        job, number = self._job(request), _number(request)
        checkpoint = job.checkpoint(number)
        if checkpoint is None:
            raise UnknownEntityError(kind="checkpoint", id=number)
        return job, checkpoint


async def _body(request: Request, *, most: int = _BODY_MAX_BYTES) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise HTTPException(413, f"the body is larger than {most} bytes")
    return bytes(body)


async def _changes(request: Request) -> Mapping[str, str]:
    body = await _body(request)
    allowed = 'an object of settings, such as {"execution.checkpointing.interval": "10s"}'
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidInputError([FieldProblem("body", f"is not JSON ({error})", allowed)], what="body") from None
    if not isinstance(document, dict) or not document:
        raise InvalidInputError([FieldProblem("body", "is not an object with settings", allowed)], what="body")
    wrong = [key for key, value in document.items() if not isinstance(value, str | int | float | bool)]
    if wrong:
        raise InvalidInputError(
            [FieldProblem(k, "is not a plain value", "text or a number") for k in wrong], what="body"
        )
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in document.items()}


def _hexadecimal(request: Request, name: str) -> str:
    text: str = request.path_params[name]
    if len(text) != 32 or not set(text) <= set("0123456789abcdef"):
        raise HTTPException(400, f"{name} id {text[:100]!r} is malformed: it must have 32 hexadecimal digits")
    return text


def _number(request: Request) -> int:
    text: str = request.path_params["checkpoint"]
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise HTTPException(400, f"checkpoint id {text[:100]!r} is malformed: it must be a number")
    return int(text)


def _listed(request: Request, name: str) -> list[str] | None:
    text = request.query_params.get(name)
    return None if text is None else [part for part in text.split(",") if part]


def _json(body: Json, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")


def _errors(status: int, *messages: str, **more: Json) -> Response:
    return _json({"errors": list(messages), **more}, status)


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    if error.status_code == 404:
        return _errors(404, f"Not found: {request.url.path.removeprefix(PREFIX)}")
    return _errors(error.status_code, error.detail)


async def _domain_error(_: Request, error: Exception) -> Response:
    if isinstance(error, InvalidInputError):
        problems: list[Json] = [{"field": p.field, "problem": p.problem, "allowed": p.allowed} for p in error.problems]
        return _errors(400, *(str(p) for p in error.problems), problems=problems)
    return _errors(404 if isinstance(error, UnknownEntityError) else 400, str(error))
