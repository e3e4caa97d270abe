"""Brings declared sets of targets into the store. Sets come from a file or from a discovery.

A set replaces the earlier set of its source, in one transaction. It changes no target of another source and none that
was added by the API. A target that its set no longer contains is read until a grace time is over. Then it is removed,
and its history stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import RowMapping, Text, bindparam, delete, func, null, select, update
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.domain.declared_target import DeclaredSet, DeclaredTarget
from backend.domain.ids import TargetId
from backend.domain.target import TargetOrigin
from backend.store.postgres.connections import reading, writing
from backend.store.postgres.encoding import clean
from backend.store.postgres.statements import among, beside_key, replaced
from backend.store.schema import tables, watch_tables
from backend.store.schema.rows import value_of
from backend.store.targets.hand_over import hand_over

FORGOTTEN_AFTER: Final = timedelta(minutes=10)
"""A source that no collector looked at for this long declares nothing any more. Its targets are free for others."""
_NOTED_EVERY: Final = timedelta(seconds=25)
"""A collector notes the problem of its file more often than this while the problem lasts."""


@dataclass(frozen=True, slots=True)
class RefusedTarget:
    """A declared target that was not taken, and why, as a sentence."""

    url: str
    reason: str


@dataclass(frozen=True, slots=True)
class TargetSource:
    """A source of declared targets. ``place`` is where it is read, such as the path of a file.

    ``read_at`` is when it was read without a problem, ``seen_at`` when a collector last looked. ``problem`` says why
    the newest content was not taken, so that the targets are those of ``read_at``. ``left_out`` has a sentence for each
    entry that is no target, and ``history_problem`` says why the history is not read. Other targets are current then.
    """

    source: str
    place: str
    target_count: int | None
    read_at: datetime | None
    seen_at: datetime
    problem: str | None
    problem_since: datetime | None
    left_out: str | None
    history_problem: str | None


_TARGET = tables.targets.c
_SOURCE = watch_tables.target_sources.c

_KNOWN = select(tables.targets)
_NEW = pg_insert(tables.targets)
_ADD = _NEW.on_conflict_do_update(
    index_elements=[_TARGET.url],
    set_=replaced(_NEW, beside_key(tables.targets)),
    where=_TARGET.removed_at.is_not(None),
)
_CHANGE = update(tables.targets).where(_TARGET.id == bindparam("target"))
_MISS = (
    update(tables.targets)
    .where(_TARGET.declared_by == bindparam("source"), _TARGET.removed_at.is_(None), _TARGET.missing_since.is_(None))
    .values(missing_since=bindparam("at"))
)
_PRESENT = select(_TARGET.url).where(
    _TARGET.declared_by == bindparam("source"), _TARGET.removed_at.is_(None), _TARGET.missing_since.is_(None)
)
_END = (
    update(tables.targets)
    .where(_TARGET.missing_since <= bindparam("before"), _TARGET.removed_at.is_(None))
    .values(removed_at=bindparam("at"), missing_since=null())
    .returning(_TARGET.id)
)
_NEW_SOURCE = pg_insert(watch_tables.target_sources)
_READ = _NEW_SOURCE.on_conflict_do_update(
    index_elements=[_SOURCE.source], set_=replaced(_NEW_SOURCE, beside_key(watch_tables.target_sources))
)
_DROP = delete(watch_tables.target_sources).where(_SOURCE.source == bindparam("old")).returning(_SOURCE.read_at)
_GIVE = (
    update(tables.targets)
    .where(_TARGET.declared_by == bindparam("old"))
    .values(declared_by=bindparam("new", type_=Text))
)
_SEEN = update(watch_tables.target_sources).where(_SOURCE.source == bindparam("of"))
_AT = select(_SOURCE.source).where(_SOURCE.place == bindparam("where")).order_by(_SOURCE.seen_at.desc()).limit(1)
_BELOW = (
    select(_SOURCE.source)
    .where(func.starts_with(_SOURCE.source, bindparam("prefix", type_=Text)))
    .order_by(_SOURCE.source)
)
_ROW = select(_SOURCE.place, _SOURCE.problem, _SOURCE.seen_at).where(_SOURCE.source == bindparam("of"))
_ALIVE = select(_SOURCE.source).where(_SOURCE.seen_at >= bindparam("since"))
_SOURCES = select(watch_tables.target_sources).order_by(_SOURCE.source)


class DeclaredTargets:
    """Writes declared sets to PostgreSQL. Each call is a transaction of its own."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def apply(self, declared: DeclaredSet, *, place: str, at: datetime) -> tuple[RefusedTarget, ...]:
        """Make the targets of a source those of ``declared``. Return those that others watch already.

        Raises:
            StoreUnavailableError: PostgreSQL does not respond; nothing is changed.
        """
        async with writing(self._engine) as connection:
            await _note_read(connection, declared, place, at)
            urls = [t.url for t in declared.targets]
            # The row of the source is locked from here on, so two collectors with one file do not meet below.
            rows = (await connection.execute(_KNOWN.where(among(_TARGET.url, urls)))).mappings()
            known = {row["url"]: row for row in rows}
            # A file that got another name while no collector ran takes its targets from the old name.
            owners = {None, *await connection.scalars(_ALIVE, {"since": at - FORGOTTEN_AFTER})} - {declared.source}
            refused, new = [], []
            # All writers lock the rows in the same order, so that two sources with the same addresses cannot deadlock.
            for target in sorted(declared.targets, key=lambda t: t.id):
                row = known.get(target.url)
                if row is None or row["removed_at"] is not None:
                    new.append(_values(declared, target) | {"id": target.id, "url": target.url, "added_at": at})
                elif row["declared_by"] in owners:
                    refused.append(RefusedTarget(target.url, _owner(row)))
                else:
                    await _change(connection, declared, target, row)
            if new:
                await connection.execute(_ADD, new)
            missing = _MISS.where(~among(_TARGET.url, urls)) if urls else _MISS
            if declared.unread:
                namespace = func.coalesce(_TARGET.labels["namespace"].astext, "")
                missing = missing.where(namespace.not_in(declared.unread))
            await connection.execute(missing, {"source": declared.source, "at": at})
            places = {url: place for place, url in enumerate(urls)}
            return tuple(sorted(refused, key=lambda r: places[r.url]))

    async def differs(self, source: str, urls: Sequence[str]) -> bool:
        """Return whether the newest set of ``source`` that is stored has other targets than ``urls``.

        Raises:
            StoreUnavailableError: PostgreSQL does not respond.
        """
        async with reading(self._engine) as connection:
            stored = await connection.scalars(_PRESENT, {"source": source})
            return set(stored) != set(urls)

    async def rename(self, old: str, new: str) -> None:
        """Give the targets of the source ``old`` to ``new``. If ``old`` was never read, only its problem is forgotten.

        Raises:
            StoreUnavailableError: PostgreSQL does not respond.
        """
        async with writing(self._engine) as connection:
            dropped = await connection.execute(_DROP, {"old": old})
            if any(row[0] is not None for row in dropped):
                await connection.execute(_GIVE, {"old": old, "new": new})

    async def sources_below(self, prefix: str) -> list[str]:
        """Return the sources whose names begin with ``prefix``.

        Raises:
            StoreUnavailableError: PostgreSQL does not respond.
        """
        async with reading(self._engine) as connection:
            return list(await connection.scalars(_BELOW, {"prefix": prefix}))

    async def source_at(self, place: str) -> str | None:
        """Return the source that was read at ``place``, or None. If there are several, the one seen last.

        Raises:
            StoreUnavailableError: PostgreSQL does not respond.
        """
        async with reading(self._engine) as connection:
            source: str | None = await connection.scalar(_AT.where(_SOURCE.read_at.is_not(None)), {"where": place})
            return source

    async def forget_problem(self, source: str) -> None:
        """Forget a problem that was noted for ``source`` by mistake. Its targets stay.

        Raises:
            StoreUnavailableError: PostgreSQL does not respond.
        """
        async with writing(self._engine) as connection:
            await connection.execute(_SEEN.values(problem=null(), problem_since=null()), {"of": source})
            unread = delete(watch_tables.target_sources).where(_SOURCE.source == bindparam("of"))
            await connection.execute(unread.where(_SOURCE.read_at.is_(None)), {"of": source})

    async def note_seen(self, source: str, *, place: str, at: datetime) -> str | None:
        """Note that the source was looked at, and that its content at ``place`` is good.

        A problem is forgotten if its collector notes it no longer. Return the place where another collector reads the
        source, if it is another one.

        Raises:
            StoreUnavailableError: PostgreSQL does not respond.
        """
        async with writing(self._engine) as connection:
            known = (await connection.execute(_ROW.with_for_update(), {"of": source})).one_or_none()
            is_noted = known is not None and at - known.seen_at < _NOTED_EVERY
            if known is None or (known.problem is not None and is_noted):
                return None
            good = _SEEN.values(seen_at=at, place=place, problem=null(), problem_since=null())
            await connection.execute(good, {"of": source})
            return known.place if is_noted and known.place != place else None

    async def note_problem(self, source: str, *, place: str, problem: str, at: datetime) -> None:
        """Note why the newest content of a source was not taken. Its targets stay.

        Raises:
            StoreUnavailableError: PostgreSQL does not respond.
        """
        row = {"source": source, "place": place, "seen_at": at, "problem": clean(problem), "problem_since": at}
        noted = _NEW_SOURCE.on_conflict_do_update(
            index_elements=[_SOURCE.source],
            set_={
                "place": _NEW_SOURCE.excluded.place,
                "seen_at": _NEW_SOURCE.excluded.seen_at,
                "problem": _NEW_SOURCE.excluded.problem,
                "problem_since": func.coalesce(_SOURCE.problem_since, _NEW_SOURCE.excluded.problem_since),
            },
        )
        async with writing(self._engine) as connection:
            await connection.execute(noted, row)

    async def note_gaps(self, source: str, *, read_at: datetime, left_out: str | None, history: str | None) -> None:
        """Note when the list of a source was last read, what it left out, and why its history is not read.

        Raises:
            StoreUnavailableError: PostgreSQL does not respond.
        """
        gaps = {"left_out": left_out and clean(left_out), "history_problem": history and clean(history)}
        newest = func.greatest(_SOURCE.read_at, read_at)
        async with writing(self._engine) as connection:
            await connection.execute(_SEEN.values(read_at=newest, **gaps), {"of": source})

    async def end_missing(self, source: str, *, grace_s: float, at: datetime) -> list[TargetId]:
        """End the targets of the source that are missing for longer than ``grace_s``. Return them.

        Raises:
            StoreUnavailableError: PostgreSQL does not respond.
        """
        async with writing(self._engine) as connection:
            before = at - timedelta(seconds=grace_s)
            ended = _END.where(_TARGET.declared_by == bindparam("source"))
            rows = await connection.execute(ended, {"source": source, "before": before, "at": at})
            target_ids = [TargetId(row[0]) for row in rows]
            if target_ids:
                health = tables.target_health
                await connection.execute(delete(health).where(among(health.c.target_id, target_ids)))
                await hand_over(connection, target_ids)
            return target_ids


