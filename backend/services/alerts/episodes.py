"""Returns alerts in the API's shape: lists of alerts, and one alert with its history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.alerting.delivery import DeliveryState
from backend.alerting.lifecycle import ACTION, Alert, AlertState, ReadingKind, summary_of
from backend.alerting.payloads import Links, permalink
from backend.alerting.rules import rule_of
from backend.contracts import alerts as wire
from backend.contracts import api
from backend.domain.clock import Clock
from backend.services.alerts.actions import with_actions
from backend.services.alerts.freshness import AlertFreshness
from backend.services.paging import decode_cursor, page_of
from backend.services.presenting import API_ROOT, checkpoint_link
from backend.store.alerts.deliveries import Attempt, DeliveryRecord, attempts_of, deliveries_of
from backend.store.alerts.episodes import AlertFilter, earlier_episodes, events_of, get_alert, list_alerts
from backend.store.alerts.silences import Silence, silences_at
from backend.store.postgres.connections import reading

_EPISODES_MAX = 30
ATTEMPTS_MAX = 20


@dataclass(frozen=True, slots=True)
class WantedAlerts:
    """A filter for alerts.

    A field that is None does not restrict the selection. Empty ``states`` select pending, firing and resolved alerts.
    """

    states: tuple[AlertState, ...] = ()
    rule: str | None = None
    job_id: str | None = None
    severity: str | None = None


class AlertService:
    """Handles requests for alerts."""

    def __init__(self, engine: AsyncEngine, clock: Clock, links: Links) -> None:
        self._engine = engine
        self._clock = clock
        self._links = links

    async def page(self, wanted: WantedAlerts, *, cursor: str | None, limit: int) -> api.Page[wire.AlertOut]:
        """Return one page of alerts, ordered by the time when they began, newest first.

        Raises:
            InvalidInputError: the cursor does not belong to this list.
        """
        before = cast("tuple[datetime, str] | None", decode_cursor(cursor, (datetime, str)))
        states = wanted.states or (AlertState.PENDING, AlertState.FIRING, AlertState.RESOLVED)
        chosen = AlertFilter(states, wanted.rule, wanted.job_id, wanted.severity)
        now = self._clock.now()
        async with reading(self._engine) as connection:
            alerts = await list_alerts(connection, chosen, before=before, limit=limit + 1)
            silences = await silences_at(connection, now)
            items, following = page_of(alerts, limit, lambda a: (a.began_at, a.id))
            dates = await AlertFreshness.read(connection, (a.identity.job_id for a in items), now)
            items = list((await with_actions(connection, {a.id: a for a in items})).values())
        shown = [
            wire.AlertOut.of(*alert_values(a), **alert_fields(a, silences, dates, self._links, now)) for a in items
        ]
        return api.Page[wire.AlertOut](items=shown, next=following, as_of=now)

    async def detail(self, alert_id: str) -> wire.AlertDetailOut:
        """Return one alert with its history, its deliveries and earlier episodes.

        Raises:
            UnknownEntityError: there is no alert with this id.
        """
        now = self._clock.now()
        async with reading(self._engine) as connection:
            alert = (await with_actions(connection, {alert_id: await get_alert(connection, alert_id)}))[alert_id]
            dates = await AlertFreshness.read(connection, [alert.identity.job_id], now)
            silences = await silences_at(connection, now)
            events = (await events_of(connection, [alert_id])).get(alert_id, [])
            episodes = await earlier_episodes(connection, alert, limit=_EPISODES_MAX)
            sent = await deliveries_of(connection, alert_id)
            attempts = await attempts_of(connection, [d.id for d in sent], limit=ATTEMPTS_MAX)
        rule = rule_of(alert.identity.rule)
        return wire.AlertDetailOut.of(
            *alert_values(alert),
            **alert_fields(alert, silences, dates, self._links, now),
            events=events,
            deliveries=[_delivery_out(d, attempts.get(d.id, [])) for d in sent],
            episodes=episodes,
            rule_meaning=rule.meaning if rule is not None else "",
            runbook_link=f"{API_ROOT}/alert-rules/{alert.identity.rule}/runbook",
            as_of=now,
        )


def alert_values(alert: Alert) -> tuple[object, ...]:
    """Return the objects whose attributes are fields of ``AlertOut``."""
    return alert, alert.identity, alert.reading


def alert_fields(
    alert: Alert, silences: Sequence[Silence], dates: AlertFreshness, links: Links, now: datetime
) -> dict[str, object]:
    """Return the fields of ``AlertOut`` that are not attributes of an episode."""
    texts, job_id = alert.reading.annotations, alert.identity.job_id
    return {
        "summary": summary_of(alert),
        "description": texts.get("description", alert.reading.reason),
        "is_unknown": alert.reading.kind is ReadingKind.UNKNOWN and alert.state.is_open,
        **{name: texts.get(name) for name in ("vertex", "subtasks", "hosts", "phase", "replay_debt", ACTION)},
        "silenced_by": [s.id for s in silences if alert.state.is_open and s.hides(alert.identity.matched, now)],
        "checkpoints": [
            wire.LinkedCheckpointOut.of(c, link=checkpoint_link(job_id, c.run_id, c.checkpoint_id))
            for c in alert.checkpoints
            if job_id is not None
        ],
        "freshness": dates.of(job_id, is_open=alert.state.is_open, evaluated_at=alert.evaluated_at),
        "permalink": permalink(alert, links),
        "incident_link": None if alert.incident_id is None else f"{API_ROOT}/incidents/{alert.incident_id}",
    }


def _delivery_out(record: DeliveryRecord, attempts: Sequence[Attempt]) -> wire.DeliveryOut:
    return wire.DeliveryOut.of(record, **delivery_fields(record, attempts))


def delivery_fields(record: DeliveryRecord, attempts: Sequence[Attempt]) -> dict[str, object]:
    """Return the fields of ``DeliveryOut`` that are not attributes of a delivery."""
    return {
        "receiver": record.receiver_name,
        "next_attempt_at": record.next_attempt_at if record.state is DeliveryState.DUE else None,
        "attempts": attempts,
    }
