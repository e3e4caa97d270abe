"""Computes the fleet board: one row for each watched job, the most urgent job first.

The board is brought up to date at most once a second, and all requests share it. Only the jobs that changed are read
again (``services.jobs.analysed``). The statistics of the last 24 hours and the sparkline of a job are read again at
most every 15 seconds if a checkpoint of the job ended meanwhile, and otherwise every ten minutes.

While clients look at the board, a task of the API refreshes it, and requests get the newest one without waiting.
Otherwise a request waits for one refresh, which is bounded in time. A row shows what is known by then: after a
start, first the name of the job, then its checkpoints, then its verdict. What is not known yet is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter
from secrets import token_hex
from typing import Any

import anyio
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.contracts import api
from backend.contracts.board import BoardOut, BoardSort
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.checkpoint_mode import mode_of
from backend.domain.clock import Clock
from backend.domain.observation import JobState
from backend.domain.target import TargetState
from backend.domain.urgency import URGENCY, urgency_key
from backend.domain.verdict import Health
from backend.services.jobs.analysed import AnalysedJobs
from backend.services.jobs.evidence import JobCase, JobHead, RecalledJob, case_now
from backend.services.jobs.findings import Finding
from backend.services.jobs.freshness import freshness_of, is_as_stale, stale_by_reason
from backend.services.jobs.replay_debt import aged_debt, debt_fields
from backend.services.jobs.silent_jobs import as_heard
from backend.services.jobs.watched import WatchedJob
from backend.services.paging import Key, decode_cursor, page_of
from backend.store.advice.cards import open_counts as open_advice_counts
from backend.store.alerts.episodes import OpenCount, open_counts
from backend.store.checkpoints.reader import recent_ends
from backend.store.checkpoints.statistics import DayStatistics, statistics_of
from backend.store.jobs.reader import JobRecord
from backend.store.postgres.connections import reading
from backend.store.schema.partitions import day_of
from backend.store.targets.leases import has_collector

_DAY = timedelta(hours=24)
_BOARD_KEPT_S = 1.0
_BOARD_USABLE_S = 30.0
_VIEWED_S = 10.0
_STATISTICS_KEPT_S = 15.0
# Without a new checkpoint, the statistics change only because the window of 24 hours moves.
_STATISTICS_KEPT_MAX_S = 600.0
_STATISTICS_BATCH = 100
_STATISTICS_BUDGET_S = 0.5
_SPARK_POINTS = 60
# Debts of more than a year are equal in the order of the board.
# The orders of the board that are kept until the next refresh.
_ORDERS_MAX = 20
_AGING = {
    "observed_at",
    "last_completed_age_intervals",
    "freshness",
    "replay_debt_ms",
    "replay_debt_records",
    "replay_debt_catch_up_ms",
}
_LASTING = [name for name in api.JobOut.model_fields if name not in _AGING]
_SORT_KEYS: Mapping[BoardSort, Callable[[api.JobOut], Any]] = {
    BoardSort.NAME: lambda row: row.name.casefold(),
    BoardSort.HEALTH: lambda row: None if row.health is None else -URGENCY[row.health],
    BoardSort.VERDICT: lambda row: None if row.verdict is None else row.verdict.kind,
    BoardSort.ALERTS: attrgetter("alerts_firing_count"),
    BoardSort.AGE: attrgetter("last_completed_age_intervals"),
    BoardSort.DEBT: attrgetter("replay_debt_ms"),
    BoardSort.SUCCESS: attrgetter("success_24h_ratio"),
    BoardSort.P50: attrgetter("duration_p50_ms"),
    BoardSort.P99: attrgetter("duration_p99_ms"),
    BoardSort.PHASE: attrgetter("dominant_phase"),
    BoardSort.MODE: attrgetter("mode"),
    BoardSort.ADVICE: attrgetter("open_advice_count"),
    BoardSort.PRESSURE: attrgetter("backpressured_max_ratio"),
}


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Selects rows of the board. A field that is None does not restrict the selection."""

    target_id: str | None = None
    health: Health | None = None


