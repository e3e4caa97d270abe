"""Reads and writes incidents, and the notes that people add to them.

An incident's row repeats what the list shows of its episodes (state, severity, times, counts), so that one page of the
list costs the same however many episodes are stored. ``refresh_incidents`` computes these columns from the episodes. A
writer of episodes must call it in its transaction. Actions of people change only other columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from sqlalchemy import (
    ARRAY,
    Column,
    ColumnElement,
    Integer,
    Result,
    RowMapping,
    Select,
    Text,
    and_,
    any_,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, aggregate_order_by, distinct_on
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.alerting.incidents import Cause, Incident
from backend.alerting.labels import IncidentId, Labels, renamed
from backend.alerting.lifecycle import Alert, AlertState
from backend.alerting.rules import Severity
from backend.domain.errors import UnknownEntityError
from backend.store.postgres.encoding import clean, clean_or_none
from backend.store.postgres.statements import among, replaced
from backend.store.schema import alert_tables
from backend.store.schema.rows import value_of

_INCIDENT = alert_tables.incidents.c
_NOTE = alert_tables.incident_notes.c
_ALERT = alert_tables.alerts.c


class Grouping(StrEnum):
    """What the list of incidents is grouped by."""

    CAUSE = "cause"
    JOB = "job"
    TARGET = "target"


class NoteKind(StrEnum):
    """What a note records: a comment, or an action on the incident."""

    COMMENT = "comment"
    ACKNOWLEDGED = "acknowledged"
    CLAIMED = "claimed"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class IncidentRecord:
    """An incident as it is stored.

    ``group`` is the value by which the list is grouped, or an empty text. ``lead_alert_id`` is the episode that
    describes the incident best: an open one if there is one, and the most severe of those.
    """

    id: IncidentId
    subject: str
    job_id: str | None
    target_id: str | None
    labels: Labels
    cause: str | None
    vertex: str | None
    phase: str | None
    began_at: datetime
    fired_at: datetime | None
    ended_at: datetime | None
    state: AlertState
    severity: Severity
    rank: int
    alert_count: int
    open_count: int
    lead_alert_id: str | None
    rules: Sequence[str]
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    claimed_at: datetime | None
    claimed_by: str | None
    group: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """A comment on an incident, or a record that somebody acknowledged, claimed or released it."""

    id: int
    at: datetime
    author: str
    kind: NoteKind
    text: str


@dataclass(frozen=True, slots=True)
class IncidentFilter:
    """Selects incidents. A field that is None or empty does not restrict the selection.

    ``search`` is part of the name of a job or target. ``labels`` are pairs of name and value that the incident must
    have; ``alertname`` and ``severity`` select by the rules and the severity of its alerts.
    """

    states: tuple[AlertState, ...] = ()
    severities: tuple[Severity, ...] = ()
    search: str | None = None
    job_id: str | None = None
    target_id: str | None = None
    labels: tuple[tuple[str, str], ...] = ()


# --- writing ------------------------------------------------------------------------------------------------------


async def recent_incidents(connection: AsyncConnection, subjects: Sequence[str], *, since: datetime) -> list[Incident]:
    """Return the incidents of these subjects that are open or ended at ``since`` or later."""
    columns = (_INCIDENT.id, _INCIDENT.subject, _INCIDENT.began_at, _INCIDENT.ended_at)
    query = select(*columns, _INCIDENT.cause, _INCIDENT.vertex, _INCIDENT.phase).where(
        among(_INCIDENT.subject, subjects), or_(_INCIDENT.ended_at.is_(None), _INCIDENT.ended_at >= since)
    )
    rows = (await connection.execute(query)).mappings()
    return [value_of(Incident, row, cause=Cause(row["cause"], row["vertex"], row["phase"])) for row in rows]


_NEW = pg_insert(alert_tables.incidents)
_SAVE = _NEW.on_conflict_do_update(
    index_elements=[_INCIDENT.id], set_=replaced(_NEW, [_INCIDENT.cause, _INCIDENT.vertex, _INCIDENT.phase])
)


async def save_incidents(
    connection: AsyncConnection, incidents: Sequence[Incident], firsts: Mapping[IncidentId, Alert]
) -> None:
    """Store new incidents, and the causes of those that are stored already.

    ``firsts`` contains the first episode of each new incident, by the id of the incident. The caller must then store
    the episodes and call ``refresh_incidents``.
    """
    if incidents:
        await connection.execute(_SAVE, [_row(i, firsts.get(i.id)) for i in incidents])


def _row(incident: Incident, first: Alert | None) -> dict[str, Any]:
    labels = {} if first is None else first.identity.labels
    cause = incident.cause
    return {
        "id": incident.id,
        "subject": clean(incident.subject),
        "job_id": None if first is None else first.identity.job_id,
        "target_id": None if first is None else first.identity.target_id,
        "labels": {clean(k): clean(v) for k, v in labels.items() if k not in ("alertname", "severity")},
        "cause": cause.kind,
        "vertex": None if cause.vertex is None else clean(cause.vertex),
        "phase": cause.phase,
        "began_at": incident.began_at,
        "state": AlertState.PENDING.value,
        "severity": Severity.NONE.value,
        "rank": 0,
        "alert_count": 0,
        "open_count": 0,
        "rules": [],
    }


def _first_of(column: Column[Any], values: Sequence[str]) -> ColumnElement[int]:
    """Return the position of the column's value in ``values``."""
    return func.array_position(cast(literal(list(values), ARRAY(Text)), ARRAY(Text)), column)


