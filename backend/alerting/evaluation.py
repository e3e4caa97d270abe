"""One evaluation of every rule for every signal, which updates the open episodes. Pure.

An open episode keeps its identity until it ends, also if the labels of its target change. If its subject no longer
exists (its target or its job was removed), its reading is *gone*. The caller must pass the signals of *all* subjects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from backend.alerting.conditions import read
from backend.alerting.labels import LABEL_NAME, Labels, fingerprint
from backend.alerting.lifecycle import Alert, Event, Identity, Reading, ReadingKind, Timing, step
from backend.alerting.rules import Rule, RuleSettings, Subject
from backend.alerting.signals import JobSignal, ServiceSignal, Signal, TargetSignal
from backend.domain.ids import JobId, TargetId

_GONE = Reading(ReadingKind.GONE, "it is no longer watched")


@dataclass(frozen=True, slots=True)
class EvaluatedEpisode:
    """An episode after this evaluation, and its changes of state."""

    alert: Alert
    events: tuple[Event, ...]


def evaluate(
    rules: Sequence[RuleSettings],
    signals: Sequence[Signal],
    opened: Iterable[Alert],
    target_labels: Mapping[TargetId, Labels],
    now: datetime,
) -> list[EvaluatedEpisode]:
    """Evaluate every rule for every signal; episodes that neither were nor are open are left out."""
    waiting = {_key(a.identity): a for a in opened}
    outcomes = []
    for settings in rules:
        timing = Timing(settings.for_s, settings.keep_firing_for_s)
        for signal in signals:
            if _subject(signal) is not settings.rule.subject:
                continue
            identity = identity_of(settings.rule, signal, target_labels)
            alert = waiting.pop(_key(identity), None)
            outcomes.append(_stepped(alert, identity, read(settings, signal), timing, now))
    outcomes += [_stepped(alert, alert.identity, _GONE, Timing(), now) for alert in waiting.values()]
    return [o for o in outcomes if o is not None]


def identity_of(rule: Rule, signal: Signal, target_labels: Mapping[TargetId, Labels]) -> Identity:
    """The identity of a new episode of the rule for this signal."""
    job_id: JobId | None = None
    target_id: TargetId | None = None
    labels = {"alertname": rule.name.value, "severity": rule.severity.value}
    match signal:
        case JobSignal():
            job_id, target_id = signal.job_id, signal.target_id
            labels |= {"job": signal.name, "job_id": signal.job_id, "target": signal.target_name}
        case TargetSignal():
            target_id = signal.target_id
            labels |= {"target": signal.name, "target_id": signal.target_id}
        case ServiceSignal():
            pass
    if target_id is not None:
        extra = target_labels.get(target_id, {})
        labels = {k: v for k, v in extra.items() if v and LABEL_NAME.fullmatch(k)} | labels
    return Identity(rule.name.value, rule.severity.value, fingerprint(labels), labels, job_id, target_id)


def _stepped(
    alert: Alert | None, identity: Identity, reading: Reading, timing: Timing, now: datetime
) -> EvaluatedEpisode | None:
    after, events = step(alert, alert.identity if alert is not None else identity, reading, timing, now)
    return None if after is None else EvaluatedEpisode(after, events)


def _key(identity: Identity) -> tuple[str, str | None]:
    return identity.rule, identity.job_id or identity.target_id


def _subject(signal: Signal) -> Subject:
    match signal:
        case JobSignal():
            return Subject.JOB
        case TargetSignal():
            return Subject.TARGET
        case ServiceSignal():
            return Subject.SERVICE