@dataclass(frozen=True, slots=True)
class BoardWindow:
    """Selects a window of the board's rows, and identifies the rows that the client has already.

    ``since`` is the version of the board that the client has seen, ``known`` the ids of the jobs whose rows it has.
    """

    offset: int
    limit: int
    sort: BoardSort = BoardSort.URGENCY
    is_descending: bool = False
    search: str | None = None
    since: str | None = None
    known: frozenset[str] = frozenset()
    has_ended: bool = True
    """Whether the window contains ended jobs. They come after all others."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Rows in the requested order, and how many of them have each health; None counts jobs not analysed yet."""

    rows: list[api.JobOut]
    counts: Counter[Health | None]

    @classmethod
    def of(cls, rows: list[api.JobOut]) -> Listed:
        """Count the rows."""
        return cls(rows, Counter(row.health for row in rows))

    def with_more(self, others: Listed) -> Listed:
        """Return these rows and then the others."""
        return Listed([*self.rows, *others.rows], self.counts + others.counts)


@dataclass(frozen=True, slots=True)
class _Board:
    """The rows as of one refresh, and the values that all windows share, which are computed once for all clients."""

    at_s: float
    as_of: datetime
    rows: list[api.JobOut]
    sources: list[str]
    newest_observed_at: datetime | None
    version: int
    changed_at: Mapping[str, int]
    """For each row, the version of the board in which it last changed."""
    ordered: dict[tuple[BoardSort, bool, str | None], tuple[Listed, Listed]] = field(default_factory=dict)
    """The sorted rows, for each order and search that a client has requested since the refresh.

    The first list has the jobs that have not ended, the second list those that have.
    """


@dataclass(frozen=True, slots=True)
class _Statistics:
    """The statistics of one job. They were read at ``at_s``, when its newest checkpoints were those in ``ended``."""

    at_s: float
    ended: tuple[object, ...]
    day: DayStatistics
    spark: list[api.SparkPointOut] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Input:
    """The values from which a row is made, apart from the time. Equal inputs give rows that differ in ages only."""

    version: int
    target: tuple[str, TargetState]
    statistics_at_s: float | None
    advised: int
    alerts: OpenCount | None


