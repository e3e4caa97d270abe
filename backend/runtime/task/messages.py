"""The messages that subtasks send to the coordinator. Each message arrives after the RPC latency."""

from __future__ import annotations

from dataclasses import dataclass

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Barrier
from backend.runtime.measure.measures import SubtaskCheckpoint, SubtaskSnapshot, TaskKey


@dataclass(frozen=True, slots=True)
class Trigger:
    """The message by which the coordinator triggers a checkpoint at a subtask.

    ``is_for_all``: whether all subtasks are triggered, so that barriers arrive on the channels as well (CL-7).
    Otherwise no predecessor of the subtask runs, and no barrier arrives (FN-3).
    """

    barrier: Barrier
    is_for_all: bool = False


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
class EndOfDataMessage:
    """The message by which a subtask reports that its data has ended and its operators have finished (FN-25)."""

    task: TaskKey
    attempt: int


@dataclass(frozen=True, slots=True)
class FinishedMessage:
    """The message by which a subtask reports that it has finished. This is the last message of the subtask."""

    task: TaskKey
    attempt: int
