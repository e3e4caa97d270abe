"""The JSON of a what-if: what would happen to a job's checkpoints under other settings, predicted by its model.

``backend.contracts.api`` lists the paths. A prediction has an interval, and the answer has the error that the same
model made on checkpoints that it was not fitted on.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from backend.contracts.advice import ChangeOut, ExportOut, HowToOut, IntervalOut, OptionalAuthor
from backend.contracts.model import Model, StrictBool, StrictInt
from backend.contracts.replay_debt import WithReplayDebt
from backend.contracts.simulations import QueuedWorkOut, SimulationRunOut
from backend.domain.replay_debt import ReplayBound
from backend.domain.verdict import Basis

CANDIDATES_MAX: Final = 24
"""The largest number of what-ifs in one request, beside the first one."""
POINTS_MAX: Final = 200
"""The largest number of simulated durations that an answer has for one what-if."""
FEW_COUNT: Final = 10
"""A share of fewer checkpoints says little about the next ones, so pages and the command show their count."""
PREDICTION_GONE: Final = "prediction-gone"
"""The last part of the type of the problem if the prediction that ``model_id`` names is no longer kept."""

WhatIfKey = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]
WhatIfValue = Annotated[str, Field(min_length=1, max_length=50, pattern=r"^[^\x00]+$")]
WhatIfSettings = Annotated[dict[WhatIfKey, WhatIfValue], Field(max_length=24)]


class VaryIn(Model):
    """A setting that goes from one value to another, in ``count`` steps."""

    key: WhatIfKey
    low: WhatIfValue
    high: WhatIfValue
    count: Annotated[StrictInt, Field(ge=2, le=CANDIDATES_MAX)] = 9


class WhatIfIn(Model):
    """A what-if. Settings have our names (``interval``) or the engine's own keys.

    Our names are ``mode``, ``aligned-timeout``, ``in-flight-cap``, ``debloating``, ``interval``, ``min-pause``,
    ``checkpoint-timeout``, ``parallelism.VERTEX``, ``load``, ``without-skew`` and ``without-slow-host``. The answer
    lists those that apply to the job, with their current values.
    """

    settings: WhatIfSettings = {}
    """The settings that change. The others stay as they are."""
    candidates: Annotated[list[WhatIfSettings], Field(max_length=CANDIDATES_MAX)] = []
    """More what-ifs to compare with. Each one adds to ``settings``, or replaces values of it."""
    vary: VaryIn | None = None
    """A setting whose values become what-ifs to compare with, in addition to ``settings``."""
    confirm: StrictBool = False
    """Whether the runtime simulates the job as it is and with ``settings``. That takes seconds to minutes."""


class WhatIfApplyIn(Model):
    """A what-if whose change is to be made, or was made by a person."""

    settings: Annotated[WhatIfSettings, Field(min_length=1)]
    model_id: Annotated[str, Field(max_length=64, pattern=r"^[0-9a-f]+$")] | None = None
    """The ``model_id`` of the answer whose prediction is to be kept, exactly as it was shown.

    It can be named for ten minutes, unless the job was restarted or changed meanwhile. Without it, the newest model of
    the job predicts.
    """
    is_guarded: bool = False
    """As in ``ApplyIn``: whether Barrierscope rolls the change back by itself if the checkpoints are worse after it."""
    author: OptionalAuthor = None
    """As in ``ApplyIn``: who makes the change, for the history."""


class Tier(StrEnum):
    """How a prediction was computed: closed formulas, a fast simulation, or the reference runtime."""

    FORMULAS = "formulas"
    FAST = "fast"
    RUNTIME = "runtime"


class Measure(StrEnum):
    """What a what-if predicts."""

    DURATION = "end_to_end_duration_ms"
    EXPIRED = "expired_ratio"
    PERSISTED = "persisted_bytes"
    THROUGHPUT = "records_per_s"
    SYNC = "sync_pause_ms"
    RESTORE = "restore_ms"
    REPLAY = "replay_ms"
    CATCH_UP = "catch_up_ms"


class EstimateOut(Model):
    """One predicted measure. Its interval holds 90 % of what the next checkpoints may show."""

    measure: Measure
    unit: str
    predicted: IntervalOut | None
    """Null if the tier cannot say, or if nothing bounds it (``bound``)."""
    bound: ReplayBound = ReplayBound.BOUNDED
    """Of ``replay_ms`` and ``catch_up_ms``: whether it has a limit. ``endless`` means that no checkpoint completes."""
    basis: Basis = Basis.PREDICTED
    tier: Tier
    error_ratio: float | None = None
    """How far the model's prediction was from checkpoints that it was not fitted on, as a share of the measured value.

    Null if the measure could not be scored.
    """


class FailureKind(StrEnum):
    """What fails: a task, which the engine notices at once, or a worker such as a TaskManager."""

    TASK = "task"
    WORKER = "worker"


class FailureCostOut(Model):
    """What one failure of a kind would cost. Each interval holds 90 % of such failures.

    No recovery of this job is compared with these predictions, so they have no error of the model.
    """

    failure: FailureKind
    outage_ms: IntervalOut
    """From the failure until records flow again."""
    replay_ms: IntervalOut | None
    """The time span of the input that is read again, after a failure at a random later moment.

    It counts from the newest completed checkpoint. Null if ``replay_bound`` is ``endless``, or if not known.
    """
    replay_bound: ReplayBound = ReplayBound.BOUNDED
    """Whether ``replay_ms`` has a limit. ``open`` means that it may be larger than its interval says."""
    catch_up_ms: IntervalOut | None
    """From then until the backlog is gone. Null if the job never catches up, or if its capacity is unknown."""
    recovery_ms: IntervalOut | None
    """From the failure until the backlog is gone."""
    basis: Basis = Basis.PREDICTED
    outage_basis: Basis
    """Reconstructed if failures of this kind are on record; otherwise predicted from assumed times."""
    how: str
    """What the outage was taken from."""


class PredictionOut(Model):
    """One what-if with its predicted effect."""

    settings: dict[str, str]
    """The changed settings, under our names. Empty for the job as it is."""
    tier: Tier
    estimates: list[EstimateOut]
    durations_ms: list[float] = []
    """The durations of simulated checkpoints, for the distribution. Empty if the tier simulates none."""
    failures: list[FailureCostOut] = []
    """What each kind of failure would cost."""
    is_on_front: bool = False
    """Whether no other what-if of the answer beats it: in the expired share, the duration and the persisted data."""
    notes: list[str] = []
    problem: str | None = None
    """Why there is no prediction. Null if there is one."""


class MeasuredNowOut(Model):
    """What was measured on the job's last checkpoints, under its current settings."""

    measure: Measure
    unit: str
    value: float | None
    """The median; of the expired ratio, the share. Null if it was not measured.

    A share of fewer than 10 ``checkpoint_ids`` says little about the next checkpoints.
    """
    low: float | None = None
    """The lower end of the interval of ``value``. Null if it is not known.

    The interval of the expired ratio is Wilson's at 90 %. That of a rate holds the middle 90 % of the rates of the
    readings, and that of any other measure the middle 90 % of the checkpoints.
    """
    high: float | None = None
    """The upper end of the interval."""
    is_lower_bound: bool = False
    """Whether ``value`` is only a lower bound: checkpoints that expired count with the time until then, and with the
    sync parts of the subtasks that acknowledged."""
    values: list[float | None] = []
    """The value of each of ``checkpoint_ids``. Empty for a measure that single checkpoints do not have."""
    basis: Basis = Basis.MEASURED