def _is_any(column: Column[Any], value: str) -> ColumnElement[bool]:
    return func.bool_or(column == value)


_STATE = case(
    *((_is_any(_ALERT.state, s.value), s.value) for s in (AlertState.FIRING, AlertState.PENDING, AlertState.RESOLVED)),
    else_=AlertState.INACTIVE.value,
)
_SEVERITY = case(
    *((_is_any(_ALERT.severity, s.value), s.value) for s in (Severity.CRITICAL, Severity.WARNING)),
    else_=Severity.NONE.value,
)
_BY_STATE = _first_of(_ALERT.state, ["firing", "pending", "resolved", "inactive"])
_BY_SEVERITY = _first_of(_ALERT.severity, ["critical", "warning", "none"])
_IDS = bindparam("ids", type_=ARRAY(Text))
_MEMBERS = (
    select(
        _ALERT.incident_id,
        func.count().label("alert_count"),
        func.count().filter(_ALERT.ended_at.is_(None)).label("open_count"),
        func.min(_ALERT.fired_at).label("fired_at"),
        case((func.bool_or(_ALERT.ended_at.is_(None)), None), else_=func.max(_ALERT.ended_at)).label("ended_at"),
        _STATE.label("state"),
        _SEVERITY.label("severity"),
        case(
            (and_(_is_any(_ALERT.state, "firing"), _is_any(_ALERT.severity, "critical")), 3),
            (_is_any(_ALERT.state, "firing"), 2),
            (_is_any(_ALERT.state, "pending"), 1),
            (_is_any(_ALERT.state, "resolved"), 0),
            else_=-1,
        ).label("rank"),
        func.array_agg(aggregate_order_by(_ALERT.id, _BY_STATE, _BY_SEVERITY, _ALERT.began_at.desc(), _ALERT.id)).label(
            "by_weight"
        ),
        func.array_agg(aggregate_order_by(_ALERT.rule.distinct(), _ALERT.rule)).label("rules"),
    )
    .where(_ALERT.incident_id == any_(_IDS))
    .group_by(_ALERT.incident_id)
    .subquery("members")
)
_REFRESH = (
    update(alert_tables.incidents)
    .where(_INCIDENT.id == _MEMBERS.c.incident_id)
    .values(
        {name: _MEMBERS.c[name] for name in ("alert_count", "open_count", "fired_at", "ended_at", "state", "severity")}
        | {"rank": _MEMBERS.c.rank, "rules": _MEMBERS.c.rules}
        | {"lead_alert_id": _MEMBERS.c.by_weight[1]}
    )
)


async def refresh_incidents(connection: AsyncConnection, incident_ids: Sequence[str]) -> None:
    """Compute the state, the times and the counts of these incidents from their episodes."""
    if incident_ids:
        await connection.execute(_REFRESH, {"ids": list(incident_ids)})


_OPEN_COUNT = (
    select(func.count())
    .select_from(alert_tables.alerts)
    .where(_ALERT.incident_id == _INCIDENT.id, _ALERT.ended_at.is_(None))
    .scalar_subquery()
)
_OUTDATED = select(_INCIDENT.id).where(_INCIDENT.rank.between(1, 3), _INCIDENT.open_count != _OPEN_COUNT)


async def outdated_incidents(connection: AsyncConnection) -> list[str]:
    """Return the open incidents whose alerts an older version of this service has changed."""
    return list((await connection.execute(_OUTDATED)).scalars())


