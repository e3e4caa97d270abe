"""Input signals for the alert rules: one small job and one target, both healthy unless the test changes them."""

from __future__ import annotations

from datetime import timedelta

from backend.alerting.signals import EndedCheckpoint, JobSignal, Place, TargetSignal
from backend.analysis.health.finish import PastCheckpoint
from backend.analysis.health.refusals import Refusal
from backend.analysis.measures.growing import Growth
from backend.domain.checkpoint import CheckpointConfig, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.growth import Grown
from backend.domain.ids import JobId, RunId, TargetId
from backend.domain.observation import JobState
from backend.domain.target import TargetState
from backend.domain.verdict import Phase
from tests.support.observations import NOW

RUN = RunId("r1")
PLACE = Place("enrich", (1, 3), ("host-7",), Phase.ALIGNMENT, "Barriers queue before it.")
CONFIG = CheckpointConfig(interval_ms=10_000, timeout_ms=60_000, tolerable_failed_count=2)


def ended(number: int, outcome: str = "completed") -> EndedCheckpoint:
    """Build an ended checkpoint, triggered 10 s after its predecessor.

    ``outcome`` is "completed" or a failure reason.
    """
    is_failure = outcome != "completed"
    return EndedCheckpoint(
        run_id=RUN,
        checkpoint_id=number,
        triggered_at=NOW - timedelta(seconds=10 * (100 - number)),
        status=CheckpointStatus.FAILED if is_failure else CheckpointStatus.COMPLETED,
        reason=FailureReason(outcome) if is_failure else None,
        is_failure=is_failure,
        duration_ms=60_000 if is_failure else 900,
    )


def job_signal(*outcomes: str, **changes: object) -> JobSignal:
    """Build the signal of a running job whose checkpoints had these outcomes, oldest first.

    ``changes`` replace fields.
    """
    rows = tuple(ended(i, o) for i, o in enumerate(outcomes, start=1))
    values: dict = {
        "job_id": JobId("j1"),
        "name": "orders",
        "target_id": TargetId("t1"),
        "target_name": "production",
        "run_id": RUN,
        "run_started_at": NOW - timedelta(hours=2),
        "state": JobState.RUNNING,
        "now_engine": NOW,
        "config": CONFIG,
        "ended": rows,
        "triggers": tuple(r.triggered_at for r in rows),
        "last_completed_at": NOW - timedelta(seconds=10),
        "last_completed": (RUN, 1),
        "place": PLACE,
    }
    return JobSignal(**(values | changes))


def target_signal(**changes: object) -> TargetSignal:
    """Build the signal of a target that responded one second ago. ``changes`` replace fields."""
    values: dict = {
        "target_id": TargetId("t1"),
        "name": "production",
        "url": "http://flink:8081",
        "state": TargetState.OK,
        "now": NOW,
        "added_at": NOW - timedelta(days=1),
        "since": NOW - timedelta(hours=1),
        "last_attempt_at": NOW - timedelta(seconds=1),
        "last_success_at": NOW - timedelta(seconds=1),
        "poll_interval_s": 2.0,
        "job_names": ("orders",),
    }
    return TargetSignal(**(values | changes))


def linear_past(duration_ms: int, subtasks: int = 10, *, acknowledged: int | None = None) -> PastCheckpoint:
    """Build a past checkpoint with evenly spaced acknowledgements.

    If ``acknowledged`` is passed, only this number of subtasks acknowledged.
    """
    count = subtasks if acknowledged is None else acknowledged
    acks = tuple(duration_ms * (i + 1) // subtasks for i in range(count))
    return PastCheckpoint(acks, subtasks, duration_ms, acknowledged is None)


def refusal(*, refused: int = 0, declined: int = 0, silent_ms: float = 7_200_000.0) -> Refusal:
    """Build what shows that every checkpoint is refused, for two hours unless the caller says another time."""
    return Refusal(NOW, silent_ms, refused, declined, None, False, None)


def growth(**changes: object) -> Growth:
    """Build a state that doubled in two days at the same input. ``changes`` replace fields."""
    values: dict = {
        "what": Grown.STATE,
        "before": 1.2e9,
        "after": 2.5e9,
        "before_at": NOW - timedelta(days=2, hours=12),
        "span": timedelta(days=2),
        "input_ratio": 1.0,
        "is_filling": False,
    }
    return Growth(**(values | changes))
