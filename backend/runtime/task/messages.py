"""The messages that subtasks send to the coordinator. Values only. Each arrives after the RPC latency."""

from __future__ import annotations

from dataclasses import dataclass

from backend.domain.failure import FailureReason
from backend.runtime.measure.measures import SubtaskCheckpoint, SubtaskSnapshot, TaskKey


@dataclass(frozen=True, slots=True)
class AckMessage:
    """A subtask acknowledges a checkpoint."""

    checkpoint_id: int
    task: TaskKey
    attempt: int
    snapshot: SubtaskSnapshot
    measured: SubtaskCheckpoint


@dataclass(frozen=True, slots=True)
class DeclineMessage:
    """A subtask declines a checkpoint (CO-10)."""

    checkpoint_id: int
    task: TaskKey
    attempt: int
    reason: FailureReason


@dataclass(frozen=True, slots=True)
class BacklogMessage:
    """A source subtask began or finished working off a backlog."""

    task: TaskKey
    attempt: int
    is_processing: bool


@dataclass(frozen=True, slots=True)
class FinishedMessage:
    """A subtask has finished. This is its last message."""

    task: TaskKey
    attempt: int
