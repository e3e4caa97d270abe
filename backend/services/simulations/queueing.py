"""The queue of simulations: puts documents into it, finds and cancels them, and enforces its limits.

A document is a request of the Lab (``SimulationIn``) or has a ``kind``, which says what it asks for. The id of a
simulation follows from its document, so a repeated request finds the queued, running or kept simulation. A failed or
cancelled one is queued again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.contracts.simulations import SimulationState
from backend.domain.clock import Clock
from backend.domain.errors import RateLimitedError, UnknownEntityError
from backend.services.simulations.catalog import LIMITS, Limits
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
EXAMPLE_CALLER = "example"
"""The caller of the example, which is not the address of anybody."""
LAB = "lab"
"""The kind of a document without a ``kind``."""


class SimulationQueue:
    """Queues, finds and cancels the simulations of one kind."""

    def __init__(self, engine: AsyncEngine, clock: Clock, kind: str = LAB, limits: Limits = LIMITS) -> None:
        self._engine = engine
        self._clock = clock
        self._kind = kind
        self.limits = limits

    async def put(
        self, simulation_id: str, document: Mapping[str, Any], *, caller: str
    ) -> tuple[SimulationRecord, int | None]:
        """Queue a simulation, or find the one with this id that is queued, running or completed.

        Return it with its position in the queue, if it is queued.

        Raises:
            RateLimitedError: the queue is full, or this caller has too many simulations in it.
        """
        now = self._clock.now()
        async with writing(self._engine) as connection:
            await lock_queue(connection)
            # Expired results are removed here too, so that their number is bounded even while no worker runs.
            await remove_expired(connection, at=now, kept_max=self.limits.kept_max)
            known = await find(connection, simulation_id, at=now)
            if known is None or known.state in (SimulationState.FAILED, SimulationState.CANCELLED):
                await self._check_room(connection, caller)
                await enqueue(connection, simulation_id, document, caller=caller, at=now)
                known = await find(connection, simulation_id, at=now)
            assert known is not None
            return known, await _position(connection, known)

    async def get(self, simulation_id: str) -> tuple[SimulationRecord, int | None]:
        """Return a simulation with its position in the queue, if it is queued.

        Raises:
            UnknownEntityError: there is no such simulation, or it has expired.
        """
        async with reading(self._engine) as connection:
            record = await self._known(connection, simulation_id)
            return record, await _position(connection, record)

    async def checkpoint(self, simulation_id: str, run: int, checkpoint_id: int) -> bytes:
        """Return the stored document of one checkpoint of a run.

        Raises:
            UnknownEntityError: there is no such simulation or checkpoint, or the simulation has expired.
        """
        async with reading(self._engine) as connection:
            await self._known(connection, simulation_id)
            found = await checkpoint_of(connection, simulation_id, run, checkpoint_id)
        if found is None:
            raise UnknownEntityError(kind="checkpoint", id=f"{run}/{checkpoint_id}")
        return found

    async def cancel(self, simulation_id: str) -> None:
        """Cancel a simulation. A running one stops within seconds; nothing happens to an ended one.

        Raises:
            UnknownEntityError: there is no such simulation, or it has expired.
        """
        now = self._clock.now()
        async with writing(self._engine) as connection:
            await self._known(connection, simulation_id)
            expires_at = now + timedelta(seconds=self.limits.kept_max_s)
            await request_cancel(connection, simulation_id, at=now, expires_at=expires_at)

    async def _known(self, connection: AsyncConnection, simulation_id: str) -> SimulationRecord:
        record = await find(connection, simulation_id, at=self._clock.now())
        if record is None or kind_of(record.request) != self._kind:
            raise UnknownEntityError(kind="simulation", id=simulation_id)
        return record

    async def _check_room(self, connection: AsyncConnection, caller: str) -> None:
        everybody, own = await unfinished_counts(connection, caller)
        if everybody >= self.limits.queue_max:
            detail = f"the queue is full: {self.limits.queue_max} simulations are queued or running; try again later"
            raise RateLimitedError(detail, retry_after_s=_RETRY_AFTER_S)
        if own >= self.limits.caller_max:
            detail = (
                f"{self.limits.caller_max} of your simulations are queued or running, which is the limit of a caller;"
                " wait for one or cancel it"
            )
            raise RateLimitedError(detail, retry_after_s=_RETRY_AFTER_S)


def kind_of(document: Mapping[str, Any]) -> str:
    """Return what a document of the queue asks for."""
    return str(document.get("kind", LAB))


async def _position(connection: AsyncConnection, record: SimulationRecord) -> int | None:
    return await position_of(connection, record) if record.state is SimulationState.QUEUED else None