async def fill_cause(connection: AsyncConnection, incident_id: str, cause: Cause) -> None:
    """Store the cause of an incident whose cause was not known. Otherwise, change nothing."""
    values = {"cause": cause.kind, "vertex": clean_or_none(cause.vertex), "phase": cause.phase}
    wanted = update(alert_tables.incidents).where(_INCIDENT.id == incident_id, _INCIDENT.cause.is_(None))
    await connection.execute(wanted.values(values))


async def acknowledge(connection: AsyncConnection, incident_id: str, author: str, at: datetime) -> None:
    """Record who acknowledged an incident, and when."""
    await _change(connection, incident_id, acknowledged_at=at, acknowledged_by=clean(author))


async def claim(connection: AsyncConnection, incident_id: str, author: str | None, at: datetime) -> None:
    """Record who works on an incident, and since when. None releases the incident."""
    since = at if author is not None else None
    await _change(connection, incident_id, claimed_at=since, claimed_by=clean_or_none(author))


async def _change(connection: AsyncConnection, incident_id: str, **values: Any) -> None:
    await connection.execute(update(alert_tables.incidents).where(_INCIDENT.id == incident_id).values(values))


async def add_note(
    connection: AsyncConnection, incident_id: str, *, at: datetime, author: str, kind: NoteKind, text: str
) -> Note:
    """Store a note on an incident."""
    values = {"incident_id": incident_id, "at": at, "author": clean(author), "kind": kind.value, "text": clean(text)}
    added = insert(alert_tables.incident_notes).values(values).returning(alert_tables.incident_notes)
    return value_of(Note, (await connection.execute(added)).mappings().one())


async def drop_old_claims(connection: AsyncConnection, incident_id: str, *, kept: int) -> None:
    """Delete all but the newest ``kept`` notes that record claims and releases of an incident."""
    of_claims = (_NOTE.incident_id == incident_id, _NOTE.kind.in_([NoteKind.CLAIMED.value, NoteKind.RELEASED.value]))
    newest = select(_NOTE.id).where(*of_claims).order_by(_NOTE.id.desc()).limit(kept)
    await connection.execute(delete(alert_tables.incident_notes).where(*of_claims, _NOTE.id.not_in(newest)))


# --- reading ------------------------------------------------------------------------------------------------------


async def get_incident(connection: AsyncConnection, incident_id: str, *, is_locked: bool = False) -> IncidentRecord:
    """Return one incident. If ``is_locked``, lock its row until the transaction ends.

    Raises:
        UnknownEntityError: there is no incident with this id.
    """
    query = select(alert_tables.incidents, literal("").label("group")).where(_INCIDENT.id == incident_id)
    row = (await connection.execute(query.with_for_update() if is_locked else query)).mappings().first()
    if row is None:
        raise UnknownEntityError(kind="incident", id=incident_id)
    return _record(row)


# An earlier version stored the name of a job as ``job``.
_JOB_NAME = func.coalesce(_INCIDENT.labels["job_name"].astext, _INCIDENT.labels["job"].astext)
_GROUPS: Mapping[Grouping, ColumnElement[str]] = {
    Grouping.CAUSE: func.coalesce(_INCIDENT.cause, "undecided"),
    Grouping.JOB: func.coalesce(_JOB_NAME, ""),
    Grouping.TARGET: func.coalesce(_INCIDENT.labels["target"].astext, ""),
}
_RANKS: Mapping[AlertState, Sequence[int]] = {
    AlertState.FIRING: (2, 3),
    AlertState.PENDING: (1,),
    AlertState.RESOLVED: (0,),
    AlertState.INACTIVE: (-1,),
}
Position = tuple[str, int, datetime, str]
"""The sort key of an incident in a list: group, rank, beginning and id."""


async def list_incidents(
    connection: AsyncConnection,
    wanted: IncidentFilter,
    *,
    grouping: Grouping | None,
    after: Position | None,
    limit: int,
) -> list[IncidentRecord]:
    """Return up to ``limit`` matching incidents that follow ``after``.

    They are sorted by group, then by urgency (critical and firing, firing, pending, over), then newest first.
    """
    order = tuple_(_INCIDENT.rank, _INCIDENT.began_at, _INCIDENT.id)
    group = literal("") if grouping is None else _GROUPS[grouping]
    query = select(alert_tables.incidents, group.label("group")).where(*_conditions(wanted))
    if after is not None:
        behind = order < tuple_(literal(after[1], Integer), literal(after[2], _INCIDENT.began_at.type), after[3])
        query = query.where(behind if grouping is None else or_(group > after[0], and_(group == after[0], behind)))
    if grouping is not None:
        query = query.order_by(group)
    query = query.order_by(_INCIDENT.rank.desc(), _INCIDENT.began_at.desc(), _INCIDENT.id.desc()).limit(limit)
    return _records(await connection.execute(query))


