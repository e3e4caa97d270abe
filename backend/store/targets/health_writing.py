"""The statements that write the health of targets: whether they answer, what a poll costs, and what was not read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Double,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    null,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import insert as pg_insert

from backend.domain.observation import NOTHING_SHED, JobState, Observation
from backend.domain.target import TargetState
from backend.store.postgres.encoding import clean
from backend.store.postgres.statements import bound, sql_of
from backend.store.schema import tables

REASON_MAX = 500
_NAMES_MAX = 3
# The mean costs of a poll cover about this many polls: the newest poll has the weight 1/20.
_COST_POLLS: ColumnElement[float] = literal_column("20", Double)


_TARGET = tables.targets.c
_HEALTH = tables.target_health.c


def _report_failure() -> bytes:
    at = bindparam("at", type_=tables.Instant)
    values: dict[str, ColumnElement[Any]] = {
        "target_id": _TARGET.id,
        "state": bindparam("state", type_=Text),
        "reason": bindparam("reason", type_=Text),
        "since": at,
        "last_attempt_at": at,
    }
    # If the target is removed, no row is written. The missing row shows ``_write_next`` that the target is removed.
    kept = select(*values.values()).where(_TARGET.id == bindparam("id"), _TARGET.removed_at.is_(None))
    insert = pg_insert(tables.target_health).from_select(list(values), kept)
    new = insert.excluded
    return sql_of(
        insert.on_conflict_do_update(
            index_elements=tables.target_health.primary_key,
            set_={
                "state": new.state,
                "reason": new.reason,
                "since": case((_HEALTH.state == new.state, _HEALTH.since), else_=new.since),
                "last_attempt_at": new.last_attempt_at,
            },
            where=new.last_attempt_at >= _HEALTH.last_attempt_at,
        )
    )


_MEASURED = [_HEALTH.requests_per_poll, _HEALTH.bytes_per_poll, _HEALTH.poll_duration_ms]
_IS_OK = literal_column(f"'{TargetState.OK}'", Text)
_SHED = [_HEALTH.rejected_count, _HEALTH.shed_checkpoint_count, _HEALTH.shed_detail_count]
_REPORTED = [
    *(_HEALTH.reason, _HEALTH.engine, _HEALTH.engine_version),
    *(*_MEASURED, *_SHED),
    *(_HEALTH.clock_offset_ms, _HEALTH.set_interval_s),
]
_AT = bindparam("at", type_=tables.Instant)


def _success(new: Mapping[str, ColumnElement[Any]], at: ColumnElement[datetime]) -> dict[str, ColumnElement[Any]]:
    """Return the new values of the health of a target whose poll at ``at`` had the values ``new``."""
    seconds = cast(func.extract("EPOCH", at - _HEALTH.last_attempt_at), Double)
    # A gap in which no collector ran is not a poll interval, so the value is capped. The cap grows with the mean, so
    # that the mean can still reach a longer interval if one is configured.
    interval_s = func.least(seconds, func.greatest(literal_column("60"), literal_column("5") * _HEALTH.poll_interval_s))
    is_as_before = and_(_HEALTH.state == _IS_OK, _HEALTH.reason.is_(null()) == cast(new["reason"], Text).is_(null()))
    changes: dict[str, ColumnElement[Any]] = {
        "state": _IS_OK,
        "reason": new["reason"],
        "since": case((is_as_before, _HEALTH.since), else_=at),
        "last_success_at": at,
        "last_attempt_at": at,
        "engine": new["engine"],
        "engine_version": func.coalesce(new["engine_version"], _HEALTH.engine_version),
        "poll_count": _HEALTH.poll_count + literal_column("1"),
        "poll_interval_s": func.coalesce(
            _HEALTH.poll_interval_s + (interval_s - _HEALTH.poll_interval_s) / _COST_POLLS, seconds
        ),
        "set_interval_s": func.coalesce(new["set_interval_s"], _HEALTH.set_interval_s),
        "last_shed_at": func.coalesce(new["last_shed_at"], _HEALTH.last_shed_at),
        "clock_offset_ms": func.coalesce(new["clock_offset_ms"], _HEALTH.clock_offset_ms),
    }
    for column in _SHED:
        changes[column.name] = column + new[column.name]
    # This is the plain mean over the first polls, and then an exponentially weighted mean.
    weight = func.least(_HEALTH.poll_count + literal_column("1"), _COST_POLLS, type_=Double)
    for column in _MEASURED:
        value = new[column.name]
        changes[column.name] = func.coalesce(column + (value - column) / weight, value)
    return changes


def _report_success() -> bytes:
    insert = pg_insert(tables.target_health).values(
        bound([_HEALTH.target_id, *_REPORTED, _HEALTH.last_shed_at])
        | {"state": _IS_OK, "since": _AT, "last_success_at": _AT, "last_attempt_at": _AT}
        | {"poll_count": literal_column("1")}
    )
    new = insert.excluded
    return sql_of(
        insert.on_conflict_do_update(
            index_elements=tables.target_health.primary_key,
            set_=_success({c.name: c for c in new}, new.last_attempt_at),
            where=new.last_attempt_at > _HEALTH.last_attempt_at,
        )
    )


REPORT_NEXT_SUCCESS = sql_of(
    update(tables.target_health)
    .where(_HEALTH.target_id == bindparam("target_id"), _HEALTH.last_attempt_at < _AT)
    .values(_success(bound([*_REPORTED, _HEALTH.last_shed_at]), _AT))
)
REPORT_FAILURE = _report_failure()
REPORT_SUCCESS = _report_success()


def health_row(observation: Observation, rejected_count: int) -> dict[str, Any]:
    """Return the values of a successful poll, of which ``rejected_count`` checkpoints were refused."""
    cost, shed = observation.cost, observation.shed_in_all
    at = observation.received_at or observation.observed_at
    return {
        "target_id": observation.target_id,
        "at": at,
        "reason": _reason(observation),
        "engine": clean(observation.engine.kind),
        "engine_version": clean(observation.engine_version) if observation.engine_version else None,
        "requests_per_poll": float(cost.request_count),
        "bytes_per_poll": float(cost.response_bytes),
        "poll_duration_ms": float(cost.duration_ms),
        "rejected_count": rejected_count,
        "shed_checkpoint_count": shed.checkpoint_count,
        "shed_detail_count": shed.detail_count,
        "last_shed_at": at if shed != NOTHING_SHED else None,
        "clock_offset_ms": observation.clock_offset_ms,
        "set_interval_s": observation.set_interval_s,
    }


def _reason(observation: Observation) -> str | None:
    """Return what was not read of the target, or None if everything was."""
    found = [reason for reason in (_unread_reason(observation), observation.left_out) if reason]
    return clean("; ".join(found))[:REASON_MAX] or None


def _unread_reason(observation: Observation) -> str | None:
    """Return why some jobs of the target cannot be read, or None if all of them can."""
    unread = [job for job in observation.jobs if job.state is JobState.UNREADABLE]
    if not unread:
        return None
    names = [job.name for job in unread[:_NAMES_MAX]]
    more = f" and {len(unread) - len(names)} more" if len(unread) > len(names) else ""
    why = next((f": {problem}" for job in unread for problem in job.problems), "")
    return f"{', '.join(names)}{more} cannot be read{why}"
