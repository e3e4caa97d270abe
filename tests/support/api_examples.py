"""The examples of the OpenAPI document, parsed into the models of the API."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from backend.api import examples
from backend.contracts import advice, alerts, api, checkpoint_actions, incidents, spark
from backend.contracts.annotations import AnnotationIn, AnnotationOut, AnnotationsIn
from backend.contracts.backpressure import BackpressureOut
from backend.contracts.backtests import BacktestIn, BacktestOut
from backend.contracts.barriers import BarriersOut
from backend.contracts.board import BoardOut
from backend.contracts.cap_curves import CapCurveIn, CapCurveOut
from backend.contracts.causes import CausePageOut
from backend.contracts.changes import ChangePointOut
from backend.contracts.comparing import CheckpointComparisonOut
from backend.contracts.comparing_windows import WindowsComparisonOut
from backend.contracts.freshness import FreshnessOut
from backend.contracts.history import HistoryOut, UsualOut
from backend.contracts.inspection import FlameGraphOut, ThreadDumpOut
from backend.contracts.links import LinksOut
from backend.contracts.pressure_history import PressureHistoryOut
from backend.contracts.progress import ProgressOut
from backend.contracts.rollups import RollupHourOut
from backend.contracts.simulations import SimulatedCheckpointOut, SimulationCatalogOut, SimulationIn, SimulationOut
from backend.contracts.space_time import SpaceTimeOut
from backend.contracts.status import StatusOut
from backend.contracts.subtask_matrix import SubtaskMatrixOut
from backend.contracts.subtasks import CheckpointSubtasksOut
from backend.contracts.target_list import TargetGroupOut
from backend.contracts.whatif import ConfirmationOut, WhatIfApplyIn, WhatIfIn, WhatIfOut
from backend.domain.freshness import FRESHNESS_REASONS, Freshness

MODELS: Final[dict[str, type[api.Model]]] = {
    "alert": alerts.AlertOut,
    "alert_detail": alerts.AlertDetailOut,
    "annotation": AnnotationOut,
    "annotation_in": AnnotationIn,
    "annotations_in": AnnotationsIn,
    "backpressure": BackpressureOut,
    "backtest": BacktestOut,
    "backtest_in": BacktestIn,
    "cap_curve": CapCurveOut,
    "cap_curve_in": CapCurveIn,
    "barriers": BarriersOut,
    "board": BoardOut,
    "action_in": checkpoint_actions.ActionIn,
    "action_taken": checkpoint_actions.ActionTakenOut,
    "card": advice.CardOut,
    "card_verified": advice.CardOut,
    "change_point": ChangePointOut,
    "cause_page": CausePageOut,
    "checkpoint": api.CheckpointOut,
    "checkpoint_comparison": CheckpointComparisonOut,
    "checkpoint_detail": api.CheckpointDetailOut,
    "checkpoint_subtasks": CheckpointSubtasksOut,
    "diagnosis": api.DiagnosisOut,
    "dismiss": advice.DismissIn,
    "dry_run": advice.DryRunOut,
    "flame_graph": FlameGraphOut,
    "history": HistoryOut,
    "comment_in": incidents.CommentIn,
    "incident": incidents.IncidentOut,
    "incident_act": incidents.IncidentActIn,
    "incident_detail": incidents.IncidentDetailOut,
    "incident_note": incidents.IncidentNoteOut,
    "job": api.JobOut,
    "job_advice": advice.JobAdviceOut,
    "job_detail": api.JobDetailOut,
    "job_event": api.JobEventOut,
    "links": LinksOut,
    "pressure_history": PressureHistoryOut,
    "problem": api.Problem,
    "progress": ProgressOut,
    "receiver": alerts.ReceiverOut,
    "receiver_in": alerts.ReceiverIn,
    "receiver_test": alerts.ReceiverTestOut,
    "rollup_hour": RollupHourOut,
    "rule": alerts.AlertRuleOut,
    "rule_patch": alerts.AlertRulePatch,
    "run": api.RunOut,
    "runbook": alerts.RunbookOut,
    "silence": alerts.SilenceOut,
    "silence_in": alerts.SilenceIn,
    "silence_preview": incidents.SilencePreviewOut,
    "silence_preview_in": incidents.SilencePreviewIn,
    "space_time": SpaceTimeOut,
    "simulated_checkpoint": SimulatedCheckpointOut,
    "simulation": SimulationOut,
    "simulation_catalog": SimulationCatalogOut,
    "simulation_in": SimulationIn,
    "spark_push_in": spark.SparkPushIn,
    "spark_push_out": spark.SparkPushOut,
    "status": StatusOut,
    "subtask_matrix": SubtaskMatrixOut,
    "target": api.TargetOut,
    "target_in": api.TargetIn,
    "target_group": TargetGroupOut,
    "target_test": api.TargetTestOut,
    "thread_dump": ThreadDumpOut,
    "usual_range": UsualOut,
    "verdict": api.VerdictOut,
    "what_if": WhatIfOut,
    "what_if_apply_in": WhatIfApplyIn,
    "what_if_confirmation": ConfirmationOut,
    "what_if_in": WhatIfIn,
    "windows_comparison": WindowsComparisonOut,
}


def example(name: str) -> Any:
    """Parse the example ``name`` into a new value of its model.

    Raises:
        ValidationError: if the example does not fit the model.
    """
    return MODELS[name].model_validate(examples.read(name))


def stale(state: Freshness, *, has_time: bool = True) -> FreshnessOut:
    """Return the freshness of a document that is stale for the reason ``state``, or that is current."""
    found = _freshness()
    values = {"state": state, "is_stale": state.is_stale, "reason": FRESHNESS_REASONS.get(state)}
    return found.model_copy(update=values if has_time else values | {"read_at": None})


@cache
def _freshness() -> FreshnessOut:
    found: FreshnessOut = example("job").freshness
    return found
