"""Handles requests for backtests of one job: puts them into the queue of simulations, shows them, and cancels them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.contracts.backtests import BacktestIn, BacktestOut
from backend.contracts.simulations import SimulationState
from backend.domain.clock import Clock
from backend.domain.errors import UnknownEntityError
from backend.services.backtests.replaying import KIND
from backend.services.simulations.queueing import SimulationQueue
from backend.store.jobs.reader import get_job
from backend.store.postgres.connections import reading
from backend.store.simulations.simulations import SimulationRecord


class BacktestService:
    """Queues, shows and cancels backtests."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._queue = SimulationQueue(engine, clock, KIND)

    async def submit(self, job_id: str, request: BacktestIn, *, caller: str) -> BacktestOut:
        """Queue a backtest. If the same request was made in the same minute, return that backtest.

        Raises:
            UnknownEntityError: there is no such job.
            RateLimitedError: the queue is full, or this caller has too many simulations in it.
        """
        async with reading(self._engine) as connection:
            await get_job(connection, job_id)
        # The stored history grows, so a later request is another backtest.
        minute = self._clock.now().replace(second=0, microsecond=0).isoformat()
        document = {"kind": KIND, "job_id": job_id, "request": request.model_dump(mode="json"), "asked_at": minute}
        return self._out(*await self._queue.put(_id_of(document), document, caller=caller))

    async def get(self, job_id: str, backtest_id: str) -> BacktestOut:
        """Return a backtest with its state and, if it is completed, its result.

        Raises:
            UnknownEntityError: there is no such backtest of this job, or it has expired.
        """
        return self._out(*await self._known(job_id, backtest_id))

    async def cancel(self, job_id: str, backtest_id: str) -> None:
        """Cancel a backtest. A running one stops within seconds; nothing happens to an ended one.

        Raises:
            UnknownEntityError: there is no such backtest of this job, or it has expired.
        """
        await self._known(job_id, backtest_id)
        await self._queue.cancel(backtest_id)

    async def _known(self, job_id: str, backtest_id: str) -> tuple[SimulationRecord, int | None]:
        record, position = await self._queue.get(backtest_id)
        if record.request["job_id"] != job_id:
            raise UnknownEntityError(kind="backtest", id=backtest_id)
        return record, position

    def _out(self, record: SimulationRecord, position: int | None) -> BacktestOut:
        is_completed = record.state is SimulationState.COMPLETED and record.runs
        return BacktestOut.of(
            record,
            job_id=record.request["job_id"],
            request=record.request["request"],
            queue_position=position,
            result=record.runs[0] if is_completed and record.runs else None,
            as_of=self._clock.now(),
        )


def _id_of(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True)
    return "b" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
