"""Reads the barrier events of one checkpoint, which only the live runtime reports."""

from __future__ import annotations

from backend.contracts import flink
from backend.domain.barriers import BarrierEvent
from backend.domain.errors import TargetProtocolError
from backend.domain.ids import EngineRunId
from collectors.flink import parse_metrics
from collectors.flink.found import Found
from collectors.flink.requests import Requests


async def read_barriers(
    requests: Requests, job_id: EngineRunId, checkpoint_id: int, found: Found
) -> tuple[BarrierEvent, ...] | None:
    """Return the barrier events of a checkpoint. Return None if the target's response cannot be read.

    The trace of a wide job may be larger than the largest response that is read. The other values of the checkpoint do
    not need it, so a trace that is refused is only noted in ``found.problems``.
    """
    try:
        document = await requests.find(flink.barriers(job_id, checkpoint_id))
        return () if document is None else parse_metrics.barriers(document)
    except TargetProtocolError as error:
        found.problems.append(f"the barrier events of checkpoint {checkpoint_id} were not read: {error}")
        return None
