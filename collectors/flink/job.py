"""Reads one job in one poll: makes the requests that are due and builds the observation.

The graph, the placement, the exceptions and the number of restarts are read if the job's time of last modification
has changed. Flink updates this time whenever a task changes its state. Settings are read at the first poll, after a
restore and periodically. The checkpoint history is read at each poll, by the module ``history``. The module ``live``
reads what changes while the job runs.

Only graph and history are required. If another request fails, the failure becomes a problem line of the observation.
If there is not enough time, data is left out in this order: the details of the oldest checkpoints, then the details
of the others together with backpressure. Whole checkpoints are missed only if the target drops them. The collector
counts what was left out or missed.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

from backend.contracts import flink
from backend.domain import losses, restore_effects
from backend.domain.checkpoint import Checkpoint, CheckpointConfig, CheckpointHeader, CheckpointStatus
from backend.domain.errors import TargetProtocolError, TargetUnavailableError
from backend.domain.ids import VertexId
from backend.domain.observation import JobObservation, JobState, Shed
from backend.domain.text import said_once
from backend.domain.topology import Placement
from collectors.base import Effort
from collectors.flink import parse
from collectors.flink.document import Document
from collectors.flink.found import Found
from collectors.flink.history import HistoryReader
from collectors.flink.live import LiveReader
from collectors.flink.parse import CheckpointsAnswer, JobEntry
from collectors.flink.reading import CheckpointKey, EngineFacts, RunMemory, key_of
from collectors.flink.requests import Requests
from collectors.flink.restarts import read_restarts

_EXCEPTIONS_MAX = 20
_LOOK_PAUSE = timedelta(seconds=5)
# A person who changes a setting of a running job waits to see the change. On engines that cannot change settings
# live, settings change only with a restart, after which they are read in any case.
_CONFIG_EVERY_IF_LIVE = timedelta(seconds=4)
_CONFIG_EVERY = timedelta(seconds=60)
# After a job has ended, Flink serves cached responses for some seconds (web.refresh-interval, 3 s by default).
_SETTLED_AFTER = timedelta(seconds=10)
_GIVEN_UP_AFTER = timedelta(seconds=60)
_NOT_FOUND = 404
_LATE_MAX = 2
# The number of ids that are remembered as lost. A cached history is only a few polls old, and each poll finds few
# gaps, so a few ids suffice.
_LOST_MAX = 16
# A hostile or broken target could cause one problem for each row of a long response.
_PROBLEMS_MAX = 20


class JobReader:
    """Reads one job in one poll.

    It changes ``memory`` in place, so the caller must discard ``memory`` if the poll fails.
    """

    def __init__(self, requests: Requests, entry: JobEntry, memory: RunMemory, *, engine: EngineFacts) -> None:
        self._requests = requests
        self._entry = entry
        self._memory = memory
        self._engine = engine
        self._job_id = entry.engine_run_id
        self._is_new = memory.topology is None
        self._found = Found()
        self._is_history_read = False
        self.late_reason = ""
        """The reason why the job could not be read completely. Empty if it was."""

    async def read(self, *, pressure_interval_s: float, timeout_s: float, backlog_max: int) -> JobObservation | None:
        """Return the observation.

        If the target does not answer in time after the history was read, return what was read so far, with every new
        checkpoint of the history. ``late_reason`` then contains the reason. Of the checkpoints that ended before the
        job was first seen, the details of at most ``backlog_max`` are read.

        Return None if the job ended before it was first seen and the target no longer has it. Of a job that starts,
        nothing is read.

        Raises:
            TargetUnavailableError: the history could not be read within ``timeout_s``.
        """
        if self._entry.state is JobState.STARTING:
            # There is nothing to read yet. What was read before a restart of the engine stays.
            return self._observation()
        until_s = asyncio.get_running_loop().time() + timeout_s
        late = TargetUnavailableError(url=self._requests.url, reason=f"a job was not read within {timeout_s:g} s")
        try:
            async with asyncio.timeout_at(until_s):
                await self._look()
                answer = await self._checkpoints()
                if answer is not None:
                    answer = self._without_lost(answer)
                    await self._confirm(answer)
        except TimeoutError:
            raise late from None
        except TargetProtocolError as error:
            if self._is_new and self._is_ended and error.status == _NOT_FOUND:
                self._memory.is_done = True
                return None
            raise
        if answer is not None:
            self._shed(answer, backlog_max=backlog_max)
        try:
            async with asyncio.timeout_at(until_s):
                await self._read_rest(answer, pressure_interval_s=pressure_interval_s)
        except TimeoutError:
            self._cut(answer, late.reason)
        except TargetUnavailableError as error:
            self._cut(answer, str(error))
        return self._observation()

    async def _read_rest(self, answer: CheckpointsAnswer | None, *, pressure_interval_s: float) -> None:
        is_settled = answer is None or await self._read_checkpoints(answer)
        self._is_history_read = True
        if self._entry.state is JobState.RUNNING:
            await self._live().read(
                answer, pressure_interval_s=pressure_interval_s, unchanged_for=self._entry.unchanged_for
            )
        else:
            self._end_risen_commits()
        if self._is_ended:
            self._settle(is_settled=is_settled)

    def _end_risen_commits(self) -> None:
        """Report the failed commits of a job that has finished. One that failed or was cancelled may repeat them."""
        risen = self._memory.risen_commits
        if self._entry.engine_state == flink.JOB_STATE_FINISHED:
            self._found.losses += tuple(one.loss for rises in risen.values() for one in rises)
        risen.clear()

    @property
    def _is_ended(self) -> bool:
        return self._entry.state is JobState.ENDED

    def _now(self) -> datetime:
        """Return the current time on the engine's clock."""
        return self._requests.at() + self._engine.offset

    def _live(self) -> LiveReader:
        return LiveReader(self._requests, self._job_id, self._memory, self._found, engine=self._engine)

    # --- what is not read in time ---------------------------------------------------------------------------------

    def _shed(self, answer: CheckpointsAnswer, *, backlog_max: int) -> None:
        """Count the checkpoints that left the history before they were read, and forget them.

        At the first poll, skip the details of the oldest checkpoints. Whatever happens in the rest of the poll, the
        next poll counts none of these checkpoints again.
        """
        memory, found = self._memory, self._found
        newest = max(answer.headers, key=lambda h: h.triggered_at, default=None)
        if newest is not None and memory.newest_at is not None and newest.triggered_at < memory.newest_at:
            # The response is older than one that was read before. It comes from a cache, for example, so nothing is
            # counted.
            return
        listed = {key_of(h) for h in answer.headers}
        if newest is not None:
            self._shed_unread(answer, listed)
            memory.newest_id, memory.newest_at = key_of(newest)
        found.shed += Shed(detail_count=len(memory.handed_on - memory.detailed - listed))
        memory.keep_listed(listed)
        ended = [h for h in answer.headers if h.status.is_terminal]
        backlog = sorted(ended, key=lambda h: h.triggered_at, reverse=True)[backlog_max:] if self._is_new else []
        for header in backlog:
            self._hand_on(header)
            self._memory.detailed.add(key_of(header))
            found.shed += Shed(detail_count=1)

    def _without_lost(self, answer: CheckpointsAnswer) -> CheckpointsAnswer:
        headers = [h for h in answer.headers if not any(h.checkpoint_id in lost for lost in self._memory.lost)]
        return answer if len(headers) == len(answer.headers) else replace(answer, headers=tuple(headers))

    def _shed_unread(self, answer: CheckpointsAnswer, listed: set[CheckpointKey]) -> None:
        """Count the checkpoints between the newest one of the last poll and the oldest one that is listed now.

        If no poll has read the history before, the run's first checkpoint is the first one that can be lost.
        """
        memory, found = self._memory, self._found
        oldest = min(h.checkpoint_id for h in answer.headers)
        newest = memory.newest_id
        if newest is None and memory.is_watched_from_start:
            # The ids of a run need not begin with 1, and failures that got no id are counted too.
            unlisted_count = max(answer.counts.total - len(answer.headers), 0)
            if oldest - 1 > unlisted_count:
                # The run continues the ids of an earlier one. Failures without an id cannot be distinguished from lost
                # ones here, so no failure is counted as lost.
                listed_failed_count = sum(h.status is CheckpointStatus.FAILED for h in answer.headers)
                unlisted_count = max(unlisted_count - max(answer.counts.failed - listed_failed_count, 0), 0)
            newest = max(oldest - 1 - unlisted_count, 0)
        if newest is None:
            return
        # A checkpoint that was in progress at the last poll and is not listed any more has ended. Its end was not read,
        # so the checkpoint counts as lost.
        left_open = sorted(number for number, _ in memory.seen_open - listed if number <= min(newest, oldest - 1))
        for number in left_open:
            found.problems.append(f"checkpoint {number} left the engine's history before its end was read")
        if oldest > newest + 1:
            found.problems.append(
                f"checkpoints {newest + 1} to {oldest - 1} left the engine's history before they were read"
            )
        lost = [range(newest + 1, oldest), *(range(number, number + 1) for number in left_open)]
        found.shed += Shed(checkpoint_count=sum(map(len, lost)))
        memory.lost = (*memory.lost, *(ids for ids in lost if ids))[-_LOST_MAX:]

    def _cut(self, answer: CheckpointsAnswer | None, reason: str) -> None:
        """Complete the observation of a job when the target no longer responds in time."""
        self.late_reason = reason
        memory, found = self._memory, self._found
        found.problems.append(reason)
        if answer is None or self._is_history_read:
            return
        seen = {key_of(c.header) for c in found.checkpoints}
        unread = [h for h in answer.headers if h.status.is_terminal and key_of(h) not in memory.detailed]
        waited_for = next((h for h in unread if key_of(h) not in seen), None)
        for header in unread:
            if key_of(header) not in memory.handed_on:
                self._hand_on(header)
        memory.waiting_count = len(unread)
        if waited_for is not None:
            self._note_late(waited_for)

    def _hand_on(self, header: CheckpointHeader) -> None:
        self._memory.handed_on.add(key_of(header))
        self._found.checkpoints.append(Checkpoint(header))

    def _note_late(self, header: CheckpointHeader) -> None:
        # If the target does not return this detail in several attempts, the collector stops requesting it, so that
        # later data can be read.
        memory, key = self._memory, key_of(header)
        memory.not_found[key] = memory.not_found.get(key, 0) + 1
        if memory.not_found[key] >= _LATE_MAX:
            memory.detailed.add(key)
            self._found.shed += Shed(detail_count=1)
            self._found.problems.append(f"the detail of checkpoint {header.checkpoint_id} did not come in time")

    # --- the job itself -------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        memory, entry = self._memory, self._entry
        has_changed = memory.changed_at_ms != entry.changed_at_ms
        is_due = memory.looked_at is None or self._requests.at() - memory.looked_at >= _LOOK_PAUSE
        is_urgent = self._requests.effort is not Effort.HEADERS and has_changed and is_due
        if not self._is_new and not is_urgent:
            return
        memory.looked_at, memory.changed_at_ms = self._requests.at(), entry.changed_at_ms
        if not await self._graph():
            memory.looked_at, memory.changed_at_ms = None, None
            return
        if self._requests.effort is Effort.HEADERS:
            # The effort of this poll is too low for the rest, which the next poll with more effort reads.
            memory.looked_at, memory.changed_at_ms = None, None
            return
        await self._found.attempt(self._exceptions())
        if entry.state is JobState.RUNNING:
            await self._found.attempt(read_restarts(self._requests, self._job_id, self._memory, engine=self._engine))
            await self._found.attempt(self._placements())

    async def _graph(self) -> bool:
        """Read the graph. Return False if it cannot be read, and the one that was read before stays valid."""
        memory = self._memory
        try:
            described = await self._requests.get(flink.job(self._job_id))
            graph, ended_counts = parse.topology(described), parse.ended_counts(described)
        except TargetProtocolError as error:
            if memory.topology is None or error.status == _NOT_FOUND:
                raise
            self._found.problems.append(str(error))
            return False
        self._must_be_same_run(described)
        memory.topology = self._found.topology = graph
        memory.ended_counts = ended_counts
        return True

    async def _described(self) -> Document:
        """Read the job's description, and check that it describes the same run as the list of jobs.

        Raises:
            TargetProtocolError: the description is of another run. An id may be used again, and the list may be cached.
        """
        document = await self._requests.get(flink.job(self._job_id))
        self._must_be_same_run(document)
        return document

    def _must_be_same_run(self, document: Document) -> None:
        if parse.job_started_at(document) != self._entry.started_at:
            raise document.fail("is of another run of the job, which was restarted while it was read")

    async def _confirm(self, answer: CheckpointsAnswer) -> None:
        """Check that the history belongs to this run.

        This is checked at the first poll, and whenever the counters or ids of the history seem to have started again.
        """
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
        found, problems = parse.exceptions(document)
        # The reference runtime lists losses and effects of restores as exceptions, although the job goes on.
        lost = {row: losses.read(*row) for row in found}
        effects = {row: restore_effects.read(row[1]) for row in found}
        self._found.exceptions = tuple(row for row in found if lost[row] is None and effects[row] is None)
        self._found.losses = tuple(loss for loss in lost.values() if loss is not None)
        self._found.effects = tuple((at, said) for (at, _), said in effects.items() if said is not None)
        self._found.problems += problems

    async def _placements(self) -> None:
        placements: list[Placement] = []
        for vertex in self._memory.topology.vertices if self._memory.topology else ():
            if not self._requests.has_budget:
                break
            await self._found.attempt(self._placement(vertex.id, placements))
        attempts = {p.vertex_id: p.attempts for p in placements}
        before = self._memory.attempts
        if any(v in before and before[v] != row for v, row in attempts.items()):
            self._memory.forget_tasks()
        self._memory.attempts = before | attempts
        self._found.placements = tuple(placements)

    async def _placement(self, vertex_id: VertexId, placements: list[Placement]) -> None:
        placements.append(parse.placement(await self._requests.get(flink.vertex(self._job_id, vertex_id))))

    # --- the job's checkpoints ------------------------------------------------------------------------------------

    async def _checkpoints(self) -> CheckpointsAnswer | None:
        memory = self._memory
        if not memory.has_checkpoints and self._found.topology is None:
            return None
        try:
            document = await self._requests.get(flink.checkpoints(self._job_id))
            answer = parse.checkpoints(document, memory.history, names_unaligned=self._engine.names_unaligned)
        except TargetProtocolError as error:
            if error.status == _NOT_FOUND and flink.CHECKPOINTING_DISABLED in error.reason:
                memory.has_checkpoints = False
                if self._entry.state is JobState.RUNNING:
                    # Flink before 1.14 has no settings to read then. A job that has not started gives this answer too.
                    memory.config = self._found.config = CheckpointConfig(is_off=True)
                    self._found.cluster_settings = self._engine.cluster_settings
                return None
            raise
        memory.has_checkpoints = True
        self._found.counts = answer.counts
        self._found.problems += answer.problems
        return answer

    async def _read_checkpoints(self, answer: CheckpointsAnswer) -> bool:
        """Read the new entries of the history.

        Return True if every listed checkpoint is terminal and needs no more reading.
        """
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
        config = parse.checkpoint_config(document)
        if config.debloat_target_ms is None:
            # Flink has this setting for the whole cluster, and the live runtime for each job.
            config = replace(config, debloat_target_ms=self._engine.debloat_target_ms)
        memory.config, memory.config_at = config, now
        self._found.config = memory.config
        self._found.cluster_settings = self._engine.cluster_settings

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
            cluster_settings=found.cluster_settings,
            counts=found.counts,
            checkpoints=tuple(sorted(found.checkpoints, key=lambda c: c.header.checkpoint_id)),
            progress=tuple(found.progress),
            pressure=tuple(found.pressure),
            barriers=tuple(found.barriers),
            exceptions=found.exceptions,
            losses=found.losses,
            effects=found.effects,
            restart_count=self._memory.restart_count,
            problems=_bounded(found.problems),
            shed=found.shed,
        )


def _bounded(problems: list[str]) -> tuple[str, ...]:
    known = said_once(problems)
    if len(known) <= _PROBLEMS_MAX:
        return known
    return (*known[:_PROBLEMS_MAX], f"and {len(known) - _PROBLEMS_MAX} more")
