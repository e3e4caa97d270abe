"""The messages that subtasks send to the coordinator. Values only; the RPC latency passes before one arrives."""

from __future__ import annotations

from dataclasses import dataclass

from backend.domain.failure import FailureReason
from backend.runtime.measure.measures import SubtaskCheckpoint, SubtaskSnapshot, TaskKey


@dataclass(frozen=True, slots=True)
class AckMessage:
    """One subtask's acknowledgement on its way to the coordinator."""

    checkpoint_id: int
    task: TaskKey
    attempt: int
    snapshot: SubtaskSnapshot
    measured: SubtaskCheckpoint


@dataclass(frozen=True, slots=True)
class DeclineMessage:
    """One subtask's refusal on its way to the coordinator (CO-10)."""

    checkpoint_id: int
    task: TaskKey
    attempt: int
    reason: FailureReason


@dataclass(frozen=True, slots=True)
class BacklogMessage:
    """A source subtask began or ended to work off a backlog."""

    task: TaskKey
    attempt: int
    is_processing: bool


@dataclass(frozen=True, slots=True)
class FinishedMessage:
    """One subtask's last message to the coordinator."""

    task: TaskKey
    attempt: int
