"""The checkpoint in progress: pending subtasks, acknowledgements over time, and whether it is slow or stuck."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from backend.contracts.model import Model
from backend.domain.checkpoint import CheckpointStatus


class PendingOut(Model):
    """The subtasks of one vertex that an open checkpoint waits for."""

    vertex_id: str
    vertex: str
    acknowledged: int
    total: int
    pending: list[int]
    first_barrier_ms: list[int | None]
    """For each pending subtask: milliseconds from the trigger to its first barrier; null if not known."""
    aligning_ms: list[int | None]
    """For each pending subtask: how long it has been aligning; null if not known."""
    hosts: list[str | None] = Field(default_factory=list)
    queued_bytes: int | None = None
    """Queued before the vertex now: in its in-queues and in its upstream vertices' out-queues.

    Null if a reading is missing, or if an upstream vertex also feeds other vertices.
    """


class AckPointOut(Model):
    """The number of acknowledgements at one time since the trigger."""

    elapsed_ms: int
    acknowledged: int


class ProgressOut(Model):
    """One checkpoint in progress, or its last state if it is terminal."""

    job_id: str
    run_id: str
    checkpoint_id: int
    status: CheckpointStatus
    triggered_at: datetime
    elapsed_ms: int
    timeout_ms: int | None
    remaining_ms: int | None
    acknowledged: int
    total: int
    judgement: Literal["progressing", "slow", "stuck", "ended"]
    judgement_rule: str
    """The rule that decided the judgement, with its numbers."""
    waiting_on: list[PendingOut]
    """The verdict's vertex first, then from the sources down."""
    acks: list[AckPointOut]
    past_acks: list[list[AckPointOut]] = Field(default_factory=list)
    """The same curves of the last completed checkpoints, for comparison."""
    typical_duration_ms: float | None = None
    queued_bytes: int | None = None
    """Bytes queued now in the whole job: about what an unaligned checkpoint would persist."""
    as_of: datetime
