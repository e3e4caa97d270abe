"""The role ``lab``: takes simulations from the queue and runs them, one at a time.

A document of the queue without a ``kind`` is a request of the Lab. Other kinds have a function of their own, which the
role passes in. The simulation runs in a thread of this process, because it uses a whole core for seconds to minutes.
Meanwhile the event loop renews the lease, stores the progress and looks for a request to cancel. If the process is
killed, the lease ends, and the next worker marks the simulation as failed. It does not repeat the simulation, because a
simulation that kills its worker would then do so forever. A worker that stops in order puts its simulation back into
the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.contracts.simulations import SimulationIn, SimulationState, simulation_id_of
from backend.domain.clock import Clock
from backend.domain.errors import BarrierscopeError, RateLimitedError, StoreUnavailableError
from backend.services.simulations.catalog import LIMITS, Limits
from backend.services.simulations.queueing import EXAMPLE_CALLER, LAB, SimulationQueue, kind_of
from backend.services.simulations.simulating import Progress, Result, SimulationStoppedError, run
from backend.store.postgres.connections import writing
from backend.store.simulations.simulations import (
    SimulationRecord,
    claim,
    end,
    fail_abandoned,
    remove_expired,
    renew,
    requeue,
)

_log = structlog.get_logger(__name__)

_KILLED = "the worker process ended before the simulation did; run it again, or run a smaller one"
_EXAMPLE_EVERY = timedelta(minutes=10)
_BROKEN = "an unexpected error ended the simulation; the log of the worker has it"

Simulate = Callable[[SimulationIn, Progress, Limits], Result]
SimulateDocument = Callable[[Mapping[str, Any], Progress, Limits], Result]


@dataclass(frozen=True, slots=True)
class Pace:
    """Times in seconds."""

    look_s: float = 0.5
    """The pause between two looks at the queue."""
    renew_s: float = 0.5
    """The pause between two renewals of the lease, each of which stores the progress."""
    lease_s: float = 10.0


class SimulationWorker:
    """Runs queued simulations until it is stopped."""

    def __init__(
        self,
        engine: AsyncEngine,
        clock: Clock,
        *,
        name: str,
        limits: Limits = LIMITS,
        pace: Pace | None = None,
        simulate: Simulate = run,
        others: Mapping[str, SimulateDocument] | None = None,
        example: SimulationIn | None = None,
    ) -> None:
        """``others`` has a function for each kind of document that is not a request of the Lab.

        The worker keeps a result of ``example``: it simulates it when there is nothing else to do.
        """
        self._engine = engine
        self._clock = clock
        self._name = name
        self._limits = limits
        self._pace = pace or Pace()
        self._simulate = simulate
        self._others = others or {}
        self._example = example
        self._example_due = clock.now()

    async def run(self, stop: asyncio.Event) -> None:
        """Run simulations until ``stop`` is set."""
        while not stop.is_set():
            did_work = False
            try:
                did_work = await self.turn(stop)
                if not did_work:
                    await self.keep_example()
            except StoreUnavailableError as error:
                _log.warning("simulations are waiting for the store", reason=error.reason)
            except Exception:  # noqa: BLE001  the top of a task: an unexpected error must not end the role
                _log.exception("the worker failed")
            if not did_work:
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), self._pace.look_s)

    async def keep_example(self) -> None:
        """Queue the example if no result of it is kept. This looks at the store once in ten minutes.

        Raises:
            StoreUnavailableError: PostgreSQL is unreachable.
        """
        now = self._clock.now()
        if self._example is None or now < self._example_due:
            return
        self._example_due = now + _EXAMPLE_EVERY
        queue = SimulationQueue(self._engine, self._clock, limits=self._limits)
        with suppress(RateLimitedError):
            document = self._example.model_dump(mode="json")
            await queue.put(simulation_id_of(self._example), document, caller=EXAMPLE_CALLER)

    async def turn(self, stop: asyncio.Event) -> bool:
        """Clean up, and run the oldest queued simulation. Return whether there was one.

        Raises:
            StoreUnavailableError: PostgreSQL is unreachable.
        """
        now = self._clock.now()
        async with writing(self._engine) as connection:
            for lost in await fail_abandoned(connection, at=now, expires_at=self._expires_at(), reason=_KILLED):
                _log.warning("a worker ended before its simulation", simulation=lost)
            await remove_expired(connection, at=now, kept_max=self._limits.kept_max)
            record = await claim(connection, worker=self._name, lease_s=self._pace.lease_s, at=now)
        if record is None:
            return False
        await self._work(record, stop)
        return True

    async def _work(self, record: SimulationRecord, stop: asyncio.Event) -> None:
        progress = Progress()
        try:
            async with asyncio.TaskGroup() as group:
                work = group.create_task(asyncio.to_thread(partial(self._outcome, record.request, progress)))
                is_cancelled = await self._watch(record.id, progress, work, stop)
        finally:
            # Cancelling the task does not end its thread, so the thread is requested to stop.
            progress.is_stopped = True
        state, reason, result = work.result()
        if state is SimulationState.CANCELLED and not is_cancelled:
            async with writing(self._engine) as connection:
                await requeue(connection, record.id, worker=self._name)
            return
        while not await self._has_stored_end(record.id, state, reason, result) and not stop.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._pace.renew_s)

    async def _has_stored_end(
        self, simulation_id: str, state: SimulationState, reason: str | None, result: Result | None
    ) -> bool:
        """Store the end of a simulation. Return False if the store does not respond."""
        try:
            async with writing(self._engine) as connection:
                await end(
                    connection,
                    simulation_id,
                    state,
                    worker=self._name,
                    at=self._clock.now(),
                    expires_at=self._expires_at(),
                    reason=reason,
                    runs=None if result is None else [r.model_dump(mode="json") for r in result.runs],
                    checkpoints=() if result is None else result.checkpoints,
                )
        except StoreUnavailableError as error:
            _log.warning("the end of a simulation cannot be stored", reason=error.reason)
            return False
        _log.info("a simulation ended", simulation=simulation_id, state=state.value, reason=reason)
        return True

    async def _watch(
        self, simulation_id: str, progress: Progress, work: asyncio.Task[_Outcome], stop: asyncio.Event
    ) -> bool:
        """Renew the lease until ``work`` ends. Return whether the simulation was cancelled by a user."""
        is_cancelled = False
        while not work.done():
            await asyncio.wait([work], timeout=self._pace.renew_s)
            if stop.is_set():
                progress.is_stopped = True
            try:
                async with writing(self._engine) as connection:
                    wish = await renew(
                        connection,
                        simulation_id,
                        worker=self._name,
                        lease_s=self._pace.lease_s,
                        ratio=progress.ratio,
                    )
            except StoreUnavailableError as error:
                _log.warning("the progress of a simulation cannot be stored", reason=error.reason)
                continue
            if wish is None or wish:
                progress.is_stopped = True
                is_cancelled = is_cancelled or bool(wish)
        return is_cancelled

    def _outcome(self, document: Mapping[str, Any], progress: Progress) -> _Outcome:
        """Simulate. Return the state in which the simulation ends, why it failed, and its result."""
        try:
            return SimulationState.COMPLETED, None, self._result(document, progress)
        except SimulationStoppedError:
            return SimulationState.CANCELLED, None, None
        except BarrierscopeError as error:
            return SimulationState.FAILED, str(error), None
        except Exception:  # noqa: BLE001  a bug in the runtime ends one simulation, not the worker
            _log.exception("a simulation failed")
            return SimulationState.FAILED, _BROKEN, None

    def _result(self, document: Mapping[str, Any], progress: Progress) -> Result:
        kind = kind_of(document)
        if kind == LAB:
            return self._simulate(SimulationIn.model_validate(document), progress, self._limits)
        return self._others[kind](document, progress, self._limits)

    def _expires_at(self) -> datetime:
        return self._clock.now() + timedelta(seconds=self._limits.kept_max_s)


_Outcome = tuple[SimulationState, str | None, Result | None]
