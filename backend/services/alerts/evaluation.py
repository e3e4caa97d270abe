"""One evaluation: read every signal, then decide and write states, history and due messages in a fenced transaction.

Unreadable data does not clear an alert: while the store is unreachable nothing is decided and nothing changes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.alerting.evaluation import EvaluatedEpisode, evaluate
from backend.alerting.lifecycle import Alert, AlertState
from backend.domain.clock import Clock
from backend.services.alerts.deliveries import RESOLUTION_KEPT
from backend.services.alerts.signals import SignalReader, Signals
from backend.store.alerts.deliveries import enqueue, note_held
from backend.store.alerts.episodes import open_alerts, save_alerts, touch_alerts
from backend.store.alerts.lease import Term, fence, note_evaluation
from backend.store.alerts.rules import rules_in_force
from backend.store.alerts.silences import silences_at
from backend.store.postgres.connections import reading, writing


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """What one evaluation did."""

    fired: tuple[str, ...]
    resolved: tuple[str, ...]
    due_count: int


class AlertEvaluator:
    """Evaluates the rules; all state between evaluations is in the store."""

    def __init__(self, engine: AsyncEngine, clock: Clock, signals: SignalReader) -> None:
        self._engine = engine
        self._clock = clock
        self._signals = signals

    async def evaluate(self, term: Term) -> EvaluationReport:
        """Evaluate every rule once.

        Raises:
            LeadershipLostError: another process evaluates now; nothing was written.
            StoreUnavailableError: PostgreSQL is unreachable; nothing was decided.

        """
        began_s = time.perf_counter()
        async with reading(self._engine) as connection:
            signals = await self._signals.read(connection)
        async with writing(self._engine) as connection:
            await fence(connection, term)
            report = await self._decide(connection, signals)
            ms = round((time.perf_counter() - began_s) * 1000)
            await note_evaluation(connection, term, at=self._clock.now(), evaluation_ms=ms, problem=None)
        return report

    async def _decide(self, connection: AsyncConnection, signals: Signals) -> EvaluationReport:
        now = self._clock.now()
        rules = await rules_in_force(connection)
        opened = await open_alerts(connection)
        outcomes = evaluate(rules, signals.signals, opened, signals.target_labels, now)
        await _save(connection, outcomes, opened, now)
        silences = await silences_at(connection, now)
        firing = [o.alert for o in outcomes if o.alert.state is AlertState.FIRING]
        silenced = [a.id for a in firing if any(s.hides(a.identity.labels, now) for s in silences)]
        await note_held(connection, silenced=silenced)
        due = await enqueue(connection, silenced=silenced, now=now, since=now - RESOLUTION_KEPT)
        return EvaluationReport(
            fired=_entered(outcomes, AlertState.FIRING),
            resolved=_entered(outcomes, AlertState.RESOLVED),
            due_count=due,
        )


async def _save(
    connection: AsyncConnection, outcomes: Sequence[EvaluatedEpisode], opened: Sequence[Alert], now: datetime
) -> None:
    """Save changed alerts; of unchanged ones, only set the time of evaluation."""
    before = {a.id: replace(a, evaluated_at=now) for a in opened}
    same = {o.alert.id for o in outcomes if not o.events and before.get(o.alert.id) == o.alert}
    changed = [(o.alert, o.events) for o in outcomes if o.alert.id not in same]
    await touch_alerts(connection, sorted(same), at=now)
    await save_alerts(connection, changed)


def _entered(outcomes: list[EvaluatedEpisode], state: AlertState) -> tuple[str, ...]:
    return tuple(o.alert.reading.reason for o in outcomes if any(e.after is state for e in o.events))
