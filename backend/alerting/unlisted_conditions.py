"""Conditions that the listed checkpoints do not show: all are refused, something grows, or output is lost."""

from __future__ import annotations

from datetime import timedelta

from backend.alerting.lifecycle import LinkedCheckpoint, Reading, ReadingKind
from backend.alerting.readings import active, clear
from backend.alerting.rules import RuleSettings
from backend.alerting.signals import JobSignal
from backend.analysis.measures.growing import sentence
from backend.analysis.words import sentences as say
from backend.domain import losses


def refused(settings: RuleSettings, signal: JobSignal) -> Reading:
    """Evaluate whether checkpoints fail before they start, so that the engine lists none of them."""
    refusal = signal.refusal
    if refusal is None:
        return clear(signal, "checkpoints begin, or none was due")
    count, silent = refusal.refused_count + refusal.declined_count, say.duration(refusal.silent_ms)
    if refusal.is_counted and count < settings["refused_min_count"]:
        return clear(signal, f"{count} checkpoints in a row were refused")
    if refusal.silent_ms < 1000 * settings["silence_min_s"]:
        return clear(signal, f"no checkpoint has begun for {silent}")
    linked = () if signal.last_completed is None else (LinkedCheckpoint(*signal.last_completed),)
    if not refusal.is_counted:
        # Flink before 1.14 counts no refused checkpoint. A finished task and the long silence show it.
        summary = f"{signal.name}: no checkpoint has begun for {silent}, and a task has finished"
        return active(signal, summary, "", signal.place, linked, value=refusal.silent_ms / 1000)
    how = "failed without starting" if refusal.refused_count else "were declined by a task"
    about = "about " if refusal.is_about else ""
    summary = f"{signal.name}: {about}{count} checkpoints in a row {how}"
    return active(signal, summary, f"None has begun for {silent}. ", signal.place, linked, value=count)


def losing(settings: RuleSettings, signal: JobSignal) -> Reading:
    """Evaluate whether transactions were lost, because they could no longer be committed."""
    since = signal.now_engine - timedelta(seconds=settings["window_s"])
    found = [loss for loss in signal.losses if loss.at >= since]
    count = sum(loss.transaction_count for loss in found)
    if count < settings["lost_min_count"]:
        return clear(signal, f"{count} transactions are known to be lost" if found else "no output is known to be lost")
    held = losses.said(found)
    timeout_ms = found[0].timeout_ms
    certain = "is most likely lost" if timeout_ms is None else "is lost"
    summary = f"{signal.name}: output {certain}: {held} since {say.utc_minute(found[-1].at)}"
    why = (
        "The connector reported that these commits failed and are not tried again. Most likely the transactions were"
        " older than their timeout. "
        if timeout_ms is None
        else f"Transactions were older than their timeout of {say.duration(timeout_ms)} when they were committed. "
    )
    linked = () if signal.last_completed is None else (LinkedCheckpoint(*signal.last_completed),)
    # Nothing need hold the barrier.
    where = "" if signal.place.vertex is None else None
    return active(signal, summary, why, signal.place, linked, value=count, where=where)


def growing(settings: RuleSettings, signal: JobSignal) -> Reading:
    """Evaluate whether the state or the duration of checkpoints has multiplied within days."""
    if not signal.is_growth_read:
        return Reading(ReadingKind.UNKNOWN, "its history has not been read yet")
    growth = signal.growth
    if growth is None:
        return clear(signal, "nothing has doubled within the known days, or the input explains it")
    text = sentence(growth)
    if growth.ratio < settings["growth_min_ratio"]:
        return clear(signal, text)
    left_s = None if growth.timeout_in is None else growth.timeout_in.total_seconds()
    is_soon = left_s is not None and left_s <= settings["timeout_within_s"]
    if growth.is_filling and not is_soon:
        return clear(signal, text)
    if growth.input_ratio is None and not is_soon:
        # Its input may have grown as well.
        return clear(signal, text)
    summary = f"{signal.name}: {text}"
    linked = () if signal.last_completed is None else (LinkedCheckpoint(*signal.last_completed),)
    # Nothing need hold the barrier yet.
    where = "" if signal.place.vertex is None else None
    return active(signal, summary, "", signal.place, linked, value=growth.ratio, where=where)