class FleetService:
    """Computes the fleet board for API requests. There is one instance per process."""

    def __init__(self, engine: AsyncEngine, clock: Clock, jobs: AnalysedJobs) -> None:
        self._engine = engine
        self._clock = clock
        self._jobs = jobs
        self._turn = anyio.Lock()
        self._board: _Board | None = None
        self._viewed_at_s = float("-inf")
        self._statistics: dict[str, _Statistics] = {}
        self._made: dict[str, tuple[_Input, api.JobOut]] = {}
        # A version of the board is the number of refreshes in this process. It has no meaning in another process, so
        # clients get it together with this random name of the process.
        self._instance = token_hex(4)
        self._version = 0
        self._changed_at: dict[str, int] = {}

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
        """Return the time at which the board was computed, and all its rows."""
        board = await self._current()
        return board.as_of, board.rows

    async def refresh_if_viewed(self) -> None:
        """Bring the board up to date if a client has asked for it lately, so that the next request need not wait."""
        if self._clock.monotonic_s() - self._viewed_at_s <= _VIEWED_S:
            await self._refreshed()

    async def _current(self) -> _Board:
        """Return the board. If a refresh is in progress, return the board as it was before, unless it is too old."""
        self._viewed_at_s = self._clock.monotonic_s()
        board = self._board
        if board is not None and self._turn.locked() and self._viewed_at_s - board.at_s <= _BOARD_USABLE_S:
            return board
        return await self._refreshed()

    async def _refreshed(self) -> _Board:
        async with self._turn:
            if self._board is None or self._clock.monotonic_s() - self._board.at_s > _BOARD_KEPT_S:
                now = self._clock.now()
                async with reading(self._engine) as connection:
                    rows = await self._rows(connection, now)
                self._board = _Board(
                    at_s=self._clock.monotonic_s(),
                    as_of=now,
                    rows=sorted(rows, key=_order),
                    sources=list(dict.fromkeys(row.capabilities.source for row in rows)),
                    newest_observed_at=max((r.observed_at for r in rows if r.observed_at is not None), default=None),
                    version=self._version,
                    changed_at=self._changed_at,
                )
            return self._board

    async def window(self, wanted: BoardWindow) -> BoardOut:
        """Return a window of the board, with only those rows that the client does not have."""
        board = await self._current()
        lasting, ended = _ordered(board, wanted)
        found = lasting.with_more(ended) if wanted.has_ended else lasting
        shown = found.rows[wanted.offset : wanted.offset + wanted.limit]
        stale = [row for row in found.rows if row.freshness is not None and row.freshness.is_stale]
        seen = self._version_of(wanted.since)
        return BoardOut.model_construct(
            ids=[row.id for row in shown],
            rows=[r for r in shown if seen is None or r.id not in wanted.known or board.changed_at[r.id] > seen],
            total=len(found.rows),
            ended_count=len(ended.rows),
            counts={health: count for health, count in found.counts.items() if health is not None},
            stale_counts=Counter(row.health for row in stale if row.health is not None),
            stale=stale_by_reason(stale),
            unanalysed_count=found.counts[None],
            sources=board.sources,
            newest_observed_at=board.newest_observed_at,
            version=f"{self._instance}-{board.version}",
            as_of=board.as_of,
        )

    def _version_of(self, since: str | None) -> int | None:
        """Return the number of a version that this instance issued, or None if ``since`` is not such a version."""
        instance, _, number = (since or "").rpartition("-")
        return int(number) if instance == self._instance and number.isascii() and number.isdigit() else None

    async def row(self, connection: AsyncConnection, case: JobCase) -> api.JobOut:
        """Return the board's row for one job, even if the job's target is no longer watched."""
        now = self._clock.now()
        statistics = await self._read_statistics(connection, [case], now)
        advised = await open_advice_counts(connection)
        row = _row(case, statistics[case.record.id], now, advised.get(case.record.id, 0))
        row = _with_alerts(row, (await open_counts(connection, now)).get(row.id))
        return _aged(row, case.record, now, is_collecting=await has_collector(connection))

    async def _rows(self, connection: AsyncConnection, now: datetime) -> list[api.JobOut]:
        found, unread = await self._jobs.refresh(connection)
        watched = [WatchedJob(case_now(w.job, now), w.version) for w in found]
        await self._refresh_statistics(connection, [w.job for w in watched], now)
        known = {w.job.record.id for w in watched}
        self._statistics = {job_id: s for job_id, s in self._statistics.items() if job_id in known}
        alerts = await open_counts(connection, now)
        advised = await open_advice_counts(connection)
        is_collecting = await has_collector(connection)
        before, self._version = self._made, self._version + 1
        made: dict[str, tuple[_Input, api.JobOut]] = {}
        for w in watched:
            record = w.job.record
            own, row = self._make(w, now, advised.get(record.id, 0), alerts.get(record.id))
            made[record.id] = own, _aged(row, record, now, is_collecting=is_collecting)
        for record in (as_heard(r, now) for r in unread):
            bare = _unread_row(record, advised.get(record.id, 0))
            opened = alerts.get(record.id)
            own = _Input(0, (record.target_name, record.target_state), None, advised.get(record.id, 0), opened)
            row = _aged(_with_alerts(bare, opened), record, now, is_collecting=is_collecting)
            made[record.id] = own, row
        self._made = made
        self._changed_at = {
            job_id: self._changed_at[job_id] if job_id in before and _is_same(before[job_id][1], row) else self._version
            for job_id, (_, row) in self._made.items()
        }
        return [row for _, row in self._made.values()]

    async def _refresh_statistics(
        self, connection: AsyncConnection, jobs: Sequence[RecalledJob], now: datetime
    ) -> None:
        """Read the statistics that are due, until the time is over."""
        due = self._due(jobs)
        began_s = self._clock.monotonic_s()
        for begin in range(0, len(due), _STATISTICS_BATCH):
            self._statistics |= await self._read_statistics(connection, due[begin : begin + _STATISTICS_BATCH], now)
            if self._clock.monotonic_s() - began_s > _STATISTICS_BUDGET_S:
                break

    def _make(
        self, watched: WatchedJob[RecalledJob], now: datetime, advised: int, alerts: OpenCount | None
    ) -> tuple[_Input, api.JobOut]:
        """Return the job's row without its ages. If its input is that of the last refresh, return the same row."""
        job, record = watched.job, watched.job.record
        statistics, before = self._statistics.get(record.id), self._made.get(record.id)
        target = (record.target_name, record.target_state)
        own = _Input(watched.version, target, None if statistics is None else statistics.at_s, advised, alerts)
        if before is not None and before[0] == own:
            return before
        return own, _with_alerts(_row(job, statistics, now, advised), alerts)

    def _due(self, cases: Sequence[RecalledJob]) -> list[RecalledJob]:
        """Return the jobs whose statistics must be read: first the new ones, then those that were read longest ago."""
        now_s = self._clock.monotonic_s()

        def age_s(case: JobHead) -> float:
            kept = self._statistics.get(case.record.id)
            if kept is None:
                return float("inf")
            is_same = kept.ended == _ended(case) and now_s - kept.at_s <= _STATISTICS_KEPT_MAX_S
            return 0.0 if is_same else now_s - kept.at_s

        ages = [(age, i) for i, case in enumerate(cases) if (age := age_s(case)) > _STATISTICS_KEPT_S]
        return [cases[i] for _, i in sorted(ages, reverse=True)]

    async def _read_statistics(
        self, connection: AsyncConnection, cases: Sequence[JobHead], now: datetime
    ) -> dict[str, _Statistics]:
        by_job = await statistics_of(connection, [c.record.id for c in cases], now - _DAY)
        since = day_of(now - _DAY)
        recent = await recent_ends(connection, [c.record.run.id for c in cases], limit=_SPARK_POINTS, since=since)
        at_s = self._clock.monotonic_s()
        return {
            case.record.id: _Statistics(
                at_s=at_s,
                ended=_ended(case),
                day=by_job.get(case.record.id, DayStatistics()),
                spark=[
                    api.SparkPointOut.model_construct(at=at, duration_ms=ms, status=status)
                    for at, ms, status in recent.get(case.record.run.id, ())
                ],
            )
            for case in cases
        }


