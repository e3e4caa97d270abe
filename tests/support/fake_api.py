"""A fake of the API ``/api/v1``, with the models of ``backend.contracts.api``, to test the dashboard without a service.

Two jobs have the recorded values of runs B2 (slow) and E (expiring). The other jobs are invented, for cases that the
recordings lack: channels of the reference runtime, an unaligned job, missing values, a hostile name, an unreachable
target and 500 subtasks. One checkpoint of the runtime job is always in progress and advances with the clock ``now``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote

import httpx

from backend.contracts import api
from backend.contracts.alerts import AlertOut
from backend.contracts.annotations import AnnotationIn
from backend.contracts.backpressure import BackpressureOut
from backend.contracts.board import BoardOut
from backend.contracts.changes import ChangePointOut
from backend.contracts.checkpoint_actions import ActionIn
from backend.contracts.comparing import CheckpointComparisonOut
from backend.contracts.comparing_windows import WindowsComparisonOut
from backend.contracts.connection import ConnectionDoc
from backend.contracts.history import HistoryOut
from backend.contracts.pressure_history import PressureHistoryOut
from backend.contracts.rollups import RollupHourOut
from backend.contracts.status import PartialSourceOut, PipelineOut, StatusOut, UnreadSourceOut
from backend.contracts.subtask_matrix import MatrixGroup, SubtaskMatrixOut
from backend.domain.checkpoint import CheckpointStatus, SubtaskMeasure
from backend.domain.errors import ConflictError, FieldProblem, InvalidInputError, TooLargeError
from backend.domain.links import version_of
from backend.domain.observation import JobState
from backend.domain.pressure import PressureMeasure
from backend.domain.target import TargetState
from backend.services.checkpoints.comparing_windows import Window
from backend.services.jobs.freshness import stale_by_reason
from tests.support.api_examples import example
from tests.support.made_up_alerts import JOB, MadeUpAlerts
from tests.support.made_up_backtests import MadeUpBacktests
from tests.support.made_up_cap_curves import MadeUpCapCurves
from tests.support.made_up_checkpoints import HOSTILE, barriers, header_of, hours_of, matrix_of, row_of_job
from tests.support.made_up_comparisons import comparison_of, windows_of
from tests.support.made_up_history import MadeUpAnnotations, history_of, usual_of
from tests.support.made_up_jobs import MadeUpJobs
from tests.support.made_up_pressure import pressure_history_of
from tests.support.made_up_simulations import MadeUpSimulations
from tests.support.made_up_space_time import space_time_of
from tests.support.made_up_what_ifs import MadeUpWhatIfs

__all__ = ["HOSTILE", "FakeApi"]


class FakeApi(MadeUpJobs):
    """A fake service with a handful of jobs. ``handle`` is the handler to pass to an ``httpx.MockTransport``."""

    def __init__(self, *, now: Callable[[], datetime], job_count: int = 0) -> None:
        super().__init__(now=now, job_count=job_count)
        self.is_down = False
        # The row of each job, with the detail from which it was made.
        self._rows: dict[str, tuple[api.JobDetailOut, api.JobOut]] = {}
        self._version = 1
        self.flame_graph_count = 0
        self._known: dict[str, api.VerdictOut | None] = {}
        self._changed_at: dict[str, int] = {}
        self.requests: list[str] = []
        self._changes = 0
        self.targets: dict[str, api.TargetOut] = {t.id: t for t in self._first_targets()}
        self.unread_sources: list[UnreadSourceOut] = []
        self.partial_sources: list[PartialSourceOut] = []
        self.alerting = MadeUpAlerts(now=now)
        self.annotations = MadeUpAnnotations()
        self.simulations = MadeUpSimulations(now=now)
        self.cap_curves = MadeUpCapCurves(now=now)
        self.what_ifs = MadeUpWhatIfs(now=now)
        self.backtests = MadeUpBacktests(now=now)

    # --- HTTP -----------------------------------------------------------------------------------------------------

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Respond to one request."""
        path = unquote(request.url.path)
        self.requests.append(f"{request.method} {path}")
        if self.is_down:
            raise httpx.ConnectError("refused", request=request)
        try:
            states, if_match = request.url.params.get_list("state"), request.headers.get("If-Match")
            if path == "/api/v1/targets" and request.method == "GET":
                answer: Any = self._listed(request.url.params)
            elif path == "/api/v1/board":
                answer = self._board(request.url.params)
            elif path == "/api/v1/alerts" and request.url.params.get("job", JOB) != JOB:
                answer = api.Page[AlertOut](items=[], as_of=self._now())
            elif path.endswith("/backpressure/history"):
                answer = self._pressure_history(path.split("/")[-3], request.url.params)
            elif path.endswith("/checkpoints") and "from" in request.url.params:
                answer = self._checkpoints_between(path.split("/")[-2], request.url.params)
            elif path.endswith("/history") and "/backpressure/" not in path:
                answer = self._history(path.split("/")[-2], request.url.params)
            elif path.endswith("/annotations"):
                answer = self._annotations(request, path.split("/")[-2])
            elif path.endswith("/space-time"):
                job, number = path.split("/")[-6], int(path.split("/")[-2])
                opened = request.url.params.get_list("open")
                answer = space_time_of(self._checkpoint(job, number), self._job(job).detail, opened)
            elif path.endswith("/subtask-matrix"):
                answer = self._matrix(path.split("/")[-2], request.url.params)
            elif path == "/api/v1/compare":
                asked = request.url.params
                answer = self._comparison(asked) if "a_checkpoint" in asked else self._windows(asked)
            else:
                answer = self._answer(request.method, path.removeprefix("/api/v1/"), request.content, states, if_match)
        except LookupError as missing:
            return problem(404, f"no such {missing.args[0]}")
        except ConflictError as error:
            return problem(409, str(error), kind=error.kind)
        except InvalidInputError as error:
            return invalid(error)
        except TooLargeError as error:
            return problem(422, str(error))
        if answer is True:
            return httpx.Response(204)
        if isinstance(answer, httpx.Response):
            return answer
        content = answer.model_dump_json().encode()
        return httpx.Response(200, content=content, headers={"content-type": "application/json"})

    def _answer(
        self, method: str, path: str, body: bytes, states: Sequence[str] = (), if_match: str | None = None
    ) -> Any:
        now = self._now()
        match method, path.split("/"):
            case "GET", ["status"]:
                return self._status()
            case "GET", ["targets", target]:
                return self.targets[target]
            case "POST", ["targets", "test"]:
                return self._test(api.TargetIn.model_validate_json(body))
            case "POST", ["targets"]:
                return self._add(api.TargetIn.model_validate_json(body))
            case "PATCH", ["targets", target]:
                return self._patch(target, api.TargetPatch.model_validate_json(body), if_match)
            case "DELETE", ["targets", target]:
                return self._remove(target, if_match)
            case "GET", ["jobs"]:
                return api.Page[api.JobOut](items=[row_of_job(j.detail) for j in self.jobs.values()], as_of=now)
            case "GET", ["jobs", job]:
                return self._job(job).detail
            case "GET", ["jobs", job, "checkpoints"]:
                return api.Page[api.CheckpointOut](items=[header_of(c) for c in self._checkpoints(job)], as_of=now)
            case "GET", ["jobs", job, "checkpoints", "latest"]:
                found = self._checkpoints(job)
                return header_of(found[0]) if found else problem(404, "no checkpoint 'latest'")
            case "GET", ["jobs", job, "events"]:
                return api.Page[api.JobEventOut](items=self._job(job).events, as_of=now)
            case "GET", ["jobs", job, "change-points"]:
                return api.Page[ChangePointOut](items=self._job(job).changes, as_of=now)
            case "GET", ["jobs", job, "links"]:
                found = self._job(job)
                changes = {"job_id": found.detail.id} | getattr(found, "links", {})
                return example("links").model_copy(update=changes)
            case "GET", ["jobs", _, "vertices", _, "subtasks", _, "thread-dump"]:
                return example("thread_dump")
            case "GET", ["jobs", _, "vertices", _, "subtasks", _, "flame-graph"]:
                self.flame_graph_count += 1
                found = example("flame_graph")
                # The first answer comes while the engine is sampling.
                waiting = {"is_sampling": True, "sampled_at": None, "sample_count": 0, "frames": []}
                return found.model_copy(update=waiting) if self.flame_graph_count == 1 else found
            case "GET", ["jobs", job, "rollups"]:
                return api.Page[RollupHourOut](items=hours_of(self._job(job).checkpoints), as_of=now)
            case "GET", ["jobs", job, "usual-range"]:
                return usual_of([header_of(c) for c in self._checkpoints(job)], now)
            case "GET", ["jobs", job, "backpressure"]:
                return BackpressureOut(vertices=self._job(job).pressure, as_of=now)
            case "GET", ["jobs", job, "runs", _, "checkpoints", number]:
                return self._checkpoint(job, int(number))
            case "GET", ["jobs", job, "runs", _, "checkpoints", number, "progress"]:
                return self._progress(job, int(number))
            case "POST", ["jobs", _, "runs", _, "checkpoints", number, "actions"]:
                return self._act_on(int(number), ActionIn.model_validate_json(body))
            case "GET", ["jobs", job, "runs", _, "checkpoints", number, "barriers"]:
                return barriers(self._checkpoint(job, int(number)), has_channels=job == "jruntime")
            case _:
                found = self.simulations.answer(method, path.split("/"), body)
                if found is None:
                    found = self.cap_curves.answer(method, path.split("/"), body)
                if found is None:
                    found = self.what_ifs.answer(method, path.split("/"), body)
                if found is None:
                    found = self.backtests.answer(method, path.split("/"), body)
                if found is None:
                    found = self.alerting.answer(method, path.split("/"), body, states)
                return problem(404, f"no such path {path}") if found is None else found

    # --- the board ------------------------------------------------------------------------------------------------

    def _board(self, asked: httpx.QueryParams) -> BoardOut:
        """Return a window of the board.

        It contains a row if the client does not know the job, or if the verdict changed after the version ``since``.
        """
        rows = [self._row(job.detail) for job in self.jobs.values()]
        found = [r for r in rows if asked.get("search", "").casefold() in r.name.casefold()]
        if asked.get("sort") == "name":
            found.sort(key=lambda r: r.name.casefold(), reverse=asked.get("is_descending") == "true")
        ended = [r for r in found if r.state is JobState.ENDED]
        found = [r for r in found if r.state is not JobState.ENDED]
        found += ended if asked.get("ended") != "false" else []
        first = int(asked["offset"])
        shown = found[first : first + int(asked["limit"])]
        if changed := [r for r in rows if r.id not in self._changed_at or self._known[r.id] != r.verdict]:
            self._version += 1
            self._known |= {r.id: r.verdict for r in changed}
            self._changed_at |= {r.id: self._version for r in changed}
        stale = [r for r in found if r.freshness is not None and r.freshness.is_stale]
        known = asked.get_list("known") if asked.get("since") else []
        since = int(asked.get("since", "fake-0").removeprefix("fake-"))
        return BoardOut(
            ids=[r.id for r in shown],
            rows=[r for r in shown if r.id not in known or self._changed_at[r.id] > since],
            total=len(found),
            ended_count=len(ended),
            counts=Counter(r.health for r in found if r.health is not None),
            stale_counts=Counter(r.health for r in stale if r.health is not None),
            stale=stale_by_reason(stale),
            unanalysed_count=sum(r.health is None for r in found),
            sources=list(dict.fromkeys(r.capabilities.source for r in rows)),
            newest_observed_at=max((r.observed_at for r in rows if r.observed_at), default=None),
            version=f"fake-{self._version}",
            as_of=self._now(),
        )

    def _row(self, detail: api.JobDetailOut) -> api.JobOut:
        found = self._rows.get(detail.id)
        if found is None or found[0] is not detail:
            found = self._rows[detail.id] = detail, row_of_job(detail)
        return found[1]

    def _matrix(self, job: str, asked: httpx.QueryParams) -> SubtaskMatrixOut:
        found, vertex = self._job(job).checkpoints, asked.get("vertex")
        if vertex is not None and vertex not in {v.vertex_id for c in found for v in c.vertices}:
            raise LookupError(f"vertex '{vertex}'")
        group = MatrixGroup(asked.get("group", "vertex"))
        return matrix_of(found, SubtaskMeasure(asked.get("measure", "duration")), vertex, group)

    def _pressure_history(self, job: str, asked: httpx.QueryParams) -> PressureHistoryOut:
        until = datetime.fromisoformat(asked["to"]) if "to" in asked else self._now()
        since = datetime.fromisoformat(asked["from"]) if "from" in asked else until - timedelta(hours=1)
        return pressure_history_of(
            self._job(job).pressure,
            until=until,
            length=until - since,
            vertex_id=asked.get("vertex"),
            measure=PressureMeasure(asked.get("measure", "backpressured")),
        )

    def _checkpoints_between(self, job: str, asked: httpx.QueryParams) -> api.Page[api.CheckpointOut]:
        since, until = (datetime.fromisoformat(asked[name]) for name in ("from", "to"))
        found = [header_of(c) for c in self._checkpoints(job) if since <= c.triggered_at < until]
        return api.Page[api.CheckpointOut](items=found[: int(asked["limit"])], as_of=self._now())

    def _comparison(self, asked: httpx.QueryParams) -> CheckpointComparisonOut:
        job, beside = asked["a"], asked.get("b", asked["a"])
        made, other = self._job(job), self._job(beside)
        a = int(asked["a_checkpoint"].rpartition(":")[2])
        b, choice = int(asked.get("b_checkpoint", ":0").rpartition(":")[2]), None
        self._checkpoint(job, a)
        if "b_checkpoint" in asked:
            self._checkpoint(beside, b)
        else:
            done = [c for c in other.checkpoints if c.status is CheckpointStatus.COMPLETED]
            done = [c for c in done if beside != job or c.checkpoint_id < a]
            # Of another job that never was healthy, the API chooses the newest checkpoint.
            done = done or [c for c in other.checkpoints if beside != job and c.status.is_terminal][:1]
            b = min(done, key=lambda c: c.end_to_end_duration_ms or 0).checkpoint_id if done else 0
            choice = f"#{b} was chosen: the quickest one before #{a}." if done else f"There is none before #{a}."
        vertex = asked.get("vertex")
        opened = None if vertex is None else (vertex, SubtaskMeasure(asked.get("measure", "duration")), 20)
        return comparison_of(
            made.detail,
            self._checkpoints(job),
            made.pressure,
            a,
            b or None,
            other=(other.detail, self._checkpoints(beside), other.pressure),
            choice=choice,
            opened=opened,
            as_of=self._now(),
        )

    def _windows(self, asked: httpx.QueryParams) -> WindowsComparisonOut:
        made, beside = self._job(asked["a"]), self._job(asked.get("b", asked["a"]))
        now = self._now().replace(microsecond=0)
        after = _window_of(asked, "a") or Window(now - timedelta(hours=1), now)
        before = _window_of(asked, "b") or after.moved(-timedelta(days=1) if made is beside else timedelta())
        if before.since >= before.until:
            what = [FieldProblem("b_from", "is not before the end", "an instant before `b_to`")]
            raise InvalidInputError(what, what="query")
        events = made.events if made is beside else []
        sides = ((beside.detail, beside.checkpoints), before), ((made.detail, made.checkpoints), after)
        return windows_of(*sides, events, as_of=self._now())

    def _history(self, job: str, asked: httpx.QueryParams) -> HistoryOut:
        ends = [datetime.fromisoformat(asked[name]) if name in asked else None for name in ("from", "to")]
        return history_of([header_of(c) for c in self._checkpoints(job)], ends[0], ends[1], self._now())

    def _annotations(self, request: httpx.Request, job: str) -> Any:
        self._job(job)
        if request.method == "POST":
            return self.annotations.add(job, AnnotationIn.model_validate_json(request.content), self._now())
        return self.annotations.within(job, request.url.params, self._now())

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
            version="v0",
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
            shed=api.TargetShedOut(
                shed_checkpoint_count=3, shed_detail_count=1_204, last_shed_at=now - timedelta(minutes=10)
            )
            if state == "unreachable"
            else None,
            added_at=now - timedelta(days=2),
        )

    def _test(self, target: api.TargetIn) -> api.TargetTestOut:
        if "nowhere" in target.url:
            return api.TargetTestOut(is_ok=False, problem="the name nowhere.invalid does not resolve", duration_ms=12)
        if target.url.endswith("/#/overview"):
            root = target.url.removesuffix("/#/overview")
            wrong = f"{target.url}: this is a page of a web UI; the REST root of the target is {root}"
            return api.TargetTestOut(is_ok=False, problem=wrong, root=root, duration_ms=3)
        if "spark" in target.url:
            summary = "Spark history server 4.3.0, 2 applications running or ended within an hour"
            return api.TargetTestOut(
                is_ok=True, engine="spark", engine_version="4.3.0", summary=summary, running_jobs=[], duration_ms=31
            )
        return api.TargetTestOut(
            is_ok=True, engine="flink", engine_version="1.20.5", running_jobs=["orders", HOSTILE], duration_ms=31
        )

    def _add(self, target: api.TargetIn) -> httpx.Response:
        if any(t.url == target.url for t in self.targets.values()):
            return problem(409, f"{target.url} is a target already")
        made = self._target(f"t{len(self.targets)}", target.name or target.url, target.url, "pending", None, "api")
        self.targets[made.id] = made
        if "nowhere" in target.url:
            health = made.health.model_copy(update={"reason": "the name does not resolve"})
            made = made.model_copy(update={"health": health})
        return httpx.Response(201, content=made.model_dump_json().encode())

    def _listed(self, asked: httpx.QueryParams) -> api.Page[api.TargetOut]:
        """Return a page of the targets. The cursor of this API is the number of targets before the page."""
        words, origin, begin = asked.get("search", "").lower(), asked.get("origin"), int(asked.get("cursor", "0"))
        known = [t for t in self.targets.values() if words in f"{t.name} {t.url}".lower()]
        known = [t for t in known if origin in (None, t.origin)]
        end = begin + int(asked["limit"])
        following = str(end) if len(known) > end else None
        return api.Page[api.TargetOut](items=known[begin:end], next=following, as_of=self._now())

    def _remove(self, target: str, if_match: str | None) -> httpx.Response:
        again = "look at it again and remove it then"
        if (conflict := _conflict(self.targets[target], if_match, again)) is not None:
            return conflict
        del self.targets[target]
        return httpx.Response(204)

    def _patch(
        self, target: str, patch: api.TargetPatch, if_match: str | None = None
    ) -> api.TargetOut | httpx.Response:
        found = self.targets[target]
        if (conflict := _conflict(found, if_match)) is not None:
            return conflict
        self._changes += 1
        found = found.model_copy(update={"version": f"v{self._changes}"})
        if patch.links is not None:
            if patch.links_version != found.links_version:
                return problem(409, "the links of this target were changed meanwhile")
            given = {"links": patch.links, "ui_url": patch.ui_url or None}
            version = version_of(patch.ui_url or None, [link.model_dump() for link in patch.links])
            self.targets[target] = found.model_copy(update=given | {"links_version": version})
            return self.targets[target]
        given = {name: getattr(patch, name) for name in patch.model_fields_set if name != "links_version"}
        if "is_enabled" in given:
            state = TargetState.OK if patch.is_enabled else TargetState.PAUSED
            given["health"] = found.health.model_copy(update={"state": state})
        given |= {
            name: None
            for name in ("ui_url", "interval_s", "connection")
            if given.get(name, 1) in ("", 0, ConnectionDoc())
        }
        self.targets[target] = found.model_copy(update=given)
        return self.targets[target]

    def _status(self) -> StatusOut:
        unhealthy = sum(t.health.state not in ("ok", "paused") for t in self.targets.values())
        return StatusOut(
            version="0.1.0",
            as_of=self._now(),
            store="ok",
            roles={"alert": "ok"},
            targets_total=len(self.targets),
            targets_unhealthy=unhealthy,
            newest_observation_at=self._now() - timedelta(seconds=1),
            pipeline=PipelineOut(
                state="idle",
                last_run="failed",
                last_run_at=self._now() - timedelta(minutes=5),
                last_run_reason="no space left on device",
            ),
            unread_sources=self.unread_sources,
            partial_sources=self.partial_sources,
        )


