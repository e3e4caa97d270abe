"""The alert rules: their thresholds with units and bounds, and the times before an alert fires or resolves.

The set of rules is fixed. Users can change the thresholds and times of a rule and can switch it off. This module
checks every change, whether it comes from the API, the pages or the command line. ``docs/runbooks/`` gives the reasons
for the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from backend.analysis.words.thresholds import (
    FINISH_LATE_AGE_RATIO,
    FINISH_LATELY_COUNT,
    FINISH_WARN_AGAIN_RATIO,
    FINISH_WARN_LATE_RATIO,
    FINISH_WARN_RATIO,
)
from backend.domain import spelling
from backend.domain.errors import FieldProblem, InvalidInputError


class RuleName(StrEnum):
    """The names of the rules. A name is also the label ``alertname`` and the file name of the runbook."""

    CHECKPOINT_EXPIRED = "CheckpointExpired"
    CONSECUTIVE_FAILURES = "ConsecutiveFailures"
    CHECKPOINTS_REFUSED = "CheckpointsRefused"
    NO_COMPLETED_CHECKPOINT = "NoCompletedCheckpoint"
    REPLAY_DEBT = "ReplayDebt"
    CHECKPOINT_WILL_TIME_OUT = "CheckpointWillTimeOut"
    CHECKPOINT_STUCK = "CheckpointStuck"
    STATE_GROWING = "StateGrowing"
    JOB_RESTARTS = "JobRestarts"
    ROWS_LOST = "RowsLost"
    JOB_UNREADABLE = "JobUnreadable"
    TARGET_UNREACHABLE = "TargetUnreachable"
    COLLECTOR_STALE = "CollectorStale"
    HISTORY_TOO_SHORT = "HistoryTooShort"
    TARGETS_FILE_INVALID = "TargetsFileInvalid"
    WATCHDOG = "Watchdog"


class Severity(StrEnum):
    """The severity of an alert. The watchdog has ``none``, because its absence is the alarm."""

    CRITICAL = "critical"
    WARNING = "warning"
    NONE = "none"


class Subject(StrEnum):
    """What a rule is evaluated for: each job, each target, or the service."""

    JOB = "job"
    TARGET = "target"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Threshold:
    """One editable number of a rule, with its bounds. ``name`` ends in the unit."""

    name: str
    default: float
    least: float
    most: float
    meaning: str
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """An alert rule with its default values."""

    name: RuleName
    subject: Subject
    severity: Severity
    meaning: str
    for_s: float = 0.0
    keep_firing_for_s: float = 0.0
    thresholds: tuple[Threshold, ...] = ()

    @property
    def runbook(self) -> str:
        """The path of the rule's runbook in the repository."""
        return f"docs/runbooks/{self.name}.md"


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """A rule with its current values. ``version`` is the number of changes made; 0 means that the defaults apply."""

    rule: Rule
    is_enabled: bool
    for_s: float
    keep_firing_for_s: float
    thresholds: Mapping[str, float]
    version: int = 0

    def __getitem__(self, name: str) -> float:
        return self.thresholds[name]


@dataclass(frozen=True, slots=True)
class RuleChange:
    """A requested change of a rule. Fields that are None and thresholds that are absent stay unchanged."""

    is_enabled: bool | None = None
    for_s: float | None = None
    keep_firing_for_s: float | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)


TIME_MAX_S: Final = 86_400.0