def _ordered(board: _Board, wanted: BoardWindow) -> tuple[Listed, Listed]:
    """Return the matching rows in the requested order, as two lists: jobs that have not ended, and jobs that have."""
    key = (wanted.sort, wanted.is_descending, wanted.search)
    listed = board.ordered.get(key)
    if listed is None:
        text = (wanted.search or "").casefold()
        rows = [row for row in board.rows if _matches(row, text)] if text else board.rows
        rows = _sorted(rows, wanted.sort, is_descending=wanted.is_descending)
        listed = (
            Listed.of([row for row in rows if row.state is not JobState.ENDED]),
            Listed.of([row for row in rows if row.state is JobState.ENDED]),
        )
        if len(board.ordered) < _ORDERS_MAX:
            board.ordered[key] = listed
    return listed


def _matches(row: api.JobOut, text: str) -> bool:
    """Return whether the name of the job or of its target contains ``text``, or a label in the form ``name=value``."""
    labels = (f"{name}={value}" for name, value in row.labels.items())
    return any(text in one.casefold() for one in (row.name, row.target_name, *labels))


def _is_same(before: api.JobOut, row: api.JobOut) -> bool:
    """Return whether two rows of a job are equal, apart from the values that change with every reading."""
    is_same = is_as_stale(before.freshness, row.freshness)
    return is_same and all(getattr(before, name) == getattr(row, name) for name in _LASTING)


def _sorted(rows: list[api.JobOut], sort: BoardSort, *, is_descending: bool) -> list[api.JobOut]:
    """Sort rows that are in order of urgency. Rows with equal values keep that order, and missing values come last."""
    key = _SORT_KEYS.get(sort)
    if key is None:
        return rows[::-1] if is_descending else rows
    present = [row for row in rows if key(row) is not None]
    return sorted(present, key=key, reverse=is_descending) + [row for row in rows if key(row) is None]


