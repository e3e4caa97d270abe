"""Reads what ``/metrics`` says about the jobs, the targets and the store, from the same sources as the pages.

One process exports them: the one that evaluates the alert rules, so the lease of the rules decides. The others export
only what they know of themselves. A read happens when Prometheus asks, at most once in ``_KEPT_S``, and costs a fixed
number of queries. The jobs come from the fleet board, which reads only jobs that changed. While the store is
unreachable there are no values of jobs, because old values would look like present ones.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import structlog
from prometheus_client.metrics_core import Metric
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.alerting.signals import JobSignal, OpenSignal
from backend.analysis.health.finish import predict
from backend.contracts.api import JobOut
from backend.domain.checkpoint import CheckpointKind, CheckpointStatus
from backend.domain.clock import Clock
from backend.domain.errors import StoreUnavailableError
from backend.domain.ids import JobId
from backend.domain.observation import JobState
from backend.services.alerts.signals import Signals
from backend.services.history_forecast import HistoryForecast
from backend.services.jobs.analysed import AnalysedJobs
from backend.services.jobs.evidence import JobHead
from backend.services.jobs.fleet import FleetService
from backend.services.jobs.silent_jobs import silent_listeners, targets_as_heard
from backend.services.metrics.counting import EndedCounter
from backend.services.metrics.writing import Exported, JobValues, LeftOut, StoreValues, metrics_of
from backend.store.alerts.deliveries import due_deliveries
from backend.store.checkpoints.ended import ended_since, horizon_of
from backend.store.jobs.reader import JobRecord
from backend.store.postgres.connections import reading
from backend.store.targets.targets import TargetRepository

_log = structlog.get_logger(__name__)

JOBS_MAX: Final = 5000
"""At most this many jobs are exported, the most urgent ones."""
_KEPT_S = 5.0
# Older values are not exported, because they would look like present ones.
_USABLE_S = 120.0
# Prometheus gives up after 10 s by default.
_WAIT_MAX_S = 8.0
_PREDICTED_AT_ONCE = 20
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")

OpenSignals = Callable[[], Signals | None]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the values come from. ``signals`` returns the input of the newest evaluation of the alert rules."""

    jobs: AnalysedJobs
    fleet: FleetService
    history: HistoryForecast
    signals: OpenSignals


