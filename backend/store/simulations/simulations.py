"""Reads and writes simulations: the queue, from which workers take them, and the results.

Invariant: at most one worker runs a simulation, and only the worker that holds its lease writes its result. The
database's clock decides when a lease ends, because it is the same for all processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from backend.contracts.simulations import SimulationState
from backend.store.postgres.statements import among, seconds_from_now
from backend.store.schema import tables
from backend.store.schema.rows import value_of


@dataclass(frozen=True, slots=True)
class SimulationRecord:
    """A simulation. ``request`` and ``runs`` are documents of the API."""

    id: str
    request: Mapping[str, Any]
    caller: str
    state: SimulationState
    progress_ratio: float
    is_cancel_requested: bool
    reason: str | None
    queued_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    expires_at: datetime | None
    runs: Sequence[Mapping[str, Any]] | None


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """One checkpoint of a run. ``document`` is compressed JSON."""

    run: int
    checkpoint_id: int
    document: bytes


_S = tables.simulations
_C = tables.simulated_checkpoints
_UNFINISHED = (SimulationState.QUEUED.value, SimulationState.RUNNING.value)
# The queue is counted and extended under this lock, so that two requests cannot both take its last place.
_QUEUE_LOCK = 0x6C61625F71756575


async def lock_queue(connection: AsyncConnection) -> None:
    """Keep other requests from changing the queue until the transaction ends."""
    await connection.execute(select(func.pg_advisory_xact_lock(_QUEUE_LOCK)))


async def find(connection: AsyncConnection, simulation_id: str, *, at: datetime) -> SimulationRecord | None:
    """Return a simulation, or None if there is none or if it has expired."""
    is_kept = or_(_S.c.expires_at.is_(None), _S.c.expires_at > at)
    row = (await connection.execute(select(_S).where(_S.c.id == simulation_id, is_kept))).mappings().first()
    return None if row is None else value_of(SimulationRecord, row)


async def unfinished_counts(connection: AsyncConnection, caller: str) -> tuple[int, int]:
    """Return the number of queued and running simulations: of everybody, and of this caller."""
    counts = select(func.count(), func.count().filter(_S.c.caller == caller)).where(among(_S.c.state, _UNFINISHED))
    everybody, own = (await connection.execute(counts)).one()
    return everybody, own


async def position_of(connection: AsyncConnection, record: SimulationRecord) -> int:
    """Return the number of simulations that start before this queued one."""
    is_before = and_(
        _S.c.state == SimulationState.QUEUED.value,
        or_(_S.c.queued_at < record.queued_at, and_(_S.c.queued_at == record.queued_at, _S.c.id < record.id)),
    )
    return int((await connection.execute(select(func.count()).select_from(_S).where(is_before))).scalar_one())


async def enqueue(
    connection: AsyncConnection, simulation_id: str, request: Mapping[str, Any], *, caller: str, at: datetime
) -> None:
    """Add a simulation to the queue, in place of an ended one with the same id."""
    await connection.execute(delete(_S).where(_S.c.id == simulation_id))
    values = {"id": simulation_id, "request": dict(request), "caller": caller, "queued_at": at}
    await connection.execute(insert(_S).values(state=SimulationState.QUEUED.value, **values))


async def request_cancel(
    connection: AsyncConnection, simulation_id: str, *, at: datetime, expires_at: datetime
) -> None:
    """Cancel a queued simulation, and ask the worker of a running one to stop. Nothing happens to an ended one."""
    await connection.execute(
        update(_S)
        .where(_S.c.id == simulation_id, _S.c.state == SimulationState.QUEUED.value)
        .values(state=SimulationState.CANCELLED.value, ended_at=at, expires_at=expires_at)
    )
    await connection.execute(
        update(_S)
        .where(_S.c.id == simulation_id, _S.c.state == SimulationState.RUNNING.value)
        .values(is_cancel_requested=True)
    )


async def claim(connection: AsyncConnection, *, worker: str, lease_s: float, at: datetime) -> SimulationRecord | None:
    """Take the oldest queued simulation, or return None if the queue is empty."""
    oldest = (
        select(_S.c.id)
        .where(_S.c.state == SimulationState.QUEUED.value)
        .order_by(_S.c.queued_at, _S.c.id)
        .limit(1)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    taken = (
        update(_S)
        .where(_S.c.id == oldest)
        .values(
            state=SimulationState.RUNNING.value,
            worker=worker,
            lease_until=seconds_from_now("lease_s"),
            started_at=at,
            progress_ratio=0,
        )
        .returning(_S)
    )
    row = (await connection.execute(taken, {"lease_s": lease_s})).mappings().first()
    return None if row is None else value_of(SimulationRecord, row)


def _is_run_by(simulation_id: str, worker: str) -> ColumnElement[bool]:
    return and_(_S.c.id == simulation_id, _S.c.state == SimulationState.RUNNING.value, _S.c.worker == worker)


async def renew(
    connection: AsyncConnection, simulation_id: str, *, worker: str, lease_s: float, ratio: float
) -> bool | None:
    """Renew the lease and store the progress.

    Return whether a user has cancelled the simulation, or None if this worker no longer runs it.
    """
    renewed = (
        update(_S)
        .where(_is_run_by(simulation_id, worker))
        .values(lease_until=seconds_from_now("lease_s"), progress_ratio=ratio)
        .returning(_S.c.is_cancel_requested)
    )
    row = (await connection.execute(renewed, {"lease_s": lease_s})).first()
    return None if row is None else bool(row[0])


async def requeue(connection: AsyncConnection, simulation_id: str, *, worker: str) -> None:
    """Put a simulation back into the queue, because its worker stops."""
    await connection.execute(
        update(_S)
        .where(_is_run_by(simulation_id, worker))
        .values(state=SimulationState.QUEUED.value, worker=None, lease_until=None, started_at=None, progress_ratio=0)
    )


async def end(
    connection: AsyncConnection,
    simulation_id: str,
    state: SimulationState,
    *,
    worker: str,
    at: datetime,
    expires_at: datetime,
    reason: str | None = None,
    runs: Sequence[Mapping[str, Any]] | None = None,
    checkpoints: Sequence[StoredCheckpoint] = (),
) -> bool:
    """Store the end of a simulation, with its result. Return False if this worker no longer runs it."""
    values: dict[str, Any] = {"state": state.value, "ended_at": at, "expires_at": expires_at, "reason": reason}
    if state is SimulationState.COMPLETED:
        values |= {"progress_ratio": 1.0, "runs": list(runs or ())}
    ended = update(_S).where(_is_run_by(simulation_id, worker)).values(worker=None, lease_until=None, **values)
    if (await connection.execute(ended)).rowcount == 0:
        return False
    rows = [
        {"simulation_id": simulation_id, "run": c.run, "checkpoint_id": c.checkpoint_id, "document": c.document}
        for c in checkpoints
    ]
    if rows:
        await connection.execute(insert(_C), rows)
    return True


async def fail_abandoned(connection: AsyncConnection, *, at: datetime, expires_at: datetime, reason: str) -> list[str]:
    """End the simulations whose worker has not renewed its lease in time. Return their ids."""
    abandoned = (
        update(_S)
        .where(_S.c.state == SimulationState.RUNNING.value, _S.c.lease_until < func.now())
        .values(
            state=SimulationState.FAILED.value,
            reason=reason,
            ended_at=at,
            expires_at=expires_at,
            worker=None,
            lease_until=None,
        )
        .returning(_S.c.id)
    )
    return [row[0] for row in await connection.execute(abandoned)]


async def remove_expired(connection: AsyncConnection, *, at: datetime, kept_max: int) -> None:
    """Delete the simulations that have expired, and all ended ones but the ``kept_max`` newest."""
    ended = select(_S.c.id).where(_S.c.ended_at.is_not(None))
    newest = ended.order_by(_S.c.ended_at.desc(), _S.c.id).limit(kept_max)
    is_surplus = and_(_S.c.ended_at.is_not(None), _S.c.id.not_in(newest))
    await connection.execute(delete(_S).where(or_(_S.c.expires_at <= at, is_surplus)))


async def checkpoint_of(connection: AsyncConnection, simulation_id: str, run: int, checkpoint_id: int) -> bytes | None:
    """Return one checkpoint of a run as compressed JSON, or None if there is none."""
    query = select(_C.c.document).where(
        _C.c.simulation_id == simulation_id, _C.c.run == run, _C.c.checkpoint_id == checkpoint_id
    )
    return (await connection.execute(query)).scalar_one_or_none()
