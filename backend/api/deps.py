"""Defines what the routes get as parameters: the services, and path and query parameters that several routes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Path, Query, Request

from backend.contracts.model import Rfc3339
from backend.services.advice.cards import AdviceService
from backend.services.alerts.episodes import AlertService
from backend.services.alerts.incidents import IncidentService
from backend.services.alerts.receivers import ReceiverService
from backend.services.alerts.rules_and_silences import AlertControlService
from backend.services.backtests.requests import BacktestService
from backend.services.checkpoints.actions import ActionService
from backend.services.checkpoints.comparing import ComparisonService
from backend.services.checkpoints.comparing_windows import WindowComparisonService
from backend.services.checkpoints.history import HistoryService
from backend.services.checkpoints.progress import ProgressService
from backend.services.checkpoints.reader import CheckpointKey, CheckpointService
from backend.services.checkpoints.space_time import SpaceTimeService
from backend.services.checkpoints.subtask_matrix import SubtaskMatrixService
from backend.services.checkpoints.subtasks import SubtaskService
from backend.services.jobs.annotations import AnnotationService
from backend.services.jobs.changes import ChangeService
from backend.services.jobs.fleet import FleetService
from backend.services.jobs.pressure_history import PressureHistoryService
from backend.services.jobs.reader import JobService, TimeRange
from backend.services.paging import LIMIT_DEFAULT, LIMIT_MAX
from backend.services.rollups.reader import RollupService
from backend.services.simulations.cap_curves import CapCurveService
from backend.services.simulations.requests import SimulationService
from backend.services.status import StatusService
from backend.services.targets.inspecting import InspectionService
from backend.services.targets.links import LinkService
from backend.services.targets.spark_push import SparkIngestService
from backend.services.targets.targets import TargetService
from backend.services.whatif.answering import WhatIfService
from backend.services.whatif.choosing import SettingChooser

# The range of instants in which PostgreSQL and the services can calculate.
_INT8_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Services:
    """All services of this process, which the routes call."""

    status: StatusService
    targets: TargetService
    fleet: FleetService
    jobs: JobService
    checkpoints: CheckpointService
    progress: ProgressService
    space_time: SpaceTimeService
    actions: ActionService
    alerts: AlertService
    incidents: IncidentService
    alert_control: AlertControlService
    receivers: ReceiverService
    spark: SparkIngestService
    advice: AdviceService
    chooser: SettingChooser
    rollups: RollupService
    changes: ChangeService
    subtask_matrix: SubtaskMatrixService
    subtasks: SubtaskService
    annotations: AnnotationService
    comparison: ComparisonService
    pressure_history: PressureHistoryService
    history: HistoryService
    window_comparison: WindowComparisonService
    simulations: SimulationService
    cap_curves: CapCurveService
    links: LinkService
    inspection: InspectionService
    what_if: WhatIfService
    backtests: BacktestService


def _services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


Given = Annotated[Services, Depends(_services)]
# Ids are compared and not parsed. NUL is the only character that PostgreSQL cannot compare.
_ID = r"^[^\x00]*$"
JobId = Annotated[str, Path(max_length=100, pattern=_ID, description="Id of a job.", examples=["j0f3a9c2d1e4b5a67"])]
RunId = Annotated[str, Path(max_length=100, pattern=_ID, description="Id of a run.", examples=["r5b1d2c3e4f5a6b78"])]
TargetId = Annotated[
    str, Path(max_length=100, pattern=_ID, description="Id of a target.", examples=["t9c8b7a6d5e4f3021"])
]
CheckpointId = Annotated[int, Path(ge=0, le=_INT8_MAX, description="The engine's checkpoint id.", examples=[412])]
Cursor = Annotated[
    str | None, Query(max_length=500, description="`next` of the previous page; absent for the first page.")
]
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Items per page.")]
Instant = Annotated[Rfc3339, Query()]
LIMIT = LIMIT_DEFAULT


def _checkpoint_key(job: JobId, run: RunId, checkpoint: CheckpointId) -> CheckpointKey:
    return CheckpointKey(job, run, checkpoint)


Key = Annotated[CheckpointKey, Depends(_checkpoint_key)]


def _time_range(
    since: Annotated[Instant | None, Query(alias="from", description="Inclusive, RFC 3339 with an offset.")] = None,
    until: Annotated[Instant | None, Query(alias="to", description="Exclusive, RFC 3339 with an offset.")] = None,
) -> TimeRange:
    return TimeRange(since, until)


Range = Annotated[TimeRange, Depends(_time_range)]
