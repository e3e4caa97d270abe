"""Reads the micro-batches of a running driver of Spark from its REST API: its SQL executions, one for each batch.

The list of executions has the id of the query, of the run, the number of the batch, its status, its start and its
duration. The duration is that of ``addBatch``, without the planning and the writing of the checkpoint log. Everything
else of a batch is missing. Executions leave the list (``spark.sql.ui.retainedExecutions``), so their position is not
their number.

A driver runs a query once at a time. So a run has ended if a newer run of its query has begun. A run that is quiet and
whose executions have all left the list is given up; if it begins a batch later, it is active again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from backend.domain import spelling
from backend.domain.batch_work import BatchWork
from backend.domain.checkpoint import Checkpoint, CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.engines import SPARK_DRIVER
from backend.domain.errors import TargetProtocolError
from backend.domain.failure import FailureReason
from backend.domain.ids import EngineRunId, TargetId
from backend.domain.micro_batch import MicroBatch
from backend.domain.observation import NOT_LISTED, JobObservation, JobState, Observation
from backend.domain.text import clean
from collectors.base import Effort, KnownRuns
from collectors.flink.document import Document
from collectors.spark import applications
from collectors.spark.applications import Attempt
from collectors.spark.driver_work import Batch, DriverWork, Ended
from collectors.spark.history_server import HistoryServer

REPLACED: Final = "REPLACED"
"""The engine state of a run after which the driver began a newer run of its query. It did not fail."""
QUIET_AFTER: Final = timedelta(minutes=10)
# Other SQL executions push the batches of a query with a long trigger out of the list while it runs.
_LEFT_AFTER: Final = timedelta(days=1)
PAGE: Final = 500
_PAGES_MAX = 8
_OVERLAP = 20
_NAME_MAX = 500
_TEXT_MAX = 8000
_LINE_MAX = 500
_ABSENT: Final = "none of its micro-batches is in the driver's list any more, so it is not known whether it still runs"
_BATCHES_MAX = 5_000
_DESCRIPTION: Final = re.compile(
    r"(?:(?P<name>[^\n]*)\n)?id = (?P<id>[0-9a-fA-F-]{36})\nrunId = (?P<run>[0-9a-fA-F-]{36})\n"
    r"batch = (?P<batch>\d{1,15})$"
)
Works = Mapping[Batch, BatchWork]
_STATUS: Final = {
    "RUNNING": CheckpointStatus.IN_PROGRESS,
    "COMPLETED": CheckpointStatus.COMPLETED,
    "FAILED": CheckpointStatus.FAILED,
}


@dataclass(frozen=True, slots=True)
class Execution:
    """One SQL execution of a micro-batch."""

    number: int
    run: tuple[str, str]
    name: str | None
    batch: int
    status: CheckpointStatus
    began_at: datetime
    duration_ms: int
    error: str | None
    job_ids: tuple[int, ...] = ()
    """The Spark jobs of the batch, with those of the executions below this one."""

    @property
    def ended_at(self) -> datetime:
        """When it ended; if it runs, when it was read, on the driver's clock."""
        return self.began_at + timedelta(milliseconds=self.duration_ms)


@dataclass(slots=True)
class _Query:
    name: str
    started_at: datetime
    last: Execution
    is_handed_on: bool = False


