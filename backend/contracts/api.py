"""The JSON of our own API under ``/api/v1``, which the dashboard and scripts read.

Instants are RFC 3339 in UTC. Durations are in milliseconds unless the field's name ends with another unit. ``null``
means *not reported*. ``basis`` states whether a number was measured, reconstructed or predicted. Arrays with one value
for each subtask are indexed by subtask. Errors under ``/api`` are RFC 9457 problem documents (``Problem``).

Paths (GET unless another method is named):

* ``/api/v1/status``                                          -> status.StatusOut
* ``/api/v1/targets`` (GET, POST TargetIn -> 201)              -> Page[TargetOut] / TargetOut
* ``/api/v1/targets/sd?kind=``                                -> list[target_list.TargetGroupOut]
* ``/api/v1/targets/test`` (POST TargetIn)                     -> TargetTestOut
* ``/api/v1/targets/{target}`` (GET, PATCH TargetPatch, DELETE)-> TargetOut
* ``/api/v1/jobs``                                            -> Page[JobOut], most urgent first
* ``/api/v1/board?offset=&limit=&sort=&since=&known=``        -> board.BoardOut
* ``/api/v1/jobs/{job}``                                      -> JobDetailOut
* ``/api/v1/jobs/{job}/verdict``                              -> DiagnosisOut
* ``/api/v1/jobs/{job}/links?vertex=&subtask=&run=&checkpoint=`` -> links.LinksOut
* ``/api/v1/jobs/{job}/vertices/{vertex}/subtasks/{subtask}/thread-dump?all=`` -> inspection.ThreadDumpOut
* ``/api/v1/jobs/{job}/vertices/{vertex}/subtasks/{subtask}/flame-graph?type=`` -> inspection.FlameGraphOut
* ``/api/v1/jobs/{job}/runs``                                 -> Page[RunOut], newest first
* ``/api/v1/jobs/{job}/checkpoints``                          -> Page[CheckpointOut], newest first, over all runs
* ``/api/v1/jobs/{job}/checkpoints/latest?status=``           -> CheckpointOut
* ``/api/v1/jobs/{job}/subtask-matrix``                       -> subtask_matrix.SubtaskMatrixOut
* ``/api/v1/compare?a=&b=&a_checkpoint=&b_checkpoint=``        -> comparing.CheckpointComparisonOut
* ``/api/v1/compare?a=&b=&a_from=&a_to=&b_from=&b_to=``        -> comparing_windows.WindowsComparisonOut
* ``/api/v1/jobs/{job}/compare?a=&b=``                         -> comparing.CheckpointComparisonOut
* ``/api/v1/jobs/{job}/compare-windows``                      -> comparing_windows.WindowsComparisonOut
* ``/api/v1/jobs/{job}/events``                               -> Page[JobEventOut] (restarts, configuration changes)
* ``/api/v1/jobs/{job}/history?max=``                         -> history.HistoryOut (``from``, ``to``)
* ``/api/v1/jobs/{job}/usual-range?to=``                      -> history.UsualOut
* ``/api/v1/jobs/{job}/annotations`` (GET, POST annotations.AnnotationIn -> 201) -> Page[annotations.AnnotationOut]
* ``/api/v1/annotations`` (POST annotations.AnnotationsIn -> 201) -> Page[annotations.AnnotationOut], one for each job
* ``/api/v1/jobs/{job}/annotations/{annotation}`` (DELETE)
* ``/api/v1/annotations/{annotation}`` (DELETE)
* ``/api/v1/jobs/{job}/rollups``                              -> Page[rollups.RollupHourOut], newest hour first
* ``/api/v1/jobs/{job}/backpressure``                         -> BackpressureOut (latest, or ``from``/``to`` series)
* ``/api/v1/jobs/{job}/backpressure/history``                 -> pressure_history.PressureHistoryOut
* ``/api/v1/jobs/{job}/change-points``                        -> Page[changes.ChangePointOut], newest first
* ``/api/v1/jobs/{job}/advice``                               -> advice.JobAdviceOut
* ``/api/v1/jobs/{job}/recommendations``                      -> Page[advice.CardOut], newest first
* ``/api/v1/jobs/{job}/recommendations/{recommendation}``     -> advice.CardOut
* ``/api/v1/jobs/{job}/recommendations/{recommendation}/accept`` (POST) -> advice.CardOut
* ``/api/v1/jobs/{job}/recommendations/{recommendation}/dismiss`` (POST advice.DismissIn) -> advice.CardOut
* ``/api/v1/jobs/{job}/recommendations/{recommendation}/apply`` (POST) -> advice.CardOut
* ``/api/v1/jobs/{job}/recommendations/{recommendation}/roll-back`` (POST) -> advice.CardOut
* ``/api/v1/jobs/{job}/recommendations/{recommendation}/dry-run`` -> advice.DryRunOut
* ``/api/v1/jobs/{job}/whatif`` (POST whatif.WhatIfIn)       -> whatif.WhatIfOut
* ``/api/v1/jobs/{job}/whatif/apply`` (POST whatif.WhatIfApplyIn) -> advice.CardOut
* ``/api/v1/jobs/{job}/whatif/dry-run`` (POST whatif.WhatIfApplyIn) -> advice.DryRunOut
* ``/api/v1/jobs/{job}/whatif/accept`` (POST whatif.WhatIfApplyIn) -> advice.CardOut
* ``/api/v1/jobs/{job}/whatif/confirmations/{confirmation}`` (GET, DELETE) -> whatif.ConfirmationOut
* ``/api/v1/jobs/{job}/backtests`` (POST backtests.BacktestIn) -> backtests.BacktestOut
* ``/api/v1/jobs/{job}/backtests/{backtest}`` (GET, DELETE)  -> backtests.BacktestOut
* ``/api/v1/jobs/{job}/whatif/confirmations/{confirmation}/runs/{number}/checkpoints/{checkpoint}``
  -> simulations.SimulatedCheckpointOut
* ``/api/v1/jobs/{job}/runs/{run}/checkpoints/{checkpoint}``  -> CheckpointDetailOut
* ``/api/v1/jobs/{job}/runs/{run}/checkpoints/{checkpoint}/subtasks?vertex=`` -> subtasks.CheckpointSubtasksOut
* ``/api/v1/jobs/{job}/runs/{run}/checkpoints/{checkpoint}/progress`` -> ProgressOut
* ``/api/v1/jobs/{job}/runs/{run}/checkpoints/{checkpoint}/actions`` (POST checkpoint_actions.ActionIn)
  -> checkpoint_actions.ActionTakenOut
* ``/api/v1/jobs/{job}/runs/{run}/checkpoints/{checkpoint}/barriers`` -> BarriersOut
* ``/api/v1/jobs/{job}/runs/{run}/checkpoints/{checkpoint}/space-time?open=`` -> space_time.SpaceTimeOut
* ``/api/v1/jobs/{job}/runs/{run}/checkpoints/{checkpoint}/verdict``  -> VerdictOut
* ``/api/v1/causes/{cause}``                                  -> causes.CausePageOut
* ``/api/v1/cap-curves`` (POST cap_curves.CapCurveIn -> 202)  -> cap_curves.CapCurveOut
* ``/api/v1/cap-curves/{curve}`` (GET, DELETE)                -> cap_curves.CapCurveOut
* ``/api/v1/simulation-catalog``                              -> simulations.SimulationCatalogOut
* ``/api/v1/simulations`` (POST simulations.SimulationIn -> 202) -> simulations.SimulationOut
* ``/api/v1/simulations/check`` (POST simulations.SimulationIn -> 204)
* ``/api/v1/simulations/{simulation}`` (GET, DELETE)          -> simulations.SimulationOut
* ``/api/v1/simulations/{simulation}/runs/{number}/checkpoints/{checkpoint}`` -> simulations.SimulatedCheckpointOut
"""

