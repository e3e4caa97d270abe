"""Stores observations, or keeps them in a spool on disk while PostgreSQL is slow or unreachable.

Invariant: the observations of one target are stored in the order in which they were passed to ``write``. So while the
spool contains an observation of a target, later observations of this target are added to the spool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from backend.domain.errors import StoreUnavailableError, UnknownEntityError
from backend.domain.ids import TargetId
from backend.domain.observation import Observation
from backend.domain.target import TargetState
from collectors.base import ObservationSink, Pause
from collectors.spool import Spool

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Limits of a sink.

    If a write takes longer than ``write_timeout_s``, its observation is spooled and written later, within
    ``replay_timeout_s``. The oldest spooled observation is given up if it fails ``stuck_max`` times in a row while the
    store accepts others, because it would block all others forever.
    """

    write_timeout_s: float = 10.0
    replay_timeout_s: float = 60.0
    stuck_max: int = 5
    retry_s: float = 2.0
    replayed_at_once_max: int = 16


class SpoolingSink:
    """An ``ObservationSink`` that passes observations to another sink or spools them.

    ``replay`` must run concurrently.
    """

    def __init__(
        self, sink: ObservationSink, spool: Spool, *, pause: Pause, options: SinkOptions | None = None
    ) -> None:
        self._sink = sink
        self._spool = spool
        self._pause = pause
        self._options = options or SinkOptions()
        self.broken_count = 0
        """Number of spooled observations that the store refused permanently."""
        self._stuck_count = 0

    async def write(self, observation: Observation) -> object:
        """Store the observation or spool it.

        Raises:
            StoreUnavailableError: the store does not take it, and the spool is full.
            UnknownEntityError: the target is no longer watched.
        """
        error = StoreUnavailableError("older observations of this target wait in the spool")
        if not self._spool.holds(observation.target_id):
            try:
                return await self._write(observation, self._options.write_timeout_s)
            except StoreUnavailableError as refused:
                error = refused
        if not self._spool.append(observation):
            raise type(error)(f"{error.reason}; the spool is full")
        if len(self._spool) == 1:
            _log.warning("observations are spooled", reason=error.reason)
        return None

    async def report_failure(self, target_id: TargetId, *, kind: TargetState, reason: str, at: datetime) -> None:
        """Record a failed poll; see ``ObservationSink``. A failure is never spooled, because it is soon outdated.

        The failure is not recorded while the spool contains observations of the target, which are older than the
        failure. The store adds the counts of lost and refused data only if an observation is newer than the last
        attempt. So if the failure were recorded first, the counts of these observations would be missing.
        """
        if self._spool.holds(target_id):
            return
        await self._sink.report_failure(target_id, kind=kind, reason=reason, at=at)

    async def replay(self, stop: asyncio.Event) -> None:
        """Store spooled observations as soon as the store answers, until ``stop`` is set."""
        while not stop.is_set():
            if not len(self._spool) or not await self.replay_once():
                await self._pause(self._options.retry_s, stop)

    async def replay_once(self) -> bool:
        """Store the oldest observations. Return False if one of them could not be stored."""
        batch = self._spool.oldest(self._options.replayed_at_once_max)
        within_s = self._options.replay_timeout_s
        results = await asyncio.gather(*(self._write(o, within_s) for o in batch), return_exceptions=True)
        refused = [isinstance(r, StoreUnavailableError) for r in results]
        # The observations after the first refused one stay. Storing them again later changes nothing.
        done_count = refused.index(True) if any(refused) else len(batch)
        self._stuck_count = self._stuck_count + 1 if any(refused) and refused[0] and not all(refused) else 0
        if self._stuck_count >= self._options.stuck_max:
            self._stuck_count, done_count = 0, 1
            self.broken_count += 1
            _log.error("spooled observation given up", target=batch[0].target_id, reason=str(results[0]))
        else:
            self._log_broken(batch[:done_count], results[:done_count])
        self._spool.remove(done_count)
        if batch and not len(self._spool):
            _log.info("every spooled observation is stored")
        return done_count == len(batch)

    def _log_broken(self, batch: Sequence[Observation], results: Sequence[object]) -> None:
        for observation, result in zip(batch, results, strict=True):
            # A target that was removed meanwhile needs no data, so its refused observations are not logged.
            if isinstance(result, BaseException) and not isinstance(result, UnknownEntityError):
                if not isinstance(result, Exception):
                    raise result
                self.broken_count += 1
                _log.error("spooled observation refused", target=observation.target_id, exc_info=result)

    async def _write(self, observation: Observation, within_s: float) -> object:
        try:
            async with asyncio.timeout(within_s):
                return await self._sink.write(observation)
        except TimeoutError:
            raise StoreUnavailableError(f"a write took longer than {within_s:g} s") from None
