"""The JSON of our own API under ``/api/v1``, which the dashboard and scripts read.

Instants are RFC 3339 in UTC. Durations are in milliseconds unless the name says otherwise. ``null`` means *not
reported*. ``basis`` states whether a number was measured, reconstructed or predicted. Per-subtask arrays are indexed
by subtask. Errors under ``/api`` are RFC 9457 problem documents (``Problem``).

Paths (GET unless another method is named):

* ``/api/v1/status``                                          -> StatusOut
* ``/api/v1/targets`` (GET, POST TargetIn -> 201)              -> Page[TargetOut] / TargetOut
* ``/api/v1/targets/test`` (POST TargetIn)                     -> TargetTestOut
* ``/api/v1/targets/{target}`` (GET, PATCH TargetPatch, DELETE)-> TargetOut
* ``/api/v1/jobs``                                            -> Page[JobOut], most urgent first
* ``/api/v1/jobs/{job}``                                      -> JobDetailOut
* ``/api/v1/jobs/{job}/verdict``                              -> DiagnosisOut
* ``/api/v1/jobs/{job}/runs``                                 -> Page[RunOut], newest first
* ``/api/v1/jobs/{job}/checkpoints``                          -> Page[CheckpointOut], newest first, over all runs
* ``/api/v1/jobs/{job}/checkpoints/latest?status=``           -> CheckpointOut
* ``/api/v1/jobs/{job}/events``                               -> Page[JobEventOut] (restarts, configuration changes)
* ``/api/v1/jobs/{job}/rollups``                              -> Page[rollups.RollupHourOut], newest hour first
* ``/api/v1/jobs/{job}/backpressure``                         -> BackpressureOut (latest, or ``from``/``to`` series)
* ``/api/v1/jobs/{job}/change-points``                        -> Page[changes.ChangePointOut], newest first
* ``/api/v1/jobs/{job}/advice``                               -> advice.JobAdviceOut
* ``/api/v1/jobs/{job}/recommendations``                      -> Page[advice.CardOut], newest first
* ``/api/v1/jobs/{job}/recommendations/{recommendation}``     -> advice.CardOut
* ``/api/v1/jobs/{job}/recommendations/{recommendation}/accept`` (POST) -> advice.CardOut
* ``/api/v1/jobs/{job}/recommendations/{recommendation}/dismiss`` (POST advice.DismissIn) -> advice.CardOut
* ``/api/v1/jobs/{job}/recommendations/{recommendation}/apply`` (POST) -> advice.CardOut
* ``/api/v1/jobs/{job}/runs/{run}/checkpoints/{checkpoint}``  -> CheckpointDetailOut
* ``/api/v1/jobs/{job}/runs/{run}/checkpoints/{checkpoint}/progress`` -> ProgressOut
* ``/api/v1/jobs/{job}/runs/{run}/checkpoints/{checkpoint}/barriers`` -> BarriersOut
* ``/api/v1/jobs/{job}/runs/{run}/checkpoints/{checkpoint}/verdict``  -> VerdictOut
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import Field

from backend.contracts.engines import CapabilitiesOut, Engine
from backend.contracts.micro_batches import MicroBatchOut
from backend.contracts.model import Model
from backend.contracts.restoring import RestoringOut
from backend.domain.checkpoint import CheckpointKind, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.micro_batch import PressureSign
from backend.domain.observation import JobState
from backend.domain.verdict import Basis, Confidence, Health, Phase, VerdictKind

T = TypeVar("T")
Ints = list[int | None]
Floats = list[float | None]
Labels = Annotated[dict[str, str], Field(max_length=32)]


class Page(Model, Generic[T]):
    """One page of a list. ``next`` is the opaque cursor of the following page, null on the last."""

    items: list[T]
    next: str | None = None
    as_of: datetime
    """The instant of this answer; the age of an item is ``as_of`` minus the item's own instant."""


class ProblemField(Model):
    """One invalid field."""

    pointer: str
    detail: str
    allowed: str | None = None


