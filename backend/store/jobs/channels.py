"""Reads which targets report a run, and what each of them reported of its batches. ``joining`` writes both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.channel import BatchReport, Channel
from backend.domain.ids import TargetId
from backend.domain.observation import JobState
from backend.domain.stored_form import engine_from
from backend.domain.web_ui import WebUi
from backend.store.checkpoints.reader import CheckpointPlace, of_places, place_values
from backend.store.jobs.joining import reports_in
from backend.store.postgres.statements import one_of
from backend.store.schema import tables
from backend.store.schema.rows import value_of
from backend.store.schema.watch_tables import run_channels

_CHANNEL, _TARGET = run_channels.c, tables.targets.c
_RUNS = tables.runs


@dataclass(frozen=True, slots=True)
class ChannelRecord:
    """A target that reports a run. ``heard_at`` is when its newest report arrived, on our clock."""

    target_id: str
    target_name: str
    channel: Channel
    state: JobState
    heard_at: datetime
    is_watched: bool


_OF_RUN = (
    select(run_channels, _TARGET.name.label("target_name"), _TARGET.is_enabled, _TARGET.removed_at)
    .join_from(run_channels, tables.targets, _TARGET.id == _CHANNEL.target_id)
    .where(_CHANNEL.run_id == bindparam("run"))
)


async def channels_of(connection: AsyncConnection, run_id: str) -> list[ChannelRecord]:
    """Return the targets that report a run. The list is empty if it has only one channel."""
    rows = (await connection.execute(_OF_RUN, {"run": run_id})).mappings()
    found = [
        value_of(
            ChannelRecord,
            row,
            channel=engine_from(row["capabilities"], "", None).channel or Channel.OTHER,
            state=JobState(row["state"]),
            is_watched=row["is_enabled"] and row["removed_at"] is None,
        )
        for row in rows
    ]
    return sorted(found, key=lambda c: (c.channel.rank, c.target_name))


async def web_ui_of(connection: AsyncConnection, run_id: str, *, has_ended: bool) -> tuple[TargetId, WebUi] | None:
    """Return the target whose web UI has the pages of a run that several targets report, or None if none has.

    A driver has the most recent pages while the run is open, and none after its end.
    """
    found = []
    for row in (await connection.execute(_OF_RUN, {"run": run_id})).mappings():
        engine = engine_from(row["capabilities"], "", None)
        if engine.web_ui is not None and row["removed_at"] is None:
            is_last = (engine.channel is Channel.DRIVER) is has_ended
            found.append((not row["is_enabled"], is_last, row["target_name"], row["target_id"], engine.web_ui))
    if not found:
        return None
    *_, target_id, web_ui = min(found)
    return TargetId(target_id), web_ui


_UNHEARD = (
    select(_CHANNEL.run_id, _CHANNEL.target_id, _CHANNEL.capabilities, _CHANNEL.heard_at)
    .join_from(run_channels, _RUNS, _RUNS.c.id == _CHANNEL.run_id)
    .where(
        one_of(_CHANNEL.run_id, "runs"),
        _RUNS.c.target_id != _CHANNEL.target_id,
        _RUNS.c.state != JobState.ENDED.value,
        _CHANNEL.state != JobState.ENDED.value,
        _CHANNEL.heard_at < bindparam("before"),
    )
)


async def unheard_listeners(
    connection: AsyncConnection, run_ids: Iterable[str], before: datetime
) -> list[tuple[str, str, datetime]]:
    """Return the listeners that were last heard before a time, of those of these runs that are open.

    Each is the id of its run, that of its target, and when it was last heard on our clock. A listener is left out if
    the run has the state that it reports.
    """
    rows = (await connection.execute(_UNHEARD, {"runs": list(run_ids), "before": before})).all()
    return [
        (run, target, heard_at) for run, target, stored, heard_at in rows if engine_from(stored, "", None).is_pushed
    ]


_REPORTS = of_places(tables.micro_batches).where(tables.micro_batches.c.reports.is_not(None))


async def reports_of(
    connection: AsyncConnection, places: Iterable[CheckpointPlace]
) -> Mapping[CheckpointPlace, Sequence[BatchReport]]:
    """Return what the channels reported of these batches. A batch that only one channel has reported is absent."""
    keys = list(places)
    if not keys:
        return {}
    rows = (await connection.execute(_REPORTS, place_values(keys))).mappings()
    return {value_of(CheckpointPlace, row): reports_in(row["reports"]) for row in rows}


_NAMES = select(_TARGET.id, _TARGET.name).where(one_of(_TARGET.id, "targets"))


async def names_of(connection: AsyncConnection, target_ids: Iterable[str]) -> Mapping[str, str]:
    """Return the names of those targets that are stored."""
    ids = sorted(set(target_ids))
    rows = (await connection.execute(_NAMES, {"targets": ids})).all() if ids else []
    return {row[0]: row[1] for row in rows}