async def list_sources(connection: AsyncConnection) -> list[TargetSource]:
    """Return all sources by name."""
    return [value_of(TargetSource, row) for row in (await connection.execute(_SOURCES)).mappings()]


async def _note_read(connection: AsyncConnection, declared: DeclaredSet, place: str, at: datetime) -> None:
    row = {"source": declared.source, "place": place, "target_count": len(declared.targets)}
    await connection.execute(_READ, row | {"read_at": at, "seen_at": at})


async def _change(
    connection: AsyncConnection, declared: DeclaredSet, target: DeclaredTarget, known: RowMapping
) -> None:
    """Change what is stored of a target to what is declared."""
    wanted = _values(declared, target) | {"missing_since": None}
    changed = {name: value for name, value in wanted.items() if known[name] != value}
    if changed:
        await connection.execute(_CHANGE, {"target": target.id} | changed)


def _owner(known: Mapping[Any, Any]) -> str:
    shown = f"is already watched as target {known['id']}"
    if known["declared_by"] is not None:
        return f"{shown}, which {known['declared_by']} declares"
    if known["origin"] == TargetOrigin.BUILT_IN.value:
        return f"{shown}, the built-in one"
    return f"{shown}, which was added by the API; remove it there, and it is read as declared here"


def _values(declared: DeclaredSet, target: DeclaredTarget) -> dict[str, Any]:
    """Return the columns that the declaration decides."""
    return {
        "name": clean(target.name),
        "kind": target.kind,
        "labels": {clean(k): clean(v) for k, v in target.labels.items()},
        "interval_s": target.interval_s,
        "ui_url": target.ui_url,
        "link_templates": [{"name": clean(link.name), "url": clean(link.url)} for link in target.links],
        "is_enabled": not target.is_paused,
        "connection": target.connection.document(),
        "origin": declared.origin.value,
        "declared_by": declared.source,
    }
