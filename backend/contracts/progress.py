"""The checkpoint in progress: whom it waits for, who acknowledged when, progressing, slow or stuck."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from backend.contracts.api import Model
from backend.domain.checkpoint import CheckpointStatus


class PendingOut(Model):
    """Whom an open checkpoint waits for, at one vertex."""

    vertex_id: str
    vertex: str
    acknowledged: int
    total: int
    pending: list[int]
    first_barrier_ms: list[int | None]
    """For each pending subtask: its first barrier, if its gauge told."""
    aligning_ms: list[int | None]
    """For each pending subtask: how long it has been aligning."""
    hosts: list[str | None] = Field(default_factory=list)
    queued_bytes: int | None = None
    """Queued before the vertex now: in its in-queues, and in the out-queues of those that feed it alone."""


class AckPointOut(Model):
    """Acknowledgements at an instant."""

    elapsed_ms: int
    acknowledged: int


class ProgressOut(Model):
    """The room of one checkpoint in progress (or its last state once terminal)."""

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
    """Most guilty first."""
    acks: list[AckPointOut]
    past_acks: list[list[AckPointOut]] = Field(default_factory=list)
    """The same curve of the last completed checkpoints, for comparison."""
    typical_duration_ms: float | None = None
    queued_bytes: int | None = None
    """Queued now: what an unaligned checkpoint would persist, about."""
    as_of: datetime
