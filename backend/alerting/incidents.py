"""Groups alerts into incidents: one incident is one cause at one job or target, from its first alert to its last.

Rule. An episode of an alert joins an incident if all of this holds when the episode begins:

* both are about the same subject: the job; or the target, if the alert is not about a job; or the rule, if the alert is
  about the service itself
* the incident is open, or it ended at most ``INCIDENT_GAP`` earlier
* the causes agree. A cause is the vertex and the phase that the verdict names. A part that is not known agrees with
  every value. The phases before the snapshot (start delay and alignment) count as one, because both are time in which
  the barrier waits.

If several incidents fit, the episode joins one that names the same vertex, and among those the one that began last. If
no incident fits, the episode begins a new one, whose id is derived from the episode's id.

Invariants: every episode belongs to exactly one incident and never moves to another one. The result does not depend on
the order in which episodes are passed, because they are assigned in the order of their beginnings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from backend.alerting.labels import AlertId, IncidentId
from backend.alerting.lifecycle import Alert, Identity, Reading
from backend.domain.verdict import Phase

INCIDENT_GAP: Final = timedelta(minutes=10)
"""The longest time between the end of an incident and the beginning of an episode that continues it."""

_WAITING: Final = frozenset({Phase.START_DELAY.value, Phase.ALIGNMENT.value})


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause that a verdict names. A field is None if it is not known; without a kind, no field is known."""

    kind: str | None = None
    vertex: str | None = None
    phase: str | None = None

    def agrees_with(self, other: Cause) -> bool:
        """Return whether no known part of the two causes differs. The kind is not compared.

        The kind of a verdict may change while evidence is collected, for example from straggler to key skew.
        """
        phases = {"waiting" if c.phase in _WAITING else c.phase for c in (self, other) if c.phase is not None}
        vertices = {c.vertex for c in (self, other) if c.vertex is not None}
        return len(phases) <= 1 and len(vertices) <= 1

    def filled_from(self, other: Cause) -> Cause:
        """Return this cause, with the values of ``other`` for the parts that are not known."""
        return Cause(self.kind or other.kind, self.vertex or other.vertex, self.phase or other.phase)


@dataclass(frozen=True, slots=True)
class Incident:
    """The values of an incident that decide which episodes join it. ``ended_at`` is None while the incident is open."""

    id: IncidentId
    subject: str
    cause: Cause
    began_at: datetime
    ended_at: datetime | None


def subject_of(identity: Identity) -> str:
    """Return the subject of an alert: its job, or else its target, or else its rule."""
    if identity.job_id is not None:
        return f"job:{identity.job_id}"
    return f"target:{identity.target_id}" if identity.target_id is not None else f"rule:{identity.rule}"


def cause_of(reading: Reading) -> Cause:
    """Return the cause that the verdict in a reading names. Without a verdict, nothing is known.

    If the verdict names no cause, the texts of a reading may still name the subtasks that have not acknowledged. These
    are late, but they need not be the cause.
    """
    texts = reading.annotations
    if "cause" not in texts:
        return Cause()
    vertex, phase = (None if texts.get(n) in (None, "not known") else texts[n] for n in ("vertex", "phase"))
    return Cause(texts["cause"], vertex, phase)


def assign(
    alerts: Iterable[Alert], incidents: Iterable[Incident]
) -> tuple[Mapping[AlertId, IncidentId], Sequence[Incident]]:
    """Assign each episode to an incident.

    ``incidents`` must contain every incident that is open or ended at most ``INCIDENT_GAP`` before the first of the
    episodes began. Return the incident of each episode, and the incidents that were added or changed.
    """
    known: dict[str, list[Incident]] = {}
    for incident in incidents:
        known.setdefault(incident.subject, []).append(incident)
    assigned: dict[AlertId, IncidentId] = {}
    changed: dict[IncidentId, Incident] = {}
    for alert in sorted(alerts, key=lambda a: (a.began_at, a.id)):
        own = known.setdefault(subject_of(alert.identity), [])
        joined = _joined(alert, own)
        own[:] = [i for i in own if i.id != joined.id] + [joined]
        assigned[alert.id] = joined.id
        changed[joined.id] = joined
    return assigned, tuple(changed.values())


def _joined(alert: Alert, incidents: Sequence[Incident]) -> Incident:
    """Return the incident that the episode joins, with the episode included."""
    cause = cause_of(alert.reading)
    fitting = [
        i
        for i in incidents
        if (i.ended_at is None or i.ended_at >= alert.began_at - INCIDENT_GAP) and i.cause.agrees_with(cause)
    ]
    if not fitting:
        own = IncidentId("i" + alert.id.removeprefix("a"))
        return Incident(own, subject_of(alert.identity), cause, alert.began_at, alert.ended_at)
    best = max(fitting, key=lambda i: (cause.vertex is not None and i.cause.vertex == cause.vertex, i.began_at, i.id))
    ended_at = None if best.ended_at is None or alert.ended_at is None else max(best.ended_at, alert.ended_at)
    return replace(best, cause=best.cause.filled_from(cause), ended_at=ended_at)
