"""Gives the runs of a target that is removed or paused to another target that reports them too."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Boolean, and_, bindparam, or_, select, update
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.domain.observation import NOT_LISTED, JobState
from backend.store.postgres.statements import one_of
from backend.store.schema import tables
from backend.store.schema.watch_tables import run_channels

_CHANNEL, _TARGET, _RUN = run_channels.c, tables.targets.c, tables.runs.c

_OTHERS = (
    select(run_channels)
    .ext(distinct_on(_CHANNEL.run_id))
    .join_from(run_channels, tables.targets, _TARGET.id == _CHANNEL.target_id)
    .where(
        _TARGET.removed_at.is_(None),
        or_(
            ~bindparam("is_paused", type_=Boolean),
            and_(_TARGET.is_enabled, _CHANNEL.engine_state != NOT_LISTED),
        ),
        ~one_of(_CHANNEL.target_id, "removed"),
    )
    .order_by(
        _CHANNEL.run_id,
        _TARGET.is_enabled.desc(),
        # A target that no longer lists the run does not know whether it has ended.
        _CHANNEL.engine_state == NOT_LISTED,
        and_(_CHANNEL.state == JobState.ENDED.value, _CHANNEL.ended_at.is_not(None)).desc(),
        _CHANNEL.heard_at.desc(),
    )
    .subquery("others")
)
_STATE = ("target_id", "capabilities", "state", "engine_state", "ended_at", "problems", "observed_at")
_HAND_OVER = (
    update(tables.runs)
    .where(_RUN.id == _OTHERS.c.run_id, one_of(_RUN.target_id, "removed"))
    .values({name: _OTHERS.c[name] for name in _STATE} | {"revision": _RUN.revision + 1})
)


async def hand_over(connection: AsyncConnection, removed: Iterable[str], *, is_paused: bool = False) -> None:
    """Let another channel say the state of the runs of these targets. The runs keep their job and their history.

    If the targets are only paused, another target gets their runs only if it is watched and lists them.
    """
    await connection.execute(_HAND_OVER, {"removed": list(removed), "is_paused": is_paused})
