"""Conditions of targets, and of Barrierscope itself: its history, its files of targets, and the watchdog."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from backend.alerting.lifecycle import Reading, ReadingKind
from backend.alerting.rules import RuleSettings
from backend.alerting.signals import ServiceSignal, TargetSignal
from backend.analysis.words import sentences as say
from backend.domain.target import TargetState
from backend.domain.text import capitalised

_JOBS_NAMED_MAX = 5
_HAS_NOT: Mapping[TargetState, str] = {
    TargetState.UNREACHABLE: "has not answered",
    TargetState.MALFORMED: "has returned answers that do not fit its kind",
    TargetState.SILENT: "has been silent",
}


def unreachable(settings: RuleSettings, signal: TargetSignal) -> Reading:
    """Evaluate whether the target does not answer, or its answers cannot be read."""
    has = _HAS_NOT.get(signal.state)
    if has is None:
        if signal.state in (TargetState.OK, TargetState.PARTIAL):
            # A job that cannot be read has a rule of its own.
            return Reading(ReadingKind.CLEAR, "it answers")
        return Reading(ReadingKind.UNKNOWN, "it has not been read yet")
    since_ms = (signal.now - signal.since) / timedelta(milliseconds=1) if signal.since is not None else None
    ago = f" for {say.duration(max(0.0, since_ms))}" if since_ms is not None else ""
    why = f"{capitalised(signal.reason)}. " if signal.reason else ""
    return _active_target(signal, f"{signal.name} {has}{ago}", why, since_ms)


def stale(settings: RuleSettings, signal: TargetSignal) -> Reading:
    """Evaluate whether no collector has read the target for a while."""
    if signal.is_pushed:
        return Reading(ReadingKind.CLEAR, "no collector reads it: its jobs push their data")
    since = signal.last_attempt_at or signal.added_at
    age_ms = (signal.now - since) / timedelta(milliseconds=1)
    # The limit grows with the poll interval: a target that is read once an hour is not stale after a minute.
    limit_ms = max(settings["stale_after_s"], 3 * (signal.poll_interval_s or 0.0)) * 1000
    if age_ms <= limit_ms:
        return Reading(ReadingKind.CLEAR, f"a collector read it {say.duration(max(0.0, age_ms))} ago")
    verb = "was last read" if signal.last_attempt_at is not None else "has never been read; it was added"
    summary = f"{signal.name}: no collector reads it"
    return _active_target(signal, summary, f"It {verb} {say.duration(age_ms)} ago. ", age_ms)


def history_too_short(settings: RuleSettings, signal: ServiceSignal) -> Reading:
    """Evaluate whether the size limit will delete history that is younger than promised."""
    history = signal.history
    if history is None:
        return Reading(ReadingKind.UNKNOWN, "the size of a whole day is not known yet")
    ratio = history.held_days / history.promised_days
    if ratio >= settings["held_min_ratio"]:
        return Reading(ReadingKind.CLEAR, f"the size limit holds {say.percent(ratio)} of the promised days")
    summary = f"The history will hold {history.held_days:.1f} days instead of {history.promised_days:g}"
    limit_mib, needed_mib = history.size_limit_bytes // 2**20, -(-history.needed_bytes // 2**20)
    more = f"Its size limit is {limit_mib} MiB. At the present rate, its age limits need {needed_mib} MiB."
    annotations = {"summary": summary, "description": f"{summary}. {more}"}
    return Reading(ReadingKind.ACTIVE, summary, ratio, annotations)


def targets_file_invalid(settings: RuleSettings, signal: ServiceSignal) -> Reading:
    """Evaluate whether a file of targets, or a discovery, is wrong."""
    wrong = [s for s in signal.sources if s.problem is not None]
    if not wrong:
        return Reading(ReadingKind.CLEAR, "the targets of each file and discovery were taken")
    names = ", ".join(s.source for s in wrong)
    summary = f"The newest targets of {names} were not taken, or only a part of them"
    annotations = {"summary": summary, "description": ". ".join([summary, *(str(s.problem) for s in wrong)])}
    return Reading(ReadingKind.ACTIVE, summary, float(len(wrong)), annotations)


def watchdog(settings: RuleSettings, signal: ServiceSignal) -> Reading:
    """Return an active reading, always."""
    annotations = {"summary": "Alerts are evaluated and delivered", "description": "If this alert stops, they are not."}
    return Reading(ReadingKind.ACTIVE, "it always fires", annotations=annotations)


def _active_target(signal: TargetSignal, summary: str, more: str, age_ms: float | None) -> Reading:
    named = list(signal.job_names[:_JOBS_NAMED_MAX])
    if len(signal.job_names) > _JOBS_NAMED_MAX:
        named.append(f"{len(signal.job_names) - _JOBS_NAMED_MAX} more")
    jobs = f"These jobs are not watched: {say.listed(named)}." if named else "No jobs of it are known."
    seen = "never" if signal.last_success_at is None else signal.last_success_at.strftime("%Y-%m-%d %H:%M:%S UTC")
    annotations = {
        "summary": summary,
        "description": f"{summary}. {more}{jobs} Last answer: {seen}.",
        "target": signal.name,
        "jobs": ", ".join(signal.job_names) or "not known",
    }
    return Reading(ReadingKind.ACTIVE, summary, None if age_ms is None else age_ms / 1000, annotations)
