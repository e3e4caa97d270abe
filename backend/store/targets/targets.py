"""Reads and writes targets, and reads their health.

A target's id is derived from its normalised URL, so adding the same address twice yields one target. A removed target
keeps its row while history refers to it. Adding its URL again restores it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping, bindparam, case, delete, func, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.domain.connection import PLAIN, ConnectionOptions
from backend.domain.errors import ConflictError, UnknownEntityError
from backend.domain.ids import TargetId, target_id
from backend.domain.links import version_of
from backend.domain.target import TargetOrigin, TargetState
from backend.store.postgres.connections import reading, writing
from backend.store.postgres.encoding import clean
from backend.store.postgres.statements import beside_key, replaced
from backend.store.schema import tables
from backend.store.schema.rows import row_of, value_of
from backend.store.targets.hand_over import hand_over


@dataclass(frozen=True, slots=True)
class WatchedTarget:
    """A target that a collector must read. ``kind`` names the collector's entry point, such as ``flink``."""

    id: TargetId
    url: str
    name: str
    kind: str
    labels: Mapping[str, str]
    origin: TargetOrigin
    connection: ConnectionOptions = PLAIN
    interval_s: float | None = None
    """The time between two polls; None means that of the collector."""


@dataclass(frozen=True, slots=True)
class TargetCost:
    """The cost of polling a target, as means over about the last 20 polls."""

    requests_per_poll: float
    bytes_per_poll: float
    poll_duration_ms: float
    poll_interval_s: float | None
    set_interval_s: float | None = None
    """The interval that the collector is set to."""


@dataclass(frozen=True, slots=True)
class TargetShed:
    """What the collectors could not read in time since the target was added, and when that happened last."""

    shed_checkpoint_count: int
    shed_detail_count: int
    last_shed_at: datetime


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """A target with the outcome of its latest polls."""

    id: TargetId
    url: str
    name: str
    kind: str
    labels: Mapping[str, str]
    origin: TargetOrigin
    is_enabled: bool
    added_at: datetime
    state: TargetState = TargetState.PENDING
    """Never ``SILENT`` in the store. ``services.jobs.silent_jobs`` derives that state from the last event's time."""
    reason: str | None = None
    since: datetime | None = None
    last_success_at: datetime | None = None
    last_attempt_at: datetime | None = None
    engine: str | None = None
    engine_version: str | None = None
    cost: TargetCost | None = None
    rejected_count: int = 0
    shed: TargetShed | None = None
    ui_url: str | None = None
    """The address of the engine's web UI as browsers reach it. None: the target's own address."""
    link_templates: Sequence[Mapping[str, str]] = ()
    """The links out of Barrierscope, each with ``name`` and ``url``."""
    connection: ConnectionOptions = PLAIN
    interval_s: float | None = None
    declared_by: str | None = None
    """The source that declares the target. None: no file and no discovery does."""
    missing_since: datetime | None = None
    """The instant from which on the source no longer declared the target. The target ends soon after."""

    @property
    def version(self) -> str:
        """The version of what a user may change: another text if any of it is another."""
        links = [[link["name"], link["url"]] for link in self.link_templates]
        options = self.connection.document()
        stated = [self.name, dict(self.labels), self.is_enabled, self.ui_url, links, options, self.interval_s]
        return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class WantedTargets:
    """The filters of a list of targets. An absent value does not restrict it.

    ``search`` is a part of the name or the address, in any case of letters.
    """

    search: str | None = None
    origin: TargetOrigin | None = None


@dataclass(frozen=True, slots=True)
class NewTarget:
    """A target to add. The caller must have normalised ``url``."""

    url: str
    name: str
    origin: TargetOrigin
    kind: str = "flink"
    labels: Mapping[str, str] = field(default_factory=dict)
    ui_url: str | None = None
    link_templates: Sequence[Mapping[str, str]] = ()
    connection: ConnectionOptions = PLAIN
    interval_s: float | None = None
    is_enabled: bool = True

    @property
    def id(self) -> TargetId:
        """The target's id, derived from its URL."""
        return target_id(url=self.url)


_TARGET = tables.targets.c
_IS_KEPT = _TARGET.removed_at.is_(None)
_IS_OURS = _TARGET.origin == TargetOrigin.BUILT_IN.value

