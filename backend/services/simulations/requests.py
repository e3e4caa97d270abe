"""Handles requests for simulations: puts them into the queue, shows them, and cancels them.

The id of a simulation follows from its request, so a repeated request finds the queued, running or kept simulation. A
failed or cancelled one is queued again.
"""

from __future__ import annotations

from datetime import timedelta

import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.contracts.simulations import (
    SimulatedCheckpointOut,
    SimulationCatalogOut,
    SimulationIn,
    SimulationOut,
    SimulationState,
    simulation_id_of,
)
from backend.domain.clock import Clock
from backend.domain.errors import RateLimitedError, UnknownEntityError
from backend.services.simulations.catalog import LIMITS, Limits, catalog, plan
from backend.services.simulations.simulating import unpacked
from backend.store.postgres.connections import reading, writing
from backend.store.simulations.simulations import (
    SimulationRecord,
    checkpoint_of,
    enqueue,
    find,
    lock_queue,
    position_of,
    remove_expired,
    request_cancel,
    unfinished_counts,
)

_RETRY_AFTER_S = 10


class SimulationService:
    """Queues, shows and cancels simulations."""

    def __init__(self, engine: AsyncEngine, clock: Clock, limits: Limits = LIMITS) -> None:
        self._engine = engine
        self._clock = clock
        self._limits = limits

    def catalog(self) -> SimulationCatalogOut:
        """Return what can be simulated."""
        return catalog(self._limits)

    async def submit(self, request: SimulationIn, *, caller: str) -> SimulationOut:
        """Queue a simulation. If the same request is queued, running or completed, return that simulation.

        Raises:
            InvalidInputError: a word or a setting is unknown, or a value is out of bounds.
            TooLargeError: the simulation would exceed a limit.
            RateLimitedError: the queue is full, or this caller has too many simulations in it.
        """
        await anyio.to_thread.run_sync(plan, request, self._limits)
        simulation_id, now = simulation_id_of(request), self._clock.now()
        async with writing(self._engine) as connection:
            await lock_queue(connection)
            # Expired results are removed here too, so that their number is bounded even while no worker runs.
            await remove_expired(connection, at=now, kept_max=self._limits.kept_max)
            known = await find(connection, simulation_id, at=now)
            if known is None or known.state in (SimulationState.FAILED, SimulationState.CANCELLED):
                await self._check_room(connection, caller)
                plain = request.model_dump(mode="json")
                await enqueue(connection, simulation_id, plain, caller=caller, at=now)
                known = await find(connection, simulation_id, at=now)
            assert known is not None
            return await self._out(connection, known)

    async def get(self, simulation_id: str) -> SimulationOut:
        """Return a simulation with its state and, if it is completed, its result.

        Raises:
            UnknownEntityError: there is no such simulation, or it has expired.
        """
        async with reading(self._engine) as connection:
            return await self._out(connection, await self._known(connection, simulation_id))

    async def checkpoint(self, simulation_id: str, run: int, checkpoint_id: int) -> SimulatedCheckpointOut:
        """Return one checkpoint of a run.

        Raises:
            UnknownEntityError: there is no such simulation or checkpoint, or the simulation has expired.
        """
        async with reading(self._engine) as connection:
            await self._known(connection, simulation_id)
            found = await checkpoint_of(connection, simulation_id, run, checkpoint_id)
        if found is None:
            raise UnknownEntityError(kind="checkpoint", id=f"{run}/{checkpoint_id}")
        return await anyio.to_thread.run_sync(unpacked, found)

    async def cancel(self, simulation_id: str) -> None:
        """Cancel a simulation. A running one stops within seconds; nothing happens to an ended one.

        Raises:
            UnknownEntityError: there is no such simulation, or it has expired.
        """
        now = self._clock.now()
        async with writing(self._engine) as connection:
            await self._known(connection, simulation_id)
            expires_at = now + timedelta(seconds=self._limits.kept_max_s)
            await request_cancel(connection, simulation_id, at=now, expires_at=expires_at)

    async def _known(self, connection: AsyncConnection, simulation_id: str) -> SimulationRecord:
        record = await find(connection, simulation_id, at=self._clock.now())
        if record is None:
            raise UnknownEntityError(kind="simulation", id=simulation_id)
        return record

    async def _check_room(self, connection: AsyncConnection, caller: str) -> None:
        everybody, own = await unfinished_counts(connection, caller)
        if everybody >= self._limits.queue_max:
            detail = f"the queue is full: {self._limits.queue_max} simulations are queued or running; try again later"
            raise RateLimitedError(detail, retry_after_s=_RETRY_AFTER_S)
        if own >= self._limits.caller_max:
            detail = (
                f"{self._limits.caller_max} of your simulations are queued or running, which is the limit of a caller;"
                " wait for one or cancel it"
            )
            raise RateLimitedError(detail, retry_after_s=_RETRY_AFTER_S)

    async def _out(self, connection: AsyncConnection, record: SimulationRecord) -> SimulationOut:
        is_queued = record.state is SimulationState.QUEUED
        return SimulationOut.of(
            record,
            runs=record.runs or [],
            queue_position=await position_of(connection, record) if is_queued else None,
            as_of=self._clock.now(),
        )
