"""Examples for the OpenAPI document: one small job in trouble, as values of the contract, so they cannot go stale."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from backend.contracts import advice, api, spark
from backend.contracts.backpressure import BackpressureOut, VertexPressureOut
from backend.contracts.barriers import BarrierEventOut, BarriersOut
from backend.contracts.changes import ChangePointOut
from backend.contracts.progress import AckPointOut, PendingOut, ProgressOut
from backend.domain.advice import AdviceState, Metric, Mode, Topic
from backend.domain.barriers import BarrierEventKind
from backend.domain.checkpoint import CheckpointKind, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.observation import Engine, JobState
from backend.domain.verdict import Basis, Confidence, Health, Phase, VerdictKind

_AT = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
_TRIGGERED = _AT - timedelta(minutes=1)
_TARGET, _JOB, _RUN = "t9c8b7a6d5e4f3021", "j0f3a9c2d1e4b5a67", "r5b1d2c3e4f5a6b78"
_SOURCE, _SINK = "bc764cd8ddf7a0cff126f51c16239658", "59fa767824610e31f4a11d6125e09bf4"
_SINK_NAME = "enrich -> sink: Writer"
_CHECKPOINT_ID = 412
_TIMEOUT_MS = 60_000

TARGET_IN: Final = {"url": "http://my-flink:8081", "name": "production", "labels": {"environment": "prod"}}

STATUS: Final = api.StatusOut(
    version="0.1.0",
    as_of=_AT,
    store="ok",
    targets_total=2,
    targets_unhealthy=0,
    newest_observation_at=_AT,
    alerts_firing_count=1,
    alerts_severity="warning",
    roles={"api": "ok", "collect": "ok", "alert": "ok"},
    pipeline=api.PipelineOut(
        state="idle",
        last_run="done",
        last_run_at=_AT - timedelta(minutes=57),
        hours_done=1,
        hours_total=1,
        next_run_at=_AT + timedelta(minutes=3),
        rolled_up_until=_AT - timedelta(hours=1),
    ),
)
TARGET: Final = api.TargetOut(
    id=_TARGET,
    name="production",
    url="http://my-flink:8081",
    engine=Engine.FLINK,
    engine_version="1.20.1",
    labels={"environment": "prod"},
    origin="api",
    is_enabled=True,
    health=api.TargetHealthOut(state="ok", since=_TRIGGERED, last_success_at=_AT, last_attempt_at=_AT),
    cost=api.PollCostOut(requests_per_poll=4.2, bytes_per_poll=9_300, poll_duration_ms=21, poll_interval_s=2),
    added_at=_AT - timedelta(days=1),
)
TARGET_TEST: Final = api.TargetTestOut(
    is_ok=True, engine=Engine.FLINK, engine_version="1.20.1", running_jobs=["orders-enrichment"], duration_ms=38
)
VERDICT: Final = api.VerdictOut(
    kind=VerdictKind.CAPACITY,
    vertex=_SINK_NAME,
    vertex_id=_SINK,
    subtasks=[0, 1],
    hosts=["worker-3"],
    phase=Phase.START_DELAY,
    sentence=f"{_SINK_NAME} is at capacity: every subtask is busy 100 % of the time, and barriers queue before it.",
    evidence=[
        api.EvidenceOut(
            statement="both subtasks are busy all the time",
            metric="busyTimeMsPerSecond",
            basis=Basis.MEASURED,
            value=1.0,
            unit="ratio",
        )
    ],
    confidence=Confidence.HIGH,
)
DIAGNOSIS: Final = api.DiagnosisOut(
    job="orders-enrichment", job_id=_JOB, health=Health.FAILING, verdict=VERDICT, as_of=_AT, checkpoints_considered=10
)
JOB: Final = api.JobOut(
    id=_JOB,
    name="orders-enrichment",
    target_id=_TARGET,
    target_name="production",
    target_state="ok",
    engine=Engine.FLINK,
    state=JobState.RUNNING,
    run_id=_RUN,
    mode="aligned",
    health=Health.FAILING,
    verdict=VERDICT,
    interval_ms=10_000,
    timeout_ms=_TIMEOUT_MS,
    last_completed_at=_TRIGGERED,
    last_completed_age_intervals=6.0,
    completed_24h_count=911,
    failed_24h_count=37,
    success_24h_ratio=911 / 948,
    duration_p50_ms=41_200,
    duration_p99_ms=59_100,
    dominant_phase=Phase.START_DELAY,
    backpressured_max_ratio=0.97,
    in_progress_checkpoint_id=_CHECKPOINT_ID + 1,
    sparkline=[api.SparkPointOut(at=_TRIGGERED, duration_ms=_TIMEOUT_MS, status=CheckpointStatus.FAILED)],
    observed_at=_AT,
)
RUN: Final = api.RunOut(
    id=_RUN,
    engine_run_id="a1b2c3d4e5f60718293a4b5c6d7e8f90",
    target_id=_TARGET,
    started_at=_AT - timedelta(hours=3),
    ended_at=None,
    state=JobState.RUNNING,
    engine_state="RUNNING",
    restart_count=1,
    checkpoint_count=_CHECKPOINT_ID,
)
JOB_DETAIL: Final = api.JobDetailOut(
    **{name: getattr(JOB, name) for name in api.JobOut.model_fields},
    run=RUN,
    vertices=[
        api.VertexOut(id=_SOURCE, name="Source: orders", parallelism=2, layer=0, row=0),
        api.VertexOut(id=_SINK, name=_SINK_NAME, parallelism=2, layer=1, row=0, hosts=["worker-3", "worker-3"]),
    ],
    edges=[api.EdgeOut(source=_SOURCE, target=_SINK, ship_strategy="HASH")],
    config=api.CheckpointConfigOut(
        mode="exactly_once", interval_ms=10_000, timeout_ms=_TIMEOUT_MS, is_unaligned_enabled=False
    ),
    counts=api.CountsOut(restored=1, total=412, in_progress=1, completed=374, failed=37, failed_unlisted=0),
)
JOB_EVENT: Final = api.JobEventOut(at=_TRIGGERED, kind="restarted", run_id=_RUN, text="restarted for the 1st time")
CHANGE_POINT: Final = ChangePointOut(
    at=_TRIGGERED,
    run_id=_RUN,
    checkpoint_id=_CHECKPOINT_ID,
    before_since=_TRIGGERED - timedelta(minutes=30),
    after_until=_AT,
    before_median_ms=12_100,
    after_median_ms=41_300,
    is_before_at_least=False,
    is_after_at_least=False,
    before_count=60,
    after_count=12,
    sentence=f"From checkpoint {_CHECKPOINT_ID} on the median duration is 41.3 s (of 12), before it was 12.1 s (of 60)",
)
CHECKPOINT: Final = api.CheckpointOut(
    job_id=_JOB,
    run_id=_RUN,
    checkpoint_id=_CHECKPOINT_ID,
    kind=CheckpointKind.CHECKPOINT,
    status=CheckpointStatus.FAILED,
    mode="aligned",
    triggered_at=_TRIGGERED,
    latest_ack_at=_TRIGGERED + timedelta(milliseconds=31),
    end_to_end_duration_ms=_TIMEOUT_MS,
    checkpointed_size_bytes=None,
    full_state_size_bytes=None,
    processed_bytes=None,
    persisted_bytes=None,
    subtask_count=4,
    acknowledged_count=2,
    failure_reason=FailureReason.EXPIRED,
    failure_message="Checkpoint expired before completing.",
    failed_at=_AT,
    start_delay_max_ms=4,
    alignment_max_ms=0,
    sync_max_ms=3,
    async_max_ms=21,
    link=f"/api/v1/jobs/{_JOB}/runs/{_RUN}/checkpoints/{_CHECKPOINT_ID}",
)


def _subtask(index: int, ack_ms: int | None) -> api.SubtaskPhasesOut:
    is_in = ack_ms is not None
    return api.SubtaskPhasesOut(
        subtask=index,
        is_acknowledged=is_in,
        first_barrier_ms=4 if is_in else None,
        first_barrier_basis=Basis.MEASURED if is_in else None,
        alignment_end_ms=4 if is_in else None,
        snapshot_at_ms=4 if is_in else None,
        sync_end_ms=7 if is_in else None,
        async_end_ms=28 if is_in else None,
        ack_ms=ack_ms,
        start_delay_ms=4 if is_in else None,
        alignment_duration_ms=0 if is_in else None,
        sync_duration_ms=3 if is_in else None,
        async_duration_ms=21 if is_in else None,
        ack_wait_ms=3 if is_in else None,
    )


CHECKPOINT_DETAIL: Final = api.CheckpointDetailOut(
    **{name: getattr(CHECKPOINT, name) for name in api.CheckpointOut.model_fields},
    engine=Engine.FLINK,
    job="orders-enrichment",
    timeout_ms=_TIMEOUT_MS,
    aligned_timeout_ms=None,
    vertices=[
        api.VertexPhasesOut(
            vertex_id=_SOURCE,
            vertex="Source: orders",
            acknowledged_count=2,
            subtask_count=2,
            slowest_subtask=1,
            subtasks=[_subtask(0, 30), _subtask(1, 31)],
        ),
        api.VertexPhasesOut(
            vertex_id=_SINK,
            vertex=_SINK_NAME,
            acknowledged_count=0,
            subtask_count=2,
            slowest_subtask=None,
            subtasks=[_subtask(0, None), _subtask(1, None)],
        ),
    ],
    critical_path=None,
    verdict=VERDICT,
    has_barriers=False,
    previous_id=_CHECKPOINT_ID - 1,
    next_id=_CHECKPOINT_ID + 1,
    observed_at=_AT,
)
PROGRESS: Final = ProgressOut(
    job_id=_JOB,
    run_id=_RUN,
    checkpoint_id=_CHECKPOINT_ID + 1,
    status=CheckpointStatus.IN_PROGRESS,
    triggered_at=_AT - timedelta(seconds=9),
    elapsed_ms=9_000,
    timeout_ms=_TIMEOUT_MS,
    remaining_ms=51_000,
    acknowledged=2,
    total=4,
    judgement="progressing",
    judgement_rule="2 of 4 acknowledged after 9 s, within 62 s: what the last 10 checkpoints took, with allowance",
    waiting_on=[
        PendingOut(
            vertex_id=_SINK,
            vertex=_SINK_NAME,
            acknowledged=0,
            total=2,
            pending=[0, 1],
            first_barrier_ms=[None, None],
            aligning_ms=[None, None],
            hosts=["worker-3", "worker-3"],
            queued_bytes=6_291_456,
        )
    ],
    acks=[AckPointOut(elapsed_ms=30, acknowledged=1), AckPointOut(elapsed_ms=31, acknowledged=2)],
    typical_duration_ms=41_200,
    queued_bytes=6_291_456,
    as_of=_AT,
)
BARRIERS: Final = BarriersOut(
    basis=Basis.RECONSTRUCTED,
    events=[
        BarrierEventOut(kind=BarrierEventKind.BARRIER_RECEIVED, vertex_id=_SOURCE, subtask=0, at_ms=4.0, lamport=0)
    ],
    note="reconstructed from what this engine's REST reports of each subtask",
)
BACKPRESSURE: Final = BackpressureOut(
    vertices=[
        VertexPressureOut(
            vertex_id=_SINK,
            vertex=_SINK_NAME,
            observed_at=_AT,
            busy_ratio=[1.0, 0.998],
            backpressured_ratio=[0.0, 0.0],
            idle_ratio=[0.0, 0.002],
            records_per_s=[401.5, 398.0],
        )
    ],
    as_of=_AT,
)
PROBLEM: Final = {
    "type": "urn:barrierscope:problem:unknown-job",
    "title": "Not Found",
    "status": 404,
    "detail": "no job 'j0000000000000000'",
    "instance": "/api/v1/jobs/j0000000000000000",
    "errors": [],
}


SPARK_PUSH_IN: Final[dict[str, Any]] = {
    "deployment": "orders-pipeline",
    "sent_at": "2026-11-21T00:20:59.100Z",
    "spark_version": "4.3.0",
    "dropped_count": 0,
    "trigger_interval_ms": 2000,
    "events": [
        {
            "event": "progress",
            "seen_at": "2026-11-21T00:20:58.752Z",
            "progress": {
                "id": "7e5d7bce-8703-46fb-8e91-79209d06649b",
                "runId": "90456372-b342-4c7c-b3d6-a57e5e215529",
                "name": "orders-by-window",
                "timestamp": "2026-11-21T00:20:58.000Z",
                "batchId": 4,
                "batchDuration": 570,
                "numInputRows": 6000,
                "durationMs": {
                    "latestOffset": 0,
                    "walCommit": 41,
                    "getBatch": 0,
                    "queryPlanning": 37,
                    "addBatch": 448,
                    "commitOffsets": 41,
                },
            },
        }
    ],
}
SPARK_PUSH_OUT: Final = spark.SparkPushOut(target_id="t9c8b7a6d5e4f3021", new_count=1, rejected=[])
_UNALIGNED_KEY = "execution.checkpointing.unaligned.enabled"
_TIMEOUT_KEY = "execution.checkpointing.aligned-checkpoint-timeout"
_RECOMMENDATION = advice.RecommendationOut(
    topic=Topic.MODE,
    kind="mode/aligned-with-timeout",
    rules=["R-UC-1", "R-AT-1", "R-AT-2", "R-AT-3"],
    headline="Enable unaligned checkpoints with an aligned timeout of 200 ms",
    reason="Checkpoints take 4.8 s because barriers wait behind queued data.",
    current=advice.SettingOut(mode=Mode.ALIGNED),
    proposed=advice.SettingOut(mode=Mode.ALIGNED_WITH_TIMEOUT, aligned_timeout_ms=200),
    changes=[
        advice.ChangeOut(key=_UNALIGNED_KEY, current="false", proposed="true"),
        advice.ChangeOut(key=_TIMEOUT_KEY, current="0 ms", proposed="200 ms"),
    ],
    expected=[
        advice.ExpectedOut(
            metric=Metric.DURATION,
            unit="ms",
            before=4_830,
            is_before_at_least=False,
            predicted=advice.IntervalOut(value=228, low=202, high=441),
            method="replay of the last 10 checkpoints",
            basis=Basis.PREDICTED,
        )
    ],
    candidates=[
        advice.CandidateOut(
            mode=Mode.ALIGNED_WITH_TIMEOUT,
            aligned_timeout_ms=200,
            duration_ms=advice.IntervalOut(value=228, low=202, high=441),
            persisted_bytes=advice.IntervalOut(value=3_146_000, low=1_820_000, high=4_410_000),
            expired_ratio=0.0,
            is_current=False,
            is_proposed=True,
        )
    ],
    evidence=[
        advice.AdviceEvidenceOut(
            statement="median duration of 10 checkpoints",
            metric="endToEndDuration",
            basis=Basis.MEASURED,
            value=4_830,
            unit="ms",
            checkpoint_ids=(403, 404, 405, 406, 407, 408, 409, 410, 411, 412),
        )
    ],
    confidence=Confidence.HIGH,
    confidence_reason="10 checkpoints and 14 readings of the queues",
    preconditions=[advice.PreconditionOut(text="one checkpoint at a time", is_met=True)],
    risks=["the store writes 3.1 MB more for each checkpoint"],
    will_not_cure=["the lack of capacity at both subtasks of enrich: throughput, and how long records wait, stay"],
    withdrawn_if=["back-pressure falls below 50 %"],
    how_to=advice.HowToOut(
        file="conf/config.yaml; restart the job",
        lines=[f"{_UNALIGNED_KEY}: true", f"{_TIMEOUT_KEY}: 200 ms"],
        rollback_lines=[f"{_UNALIGNED_KEY}: false", f"{_TIMEOUT_KEY}: 0 ms"],
        needs_restart=True,
    ),
    checkpoint_ids=[403, 404, 405, 406, 407, 408, 409, 410, 411, 412],
)
CARD: Final = advice.CardOut(
    id="a5e1f0c2d3b4a697",
    job_id=_JOB,
    run_id=_RUN,
    state=AdviceState.NEW,
    state_reason="given by the rules",
    created_at=_AT,
    updated_at=_AT,
    can_apply=False,
    recommendation=_RECOMMENDATION,
    history=(advice.LifeEventOut(at=_AT, state=AdviceState.NEW, reason="given by the rules"),),
)
JOB_ADVICE: Final = advice.JobAdviceOut(
    job="orders-enrichment",
    job_id=_JOB,
    as_of=_AT,
    considered_count=10,
    cards=[CARD],
    silences=[
        advice.SilenceOut(
            topic=Topic.IN_FLIGHT, rule="R-CAP-1", reason="checkpoints are aligned and persist no in-flight data"
        )
    ],
)
DISMISS: Final = {"reason": "the job is scaled up next week"}


def of(example: api.Model, *, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route that answers like this."""
    return {status: {"content": {"application/json": {"example": example.model_dump(mode="json")}}}}


def page_of(example: api.Model) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route that answers pages of such items."""
    page = {"items": [example.model_dump(mode="json")], "next": None, "as_of": _AT.isoformat()}
    return {200: {"content": {"application/json": {"example": page}}}}
