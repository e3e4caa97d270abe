"""Reads what the subtasks of one vertex reported for one checkpoint."""

from __future__ import annotations

from backend.contracts import flink
from backend.domain.ids import EngineRunId, VertexId
from collectors.flink import parse
from collectors.flink.parse import SubtasksAnswer
from collectors.flink.reading import RunMemory
from collectors.flink.requests import Requests


async def read_subtasks(
    requests: Requests, memory: RunMemory, job_id: EngineRunId, checkpoint_id: int, vertex_id: VertexId
) -> SubtasksAnswer | None:
    """Return the detail of a vertex, or None if the target no longer has it.

    If more subtasks look finished than had ended when the job was read last, the job is read again: a running subtask
    without state, on a machine whose clock is behind, reports the same zeros.
    """
    document = await requests.find(flink.checkpoint_subtasks(job_id, checkpoint_id, vertex_id))
    if document is None:
        return None
    answer = parse.subtasks(document, vertex_id)
    if answer.finished_count > memory.ended_counts.get(vertex_id, 0):
        described = await requests.find(flink.job(job_id))
        if described is not None:
            memory.ended_counts = parse.ended_counts(described)
            if answer.finished_count > memory.ended_counts.get(vertex_id, 0):
                return parse.subtasks(document, vertex_id, may_have_finished=False)
    return answer
