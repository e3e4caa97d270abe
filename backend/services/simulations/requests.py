"""Handles requests for simulations: puts them into the queue, shows them, and cancels them."""

from __future__ import annotations

import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.contracts.simulations import (
    SimulatedCheckpointOut,
    SimulationCatalogOut,
    SimulationIn,
    SimulationOut,
    simulation_id_of,
)
from backend.domain.clock import Clock
from backend.services.simulations.catalog import LIMITS, Limits, catalog, plan
from backend.services.simulations.queueing import EXAMPLE_CALLER, SimulationQueue
from backend.services.simulations.simulating import unpacked
from backend.store.simulations.simulations import SimulationRecord


class SimulationService:
    """Queues, shows and cancels simulations."""

    def __init__(self, engine: AsyncEngine, clock: Clock, limits: Limits = LIMITS) -> None:
        self._clock = clock
        self._limits = limits
        self._queue = SimulationQueue(engine, clock, limits=limits)

    def catalog(self) -> SimulationCatalogOut:
        """Return what can be simulated."""
        return catalog(self._limits)

    async def check(self, request: SimulationIn) -> None:
        """Raise the errors of ``submit`` that concern the request itself. Nothing is queued."""
        await anyio.to_thread.run_sync(plan, request, self._limits)

    async def submit(self, request: SimulationIn, *, caller: str) -> SimulationOut:
        """Queue a simulation. If the same request is queued, running or completed, return that simulation.

        Raises:
            InvalidInputError: a word or a setting is unknown, or a value is out of bounds.
            TooLargeError: the simulation would exceed a limit.
            RateLimitedError: the queue is full, or this caller has too many simulations in it.
        """
        await self.check(request)
        document = request.model_dump(mode="json")
        return self._out(*await self._queue.put(simulation_id_of(request), document, caller=caller))

    async def get(self, simulation_id: str) -> SimulationOut:
        """Return a simulation with its state and, if it is completed, its result.

        Raises:
            UnknownEntityError: there is no such simulation, or it has expired.
        """
        return self._out(*await self._queue.get(simulation_id))

    async def checkpoint(self, simulation_id: str, run: int, checkpoint_id: int) -> SimulatedCheckpointOut:
        """Return one checkpoint of a run.

        Raises:
            UnknownEntityError: there is no such simulation or checkpoint, or the simulation has expired.
        """
        found = await self._queue.checkpoint(simulation_id, run, checkpoint_id)
        return await anyio.to_thread.run_sync(unpacked, found)

    async def cancel(self, simulation_id: str) -> None:
        """Cancel a simulation. A running one stops within seconds; nothing happens to an ended one.

        Raises:
            UnknownEntityError: there is no such simulation, or it has expired.
        """
        await self._queue.cancel(simulation_id)

    def _out(self, record: SimulationRecord, position: int | None) -> SimulationOut:
        return SimulationOut.of(
            record,
            is_example=record.caller == EXAMPLE_CALLER,
            runs=record.runs or [],
            queue_position=position,
            as_of=self._clock.now(),
        )
