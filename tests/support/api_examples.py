"""The examples of the OpenAPI document, parsed into the models of the API."""

from __future__ import annotations

from typing import Any, Final

from backend.api import examples
from backend.contracts import advice, alerts, api, spark
from backend.contracts.backpressure import BackpressureOut
from backend.contracts.barriers import BarriersOut
from backend.contracts.changes import ChangePointOut
from backend.contracts.progress import ProgressOut
from backend.contracts.rollups import RollupHourOut

MODELS: Final[dict[str, type[api.Model]]] = {
    "alert": alerts.AlertOut,
    "alert_detail": alerts.AlertDetailOut,
    "backpressure": BackpressureOut,
    "barriers": BarriersOut,
    "card": advice.CardOut,
    "change_point": ChangePointOut,
    "checkpoint": api.CheckpointOut,
    "checkpoint_detail": api.CheckpointDetailOut,
    "diagnosis": api.DiagnosisOut,
    "dismiss": advice.DismissIn,
    "job": api.JobOut,
    "job_advice": advice.JobAdviceOut,
    "job_detail": api.JobDetailOut,
    "job_event": api.JobEventOut,
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
    "spark_push_in": spark.SparkPushIn,
    "spark_push_out": spark.SparkPushOut,
    "status": api.StatusOut,
    "target": api.TargetOut,
    "target_in": api.TargetIn,
    "target_test": api.TargetTestOut,
    "verdict": api.VerdictOut,
}


def example(name: str) -> Any:
    """Parse the example ``name`` into a new value of its model.

    Raises:
        ValidationError: if the example does not fit the model.
    """
    return MODELS[name].model_validate(examples.read(name))