class Problem(Model):
    """RFC 9457 ``application/problem+json``."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    errors: list[ProblemField] = []


# --- status and targets -------------------------------------------------------------------------------------------


class PipelineOut(Model):
    """The pipeline that computes rollups. Without it every page still works, but long ranges are read more slowly."""

    state: Literal["running", "idle", "unavailable", "never"]
    """``unavailable``: Spark cannot be started; ``reason`` says why. ``never``: no run is recorded yet."""
    reason: str | None = None
    last_run: Literal["done", "failed", "interrupted"] | None = None
    last_run_at: datetime | None = None
    last_run_reason: str | None = None
    """Why the last run failed or was interrupted."""
    hours_done: int | None = None
    """Of the current run, or of the last one if none runs."""
    hours_total: int | None = None
    next_run_at: datetime | None = None
    rolled_up_until: datetime | None = None
    """Every closed hour before this instant was rolled up; hours that changed later are read from their checkpoints."""


class SparkDemoOut(Model):
    """The demo query that ``up`` runs on Spark."""

    state: Literal["running", "unavailable"]
    """``unavailable``: Spark cannot be started, or it stopped; ``reason`` says why."""
    reason: str | None = None


class StatusOut(Model):
    """The service's own health and the age of its data."""

    version: str
    as_of: datetime
    store: Literal["ok", "unreachable"]
    targets_total: int | None
    """Null if the store is unreachable."""
    targets_unhealthy: int | None
    newest_observation_at: datetime | None
    alerts_firing_count: int | None = None
    """Alerts that fire now, without the watchdog; null if the store is unreachable."""
    alerts_severity: Literal["critical", "warning"] | None = None
    roles: dict[str, str] = {}
    pipeline: PipelineOut | None = None
    """Null if the store is unreachable."""
    spark_demo: SparkDemoOut | None = None
    """Null if there is no demo query, or while it starts."""


class TargetIn(Model):
    """A target to add or to test."""

    url: Annotated[str, Field(max_length=2000, examples=["http://my-flink:8081"])]
    name: Annotated[str | None, Field(max_length=200)] = None
    labels: Labels = {}
    kind: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")] = "flink"
    """The collector that reads the target: the name of an entry point of the group ``barrierscope.collectors``."""


class TargetPatch(Model):
    """Changes to a target; absent fields keep their values."""

    name: Annotated[str | None, Field(max_length=200)] = None
    labels: Labels | None = None
    is_enabled: bool | None = None


class TargetHealthOut(Model):
    """The outcome of the last polls of a target."""

    state: Literal["ok", "pending", "unreachable", "malformed", "silent", "paused"]
    """``silent``: a job that pushes and has not ended has sent nothing for 90 seconds."""
    reason: str | None = None
    since: datetime | None = None
    last_success_at: datetime | None = None
    last_attempt_at: datetime | None = None


class PollCostOut(Model):
    """The cost of polling to the target: means over about the last 20 polls."""

    requests_per_poll: float
    bytes_per_poll: float
    poll_duration_ms: float
    poll_interval_s: float


class TargetOut(Model):
    """A target with the health and cost of its polls."""

    id: str
    name: str
    url: str
    kind: str = "flink"
    """The collector that reads the target."""
    engine: Engine | str | None
    engine_version: str | None = None
    labels: dict[str, str]
    origin: Literal["api", "configuration", "built-in", "push"]
    """``push``: the target is not polled; its jobs send their own events."""
    is_enabled: bool
    health: TargetHealthOut
    cost: PollCostOut | None = None
    added_at: datetime


class TargetTestOut(Model):
    """The result of a connection test; nothing is stored."""

    is_ok: bool
    engine: Engine | str | None = None
    engine_version: str | None = None
    running_jobs: list[str] = []
    problem: str | None = None
    duration_ms: int


# --- verdicts -----------------------------------------------------------------------------------------------------


class EvidenceOut(Model):
    """One checkable row of evidence."""

    statement: str
    metric: str
    basis: Basis
    value: float | None = None
    unit: str | None = None


class VerdictOut(Model):
    """What delays the checkpoint: the vertex, the phase and the cause."""

    kind: VerdictKind
    vertex: str | None
    vertex_id: str | None = None
    subtasks: list[int]
    hosts: list[str] = []
    phase: Phase | None
    sentence: str
    evidence: list[EvidenceOut]
    confidence: Confidence
    would_decide: list[str] = []


class DiagnosisOut(Model):
    """The diagnosis that ``barrierscope diagnose`` prints for a job."""

    job: str
    job_id: str | None = None
    health: Health
    verdict: VerdictOut
    as_of: datetime | None = None
    checkpoints_considered: int | None = None


# --- jobs ---------------------------------------------------------------------------------------------------------