@dataclass(slots=True)
class DriverCollector:
    """Implements ``Collector`` for one driver."""

    server: HistoryServer
    target_id: TargetId
    known: KnownRuns
    monotonic_s: Callable[[], float]
    _app_id: str | None = None
    _next: int = 0
    _left_count: int = 0
    _queries: dict[tuple[str, str], _Query] = field(default_factory=dict)
    _batches: dict[tuple[tuple[str, str], int], int] = field(default_factory=dict)
    _open: dict[tuple[EngineRunId, datetime], str] = field(default_factory=dict)
    _of_earlier: set[tuple[EngineRunId, datetime]] = field(default_factory=set)
    _work: DriverWork = field(init=False)

    def __post_init__(self) -> None:
        self._work = DriverWork(self.server)
        self._open = {key: run.name for key, run in self.known.items()}

    @property
    def poll_within_s(self) -> float | None:
        """None: the list is long."""
        return None

    @property
    def query_count(self) -> int:
        """The number of queries that have a batch in the list."""
        return len({query for query, _ in self._queries})

    def forget(self) -> None:
        """Read everything again at the next poll."""
        self._app_id, self._next, self._left_count = None, 0, 0
        self._queries, self._batches = {}, {}
        self._work = DriverWork(self.server)

    async def collect(self, now: datetime, *, effort: Effort = Effort.FULL) -> Observation:
        """List the application, and read what is new; see ``Collector``."""
        began_s = self.monotonic_s()
        listed = await self.server.list_since(now)
        if not applications.is_driver(listed):
            reason = "a driver answered here before, and now something else of Spark answers"
            raise TargetProtocolError(url=self.server.url, reason=reason, is_passing=True)
        return await self.observe(listed[0], now, began_s)

    async def observe(self, attempt: Attempt, now: datetime, began_s: float) -> Observation:
        """Read the executions of the application that are new."""
        if attempt.app_id != self._app_id:
            if self._app_id is not None:
                self._of_earlier |= set(self._open)
            self.forget()
        rows, lost_count = await self._executions(attempt)
        self._app_id = attempt.app_id
        # A batch may have executions below its first one, which has the whole time.
        firsts = [e for e in rows if self._batches.setdefault((e.run, e.batch), e.number) == e.number]
        works = await self._work.of(attempt, [_ended(e) for e in firsts if e.status is CheckpointStatus.COMPLETED])
        # Batches have times of the driver's clock, so their ages are judged on it.
        ahead = self.server.clock_ahead
        jobs = self._jobs(attempt, firsts, works, lost_count, now + ahead)
        return Observation(
            target_id=self.target_id,
            observed_at=now,
            engine=SPARK_DRIVER,
            engine_version=self.server.version,
            jobs=tuple(jobs),
            cost=self.server.cost.taken(round(1000 * (self.monotonic_s() - began_s))),
            clock_offset_ms=round(ahead / timedelta(milliseconds=1)),
        )

    async def _executions(self, attempt: Attempt) -> tuple[list[Execution], int]:
        """Return the executions from the first one that had not ended, and how many left the list before."""
        found: dict[int, Execution] = {}
        job_ids: dict[object, set[int]] = {}
        offset = max(0, self._next - self._left_count - _OVERLAP)
        is_placed, lost_count, highest = False, 0, self._next - 1
        left_count = self._left_count
        for _ in range(_PAGES_MAX):
            path = f"{attempt.path}/sql?details=false&planDescription=false&offset={offset}&length={PAGE}"
            document = await self.server.get(path)
            numbers = []
            for row in document.items():
                numbers.append(row.get("id").count())
                job_ids.setdefault(_batch_of(row, numbers[-1]), set()).update(_job_ids(row))
                execution = _execution(row, numbers[-1])
                if execution is not None and execution.number >= self._next:
                    found.setdefault(execution.number, execution)
            if not is_placed:
                if not numbers and offset > 0:
                    offset = max(0, offset - PAGE)
                    continue
                if numbers and numbers[0] > self._next and offset > 0:
                    offset = max(0, offset - (numbers[0] - self._next) - _OVERLAP)
                    continue
                is_placed = True
                lost_count = max(0, numbers[0] - self._next) if numbers and self._app_id is not None else 0
            if numbers:
                left_count = max(0, numbers[0] - offset)
                highest = max(highest, *numbers)
            if len(numbers) < PAGE:
                break
            offset += PAGE
        self._left_count = left_count
        rows = [_with_jobs(found[number], job_ids) for number in sorted(found)]
        running = [e.number for e in rows if e.status is CheckpointStatus.IN_PROGRESS]
        self._next = min([*running, highest + 1])
        return rows, lost_count

    def _jobs(
        self, attempt: Attempt, rows: list[Execution], works: Works, lost_count: int, now: datetime
    ) -> list[JobObservation]:
        new: dict[tuple[str, str], list[Checkpoint]] = {}
        for execution in rows:
            query = self._queries.get(execution.run)
            name = f"{attempt.name}: {execution.name or execution.run[0]}"[:_NAME_MAX]
            if query is None:
                query = _Query(name, execution.began_at, execution)
                self._queries[execution.run] = query
            query.last, query.is_handed_on = execution, False
            new.setdefault(execution.run, []).append(
                _checkpoint(execution, works.get((execution.run, execution.batch)))
            )
        while len(self._batches) > _BATCHES_MAX:
            del self._batches[next(iter(self._batches))]
        newest: dict[str, int] = {}
        for (query_id, _), query in self._queries.items():
            newest[query_id] = max(query.last.number, newest.get(query_id, 0))
        jobs = []
        for run, query in list(self._queries.items()):
            is_replaced = query.last.number < newest[run[0]]
            is_listed = query.last.number >= self._left_count or query.last.status is CheckpointStatus.IN_PROGRESS
            if not query.is_handed_on:
                job = _job(run, query, new.get(run, ()), lost_count, now, is_replaced=is_replaced, is_listed=is_listed)
                jobs.append(job)
                query.is_handed_on = job.state is JobState.ENDED
            if query.is_handed_on and (is_replaced or not is_listed):
                del self._queries[run]
        return jobs + self._gone(attempt, jobs)

    def _gone(self, attempt: Attempt, jobs: list[JobObservation]) -> list[JobObservation]:
        """Return the open runs without an execution in the list.

        Those of an earlier application have ended, and those of a query with a newer run. Others may still run: other
        SQL executions of the application push those of a query out of the list.
        """
        listed = {EngineRunId(f"{query}/{run}") for query, run in self._queries} | {j.engine_run_id for j in jobs}
        queries = {query for query, _ in self._queries}
        absent = [
            JobObservation(key[0], name, JobState.ENDED, NOT_LISTED, key[1])
            if key in self._of_earlier or key[1] < attempt.started_at or key[0].partition("/")[0] in queries
            else JobObservation(key[0], name, JobState.UNKNOWN, "ACTIVE", key[1], problems=(_ABSENT,))
            for key, name in self._open.items()
            if key[0] not in listed
        ]
        self._of_earlier = set()
        self._open = {(j.engine_run_id, j.started_at): j.name for j in jobs + absent if j.state is not JobState.ENDED}
        return absent


