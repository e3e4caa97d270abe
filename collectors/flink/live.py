"""Reads the changing data of a running job: checkpoints in progress, late barriers, backpressure and queues.

A checkpoint in progress costs one request, plus one for each vertex of which some but not all subtasks have
acknowledged. When all subtasks of a vertex have acknowledged, its detail is read a last time. It is not read again
when the checkpoint ends.

The gauges of barriers are read only for vertices with pending subtasks. Reading them begins when the checkpoint has
been open for a second or was open at the previous poll. If the checkpoint expires, reading them continues for one
more checkpoint timeout. Backpressure is read at its own interval, and only if its values are new (``freshness``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial

from backend.contracts import flink
from backend.domain import losses
from backend.domain.checkpoint import (
    Checkpoint,
    CheckpointHeader,
    CheckpointStatus,
    LateBarrier,
    Progress,
    Values,
    VertexDetail,
)
from backend.domain.ids import EngineRunId, VertexId
from backend.domain.topology import Vertex
from collectors.base import Effort
from collectors.flink import parse, parse_metrics
from collectors.flink.barriers import read_barriers
from collectors.flink.details import read_subtasks
from collectors.flink.found import Found
from collectors.flink.freshness import Step
from collectors.flink.gauges import candidate
from collectors.flink.parse import CheckpointsAnswer, VertexAcks
from collectors.flink.pressure import MetricNames, gauge_values, request_paths, vertex_pressure, wanted_of
from collectors.flink.reading import EngineFacts, Offered, Pending, RisenCommits, RunMemory, Watch, key_of
from collectors.flink.requests import Requests
from collectors.flink.restarts import read_restarts

_OPEN_LONG = timedelta(seconds=1)
_NAMES_SETTLE = timedelta(seconds=30)
# If an attempt goes on for so long after a failed commit, the commit did not end it: a task mostly closes sooner.
_CLOSING = timedelta(seconds=30)
# On average, backpressure readings make at most this many requests per second. A job with many subtasks needs many
# requests for one reading, so it is read less often.
_PRESSURE_REQUESTS_PER_S = 2.0


class LiveReader:
    """Reads the changing data of one running job in one poll."""

    def __init__(
        self,
        requests: Requests,
        job_id: EngineRunId,
        memory: RunMemory,
        found: Found,
        *,
        engine: EngineFacts,
    ) -> None:
        self._requests = requests
        self._job_id = job_id
        self._memory = memory
        self._found = found
        self._engine = engine
        self._open: list[tuple[Checkpoint, Progress]] = []
        self._has_whole_rates = False
        self._failed_commits: list[tuple[Vertex, parse_metrics.Readings]] = []

    async def read(
        self,
        answer: CheckpointsAnswer | None,
        *,
        pressure_interval_s: float,
        unchanged_for: timedelta = timedelta(0),
    ) -> None:
        """Read all changing data into ``found``. ``answer`` is None for a job without checkpoints.

        ``unchanged_for`` is the time for which no task has changed its state.

        If the target does not respond in time, ``found`` contains what was read until then.
        """
        memory = self._memory
        # The engine's metrics may be twice as old as its fetch interval. Rates older than this cover a whole minute of
        # the present attempts.
        self._has_whole_rates = unchanged_for >= flink.RATE_WINDOW + 2 * self._engine.fetch_interval.time
        running = [h for h in answer.headers if not h.status.is_terminal] if answer is not None else []
        before = {cid: len(found) for cid, found in memory.gauges.late.items()}
        try:
            for header in running:
                if self._requests.effort is Effort.HEADERS:
                    self._found.checkpoints.append(Checkpoint(header))
                else:
                    await self._found.attempt(self._in_progress(header))
            now = self._requests.at() + self._engine.offset
            memory.watches = {cid: w for cid, w in memory.watches.items() if now <= w.until}
            awaited = {} if self._requests.effort is Effort.HEADERS else self._awaited(now)
            await self._gauges_and_pressure(awaited, pressure_interval_s=pressure_interval_s)
        finally:
            # This is done after an error too. The memory already contains the barriers that were found, so no later
            # poll would return them.
            self._return_progress(before)
            memory.seen_open = {key_of(h) for h in running}

    def _return_progress(self, late_counts_before: Mapping[int, int]) -> None:
        memory = self._memory
        for checkpoint, progress in self._open:
            self._found.checkpoints.append(checkpoint)
            self._found.progress.append(self._with_gauges(progress))
        for cid, watch in memory.watches.items():
            if len(memory.gauges.late.get(cid, {})) > late_counts_before.get(cid, 0):
                self._found.progress.append(self._with_gauges(_progress_of(watch, self._requests.at())))

    # --- checkpoints in progress ----------------------------------------------------------------------------------

    async def _in_progress(self, listed: CheckpointHeader) -> None:
        document = await self._requests.find(flink.checkpoint_details(self._job_id, listed.checkpoint_id))
        if document is None:
            return
        header, acks = parse.details(document, names_unaligned=self._engine.names_unaligned)
        if header.status is not CheckpointStatus.IN_PROGRESS or key_of(header) != key_of(listed):
            # Either the checkpoint has just ended or the job was restarted. The next poll reads the checkpoint
            # completely.
            return
        details = await self._so_far(header, acks)
        pending = _pending(acks, details)
        cid = header.checkpoint_id
        self._memory.candidates[cid] = candidate(cid, header.triggered_at, details=details, pending=pending)
        self._open.append((Checkpoint(header, tuple(details)), _progress(header, acks, pending, self._requests.at())))
        if self._engine.capabilities.has_channel_events:
            events = await read_barriers(self._requests, self._job_id, cid, self._found)
            if events:
                self._found.barriers.append((cid, events))

    async def _so_far(self, header: CheckpointHeader, acks: tuple[VertexAcks, ...]) -> list[VertexDetail]:
        """Return the details of each vertex of which at least one subtask has acknowledged."""
        final = self._memory.acknowledged.setdefault(key_of(header), {})
        details = []
        for ack in acks:
            if ack.acknowledged_count == 0:
                continue
            if ack.vertex_id not in final:
                answer = await read_subtasks(
                    self._requests, self._memory, self._job_id, header.checkpoint_id, ack.vertex_id
                )
                if answer is None or not answer.is_of(header):
                    continue
                detail = answer.detail
                if detail.pending:
                    details.append(detail)
                    continue
                final[ack.vertex_id] = detail
            details.append(final[ack.vertex_id])
        return details

    def _awaited(self, now: datetime) -> dict[VertexId, frozenset[int]]:
        """Return, by vertex, the subtasks whose gauges this poll must read."""
        waiting: dict[VertexId, frozenset[int]] = {}
        groups: list[tuple[int, Pending]] = [(cid, w.pending) for cid, w in self._memory.watches.items()]
        for checkpoint, progress in self._open:
            header = checkpoint.header
            if key_of(header) in self._memory.seen_open or now - header.triggered_at > _OPEN_LONG:
                groups.append((header.checkpoint_id, {v: frozenset(s) for v, s in progress.pending}))
        open_ids = {checkpoint.header.checkpoint_id for checkpoint, _ in self._open}
        for cid, pending in groups:
            known_late = self._memory.gauges.late.get(cid, {})
            for vertex_id, subtasks in pending.items():
                # While the checkpoint is in progress, the alignment gauge is still needed, even if the first barrier
                # is known.
                left = (
                    subtasks if cid in open_ids else frozenset(s for s in subtasks if (vertex_id, s) not in known_late)
                )
                if left:
                    waiting[vertex_id] = waiting.get(vertex_id, frozenset()) | left
        return waiting

    def _with_gauges(self, progress: Progress) -> Progress:
        gauges = self._memory.gauges
        known_late = gauges.late.get(progress.checkpoint_id, {})
        late: list[LateBarrier] = []
        running: list[tuple[VertexId, Values]] = []
        totals = {vertex_id: total for vertex_id, _, total in progress.acknowledged_by_vertex}
        for vertex_id, subtasks in progress.pending:
            late += [known_late[vertex_id, s] for s in subtasks if (vertex_id, s) in known_late]
            aligning = {s: gauges.aligning[vertex_id, s] for s in subtasks if (vertex_id, s) in gauges.aligning}
            if aligning:
                running.append((vertex_id, tuple(aligning.get(n) for n in range(totals.get(vertex_id, 0)))))
        return Progress(
            checkpoint_id=progress.checkpoint_id,
            observed_at=progress.observed_at,
            acknowledged_count=progress.acknowledged_count,
            subtask_count=progress.subtask_count,
            acknowledged_by_vertex=progress.acknowledged_by_vertex,
            pending=progress.pending,
            late_barriers=tuple(late),
            alignment_running_ms=tuple(running),
        )

    # --- metrics --------------------------------------------------------------------------------------------------

    async def _gauges_and_pressure(self, awaited: Pending, *, pressure_interval_s: float) -> None:
        memory = self._memory
        vertices = memory.topology.vertices if memory.topology else ()
        step = self._due(timedelta(seconds=pressure_interval_s)) if self._requests.has_budget else Step.NOTHING
        if step is Step.PREPARE:
            await self._found.attempt(read_restarts(self._requests, self._job_id, memory, engine=self._engine))
        has_fetched = memory.freshness.has_fetched(
            poll_began_at=self._requests.began_at, interval=self._engine.fetch_interval
        )
        for vertex in vertices:
            if step is Step.READ:
                await self._found.attempt(self._pressure(vertex))
            elif vertex.id in awaited and has_fetched:
                await self._found.attempt(self._gauges(vertex, awaited[vertex.id]))
        if step is Step.READ and (self._found.pressure or not vertices):
            memory.freshness, counts = memory.freshness.read(
                self._found.pressure, self._requests.at(), self._engine.fetch_interval
            )
            if not counts:
                self._found.pressure.clear()
                self._failed_commits.clear()
            for vertex, counted in self._failed_commits:
                self._take_failed_commits(vertex, counted)

    def _due(self, interval: timedelta) -> Step:
        now, freshness = self._requests.at(), self._memory.freshness
        due = partial(freshness.step, now, poll_began_at=self._requests.began_at, interval=self._engine.fetch_interval)
        if freshness.read_at is None or due(every=interval) is Step.NOTHING:
            return due(every=interval)
        # The number of requests is computed only if the interval has passed.
        return due(every=timedelta(seconds=self._pressure_request_count() / _PRESSURE_REQUESTS_PER_S))

    def _pressure_request_count(self) -> int:
        vertices = self._memory.topology.vertices if self._memory.topology else ()
        offered = self._memory.offered
        return sum(1 for v in vertices if v.id in offered for _ in self._pressure_paths(v, offered[v.id].names))

    def _pressure_paths(self, vertex: Vertex, names: MetricNames) -> Iterable[str]:
        return self._paths(vertex.id, range(vertex.parallelism), names.pressure)

    def _paths(self, vertex_id: VertexId, subtasks: range | tuple[int, ...], names: tuple[str, ...]) -> Iterable[str]:
        return request_paths(self._job_id, vertex_id, subtasks, names, prefix_bytes=len(self._requests.url))

    async def _pressure(self, vertex: Vertex) -> None:
        names = await self._names(vertex.id)
        if names is None:
            return
        if not self._has_whole_rates:
            names = names.without_rates
        readings: dict[tuple[int, str], float] = {}
        for path in self._pressure_paths(vertex, names):
            readings |= parse_metrics.vertex_metrics(await self._requests.get(path))
        at = self._requests.at()
        pressure = vertex_pressure(vertex.id, parallelism=vertex.parallelism, readings=readings, names=names, at=at)
        if pressure is not None:
            self._found.pressure.append(pressure)
        self._take(vertex.id, readings, names)
        counted = {key: n for key, n in readings.items() if key[1] in names.failed_commits}
        if counted:
            self._failed_commits.append((vertex, counted))

    async def _gauges(self, vertex: Vertex, subtasks: frozenset[int]) -> None:
        names = await self._names(vertex.id)
        if names is None:
            return
        readings: dict[tuple[int, str], float] = {}
        for path in self._paths(vertex.id, tuple(sorted(subtasks)), names.gauges):
            readings |= parse_metrics.vertex_metrics(await self._requests.get(path))
        self._take(vertex.id, readings, names)

    def _take(self, vertex_id: VertexId, readings: parse_metrics.Readings, names: MetricNames) -> None:
        memory, at = self._memory, self._requests.at() + self._engine.offset
        memory.gauges.read_start_delay(
            vertex_id,
            gauge_values(readings, names.start_delay),
            at=at,
            fetch_interval=self._engine.fetch_interval.time,
            candidates=memory.candidates.values(),
        )
        memory.gauges.read_alignment(vertex_id, gauge_values(readings, names.alignment), at=at)

    def _take_failed_commits(self, vertex: Vertex, counted: parse_metrics.Readings) -> None:
        """Note how many commits failed since the previous reading of the same attempt, and report those noted earlier.

        A commit that fails for a reason that its connector does not know counts as failed too, and ends the attempt,
        and the next attempt commits again. The task may need a while to close, so such a commit can be read before the
        restart. So failed commits are a loss only if a reading at least ``_CLOSING`` later finds that the attempt goes
        on, and has the counters that rose: those of a task that closes vanish.

        What failed before the first reading of an attempt is not reported: a connector may commit again what an earlier
        attempt has committed already, and such a commit may count as failed although nothing is lost.
        """
        memory = self._memory
        before = memory.failed_commits.get(vertex.id, {})
        memory.failed_commits[vertex.id] = {**before, **counted}
        waiting = memory.risen_commits.pop(vertex.id, ())
        if any(n < before.get(key, n) for key, n in counted.items()):
            waiting = ()
        now = self._requests.at()
        lost = [r for r in waiting if now - r.read_at >= _CLOSING and r.counters <= counted.keys()]
        self._found.losses += tuple(r.loss for r in lost)
        waiting = tuple(r for r in waiting if r not in lost)
        added = {key: n for key, n in counted.items() if n > before.get(key, n)}
        if count := sum(round(n - before[key]) for key, n in added.items()):
            loss = losses.Loss(now + self._engine.offset, losses.given_up(vertex.name, count), count, None, None)
            waiting += (RisenCommits(loss, frozenset(added), now),)
        if waiting:
            memory.risen_commits[vertex.id] = waiting

    async def _names(self, vertex_id: VertexId) -> MetricNames | None:
        """Return the names of the vertex's metrics, or None if it has none yet.

        The names are read a second time half a minute later, because some are missing shortly after the vertex has
        started.
        """
        known, now = self._memory.offered.get(vertex_id), self._requests.at()
        if known is not None and (known.is_settled or now - known.first_at < _NAMES_SETTLE):
            return known.names
        offered = parse_metrics.metric_names(await self._requests.get(flink.metric_names(self._job_id, vertex_id)))
        topology = self._memory.topology
        names = wanted_of(offered, is_source=topology is not None and not topology.upstream(vertex_id))
        if not names.pressure:
            return None if known is None else known.names
        first_at = now if known is None else known.first_at
        self._memory.offered[vertex_id] = Offered(names, first_at, is_settled=known is not None)
        return names


def _pending(acks: tuple[VertexAcks, ...], details: list[VertexDetail]) -> Pending:
    known = {d.vertex_id: frozenset(d.pending) for d in details}
    pending: dict[VertexId, frozenset[int]] = {}
    for ack in acks:
        if ack.acknowledged_count == 0:
            pending[ack.vertex_id] = frozenset(range(ack.subtask_count))
        elif known.get(ack.vertex_id):
            pending[ack.vertex_id] = known[ack.vertex_id]
    return pending


def _progress(header: CheckpointHeader, acks: tuple[VertexAcks, ...], pending: Pending, at: datetime) -> Progress:
    return Progress(
        checkpoint_id=header.checkpoint_id,
        observed_at=at,
        acknowledged_count=header.acknowledged_count,
        subtask_count=header.subtask_count,
        acknowledged_by_vertex=tuple((a.vertex_id, a.acknowledged_count, a.subtask_count) for a in acks),
        pending=tuple((v, tuple(sorted(s))) for v, s in pending.items()),
    )


def _progress_of(watch: Watch, at: datetime) -> Progress:
    """Return the progress that an expired checkpoint had at its end."""
    acks = tuple(VertexAcks(d.vertex_id, d.subtask_count - len(d.pending), d.subtask_count) for d in watch.details)
    return _progress(watch.header, acks, watch.pending, at)
