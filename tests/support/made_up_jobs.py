"""The jobs of the fake API: two recorded ones, and invented ones for cases that the recordings lack.

These cases are: channels of the reference runtime, an unaligned job, missing values, a hostile name, an unreachable
target and 500 subtasks. One checkpoint of the runtime job is always in progress and advances with the clock ``now``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

from backend.analysis.health.finish import PastCheckpoint, predict
from backend.analysis.health.progress import OpenCheckpoint
from backend.contracts import api
from backend.contracts.backpressure import VertexPressureOut
from backend.contracts.changes import ChangePointOut
from backend.contracts.checkpoint_actions import ActionIn, ActionTakenOut
from backend.contracts.engines import CapabilitiesOut
from backend.contracts.progress import AckPointOut, FinishOut, ProgressOut, UnalignedOut
from backend.contracts.replay_debt import ReplayDebtOut
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.engines import FLINK, RUNTIME
from backend.domain.failure import FailureReason
from backend.domain.observation import JobState
from backend.domain.replay_debt import DebtOrigin
from backend.domain.verdict import Health, Phase
from tests.support.api_examples import example
from tests.support.made_up_checkpoints import (
    HOSTILE,
    NAMES,
    SINK,
    SOURCE,
    STAGE,
    ack_curve,
    capacity,
    document,
    documents_of,
    late,
    linked,
    moved,
    no_verdict,
    numbers_of,
    phases,
    recorded_detail,
    unacknowledged,
    vertex,
    waiting,
)


class MadeUpJob:
    """One job with its checkpoints (oldest first), its pressure and its events."""

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
        self.changes: list[ChangePointOut] = []

    def copied(self) -> MadeUpJob:
        """Return a job with the same documents, to and from which documents can be added, removed and replaced."""
        return MadeUpJob(self.detail, list(self.checkpoints), list(self.pressure), list(self.events))


class _Maker:
    """Makes the jobs as they are at the start of a fake service."""

    def __init__(self, began: datetime) -> None:
        self._began = began

    def made(self, job_count: int) -> list[MadeUpJob]:
        return [
            self._recorded("E", "payments-settlement", Health.FAILING, timeout_ms=3000),
            self._recorded("B2", "orders-enrichment", Health.SLOW, timeout_ms=600_000),
            self._runtime(),
            self._wide(),
            *(self._plain(i) for i in range(4 + job_count)),
        ]

    def _recorded(self, run: str, name: str, health: Health, *, timeout_ms: int) -> MadeUpJob:
        documents = documents_of(run)
        details = [recorded_detail(documents, n, f"j{run}", name, timeout_ms) for n in numbers_of(documents)]
        details = [d for d in details if d.failure_reason is not FailureReason.COORDINATOR_SUSPENDED]
        shift = self._began - timedelta(seconds=4) - details[-1].triggered_at
        details = [moved(d, shift) for d in details]
        details = [linked(d, details) for d in details]
        vertices = [
            vertex(SOURCE, NAMES[SOURCE], 0, 4),
            vertex(STAGE, NAMES[STAGE], 1, 4),
            vertex(SINK, NAMES[SINK], 2, 4),
        ]
        edges = [
            api.EdgeOut(source=SOURCE, target=STAGE, ship_strategy="HASH"),
            api.EdgeOut(source=STAGE, target=SINK, ship_strategy="HASH"),
        ]
        pressure = [
            self._pressure(SOURCE, NAMES[SOURCE], [0.04] * 4, [0.96, 0.95, 0.96, 0.94]),
            self._pressure(STAGE, NAMES[STAGE], [0.06] * 4, [0.91, 0.88, 0.93, 0.9]),
            self._pressure(SINK, NAMES[SINK], [1.0, 0.99, 1.0, 0.98], [0.0] * 4),
        ]
        job = self._detail(f"j{run}", name, "tflink", "production-eu", health, details, vertices, edges)
        update = {"timeout_ms": timeout_ms, "verdict": capacity(health), "backpressured_max_ratio": 0.95}
        return MadeUpJob(job.model_copy(update=update), details, pressure, self._events(details))

    def _runtime(self) -> MadeUpJob:
        vertices = [
            vertex("source", "orders-source", 0, 4),
            vertex("parse", "parse", 1, 4),
            vertex("enrich", "enrich", 2, 4),
            vertex("sink", "ledger-sink", 3, 4),
        ]
        edges = [
            api.EdgeOut(source=a, target=b, ship_strategy="HASH")
            for a, b in (("source", "parse"), ("parse", "enrich"), ("enrich", "sink"))
        ]
        details = [self._made(n, "jruntime", "demo-backpressured", vertices, 4_000 + 150 * n) for n in range(1, 24)]
        details = [linked(d, details) for d in details]
        pressure = [
            self._pressure("source", "orders-source", [0.1] * 4, [0.88] * 4),
            self._pressure("parse", "parse", [0.2] * 4, [0.77, 0.79, 0.72, 0.8]),
            self._pressure("enrich", "enrich", [0.99, 1.0, 1.0, 0.97], [0.0] * 4),
            self._pressure("sink", "ledger-sink", [0.11, 0.1, 0.12, 0.09], [0.0] * 4),
        ]
        job = self._detail("jruntime", "demo-backpressured", "tdemo", "demo", Health.SLOW, details, vertices, edges)
        update = {
            "engine": RUNTIME.kind,
            "capabilities": CapabilitiesOut.model_validate(RUNTIME),
            "timeout_ms": 8_000,
            "in_progress_checkpoint_id": 24,
            "verdict": details[-1].verdict,
            "backpressured_max_ratio": 0.88,
        }
        return MadeUpJob(job.model_copy(update=update), details, pressure, [])

    def _made(
        self, number: int, job: str, name: str, vertices: list[api.VertexOut], last_ms: int
    ) -> api.CheckpointDetailOut:
        at = self._began - timedelta(seconds=5 * (24 - number))
        made = []
        for layer, v in enumerate(vertices):
            share = (0.02, 0.35, 0.62, 0.97)[min(layer, 3)]
            subtasks = [phases(i, int(last_ms * share), v.parallelism, layer) for i in range(v.parallelism)]
            slowest = max(subtasks, key=lambda s: s.ack_ms or 0).subtask
            made.append(
                api.VertexPhasesOut(
                    vertex_id=v.id,
                    vertex=v.name,
                    acknowledged_count=len(subtasks),
                    subtask_count=len(subtasks),
                    slowest_subtask=slowest,
                    subtasks=subtasks,
                )
            )
        guilty = made[min(2, len(made) - 1)]
        duration = max(s.ack_ms or 0 for v in made for s in v.subtasks)
        return document(
            job, name, number, at, CheckpointStatus.COMPLETED, duration, made,
            verdict=late(guilty.vertex, guilty.vertex_id), timeout_ms=8_000, has_barriers=True,
        )  # fmt: skip

    def _wide(self) -> MadeUpJob:
        vertices = [
            vertex("w0", "Source: clickstream -> Timestamps/Watermarks -> Filter", 0, 250),
            vertex("w1", HOSTILE, 1, 250),
        ]
        edges = [api.EdgeOut(source="w0", target="w1", ship_strategy="HASH")]
        details = [self._made(n, "jwide", HOSTILE, vertices, 20_000) for n in range(18, 24)]
        details = [linked(d.model_copy(update={"has_barriers": False}), details) for d in details]
        job = self._detail("jwide", HOSTILE, "told", "staging", Health.HEALTHY, details, vertices, edges)
        update = {"target_state": "unreachable", "verdict": no_verdict(), "mode": "aligned-with-timeout"}
        pressure = [self._pressure(v.id, v.name, [0.4] * 250, [0.1] * 250) for v in vertices]
        return MadeUpJob(job.model_copy(update=update), details, pressure, [])

    def _plain(self, index: int) -> MadeUpJob:
        vertices = [vertex("s", "source", 0, 2), vertex("k", "sink", 1, 2)]
        edges = [api.EdgeOut(source="s", target="k", ship_strategy="FORWARD")]
        if index == 0:
            job = self._detail("jnew", "just-deployed", "tflink", "production-eu", Health.TOO_FEW, [], vertices, edges)
            return MadeUpJob(
                job.model_copy(update={"verdict": no_verdict(), "mode": None, "interval_ms": None}), [], [], []
            )
        name = ("demo-unaligned", "demo-healthy", "inventory-sync")[index - 1] if index < 4 else f"job-{index:03d}"
        id_ = f"jplain{index}"
        details = [self._made(n, id_, name, vertices, 60 + 11 * (n % 4)) for n in range(1, 24)]
        details = [linked(d.model_copy(update={"verdict": no_verdict()}), details) for d in details]
        if index == 1:
            details = [
                d.model_copy(update={"mode": "unaligned", "persisted_bytes": 4_200_000 + 90_000 * d.checkpoint_id})
                for d in details
            ]
        job = self._detail(id_, name, "tdemo", "demo", Health.HEALTHY, details, vertices, edges)
        mode = "unaligned" if index == 1 else "aligned"
        pressure = [self._pressure(v.id, v.name, [0.2, 0.22], [0.0, 0.0]) for v in vertices]
        return MadeUpJob(
            job.model_copy(update={"verdict": no_verdict(), "mode": mode, "backpressured_max_ratio": 0.02}),
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
            engine=(engine := FLINK if target != "tdemo" else RUNTIME).kind,
            capabilities=CapabilitiesOut.model_validate(engine),
            state=JobState.RUNNING,
            run_id=f"r{id_[1:]}",
            mode="aligned",
            health=health,
            verdict=no_verdict(),
            interval_ms=5_000,
            timeout_ms=600_000,
            last_completed_at=now if done else None,
            replay_debt=ReplayDebtOut(since=now, origin=DebtOrigin.CHECKPOINT, checkpoint_id=1) if done else None,
            replay_debt_ms=3_000.0 if health is Health.HEALTHY else 2_100_000.0 if done else None,
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


# Making the jobs takes longer than most tests with a fake service, and most of them begin at the same time.
@lru_cache(maxsize=2)
def _made_at(began: datetime, job_count: int) -> list[MadeUpJob]:
    return _Maker(began).made(job_count)


class MadeUpJobs(_Maker):
    """All jobs of a fake service. No test changes a document in place: the services of a process share them."""

    def __init__(self, *, now: Callable[[], datetime], job_count: int = 0) -> None:
        super().__init__(now())
        self._now = now
        self.jobs: dict[str, MadeUpJob] = {made.detail.id: made.copied() for made in _made_at(self._began, job_count)}
        self.actions_taken: list[tuple[int, ActionIn]] = []
        """The checkpoint and the body of each action on a checkpoint in progress."""

    def _job(self, job: str) -> MadeUpJob:
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

    def _live(self, job: MadeUpJob) -> api.CheckpointDetailOut:
        """Build the checkpoint that is always in progress. Its subtasks acknowledge as the clock advances."""
        full = self._made(24, job.detail.id, job.detail.name, job.detail.vertices, 7_600)
        elapsed = (self._now() - self._began) % timedelta(seconds=8)
        elapsed_ms = int(elapsed.total_seconds() * 1000)
        vertices = []
        for v in full.vertices:
            subtasks = [s if (s.ack_ms or 0) <= elapsed_ms else unacknowledged(s, elapsed_ms) for s in v.subtasks]
            done = sum(s.is_acknowledged for s in subtasks)
            vertices.append(v.model_copy(update={"subtasks": subtasks, "acknowledged_count": done}))
        update = {
            "status": CheckpointStatus.IN_PROGRESS,
            "freshness": None,
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
            times_out_at=checkpoint.triggered_at + timedelta(milliseconds=checkpoint.timeout_ms)
            if is_open and checkpoint.timeout_ms is not None
            else None,
            acknowledged=checkpoint.acknowledged_count,
            total=checkpoint.subtask_count,
            judgement="ended" if not is_open else "slow" if is_slow else "progressing",
            judgement_rule=f"{checkpoint.acknowledged_count} of {checkpoint.subtask_count} acknowledged after "
            f"{elapsed_ms / 1000:.1f} s, within 7.9 s: what the last {len(past)} checkpoints took, with allowance"
            if is_open
            else f"the checkpoint is {checkpoint.status.value}",
            waiting_on=[waiting(v) for v in reversed(checkpoint.vertices) if v.acknowledged_count < v.subtask_count],
            acks=[AckPointOut(elapsed_ms=t, acknowledged=i + 1) for i, t in enumerate(times)],
            past_acks=[ack_curve(c) for c in past],
            typical_duration_ms=6_900.0,
            queued_bytes=4_812_000 if job == "jruntime" else None,
            finish=_finish(past, times, elapsed_ms, checkpoint) if is_open else None,
            unaligned_now=UnalignedOut(value=5_293_200, low=3_849_600, high=6_977_400)
            if is_open and job == "jruntime"
            else None,
            actions=example("progress").actions if is_open else [],
            as_of=now,
        )

    def _act_on(self, number: int, wanted: ActionIn) -> ActionTakenOut:
        self.actions_taken.append((number, wanted))
        text = f"checkpoint {number}: {wanted.action.value} taken"
        return ActionTakenOut(action=wanted.action, text=text, at=self._now())


def _finish(
    past: Sequence[api.CheckpointDetailOut],
    acks_ms: Sequence[int],
    elapsed_ms: int,
    checkpoint: api.CheckpointDetailOut,
) -> FinishOut | None:
    curves = [tuple(p.elapsed_ms for p in ack_curve(c)) for c in past]
    found = predict(
        OpenCheckpoint(
            elapsed_ms=elapsed_ms,
            acknowledged_count=checkpoint.acknowledged_count,
            subtask_count=checkpoint.subtask_count,
            last_ack_ms=max(acks_ms, default=None),
            timeout_ms=checkpoint.timeout_ms,
        ),
        [PastCheckpoint(acks, len(acks), acks[-1]) for acks in curves if acks],
    )
    return None if found is None else FinishOut.of(found)
