"""The progress of a checkpoint: the subtasks that it waits for, its acknowledgement curve, and whether it is stuck.

The elapsed time counts from the engine's trigger, so the current time is converted to the engine's clock. A time is
never shown as negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.advisor.thresholds import QUEUE_FACTOR, QUEUE_HIGH_FACTOR, QUEUE_LOW_FACTOR
from backend.analysis.health.finish import past_checkpoint, predict
from backend.analysis.health.progress import (
    AckCurve,
    Judged,
    Judgement,
    OpenCheckpoint,
    ack_curve,
    elapsed_of_last_ack_ms,
    judge,
)
from backend.analysis.verdict.verdict import checkpoint_verdict
from backend.contracts.progress import AckPointOut, FinishOut, PendingOut, ProgressOut, UnalignedOut
from backend.domain.checkpoint import CheckpointKind, CheckpointStatus
from backend.domain.clock import Clock
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Topology
from backend.services.checkpoints.actions import actions_of
from backend.services.checkpoints.queues import queued_in_front
from backend.services.checkpoints.reader import CheckpointKey, CheckpointService, Opened
from backend.services.jobs.evidence import is_lost
from backend.store.jobs.reader import config_since
from backend.store.postgres.connections import reading

_PAST_CURVES = 5
_PAST_JUDGED = 10
_CURVE_POINTS_MAX = 60


T = TypeVar("T")
PENDING_MAX: Final = 10_000
"""If more subtasks are pending, each vertex shows only some of them. Its counts are of all."""


class ProgressService:
    """Handles requests for the progress of a checkpoint. For a terminal checkpoint, returns its last state."""

    def __init__(self, engine: AsyncEngine, clock: Clock, checkpoints: CheckpointService) -> None:
        self._engine = engine
        self._clock = clock
        self._checkpoints = checkpoints

    async def of(self, key: CheckpointKey) -> ProgressOut:
        """Return the progress of one checkpoint.

        Raises:
            UnknownEntityError: there is no such job, run or checkpoint.
        """
        async with reading(self._engine) as connection:
            opened = await self._checkpoints.open(connection, key, is_whole=True)
            changed = (await config_since(connection, [opened.run.id])).get(opened.run.id)
        # Checkpoints under other settings do not show how long one takes now.
        since = None if changed is None else opened.job.engine_now(changed)
        # The judgement takes some milliseconds, so it runs outside the event loop.
        return await self._checkpoints.work.run(_progress, opened, since, self._clock.now())


@dataclass(frozen=True, slots=True)
class _Waiting:
    """The subtasks of one vertex that have not acknowledged."""

    vertex_id: VertexId
    total: int
    pending: tuple[int, ...]


def _progress(opened: Opened, settings_since: datetime | None, now: datetime) -> ProgressOut:
    header, config = opened.record.header, opened.evidence.config
    curves = [
        curve
        for checkpoint in opened.evidence.checkpoints
        if checkpoint.header.checkpoint_id != header.checkpoint_id
        if (curve := ack_curve(checkpoint)) is not None
    ]
    elapsed_ms = header.end_to_end_duration_ms
    if elapsed_ms is None:
        # The time counts up to the last reading, because the checkpoint may have ended after it.
        last = min(opened.job.engine_now(now), opened.job.read_at_engine)
        elapsed_ms = max(0, round((last - header.triggered_at) / timedelta(milliseconds=1)))
    acks = _acks(opened)
    timeout_ms = config.timeout_ms if config is not None else None
    is_open = not header.status.is_terminal
    acknowledged = max([header.acknowledged_count, *(count for _, count in acks)])
    open_ = OpenCheckpoint(
        elapsed_ms=elapsed_ms,
        acknowledged_count=acknowledged,
        subtask_count=header.subtask_count,
        last_ack_ms=_last_ack_ms(opened),
        timeout_ms=timeout_ms,
        status=header.status,
        first_barriers_ms={(b.vertex_id, b.subtask): b.start_delay_ms for b in opened.late if is_open},
    )
    judgement = _judgement(opened, curves, open_)
    # The current queues have nothing to do with a checkpoint that has ended.
    newest = _newest(opened.evidence.pressure) if is_open else {}
    times_out_at = None
    if is_open and timeout_ms is not None:
        # The time is converted from the engine's clock to ours, because the browser counts down on our clock.
        offset = timedelta(milliseconds=opened.job.clock_offset_ms or 0)
        times_out_at = header.triggered_at + timedelta(milliseconds=timeout_ms) - offset
    return ProgressOut(
        job_id=opened.job.id,
        run_id=opened.run.id,
        checkpoint_id=header.checkpoint_id,
        status=header.status,
        triggered_at=header.triggered_at,
        elapsed_ms=elapsed_ms,
        timeout_ms=timeout_ms,
        remaining_ms=max(0, timeout_ms - elapsed_ms) if is_open and timeout_ms is not None else None,
        times_out_at=times_out_at,
        clock_offset_ms=opened.job.clock_offset_ms,
        acknowledged=acknowledged,
        total=header.subtask_count,
        judgement=judgement.state.value,
        judgement_rule=judgement.rule,
        waiting_on=_waiting_on(opened),
        acks=_points(acks),
        past_acks=[_points(_curve(c.acks_ms)) for c in curves[-_PAST_CURVES:]],
        typical_duration_ms=judgement.typical_duration_ms,
        queued_bytes=_queued_bytes(newest),
        finish=_finish(opened, open_, settings_since),
        unaligned_now=_unaligned_now(opened, newest),
        actions=actions_of(opened),
        as_of=now,
    )


def _judgement(opened: Opened, curves: Sequence[AckCurve], open_: OpenCheckpoint) -> Judgement:
    judgement = judge(open_, curves[-_PAST_JUDGED:])
    if is_lost(opened.record, opened.run):
        rule = "its run ended or no longer reports it; its end was not observed"
        return replace(judgement, state=Judged.ENDED, rule=rule)
    return judgement


def _finish(opened: Opened, open_: OpenCheckpoint, settings_since: datetime | None) -> FinishOut | None:
    header = opened.record.header
    if is_lost(opened.record, opened.run) or header.kind is not CheckpointKind.CHECKPOINT:
        # Earlier checkpoints do not show how long a savepoint takes.
        return None
    past = [
        p
        for c in opened.evidence.checkpoints
        if c.header.checkpoint_id != header.checkpoint_id
        if settings_since is None or c.header.triggered_at >= settings_since
        if (p := past_checkpoint(c)) is not None
    ]
    finish = predict(open_, past)
    return None if finish is None else FinishOut.of(finish)


def _unaligned_now(opened: Opened, newest: Mapping[VertexId, VertexPressure]) -> UnalignedOut | None:
    """Return what the barriers would overtake now: the queues in front of the subtasks that still await barriers."""
    if opened.record.header.status.is_terminal:
        return None
    total = queued_in_front(opened.evidence.topology, _awaiting_barriers(opened), newest)
    if total is None:
        return None
    return UnalignedOut(value=QUEUE_FACTOR * total, low=QUEUE_LOW_FACTOR * total, high=QUEUE_HIGH_FACTOR * total)


def _awaiting_barriers(opened: Opened) -> dict[VertexId, list[int]]:
    """Return the pending subtasks of each vertex, without those that all barriers are known to have passed.

    A subtask that aligns has only its first barrier, so it still awaits others.
    """
    running = () if opened.live is None else opened.live.progress.alignment_running_ms
    aligning = {(v, i) for v, values in running for i, value in enumerate(values) if value is not None}
    passed = {(b.vertex_id, b.subtask) for b in opened.late} - aligning
    return {w.vertex_id: [i for i in w.pending if (w.vertex_id, i) not in passed] for w in _waiting(opened)}


def _last_ack_ms(opened: Opened) -> int | None:
    known_ms = elapsed_of_last_ack_ms(opened.checkpoint)
    if known_ms is not None or opened.live is None:
        return known_ms
    # The acknowledgement arrived between two readings. The time of the later reading is used, so that a checkpoint is
    # never called stuck too early.
    rises = [at for (at, count), before in _with_before(opened.live.points) if count > before]
    return _since_trigger_ms(opened, rises[-1]) if rises else None


def _with_before(points: Sequence[tuple[datetime, int]]) -> Iterator[tuple[tuple[datetime, int], int]]:
    before = 0
    for at, count in points:
        yield (at, count), before
        before = max(before, count)


def _since_trigger_ms(opened: Opened, at: datetime) -> int:
    """Return the milliseconds from the trigger to ``at``. ``at`` is on our clock, the trigger on the engine's clock."""
    return max(0, round((opened.job.engine_now(at) - opened.record.header.triggered_at) / timedelta(milliseconds=1)))


