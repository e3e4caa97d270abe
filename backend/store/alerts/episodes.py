"""Episodes of alerts and their history. Writers hold the evaluator's fence; readers get frozen values."""

# ruff: noqa: S608  the text put into statements is this module's own column lists; every value is bound.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.alerting.labels import AlertId
from backend.alerting.lifecycle import (
    Alert,
    AlertState,
    Event,
    Identity,
    LinkedCheckpoint,
    Reading,
    ReadingKind,
)
from backend.domain.errors import UnknownEntityError
from backend.domain.ids import JobId, RunId, TargetId
from backend.store.postgres.keyset import newest_first
from backend.store.schema.documents import clean, clean_or_none, dump

_COLUMNS = (
    "id, rule, severity, fingerprint, labels, job_id, target_id, state, began_at, fired_at, changed_at, ended_at,"
    " ended_reason, clear_since, evaluated_at, reading, reason, value, annotations, checkpoints"
)


@dataclass(frozen=True, slots=True)
class AlertFilter:
    """Which episodes; None does not restrict. ``states`` empty: all."""

    states: tuple[AlertState, ...] = ()
    rule: str | None = None
    job_id: str | None = None
    severity: str | None = None


async def open_alerts(connection: AsyncConnection) -> list[Alert]:
    """Every pending or firing episode, oldest first."""
    query = text(f"SELECT {_COLUMNS} FROM alerts WHERE state IN ('pending', 'firing') ORDER BY began_at, id")
    return [_alert(row) for row in (await connection.execute(query)).mappings()]


async def save_alerts(connection: AsyncConnection, changed: Sequence[tuple[Alert, Sequence[Event]]]) -> None:
    """Write episodes as they are now, and what happened to each."""
    statement = text(
        f"INSERT INTO alerts ({_COLUMNS}) VALUES (:id, :rule, :severity, :fingerprint, CAST(:labels AS jsonb),"
        " :job_id, :target_id, :state, :began_at, :fired_at, :changed_at, :ended_at, :ended_reason, :clear_since,"
        " :evaluated_at, :reading, :reason, :value, CAST(:annotations AS jsonb), CAST(:checkpoints AS jsonb))"
        " ON CONFLICT (id) DO UPDATE SET state = excluded.state, fired_at = excluded.fired_at,"
        " changed_at = excluded.changed_at, ended_at = excluded.ended_at, ended_reason = excluded.ended_reason,"
        " clear_since = excluded.clear_since, evaluated_at = excluded.evaluated_at, reading = excluded.reading,"
        " reason = excluded.reason, value = excluded.value, annotations = excluded.annotations,"
        " checkpoints = excluded.checkpoints"
        # What ended stays as it ended, whoever comes late.
        " WHERE alerts.ended_at IS NULL"
    )
    if changed:
        await connection.execute(statement, [_values(alert) for alert, _ in changed])
    events = [
        {"alert": alert.id, "at": e.at, "before": e.before.value, "after": e.after.value, "reason": clean(e.reason)}
        for alert, happened in changed
        for e in happened
    ]
    if events:
        await connection.execute(
            text(
                'INSERT INTO alert_events (alert_id, at, "before", "after", reason)'
                " VALUES (:alert, :at, :before, :after, :reason)"
            ),
            events,
        )


async def touch_alerts(connection: AsyncConnection, alert_ids: Sequence[str], *, at: datetime) -> None:
    """Keep that these episodes were evaluated and are as they were."""
    if alert_ids:
        await connection.execute(
            text("UPDATE alerts SET evaluated_at = :at WHERE id = ANY(:ids) AND ended_at IS NULL"),
            {"ids": list(alert_ids), "at": at},
        )


async def list_alerts(
    connection: AsyncConnection, wanted: AlertFilter, *, before: tuple[datetime, str] | None, limit: int
) -> list[Alert]:
    """Episodes, newest begin first, those older than ``before`` (begin, id)."""
    query = text(
        f"SELECT {_COLUMNS} FROM alerts WHERE (CAST(:states AS text[]) = '{{}}' OR state = ANY(:states))"
        " AND (CAST(:rule AS text) IS NULL OR rule = :rule) AND (CAST(:job AS text) IS NULL OR job_id = :job)"
        " AND (CAST(:severity AS text) IS NULL OR severity = :severity)"
        f" AND {newest_first({'at': 'began_at', 'id': 'id'})}"
    )
    at, alert_id = before or (None, None)
    values = {
        "states": [s.value for s in wanted.states],
        "rule": wanted.rule,
        "job": wanted.job_id,
        "severity": wanted.severity,
        "at": at,
        "id": alert_id,
        "limit": limit,
    }
    return [_alert(row) for row in (await connection.execute(query, values)).mappings()]


async def get_alert(connection: AsyncConnection, alert_id: str) -> Alert:
    """One episode.

    Raises:
        UnknownEntityError: there is none of this id.

    """
    query = text(f"SELECT {_COLUMNS} FROM alerts WHERE id = :id")
    row = (await connection.execute(query, {"id": alert_id})).mappings().first()
    if row is None:
        raise UnknownEntityError(kind="alert", id=alert_id)
    return _alert(row)