def _conditions(wanted: IncidentFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if wanted.states:
        ranks = [rank for s in wanted.states for rank in _RANKS[s]]
        # With the bounds, the scan of the index skips the incidents before and after the wanted states.
        conditions.append(_INCIDENT.rank.between(min(ranks), max(ranks)))
        conditions.append(_INCIDENT.state.in_([s.value for s in wanted.states]))
    if wanted.severities:
        conditions.append(_INCIDENT.severity.in_([s.value for s in wanted.severities]))
    if wanted.search:
        names = (_JOB_NAME, _INCIDENT.labels["target"].astext)
        conditions.append(or_(*(name.icontains(wanted.search, autoescape=True) for name in names)))
    if wanted.job_id is not None:
        conditions.append(_INCIDENT.job_id == wanted.job_id)
    if wanted.target_id is not None:
        conditions.append(_INCIDENT.target_id == wanted.target_id)
    plain: dict[str, str] = {}
    for name, value in wanted.labels:
        if name == "alertname":
            conditions.append(literal(value, Text) == any_(_INCIDENT.rules))
        elif name == "severity":
            conditions.append(_INCIDENT.severity == value)
        elif name in ("job_name", "job"):
            conditions.append(literal(value, Text) == _JOB_NAME)
        elif plain.setdefault(name, value) != value:
            # An incident has only one value for each label, so no incident matches.
            conditions.append(literal(False))
    if plain:
        conditions.append(_INCIDENT.labels.contains(cast(literal(plain, JSONB), JSONB)))
    return conditions


def _records(rows: Result[Any]) -> list[IncidentRecord]:
    return [_record(row) for row in rows.mappings()]


def _record(row: RowMapping) -> IncidentRecord:
    return value_of(IncidentRecord, row, labels=renamed(row["labels"]))


async def notes_of(connection: AsyncConnection, incident_id: str, *, limit: int) -> list[Note]:
    """Return the newest ``limit`` notes on an incident, oldest first."""
    query = select(alert_tables.incident_notes).where(_NOTE.incident_id == incident_id)
    rows = (await connection.execute(query.order_by(_NOTE.id.desc()).limit(limit))).mappings()
    return [value_of(Note, row) for row in rows][::-1]


async def comment_counts(connection: AsyncConnection, incident_ids: Sequence[str]) -> Mapping[str, int]:
    """Return the number of comments on each of these incidents. An incident without comments is absent."""
    query = (
        select(_NOTE.incident_id, func.count())
        .where(among(_NOTE.incident_id, incident_ids), _NOTE.kind == NoteKind.COMMENT.value)
        .group_by(_NOTE.incident_id)
    )
    rows = (await connection.execute(query)).all()
    return {row[0]: row[1] for row in rows}


@dataclass(frozen=True, slots=True)
class Notified:
    """The newest message about an incident to one receiver: whether it arrived, and the last result in words."""

    incident_id: str
    receiver: str
    kind: Literal["firing", "resolved"]
    state: Literal["due", "delivered", "abandoned"]
    at: datetime
    result: str | None


async def notified_of(connection: AsyncConnection, incident_ids: Sequence[str]) -> list[Notified]:
    """Return the newest message about each of these incidents to each receiver, sorted by receiver."""
    delivery, receiver = alert_tables.deliveries.c, alert_tables.receivers.c
    at = func.coalesce(delivery.delivered_at, delivery.last_attempt_at, delivery.added_at)
    query: Select[Any] = (
        select(
            *(_ALERT.incident_id, receiver.name.label("receiver"), delivery.kind, delivery.state),
            *(at.label("at"), delivery.result),
        )
        .ext(distinct_on(_ALERT.incident_id, receiver.name))
        .join_from(alert_tables.alerts, alert_tables.deliveries, delivery.alert_id == _ALERT.id)
        .join(alert_tables.receivers, receiver.id == delivery.receiver_id)
        .where(among(_ALERT.incident_id, incident_ids))
        .order_by(_ALERT.incident_id, receiver.name, delivery.id.desc())
    )
    return [value_of(Notified, row) for row in (await connection.execute(query)).mappings()]