def _acks(opened: Opened) -> list[tuple[int, int]]:
    """Return the acknowledgement curve: milliseconds since the trigger, and the acknowledgements until then.

    It uses the times that the subtasks reported if all are known, otherwise the counts at each poll.
    """
    times = sorted(max(0, v) for d in opened.checkpoint.details for v in d.ack_delay_ms if v is not None)
    is_known = len(times) >= opened.record.header.acknowledged_count
    seen = opened.live.points if opened.live is not None else ()
    if times and is_known and (not seen or len(times) >= max(count for _, count in seen)):
        return _curve(times)
    return [(_since_trigger_ms(opened, at), count) for at, count in seen]


def _curve(acks_ms: Sequence[int]) -> list[tuple[int, int]]:
    return [(at_ms, i) for i, at_ms in enumerate(acks_ms, start=1)]


def _points(curve: Sequence[tuple[int, int]]) -> list[AckPointOut]:
    """Return the points of the curve that are sent: all of a short one, and at most ``_CURVE_POINTS_MAX``."""
    chosen: Iterable[int] = range(len(curve))
    if len(curve) > _CURVE_POINTS_MAX:
        last = len(curve) - 1
        chosen = sorted({round(i * last / (_CURVE_POINTS_MAX - 1)) for i in range(_CURVE_POINTS_MAX)})
    return [AckPointOut(elapsed_ms=curve[i][0], acknowledged=curve[i][1]) for i in chosen]


