"""Writes what is known of jobs, targets and the store as metrics of Prometheus: about 20 series for each job.

A value that is not known has no sample, because zero would be a value. A state is a label of a series whose value is 1:
only the present state has a series. Every time is a timestamp by the clock of this service.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from backend.contracts.api import JobOut
from backend.domain.target import TargetState
from backend.metrics.registry import PREFIX
from backend.services.metrics.counting import FailureGroup
from backend.store.targets.targets import TargetRecord

JOB_LABELS: Final = ("job_name", "target", "namespace", "deployment")
"""The labels of every series of a job. The last two are labels of its target, and empty if the target has none."""
TARGET_LABELS: Final = ("target", "namespace", "deployment")
_PLACES: Final = ("namespace", "deployment")

_Value: TypeAlias = tuple[tuple[str, ...], float | None]


class LeftOut(StrEnum):
    """Why a job is not exported."""

    LIMIT = "limit"
    SAME_LABELS = "same-labels"
    """Another job with the same name has a target of the same name and labels."""


@dataclass(frozen=True, slots=True)
class JobValues:
    """The values of one job. ``offset`` is the engine's clock minus ours."""

    row: JobOut
    flink_job_id: str
    engine_version: str
    external_path: str
    offset: timedelta
    last_duration_ms: int | None
    completed_count: int
    failed_counts: Mapping[FailureGroup, int]
    in_progress_ms: int | None = None
    timeout_ratio: float | None = None
    finish_at: datetime | None = None

    @property
    def is_stale(self) -> bool:
        """Whether the newest reading is old. What it says of the present would then look like something current."""
        return self.row.freshness is not None and self.row.freshness.is_stale

    @staticmethod
    def labels_of(row: JobOut) -> tuple[str, ...]:
        """Return the values of ``JOB_LABELS``."""
        return (row.name, row.target_name, *(row.labels.get(name, "") for name in _PLACES))


@dataclass(frozen=True, slots=True)
class StoreValues:
    """The size of the store, the days of history that fit, and the messages of alerts that wait."""

    size_bytes: int
    size_limit_bytes: int
    held_days: float | None
    promised_days: float
    due_count: int
    due_since: datetime | None


@dataclass(frozen=True, slots=True)
class Exported:
    """What one process exports about the fleet. Only the process with the lease ``is_exporting``."""

    is_exporting: bool
    is_store_up: bool | None = None
    jobs: Sequence[JobValues] = ()
    left_out: Mapping[LeftOut, int] = field(default_factory=dict)
    targets: Sequence[TargetRecord] = ()
    store: StoreValues | None = None


def metrics_of(exported: Exported) -> Iterable[Metric]:
    """Return the metrics."""
    words = "1 if this process exports the jobs, the targets and the store; 0 if it stands by."
    yield _gauge("exporter_active", words, (), [((), float(exported.is_exporting))])
    if exported.is_store_up is not None:
        yield _gauge("store_up", "1 if PostgreSQL answers.", (), [((), float(exported.is_store_up))])
    if exported.store is not None:
        yield from _of_store(exported.store)
        yield from _of_targets(exported.targets)
        yield from _of_jobs(exported.jobs, exported.left_out)


def _of_store(store: StoreValues) -> Iterable[Metric]:
    plain: Sequence[tuple[str, str, float | None]] = (
        ("store_size_bytes", "The size of the stored history.", store.size_bytes),
        ("store_size_limit_bytes", "The size at which old history is deleted.", store.size_limit_bytes),
        ("store_held_seconds", "Predicted: the time of history that fits into the limit.", _days_s(store.held_days)),
        ("store_promised_seconds", "The time of history that the age limit promises.", _days_s(store.promised_days)),
        ("alert_deliveries_due", "The messages of alerts that wait for delivery.", store.due_count),
        (
            "alert_oldest_due_delivery_timestamp_seconds",
            "When the oldest message that waits was added.",
            _epoch_s(store.due_since),
        ),
    )
    for name, words, value in plain:
        yield _gauge(name, words, (), [((), value)])


def _of_targets(targets: Sequence[TargetRecord]) -> Iterable[Metric]:
    single = {_target_labels(t): t for t in reversed(targets)}
    states = Counter(t.state for t in targets)
    yield _gauge(
        "targets", "The targets in each state.", ("state",), [((state.value,), states[state]) for state in TargetState]
    )
    yield _gauge(
        "target_up",
        "1 if the last reading of the target succeeded. A paused target, and one not yet read, has no sample.",
        TARGET_LABELS,
        [(labels, _is_up(t.state)) for labels, t in single.items()],
    )
    yield _gauge(
        "target_last_success_timestamp_seconds",
        "When the target was last read.",
        TARGET_LABELS,
        [(labels, _epoch_s(t.last_success_at)) for labels, t in single.items()],
    )
    for name, words in (("checkpoint", "Whole checkpoints"), ("detail", "Details of checkpoints")):
        yield _counter(
            f"target_shed_{name}s",
            f"{words} that could not be read in time since the target was added.",
            TARGET_LABELS,
            [(labels, 0 if t.shed is None else getattr(t.shed, f"shed_{name}_count")) for labels, t in single.items()],
        )
    yield _counter(
        "target_rejected_checkpoints",
        "Checkpoints that were refused because their time or their id is not possible.",
        TARGET_LABELS,
        [(labels, t.rejected_count) for labels, t in single.items()],
    )