def _execution(row: Document, number: int) -> Execution | None:
    """Return the execution of a micro-batch; None for any other, and for a part of one."""
    description = row.get("description").value
    found = _DESCRIPTION.match(description) if isinstance(description, str) else None
    if found is None:
        return None
    root = row.find("rootExecutionId")
    if root is not None and root.count() != number:
        return None
    status = row.get("status")
    known = _STATUS.get(str(status.value))
    if known is None:
        raise status.fail(f"is none of {', '.join(_STATUS)}")
    error = row.find("errorMessage")
    name = clean(found["name"] or "", length_max=_NAME_MAX)
    return Execution(
        number=number,
        run=(found["id"].lower(), found["run"].lower()),
        name=name or None,
        batch=int(found["batch"]),
        status=known,
        began_at=_instant(row.get("submissionTime")),
        duration_ms=row.get("duration").count(),
        error=None if error is None else error.text(length_max=_TEXT_MAX) or None,
    )


def _instant(found: Document) -> datetime:
    try:
        return datetime.strptime(str(found.value), "%Y-%m-%dT%H:%M:%S.%fGMT").replace(tzinfo=UTC)
    except ValueError:
        raise found.fail("is no instant of Spark") from None


def _batch_of(row: Document, number: int) -> object:
    """Return what the Spark jobs of an execution belong to: the run and the batch, or else the root execution."""
    description = row.get("description").value
    found = _DESCRIPTION.match(description) if isinstance(description, str) else None
    if found is not None:
        return (found["id"].lower(), found["run"].lower()), int(found["batch"])
    root = row.find("rootExecutionId")
    return number if root is None else root.count()


def _job_ids(row: Document) -> list[int]:
    lists = (row.find(name) for name in ("runningJobIds", "successJobIds", "failedJobIds"))
    return [number.count() for found in lists if found is not None for number in found.items()]


def _with_jobs(execution: Execution, job_ids: Mapping[object, set[int]]) -> Execution:
    known = [job_ids.get(key, set()) for key in ((execution.run, execution.batch), execution.number)]
    return replace(execution, job_ids=tuple(sorted(set().union(*known))))


def _ended(execution: Execution) -> Ended:
    return Ended(
        batch=(execution.run, execution.batch),
        execution_id=execution.number,
        job_ids=execution.job_ids,
        began_at=execution.began_at,
        duration_ms=execution.duration_ms,
    )


def _checkpoint(execution: Execution, work: BatchWork | None) -> Checkpoint:
    has_failed = execution.status is CheckpointStatus.FAILED
    is_open = execution.status is CheckpointStatus.IN_PROGRESS
    header = CheckpointHeader(
        checkpoint_id=execution.batch,
        kind=CheckpointKind.CHECKPOINT,
        status=execution.status,
        triggered_at=execution.began_at,
        end_to_end_duration_ms=None if is_open else execution.duration_ms,
        failure_reason=FailureReason.QUERY_FAILURE if has_failed else None,
        failure_message=(execution.error or "")[:_LINE_MAX] or None if has_failed else None,
        failed_at=execution.ended_at if has_failed else None,
    )
    return Checkpoint(header, batch=MicroBatch(work=work))


def _job(
    run: tuple[str, str],
    query: _Query,
    batches: list[Checkpoint] | tuple[()],
    lost_count: int,
    now: datetime,
    *,
    is_replaced: bool,
    is_listed: bool,
) -> JobObservation:
    last = query.last
    has_failed = last.status is CheckpointStatus.FAILED
    quiet_for = now - last.ended_at
    problems = []
    state, engine_state, ended_at = JobState.RUNNING, "ACTIVE", None
    if has_failed or is_replaced:
        state, engine_state, ended_at = JobState.ENDED, "FAILED" if has_failed else REPLACED, last.ended_at
    elif quiet_for > _LEFT_AFTER and not is_listed:
        state, engine_state = JobState.ENDED, NOT_LISTED
    elif quiet_for > QUIET_AFTER and last.status is CheckpointStatus.COMPLETED:
        state = JobState.UNKNOWN
        duration = spelling.duration(quiet_for / timedelta(milliseconds=1))
        problems.append(
            f"it has begun no micro-batch for {duration}; the driver's REST API does not say whether it still runs"
        )
    if lost_count:
        problems.append(
            f"{lost_count:,} SQL executions left the driver's list before they were read, so batches may be missing"
        )
    return JobObservation(
        engine_run_id=EngineRunId(f"{run[0]}/{run[1]}"),
        name=query.name,
        state=state,
        engine_state=engine_state,
        started_at=query.started_at,
        ended_at=ended_at,
        checkpoints=tuple(batches),
        exceptions=((last.ended_at, last.error),) if has_failed and last.error else (),
        problems=tuple(problems),
    )