class FleetMetrics:
    """The metrics of jobs, targets and store. Each process has one instance.

    ``is_exporting`` says whether this process is the one that exports them. ``run`` must run concurrently.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        clock: Clock,
        sources: Sources,
        is_exporting: Callable[[], bool],
        *,
        jobs_max: int = JOBS_MAX,
        wait_max_s: float = _WAIT_MAX_S,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._sources = sources
        self._is_exporting = is_exporting
        self._jobs_max = jobs_max
        self._targets = TargetRepository(engine)
        self._counter = EndedCounter()
        self._horizon: int | None = None
        self._wait_max_s = wait_max_s
        self._asked, self._renewed = asyncio.Event(), asyncio.Event()
        self._read_at_s = float("-inf")
        self._exported = Exported(is_exporting=False)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics as of the last time that they were renewed, unless that is too long ago."""
        is_old = self._clock.monotonic_s() - self._read_at_s > _USABLE_S
        return metrics_of(Exported(is_exporting=self._exported.is_exporting) if is_old else self._exported)

    async def run(self) -> None:
        """Renew the values whenever a scrape asks for them. The owner cancels this."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self.renew()
            self._renewed.set()

    async def refresh(self) -> None:
        """Ask ``run`` for new values, and wait for them for some seconds.

        If they take longer, the scrape shows those before. The work goes on, so that it is done at a later scrape.
        """
        self._renewed.clear()
        self._asked.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._renewed.wait(), self._wait_max_s)

    async def renew(self) -> None:
        """Read the values again, if they are older than some seconds. Errors end in metrics and never raise."""
        if not self._is_exporting():
            self._exported, self._read_at_s = Exported(is_exporting=False), float("-inf")
            return
        if self._clock.monotonic_s() - self._read_at_s < _KEPT_S:
            return
        try:
            self._exported = await self._read()
        except StoreUnavailableError as error:
            _log.warning("metrics of the jobs are missing", reason=error.reason)
            self._exported = Exported(is_exporting=True, is_store_up=False)
        except Exception:  # noqa: BLE001  a scrape must answer with what the process knows of itself
            _log.exception("metrics of the jobs failed")
            self._exported = Exported(is_exporting=True)
        self._read_at_s = self._clock.monotonic_s()

    async def _read(self) -> Exported:
        now = self._clock.now()
        _, rows = await self._sources.fleet.board()
        async with reading(self._engine) as connection:
            watched, unread = await self._sources.jobs.refresh(connection)
            await self._count(connection, now)
            due_count, due_since = await due_deliveries(connection)
            heads = {w.job.record.id: w.job for w in watched}
            records = {job_id: h.record for job_id, h in heads.items()} | {JobId(r.id): r for r in unread}
            listeners = await silent_listeners(connection, list(records.values()), now)
        targets = targets_as_heard(await self._targets.list_all(), list(records.values()), now, listeners)
        forecast = await self._sources.history.read()
        chosen, left_out = _chosen(rows, self._jobs_max)
        self._counter.forget_others(frozenset(JobId(row.id) for row in rows))
        return Exported(
            is_exporting=True,
            is_store_up=True,
            jobs=await self._predicted([self._values(row, records, heads) for row in chosen]),
            left_out=left_out,
            targets=targets,
            store=StoreValues(
                size_bytes=forecast.size_bytes,
                size_limit_bytes=forecast.size_limit_bytes,
                held_days=forecast.held_days,
                promised_days=forecast.promised_days,
                due_count=due_count,
                due_since=due_since,
            ),
        )

    async def _count(self, connection: AsyncConnection, now: datetime) -> None:
        horizon = await horizon_of(connection)
        if self._horizon is not None:
            self._counter.count(await ended_since(connection, self._horizon, now))
        self._horizon = horizon

    def _values(self, row: JobOut, records: Mapping[JobId, JobRecord], heads: Mapping[JobId, JobHead]) -> JobValues:
        job_id = JobId(row.id)
        record, head = records.get(job_id), heads.get(job_id)
        # The times of checkpoints are by the engine's clock, and Prometheus compares them with its own.
        offset = timedelta(milliseconds=(None if record is None else record.clock_offset_ms) or 0)
        completed = [h.header for h in head.headers if h.header.status is CheckpointStatus.COMPLETED] if head else []
        path = next((h.external_path for h in reversed(completed) if h.external_path), None)
        is_flink = record is not None and record.run.engine.is_flink_release
        return JobValues(
            row=row,
            flink_job_id=record.run.engine_run_id if record is not None and is_flink else "",
            engine_version=(None if record is None else record.engine_version) or "",
            external_path="" if path is None else _CREDENTIALS.sub("", path),
            offset=offset,
            in_progress_ms=_in_progress_ms(head, self._clock.now()),
            last_duration_ms=completed[-1].end_to_end_duration_ms if completed else None,
            completed_count=self._counter.completed(job_id),
            failed_counts=self._counter.failed(job_id),
        )

    async def _predicted(self, values: Sequence[JobValues]) -> Sequence[JobValues]:
        """Return the values with the prediction of each running checkpoint."""
        signals = self._sources.signals()
        opened: dict[str, OpenSignal] = {}
        if signals is not None:
            opened = {s.job_id: s.opened for s in signals.signals if isinstance(s, JobSignal) and s.opened is not None}
        job_values: list[JobValues] = []
        predicted = 0
        for value in values:
            one = opened.get(value.row.id)
            # A checkpoint that ended after the last evaluation is not running any more.
            if one is None or value.row.in_progress_checkpoint_id != one.checkpoint_id:
                job_values.append(value)
                continue
            finish = predict(one.running, one.past) if one.is_past_read else None
            job_values.append(
                replace(
                    value,
                    timeout_ratio=None if finish is None else finish.expiry_ratio,
                    finish_at=None
                    if finish is None or finish.likely_ms is None
                    else one.triggered_at + timedelta(milliseconds=finish.likely_ms) - value.offset,
                )
            )
            predicted += 1
            if predicted % _PREDICTED_AT_ONCE == 0:
                # The predictions of many jobs must not keep the event loop from its other work.
                await asyncio.sleep(0)
        return job_values


def _in_progress_ms(head: JobHead | None, now: datetime) -> int | None:
    """Return how long the running checkpoint had run when it was last read. Savepoints do not count."""
    opened = None if head is None else head.open_checkpoint
    if head is None or opened is None or opened.header.kind is not CheckpointKind.CHECKPOINT:
        return None
    read_at = min(head.record.engine_now(now), head.record.read_at_engine)
    return max(0, round((read_at - opened.header.triggered_at) / timedelta(milliseconds=1)))


def _chosen(rows: Sequence[JobOut], jobs_max: int) -> tuple[Sequence[JobOut], Mapping[LeftOut, int]]:
    """Return the jobs to export, the most urgent ones, and how many were left out.

    Ended jobs are not exported. Of jobs with the same labels only one is, because Prometheus refuses the whole answer
    if it contains a series twice.
    """
    running = [row for row in rows if row.state is not JobState.ENDED]
    single: dict[Sequence[str], JobOut] = {}
    for row in running:
        single.setdefault(JobValues.labels_of(row), row)
    chosen = list(single.values())[:jobs_max]
    return chosen, {
        LeftOut.LIMIT: len(single) - len(chosen),
        LeftOut.SAME_LABELS: len(running) - len(single),
    }