class SparkPointOut(Model):
    """One point of the fleet board's sparkline: a terminal checkpoint."""

    at: datetime
    duration_ms: int | None
    status: CheckpointStatus


class JobOut(Model):
    """One row of the fleet board."""

    id: str
    name: str
    target_id: str
    target_name: str
    target_state: str
    """State of the target's health; the data of an unreachable target is old."""
    engine: Engine | str
    capabilities: CapabilitiesOut
    state: JobState
    run_id: str
    mode: Literal["aligned", "unaligned", "aligned-with-timeout", "at-least-once"] | None
    health: Health
    verdict: VerdictOut
    interval_ms: int | None
    timeout_ms: int | None
    last_completed_at: datetime | None
    last_completed_age_intervals: float | None
    """Age of the last completed checkpoint in units of the configured interval."""
    completed_24h_count: int
    failed_24h_count: int
    success_24h_ratio: float | None
    duration_p50_ms: float | None
    duration_p99_ms: float | None
    dominant_phase: Phase | None
    backpressured_max_ratio: float | None
    in_progress_checkpoint_id: int | None
    sparkline: list[SparkPointOut]
    observed_at: datetime | None
    alerts_firing_count: int = 0
    """Alerts of the job that fire now, including silenced ones."""
    alerts_severity: Literal["critical", "warning"] | None = None
    """The highest severity among them."""
    open_advice_count: int = 0
    """Recommendations that can still be accepted, dismissed or applied."""


class VertexOut(Model):
    """A vertex with its place in the layered drawing; layer 0 holds the sources, ``row`` is the place in the layer."""

    id: str
    name: str
    parallelism: int
    max_parallelism: int | None = None
    layer: int
    row: int
    hosts: list[str | None] = []
    task_managers: list[str | None] = []
    attempts: Ints = []
    statuses: list[str | None] = []


class EdgeOut(Model):
    """An edge of the job graph."""

    source: str
    target: str
    ship_strategy: str | None = None


class CheckpointConfigOut(Model):
    """Effective checkpoint settings as the engine reports them."""

    mode: str | None = None
    interval_ms: int | None = None
    timeout_ms: int | None = None
    min_pause_ms: int | None = None
    max_concurrent: int | None = None
    is_unaligned_enabled: bool | None = None
    aligned_timeout_ms: int | None = None
    tolerable_failed_count: int | None = None
    state_backend: str | None = None
    checkpoint_storage: str | None = None
    inflight_cap_bytes: int | None = None


