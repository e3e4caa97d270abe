"""Reads a history server or a driver of Spark repeatedly, for ``barrierscope diagnose --watch``.

Each poll hands on what is new, so the runs are put together here. The verdicts are those of ``judged``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from backend.domain.clock import Clock
from backend.domain.connection import Reach
from backend.domain.errors import TargetProtocolError
from backend.domain.ids import target_id
from backend.domain.observation import JobObservation, JobState
from backend.domain.topology import Topology
from collectors.diagnosis_print import JobAnswer
from collectors.spark.collector import LogOptions
from collectors.spark.judged import chosen, end_of, judged
from collectors.spark.opening import SparkCollector, opened
from collectors.watch_rows import WatchedJob

BATCHES_MAX: Final = 50
ENDED_MAX: Final = 5
"""The number of newest ended runs that are shown if no query runs."""
_RUNNING_S: Final = 0.0
_DAY_S: Final = 86_400.0
_RUNS_MAX: Final = 500
_FAILED: Final = "FAILED"


@asynccontextmanager
async def opened_spark(
    url: str, *, job: str | None, clock: Clock, timeout_s: float, reach: Reach
) -> AsyncIterator[WatchedSpark]:
    """Open what answers at ``url``.

    Raises:
        InvalidInputError: the address is no http(s) address.
    """
    options = LogOptions(ended_within_s=_RUNNING_S, wait_s=timeout_s, reads_all_running=True)
    async with opened(
        url, target_id(url=url), {}, timeout_s=timeout_s, reach=reach, may_be_folder=False, options=options
    ) as collector:
        yield WatchedSpark(collector, job=job, clock=clock)


class WatchedSpark:
    """Reads one history server or driver repeatedly, and keeps the newest batches of its queries."""

    def __init__(self, collector: SparkCollector, *, job: str | None, clock: Clock) -> None:
        self.engine = ""
        self.names: list[str] = []
        """The names of all queries, also of those that are not shown."""
        self._collector = collector
        self._job = job
        self._clock = clock
        self._runs: dict[str, JobObservation] = {}

    async def check(self) -> None:
        """Ask for the version of Spark.

        Raises:
            UpstreamError: Spark does not answer here.
        """
        if self._collector.server is None:
            raise TargetProtocolError(url="", reason="it is a folder, which is read once")
        await self._collector.server.check()

    async def read(self) -> tuple[WatchedJob, ...]:
        """Read what is new. Return the queries that run, the most urgent first; if none runs, those that ended last.

        Raises:
            UpstreamError: the server did not answer, or not as Spark does.
        """
        await self._poll()
        if self._collector.driver is None and not self._runs and self._collector.options.ended_within_s < _DAY_S:
            # No query runs, so those that ended within a day are read too.
            self._collector.options = replace(self._collector.options, ended_within_s=_DAY_S)
            self._collector.forget()
            self._collector.close()
            self._collector.logs = None
            await self._poll()
        return await asyncio.to_thread(self._watched)

    async def _poll(self) -> None:
        found = await self._collector.collect(self._clock.now())
        what = "driver" if self._collector.logs is None else "history server"
        self.engine = f"Spark {what} {found.engine_version or ''}".rstrip()
        for job in found.jobs:
            known = self._runs.get(job.engine_run_id)
            self._runs[job.engine_run_id] = _trimmed(job if known is None else _joined(known, job))
        for old in sorted(self._runs, key=lambda run: end_of(self._runs[run]))[:-_RUNS_MAX]:
            del self._runs[old]
        self.names = sorted({run.name for run in self._runs.values()})

    def _watched(self) -> tuple[WatchedJob, ...]:
        runs = list(self._runs.values())
        if self._job is not None and not runs:
            return ()
        wanted = chosen(runs, self._job)
        running = [run for run in wanted if run.state is not JobState.ENDED]
        # The other queries of an application go on if one of them fails.
        running += [run for run in wanted if running and run.engine_state == _FAILED]
        ended = sorted(wanted, key=end_of, reverse=True)[:ENDED_MAX]
        shown = running or ended
        now = self._clock.now()
        by_name: dict[str, list[JobObservation]] = {}
        for run in shown:
            by_name.setdefault(run.name, []).append(run)
        answers = judged(runs, shown, heard=end_of, version=self._version, read_at=now)
        return tuple(_watched(answer, by_name[answer.name].pop(0), now) for answer in answers)

    @property
    def _version(self) -> str | None:
        return None if self._collector.server is None else self._collector.server.version


def _joined(known: JobObservation, new: JobObservation) -> JobObservation:
    checkpoints = {c.header.checkpoint_id: c for c in (*known.checkpoints, *new.checkpoints)}
    return replace(
        new,
        config=new.config or known.config,
        checkpoints=tuple(checkpoints.values()),
        exceptions=tuple(dict.fromkeys((*known.exceptions, *new.exceptions))),
    )


def _trimmed(job: JobObservation) -> JobObservation:
    ordered = sorted(job.checkpoints, key=lambda c: c.header.checkpoint_id)
    return replace(job, checkpoints=tuple(ordered[-BATCHES_MAX:]))


def _watched(answer: JobAnswer, run: JobObservation, now: datetime) -> WatchedJob:
    return WatchedJob(
        id=run.engine_run_id,
        name=run.name,
        engine_state=run.engine_state,
        diagnosis=answer.diagnosis,
        topology=Topology(()),
        checkpoints=run.checkpoints,
        pressure=(),
        now=now.astimezone(UTC),
        is_micro_batched=True,
    )