from __future__ import annotations

from datetime import datetime
from typing import Generic, Literal, TypeVar

from pydantic import ConfigDict, Field

from backend.contracts.bounds import CheckpointBoundsOut, DurationBoundsOut, EvidenceBoundOut
from backend.contracts.causes import CriticalPathOut, IntermittenceOut, NamesLast, OutlierOut, SecondCauseOut
from backend.contracts.checkpoint_folders import CheckpointFolderOut
from backend.contracts.engines import CapabilitiesOut, Engine
from backend.contracts.freshness import Dated
from backend.contracts.growth import GrowthOut
from backend.contracts.job_events import JobEventOut as JobEventOut
from backend.contracts.micro_batches import MicroBatchOut, WithBatches
from backend.contracts.model import Model
from backend.contracts.phase_bars import SubtaskPhasesOut as SubtaskPhasesOut
from backend.contracts.phase_bars import VertexPhasesOut as VertexPhasesOut
from backend.contracts.replay_debt import WithReplayDebt
from backend.contracts.restoring import RestoringOut
from backend.contracts.targets import Labels as Labels
from backend.contracts.targets import PollCostOut as PollCostOut
from backend.contracts.targets import TargetHealthOut as TargetHealthOut
from backend.contracts.targets import TargetIn as TargetIn
from backend.contracts.targets import TargetOut as TargetOut
from backend.contracts.targets import TargetPatch as TargetPatch
from backend.contracts.targets import TargetShedOut as TargetShedOut
from backend.contracts.targets import TargetTestOut as TargetTestOut
from backend.domain.checkpoint import CheckpointKind, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.micro_batch import PressureSign
from backend.domain.observation import JobState
from backend.domain.protocols import Protocol
from backend.domain.verdict import Basis, Confidence, Health, Phase, VerdictKind