class CountsOut(Model):
    """The coordinator's counters. ``failed_unlisted``: counted failures that were never listed as checkpoints."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int
    failed_unlisted: int


class PressureSignOut(Model):
    """One sign of backpressure on Spark, which does not report backpressure. ``value`` is null if it is not known."""

    sign: PressureSign
    is_raised: bool
    value: float | None
    limit: float
    statement: str
    basis: Basis


class RunOut(Model):
    """One run of a job: from its start on the engine until it ends."""

    id: str
    engine_run_id: str
    target_id: str
    started_at: datetime
    ended_at: datetime | None
    state: JobState
    engine_state: str
    restart_count: int | None = None
    checkpoint_count: int


class JobDetailOut(JobOut):
    """A job with its graph, settings and counters (of the current run)."""

    run: RunOut
    vertices: list[VertexOut]
    edges: list[EdgeOut]
    config: CheckpointConfigOut | None
    counts: CountsOut | None
    exceptions: list[str] = []
    problems: list[str] = []
    """Data of the current run that could not be read or was lost."""
    batches: list[MicroBatchOut] = []
    """Spark: the newest micro-batches of the current run, oldest first."""
    signs: list[PressureSignOut] = []
    """Spark: signs of backpressure, which Spark does not measure."""


class JobEventOut(Model):
    """An event of a job, shown as a vertical line on its timeline."""

    at: datetime
    kind: Literal["run-started", "run-ended", "restarted", "configuration-changed", "rescaled", "exception"]
    run_id: str
    text: str


# --- checkpoints --------------------------------------------------------------------------------------------------


class CheckpointOut(Model):
    """One checkpoint, without its subtasks."""

    job_id: str
    run_id: str
    checkpoint_id: int
    kind: CheckpointKind
    status: CheckpointStatus
    mode: Literal["aligned", "unaligned"] | None
    triggered_at: datetime
    latest_ack_at: datetime | None
    end_to_end_duration_ms: int | None
    """Trigger to latest acknowledgement (completed) or to the failure (failed); null in progress."""
    is_lost: bool = False
    """The checkpoint stays in progress: its run ended or no longer reports it, and its end was not observed."""
    checkpointed_size_bytes: int | None
    full_state_size_bytes: int | None
    processed_bytes: int | None
    persisted_bytes: int | None
    subtask_count: int | None
    """Null on Spark, which has no subtasks that acknowledge."""
    acknowledged_count: int | None
    failure_reason: FailureReason | None
    failure_message: str | None
    failed_at: datetime | None
    start_delay_max_ms: int | None
    alignment_max_ms: int | None
    sync_max_ms: int | None
    async_max_ms: int | None
    link: str
    """Path of the detail in this API."""


class SubtaskPhasesOut(Model):
    """One subtask's bar in the Gantt; all times are milliseconds since the trigger.

    ``snapshot_at_ms`` and the values derived from it are reconstructed (views.md V3); ``start_delay``, ``alignment``,
    ``sync``, ``async`` and ``ack`` are measured. If a subtask has not acknowledged, its ``ack_ms`` is null; its
    first barrier may still be known from its gauge, to within ``first_barrier_resolution_ms``.
    """

    subtask: int
    host: str | None = None
    is_acknowledged: bool
    first_barrier_ms: int | None
    first_barrier_basis: Basis | None
    first_barrier_resolution_ms: int | None = None
    alignment_end_ms: int | None
    snapshot_at_ms: int | None
    sync_end_ms: int | None
    async_end_ms: int | None
    ack_ms: int | None
    start_delay_ms: int | None
    alignment_duration_ms: int | None
    sync_duration_ms: int | None
    async_duration_ms: int | None
    ack_wait_ms: int | None
    is_alignment_overlaid: bool = False
    """Whether alignment runs during the async phase, because the snapshot starts before the last barrier arrives."""
    has_clock_skew: bool = False
    is_unaligned: bool | None = None
    checkpointed_size_bytes: int | None = None
    full_state_size_bytes: int | None = None
    processed_bytes: int | None = None
    persisted_bytes: int | None = None


class VertexPhasesOut(Model):
    """One vertex of one checkpoint, in topological order, subtasks by index."""

    vertex_id: str
    vertex: str
    acknowledged_count: int
    subtask_count: int
    slowest_subtask: int | None
    start_delay_max_ms: int | None = None
    """The delay at its input (measured): the latest start delay of its subtasks; null if one is not known."""
    delay_added_ms: int | None = None
    """``delay_passed_on_ms`` less ``start_delay_max_ms``; negative if the first barrier came from a quicker subtask."""
    delay_passed_on_ms: int | None = None
    """The latest start delay of the subtasks of its direct downstream vertices; null for a sink."""
    delay_basis: Basis | None = None
    """The basis of ``delay_added_ms`` and ``delay_passed_on_ms``; null if both are missing."""
    subtasks: list[SubtaskPhasesOut]


class CriticalStepOut(Model):
    """One step of the critical path, from the source to the last acknowledgement."""

    vertex_id: str
    vertex: str
    subtask: int
    phase: Phase
    start_ms: int
    end_ms: int
    basis: Basis


class CriticalPathOut(Model):
    """The steps that make up the end-to-end duration."""

    steps: list[CriticalStepOut]
    last_vertex: str | None
    last_subtask: int | None
    without_last_ms: int | None
    """What the duration would have been without the last subtask."""
    last_in: str | None = None
    """How often the same subtask was last, such as ``last in 11 of 11``."""


class CheckpointDetailOut(CheckpointOut):
    """One checkpoint down to its subtasks, with critical path and verdict."""

    job: str
    timeout_ms: int | None
    aligned_timeout_ms: int | None
    vertices: list[VertexPhasesOut]
    critical_path: CriticalPathOut | None
    verdict: VerdictOut
    has_barriers: bool
    """Whether per-channel barrier events exist (reference runtime only)."""
    engine: Engine | str
    capabilities: CapabilitiesOut
    """On Spark a checkpoint is a micro-batch: ``batch`` is set, and there are no vertices, barriers or alignment."""
    batch: MicroBatchOut | None = None
    restoring: RestoringOut | None = None
    """How the checkpoint can be restored; null on Spark, which cannot restore a chosen batch."""
    last_healthy_link: str | None = None
    previous_id: int | None = None
    next_id: int | None = None
    observed_at: datetime | None = None
