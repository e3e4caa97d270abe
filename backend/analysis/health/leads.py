"""Says how the checkpoints of a job fare: the first part of the sentence of its verdict."""

from __future__ import annotations

from itertools import pairwise

from backend.analysis.health.health import HealthReport
from backend.analysis.health.refusals import Refusal, ended_at
from backend.analysis.numbers.statistics import median
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import SLOW_IN_A_ROW_COUNT
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.text import capitalised
from backend.domain.verdict import Health


def of_job(report: HealthReport, *, has_all: bool, none_completed: bool) -> str:
    """Return the first part of the verdict's sentence, which states how the checkpoints fare.

    ``has_all`` is whether the checkpoints that are known are all so far. ``none_completed`` is whether it is known that
    none has completed.
    """
    middle, late = report.duration_median_ms, report.overdue
    if report.health is Health.OFF:
        return "Checkpointing is off"
    if report.refusal is not None:
        return _refused(report.refusal, none_completed=none_completed)
    if report.health is Health.FAILING:
        return _failing(report)
    opened = ""
    if late is not None:
        opened = f"checkpoint {late.checkpoint.header.checkpoint_id} has been open for {say.duration(late.open_ms)}"
    aside = f" ({opened})" if opened else ""
    if middle is None:
        if report.failed and none_completed:
            return f"{say.checkpoints(len(report.failed))} failed and none has completed{aside}"
        if report.failed:
            return f"{say.all_of_the_last(len(report.failed))} failed{aside}"
        return f"{'No checkpoint has completed yet' if none_completed else 'No completed checkpoint is known'}{aside}"
    took = say.duration(middle)
    if report.health is Health.TOO_FEW:
        if report.failed:
            count = report.judged_count
            part = f"{len(report.failed)} of the {count} checkpoints so far"
            return f"{part if has_all else say.of_the_last(len(report.failed), count)} failed{aside}"
        return f"{_few(report.judged_count, has_all=has_all)} took {took}{aside}"
    if report.health is Health.HEALTHY:
        return f"Checkpoints are healthy at {took}"
    if report.health is Health.RESTARTING:
        return _restarting(report)
    if report.health is Health.INTERMITTENT:
        return _intermittent(report)
    newest = report.newest_slow
    if len(newest) >= SLOW_IN_A_ROW_COUNT and report.is_recent:
        now = say.duration(median(c.header.end_to_end_duration_ms for c in newest) or 0.0)
        before = median(c.header.end_to_end_duration_ms for c in report.completed if c not in newest)
        return f"The newest {len(newest)} checkpoints took {now}" + (
            "" if before is None else f" (before: {say.duration(before)})"
        )
    if report.is_recent and late is None:
        one = newest[-1].header
        return f"Checkpoint {one.checkpoint_id} took {say.duration(one.end_to_end_duration_ms or 0)} (usually {took})"
    if report.is_recent:
        return f"{capitalised(opened)} (usually {took})"
    return f"Checkpoints take {took}"


def _few(count: int, *, has_all: bool) -> str:
    if has_all:
        return "The only checkpoint so far" if count == 1 else f"The {count} checkpoints so far"
    return "The newest checkpoint" if count == 1 else f"The newest {count} checkpoints"


def _refused(refusal: Refusal, *, none_completed: bool) -> str:
    last = "none has completed" if none_completed else "no completed one is known"
    if refusal.completed is not None:
        age_ms = refusal.silent_ms + (refusal.since - ended_at(refusal.completed)).total_seconds() * 1000
        last = f"the last one completed {say.duration(age_ms)} ago"
    silent = f"No checkpoint has begun for {say.duration(refusal.silent_ms)}"
    if refusal.declined_count:
        times = f"{refusal.declined_count} time{'' if refusal.declined_count == 1 else 's'}"
        return f"No checkpoint has passed the tasks for {say.duration(refusal.silent_ms)} (declined {times}; {last})"
    if refusal.refused_count:
        about = "about " if refusal.is_about else ""
        return f"{silent} (refused {about}{refusal.refused_count} times; {last})"
    return f"{silent} ({last})"


def _failing(report: HealthReport) -> str:
    reasons = {c.header.failure_reason for c in report.failed}
    is_expired = reasons == {FailureReason.EXPIRED}
    verb = "expired" if is_expired else "failed"
    after = median(c.header.end_to_end_duration_ms for c in report.failed)
    at = f" after {say.duration(after)}" if is_expired and after is not None else ""
    if len(report.failed) == report.judged_count:
        return f"{say.all_of_the_last(report.judged_count)} {verb}{at}"
    return f"{say.of_the_last(len(report.failed), report.judged_count)} {verb}{at}"


def _restarting(report: HealthReport) -> str:
    """Return the first part of the sentence on a job that restarts again and again."""
    usual = median((b - a).total_seconds() * 1000 for a, b in pairwise(report.restarts)) or 0.0
    return f"The job restarts every {say.duration(usual)}"


def _intermittent(report: HealthReport) -> str:
    """Return the first part of the sentence on a job that only some checkpoints suffer in."""
    failed = [c for c in report.struck if c.header.status is CheckpointStatus.FAILED]
    took = median(c.header.end_to_end_duration_ms for c in report.struck)
    which = f"{len(report.struck)} of the last {report.window_count} checkpoints"
    usual = "" if report.quick_median_ms is None else f" (the others: {say.duration(report.quick_median_ms)})"
    if len(failed) == len(report.struck):
        return f"{which} failed{usual}"
    return f"{which} took {say.duration(took or 0.0)}{usual}"
