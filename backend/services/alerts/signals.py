"""Reads the input of the alert rules: every watched job and target now, with a fixed number of queries.

The age of a pending checkpoint is taken at its last reading, not now: acknowledgements since then have not been seen.
Curves of ended checkpoints are cached, since they no longer change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.alerting.labels import Labels
from backend.alerting.prediction import Past, Running, SubtaskKey
from backend.alerting.signals import (
    EndedCheckpoint,
    JobSignal,
    OpenSignal,
    Place,
    RunSpan,
    ServiceSignal,
    Signal,
    TargetSignal,
)
from backend.analysis.failures import is_real_failure
from backend.analysis.progress import AckCurve, OpenCheckpoint, ack_curve, elapsed_of_last_ack_ms, judge
from backend.domain.checkpoint import Checkpoint, CheckpointKind, CheckpointStatus, LateBarrier, VertexDetail
from backend.domain.clock import Clock
from backend.domain.failure import FailureReason
from backend.domain.ids import TargetId, VertexId
from backend.domain.observation import JobState
from backend.domain.target import TargetOrigin, TargetState
from backend.domain.verdict import Phase, Verdict
from backend.services.jobs.evidence import EvidenceReader, JobCase
from backend.services.jobs.silent_jobs import targets_as_heard
from backend.services.presenting import host_of
from backend.store.checkpoints import reader as stored
from backend.store.checkpoints.reader import CheckpointRecord, LiveRecord, lives_of
from backend.store.checkpoints.statistics import LastCompleted, last_completed_of
from backend.store.jobs.reader import JobRecord, config_since, list_current, runs_before
from backend.store.targets.targets import TargetRecord, TargetRepository

# A job whose data is older than this and than three polls is stale.
_STALE_AFTER_S = 30.0
_PAST_KEPT_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Signals:
    """The complete input of one evaluation."""

    signals: tuple[Signal, ...]
    target_labels: Mapping[TargetId, Labels]


@dataclass(frozen=True, slots=True)
class _Ended:
    """Cached facts of an ended checkpoint: its curve, and the subtasks that never acknowledged."""

    past: Past | None
    curve: AckCurve | None
    pending: tuple[tuple[VertexId, tuple[int, ...]], ...]


class SignalReader:
    """Reads signals; one instance per process."""

    def __init__(self, engine: AsyncEngine, clock: Clock, evidence: EvidenceReader) -> None:
        self._targets = TargetRepository(engine)
        self._clock = clock
        self._evidence = evidence
        self._ended: dict[stored.CheckpointPlace, _Ended] = {}

    async def read(self, connection: AsyncConnection) -> Signals:
        """Read the signals of every watched job and target, and of the service itself.

        Raises:
            StoreUnavailableError: PostgreSQL is unreachable.

        """
        now = self._clock.now()
        known = await self._targets.list_all()
        current = await list_current(connection)
        targets = {t.id: t for t in targets_as_heard(known, current, now)}
        records = [r for r in current if r.run.target_id in targets]
        cases = await self._evidence.cases(connection, records)
        self._evidence.forget_others(r.id for r in records)
        run_ids = [r.run.id for r in records]
        completed = await last_completed_of(connection, [r.id for r in records])
        before = await _runs_before(connection, records, completed)
        since = await config_since(connection, run_ids)
        await self._remember_ended(connection, cases)
        opens = [o for c in cases if (o := c.open_checkpoint) is not None]
        oldest = min((o.header.triggered_at for o in opens), default=now)
        late = await stored.late_barriers_of(connection, run_ids, oldest - timedelta(hours=1))
        lives = await lives_of(connection, [(o.run_id, o.header.checkpoint_id) for o in opens])
        signals: list[Signal] = [ServiceSignal(now)]
        for case in cases:
            opened = case.open_checkpoint
            live = None if opened is None else lives.get((opened.run_id, opened.header.checkpoint_id))
            barriers = () if opened is None else late.get(opened.run_id, {}).get(opened.header.checkpoint_id, ())
            target = targets[case.record.run.target_id]
            known_since = since.get(case.record.run.id)
            signal = self._job(case, target, now, live, barriers, completed.get(case.record.id), known_since)
            signals.append(replace(signal, runs_before=before.get(case.record.id, ())))
        names: dict[TargetId, list[str]] = {}
        for record in records:
            names.setdefault(record.run.target_id, []).append(record.name)
        signals += [_target(t, now, names.get(t.id, ())) for t in targets.values() if t.is_enabled]
        return Signals(tuple(signals), {t.id: t.labels for t in targets.values()})

    async def _remember_ended(self, connection: AsyncConnection, cases: Sequence[JobCase]) -> None:
        wanted = {h.place: h for c in cases for h in c.headers if _is_ended(h)}
        missing = [place for place in wanted if place not in self._ended]
        details = await stored.details_of(connection, missing)
        if len(self._ended) > _PAST_KEPT_MAX:
            self._ended = {place: e for place, e in self._ended.items() if place in wanted}
        for place in missing:
            # Details can arrive a poll after their header: a checkpoint without them is read again next time.
            if place in details:
                self._ended[place] = _ended(Checkpoint(wanted[place].header, details[place]))

    def _job(
        self,
        case: JobCase,
        target: TargetRecord,
        now: datetime,
        live: LiveRecord | None,
        late: Sequence[LateBarrier],
        completed: LastCompleted | None,
        config_since: datetime | None,
    ) -> JobSignal:
        record, run = case.record, case.record.run
        headers = [h for h in case.headers if h.header.kind is CheckpointKind.CHECKPOINT]
        has_restarts = bool(run.restart_count)
        ended = [h for h in headers if _counts(h, has_restarts)]
        changed_at = None if config_since is None else record.engine_now(config_since)
        comparable = [h for h in headers if changed_at is None or h.header.triggered_at >= changed_at]
        opened = case.open_checkpoint
        if opened is not None and opened.header.kind is not CheckpointKind.CHECKPOINT:
            opened = None
        return JobSignal(
            job_id=record.id,
            name=record.name,
            target_id=run.target_id,
            target_name=target.name,
            run_id=run.id,
            run_started_at=run.started_at,
            state=run.state,
            # Ages are as of the last reading, since later changes have not been seen; on the engine's clock.
            now_engine=min(record.engine_now(now), record.read_at_engine),
            is_watched=target.is_enabled,
            stale_reason=_stale_reason(target, record, now),
            config=case.shape.config,
            ended=tuple(_ended_out(h) for h in ended),
            triggers=tuple(h.header.triggered_at for h in headers),
            ended_ago_s=_ended_ago_s(record, now),
            last_completed_at=None if completed is None else completed.at,
            last_completed=None if completed is None else (completed.run_id, completed.checkpoint_id),
            opened=None if opened is None else self._open(case, opened, live, late, comparable),
            place=self._place(case, ended),
        )

    def _place(self, case: JobCase, ended: Sequence[CheckpointRecord]) -> Place:
        """Return the verdict's place; without one, the newest failed checkpoint's unacknowledged subtasks."""
        verdict = case.finding.diagnosis.verdict
        if verdict.vertex is None and ended and ended[-1].header.status is CheckpointStatus.FAILED:
            known = self._ended.get(ended[-1].place)
            if known is not None and known.pending:
                return _pending_place(case, known.pending, verdict)
        return Place(verdict.vertex, verdict.subtasks, verdict.hosts, verdict.phase, _sentence(verdict))

    def _open(
        self,
        case: JobCase,
        opened: CheckpointRecord,
        live: LiveRecord | None,
        late: Sequence[LateBarrier],
        comparable: Sequence[CheckpointRecord],
    ) -> OpenSignal:
        header, config = opened.header, case.shape.config
        seen_at = max([opened.observed_at, *([live.progress.observed_at] if live is not None else [])])
        elapsed_ms = _since_trigger_ms(case, opened, seen_at)
        counts = [header.acknowledged_count, *([live.progress.acknowledged_count] if live is not None else [])]
        last_ms = _last_ack_ms(case, opened, live)
        pending = live.progress.pending if live is not None else ()
        timeout_ms = config.timeout_ms if config is not None else None
        known = [e for h in comparable if (e := self._ended.get(h.place)) is not None]
        curves = [e.curve for e in known if e.curve is not None]
        judged = OpenCheckpoint(elapsed_ms, max(counts), header.subtask_count, last_ms, timeout_ms)
        barriers = {(b.vertex_id, b.subtask): b.start_delay_ms for b in late if _is_pending(pending, b)}
        verdict = case.finding.diagnosis.verdict
        return OpenSignal(
            run_id=opened.run_id,
            checkpoint_id=header.checkpoint_id,
            triggered_at=header.triggered_at,
            running=Running(elapsed_ms, max(counts), header.subtask_count, last_ms, timeout_ms, barriers),
            past=tuple(e.past for e in known if e.past is not None),
            judgement=judge(judged, curves[-10:]),
            silent_ms=elapsed_ms - (last_ms or 0),
            waiting=_pending_place(case, pending, verdict) if pending else Place(),
        )


async def _runs_before(
    connection: AsyncConnection, records: Sequence[JobRecord], completed: Mapping[str, LastCompleted]
) -> Mapping[str, tuple[RunSpan, ...]]:
    """For jobs whose current run has completed no checkpoint: the runs since their last completed checkpoint."""
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


def _ended(checkpoint: Checkpoint) -> _Ended:
    header, details = checkpoint.header, checkpoint.details
    acks = [v for d in details for v in d.ack_delay_ms]
    pending = tuple((d.vertex_id, d.pending) for d in details if d.pending)
    is_expired = header.failure_reason is FailureReason.EXPIRED
    past = None
    if acks and header.end_to_end_duration_ms is not None and (ack_curve(checkpoint) is not None or is_expired):
        past = Past(
            acks_ms=tuple(sorted(max(0, v) for v in acks if v is not None)),
            subtask_count=len(acks) if not is_expired else header.subtask_count,
            end_ms=header.end_to_end_duration_ms,
            first_barriers_ms={key: value for d in details for key, value in _first_barriers(d)},
        )
    return _Ended(past, ack_curve(checkpoint), pending)


def _first_barriers(detail: VertexDetail) -> list[tuple[SubtaskKey, int]]:
    return [((detail.vertex_id, i), v) for i, v in enumerate(detail.start_delay_ms) if v is not None]


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
        # Nothing polls such a target: each of its jobs is judged alone, on its driver's clock.
        age_s = (record.engine_now(now) - record.run.observed_at).total_seconds()
        return None if age_s <= _STALE_AFTER_S else f"its driver sent the last event {age_s:.0f} s ago"
    if target.state is not TargetState.OK:
        why = f" ({target.reason})" if target.reason else ""
        return f"its target is {target.state}{why}"
    limit_s = max(_STALE_AFTER_S, 3 * _poll_interval_s(target))
    age_s = (now - record.run.observed_at).total_seconds()
    return None if age_s <= limit_s else f"it was last read {age_s:.0f} s ago"


def _poll_interval_s(target: TargetRecord) -> float:
    return (target.cost.poll_interval_s or 0.0) if target.cost is not None else 0.0


def _since_trigger_ms(case: JobCase, opened: CheckpointRecord, at: datetime) -> int:
    return max(0, round((case.record.engine_now(at) - opened.header.triggered_at) / timedelta(milliseconds=1)))


def _last_ack_ms(case: JobCase, opened: CheckpointRecord, live: LiveRecord | None) -> int | None:
    known_ms = elapsed_of_last_ack_ms(Checkpoint(opened.header, live.details if live is not None else ()))
    if known_ms is not None or live is None:
        return known_ms
    last, before = None, 0
    for at, count in live.points:
        if count > before:
            last, before = at, count
    return None if last is None else _since_trigger_ms(case, opened, last)


def _is_pending(pending: Sequence[tuple[VertexId, tuple[int, ...]]], barrier: LateBarrier) -> bool:
    return not pending or any(v == barrier.vertex_id and barrier.subtask in p for v, p in pending)


def _pending_place(case: JobCase, pending: Sequence[tuple[VertexId, tuple[int, ...]]], verdict: Verdict) -> Place:
    """Return the vertex nearest to the sources that has pending subtasks: those after it may be late because of it."""
    order = {v.id: (i, v.name) for i, v in enumerate(case.shape.topology.vertices)}
    vertex_id, subtasks = min(pending, key=lambda p: order.get(p[0], (len(order), ""))[0])
    hosts = [host_of(case.record.run.placements, vertex_id, i) for i in subtasks]
    named = tuple(dict.fromkeys(h for h in hosts if h))
    name = order[vertex_id][1] if vertex_id in order else vertex_id
    phase: Phase | None = verdict.phase
    return Place(name, tuple(subtasks), named, phase, _sentence(verdict))


def _sentence(verdict: Verdict) -> str:
    text = verdict.sentence
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


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
