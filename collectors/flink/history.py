"""The history of one job's checkpoints: new entries, and the details of terminal ones.

A terminal checkpoint no longer changes, except that it can be discarded. So its detail is read once, with one request
per vertex; the history's entry has the rest. If a cached detail is older than the entry, it is read again at the next
poll. If the detail is gone (twice a 404, or the detail of another life with the same id), the entry stays without it.
"""

from __future__ import annotations

from datetime import timedelta

from backend.contracts import flink
from backend.domain.checkpoint import Checkpoint, CheckpointHeader, VertexDetail
from backend.domain.failure import FailureReason
from backend.domain.ids import EngineRunId
from collectors.flink import parse, parse_metrics
from collectors.flink.found import Found
from collectors.flink.gauges import candidate, newest
from collectors.flink.parse import CheckpointsAnswer
from collectors.flink.reading import Detail, EngineFacts, RunMemory, Watch, key_of
from collectors.flink.requests import Requests

_NOT_FOUND_MAX = 2
_WATCH_SLACK = timedelta(seconds=2)
_WATCH_MAX = timedelta(hours=1)
_POLL_WITHIN_MIN_S = 0.2


class HistoryReader:
    """Reads the new entries in one answer of ``/checkpoints``."""

    def __init__(
        self, requests: Requests, job_id: EngineRunId, memory: RunMemory, found: Found, *, engine: EngineFacts
    ) -> None:
        self._requests = requests
        self._job_id = job_id
        self._memory = memory
        self._found = found
        self._engine = engine

    async def read(self, answer: CheckpointsAnswer) -> bool:
        """Collect new entries and details; return whether no entry is open or left to read."""
        memory = self._memory
        self._note_unread(answer)
        memory.poll_within_s = poll_within_s(answer, memory.config.interval_ms if memory.config else None)
        memory.keep_listed({key_of(h) for h in answer.headers})
        memory.waiting_count = 0
        for header in answer.headers:
            if header.status.is_terminal and key_of(header) not in memory.detailed:
                await self._finished(header)
            elif header.is_discarded and key_of(header) not in memory.discarded:
                self._found.checkpoints.append(Checkpoint(header))
            if header.is_discarded:
                memory.discarded.add(key_of(header))
        memory.candidates = newest(memory.candidates)
        memory.gauges.keep_only({h.checkpoint_id for h in answer.headers} | set(memory.watches))
        return all(key_of(h) in memory.detailed for h in answer.headers)

    async def _finished(self, header: CheckpointHeader) -> None:
        memory, key = self._memory, key_of(header)
        detail = None
        if self._requests.has_budget:
            detail = await self._detail(header)
        else:
            memory.waiting_count += 1
        if detail is not None:
            memory.detailed.add(key)
            self._remember(header, detail)
            if detail.barriers:
                self._found.barriers.append((header.checkpoint_id, detail.barriers))
        if detail is not None or key not in memory.handed_on:
            memory.handed_on.add(key)
            self._found.checkpoints.append(Checkpoint(header, () if detail is None else detail.vertices))

    async def _detail(self, header: CheckpointHeader) -> Detail | None:
        """Return the detail of all vertices, or None: a partial one would look like subtasks that reported nothing."""
        vertices: list[VertexDetail] = []
        known = self._memory.acknowledged.get(key_of(header), {})
        for vertex in self._memory.topology.vertices if self._memory.topology else ():
            if vertex.id in known:
                vertices.append(known[vertex.id])
                continue
            path = flink.checkpoint_subtasks(self._job_id, header.checkpoint_id, vertex.id)
            document = await self._requests.find(path)
            if document is None:
                self._note_not_found(header)
                return None
            answer = parse.subtasks(document, vertex.id)
            if not answer.is_of(header):
                # The job was started again after the history was read, and its checkpoint ids with it.
                self._note_not_found(header)
                return None
            if not answer.status.is_terminal:
                return None
            vertices.append(answer.detail)
        if not self._engine.capabilities.has_channel_events:
            return Detail(tuple(vertices))
        document = await self._requests.find(flink.barriers(self._job_id, header.checkpoint_id))
        return Detail(tuple(vertices), () if document is None else parse_metrics.barriers(document))

    def _note_not_found(self, header: CheckpointHeader) -> None:
        memory, key = self._memory, key_of(header)
        memory.not_found[key] = memory.not_found.get(key, 0) + 1
        if memory.not_found[key] >= _NOT_FOUND_MAX:
            memory.detailed.add(key)
            self._found.problems.append(f"the detail of checkpoint {header.checkpoint_id} is gone")

    def _remember(self, header: CheckpointHeader, detail: Detail) -> None:
        memory, cid = self._memory, header.checkpoint_id
        memory.candidates[cid] = candidate(cid, header.triggered_at, details=detail.vertices, pending=detail.pending)
        if header.failure_reason is FailureReason.EXPIRED and header.failed_at is not None and detail.pending:
            timeout_ms = (memory.config.timeout_ms if memory.config else None) or header.end_to_end_duration_ms or 0
            timeout = min(timedelta(milliseconds=timeout_ms), _WATCH_MAX)
            # Metrics fetched after the barrier arrived still show it.
            until = header.failed_at + timeout + self._engine.fetch_interval + _WATCH_SLACK
            memory.watches[cid] = Watch(header, detail.pending, detail.vertices, until)

    def _note_unread(self, answer: CheckpointsAnswer) -> None:
        memory = self._memory
        ids = [h.checkpoint_id for h in answer.headers]
        if not ids:
            return
        if memory.newest_id is not None and min(ids) > memory.newest_id + 1:
            self._found.problems.append(
                f"checkpoints {memory.newest_id + 1} to {min(ids) - 1} left the engine's history before they were read"
            )
        memory.newest_id = max(ids)


def poll_within_s(answer: CheckpointsAnswer, interval_ms: int | None) -> float | None:
    """Return half the seconds in which the history is replaced, at the shorter of the configured and the seen interval.

    If more checkpoints were counted than are listed, the history is full and its capacity is the listed number. Else
    the capacity is at least Flink's default. None if no interval is known.
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