class MeasureErrorOut(Model):
    """How far the model was from one measure of later checkpoints."""

    measure: str
    unit: str
    measured: float
    predicted: float
    sample_count: int
    error_ratio: float | None


class CalibrationOut(Model):
    """On which checkpoints the model was fitted, and how well it predicted later ones."""

    fitted_ids: list[int]
    scored_ids: list[int]
    errors: list[MeasureErrorOut]


class AssumptionOut(Model):
    """A value of the model that was not observed."""

    subject: str
    taken: str
    reason: str


class WhatIfSettingOut(Model):
    """A setting that a what-if can change, with values to choose from in ascending order."""

    name: str
    title: str
    unit: str
    """``mode``, ``ms``, ``bytes``, ``subtasks``, ``factor`` or ``flag``."""
    current: str | None
    values: list[str]
    engine_key: str | None = None
    vertex_id: str | None = None
    why_not: str | None = None
    """Why the setting cannot be changed for this job. Null if it can be."""


class ConfirmationOut(QueuedWorkOut):
    """A run of the job's model on the reference runtime: its state and, if it is completed, its result."""

    job_id: str
    settings: dict[str, str]
    predictions: list[PredictionOut] = []
    """The job as it is, then the changed job. Empty until it is completed."""
    runs: list[SimulationRunOut] = []
    """The simulated checkpoints of the two, in the same order. ``link`` leads to a checkpoint's barriers."""
    typical_ids: list[int | None] = []
    """The checkpoint of each run whose duration is nearest to the median; null if none ended."""
    calibration: CalibrationOut | None = None
    """How far the runtime was from later checkpoints. Null if it was not scored on any."""


class WhatIfOut(WithReplayDebt):
    """The answer to a what-if. The replay debt is that of the job now; it is measured, and no prediction."""

    job: str
    job_id: str
    run_id: str
    engine: str
    model_id: str | None = None
    """The model that predicted. With it, ``apply`` and ``accept`` keep this prediction and not a newer one."""
    measured: list[MeasuredNowOut]
    checkpoint_ids: list[int]
    """The checkpoints of ``measured``, oldest first."""
    current: PredictionOut
    """The prediction for the job as it is. Compare it with ``measured``."""
    asked: PredictionOut
    is_better_tier_coming: bool = False
    """Whether a more exact tier is being prepared, which answers the same request once it is ready."""
    others: list[PredictionOut]
    calibration: CalibrationOut | None
    assumptions: list[AssumptionOut]
    settings: list[WhatIfSettingOut]
    changes: list[ChangeOut]
    """The change in the engine's own keys."""
    how_to: HowToOut
    exports: list[ExportOut] = []
    """The change in each form that the engine takes."""
    by_hand: list[str] = []
    """What of the what-if no setting can make."""
    can_apply: bool
    """Whether ``apply`` can make the whole change while the job runs."""
    why_not_apply: str | None = None
    proposed: dict[str, str] | None = None
    """The settings that open advice on the checkpoint mode proposes, under our names; null if there is none."""
    confirmation: ConfirmationOut | None = None
    as_of: datetime

    @property
    def is_changed(self) -> bool:
        """Whether a setting that was asked for differs from the job's own value."""
        current = {s.name: s.current for s in self.settings}
        return any(current.get(name) != value for name, value in self.asked.settings.items())
