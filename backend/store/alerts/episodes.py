"""Reads and writes episodes of alerts and their history. A writer must call ``lease.fence`` in its transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    Result,
    RowMapping,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.alerting.labels import renamed
from backend.alerting.lifecycle import (
    Alert,
    AlertState,
    Event,
    Identity,
    LinkedCheckpoint,
    Reading,
    ReadingKind,
)
from backend.alerting.rules import Severity
from backend.domain.errors import UnknownEntityError
from backend.domain.ids import RunId
from backend.store.alerts.silences import silences_at
from backend.store.postgres.encoding import clean
from backend.store.postgres.keyset import newest_first
from backend.store.postgres.statements import among, one_of, replaced
from backend.store.schema import alert_tables
from backend.store.schema.rows import row_of, value_of

_ALERT = alert_tables.alerts.c
_EVENT = alert_tables.alert_events.c
_OPEN = (AlertState.PENDING.value, AlertState.FIRING.value)
_OPEN_ALERTS = select(alert_tables.alerts).where(_ALERT.state.in_(_OPEN)).order_by(_ALERT.began_at, _ALERT.id)
_NEW = pg_insert(alert_tables.alerts)
_SAVE = _NEW.on_conflict_do_update(
    index_elements=[_ALERT.id],
    # The identity and the beginning of an episode never change, so they are not updated. The incident changes only if
    # an older version stored the episode without an incident.
    set_=replaced(
        _NEW,
        [
            *(_ALERT.state, _ALERT.fired_at, _ALERT.changed_at, _ALERT.ended_at, _ALERT.ended_reason),
            *(_ALERT.clear_since, _ALERT.evaluated_at, _ALERT.reading, _ALERT.reason, _ALERT.value),
            *(_ALERT.annotations, _ALERT.checkpoints, _ALERT.incident_id),
        ],
    ),
    # A write that arrives late does not change an episode that has ended.
    where=_ALERT.ended_at.is_(None),
)


@dataclass(frozen=True, slots=True)
class AlertFilter:
    """Selects episodes. A field that is None or empty does not restrict the selection."""

    states: tuple[AlertState, ...] = ()
    rule: str | None = None
    job_id: str | None = None
    severity: str | None = None


async def open_alerts(connection: AsyncConnection) -> list[Alert]:
    """Return every pending or firing episode, oldest first."""
    return _alerts(await connection.execute(_OPEN_ALERTS))


async def save_alerts(connection: AsyncConnection, changed: Sequence[tuple[Alert, Sequence[Event]]]) -> None:
    """Store the current state of each episode, and its new events."""
    if changed:
        await connection.execute(_SAVE, [_row(alert) for alert, _ in changed])
    events = [
        row_of(alert_tables.alert_events, event, alert_id=alert.id) for alert, happened in changed for event in happened
    ]
    if events:
        await connection.execute(insert(alert_tables.alert_events), events)


async def touch_alerts(connection: AsyncConnection, alert_ids: Sequence[str], *, at: datetime) -> None:
    """Record that these episodes were evaluated at ``at`` and did not change."""
    if alert_ids:
        touched = update(alert_tables.alerts).where(among(_ALERT.id, alert_ids), _ALERT.ended_at.is_(None))
        await connection.execute(touched.values(evaluated_at=at))


async def list_alerts(
    connection: AsyncConnection, wanted: AlertFilter, *, before: tuple[datetime, str] | None, limit: int
) -> list[Alert]:
    """Return up to ``limit`` matching episodes that began before ``before`` (begin, id), latest begin first."""
    restricted = {f.name: value for f in fields(wanted) if (value := getattr(wanted, f.name))}
    query, page = newest_first(_matching(frozenset(restricted)), _ALERT.began_at, _ALERT.id, before=before, limit=limit)
    return _alerts(await connection.execute(query, restricted | {"states": [s.value for s in wanted.states]} | page))


@lru_cache(maxsize=16)
def _matching(restricted: frozenset[str]) -> Select[Any]:
    """Return the query for the episodes that match a filter. ``restricted`` names the filter's fields that are set."""
    conditions = {
        "states": one_of(_ALERT.state, "states"),
        "rule": _ALERT.rule == bindparam("rule"),
        "job_id": _ALERT.job_id == bindparam("job_id"),
        "severity": _ALERT.severity == bindparam("severity"),
    }
    return select(alert_tables.alerts).where(*(conditions[name] for name in sorted(restricted)))


async def get_alert(connection: AsyncConnection, alert_id: str) -> Alert:
    """Return one episode.

    Raises:
        UnknownEntityError: there is no episode with this id.
    """
    alerts = await get_alerts(connection, [alert_id])
    if not alerts:
        raise UnknownEntityError(kind="alert", id=alert_id)
    return alerts[alert_id]


async def get_alerts(connection: AsyncConnection, alert_ids: Sequence[str]) -> dict[str, Alert]:
    """Return the episodes with these ids, by id. An id without an episode is absent."""
    query = select(alert_tables.alerts).where(among(_ALERT.id, alert_ids))
    return {alert.id: alert for alert in _alerts(await connection.execute(query))}


async def earlier_episodes(connection: AsyncConnection, alert: Alert, *, limit: int) -> list[Alert]:
    """Return the newest ``limit`` episodes of the same alert, newest first, including this one and later ones."""
    identity = alert.identity
    query = (
        select(alert_tables.alerts)
        .where(_ALERT.rule == identity.rule, _ALERT.fingerprint == identity.fingerprint)
        .order_by(_ALERT.began_at.desc())
        .limit(limit)
    )
    return _alerts(await connection.execute(query))


