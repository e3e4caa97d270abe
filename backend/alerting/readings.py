"""Builds the readings of the rules on jobs, with their texts: where to look, and what a failure would replay."""

from __future__ import annotations

from backend.alerting.lifecycle import LinkedCheckpoint, Reading, ReadingKind
from backend.alerting.signals import JobSignal, Place
from backend.analysis.words import sentences as say
from backend.domain.replay_debt import debt_sentence, debt_words
from backend.domain.text import capitalised


def active(
    signal: JobSignal,
    summary: str,
    more: str,
    place: Place,
    checkpoints: tuple[LinkedCheckpoint, ...],
    *,
    value: float,
    where: str | None = None,
) -> Reading:
    """Return the reading of an alert that fires. ``more`` follows the summary; ``where`` replaces where to look."""
    parts = [f"{summary}. {more}{_where(place) if where is None else where}".strip()]
    annotations = {"summary": summary, "job": signal.name}
    if signal.debt is not None:
        age_ms, is_at_least = signal.debt.age_ms(signal.now_engine), signal.debt.is_at_least
        annotations["replay_debt"] = debt_words(age_ms, is_at_least=is_at_least)
        sentence = debt_sentence(age_ms, is_at_least=is_at_least)
        if sentence not in summary:
            parts.append(f"{capitalised(sentence)}.")
    annotations["description"] = " ".join(parts)
    annotations["vertex"] = place.vertex or "not known"
    annotations["subtasks"] = _subtasks(place)
    annotations["hosts"] = ", ".join(place.hosts) or "not known"
    annotations["phase"] = place.phase.value if place.phase is not None else "not known"
    if place.cause is not None:
        annotations["cause"] = place.cause.value
    return Reading(ReadingKind.ACTIVE, summary, float(value), annotations, checkpoints)


def clear(signal: JobSignal, why: str) -> Reading:
    """Return the reading if nothing is wrong, for the reason ``why``."""
    return Reading(ReadingKind.CLEAR, why)


def _where(place: Place) -> str:
    if place.vertex is None:
        # Some causes have no vertex: the coordinator, or restarts that are no checkpoint's fault.
        is_outside = place.cause is not None and place.sentence is not None
        return place.sentence or "" if is_outside else "It is not known yet which vertex holds the barrier."
    # The annotation ``vertex`` has the whole name.
    name = say.vertex(place.vertex)
    who = f"{name} {say.subtasks(place.subtasks)}" if place.subtasks else name
    if place.last_subtask is not None:
        who = f"{name} subtask {place.last_subtask} first, the last of its {len(place.subtasks)}"
    on = f" on {say.listed(place.hosts)}" if place.hosts else ""
    phase = "" if place.phase is None else f"the {say.PHASE_WORDS[place.phase]} "
    sentence = f" {place.sentence}" if place.sentence else ""
    return f"Look at {phase}{who}{on}.{sentence}"


def _subtasks(place: Place) -> str:
    """Name the subtasks. If checkpoints wait for one of them again and again, it is first: ``3 (last of 0, 1, 3)``."""
    named = ", ".join(map(str, place.subtasks)) or "not known"
    return named if place.last_subtask is None else f"{place.last_subtask} (last of {named})"
