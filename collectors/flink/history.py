"""Reads one job's checkpoint history: the new entries, and the details of terminal checkpoints.

A terminal checkpoint no longer changes, except that it can be discarded. So its detail (the values of its subtasks)
is read once, with one request per vertex; all other data is in its entry in the history. To a failed checkpoint, Flink
adds what its subtasks report after its end (``CheckpointStatsTracker.reportIncompleteStats``). So the vertices of which
subtasks were missing are read a second time, after one more timeout or a minute. If the target has cached a
detail that is older than the history entry, the detail is read again at the next poll. The detail counts as gone
after two polls in which the target answered 404 or sent the detail of another run's checkpoint with the same id. The
entry is then stored without details.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from backend.contracts import flink
from backend.domain.checkpoint import Checkpoint, CheckpointHeader, VertexDetail
from backend.domain.errors import TargetProtocolError
from backend.domain.failure import FailureReason
from backend.domain.ids import EngineRunId
from backend.domain.observation import Shed
from collectors.base import Effort
from collectors.flink import parse
from collectors.flink.barriers import read_barriers
from collectors.flink.details import read_subtasks
from collectors.flink.found import Found
from collectors.flink.gauges import candidate, newest
from collectors.flink.parse import CheckpointsAnswer
from collectors.flink.reading import CheckpointKey, Detail, EngineFacts, RunMemory, SecondLook, Watch, key_of
from collectors.flink.requests import Requests

_NOT_FOUND_MAX = 2
_PASSING_MAX = 10
_WATCH_SLACK = timedelta(seconds=2)
_WATCH_MAX = timedelta(hours=1)
_SECOND_LOOK_MAX = timedelta(minutes=1)
_POLL_WITHIN_MIN_S = 0.2


class HistoryReader:
    """Reads the new checkpoints that one response of ``/checkpoints`` lists."""

    def __init__(
        self, requests: Requests, job_id: EngineRunId, memory: RunMemory, found: Found, *, engine: EngineFacts
    ) -> None:
        self._requests = requests
        self._job_id = job_id
        self._memory = memory
        self._found = found
        self._engine = engine
        self._left_count = 0

    async def read(self, answer: CheckpointsAnswer) -> bool:
        """Add new entries and details to ``found``.

        Return True if every listed checkpoint is terminal and needs no more reading.
        """
        memory = self._memory
        memory.poll_within_s = poll_within_s(answer, memory.config.interval_ms if memory.config else None)
        memory.waiting_count = 0
        self._left_count = 1 if self._requests.effort is Effort.NEWEST else len(answer.headers)
        for header in answer.headers:
            if header.status.is_terminal and key_of(header) not in memory.detailed:
                await self._finished(header)
            elif header.is_discarded and key_of(header) not in memory.discarded:
                self._found.checkpoints.append(Checkpoint(header))
            if header.is_discarded:
                memory.discarded.add(key_of(header))
        await self._look_again({key_of(h): h for h in answer.headers})
        memory.candidates = newest(memory.candidates)
        memory.gauges.keep_only({h.checkpoint_id for h in answer.headers} | set(memory.watches))
        return all(key_of(h) in memory.detailed for h in answer.headers)

    async def _finished(self, header: CheckpointHeader) -> None:
        memory, key = self._memory, key_of(header)
        detail = None
        if self._requests.has_budget and self._left_count > 0:
            self._left_count -= 1
            detail = await self._readable_detail(header)
        else:
            memory.waiting_count += 1
        if detail is not None:
            header = parse.with_mode(header, detail.vertices)
            memory.detailed.add(key)
            self._remember(header, detail)
            if detail.barriers or detail.barriers is None:
                # If the events cannot be read, an empty list is passed on, so that the store removes the events that
                # were read while the checkpoint was open. These are incomplete.
                self._found.barriers.append((header.checkpoint_id, detail.barriers or ()))
        if detail is not None or key not in memory.handed_on:
            memory.handed_on.add(key)
            self._found.checkpoints.append(Checkpoint(header, () if detail is None else detail.vertices))

    async def _readable_detail(self, header: CheckpointHeader) -> Detail | None:
        """Return the details of all vertices, or None if they are missing or cannot be read.

        A detail that cannot be read costs only this detail. It is requested again at the next poll, as often as one
        that is missing, or more often if a proxy answered.
        """
        memory, key = self._memory, key_of(header)
        try:
            return await self._detail(header)
        except TargetProtocolError as error:
            memory.not_found[key] = memory.not_found.get(key, 0) + 1
            number = header.checkpoint_id
            if memory.not_found[key] >= (_PASSING_MAX if error.is_passing else _NOT_FOUND_MAX):
                memory.detailed.add(key)
                self._found.shed += Shed(detail_count=1)
                self._found.problems.append(f"the detail of checkpoint {number} cannot be read: {error}")
            else:
                memory.waiting_count += 1
                self._found.problems.append(f"the detail of checkpoint {number} was not read: {error}")
            if error.is_passing:
                # The other details wait too, so that the target is not asked in vain.
                self._left_count = 0
            return None

    async def _detail(self, header: CheckpointHeader) -> Detail | None:
        """Return the details of all vertices, or None if the detail of a vertex is missing.

        Details without one of the vertices are not returned, because its subtasks would look as if they had reported
        nothing.
        """
        vertices: list[VertexDetail] = []
        known = self._memory.acknowledged.get(key_of(header), {})
        for vertex in self._memory.topology.vertices if self._memory.topology else ():
            if vertex.id in known:
                vertices.append(known[vertex.id])
                continue
            answer = await read_subtasks(self._requests, self._memory, self._job_id, header.checkpoint_id, vertex.id)
            if answer is None:
                self._note_not_found(header)
                return None
            if not answer.is_of(header):
                # The detail is of another run: the job was restarted after the history was read, and its new run uses
                # the same checkpoint ids.
                self._note_not_found(header)
                return None
            if not answer.status.is_terminal:
                return None
            vertices.append(answer.detail)
        if not self._engine.capabilities.has_channel_events:
            return Detail(tuple(vertices))
        events = await read_barriers(self._requests, self._job_id, header.checkpoint_id, self._found)
        return Detail(tuple(vertices), events)

    def _note_not_found(self, header: CheckpointHeader) -> None:
        memory, key = self._memory, key_of(header)
        memory.not_found[key] = memory.not_found.get(key, 0) + 1
        if memory.not_found[key] >= _NOT_FOUND_MAX:
            memory.detailed.add(key)
            self._found.problems.append(f"the detail of checkpoint {header.checkpoint_id} is gone")

    async def _look_again(self, listed: Mapping[CheckpointKey, CheckpointHeader]) -> None:
        """Read the details of failed checkpoints once more if their second look is due."""
        memory = self._memory
        now = self._requests.at() + self._engine.offset
        for key, look in list(memory.second_looks.items()):
            if key not in listed or look.due_at > now or not self._requests.has_budget:
                continue
            del memory.second_looks[key]
            details = tuple([await self._looked_at(listed[key], before) for before in look.details])
            if details != look.details:
                self._found.checkpoints.append(Checkpoint(parse.with_mode(listed[key], details), details))

    async def _looked_at(self, header: CheckpointHeader, before: VertexDetail) -> VertexDetail:
        """Return the detail of a vertex as it is now, if more subtasks have reported, and else the one read before."""
        if not before.pending:
            return before
        try:
            answer = await read_subtasks(
                self._requests, self._memory, self._job_id, header.checkpoint_id, before.vertex_id
            )
        except TargetProtocolError as error:
            self._found.problems.append(f"what came late to checkpoint {header.checkpoint_id} was not read: {error}")
            return before
        if answer is None or not answer.is_of(header) or len(answer.detail.pending) >= len(before.pending):
            return before
        return answer.detail

    def _remember(self, header: CheckpointHeader, detail: Detail) -> None:
        memory, cid = self._memory, header.checkpoint_id
        memory.candidates[cid] = candidate(cid, header.triggered_at, details=detail.vertices, pending=detail.pending)
        if header.failed_at is None or not detail.pending:
            return
        timeout_ms = (memory.config.timeout_ms if memory.config else None) or header.end_to_end_duration_ms or 0
        timeout = min(timedelta(milliseconds=timeout_ms), _WATCH_MAX)
        if self._requests.at() + self._engine.offset - header.failed_at < _WATCH_MAX:
            due_at = header.failed_at + min(timeout, _SECOND_LOOK_MAX)
            memory.second_looks[key_of(header)] = SecondLook(detail.vertices, due_at)
        if header.failure_reason is FailureReason.EXPIRED:
            # After the failure, the collector looks for missing barriers for as long as one more checkpoint timeout.
            # The metric of a barrier is fetched up to one interval after the barrier arrived.
            until = header.failed_at + timeout + self._engine.fetch_interval.time + _WATCH_SLACK
            memory.watches[cid] = Watch(header, detail.pending, detail.vertices, until)


def poll_within_s(answer: CheckpointsAnswer, interval_ms: int | None) -> float | None:
    """Return half the seconds in which new checkpoints replace the whole history, or None if no interval is known.

    The history is replaced within its capacity times the checkpoint interval. The interval is the shorter of the
    configured and the observed one. If more checkpoints were counted than are listed, the history is full, so its
    capacity is the number listed. Otherwise the capacity is at least Flink's default.
    """
    listed = len(answer.headers)
    capacity = listed if answer.counts.total > listed > 0 else max(listed, flink.HISTORY_DEFAULT)
    triggered = sorted(h.triggered_at for h in answer.headers)
    intervals_s = [] if interval_ms is None else [interval_ms / 1000]
    if len(triggered) > 1:
        intervals_s.append((triggered[-1] - triggered[0]).total_seconds() / (len(triggered) - 1))
    if not intervals_s:
        return None
    return max(_POLL_WITHIN_MIN_S, min(intervals_s) * capacity / 2)
