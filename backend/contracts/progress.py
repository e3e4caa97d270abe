"""The JSON of a checkpoint in progress: its pending subtasks, its acknowledgements, and whether it is slow or stuck."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from backend.contracts.checkpoint_actions import ActionOut
from backend.contracts.model import Model
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.progress import Outlook
from backend.domain.verdict import Basis


class PendingOut(Model):
    """The subtasks of one vertex that have not yet acknowledged the checkpoint in progress."""

    vertex_id: str
    vertex: str
    acknowledged: int
    total: int
    pending: list[int]
    """The pending subtasks; only the first ones if more than 10,000 subtasks of the job are pending.

    ``total`` minus ``acknowledged`` is the number of all.
    """
    first_barrier_ms: list[int | None]
    """For each pending subtask: milliseconds from the trigger to its first barrier; null if not known."""
    aligning_ms: list[int | None]
    """For each pending subtask: milliseconds since its alignment began; null if not known."""
    hosts: list[str | None] = Field(default_factory=list)
    queued_bytes: int | None = None
    """Bytes that wait in front of the vertex now: in its input queues and in the output queues upstream.

    Null if a reading is missing, or if an upstream vertex also feeds other vertices.
    """


class AckPointOut(Model):
    """One point of the acknowledgement curve: how many subtasks had acknowledged ``elapsed_ms`` after the trigger."""

    elapsed_ms: int
    acknowledged: int


class FinishOut(Model):
    """When a checkpoint in progress is predicted to finish, in words and in milliseconds since its trigger."""

    outlook: Outlook
    words: str
    likely_ms: float | None
    low_ms: float | None
    """The begin of the interval; null if nothing is predicted, or if the whole interval is past the timeout."""
    high_ms: float | None
    """The end of the interval; null if the interval reaches to the timeout or has no end."""
    coverage_ratio: float | None
    """The share of the checkpoints of this age for which the interval is to hold."""
    expiry_ratio: float | None = None
    """The predicted probability that the checkpoint reaches its timeout; null without a timeout or a prediction."""
    plain_rule_ms: float | None = None
    """When a plain rule, which knows no earlier checkpoints, would warn; null without a timeout."""
    compared_count: int
    """The number of earlier checkpoints that had come as far."""
    longer_count: int = 0
    """How many of them took longer from there than this one has so far."""
    basis: Basis = Basis.PREDICTED


class UnalignedOut(Model):
    """What the checkpoint would persist if its barriers overtook all data now, in bytes."""

    value: float
    low: float
    high: float
    basis: Basis = Basis.PREDICTED


class ProgressOut(Model):
    """The progress of one checkpoint. If the checkpoint has ended, this is its progress at the end."""

    job_id: str
    run_id: str
    checkpoint_id: int
    status: CheckpointStatus
    triggered_at: datetime
    elapsed_ms: int
    timeout_ms: int | None
    remaining_ms: int | None
    times_out_at: datetime | None = None
    """When the checkpoint reaches its timeout, on the clock of this service; null if it has ended or has no timeout."""
    clock_offset_ms: int | None = None
    """The engine's clock minus the clock of this service; null if it is not known."""
    acknowledged: int
    total: int
    judgement: Literal["progressing", "slow", "stuck", "ended"]
    judgement_rule: str
    """The rule that led to the judgement, with its numbers."""
    waiting_on: list[PendingOut]
    """The vertices with pending subtasks: the vertex of the verdict first, then the others from sources to sinks."""
    acks: list[AckPointOut]
    past_acks: list[list[AckPointOut]] = Field(default_factory=list)
    """The acknowledgement curves of the last completed checkpoints, for comparison."""
    typical_duration_ms: float | None = None
    queued_bytes: int | None = None
    """Bytes in all queues of the job now. An unaligned checkpoint would persist about this much."""
    finish: FinishOut | None = None
    """Null if the checkpoint is not in progress, or if all subtasks have acknowledged."""
    unaligned_now: UnalignedOut | None = None
    """Null if the checkpoint is not in progress, or if no queue that may be in front of its barriers was read."""
    actions: list[ActionOut] = Field(default_factory=list)
    """The actions, each with the reason if it is not possible now.

    If the checkpoint has ended, only those on its job, or none if the engine has none.
    """
    as_of: datetime