def _of_jobs(jobs: Sequence[JobValues], left_out: Mapping[LeftOut, int]) -> Iterable[Metric]:
    known = [(JobValues.labels_of(j.row), j) for j in jobs]
    current = [(own, j) for own, j in known if not j.is_stale]
    yield _gauge("jobs", "The jobs that this process exports.", (), [((), len(jobs))])
    yield _gauge(
        "jobs_left_out",
        "The jobs that are not exported, because there are too many or another one has the same labels.",
        ("reason",),
        [((reason.value,), left_out.get(reason, 0)) for reason in LeftOut],
    )
    yield _gauge(
        "job_info",
        "Always 1. The job as its engine knows it; Flink's own metrics have flink_job_id as job_id.",
        (*JOB_LABELS, "engine", "engine_version", "mode", "flink_job_id"),
        [((*own, str(j.row.engine), j.engine_version, j.row.mode or "", j.flink_job_id), 1) for own, j in known],
    )
    yield _gauge(
        "job_external_path_info",
        "Always 1. Where the newest completed checkpoint of the newest ones was written.",
        (*JOB_LABELS, "external_path"),
        [((*own, j.external_path), 1) for own, j in known if j.external_path],
    )
    yield _gauge(
        "job_health",
        "Always 1. The health of the job's checkpoints. A job whose newest reading is old has no sample.",
        (*JOB_LABELS, "health"),
        [((*own, j.row.health.value), 1) for own, j in current if j.row.health is not None],
    )
    yield _gauge(
        "job_verdict",
        "Always 1. What limits the job's checkpoints. A job whose newest reading is old has no sample.",
        (*JOB_LABELS, "verdict"),
        [((*own, j.row.verdict.kind.value), 1) for own, j in current if j.row.verdict is not None],
    )
    yield from _of_checkpoints(known)


def _of_checkpoints(known: Sequence[tuple[tuple[str, ...], JobValues]]) -> Iterable[Metric]:
    plain: Sequence[tuple[str, str, Sequence[float | None]]] = (
        (
            "job_last_completed_checkpoint_timestamp_seconds",
            "When the newest completed checkpoint completed.",
            [_epoch_s(None if (at := j.row.last_completed_at) is None else at - j.offset) for _, j in known],
        ),
        (
            "job_replay_since_timestamp_seconds",
            "A failure now would read the input since this time again. Known before any checkpoint has completed, too.",
            [_epoch_s(None if (debt := j.row.replay_debt) is None else debt.since - j.offset) for _, j in known],
        ),
        (
            "job_last_read_timestamp_seconds",
            "When the job was last read.",
            [_epoch_s(None if j.row.freshness is None else j.row.freshness.read_at) for _, j in known],
        ),
        (
            "job_checkpoint_interval_seconds",
            "The interval of the checkpoints, as configured.",
            [_seconds(j.row.interval_ms) for _, j in known],
        ),
        (
            "job_in_progress_age_seconds",
            "How long the running checkpoint had run when it was last read.",
            [None if j.is_stale else _seconds(j.in_progress_ms) for _, j in known],
        ),
        (
            "job_timeout_probability_ratio",
            "Predicted: the probability that the running checkpoint reaches its timeout.",
            [None if j.is_stale else j.timeout_ratio for _, j in known],
        ),
        (
            "job_predicted_finish_timestamp_seconds",
            "Predicted: when the running checkpoint finishes.",
            [None if j.is_stale else _epoch_s(j.finish_at) for _, j in known],
        ),
        ("job_open_advice", "Recommendations that are open.", [j.row.open_advice_count for _, j in known]),
        ("job_alerts_firing", "Alerts of the job that fire.", [j.row.alerts_firing_count for _, j in known]),
    )
    for name, words, values in plain:
        yield _gauge(name, words, JOB_LABELS, [(own, v) for (own, _), v in zip(known, values, strict=True)])
    yield _gauge(
        "checkpoint_duration_seconds",
        "The duration of checkpoints: of the last completed one, and the percentiles of the last 24 hours.",
        (*JOB_LABELS, "statistic"),
        [
            ((*own, statistic), _seconds(ms))
            for own, j in known
            for statistic, ms in (
                ("last", j.last_duration_ms),
                ("p50", j.row.duration_p50_ms),
                ("p99", j.row.duration_p99_ms),
            )
        ],
    )
    yield _counter(
        "checkpoints_completed",
        "Checkpoints that completed since this process began to count.",
        JOB_LABELS,
        [(own, j.completed_count) for own, j in known],
    )
    yield _counter(
        "checkpoints_failed",
        "Checkpoints that failed since this process began to count.",
        (*JOB_LABELS, "reason"),
        [((*own, group.value), count) for own, j in known for group, count in j.failed_counts.items()],
    )


def _target_labels(target: TargetRecord) -> tuple[str, ...]:
    return (target.name, *(target.labels.get(name, "") for name in _PLACES))


def _is_up(state: TargetState) -> float | None:
    if state in (TargetState.PENDING, TargetState.PAUSED):
        return None
    return float(state in (TargetState.OK, TargetState.PARTIAL))


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


def _days_s(days: float | None) -> float | None:
    return None if days is None else days * 86_400


def _epoch_s(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _gauge(name: str, words: str, labels: Sequence[str], values: Iterable[_Value]) -> Metric:
    return _filled(GaugeMetricFamily(PREFIX + name, words, labels=labels), values)


def _counter(name: str, words: str, labels: Sequence[str], values: Iterable[_Value]) -> Metric:
    return _filled(CounterMetricFamily(PREFIX + name, words, labels=labels), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Iterable[_Value]) -> Metric:
    for labels, value in values:
        if value is not None:
            family.add_metric(labels, value)
    return family