T = TypeVar("T")
Ints = list[int | None]
Floats = list[float | None]


class Page(Model, Generic[T]):
    """One page of a list. ``next`` is the opaque cursor of the following page, or null on the last page."""

    # Pydantic would look for the docstrings of the fields in every frame of the stack, again for each kind of item.
    model_config = ConfigDict(use_attribute_docstrings=False)

    items: list[T]
    next: str | None = None
    as_of: datetime = Field(
        description="The instant of this response. The age of an item is ``as_of`` minus the item's own instant."
    )


class ProblemField(Model):
    """One invalid field of a request."""

    pointer: str
    detail: str
    allowed: str | None = None


class Problem(Model):
    """The RFC 9457 ``application/problem+json`` document of an error."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    errors: list[ProblemField] = []

    @property
    def unsaid(self) -> list[ProblemField]:
        """The fields of which the sentence in ``detail`` does not say everything."""
        return [
            e for e in self.errors if not all(said.rstrip(".") in self.detail for said in (e.detail, e.allowed or ""))
        ]


# --- verdicts -----------------------------------------------------------------------------------------------------


class EvidenceOut(EvidenceBoundOut):
    """One row of evidence: a statement that a person can check."""

    statement: str
    metric: str
    basis: Basis
    value: float | None = None
    unit: str | None = None


class VerdictOut(NamesLast):
    """What delays a checkpoint: the vertex, its subtasks, the phase and the cause."""

    kind: VerdictKind
    """The cause. ``/api/v1/causes/{kind}`` has a page on it."""
    vertex: str | None
    vertex_id: str | None = None
    subtasks: list[int]
    hosts: list[str] = []
    phase: Phase | None
    sentence: str
    evidence: list[EvidenceOut]
    confidence: Confidence
    would_decide: list[str] = []
    headline: str | None = None
    """The sentence in a few words: what holds the checkpoints or, if nothing or an unknown cause does, their state.

    ``headline`` and ``detail`` together say what ``sentence`` says. They are null in verdicts that were stored before
    these fields existed.
    """
    detail: str | None = None
    share_ratio: float | None = None
    """The share of the duration that the cause takes by itself (0..1), reconstructed; null if it is not known."""
    second: SecondCauseOut | None = None
    intermittence: IntermittenceOut | None = None
    outlier: OutlierOut | None = None


class DiagnosisOut(WithReplayDebt):
    """The diagnosis that ``barrierscope diagnose`` prints for a job."""

    job: str
    job_id: str | None = None
    health: Health
    verdict: VerdictOut
    as_of: datetime | None = None
    checkpoints_considered: int | None = None


# --- jobs ---------------------------------------------------------------------------------------------------------


class SparkPointOut(Model):
    """One terminal checkpoint, as a point of the sparkline on the fleet board."""

    at: datetime
    duration_ms: int | None
    status: CheckpointStatus


class JobOut(DurationBoundsOut, WithReplayDebt, Dated):
    """A job, as one row of the fleet board.

    Until a job is analysed, which takes some seconds after a start of the service, ``health`` and all that follows from
    the analysis are null. The statistics of the last 24 hours are null until they are read.
    """

    id: str
    name: str
    target_id: str
    target_name: str
    target_state: str
    """The health state of the target as far as it concerns the job. If it is not ``ok``, the job's data is old."""
    labels: dict[str, str] = {}
    """The labels of the target."""
    engine: Engine | str
    capabilities: CapabilitiesOut
    state: JobState
    run_id: str
    mode: Literal["aligned", "unaligned", "aligned-with-timeout", "at-least-once"] | Protocol | None
    health: Health | None
    """Null if the job has not been analysed yet. ``verdict`` is then null too."""
    verdict: VerdictOut | None
    interval_ms: int | None
    timeout_ms: int | None
    last_completed_at: datetime | None
    last_completed_age_intervals: float | None
    """Age of the last completed checkpoint in units of the configured interval."""
    completed_24h_count: int | None
    failed_24h_count: int | None
    success_24h_ratio: float | None
    duration_p50_ms: float | None
    duration_p99_ms: float | None
    dominant_phase: Phase | None
    backpressured_max_ratio: float | None
    in_progress_checkpoint_id: int | None
    sparkline: list[SparkPointOut]
    observed_at: datetime | None
    alerts_firing_count: int = 0
    """Number of the job's alerts that fire now, including silenced ones."""
    alerts_severity: Literal["critical", "warning"] | None = None
    """The highest severity of the job's firing alerts that nobody has silenced, acknowledged or taken.

    Null if there is none.
    """
    open_advice_count: int = 0
    """Number of recommendations that a user can still accept, dismiss or apply."""


