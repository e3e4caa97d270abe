"""The fleet board: one row for each watched job, most urgent first.

The board is computed at most once a second for all requests. The numbers of the last day change slowly and cost most,
so they are computed at most every 15 seconds. A request waits for at most one computation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import anyio
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.contracts import api
from backend.domain.checkpoint import CheckpointKind, CheckpointStatus
from backend.domain.clock import Clock
from backend.domain.observation import JobState
from backend.domain.verdict import Health, VerdictKind
from backend.services.jobs.evidence import EvidenceReader, JobCase
from backend.services.paging import Key, decode_cursor, page_of
from backend.services.presenting import mode_of
from backend.store.advice.cards import open_counts as open_advice_counts
from backend.store.alerts.episodes import OpenCount, open_counts
from backend.store.checkpoints.reader import CheckpointRecord, recent_of_runs
from backend.store.checkpoints.statistics import DayStatistics, statistics_of
from backend.store.jobs.reader import JobRecord, list_current
from backend.store.postgres.connections import reading
from backend.store.schema.partitions import day_of

_DAY = timedelta(hours=24)
_BOARD_KEPT_S = 1.0
_STATISTICS_KEPT_S = 15.0
_SPARK_POINTS = 60
_URGENCY = {Health.FAILING: 0, Health.SLOW: 1, Health.TOO_FEW: 2, Health.HEALTHY: 3}


@dataclass(frozen=True, slots=True)
class JobFilter:
    """A filter for jobs; None does not restrict."""

    target_id: str | None = None
    health: Health | None = None


@dataclass(frozen=True, slots=True)
class _Statistics:
    at_s: float
    job_ids: frozenset[str]
    by_job: Mapping[str, DayStatistics]
    sparks: Mapping[str, list[api.SparkPointOut]]


class FleetService:
    """Answers requests about all jobs; one instance per process."""

    def __init__(self, engine: AsyncEngine, clock: Clock, evidence: EvidenceReader) -> None:
        self._engine = engine
        self._clock = clock
        self._evidence = evidence
        self._turn = anyio.Lock()
        self._board: tuple[float, datetime, list[api.JobOut]] | None = None
        self._statistics: _Statistics | None = None

    async def page(self, wanted: JobFilter, *, cursor: str | None, limit: int) -> api.Page[api.JobOut]:
        """Return one page of the board.

        Raises:
            InvalidInputError: the cursor does not belong to this list.

        """
        after = decode_cursor(cursor, (int, str, str))
        as_of, rows = await self.board()
        chosen = [
            row
            for row in rows
            if (wanted.target_id is None or row.target_id == wanted.target_id)
            and (wanted.health is None or row.health is wanted.health)
            and (after is None or _order(row) > after)
        ]
        items, following = page_of(chosen[: limit + 1], limit, _order)
        return api.Page[api.JobOut](items=list(items), next=following, as_of=as_of)

    async def board(self) -> tuple[datetime, list[api.JobOut]]:
        """Return every row, and the instant at which they were computed."""
        async with self._turn:
            if self._board is None or self._clock.monotonic_s() - self._board[0] > _BOARD_KEPT_S:
                now = self._clock.now()
                async with reading(self._engine) as connection:
                    records = await list_current(connection)
                    rows = await self._rows(connection, records, now)
                self._evidence.forget_others(r.id for r in records)
                self._board = (self._clock.monotonic_s(), now, sorted(rows, key=_order))
            return self._board[1], self._board[2]

    async def row(self, connection: AsyncConnection, case: JobCase) -> api.JobOut:
        """Return the row of one job, even if its target is no longer watched."""
        now = self._clock.now()
        statistics = await self._read_statistics(connection, [case.record], now)
        advised = await open_advice_counts(connection)
        row = _row(case, statistics, now, advised.get(case.record.id, 0))
        return _with_alerts(row, await open_counts(connection))

    async def _rows(self, connection: AsyncConnection, records: Sequence[JobRecord], now: datetime) -> list[api.JobOut]:
        cases = await self._evidence.cases(connection, records)
        kept = self._statistics
        ids = frozenset(r.id for r in records)
        if kept is None or self._clock.monotonic_s() - kept.at_s > _STATISTICS_KEPT_S or not ids <= kept.job_ids:
            kept = self._statistics = await self._read_statistics(connection, records, now)
        alerts = await open_counts(connection)
        advised = await open_advice_counts(connection)
        return [_with_alerts(_row(case, kept, now, advised.get(case.record.id, 0)), alerts) for case in cases]

    async def _read_statistics(
        self, connection: AsyncConnection, records: Sequence[JobRecord], now: datetime
    ) -> _Statistics:
        by_job = await statistics_of(connection, [r.id for r in records], now - _DAY)
        since = day_of(now - _DAY)
        recent = await recent_of_runs(connection, [r.run.id for r in records], limit=_SPARK_POINTS, since=since)
        sparks: dict[str, list[api.SparkPointOut]] = {r.id: _spark(recent[r.run.id]) for r in records}
        return _Statistics(self._clock.monotonic_s(), frozenset(r.id for r in records), by_job, sparks)


def _with_alerts(row: api.JobOut, alerts: Mapping[str | None, OpenCount]) -> api.JobOut:
    opened = alerts.get(row.id)
    if opened is None:
        return row
    return row.model_copy(update={"alerts_firing_count": opened.count, "alerts_severity": opened.severity})


def _spark(records: Sequence[CheckpointRecord]) -> list[api.SparkPointOut]:
    return [
        api.SparkPointOut(at=r.header.triggered_at, duration_ms=r.header.end_to_end_duration_ms, status=r.header.status)
        for r in records
        if r.header.status.is_terminal and r.header.kind is CheckpointKind.CHECKPOINT
    ]


def _row(case: JobCase, statistics: _Statistics, now: datetime, open_advice_count: int) -> api.JobOut:
    record, run, config = case.record, case.record.run, case.shape.config
    day = statistics.by_job.get(record.id, DayStatistics())
    terminal = day.completed_count + day.failed_count
    last_at = _last_completed_at(case, day)
    interval_ms = config.interval_ms if config is not None else case.finding.interval_ms
    opened = case.open_checkpoint
    return api.JobOut.of(
        record,
        run,
        case.finding.diagnosis,
        case.finding,
        day,
        run_id=run.id,
        engine=run.engine.kind,
        capabilities=run.engine,
        mode=mode_of(config),
        interval_ms=interval_ms,
        timeout_ms=config.timeout_ms if config is not None else None,
        last_completed_at=last_at,
        last_completed_age_intervals=_age(last_at, interval_ms, record.engine_now(now)),
        completed_24h_count=day.completed_count,
        failed_24h_count=day.failed_count,
        success_24h_ratio=day.completed_count / terminal if terminal else None,
        in_progress_checkpoint_id=opened.header.checkpoint_id if opened is not None else None,
        sparkline=statistics.sparks.get(record.id, []),
        open_advice_count=open_advice_count,
    )


def _last_completed_at(case: JobCase, day: DayStatistics) -> datetime | None:
    ends = [
        h.header.triggered_at + timedelta(milliseconds=h.header.end_to_end_duration_ms or 0)
        for h in case.headers
        if h.header.status is CheckpointStatus.COMPLETED
    ]
    if day.last_completed_at is not None:
        ends.append(day.last_completed_at)
    return max(ends, default=None)


def _age(last_at: datetime | None, interval_ms: int | None, now: datetime) -> float | None:
    if last_at is None or not interval_ms:
        return None
    return max(0.0, (now - last_at).total_seconds() * 1000 / interval_ms)


def _order(row: api.JobOut) -> Key:
    """Return the sort key: jobs that have not ended first, then by health, jobs with a found cause first, by name."""
    is_limited = row.verdict.kind not in (VerdictKind.NONE, VerdictKind.UNDECIDED)
    urgency = (row.state is JobState.ENDED) * 10 + _URGENCY[row.health] * 2 + (not is_limited)
    return int(urgency), row.name, row.id
