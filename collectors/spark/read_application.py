"""What a collector knows of one application from its event log, and the observations that follow from it.

Invariant: an event is handed on once. ``take`` gets it, the next ``observed`` has it, and ``hand_on`` removes it after
the observation was made.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from backend.contracts import spark as wire
from backend.contracts.spark_events import RunEvents, is_batch, job_observation
from backend.domain import spelling
from backend.domain.batch_work import BatchWork
from backend.domain.engines import SPARK
from backend.domain.ids import EngineRunId
from backend.domain.observation import JobObservation, JobState, Shed
from collectors.spark.log_events import LogParser, run_of
from collectors.spark.log_stream import EVENTS_KEPT, LogRead
from collectors.spark.stage_events import Run
from collectors.spark.works import Works, with_works

SILENT_AFTER: Final = timedelta(minutes=10)
"""A query writes an event every ten seconds while it waits for data. A batch writes events of its tasks."""
APPLICATION_ENDED: Final = "APPLICATION ENDED"
"""The state of a run that did not report its end, but its application has ended."""
_NAME_MAX: Final = 500


@dataclass(slots=True)
class _Query:
    """One run of a query. ``waiting`` are the events that were not handed on yet."""

    name: str | None = None
    started_at: datetime | None = None
    last_batch: tuple[int, datetime] | None = None
    waiting: deque[wire.SparkEvent] = field(default_factory=deque)
    works: dict[int, BatchWork] = field(default_factory=dict)
    left_out_count: int = 0
    has_ended: bool = False
    is_handed_on: bool = False


@dataclass(slots=True)
class ReadApplication:
    """One application. ``name`` is its own, ``source`` says where its log is from, for the pages."""

    name: str
    parser: LogParser = field(default_factory=LogParser)
    positions: dict[int, int] = field(default_factory=dict)
    runs: dict[Run, _Query] = field(default_factory=dict)
    problem: str | None = None
    """Why the newest reading of its log failed."""
    works: Works = field(default_factory=Works)

    @property
    def is_streaming(self) -> bool:
        """Whether a query was seen in it."""
        return bool(self.runs)

    def reading(self) -> LogRead:
        """Return what a reading of the log fills. It goes on where the last one that was taken has ended."""
        last = max(self.positions) if self.positions else None
        return LogRead(self.parser, works=self.works.begun(), last=last)

    def take(self, read: LogRead, *, is_whole: bool) -> None:
        """Take over what a reading of the log has found. ``is_whole`` is whether it reached the end of the log.

        A history server sends the files in no order. If a reading broke off, what it found is taken only if no file
        before it is missing; otherwise the log is read again. A rolling log begins with file 1 or a compacted file.
        """
        order = list(read.positions)
        if not order:
            return
        first = max(self.positions) if self.positions else min(order)
        is_begun = bool(self.positions) or first <= 1 or first in read.begins
        if not is_whole and not (is_begun and order == list(range(first, first + len(order)))):
            return
        for index in sorted(read.events):
            for event in read.events[index]:
                self._add(event)
        for run, count in read.left_out.items():
            self.runs.setdefault(run, _Query()).left_out_count += count
        for run, works in read.works.chosen.items():
            if run in self.runs:
                self.runs[run].works |= works
        self.works = read.works.begun()
        # Only the newest file still grows. Those before it were read to their end.
        self.positions = {max(order): read.positions[max(order)]}

    def _add(self, event: wire.SparkEvent) -> None:
        run = self.runs.setdefault(run_of(event), _Query())
        is_progress = isinstance(event, wire.ProgressEventIn)
        name = event.progress.name if isinstance(event, wire.ProgressEventIn) else event.name
        run.name = run.name or name
        at = event.progress.timestamp if isinstance(event, wire.ProgressEventIn) else event.seen_at
        if not isinstance(event, wire.TerminatedIn):
            run.started_at = at if run.started_at is None else min(run.started_at, at)
        if isinstance(event, wire.ProgressEventIn) and is_batch(event.progress):
            ended_at = event.progress.timestamp + timedelta(milliseconds=event.progress.batch_duration or 0)
            if run.last_batch is None or event.progress.batch_id >= run.last_batch[0]:
                run.last_batch = (event.progress.batch_id, ended_at)
        if isinstance(event, wire.TerminatedIn):
            event = self._end(event, run)
        if len(run.waiting) >= EVENTS_KEPT:
            run.left_out_count += isinstance(run.waiting.popleft(), wire.ProgressEventIn)
        if is_progress or isinstance(event, wire.TerminatedIn) or not run.waiting:
            run.waiting.append(event)

    def _end(self, event: wire.TerminatedIn, run: _Query) -> wire.TerminatedIn:
        """Return the event with what the listener adds: the last batch, and a time not before it."""
        run.has_ended = True
        last = run.last_batch or (None, None)
        seen_at = max(event.seen_at, self.parser.ends.get(run_of(event), event.seen_at))
        return event.model_copy(update={"last_batch_id": last[0], "last_batch_ended_at": last[1], "seen_at": seen_at})

    def observed(
        self, *, ended_at: datetime | None, silent_for: timedelta = timedelta(), newest: dict[str, int] | None = None
    ) -> list[JobObservation]:
        """Return an observation of each run that has not ended, or whose end was not handed on yet.

        ``ended_at`` is the end of the application; None while it runs. ``silent_for`` is for how long its log has not
        grown. The batches of a run up to ``newest`` are stored already, by the run's id at its engine.
        """
        found = []
        for (query_id, run_id), query in self.runs.items():
            if query.is_handed_on or (not query.waiting and query.started_at is None):
                continue
            job = self._job(query_id, run_id, query)
            known = (newest or {}).get(job.engine_run_id)
            if known is not None:
                kept = tuple(c for c in job.checkpoints if c.header.checkpoint_id > known)
                job = replace(job, checkpoints=kept)
            found.append(self._in_state(job, ended_at, silent_for))
        return found

    def _job(self, query_id: str, run_id: str, query: _Query) -> JobObservation:
        name = f"{self.name}: {query.name or query_id}"[:_NAME_MAX]
        shed = Shed(checkpoint_count=query.left_out_count)
        if not query.waiting:
            return JobObservation(
                engine_run_id=EngineRunId(f"{query_id}/{run_id}"),
                name=name,
                state=JobState.RUNNING,
                engine_state="ACTIVE",
                started_at=_known(query.started_at),
                shed=shed,
            )
        events = RunEvents(query_id, run_id, tuple(query.waiting))
        job = job_observation(events, _push(self.parser.version, events), None)
        job = with_works(job, query.works, self.parser)
        return replace(job, name=name, started_at=query.started_at or job.started_at, shed=shed)

    def _in_state(self, job: JobObservation, ended_at: datetime | None, silent_for: timedelta) -> JobObservation:
        if job.state is JobState.ENDED:
            return job
        if ended_at is not None:
            return replace(job, state=JobState.ENDED, engine_state=APPLICATION_ENDED, ended_at=ended_at)
        if self.problem is not None:
            return replace(job, state=JobState.UNREADABLE, problems=(self.problem,))
        if silent_for > SILENT_AFTER:
            duration = spelling.duration(silent_for / timedelta(milliseconds=1))
            problem = f"its event log has not grown for {duration}, so it is not known whether its driver still runs"
            return replace(job, state=JobState.UNKNOWN, problems=(problem,))
        return job

    def hand_on(self, *, has_ended: bool) -> None:
        """Forget what the last ``observed`` contained. ``has_ended`` is whether the application has ended."""
        for query in self.runs.values():
            query.waiting.clear()
            query.works = {}
            query.left_out_count = 0
            query.is_handed_on |= query.has_ended or has_ended


def _known(at: datetime | None) -> datetime:
    if at is None:
        raise ValueError("a run without a waiting event has a start")
    return at


def _push(version: str | None, events: RunEvents) -> wire.SparkPushIn:
    # The events are valid already, and their number is that of a log, not of a request.
    return wire.SparkPushIn.model_construct(
        deployment=SPARK.kind,
        sent_at=events.observed_at,
        spark_version=version,
        dropped_count=0,
        trigger_interval_ms=None,
        events=list(events.events),
    )
