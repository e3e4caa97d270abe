"""Evaluates every rule for every signal once, and updates the open episodes of alerts. Pure.

An episode is one occurrence of an alert, from pending to its end. It keeps its identity until it ends, even if the
labels of its target change. An open episode without a signal gets the reading *gone*, because its job or target was
removed. The caller must therefore pass the signals of *all* jobs and targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from backend.alerting.conditions import read
from backend.alerting.labels import LABEL_NAME, Labels, fingerprint, without_reserved
from backend.alerting.lifecycle import Alert, Event, Identity, Reading, ReadingKind, Timing, step
from backend.alerting.rules import Rule, RuleSettings, Subject
from backend.alerting.signals import JobSignal, ServiceSignal, Signal, TargetSignal
from backend.domain.ids import JobId, TargetId

_GONE = Reading(ReadingKind.GONE, "it is no longer watched")


@dataclass(frozen=True, slots=True)
class EvaluatedEpisode:
    """An episode after this evaluation, with the changes of its state."""

    alert: Alert
    events: tuple[Event, ...]


Readings = Mapping[tuple[str, str | None], Reading]
"""The readings of rules, by the name of the rule and the id of the job or target."""


def readings_of(rules: Sequence[RuleSettings], signals: Sequence[Signal]) -> Readings:
    """Return the reading of every rule for every signal.

    If the caller only needs to know which readings are active, the signals need no place.
    """
    return {
        (settings.rule.name.value, subject_id(signal)): read(settings, signal)
        for settings in rules
        for signal in signals
        if _subject(signal) is settings.rule.subject
    }


def evaluate(
    rules: Sequence[RuleSettings],
    signals: Sequence[Signal],
    opened: Iterable[Alert],
    target_labels: Mapping[TargetId, Labels],
    now: datetime,
    known: Readings | None = None,
) -> list[EvaluatedEpisode]:
    """Evaluate every rule for every signal, and return the episodes that were open before or are open now.

    A reading in ``known`` that is not active is used as it is. An active reading is computed again, because its texts
    name a place, which the earlier signals may have lacked.
    """
    known = known or {}
    waiting = {_key(a.identity): a for a in opened}
    outcomes = []
    for settings in rules:
        timing = Timing(settings.for_s, settings.keep_firing_for_s)
        for signal in signals:
            if _subject(signal) is not settings.rule.subject:
                continue
            key = settings.rule.name.value, subject_id(signal)
            alert, reading = waiting.pop(key, None), known.get(key)
            if reading is None or reading.kind is ReadingKind.ACTIVE:
                reading = read(settings, signal)
            if alert is None and reading.kind is not ReadingKind.ACTIVE:
                continue
            identity = alert.identity if alert is not None else identity_of(settings.rule, signal, target_labels)
            outcomes.append(_stepped(alert, identity, reading, timing, now))
    outcomes += [_stepped(alert, alert.identity, _GONE, Timing(), now) for alert in waiting.values()]
    return [o for o in outcomes if o is not None]


def identity_of(rule: Rule, signal: Signal, target_labels: Mapping[TargetId, Labels]) -> Identity:
    """Return the identity that a new episode of the rule has for this signal."""
    job_id: JobId | None = None
    target_id: TargetId | None = None
    labels = {"alertname": rule.name.value, "severity": rule.severity.value}
    match signal:
        case JobSignal():
            job_id, target_id = signal.job_id, signal.target_id
            labels |= {"job_name": signal.name, "target": signal.target_name}
            if signal.flink_job_id is not None:
                labels["flink_job_id"] = signal.flink_job_id
            else:
                # Two targets may have the same name, and each of them a job with the same name.
                labels["barrierscope_job_id"] = signal.job_id
        case TargetSignal():
            target_id = signal.target_id
            labels |= {"target": signal.name, "target_id": signal.target_id}
        case ServiceSignal():
            pass
    if target_id is not None:
        extra = target_labels.get(target_id, {})
        extra = without_reserved({k: v for k, v in extra.items() if v and LABEL_NAME.fullmatch(k)})
        labels = extra | labels
    return Identity(rule.name.value, rule.severity.value, fingerprint(labels), labels, job_id, target_id)


def _stepped(
    alert: Alert | None, identity: Identity, reading: Reading, timing: Timing, now: datetime
) -> EvaluatedEpisode | None:
    after, events = step(alert, identity, reading, timing, now)
    return None if after is None else EvaluatedEpisode(after, events)


def _key(identity: Identity) -> tuple[str, str | None]:
    return identity.rule, identity.job_id or identity.target_id


def subject_id(signal: Signal) -> str | None:
    """Return the id of the job or target, or None for the service."""
    match signal:
        case JobSignal():
            return signal.job_id
        case TargetSignal():
            return signal.target_id
        case ServiceSignal():
            return None


def _subject(signal: Signal) -> Subject:
    match signal:
        case JobSignal():
            return Subject.JOB
        case TargetSignal():
            return Subject.TARGET
        case ServiceSignal():
            return Subject.SERVICE
