"""The life of an alert: inactive, pending, firing, resolved. A pure step from one to the next.

* *Active* for ``for_s`` makes a pending alert fire. *Clear* drops a pending one at once, and resolves a firing one
  after ``keep_firing_for_s`` of nothing but clear.
* *Unknown* (stale data, a target that does not answer) changes no state: it neither fires nor resolves.
* *Gone* (the job ended, the target or rule was switched off) ends an alert at once, and says why.

Invariants: an episode fires once and resolves once; what is resolved or inactive stays so, and a new begin is a new
episode with a new id; times within an episode never go back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from backend.alerting.labels import AlertId, Labels, episode_id
from backend.domain.ids import JobId, RunId, TargetId


class AlertState(StrEnum):
    """Where an episode stands. ``inactive``: it was pending and never fired."""

    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"

    @property
    def is_open(self) -> bool:
        """Whether it can still change."""
        return self in (AlertState.PENDING, AlertState.FIRING)


class ReadingKind(StrEnum):
    """What a rule says of its subject now."""

    ACTIVE = "active"
    CLEAR = "clear"
    UNKNOWN = "unknown"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class LinkedCheckpoint:
    """A checkpoint that an alert is about."""

    run_id: RunId
    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Reading:
    """The reading of a rule, with its reason in words; the rest is of an active one.

    ``annotations`` say it at length: summary, description, vertex, subtasks, hosts, phase.
    """

    kind: ReadingKind
    reason: str
    value: float | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    checkpoints: tuple[LinkedCheckpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a condition must hold before it fires, and be clear before it resolves."""

    for_s: float = 0.0
    keep_firing_for_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Identity:
    """What an alert is about; ``labels`` identify it."""

    rule: str
    severity: str
    fingerprint: str
    labels: Labels
    job_id: JobId | None = None
    target_id: TargetId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One episode. ``began_at`` is when it became active; ``clear_since`` since when it reads clear, while firing."""

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


@dataclass(frozen=True, slots=True)
class Event:
    """A change of state."""

    at: datetime
    before: AlertState
    after: AlertState
    reason: str


CHECKPOINTS_KEPT = 20


def step(
    alert: Alert | None, identity: Identity, reading: Reading, timing: Timing, now: datetime
) -> tuple[Alert | None, tuple[Event, ...]]:
    """The open episode of ``identity`` after this reading (None: there is none), and what happened.

    ``alert`` is the open episode before, None where there is none. An episode that ended is returned once.
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
    """What the reading adds, whatever becomes of the state; the words of the last active reading stay."""
    if reading.kind is not ReadingKind.ACTIVE:
        kept = replace(alert.reading, kind=reading.kind, reason=reading.reason)
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
        # Clear must be seen throughout: what was unknown in between may have been anything.
        return replace(alert, clear_since=None), ()
    since = alert.clear_since or now
    if now - since >= timedelta(seconds=timing.keep_firing_for_s):
        return _ended(alert, AlertState.RESOLVED, reading.reason, now)
    return replace(alert, clear_since=since), ()


def _ended(alert: Alert, state: AlertState, reason: str, now: datetime) -> tuple[Alert, tuple[Event, ...]]:
    ended = replace(alert, state=state, changed_at=now, ended_at=now, ended_reason=reason)
    return ended, (Event(now, alert.state, state, reason),)