class VertexOut(Model):
    """A vertex, and its place in the layered drawing of the job graph.

    Layer 0 holds the sources, and ``row`` is the place within the layer.
    """

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
    """A directed edge of the job graph."""

    source: str
    target: str
    ship_strategy: str | None = None


class CheckpointConfigOut(Model):
    """The checkpoint settings in force, as the engine reports them."""

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
    debloat_target_ms: int | None = None
    """The time for which buffer debloating sizes the buffers. Null if it is off or not reported."""
    protocol: Protocol | None = None
    """The protocol of checkpoints, if Flink does not have it. ``is_unaligned_enabled`` is true then."""
    spilling: str | None = None
    """When in-flight data is written: ``continuous`` (when it is sent) or ``ad-hoc``. Null if not reported."""
    is_off: bool | None = None
    """True if the job takes no periodic checkpoints, otherwise null. So is the next field."""
    ends_with_first_task: bool | None = None


class RestoredFromOut(Model):
    """The checkpoint or savepoint from which a run was last restored. What the engine does not report is null."""

    checkpoint_id: int
    is_savepoint: bool
    location: str | None = None
    job: str | None = None
    """The name of the job that took it."""
    job_id: str | None = None
    run_id: str | None = None
    link: str | None = None
    """The API path of the checkpoint; null if it is not stored, and so are the two ids."""
    kind: str | None = None
    """Such as *unaligned checkpoint*. The reference runtime reports this and the next two, if another job took it."""
    is_claimed: bool | None = None
    """Whether the run owns the checkpoint now."""
    left_out: list[str] | None = None
    """The operators whose state was not restored, because the job does not have them: at most 100."""
    left_out_more: int = 0
    """How many more such operators there are."""