# The two rules on the running checkpoint share these values. In a job with a problem, each new checkpoint begins well,
# so its first seconds do not show that the problem is over. Only completed checkpoints show that.
_COMPLETED_MIN_COUNT: Final = Threshold(
    "completed_min_count", 2, 1, 10, "completed checkpoints in a row needed to resolve", is_whole=True
)
_KEEP_FIRING_FOR_S: Final = 30.0
# The history has one value for each hour, so the ratio may fall below the limit for an hour or two.
_GROWING_KEEP_FIRING_FOR_S: Final = 6 * 3600.0

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        RuleName.CHECKPOINT_EXPIRED,
        Subject.JOB,
        Severity.WARNING,
        "A checkpoint did not complete within its timeout.",
        thresholds=(
            Threshold("expired_min_count", 1, 1, 20, "expired checkpoints needed to fire", is_whole=True),
            Threshold(
                "window_count", 3, 1, 20, "number of newest ended checkpoints that are considered", is_whole=True
            ),
        ),
    ),
    Rule(
        RuleName.CONSECUTIVE_FAILURES,
        Subject.JOB,
        Severity.CRITICAL,
        "The newest checkpoints all failed.",
        thresholds=(Threshold("failures_min_count", 3, 2, 15, "consecutive failures needed to fire", is_whole=True),),
    ),
    Rule(
        RuleName.CHECKPOINTS_REFUSED,
        Subject.JOB,
        Severity.CRITICAL,
        "Every checkpoint is refused before it starts, or declined by the tasks at once: none begins.",
        thresholds=(
            Threshold("refused_min_count", 3, 2, 1000, "refused checkpoints in a row needed to fire", is_whole=True),
            Threshold("silence_min_s", 30.0, 10.0, 86_400.0, "seconds in which no checkpoint has begun"),
        ),
    ),
    Rule(
        RuleName.NO_COMPLETED_CHECKPOINT,
        Subject.JOB,
        Severity.CRITICAL,
        "No checkpoint completed within the health window: "
        "max(interval, timeout) x (min(tolerable failures, 3) + 2), as observed.",
        for_s=10.0,
        thresholds=(
            Threshold(
                "window_ratio",
                1.0,
                0.5,
                10.0,
                "the health window is multiplied by this: above 1, the alert waits longer",
            ),
        ),
    ),
    Rule(
        RuleName.REPLAY_DEBT,
        Subject.JOB,
        Severity.CRITICAL,
        "A failure now would read again more input than a healthy job ever would: more than the health window and "
        "more than the least debt.",
        for_s=10.0,
        thresholds=(
            Threshold("debt_min_s", 900.0, 10.0, 86_400.0, "seconds of input that a failure may read again"),
            Threshold(
                "window_ratio",
                1.0,
                0.5,
                10.0,
                "the health window is multiplied by this: the debt must exceed it as well",
            ),
        ),
    ),
    Rule(
        RuleName.CHECKPOINT_WILL_TIME_OUT,
        Subject.JOB,
        Severity.WARNING,
        "The running checkpoint is predicted to exceed its timeout, from past checkpoints of the job.",
        thresholds=(
            Threshold(
                "confidence_min_ratio",
                FINISH_WARN_RATIO,
                0.5,
                0.95,
                "required probability of the timeout; if one of the newest "
                f"{FINISH_LATELY_COUNT} ended checkpoints expired, {FINISH_WARN_AGAIN_RATIO:g} is enough in any case, "
                f"and {FINISH_WARN_LATE_RATIO:g} after {spelling.percent(FINISH_LATE_AGE_RATIO)} of the timeout",
            ),
            Threshold("past_min_count", 5, 5, 15, "past checkpoints needed for a prediction", is_whole=True),
            _COMPLETED_MIN_COUNT,
        ),
    ),
    Rule(
        RuleName.CHECKPOINT_STUCK,
        Subject.JOB,
        Severity.CRITICAL,
        "The running checkpoint has had no acknowledgement for much longer than any pause of past ones.",
        thresholds=(
            Threshold("silence_min_s", 10.0, 1.0, 3600.0, "seconds without an acknowledgement before the rule fires"),
            _COMPLETED_MIN_COUNT,
        ),
        keep_firing_for_s=_KEEP_FIRING_FOR_S,
    ),
    Rule(
        RuleName.STATE_GROWING,
        Subject.JOB,
        Severity.WARNING,
        "The state, or the duration of checkpoints, has multiplied within days although the input has not.",
        keep_firing_for_s=_GROWING_KEEP_FIRING_FOR_S,
        thresholds=(
            Threshold("growth_min_ratio", 2.0, 2.0, 100.0, "how many times as large the value must have become"),
            Threshold(
                "timeout_within_s",
                3 * 86_400.0,
                0.0,
                60 * 86_400.0,
                "seconds until the duration passes the timeout, from which on a state that still fills up counts too",
            ),
        ),
    ),
    Rule(
        RuleName.JOB_RESTARTS,
        Subject.JOB,
        Severity.CRITICAL,
        "The job restarts again and again, whether or not its checkpoints are well.",
        thresholds=(Threshold("restarts_min_count", 3, 3, 10, "restarts in a row needed to fire", is_whole=True),),
    ),
    Rule(
        RuleName.ROWS_LOST,
        Subject.JOB,
        Severity.CRITICAL,
        "Output is lost although checkpoints complete: transactions were too old to be committed.",
        thresholds=(
            Threshold("lost_min_count", 1, 1, 1000, "lost transactions needed to fire", is_whole=True),
            Threshold("window_s", 3600.0, 60.0, 86_400.0, "seconds for which a loss counts"),
        ),
    ),
    Rule(
        RuleName.JOB_UNREADABLE,
        Subject.JOB,
        Severity.CRITICAL,
        "What a target reports about one of its jobs cannot be read: the job is not watched.",
        for_s=30.0,
    ),
    Rule(
        RuleName.TARGET_UNREACHABLE,
        Subject.TARGET,
        Severity.CRITICAL,
        "A target is silent, does not answer, or its answers do not fit its kind: its jobs are not watched.",
        for_s=30.0,
    ),
    Rule(
        RuleName.COLLECTOR_STALE,
        Subject.TARGET,
        Severity.CRITICAL,
        "No collector has tried to read a target for some time: its jobs are not watched.",
        thresholds=(Threshold("stale_after_s", 60.0, 5.0, 86_400.0, "seconds since the last attempt"),),
    ),
    Rule(
        RuleName.HISTORY_TOO_SHORT,
        Subject.SERVICE,
        Severity.WARNING,
        "The size limit of the history will delete days before they reach their age limit.",
        for_s=600.0,
        thresholds=(
            Threshold(
                "held_min_ratio",
                1.0,
                0.1,
                1.0,
                "the alert fires if the size limit keeps a smaller share of the days that the age limit promises",
            ),
        ),
    ),
    Rule(
        RuleName.TARGETS_FILE_INVALID,
        Subject.SERVICE,
        Severity.WARNING,
        "The file or a discovery that declares targets is wrong, missing or silent: its last good targets stay.",
        for_s=30.0,
    ),
    Rule(
        RuleName.WATCHDOG,
        Subject.SERVICE,
        Severity.NONE,
        "Always firing: if it stops, alerts are no longer evaluated or delivered.",
    ),
)

