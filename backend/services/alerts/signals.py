"""Reads the input of the alert rules: the current state of every watched job and target.

The number of queries does not depend on the number of jobs. The age of a pending checkpoint counts up to its last
reading, not up to now, because later acknowledgements have not been read yet. The acknowledgement curves of ended
checkpoints are cached, because they no longer change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.alerting.labels import Labels
from backend.alerting.signals import (
    FAILURES_COUNTED_MAX,
    EndedCheckpoint,
    HistorySignal,
    JobSignal,
    OpenSignal,
    Place,
    RunSpan,
    ServiceSignal,
    Signal,
    SourceSignal,
    TargetSignal,
)
from backend.analysis.health.failures import is_real_failure, reasons_without_fault
from backend.analysis.health.finish import PastCheckpoint, past_of
from backend.analysis.health.progress import AckCurve, OpenCheckpoint, curve_of, elapsed_of_last_ack_ms, judge
from backend.analysis.health.refusals import Refusal
from backend.analysis.words.thresholds import RESTARTS_MIN_COUNT
from backend.domain import spelling
from backend.domain.checkpoint import Checkpoint, CheckpointHeader, CheckpointKind, CheckpointStatus, LateBarrier
from backend.domain.clock import Clock
from backend.domain.ids import JobId, TargetId, VertexId
from backend.domain.losses import Loss
from backend.domain.observation import JobState
from backend.domain.target import TargetOrigin, TargetState
from backend.domain.text import capitalised
from backend.domain.verdict import Verdict, VerdictKind
from backend.services.alerts.refused import refusals_of
from backend.services.history_forecast import HistoryForecast
from backend.services.jobs.evidence import EvidenceReader, JobCase, JobHead, case_now
from backend.services.jobs.findings import Finding
from backend.services.jobs.growth import GrowthReader
from backend.services.jobs.replay_debt import debt_of_job
from backend.services.jobs.silent_jobs import as_heard, hear_of
from backend.services.jobs.watched import WatchedJob, WatchedJobs
from backend.services.presenting import host_of
from backend.store.checkpoints import reader as stored
from backend.store.checkpoints.reader import CheckpointRecord, LiveRecord, lives_of
from backend.store.checkpoints.statistics import LastCompleted, failures_in_row, last_completed_of
from backend.store.checkpoints.subtask_values import VertexAcks, acks_of
from backend.store.jobs.reader import JobRecord, config_since, newest_exceptions, newest_losses, runs_before
from backend.store.schema.partitions import Retention
from backend.store.stored_days import SizeForecast
from backend.store.targets.declared import list_sources
from backend.store.targets.targets import TargetRecord, TargetRepository

# A job that is polled is stale if its data is older than this and older than three poll intervals.
_STALE_AFTER_S = 30.0
_PAST_KEPT_MAX = 20_000
_PLACE_KEPT_S = 30.0
_PLACES_BUDGET_S = 1.0
_PLACES_LEAST_S = 0.25
# The time for reading the signals and the places together. The longer the signals take, the less time is left for the
# places.
_PASS_WITHIN_S = 1.7
_PLACES_BATCH = 25
_PAST_BUDGET_S = 0.25
_PAST_BATCH = 400

_Missing: TypeAlias = Mapping[stored.CheckpointPlace, tuple[CheckpointRecord, int]]


@dataclass(frozen=True, slots=True)
class Signals:
    """The complete input of one evaluation of the alert rules."""

    signals: tuple[Signal, ...]
    target_labels: Mapping[TargetId, Labels]


@dataclass(frozen=True, slots=True)
class _Ended:
    """The cached facts of an ended checkpoint.

    ``past`` contains the times from which the duration of a running checkpoint is predicted, ``curve`` the
    acknowledgement curve, and ``pending`` the subtasks that never acknowledged.
    """

    past: PastCheckpoint | None
    curve: AckCurve | None
    pending: tuple[tuple[VertexId, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class _Facts:
    """The facts of a job that are read again only after the job changed. ``version`` is the version that was read."""

    version: int
    ended: tuple[EndedCheckpoint, ...]
    ended_records: tuple[CheckpointRecord, ...]
    triggers: tuple[datetime, ...]
    failures_in_row_count: int
    completed: LastCompleted | None
    runs_before: tuple[RunSpan, ...]
    restarted_at: tuple[datetime, ...]
    losses: tuple[Loss, ...]
    refusal: Refusal | None
    comparable: tuple[CheckpointRecord, ...]
    """The checkpoints of the run under its present settings, without savepoints."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """The finding that names the place of an alert. It was read at ``at_s``, after the ended checkpoint ``ended``."""

    at_s: float
    ended: stored.CheckpointPlace | None
    finding: Finding


class SignalReader:
    """Reads the signals. Each process has one instance."""

    def __init__(
        self, engine: AsyncEngine, clock: Clock, evidence: EvidenceReader, retention: Retention | None = None
    ) -> None:
        self._targets = TargetRepository(engine)
        self._history = HistoryForecast(engine, clock, retention or Retention())
        self._clock = clock
        self._evidence = evidence
        self._watched: WatchedJobs[JobHead] = WatchedJobs(clock, evidence.heads)
        self._growth = GrowthReader(clock)
        self._facts: dict[JobId, _Facts] = {}
        self._heads: dict[JobId, JobHead] = {}
        self._places: dict[JobId, _Judged] = {}
        self._read_began_s = 0.0
        self._ended: dict[stored.CheckpointPlace, _Ended] = {}
        self._without: dict[stored.CheckpointPlace, int] = {}
        """The ended checkpoints that had no details when they were last looked up, with the version of the job then."""

    async def read(self, connection: AsyncConnection) -> Signals:
        """Read the signals of every watched job and target, and of the service itself. The signals name no place yet.

        Raises:
            StoreUnavailableError: PostgreSQL is unreachable.
        """
        now = self._clock.now()
        self._read_began_s = self._clock.monotonic_s()
        known = await self._targets.list_all()
        watched = await self._watched.read(connection)
        targets = {t.id: t for t in await hear_of(connection, known, [w.job.record for w in watched], now)}
        jobs = {w.job.record.id: w for w in watched if w.job.record.run.target_id in targets}
        await self._read_facts(connection, jobs)
        self._heads = {job_id: replace(w.job, record=as_heard(w.job.record, now)) for job_id, w in jobs.items()}
        opens = {job_id: o for job_id, h in self._heads.items() if (o := h.open_checkpoint) is not None}
        unread = await self._remember_past(connection, opens)
        oldest = min((o.header.triggered_at for o in opens.values()), default=now)
        runs = [o.run_id for o in opens.values()]
        late = await stored.late_barriers_of(connection, runs, oldest - timedelta(hours=1)) if opens else {}
        lives = await lives_of(connection, [(o.run_id, o.header.checkpoint_id) for o in opens.values()])
        growths = await self._growth.of_jobs(connection, self._heads)
        sources = [SourceSignal(s.source, s.place, s.problem) for s in await list_sources(connection)]
        signals: list[Signal] = [ServiceSignal(now, _history(await self._history.read()), tuple(sources))]
        names: dict[TargetId, list[str]] = {}
        for job_id, head in self._heads.items():
            opened = opens.get(job_id)
            key = None if opened is None else (opened.run_id, opened.header.checkpoint_id)
            live = None if key is None else lives.get(key)
            barriers = () if key is None else late.get(key[0], {}).get(key[1], ())
            target = targets[head.record.run.target_id]
            signal = self._job(head, self._facts[job_id], target, now, live, barriers)
            if job_id in unread and signal.opened is not None:
                signal = replace(signal, opened=replace(signal.opened, is_past_read=False))
            signals.append(replace(signal, growth=growths.get(job_id), is_growth_read=job_id in growths))
            names.setdefault(head.record.run.target_id, []).append(head.record.name)
        signals += [_target(t, now, names.get(t.id, ())) for t in targets.values() if t.is_enabled]
        return Signals(tuple(signals), {t.id: t.labels for t in targets.values()})

    async def with_places(self, connection: AsyncConnection, signals: Signals, subjects: Set[str | None]) -> Signals:
        """Return the signals of the last ``read``, with the places that the verdicts on these jobs name.

        A place is determined again if another checkpoint of the job has ended, and otherwise every ``_PLACE_KEPT_S``
        seconds. This call stops after ``_PLACES_BUDGET_S`` seconds, or earlier if ``read`` took long, and leaves the
        other places to later calls. Until then, a signal has its last place, or none.
        """
        now = self._clock.now()
        heads = {job_id: h for job_id, h in self._heads.items() if job_id in subjects}
        self._places = {job_id: p for job_id, p in self._places.items() if job_id in heads}
        self._evidence.forget_others(heads)
        due = self._due(heads)
        began_s = self._clock.monotonic_s()
        left_s = _PASS_WITHIN_S - (began_s - self._read_began_s)
        budget_s = min(_PLACES_BUDGET_S, max(_PLACES_LEAST_S, left_s))
        for begin in range(0, len(due), _PLACES_BATCH):
            batch = due[begin : begin + _PLACES_BATCH]
            missing = [self._missing(h.record.id, self._facts[h.record.id].ended_records[-1:]) for h in batch]
            await self._remember(connection, missing)
            for case in await self._evidence.cases_of(connection, batch):
                job_id, at_s = case.record.id, self._clock.monotonic_s()
                self._places[job_id] = _Judged(at_s, _last_ended(self._facts[job_id]), case.finding)
            if self._clock.monotonic_s() - began_s > budget_s:
                break
        cases = {
            job_id: case_now(
                JobCase(h.record, h.shape, h.headers, h.open_checkpoint, self._places[job_id].finding), now
            )
            for job_id, h in heads.items()
            if job_id in self._places
        }
        placed = tuple(
            self._placed(s, cases[s.job_id]) if isinstance(s, JobSignal) and s.job_id in cases else s
            for s in signals.signals
        )
        return replace(signals, signals=placed)

    def _due(self, heads: Mapping[JobId, JobHead]) -> list[JobHead]:
        """Return the jobs whose place must be determined.

        First come those without a place, then those of which another checkpoint has ended, then those whose place was
        determined longest ago.
        """
        now_s = self._clock.monotonic_s()
        due: list[tuple[int, float, JobId]] = []
        for job_id in heads:
            known = self._places.get(job_id)
            if known is None:
                due.append((0, 0.0, job_id))
            elif known.ended != _last_ended(self._facts[job_id]):
                due.append((1, known.at_s, job_id))
            elif now_s - known.at_s > _PLACE_KEPT_S:
                due.append((2, known.at_s, job_id))
        return [heads[job_id] for *_, job_id in sorted(due)]

    def _placed(self, signal: JobSignal, case: JobCase) -> JobSignal:
        verdict = case.finding.diagnosis.verdict
        place = self._place(case, self._facts[signal.job_id].ended_records)
        opened = signal.opened
        if opened is not None and opened.waiting.vertex is not None:
            waiting = replace(opened.waiting, phase=verdict.phase, sentence=_sentence(verdict))
            opened = replace(opened, waiting=waiting)
        return replace(signal, place=place, opened=opened, intermittence=verdict.intermittence)

    async def _read_facts(self, connection: AsyncConnection, jobs: Mapping[JobId, WatchedJob[JobHead]]) -> None:
        """Read the facts of the jobs that changed, and forget those of jobs that are no longer watched."""
        kept = {job_id: f for job_id, f in self._facts.items() if job_id in jobs}
        changed = [w for job_id, w in jobs.items() if job_id not in kept or kept[job_id].version != w.version]
        if changed:
            records = [w.job.record for w in changed]
            completed = await last_completed_of(connection, [r.id for r in records])
            before = await _runs_before(connection, records, completed)
            since = await config_since(connection, [r.run.id for r in records])
            failed = await _failures_in_row(connection, changed)
            refused = await refusals_of(connection, [w.job for w in changed])
            looping = [r.run.id for r in records if (r.run.restart_count or 0) >= RESTARTS_MIN_COUNT]
            exceptions = await newest_exceptions(connection, looping) if looping else {}
            lost = await newest_losses(connection, [r.run.id for r in records])
            for w in changed:
                job_id, run_id = w.job.record.id, w.job.record.run.id
                restarted_at = tuple(at for at, _ in exceptions.get(run_id, ()))
                facts = _facts(w, completed.get(job_id), since.get(run_id), before.get(job_id, ()), restarted_at)
                row, refusal = failed.get(run_id, 0), refused.get(job_id)
                kept[job_id] = replace(facts, failures_in_row_count=row, refusal=refusal, losses=lost.get(run_id, ()))
        self._facts = kept

    async def _remember_past(
        self, connection: AsyncConnection, opens: Mapping[JobId, CheckpointRecord]
    ) -> frozenset[JobId]:
        """Read the details of the ended checkpoints with which these open checkpoints are compared.

        After a start, thousands of details are missing. So this call stops after ``_PAST_BUDGET_S`` seconds; the
        checkpoints that have been open longest come first. Return the jobs that are left for a later call.
        """
        began_s = self._clock.monotonic_s()
        oldest_first = sorted(opens, key=lambda job_id: opens[job_id].header.triggered_at)
        missing = {job_id: self._missing(job_id, self._facts[job_id].comparable) for job_id in oldest_first}
        left = deque(job_id for job_id, found in missing.items() if found)
        while left and self._clock.monotonic_s() - began_s <= _PAST_BUDGET_S:
            batch: list[_Missing] = []
            while left and sum(map(len, batch)) < _PAST_BATCH:
                batch.append(missing[left.popleft()])
            await self._remember(connection, batch)
        return frozenset(left)

    def _missing(self, job_id: JobId, records: Sequence[CheckpointRecord]) -> _Missing:
        """Return those of a job's ended checkpoints whose details must be read, each with the version of the job.

        The details of a checkpoint may arrive one poll after its header. Their arrival changes the version of the
        job. So a checkpoint that has no details is looked up again only after its job has changed.
        """
        version = self._facts[job_id].version
        absent = {r.place: (r, version) for r in records if _is_ended(r) and r.place not in self._ended}
        return absent if any(self._without.get(place) != version for place in absent) else {}

    async def _remember(self, connection: AsyncConnection, missing: Sequence[_Missing]) -> None:
        """Read the details of these checkpoints, and remember the facts of each."""
        wanted = {place: found for of_job in missing for place, found in of_job.items()}
        acks = await acks_of(connection, list(wanted))
        for place, (record, version) in wanted.items():
            if place in acks:
                self._ended[place] = _ended(record.header, acks[place])
                self._without.pop(place, None)
            else:
                self._without[place] = version
        if len(self._ended) > _PAST_KEPT_MAX or len(self._without) > _PAST_KEPT_MAX:
            present = {h.place for head in self._heads.values() for h in head.headers}
            self._ended = {place: e for place, e in self._ended.items() if place in present}
            self._without = {place: v for place, v in self._without.items() if place in present}

    def _job(
        self,
        head: JobHead,
        facts: _Facts,
        target: TargetRecord,
        now: datetime,
        live: LiveRecord | None,
        late: Sequence[LateBarrier],
    ) -> JobSignal:
        record, run = head.record, head.record.run
        opened = head.open_checkpoint
        if opened is not None and opened.header.kind is not CheckpointKind.CHECKPOINT:
            opened = None
        completed = facts.completed
        return JobSignal(
            job_id=record.id,
            name=record.name,
            target_id=run.target_id,
            target_name=target.name,
            flink_job_id=run.engine_run_id if run.engine.is_flink_release else None,
            run_id=run.id,
            run_started_at=run.started_at,
            state=run.state,
            # Ages count up to the last reading, because later changes have not been read yet. They use the engine's
            # clock.
            now_engine=min(record.engine_now(now), record.read_at_engine),
            is_watched=target.is_enabled,
            stale_reason=_stale_reason(target, record, now),
            unread_reason=next(iter(run.problems), "") if run.state is JobState.UNREADABLE else None,
            config=head.shape.config,
            ended=facts.ended,
            failures_in_row_count=facts.failures_in_row_count,
            triggers=facts.triggers,
            ended_ago_s=_ended_ago_s(record, now),
            last_completed_at=None if completed is None else completed.at,
            last_completed=None if completed is None else (completed.run_id, completed.checkpoint_id),
            runs_before=facts.runs_before,
            restarted_at=facts.restarted_at,
            losses=facts.losses,
            debt=debt_of_job(head),
            refusal=facts.refusal,
            opened=None if opened is None else self._open(head, opened, live, late, facts.comparable),
        )

    def _place(self, case: JobCase, ended: Sequence[CheckpointRecord]) -> Place:
        """Return the place that the verdict names.

        If the verdict names no vertex and the newest checkpoint failed, return the subtasks that did not acknowledge
        that checkpoint.
        """
        verdict = case.finding.diagnosis.verdict
        if verdict.vertex is None and ended and ended[-1].header.status is CheckpointStatus.FAILED:
            known = self._ended.get(ended[-1].place)
            if known is not None and known.pending:
                pending = _pending_place(case, known.pending)
                return replace(pending, phase=verdict.phase, sentence=_sentence(verdict))
        cause = None if verdict.kind in (VerdictKind.NONE, VerdictKind.UNDECIDED) else verdict.kind
        last = None if verdict.last is None else verdict.last.subtask
        return Place(verdict.vertex, verdict.subtasks, verdict.hosts, verdict.phase, _sentence(verdict), cause, last)

    def _open(
        self,
        head: JobHead,
        opened: CheckpointRecord,
        live: LiveRecord | None,
        late: Sequence[LateBarrier],
        comparable: Sequence[CheckpointRecord],
    ) -> OpenSignal:
        header, config = opened.header, head.shape.config
        seen_at = max([opened.observed_at, *([live.progress.observed_at] if live is not None else [])])
        elapsed_ms = _since_trigger_ms(head, opened, seen_at)
        counts = [header.acknowledged_count, *([live.progress.acknowledged_count] if live is not None else [])]
        last_ms = _last_ack_ms(head, opened, live)
        pending = live.progress.pending if live is not None else ()
        timeout_ms = config.timeout_ms if config is not None else None
        known = [e for h in comparable if (e := self._ended.get(h.place)) is not None]
        curves = [e.curve for e in known if e.curve is not None]
        barriers = {(b.vertex_id, b.subtask): b.start_delay_ms for b in late if _is_pending(pending, b)}
        running = OpenCheckpoint(
            elapsed_ms, max(counts), header.subtask_count, last_ms, timeout_ms, first_barriers_ms=barriers
        )
        return OpenSignal(
            run_id=opened.run_id,
            checkpoint_id=header.checkpoint_id,
            triggered_at=header.triggered_at,
            running=running,
            past=tuple(e.past for e in known if e.past is not None),
            judgement=judge(running, curves[-10:]),
            silent_ms=elapsed_ms - (last_ms or 0),
            waiting=_pending_place(head, pending) if pending else Place(),
        )


def _facts(
    watched: WatchedJob[JobHead],
    completed: LastCompleted | None,
    config_since: datetime | None,
    before: tuple[RunSpan, ...],
    restarted_at: tuple[datetime, ...],
) -> _Facts:
    record = watched.job.record
    headers = _without_savepoints(watched)
    ended = _counted(watched)
    changed_at = None if config_since is None else record.engine_now(config_since)
    return _Facts(
        version=watched.version,
        ended=tuple(_ended_out(h) for h in ended),
        ended_records=ended,
        triggers=tuple(h.header.triggered_at for h in headers),
        failures_in_row_count=0,
        completed=completed,
        runs_before=before,
        restarted_at=restarted_at,
        losses=(),
        refusal=None,
        comparable=tuple(h for h in headers if changed_at is None or h.header.triggered_at >= changed_at),
    )


def _without_savepoints(watched: WatchedJob[JobHead]) -> list[CheckpointRecord]:
    return [h for h in watched.job.headers if h.header.kind is CheckpointKind.CHECKPOINT]


def _counted(watched: WatchedJob[JobHead]) -> tuple[CheckpointRecord, ...]:
    """Return the newest checkpoints that completed or count as failures."""
    has_restarts = bool(watched.job.record.run.restart_count)
    return tuple(h for h in _without_savepoints(watched) if _counts(h, has_restarts))


async def _failures_in_row(connection: AsyncConnection, changed: Sequence[WatchedJob[JobHead]]) -> Mapping[str, int]:
    """Return how many checkpoints of each run failed since the last completed one.

    Only runs whose newest checkpoints all failed are counted.
    """
    failing = [
        w for w in changed if (ended := _counted(w)) and all(h.header.status is CheckpointStatus.FAILED for h in ended)
    ]
    failures: dict[str, int] = {}
    for has_restarts in (False, True):
        runs = [w.job.record.run.id for w in failing if bool(w.job.record.run.restart_count) is has_restarts]
        reasons = reasons_without_fault(has_restarts=has_restarts)
        if runs:
            failures |= await failures_in_row(connection, runs, but=reasons, limit=FAILURES_COUNTED_MAX)
    return failures


def _last_ended(facts: _Facts) -> stored.CheckpointPlace | None:
    return facts.ended_records[-1].place if facts.ended_records else None


async def _runs_before(
    connection: AsyncConnection, records: Sequence[JobRecord], completed: Mapping[str, LastCompleted]
) -> Mapping[str, tuple[RunSpan, ...]]:
    """Return the runs of each job since its last completed checkpoint, newest first.

    Jobs whose current run has completed a checkpoint are left out.
    """
    since = {job_id: last.at for job_id, last in completed.items()}
    barren = [r for r in records if r.id not in since or since[r.id] < r.run.started_at]
    found = await runs_before(connection, barren, since) if barren else {}
    return {job_id: tuple(RunSpan(r.started_at, r.ended_at) for r in runs) for job_id, runs in found.items()}


def _ended_ago_s(record: JobRecord, now: datetime) -> float | None:
    if record.run.state is not JobState.ENDED:
        return None
    return (record.engine_now(now) - (record.run.ended_at or record.read_at_engine)).total_seconds()


def _is_ended(record: CheckpointRecord) -> bool:
    header = record.header
    return header.status.is_terminal and header.kind is CheckpointKind.CHECKPOINT


def _counts(record: CheckpointRecord, has_restarts: bool) -> bool:
    header = record.header
    if header.status is CheckpointStatus.COMPLETED:
        return True
    return is_real_failure(Checkpoint(header), has_restarts=has_restarts)


def _ended(header: CheckpointHeader, vertices: Sequence[VertexAcks]) -> _Ended:
    acks = [v for d in vertices for v in d.ack_delay_ms]
    pending = tuple((d.vertex_id, d.pending) for d in vertices if d.pending)
    barriers = {(d.vertex_id, i): v for d in vertices for i, v in enumerate(d.start_delay_ms) if v is not None}
    return _Ended(past_of(header, acks, barriers), curve_of(header, acks), pending)


def _ended_out(record: CheckpointRecord) -> EndedCheckpoint:
    header = record.header
    return EndedCheckpoint(
        run_id=record.run_id,
        checkpoint_id=header.checkpoint_id,
        triggered_at=header.triggered_at,
        status=header.status,
        reason=header.failure_reason,
        is_failure=header.status is CheckpointStatus.FAILED,
        duration_ms=header.end_to_end_duration_ms,
    )


def _stale_reason(target: TargetRecord, record: JobRecord, now: datetime) -> str | None:
    if target.origin is TargetOrigin.PUSH:
        # No collector polls such a target, so each of its jobs is judged on its own, by its driver's clock.
        age_s = (record.engine_now(now) - record.run.observed_at).total_seconds()
        age = spelling.duration(1000 * age_s)
        return None if age_s <= _STALE_AFTER_S else f"its driver sent the last event {age} ago"
    if record.run.state is JobState.UNREADABLE:
        return "what its engine reports about it cannot be read"
    if target.state not in (TargetState.OK, TargetState.PARTIAL):
        why = f" ({target.reason})" if target.reason else ""
        return f"its target is {target.state}{why}"
    limit_s = max(_STALE_AFTER_S, 3 * _poll_interval_s(target))
    age_s = (now - record.run.observed_at).total_seconds()
    return None if age_s <= limit_s else f"it was last read {spelling.duration(1000 * age_s)} ago"


def _poll_interval_s(target: TargetRecord) -> float:
    return (target.cost.poll_interval_s or 0.0) if target.cost is not None else 0.0


def _since_trigger_ms(head: JobHead, opened: CheckpointRecord, at: datetime) -> int:
    return max(0, round((head.record.engine_now(at) - opened.header.triggered_at) / timedelta(milliseconds=1)))


def _last_ack_ms(head: JobHead, opened: CheckpointRecord, live: LiveRecord | None) -> int | None:
    known_ms = elapsed_of_last_ack_ms(Checkpoint(opened.header, live.details if live is not None else ()))
    if known_ms is not None or live is None:
        return known_ms
    last, before = None, 0
    for at, count in live.points:
        if count > before:
            last, before = at, count
    return None if last is None else _since_trigger_ms(head, opened, last)


def _is_pending(pending: Sequence[tuple[VertexId, tuple[int, ...]]], barrier: LateBarrier) -> bool:
    return not pending or any(v == barrier.vertex_id and barrier.subtask in p for v, p in pending)


def _pending_place(head: JobHead, pending: Sequence[tuple[VertexId, tuple[int, ...]]]) -> Place:
    """Return the pending subtasks of the vertex that is nearest to the sources.

    Pending vertices downstream of that vertex may be late only because that vertex is late.
    """
    order = {v.id: (i, v.name) for i, v in enumerate(head.shape.topology.vertices)}
    vertex_id, subtasks = min(pending, key=lambda p: order.get(p[0], (len(order), ""))[0])
    hosts = [host_of(head.record.run.placements, vertex_id, i) for i in subtasks]
    named = tuple(dict.fromkeys(h for h in hosts if h))
    name = order[vertex_id][1] if vertex_id in order else vertex_id
    return Place(name, tuple(subtasks), named)


def _history(size_forecast: SizeForecast) -> HistorySignal | None:
    if size_forecast.held_days is None or size_forecast.needed_bytes is None:
        return None
    return HistorySignal(
        size_forecast.held_days, size_forecast.promised_days, size_forecast.size_limit_bytes, size_forecast.needed_bytes
    )


def _sentence(verdict: Verdict) -> str:
    text = verdict.sentence
    return capitalised(text) + ("" if text.endswith(".") else ".")


def _target(target: TargetRecord, now: datetime, job_names: Sequence[str]) -> TargetSignal:
    return TargetSignal(
        target_id=target.id,
        name=target.name,
        url=target.url,
        state=target.state,
        now=now,
        added_at=target.added_at,
        reason=target.reason,
        since=target.since,
        last_attempt_at=target.last_attempt_at,
        last_success_at=target.last_success_at,
        poll_interval_s=_poll_interval_s(target),
        job_names=tuple(sorted(job_names)),
        is_pushed=target.origin is TargetOrigin.PUSH,
    )