def _waiting_on(opened: Opened) -> list[PendingOut]:
    """Return the vertices with pending subtasks.

    The vertex that the verdict names comes first. The others follow in the order from the sources to the sinks, because
    a late vertex delays those downstream.
    """
    waiting = list(_waiting(opened))
    if not waiting:
        return []
    evidence = opened.evidence
    kept = opened.judged
    guilty = checkpoint_verdict(opened.checkpoint, evidence).vertex_id if kept is None else kept.verdict.vertex_id
    order = {v.id: i for i, v in enumerate(evidence.topology.vertices)}
    waiting.sort(key=lambda w: (w.vertex_id != guilty, order.get(w.vertex_id, len(order))))
    # The current queues have nothing to do with a checkpoint that has ended.
    newest = {} if opened.record.header.status.is_terminal else _newest(evidence.pressure)
    most = PENDING_MAX if sum(len(w.pending) for w in waiting) <= PENDING_MAX else max(1, PENDING_MAX // len(waiting))
    hosts: dict[VertexId, Sequence[str | None]] = {p.vertex_id: p.hosts for p in opened.run.placements}
    first_ms: dict[VertexId, dict[int, int]] = {}
    for barrier in opened.late:
        first_ms.setdefault(barrier.vertex_id, {})[barrier.subtask] = barrier.start_delay_ms
    aligning = {} if opened.live is None else dict(opened.live.progress.alignment_running_ms)
    return [
        PendingOut(
            vertex_id=w.vertex_id,
            vertex=opened.evidence.vertex_name(w.vertex_id),
            acknowledged=w.total - len(w.pending),
            total=w.total,
            pending=list(w.pending[:most]),
            first_barrier_ms=[first_ms.get(w.vertex_id, {}).get(i) for i in w.pending[:most]],
            aligning_ms=[_at(aligning.get(w.vertex_id, ()), i) for i in w.pending[:most]],
            hosts=[_at(hosts.get(w.vertex_id, ()), i) for i in w.pending[:most]],
            queued_bytes=_queued_before(opened.evidence.topology, w.vertex_id, newest),
        )
        for w in waiting
    ]


def _at(values: Sequence[T], index: int) -> T | None:
    return values[index] if index < len(values) else None


def _waiting(opened: Opened) -> Iterator[_Waiting]:
    """Yield the pending subtasks of each vertex.

    They come from the last live reading if it contains pending subtasks, otherwise from the details.
    """
    if opened.record.header.status is CheckpointStatus.COMPLETED:
        return
    if opened.live is not None and opened.live.progress.pending:
        totals = {v: total for v, _, total in opened.live.progress.acknowledged_by_vertex}
        for vertex_id, pending in opened.live.progress.pending:
            if pending:
                yield _Waiting(vertex_id, totals.get(vertex_id, _parallelism(opened, vertex_id, pending)), pending)
        return
    acks = {d.vertex_id: d.ack_delay_ms for d in opened.checkpoint.details}
    for vertex in opened.evidence.topology.vertices:
        # A vertex without details has no subtask that acknowledged.
        of_vertex = acks.get(vertex.id, (None,) * vertex.parallelism)
        pending = tuple(i for i, ack in enumerate(of_vertex) if ack is None)
        if pending:
            yield _Waiting(vertex.id, len(of_vertex), pending)


def _parallelism(opened: Opened, vertex_id: VertexId, pending: Sequence[int]) -> int:
    vertex = opened.evidence.topology.vertex(vertex_id)
    return vertex.parallelism if vertex is not None else len(pending)


def _queued_before(topology: Topology, vertex: VertexId, newest: Mapping[VertexId, VertexPressure]) -> int | None:
    """Return the bytes queued before a vertex: in its in-queues and in the out-queues of its upstream vertices.

    Return None if a reading is missing, or if an upstream vertex feeds other vertices too. Channels within one
    TaskManager have no in-queue; their data waits at the sender (flink-baseline.md).
    """
    upstream = topology.upstream(vertex)
    if vertex not in newest or any(u not in newest or len(topology.downstream(u)) > 1 for u in upstream):
        return None
    return _sum([*newest[vertex].queued_in_bytes, *(v for u in upstream for v in newest[u].queued_out_bytes)])


def _newest(readings: Sequence[VertexPressure]) -> Mapping[VertexId, VertexPressure]:
    return {r.vertex_id: r for r in readings}


def _queued_bytes(newest: Mapping[VertexId, VertexPressure]) -> int | None:
    return _sum([v for r in newest.values() for v in (*r.queued_in_bytes, *r.queued_out_bytes)])


def _sum(values: Sequence[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None