async def alerts_of_incidents(
    connection: AsyncConnection, incident_ids: Sequence[str], *, is_open: bool = False, limit: int
) -> list[Alert]:
    """Return the newest ``limit`` episodes of these incidents, newest first. If ``is_open``, only open episodes."""
    query = select(alert_tables.alerts).where(among(_ALERT.incident_id, incident_ids))
    if is_open:
        query = query.where(_ALERT.state.in_(_OPEN))
    return _alerts(await connection.execute(query.order_by(_ALERT.began_at.desc(), _ALERT.id.desc()).limit(limit)))


async def events_of(connection: AsyncConnection, alert_ids: Sequence[str]) -> dict[str, list[Event]]:
    """Return the events of each episode, oldest first."""
    query = select(alert_tables.alert_events).where(among(_EVENT.alert_id, alert_ids)).order_by(_EVENT.id)
    events: dict[str, list[Event]] = {}
    for row in (await connection.execute(query)).mappings():
        events.setdefault(row["alert_id"], []).append(value_of(Event, row))
    return events


@dataclass(frozen=True, slots=True)
class OpenCount:
    """The number of firing alerts, not counting the watchdog.

    ``severity`` is the highest of those that nobody has silenced, acknowledged or taken; None if there is none.
    """

    count: int
    severity: Severity | None


_INCIDENT, _SILENCE = alert_tables.incidents.c, alert_tables.silences.c
_IS_SEEN = or_(
    one_of(_ALERT.id, "silenced"),
    exists().where(
        _INCIDENT.id == _ALERT.incident_id,
        or_(_INCIDENT.acknowledged_at.is_not(None), _INCIDENT.claimed_at.is_not(None)),
    ),
)
_OPEN_COUNTS = (
    select(
        _ALERT.job_id,
        func.count(),
        func.coalesce(func.bool_or(~_IS_SEEN), literal_column("false")),
        func.coalesce(
            func.bool_or(and_(_ALERT.severity == Severity.CRITICAL.value, ~_IS_SEEN)), literal_column("false")
        ),
        # So that a board without silences, which is read every two seconds, takes one statement.
        exists()
        .where(_SILENCE.starts_at <= bindparam("now"), _SILENCE.ends_at > bindparam("now"))
        .label("has_silences"),
    )
    .where(_ALERT.state == AlertState.FIRING.value, _ALERT.severity != Severity.NONE.value)
    .group_by(func.rollup(_ALERT.job_id))
    .having(func.count() > 0)
    .order_by(func.grouping(_ALERT.job_id))
)


async def open_counts(connection: AsyncConnection, now: datetime) -> Mapping[str | None, OpenCount]:
    """Count the firing alerts of each job. A job without firing alerts is absent. The key None holds the total."""
    rows = (await connection.execute(_OPEN_COUNTS, {"silenced": [], "now": now})).all()
    if any(row.has_silences for row in rows):
        silences = await silences_at(connection, now)
        opened = await open_alerts(connection)
        silenced = [a.id for a in opened if any(s.hides(a.identity.matched, now) for s in silences)]
        rows = (await connection.execute(_OPEN_COUNTS, {"silenced": silenced, "now": now})).all()
    # The total comes last, so it overwrites the row of the alerts without a job, which also has the key None.
    return {
        job_id: OpenCount(count, Severity.CRITICAL if is_critical else Severity.WARNING if is_unseen else None)
        for job_id, count, is_unseen, is_critical, _ in rows
    }


async def drop_ended_before(connection: AsyncConnection, at: datetime) -> None:
    """Delete the episodes, incidents and silences that ended before ``at``, and receivers removed before ``at``.

    An episode is deleted with its history and deliveries, and an incident with its notes. A removed receiver stays as
    long as a delivery refers to it.
    """
    silence, receiver, delivery = alert_tables.silences.c, alert_tables.receivers.c, alert_tables.deliveries.c
    incident = alert_tables.incidents.c
    was_sent = exists().where(delivery.receiver_id == receiver.id)
    for statement in (
        delete(alert_tables.alerts).where(_ALERT.ended_at < at),
        # An incident ends when the last of its episodes does, so none of its episodes is left.
        delete(alert_tables.incidents).where(incident.ended_at < at),
        delete(alert_tables.silences).where(silence.ends_at < at),
        delete(alert_tables.receivers).where(receiver.removed_at < at, ~was_sent),
    ):
        await connection.execute(statement)


def _row(alert: Alert) -> dict[str, Any]:
    identity, reading = alert.identity, alert.reading
    return row_of(
        alert_tables.alerts,
        alert,
        **row_of(
            alert_tables.alerts,
            identity,
            labels={clean(k): clean(v) for k, v in identity.labels.items()},
        ),
        reading=reading.kind.value,
        reason=clean(reading.reason),
        value=reading.value,
        annotations={k: clean(v) for k, v in reading.annotations.items()},
        checkpoints=[[c.run_id, c.checkpoint_id] for c in alert.checkpoints],
    )


def _alerts(rows: Result[Any]) -> list[Alert]:
    return [_alert(row) for row in rows.mappings()]


def _alert(row: RowMapping) -> Alert:
    identity = value_of(Identity, row, labels=renamed(row["labels"]))
    return value_of(
        Alert,
        row,
        identity=identity,
        reading=Reading(ReadingKind(row["reading"]), row["reason"], row["value"], row["annotations"]),
        checkpoints=tuple(LinkedCheckpoint(RunId(run), number) for run, number in row["checkpoints"]),
    )