def invalid(error: InvalidInputError) -> httpx.Response:
    """Build the API's response to invalid input, which names the invalid fields."""
    fields = [api.ProblemField(pointer=f.field, detail=f.problem, allowed=f.allowed) for f in error.problems]
    return problem(422, f"the {error.what} is invalid", fields)


def _conflict(
    found: api.TargetOut, if_match: str | None, again: str = "read it again and repeat the change"
) -> httpx.Response | None:
    if if_match in (None, f'"{found.version}"'):
        return None
    detail = f"the target {found.name} was changed meanwhile; {again}"
    return problem(409, detail, kind="version-conflict")


def problem(
    status: int, detail: str, errors: Sequence[api.ProblemField] = (), *, kind: str | None = None
) -> httpx.Response:
    type_ = "about:blank" if kind is None else f"urn:barrierscope:problem:{kind}"
    problem = api.Problem(type=type_, title="Not possible", status=status, detail=detail, errors=list(errors))
    return httpx.Response(
        status, content=problem.model_dump_json().encode(), headers={"content-type": "application/problem+json"}
    )


def _window_of(asked: httpx.QueryParams, side: str) -> Window | None:
    ends = [asked.get(f"{side}_{end}") for end in ("from", "to")]
    return None if ends[0] is None else Window(*(datetime.fromisoformat(str(end)) for end in ends))
