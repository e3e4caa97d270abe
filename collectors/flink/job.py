"""One job in one poll: makes the due requests and builds the observation.

Graph, placement, exceptions and restarts are read when the job's last modification moved, as it does when any task
changes its state. Settings are read at the start, after a restore and periodically; the history at each poll. The
modules ``history`` and ``live`` read the rest. Only graph and history are required: any other failure becomes a problem
line.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from backend.contracts import flink
from backend.domain.errors import TargetProtocolError
from backend.domain.observation import JobObservation, JobState
from collectors.flink import parse, parse_metrics
from collectors.flink.document import Document
from collectors.flink.found import Found
from collectors.flink.history import HistoryReader
from collectors.flink.live import LiveReader
from collectors.flink.parse import CheckpointsAnswer, JobEntry
from collectors.flink.reading import EngineFacts, RunMemory, key_of
from collectors.flink.requests import Requests

_EXCEPTIONS_MAX = 20
_LOOK_PAUSE = timedelta(seconds=5)
# A person who changed settings of a running job waits to see the change. On other engines settings change only with a
# restart, after which they are read anyway.
_CONFIG_EVERY_IF_LIVE = timedelta(seconds=4)
_CONFIG_EVERY = timedelta(seconds=60)
# Flink answers from a cache for some seconds after a job's end (web.refresh-interval, 3 s by default).
_SETTLED_AFTER = timedelta(seconds=10)
_GIVEN_UP_AFTER = timedelta(seconds=60)
_NOT_FOUND = 404


class JobReader:
    """Reads one job once. Changes ``memory`` in place; its owner discards it if the poll fails."""

    def __init__(self, requests: Requests, entry: JobEntry, memory: RunMemory, *, engine: EngineFacts) -> None:
        self._requests = requests
        self._entry = entry
        self._memory = memory
        self._engine = engine
        self._job_id = entry.engine_run_id
        self._is_new = memory.topology is None
        self._found = Found()

    async def read(self, *, pressure_interval_s: float) -> JobObservation | None:
        """Return the observation; None for a job that had ended before it was first seen and can no longer be read."""
        try:
            await self._look()
            answer = await self._checkpoints()
        except TargetProtocolError as error:
            if self._is_new and self._is_ended and error.status == _NOT_FOUND:
                self._memory.is_done = True
                return None
            raise
        is_settled = True
        if answer is not None:
            await self._confirm(answer)
            is_settled = await self._read_checkpoints(answer)
        if self._entry.state is JobState.RUNNING:
            live = self._live()
            await live.read(answer, pressure_interval_s=pressure_interval_s)
        if self._is_ended:
            self._settle(is_settled=is_settled)
        return self._observation()

    @property
    def _is_ended(self) -> bool:
        return self._entry.state is JobState.ENDED

    def _now(self) -> datetime:
        """Return the present on the engine's clock."""
        return self._requests.at() + self._engine.offset

    def _live(self) -> LiveReader:
        return LiveReader(self._requests, self._job_id, self._memory, self._found, engine=self._engine)

    # --- the job itself -------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        memory, entry = self._memory, self._entry
        has_changed = memory.changed_at_ms != entry.changed_at_ms
        is_due = memory.looked_at is None or self._requests.at() - memory.looked_at >= _LOOK_PAUSE
        if not self._is_new and not (has_changed and is_due):
            return
        memory.looked_at, memory.changed_at_ms = self._requests.at(), entry.changed_at_ms
        memory.topology = self._found.topology = parse.topology(await self._described())
        await self._found.attempt(self._exceptions())
        if entry.state is JobState.RUNNING:
            await self._found.attempt(self._restarts())
            await self._found.attempt(self._placements())

    async def _described(self) -> Document:
        """Read the job's own answer, and check that it is of the run in the list of jobs.

        Raises:
            TargetProtocolError: it is of another run: an id may be used again, and the list may be cached.

        """
        document = await self._requests.get(flink.job(self._job_id))
        if parse.job_started_at(document) != self._entry.started_at:
            raise document.fail("is of another life of the job: it was restarted while it was read")
        return document

    async def _confirm(self, answer: CheckpointsAnswer) -> None:
        """Check that the history is of this run: at the first poll, and if counters or ids started again."""
        memory = self._memory
        counted, newest_id = memory.counted_total, -1 if memory.newest_id is None else memory.newest_id
        known = memory.handed_on | memory.seen_open
        has_other = any(h.checkpoint_id <= newest_id and key_of(h) not in known for h in answer.headers)
        is_doubtful = counted is None or answer.counts.total < counted or has_other
        memory.counted_total = answer.counts.total
        if is_doubtful and not self._is_ended:
            await self._described()

    async def _exceptions(self) -> None:
        document = await self._requests.get(flink.exceptions(self._job_id, count_max=_EXCEPTIONS_MAX))
        self._found.exceptions = parse.exceptions(document)

    async def _restarts(self) -> None:
        document = await self._requests.get(flink.job_metrics(self._job_id, flink.RESTARTS))
        metrics = parse_metrics.job_metrics(document)
        value = next((metrics[name] for name in flink.RESTARTS if name in metrics), None)
        if value is not None and value >= 0:
            self._memory.restart_count = int(value)

    async def _placements(self) -> None:
        placements = []
        for vertex in self._memory.topology.vertices if self._memory.topology else ():
            if not self._requests.has_budget:
                break
            placements.append(parse.placement(await self._requests.get(flink.vertex(self._job_id, vertex.id))))
        attempts = {p.vertex_id: p.attempts for p in placements}
        before = self._memory.attempts
        if any(v in before and before[v] != row for v, row in attempts.items()):
            self._memory.forget_tasks()
        self._memory.attempts = before | attempts
        self._found.placements = tuple(placements)

    # --- its checkpoints ------------------------------------------------------------------------------------------

    async def _checkpoints(self) -> CheckpointsAnswer | None:
        memory = self._memory
        if not memory.has_checkpoints and self._found.topology is None:
            return None
        try:
            answer = parse.checkpoints(await self._requests.get(flink.checkpoints(self._job_id)))
        except TargetProtocolError as error:
            if error.status == _NOT_FOUND and flink.CHECKPOINTING_DISABLED in error.reason:
                memory.has_checkpoints = False
                return None
            raise
        memory.has_checkpoints = True
        self._found.counts = answer.counts
        return answer

    async def _read_checkpoints(self, answer: CheckpointsAnswer) -> bool:
        """Read the new entries of the history; return whether no entry is open or left to read."""
        memory = self._memory
        if answer.restored_ms != memory.restored_ms:
            memory.restored_ms = answer.restored_ms
            memory.config_at = None
            memory.forget_tasks()
        await self._found.attempt(self._config())
        history = HistoryReader(self._requests, self._job_id, memory, self._found, engine=self._engine)
        return await history.read(answer)

    async def _config(self) -> None:
        memory, now = self._memory, self._requests.at()
        every = _CONFIG_EVERY_IF_LIVE if self._engine.capabilities.can_apply_settings_live else _CONFIG_EVERY
        if memory.config_at is not None and now - memory.config_at < every:
            return
        document = await self._requests.get(flink.checkpoint_config(self._job_id))
        memory.config, memory.config_at = parse.checkpoint_config(document), now
        self._found.config = memory.config

    def _settle(self, *, is_settled: bool) -> None:
        memory = self._memory
        memory.poll_within_s = None
        memory.watches.clear()
        age = self._now() - (self._entry.ended_at or self._entry.started_at)
        memory.is_done = (is_settled and age >= _SETTLED_AFTER) or age >= _GIVEN_UP_AFTER

    def _observation(self) -> JobObservation:
        entry, found = self._entry, self._found
        return JobObservation(
            engine_run_id=entry.engine_run_id,
            name=entry.name,
            state=entry.state,
            engine_state=entry.engine_state,
            started_at=entry.started_at,
            ended_at=entry.ended_at,
            topology=found.topology,
            placements=found.placements,
            config=found.config,
            counts=found.counts,
            checkpoints=tuple(sorted(found.checkpoints, key=lambda c: c.header.checkpoint_id)),
            progress=tuple(found.progress),
            pressure=tuple(found.pressure),
            barriers=tuple(found.barriers),
            exceptions=found.exceptions,
            restart_count=self._memory.restart_count,
            problems=tuple(found.problems),
        )
