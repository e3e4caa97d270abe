"""Evaluates the alert rules once: reads all signals, decides, and writes the result in one fenced transaction.

The result consists of the states of alerts, their history and the messages to deliver. Missing data does not resolve an
alert: while the store is unreachable, nothing is decided and nothing changes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.alerting.evaluation import EvaluatedEpisode, Readings, evaluate, readings_of
from backend.alerting.incidents import INCIDENT_GAP, assign, cause_of, subject_of
from backend.alerting.lifecycle import Alert, AlertState, ReadingKind
from backend.alerting.rules import RuleSettings
from backend.domain.clock import Clock
from backend.services.alerts.deliveries import RESOLUTION_KEPT
from backend.services.alerts.signals import SignalReader, Signals
from backend.store.alerts.deliveries import enqueue, note_held
from backend.store.alerts.episodes import open_alerts, save_alerts, touch_alerts
from backend.store.alerts.incidents import (
    fill_cause,
    outdated_incidents,
    recent_incidents,
    refresh_incidents,
    save_incidents,
)
from backend.store.alerts.lease import Term, fence, note_evaluation
from backend.store.alerts.rules import rules_in_force
from backend.store.alerts.silences import silences_at
from backend.store.postgres.connections import reading, writing


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """The result of one evaluation: why alerts fired or were resolved, and how many messages became due."""

    fired: tuple[str, ...]
    resolved: tuple[str, ...]
    due_count: int


class AlertEvaluator:
    """Evaluates the alert rules. The states of alerts between evaluations are in the store."""

    def __init__(self, engine: AsyncEngine, clock: Clock, signals: SignalReader) -> None:
        self._engine = engine
        self._clock = clock
        self._signals = signals
        self._refreshed: Term | None = None
        self.signals: Signals | None = None
        """The input of the newest evaluation; None before the first."""

    async def evaluate(self, term: Term) -> EvaluationReport:
        """Evaluate every rule once.

        Raises:
            LeadershipLostError: another process evaluates now; nothing was written.
            StoreUnavailableError: PostgreSQL is unreachable; nothing was decided.
        """
        began_s = time.perf_counter()
        async with reading(self._engine) as connection:
            rules = await rules_in_force(connection)
            signals = self.signals = await self._signals.read(connection)
            # A verdict takes much longer to compute than the readings, and only the texts of active readings need a
            # verdict. So the readings are computed without verdicts first.
            readings = readings_of(rules, signals.signals)
            active = {subject for (_, subject), found in readings.items() if found.kind is ReadingKind.ACTIVE}
            signals = await self._signals.with_places(connection, signals, active)
        async with writing(self._engine) as connection:
            await fence(connection, term)
            if self._refreshed != term:
                # During an upgrade, an older version, which knows no incidents, may have evaluated before this term.
                await refresh_incidents(connection, await outdated_incidents(connection))
            report = await self._decide(connection, rules, signals, readings)
            ms = round((time.perf_counter() - began_s) * 1000)
            await note_evaluation(connection, term, at=self._clock.now(), evaluation_ms=ms, problem=None)
        self._refreshed = term
        return report

    async def _decide(
        self, connection: AsyncConnection, rules: Sequence[RuleSettings], signals: Signals, readings: Readings
    ) -> EvaluationReport:
        now = self._clock.now()
        opened = await open_alerts(connection)
        outcomes: Sequence[EvaluatedEpisode] = evaluate(
            rules, signals.signals, opened, signals.target_labels, now, readings
        )
        outcomes = await _with_incidents(connection, outcomes)
        await _save(connection, outcomes, opened, now)
        silences = await silences_at(connection, now)
        firing = [o.alert for o in outcomes if o.alert.state is AlertState.FIRING]
        silenced = [a.id for a in firing if any(s.hides(a.identity.matched, now) for s in silences)]
        await note_held(connection, silenced=silenced)
        due = await enqueue(connection, silenced=silenced, now=now, since=now - RESOLUTION_KEPT)
        return EvaluationReport(
            fired=_entered(outcomes, AlertState.FIRING),
            resolved=_entered(outcomes, AlertState.RESOLVED),
            due_count=due,
        )


async def _with_incidents(
    connection: AsyncConnection, outcomes: Sequence[EvaluatedEpisode]
) -> Sequence[EvaluatedEpisode]:
    """Assign the episodes that have no incident yet to incidents, store new incidents, and return all episodes."""
    fresh = [o.alert for o in outcomes if o.alert.incident_id is None]
    if not fresh:
        return outcomes
    since = min(a.began_at for a in fresh) - INCIDENT_GAP
    recent = await recent_incidents(connection, sorted({subject_of(a.identity) for a in fresh}), since=since)
    assigned, changed = assign(fresh, recent)
    firsts = {assigned[a.id]: a for a in sorted(fresh, key=lambda a: (a.began_at, a.id), reverse=True)}
    await save_incidents(connection, changed, firsts)
    return [
        replace(o, alert=replace(o.alert, incident_id=assigned[o.alert.id])) if o.alert.id in assigned else o
        for o in outcomes
    ]


async def _save(
    connection: AsyncConnection, outcomes: Sequence[EvaluatedEpisode], opened: Sequence[Alert], now: datetime
) -> None:
    """Save the alerts that changed. For the others, only set the time of evaluation."""
    before = {a.id: replace(a, evaluated_at=now) for a in opened}
    same = {o.alert.id for o in outcomes if not o.events and before.get(o.alert.id) == o.alert}
    changed = [(o.alert, o.events) for o in outcomes if o.alert.id not in same]
    await touch_alerts(connection, sorted(same), at=now)
    await save_alerts(connection, changed)
    known = {a.id: a.incident_id for a in opened}
    unknown = {a.id for a in opened if cause_of(a.reading).kind is None}
    for alert, _ in changed:
        cause = cause_of(alert.reading)
        # The cause may have become known only after the alert began, when the verdict was missing or undecided.
        if alert.incident_id is not None and alert.id in unknown and cause.kind is not None:
            await fill_cause(connection, alert.incident_id, cause)
    moved = [o.alert for o in outcomes if o.events or known.get(o.alert.id) != o.alert.incident_id]
    await refresh_incidents(connection, sorted({a.incident_id for a in moved if a.incident_id is not None}))


def _entered(outcomes: Sequence[EvaluatedEpisode], state: AlertState) -> tuple[str, ...]:
    return tuple(o.alert.reading.reason for o in outcomes if any(e.after is state for e in o.events))