async def get_alerts(connection: AsyncConnection, alert_ids: Sequence[str]) -> dict[str, Alert]:
    """The episodes of these ids that are there."""
    query = text(f"SELECT {_COLUMNS} FROM alerts WHERE id = ANY(:ids)")
    rows = (await connection.execute(query, {"ids": list(alert_ids)})).mappings()
    return {row["id"]: _alert(row) for row in rows}


async def earlier_episodes(connection: AsyncConnection, alert: Alert, *, limit: int) -> list[Alert]:
    """Episodes of the same alert, this one and newer ones too, newest first."""
    query = text(
        f"SELECT {_COLUMNS} FROM alerts WHERE rule = :rule AND fingerprint = :print ORDER BY began_at DESC LIMIT :limit"
    )
    values = {"rule": alert.identity.rule, "print": alert.identity.fingerprint, "limit": limit}
    return [_alert(row) for row in (await connection.execute(query, values)).mappings()]


async def events_of(connection: AsyncConnection, alert_ids: Sequence[str]) -> dict[str, list[Event]]:
    """What happened to each episode, oldest first."""
    query = text(
        'SELECT alert_id, at, "before", "after", reason FROM alert_events WHERE alert_id = ANY(:ids) ORDER BY id'
    )
    found: dict[str, list[Event]] = {}
    for alert_id, at, before, after, reason in await connection.execute(query, {"ids": list(alert_ids)}):
        found.setdefault(alert_id, []).append(Event(at, AlertState(before), AlertState(after), reason))
    return found


@dataclass(frozen=True, slots=True)
class OpenCount:
    """How many alerts fire, the watchdog aside, and the gravest severity of them."""

    count: int
    severity: Literal["critical", "warning"]


async def open_counts(connection: AsyncConnection) -> Mapping[str | None, OpenCount]:
    """For each job with alerts that fire; under None for everything."""
    query = text(
        "SELECT job_id, count(*), bool_or(severity = 'critical') FROM alerts WHERE state = 'firing'"
        " AND severity <> 'none' GROUP BY ROLLUP (job_id) HAVING count(*) > 0 ORDER BY grouping(job_id)"
    )
    rows = (await connection.execute(query)).all()
    # The total comes last, and stands also over the row of those without a job.
    return {job_id: OpenCount(count, "critical" if critical else "warning") for job_id, count, critical in rows}


async def drop_ended_before(connection: AsyncConnection, at: datetime) -> None:
    """Drop episodes that ended before ``at``, with their history and deliveries; and what no longer matters."""
    for statement in (
        "DELETE FROM alerts WHERE ended_at < :at",
        "DELETE FROM silences WHERE ends_at < :at",
        "DELETE FROM receivers r WHERE r.removed_at < :at"
        " AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.receiver_id = r.id)",
    ):
        await connection.execute(text(statement), {"at": at})


def _values(alert: Alert) -> dict[str, Any]:
    identity, reading = alert.identity, alert.reading
    return {
        "id": alert.id,
        "rule": identity.rule,
        "severity": identity.severity,
        "fingerprint": identity.fingerprint,
        "labels": dump({clean(k): clean(v) for k, v in identity.labels.items()}),
        "job_id": identity.job_id,
        "target_id": identity.target_id,
        "state": alert.state.value,
        "began_at": alert.began_at,
        "fired_at": alert.fired_at,
        "changed_at": alert.changed_at,
        "ended_at": alert.ended_at,
        "ended_reason": clean_or_none(alert.ended_reason),
        "clear_since": alert.clear_since,
        "evaluated_at": alert.evaluated_at,
        "reading": reading.kind.value,
        "reason": clean(reading.reason),
        "value": reading.value,
        "annotations": dump({k: clean(v) for k, v in reading.annotations.items()}),
        "checkpoints": dump([[c.run_id, c.checkpoint_id] for c in alert.checkpoints]),
    }


def _alert(row: RowMapping) -> Alert:
    linked = tuple(LinkedCheckpoint(RunId(run), number) for run, number in row["checkpoints"])
    return Alert(
        id=AlertId(row["id"]),
        identity=Identity(
            rule=row["rule"],
            severity=row["severity"],
            fingerprint=row["fingerprint"],
            labels=row["labels"],
            job_id=None if row["job_id"] is None else JobId(row["job_id"]),
            target_id=None if row["target_id"] is None else TargetId(row["target_id"]),
        ),
        state=AlertState(row["state"]),
        reading=Reading(ReadingKind(row["reading"]), row["reason"], row["value"], row["annotations"]),
        checkpoints=linked,
        **{
            name: row[name]
            for name in (
                "began_at",
                "fired_at",
                "changed_at",
                "ended_at",
                "ended_reason",
                "clear_since",
                "evaluated_at",
            )
        },
    )