_RECORDS = (
    select(tables.targets, tables.target_health)
    .join_from(tables.targets, tables.target_health, isouter=True)
    .where(_IS_KEPT)
    .order_by(_TARGET.added_at, _TARGET.id)
)
_RECORD = _RECORDS.where(_TARGET.id == bindparam("target"))
_RECORD_OF_URL = _RECORDS.where(_TARGET.url == bindparam("url"))
_COUNT_OF_ORIGIN = select(func.count()).where(_TARGET.origin == bindparam("origin"), _IS_KEPT)
_NEW = pg_insert(tables.targets)
_ADD = _NEW.on_conflict_do_update(
    index_elements=[_TARGET.url],
    # The proposed row has the defaults of all columns, so a target that is added again is enabled and not removed.
    # The live runtime stays ours at its address: it gets our token again, and its jobs keep their history.
    set_=replaced(_NEW, beside_key(tables.targets))
    | {
        "origin": case((_IS_OURS, _TARGET.origin), else_=_NEW.excluded.origin),
        "labels": case((_IS_OURS, _TARGET.labels), else_=_NEW.excluded.labels),
    },
    where=_TARGET.removed_at.is_not(None),
).returning(_TARGET.id)
# The caller passes the values to set under the names of their columns.
_CHANGE = update(tables.targets).where(_TARGET.id == bindparam("target"), _IS_KEPT).returning(_TARGET.id)
_LOCKED = _RECORD.with_for_update(of=tables.targets)
# An old address may have a password before its @, which nobody may find out by a search. A user alone is shown.
_SHOWN_URL = func.regexp_replace(_TARGET.url, "//([^/@:]*):[^/]*@", r"//\1@")
_FORGET_HEALTH = delete(tables.target_health).where(tables.target_health.c.target_id == bindparam("target"))