def _ended(case: JobHead) -> tuple[object, ...]:
    """Return a value that differs once another checkpoint of the job has ended."""
    ended = tuple(h.header.checkpoint_id for h in case.headers if h.header.status.is_terminal)
    return (case.record.run.id, *ended)


def _aged(row: api.JobOut, record: JobRecord, now: datetime, *, is_collecting: bool) -> api.JobOut:
    """Return the row with the values that change whenever time passes or the job is observed."""
    engine_now = record.engine_now(now)
    aged = {
        "observed_at": record.run.observed_at,
        "last_completed_age_intervals": _age(row.last_completed_at, row.interval_ms, engine_now),
        "freshness": freshness_of(record, now, is_collecting=is_collecting),
        **aged_debt(row.replay_debt, record, now),
    }
    return row.model_copy(update=aged)


def _with_alerts(row: api.JobOut, opened: OpenCount | None) -> api.JobOut:
    if opened is None:
        return row
    return row.model_copy(update={"alerts_firing_count": opened.count, "alerts_severity": opened.severity})


def _row(
    case: JobCase | RecalledJob, statistics: _Statistics | None, now: datetime, open_advice_count: int
) -> api.JobOut:
    record, config, finding = case.record, case.shape.config, case.finding
    day = DayStatistics() if statistics is None else statistics.day
    terminal = day.completed_count + day.failed_count
    # If the statistics are missing, the time comes from the newest checkpoints, if one of them completed.
    last_at = _last_completed_at(case, day)
    interval_ms = config.interval_ms if config is not None else finding.interval_ms if finding is not None else None
    opened = case.open_checkpoint
    return _unread_row(record, open_advice_count).model_copy(
        update={
            "mode": mode_of(config),
            "interval_ms": interval_ms,
            "timeout_ms": config.timeout_ms if config is not None else None,
            "last_completed_at": last_at,
            "last_completed_age_intervals": _age(last_at, interval_ms, record.engine_now(now)),
            "in_progress_checkpoint_id": opened.header.checkpoint_id if opened is not None else None,
        }
        | dict(debt_fields(case, finding, now))
        | ({} if finding is None else _of_finding(finding))
        | (
            {}
            if statistics is None
            else {
                "completed_24h_count": day.completed_count,
                "failed_24h_count": day.failed_count,
                "success_24h_ratio": day.completed_count / terminal if terminal else None,
                "duration_p50_ms": day.duration_p50_ms,
                "duration_p99_ms": day.duration_p99_ms,
                "is_p50_lower_bound": day.is_p50_lower_bound,
                "is_p99_lower_bound": day.is_p99_lower_bound,
                "sparkline": statistics.spark,
            }
        )
    )


def _of_finding(finding: Finding) -> dict[str, object]:
    return {
        "health": finding.diagnosis.health,
        "verdict": api.VerdictOut.model_validate(finding.diagnosis.verdict),
        "dominant_phase": finding.dominant_phase,
        "backpressured_max_ratio": finding.backpressured_max_ratio,
    }


def _unread_row(record: JobRecord, open_advice_count: int) -> api.JobOut:
    """Return the row of a job of which only the record is known."""
    run = record.run
    return api.JobOut.of(
        record,
        run,
        run_id=run.id,
        engine=run.engine.kind,
        capabilities=run.engine,
        mode=None,
        health=None,
        verdict=None,
        interval_ms=None,
        timeout_ms=None,
        last_completed_at=None,
        last_completed_age_intervals=None,
        completed_24h_count=None,
        failed_24h_count=None,
        success_24h_ratio=None,
        duration_p50_ms=None,
        duration_p99_ms=None,
        dominant_phase=None,
        backpressured_max_ratio=None,
        in_progress_checkpoint_id=None,
        sparkline=[],
        open_advice_count=open_advice_count,
    )


def _last_completed_at(case: JobHead, day: DayStatistics) -> datetime | None:
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
    """Return the sort key of a row: the worst job first, then the name decides."""
    kind = None if row.verdict is None else row.verdict.kind
    has_ended = row.state is JobState.ENDED
    return urgency_key(row.health, kind, debt_ms=row.replay_debt_ms, has_ended=has_ended), row.name, row.id
