"""The rules: what each watches, its thresholds with unit and bounds, and how long before it fires and resolves.

The rules are fixed; their thresholds, times and whether they are on are not. A change is checked here, once, for the
API, the page and the command line alike. Why each default: ``docs/runbooks/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from backend.domain.errors import FieldProblem, InvalidInputError


class RuleName(StrEnum):
    """The rules; a name is an alert's ``alertname`` and its runbook's file name."""

    CHECKPOINT_EXPIRED = "CheckpointExpired"
    CONSECUTIVE_FAILURES = "ConsecutiveFailures"
    NO_COMPLETED_CHECKPOINT = "NoCompletedCheckpoint"
    CHECKPOINT_WILL_TIME_OUT = "CheckpointWillTimeOut"
    CHECKPOINT_STUCK = "CheckpointStuck"
    TARGET_UNREACHABLE = "TargetUnreachable"
    COLLECTOR_STALE = "CollectorStale"
    WATCHDOG = "Watchdog"


class Severity(StrEnum):
    """How urgent; ``none`` is the watchdog's, whose absence is what alarms."""

    CRITICAL = "critical"
    WARNING = "warning"
    NONE = "none"


class Subject(StrEnum):
    """What a rule is evaluated for."""

    JOB = "job"
    TARGET = "target"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Threshold:
    """One number that may be edited. ``name`` ends in its unit."""

    name: str
    default: float
    least: float
    most: float
    meaning: str
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as the code ships it."""

    name: RuleName
    subject: Subject
    severity: Severity
    meaning: str
    for_s: float = 0.0
    keep_firing_for_s: float = 0.0
    thresholds: tuple[Threshold, ...] = ()

    @property
    def runbook(self) -> str:
        """Path of its runbook in the repository."""
        return f"docs/runbooks/{self.name}.md"


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """A rule with the values in force. ``version`` counts its changes; 0: as shipped."""

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
    """What to change; None and absent thresholds stay."""

    is_enabled: bool | None = None
    for_s: float | None = None
    keep_firing_for_s: float | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)


TIME_MAX_S: Final = 86_400.0

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        RuleName.CHECKPOINT_EXPIRED,
        Subject.JOB,
        Severity.WARNING,
        "A checkpoint was not complete within its timeout.",
        thresholds=(
            Threshold("expired_min_count", 1, 1, 20, "fires from so many expired ones on", is_whole=True),
            Threshold("window_count", 3, 1, 20, "among the newest so many that ended", is_whole=True),
        ),
    ),
    Rule(
        RuleName.CONSECUTIVE_FAILURES,
        Subject.JOB,
        Severity.CRITICAL,
        "The newest checkpoints failed, one after the other.",
        thresholds=(Threshold("failures_min_count", 3, 2, 15, "fires from so many in a row on", is_whole=True),),
    ),
    Rule(
        RuleName.NO_COMPLETED_CHECKPOINT,
        Subject.JOB,
        Severity.CRITICAL,
        "No checkpoint completed within the health window: "
        "max(interval, timeout) x (min(tolerable failures, 3) + 2), both as observed.",
        for_s=10.0,
        thresholds=(Threshold("window_ratio", 1.0, 0.5, 10.0, "the health window is multiplied by this"),),
    ),
    Rule(
        RuleName.CHECKPOINT_WILL_TIME_OUT,
        Subject.JOB,
        Severity.WARNING,
        "The running checkpoint is predicted, from this job's own past, to need longer than its timeout.",
        thresholds=(
            Threshold("confidence_min_ratio", 0.8, 0.5, 0.9, "how sure the prediction must be"),
            Threshold("past_min_count", 5, 5, 15, "silent with fewer past checkpoints than this", is_whole=True),
        ),
    ),
    Rule(
        RuleName.CHECKPOINT_STUCK,
        Subject.JOB,
        Severity.CRITICAL,
        "The running checkpoint gets no acknowledgement for much longer than past ones ever paused.",
        thresholds=(Threshold("silence_min_s", 10.0, 1.0, 3600.0, "never before so many seconds without one"),),
    ),
    Rule(
        RuleName.TARGET_UNREACHABLE,
        Subject.TARGET,
        Severity.CRITICAL,
        "A target does not answer, not as its kind answers, or has gone silent: its jobs are not watched.",
        for_s=30.0,
    ),
    Rule(
        RuleName.COLLECTOR_STALE,
        Subject.TARGET,
        Severity.CRITICAL,
        "No collector has tried to read a target for a while: its jobs are not watched.",
        thresholds=(Threshold("stale_after_s", 60.0, 5.0, 86_400.0, "seconds since the last attempt"),),
    ),
    Rule(
        RuleName.WATCHDOG,
        Subject.SERVICE,
        Severity.NONE,
        "Always firing: where it stops, alerts are no longer evaluated or no longer delivered.",
    ),
)

_BY_NAME: Final[Mapping[str, Rule]] = {rule.name.value: rule for rule in RULES}


def rule_of(name: str) -> Rule | None:
    """The rule of that name, if there is one."""
    return _BY_NAME.get(name)


def shipped(rule: Rule) -> RuleSettings:
    """A rule with the values it ships with."""
    return RuleSettings(
        rule, True, rule.for_s, rule.keep_firing_for_s, {t.name: float(t.default) for t in rule.thresholds}
    )


def changed(settings: RuleSettings, change: RuleChange) -> RuleSettings:
    """The settings after the change, one version on.

    Raises:
        InvalidInputError: a value is out of bounds or a threshold is none of this rule; every problem is listed.

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
            problems.append(FieldProblem(where, f"{value:g} is no whole number", "a whole number"))
    return problems
