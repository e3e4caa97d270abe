"""The states of an alert (inactive, pending, firing, resolved), and the pure function that changes them.

* *Active* readings for ``for_s`` seconds make a pending alert fire.
* A *clear* reading ends a pending alert at once. A firing alert is resolved by clear readings for
  ``keep_firing_for_s`` seconds.
* An *unknown* reading (stale data, a target that does not answer) changes no state.
* A *gone* reading (the job ended, the target or rule was switched off) ends an alert at once, with a reason.

Invariants: an episode fires at most once and resolves at most once. An ended episode stays ended; a new alert is a new
episode with a new id. Times within an episode never decrease.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from backend.alerting.labels import AlertId, IncidentId, Labels, episode_id
from backend.domain.ids import JobId, RunId, TargetId


class AlertState(StrEnum):
    """The state of an episode. ``inactive`` means that the episode was pending and ended without firing."""

    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"

    @property
    def is_open(self) -> bool:
        """Whether an episode in this state can still change its state."""
        return self in (AlertState.PENDING, AlertState.FIRING)


class ReadingKind(StrEnum):
    """What a rule found when it was evaluated for a job, a target or the service."""

    ACTIVE = "active"
    CLEAR = "clear"
    UNKNOWN = "unknown"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class LinkedCheckpoint:
    """A checkpoint that an alert links to."""

    run_id: RunId
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What a rule found, with the reason. The fields after ``reason`` belong to an active reading.

    ``annotations`` has the texts: summary, description, vertex, subtasks, hosts and phase, replay_debt if known, and
    cause if the verdict names one. An unknown reading has only ``OVER``, if it shows that what the last active reading
    said is over.
    """

    kind: ReadingKind
    reason: str
    value: float | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    checkpoints: tuple[LinkedCheckpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a condition must be active before the alert fires, and clear before the alert resolves."""

    for_s: float = 0.0
    keep_firing_for_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Identity:
    """The rule, the job or target, and the labels of an alert. The labels identify the alert."""

    rule: str
    severity: str
    fingerprint: str
    labels: Labels
    job_id: JobId | None = None
    target_id: TargetId | None = None

    @property
    def matched(self) -> Labels:
        """The labels that silences compare with.

        They include ``job`` and ``job_id``, which an earlier version used, so that silences of that time still match.
        """
        if "job_name" not in self.labels or self.job_id is None:
            return self.labels
        return {"job": self.labels["job_name"], "job_id": self.job_id, **self.labels}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One episode of an alert.

    ``began_at`` is when the condition became active. ``clear_since`` is when the latest unbroken series of clear
    readings began; it is set only while the alert fires. ``incident_id`` is None until the episode is assigned to an
    incident, which happens when it is stored for the first time.
    """

    id: AlertId
    identity: Identity
    state: AlertState
    began_at: datetime
    changed_at: datetime
    evaluated_at: datetime
    reading: Reading
    fired_at: datetime | None = None
    ended_at: datetime | None = None
    ended_reason: str | None = None
    clear_since: datetime | None = None
    checkpoints: tuple[LinkedCheckpoint, ...] = ()
    incident_id: IncidentId | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A change of an episode's state."""

    at: datetime
    before: AlertState
    after: AlertState
    reason: str


CHECKPOINTS_KEPT = 20
ACTION: Final = "action"
"""The annotation that says what to do first. It is added when an open alert is shown or sent, and not stored."""
OVER: Final = "over"
"""The annotation that says why the summary of an open alert is not true any more."""


def summary_of(alert: Alert) -> str:
    """Return the summary of an alert. If it is not true any more but the alert still fires, the text says so."""
    texts = alert.reading.annotations
    summary = texts.get("summary", alert.identity.rule)
    over = texts.get(OVER)
    return f"{summary} (no longer: {over})" if over is not None and alert.state.is_open else summary


def step(
    alert: Alert | None, identity: Identity, reading: Reading, timing: Timing, now: datetime
) -> tuple[Alert | None, tuple[Event, ...]]:
    """Return the episode after this reading (None if no episode is open), and the changes of its state.

    ``alert`` is the open episode of ``identity`` before the reading, or None. An episode that ends with this reading is
    returned one last time.
    """
    if alert is None:
        return _begin(identity, reading, timing, now)
    now = max(now, alert.evaluated_at)
    alert = _noted(alert, reading, now)
    if alert.state is AlertState.PENDING:
        return _pending(alert, reading, timing, now)
    return _firing(alert, reading, timing, now)


def _begin(
    identity: Identity, reading: Reading, timing: Timing, now: datetime
) -> tuple[Alert | None, tuple[Event, ...]]:
    if reading.kind is not ReadingKind.ACTIVE:
        return None, ()
    alert = Alert(
        id=episode_id(identity.rule, identity.fingerprint, now),
        identity=identity,
        state=AlertState.PENDING,
        began_at=now,
        changed_at=now,
        evaluated_at=now,
        reading=reading,
        checkpoints=reading.checkpoints[-CHECKPOINTS_KEPT:],
    )
    if timing.for_s > 0:
        return alert, (Event(now, AlertState.INACTIVE, AlertState.PENDING, reading.reason),)
    fired = replace(alert, state=AlertState.FIRING, fired_at=now)
    return fired, (Event(now, AlertState.INACTIVE, AlertState.FIRING, reading.reason),)


def _noted(alert: Alert, reading: Reading, now: datetime) -> Alert:
    """Return the alert with the reading added, in the same state.

    If the reading is not active, the texts of the last active reading are kept. If it shows that they are not true any
    more, ``OVER`` says why.
    """
    if reading.kind is not ReadingKind.ACTIVE:
        over = {OVER: reading.reason} if reading.kind is ReadingKind.CLEAR else reading.annotations
        texts = {**alert.reading.annotations, **over}
        kept = replace(alert.reading, kind=reading.kind, reason=reading.reason, annotations=texts)
        return replace(alert, reading=kept, evaluated_at=now)
    new = tuple(c for c in reading.checkpoints if c not in alert.checkpoints)
    return replace(alert, reading=reading, evaluated_at=now, checkpoints=(alert.checkpoints + new)[-CHECKPOINTS_KEPT:])


def _pending(alert: Alert, reading: Reading, timing: Timing, now: datetime) -> tuple[Alert, tuple[Event, ...]]:
    if reading.kind in (ReadingKind.CLEAR, ReadingKind.GONE):
        return _ended(alert, AlertState.INACTIVE, reading.reason, now)
    if reading.kind is ReadingKind.ACTIVE and now - alert.began_at >= timedelta(seconds=timing.for_s):
        fired = replace(alert, state=AlertState.FIRING, fired_at=now, changed_at=now)
        return fired, (Event(now, AlertState.PENDING, AlertState.FIRING, reading.reason),)
    return alert, ()


def _firing(alert: Alert, reading: Reading, timing: Timing, now: datetime) -> tuple[Alert, tuple[Event, ...]]:
    if reading.kind is ReadingKind.GONE:
        return _ended(alert, AlertState.RESOLVED, reading.reason, now)
    if reading.kind is not ReadingKind.CLEAR:
        # Only an unbroken series of clear readings resolves the alert, so the series starts again.
        return replace(alert, clear_since=None), ()
    since = alert.clear_since or now
    if now - since >= timedelta(seconds=timing.keep_firing_for_s):
        return _ended(alert, AlertState.RESOLVED, reading.reason, now)
    return replace(alert, clear_since=since), ()


def _ended(alert: Alert, state: AlertState, reason: str, now: datetime) -> tuple[Alert, tuple[Event, ...]]:
    ended = replace(alert, state=state, changed_at=now, ended_at=now, ended_reason=reason)
    return ended, (Event(now, alert.state, state, reason),)