_BY_NAME: Final[Mapping[str, Rule]] = {rule.name.value: rule for rule in RULES}


def rule_of(name: str) -> Rule | None:
    """Return the rule with that name, or None if there is none."""
    return _BY_NAME.get(name)


def shipped(rule: Rule) -> RuleSettings:
    """Return the rule with its default values."""
    return RuleSettings(
        rule, True, rule.for_s, rule.keep_firing_for_s, {t.name: float(t.default) for t in rule.thresholds}
    )


def changed(settings: RuleSettings, change: RuleChange) -> RuleSettings:
    """Return the settings after the change, with the next version.

    Raises:
        InvalidInputError: a value is out of bounds, or the rule has no such threshold; every problem is listed.
    """
    problems = [
        *_time_problems("for_s", change.for_s),
        *_time_problems("keep_firing_for_s", change.keep_firing_for_s),
        *_threshold_problems(settings.rule, change.thresholds),
    ]
    if change.is_enabled is False and settings.rule.name is RuleName.WATCHDOG:
        problems.append(FieldProblem("is_enabled", "the watchdog cannot be switched off", "true"))
    if problems:
        raise InvalidInputError(problems, what="rule")
    return RuleSettings(
        settings.rule,
        settings.is_enabled if change.is_enabled is None else change.is_enabled,
        settings.for_s if change.for_s is None else change.for_s,
        settings.keep_firing_for_s if change.keep_firing_for_s is None else change.keep_firing_for_s,
        dict(settings.thresholds) | {name: float(value) for name, value in change.thresholds.items()},
        settings.version + 1,
    )


def _time_problems(name: str, value: float | None) -> list[FieldProblem]:
    if value is None or 0 <= value <= TIME_MAX_S:
        return []
    return [FieldProblem(name, f"{value:g} is out of bounds", f"0 to {TIME_MAX_S:g} seconds")]


def _threshold_problems(rule: Rule, values: Mapping[str, float]) -> list[FieldProblem]:
    known = {t.name: t for t in rule.thresholds}
    problems = []
    for name, value in values.items():
        where, threshold = f"thresholds.{name}", known.get(name)
        if threshold is None:
            allowed = ", ".join(known) or f"none: {rule.name} has no thresholds"
            problems.append(FieldProblem(where, f"{rule.name} has no such threshold", allowed))
        elif not threshold.least <= value <= threshold.most:
            allowed = f"{threshold.least:g} to {threshold.most:g}"
            problems.append(FieldProblem(where, f"{value:g} is out of bounds", allowed))
        elif threshold.is_whole and value != int(value):
            problems.append(FieldProblem(where, f"{value:g} is not a whole number", "a whole number"))
    return problems