class TargetRepository:
    """Reads and writes targets in PostgreSQL. Each call is a transaction of its own."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def list_all(self) -> list[TargetRecord]:
        """Return every target that is not removed, oldest first."""
        async with reading(self._engine) as connection:
            return [_record(row) for row in (await connection.execute(_RECORDS)).mappings()]

    async def list_page(
        self, wanted: WantedTargets, *, after: tuple[datetime, str] | None, limit: int
    ) -> list[TargetRecord]:
        """Return at most ``limit`` targets that are not removed, oldest first, from the one behind ``after`` on.

        ``after`` has the instant at which a target was added, and its id.
        """
        statement = _RECORDS.limit(limit)
        if after is not None:
            statement = statement.where(tuple_(_TARGET.added_at, _TARGET.id) > after)
        if wanted.origin is not None:
            statement = statement.where(_TARGET.origin == wanted.origin.value)
        if wanted.search:
            text = wanted.search
            is_found = (_TARGET.name.icontains(text, autoescape=True), _SHOWN_URL.icontains(text, autoescape=True))
            statement = statement.where(or_(*is_found))
        async with reading(self._engine) as connection:
            return [_record(row) for row in (await connection.execute(statement)).mappings()]

    async def get(self, target_id: str) -> TargetRecord:
        """Return one target.

        Raises:
            UnknownEntityError: there is no target with this id.
        """
        async with reading(self._engine) as connection:
            return await _get(connection, target_id)

    async def add(self, new: NewTarget, *, at: datetime) -> TargetRecord:
        """Add a target, or restore a removed one.

        Raises:
            ConflictError: a target with this URL is already watched.
        """
        row = row_of(
            tables.targets,
            new,
            id=new.id,
            labels=_clean(new.labels),
            link_templates=[_clean(link) for link in new.link_templates],
            connection=new.connection.document(),
            added_at=at,
        )
        async with writing(self._engine) as connection:
            if (await connection.execute(_ADD, row)).first() is None:
                # The text before the @ may contain a password, so it is not shown.
                shown = new.url.rpartition("@")[2]
                raise ConflictError(f"{shown} is already watched as target {new.id}", kind="target-exists")
            return await _get(connection, new.id)

    async def get_or_add(self, new: NewTarget, *, at: datetime, most: int = sys.maxsize) -> TargetRecord:
        """Return the target with this URL, unchanged. If there is none, add or restore it.

        Raises:
            ConflictError: there is none, and ``most`` targets of its origin exist.
        """
        async with reading(self._engine) as connection:
            row = (await connection.execute(_RECORD_OF_URL, {"url": new.url})).mappings().first()
            if row is not None:
                return _record(row)
            count = await connection.scalar(_COUNT_OF_ORIGIN, {"origin": new.origin.value}) or 0
        if count >= most:
            raise ConflictError(
                f"there are {most} targets by {new.origin.value} already, so {new.name!r} is not added; keep its name"
                " over restarts, and remove the targets that are gone",
                kind="too-many-targets",
            )
        try:
            return await self.add(new, at=at)
        except ConflictError:
            # Another process added the target first, so that target is returned.
            return await self.get(new.id)

    async def change(
        self,
        target_id: str,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        is_enabled: bool | None = None,
        ui_url: str | None = None,
        link_templates: Sequence[Mapping[str, str]] | None = None,
        links_version: str | None = None,
        options: ConnectionOptions | None = None,
        interval_s: float | None = None,
        version: str | None = None,
    ) -> TargetRecord:
        """Change the fields that are not None. An empty ``ui_url`` removes the address of the web UI.

        An ``interval_s`` of 0 means that of the collector again.

        Raises:
            UnknownEntityError: there is no target with this id.
            ConflictError: the target no longer has this ``version``, or its links no longer have ``links_version``;
                nothing is changed.
        """
        given: dict[str, Any] = {
            "name": None if name is None else clean(name),
            "labels": None if labels is None else _clean(labels),
            "is_enabled": is_enabled,
            "connection": None if options is None else options.document(),
        }
        changed = {column: value for column, value in given.items() if value is not None}
        if ui_url is not None:
            changed["ui_url"] = clean(ui_url) or None
        if interval_s is not None:
            changed["interval_s"] = interval_s or None
        if link_templates is not None:
            changed["link_templates"] = [_clean(link) for link in link_templates]
        async with writing(self._engine) as connection:
            if version is not None or links_version is not None:
                await _check_versions(connection, target_id, version, links_version)
            if changed:
                await connection.execute(_CHANGE, {"target": target_id} | changed)
            if is_enabled is False:
                await hand_over(connection, [target_id], is_paused=True)
            return await _get(connection, target_id)

    async def remove(
        self, target_id: str, *, at: datetime, is_foreign: bool = False, version: str | None = None
    ) -> None:
        """Stop watching a target. Its history stays until retention deletes it.

        If ``is_foreign``, the live runtime is no longer at this address. If it is added again, it is a target like any.

        Raises:
            UnknownEntityError: there is no target with this id.
            ConflictError: the target no longer has this ``version``; it stays.
        """
        async with writing(self._engine) as connection:
            if version is not None:
                again = "look at it again and remove it then"
                await _check_versions(connection, target_id, version, None, again=again)
            changes = {"removed_at": at} | ({"origin": TargetOrigin.API.value} if is_foreign else {})
            if (await connection.execute(_CHANGE, {"target": target_id} | changes)).first() is None:
                raise UnknownEntityError(kind="target", id=target_id)
            # The health is deleted, because it would be outdated if the target is added again.
            await connection.execute(_FORGET_HEALTH, {"target": target_id})
            await hand_over(connection, [target_id])


async def _get(connection: AsyncConnection, target_id: str) -> TargetRecord:
    row = (await connection.execute(_RECORD, {"target": target_id})).mappings().first()
    if row is None:
        raise UnknownEntityError(kind="target", id=target_id)
    return _record(row)


async def _check_versions(
    connection: AsyncConnection,
    target_id: str,
    version: str | None,
    links_version: str | None,
    *,
    again: str = "read it again and repeat the change",
) -> None:
    """Lock the target until the end of the transaction, and check that nobody changed it.

    ``again`` says what to do if somebody did.
    """
    row = (await connection.execute(_LOCKED, {"target": target_id})).mappings().first()
    if row is None:
        return
    if version not in (None, _record(row).version):
        text = f"the target {row['name']} was changed meanwhile; {again}"
        raise ConflictError(text, kind="version-conflict")
    if links_version not in (None, version_of(row["ui_url"], row["link_templates"])):
        text = "the links of this target were changed meanwhile; open them again and repeat the change"
        raise ConflictError(text, kind="version-conflict")


def _clean(labels: Mapping[str, str]) -> dict[str, str]:
    return {clean(k): clean(v) for k, v in labels.items()}


def _record(row: RowMapping) -> TargetRecord:
    return value_of(
        TargetRecord,
        row,
        state=_state(row),
        connection=ConnectionOptions.of(row["connection"]),
        cost=None if row["requests_per_poll"] is None else value_of(TargetCost, row),
        rejected_count=row["rejected_count"] or 0,
        shed=None if row["last_shed_at"] is None else value_of(TargetShed, row),
    )


def _state(row: RowMapping) -> TargetState:
    if not row["is_enabled"]:
        return TargetState.PAUSED
    state = TargetState(row["state"] or TargetState.PENDING)
    return TargetState.PARTIAL if state is TargetState.OK and row["reason"] is not None else state
