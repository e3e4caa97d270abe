"""The messages that subtasks send to the coordinator. Each message arrives after the RPC latency."""

from __future__ import annotations

from dataclasses import dataclass

from backend.domain.failure import FailureReason
from backend.runtime.measure.measures import SubtaskCheckpoint, SubtaskSnapshot, TaskKey


@dataclass(frozen=True, slots=True)
class AckMessage:
    """The message with which a subtask acknowledges a checkpoint."""

    checkpoint_id: int
    task: TaskKey
    attempt: int
    snapshot: SubtaskSnapshot
    measured: SubtaskCheckpoint


@dataclass(frozen=True, slots=True)
class DeclineMessage:
    """The message with which a subtask declines a checkpoint (CO-10)."""

    checkpoint_id: int
    task: TaskKey
    attempt: int
    reason: FailureReason


@dataclass(frozen=True, slots=True)
class BacklogMessage:
    """The message by which a source subtask reports that it started or finished working off a backlog."""

    task: TaskKey
    attempt: int
    is_processing: bool


@dataclass(frozen=True, slots=True)
class FinishedMessage:
    """The message by which a subtask reports that it has finished. This is the last message of the subtask."""

    task: TaskKey
    attempt: int