class CountsOut(Model):
    """The coordinator's counters. ``failed_unlisted`` counts failures that were never listed as checkpoints."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int
    failed_unlisted: int
    restored_from: RestoredFromOut | None = None
    """Null if the run was never restored, or if this is not known."""


class PressureSignOut(Model):
    """One sign of backpressure on Spark, which does not measure backpressure itself. ``value`` is null if not known."""

    sign: PressureSign
    is_raised: bool
    value: float | None
    limit: float
    statement: str
    basis: Basis


class RunOut(Model):
    """One run of a job, from its start on the engine to its end."""

    id: str
    engine_run_id: str
    target_id: str
    started_at: datetime
    ended_at: datetime | None
    state: JobState
    engine_state: str
    restart_count: int | None = None
    checkpoint_count: int


class JobDetailOut(WithBatches, JobOut):
    """A job, with the graph, settings and counters of its current run."""

    health: Health
    verdict: VerdictOut
    completed_24h_count: int
    failed_24h_count: int
    run: RunOut
    vertices: list[VertexOut]
    edges: list[EdgeOut]
    config: CheckpointConfigOut | None
    counts: CountsOut | None
    exceptions: list[str] = []
    problems: list[str] = []
    """Errors in reading the current run, such as data that could not be read or was lost."""
    clock_offset_ms: int | None = None
    """The engine's clock minus the clock of this service, in milliseconds; null if it is not known.

    The times of checkpoints and events are on the engine's clock. ``observed_at`` and ``as_of`` are on the clock of
    this service.
    """
    read_at_engine: datetime | None = None
    """When the job was last read, on the engine's clock."""
    signs: list[PressureSignOut] = []
    """Spark only: signs of backpressure, because Spark does not measure backpressure itself."""
    growth: GrowthOut | None = None
    """What has at least doubled within the stored history of up to 7 days, although the input has not.

    Null if nothing has, or if less than two days are known.
    """
    folders: list[CheckpointFolderOut] = []
    """Spark only: what the checkpoint folders of the query hold, if a target is one."""


# --- checkpoints --------------------------------------------------------------------------------------------------


class CheckpointOut(CheckpointBoundsOut):
    """One checkpoint, without its subtasks."""

    job_id: str
    run_id: str
    checkpoint_id: int
    kind: CheckpointKind
    status: CheckpointStatus
    mode: Literal["aligned", "unaligned", "at-least-once"] | Protocol | None
    course: str | None = None
    """How the checkpoint went, in words, such as ``aligned, then unaligned after 1 s``; null if that is not known."""
    cap_bound_count: int | None = None
    """Number of subtasks at which a cap on in-flight data made the checkpoint wait or persist less.

    Null if it has no cap, or if the engine does not report it.
    """
    triggered_at: datetime
    latest_ack_at: datetime | None
    end_to_end_duration_ms: int | None
    """Milliseconds from the trigger to the latest acknowledgement, or to the failure of a failed checkpoint.

    Null while the checkpoint is in progress.
    """
    is_lost: bool = False
    """Whether the checkpoint was in progress when its run ended, or when its run stopped reporting it.

    The end of such a checkpoint is not known. Its status stays in progress.
    """
    checkpointed_size_bytes: int | None
    full_state_size_bytes: int | None
    processed_bytes: int | None
    persisted_bytes: int | None
    subtask_count: int | None
    """Null on Spark, because Spark does not acknowledge checkpoints by subtask."""
    acknowledged_count: int | None
    failure_reason: FailureReason | None
    failure_message: str | None
    failed_at: datetime | None
    start_delay_max_ms: int | None
    alignment_max_ms: int | None
    sync_max_ms: int | None
    async_max_ms: int | None
    link: str
    """Path of this checkpoint's detail in this API."""


class CheckpointDetailOut(Dated, CheckpointOut):
    """One checkpoint with the data of its subtasks, its critical path and its verdict."""

    job: str
    timeout_ms: int | None
    aligned_timeout_ms: int | None
    vertices: list[VertexPhasesOut]
    critical_path: CriticalPathOut | None
    verdict: VerdictOut
    has_barriers: bool
    """Whether barrier events of each channel are available. Only the reference runtime reports them."""
    are_arrays_removed: bool = False
    """Whether retention has removed the values by subtask, because the checkpoint was healthy and is old.

    The largest value of each phase stays.
    """
    engine: Engine | str
    capabilities: CapabilitiesOut
    """The capabilities of the job's engine.

    On Spark a checkpoint is a micro-batch: ``batch`` is set, and there are no vertices, barriers or alignment.
    """
    batch: MicroBatchOut | None = None
    restoring: RestoringOut | None = None
    """How the checkpoint can be restored; null on Spark, where a user cannot choose the batch to restore."""
    last_healthy_link: str | None = None
    previous_id: int | None = None
    next_id: int | None = None
    observed_at: datetime | None = None
    clock_offset_ms: int | None = None
    """The engine's clock minus the clock of this service, in milliseconds; see ``JobDetailOut``."""
