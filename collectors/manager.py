"""Runs the poll loops of all targets: starts and stops them as the list of targets changes, and stops all at the end.

The process that holds a target's lease polls it, so several collectors share the targets. The gate bounds the number
of polls at a time. A loop that fails, even because of a bug, is logged and restarted; it never stops another loop.
While the store is unreachable the loops continue. During that time no other process can take a target, and
observations wait in the buffer or spool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from backend.domain.clock import Clock
from backend.domain.errors import (
    InvalidInputError,
    StoreUnavailableError,
    TargetProtocolError,
    TargetUnavailableError,
)
from backend.domain.ids import TargetId
from backend.domain.target import TargetState
from backend.domain.target_url import is_store
from collectors.base import Collector, ObservationSink, Pause, TargetRow, TargetSource
from collectors.gate import PollGate
from collectors.loop import LoopOptions, TargetLoop

_log = structlog.get_logger(__name__)

_STORE_INTERVAL_S: Final = 30.0
"""A folder in S3 or HDFS without an interval of its own is listed so often: each poll costs a list, which S3 bills."""

OpenCollector = Callable[[TargetRow], AbstractAsyncContextManager[Collector]]


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    """Intervals and limits of the manager.

    Free targets are taken every ``reload_s``. At most ``polls_max`` targets are polled at a time, of which at most
    ``doubtful_max`` may be targets whose last poll failed.
    """

    loop: LoopOptions = field(default_factory=LoopOptions)
    reload_s: float = 2.0
    restart_pause_s: float = 10.0
    stop_within_s: float = 5.0
    polls_max: int = 32
    doubtful_max: int = 8


@dataclass(slots=True)
class _Watched:
    """A target that this process polls, with the task of its loop."""

    row: TargetRow
    stop: asyncio.Event
    task: asyncio.Task[None]


class CollectorManager:
    """Runs a loop for each target whose lease this process holds, until it is stopped."""

    def __init__(
        self,
        targets: TargetSource,
        sink: ObservationSink,
        open_collector: OpenCollector,
        *,
        clock: Clock,
        pause: Pause,
        random: Callable[[], float],
        options: ManagerOptions | None = None,
    ) -> None:
        self._targets = targets
        self._sink = sink
        self._open_collector = open_collector
        self._clock = clock
        self._pause = pause
        self._random = random
        self._options = options or ManagerOptions()
        self._gate = PollGate(polls_max=self._options.polls_max, doubtful_max=self._options.doubtful_max)
        self._watched: dict[TargetId, _Watched] = {}
        self.broken_count = 0
        """Number of times that a loop failed with an unexpected error."""

    @property
    def watched(self) -> frozenset[TargetId]:
        """The targets that this process polls."""
        return frozenset(self._watched)

    async def run(self, stop: asyncio.Event) -> None:
        """Poll targets until ``stop`` is set. Return once every loop has ended and every lease is released."""
        async with asyncio.TaskGroup() as group:
            while not stop.is_set():
                await self._reload(group)
                await self._pause(self._options.reload_s, stop)
            await self._end(list(self._watched))

    async def _reload(self, group: asyncio.TaskGroup) -> None:
        try:
            rows = {row.id: row for row in await self._targets.take()}
        except StoreUnavailableError as error:
            _log.warning("list of targets not read", reason=str(error))
            return
        changed = [i for i, w in self._watched.items() if i not in rows or not _is_same(w.row, rows[i])]
        await self._end(changed)
        for target_id in [i for i in rows if i not in self._watched]:
            stop = asyncio.Event()
            task = group.create_task(self._watch(rows[target_id], stop), name=f"target {target_id}")
            self._watched[target_id] = _Watched(rows[target_id], stop, task)

    async def _end(self, target_ids: list[TargetId]) -> None:
        ending = {i: self._watched.pop(i) for i in target_ids}
        if not ending:
            return
        for watched in ending.values():
            watched.stop.set()
        # A running poll gets some time to finish. If it does not finish in time, its data is read again later.
        _, late = await asyncio.wait([w.task for w in ending.values()], timeout=self._options.stop_within_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        try:
            await self._targets.release(list(ending))
        except StoreUnavailableError as error:
            _log.warning("leases not released", reason=str(error))

    async def _watch(self, row: TargetRow, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self._read(row, stop)
            except StoreUnavailableError as error:
                _log.warning("target not opened yet", target=row.id, reason=str(error))
                await self._pause(self._options.reload_s, stop)
            except InvalidInputError as error:
                # The address stays invalid until it is changed. The manager then stops this loop and starts a new
                # one.
                await self._report(row, TargetState.MALFORMED, str(error))
                await stop.wait()
            except TargetUnavailableError as error:
                await self._report(row, TargetState.UNREACHABLE, str(error))
                await self._pause(self._options.restart_pause_s, stop)
            except TargetProtocolError as error:
                await self._report(row, TargetState.MALFORMED, str(error))
                await self._pause(self._options.restart_pause_s, stop)
            except Exception:  # noqa: BLE001 -- the top of a task: one target never stops the others
                self.broken_count += 1
                _log.exception("loop of a target failed", target=row.id, broken_count=self.broken_count)
                await self._pause(self._options.restart_pause_s, stop)

    async def _read(self, row: TargetRow, stop: asyncio.Event) -> None:
        options = self._options.loop
        if row.interval_s is not None:
            options = replace(options, interval_s=row.interval_s)
        elif is_store(row.url):
            options = replace(options, interval_s=max(options.interval_s, _STORE_INTERVAL_S))
        async with self._open_collector(row) as collector:
            loop = TargetLoop(
                row.id,
                collector,
                self._sink,
                clock=self._clock,
                pause=self._pause,
                random=self._random,
                options=options,
                gate=self._gate,
            )
            await loop.run(stop)

    async def _report(self, row: TargetRow, kind: TargetState, reason: str) -> None:
        try:
            await self._sink.report_failure(row.id, kind=kind, reason=reason, at=self._clock.now())
        except StoreUnavailableError as error:
            _log.warning("failure not stored", target=row.id, reason=str(error))


def _is_same(one: TargetRow, other: TargetRow) -> bool:
    return (
        (one.kind, one.url, one.interval_s, one.connection)
        == (other.kind, other.url, other.interval_s, other.connection)
        and dict(one.labels) == dict(other.labels)
        and one.origin is other.origin
    )
