"""Checkpoints and savepoints that a user requested, with their progress and results."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import SnapshotType
from backend.runtime.core.scheduler import Action


class RequestedFormat(StrEnum):
    """The requested format of a savepoint (SV-2). In this runtime both formats have the same content."""

    CANONICAL = "CANONICAL"
    NATIVE = "NATIVE"


@dataclass(slots=True)
class UserCheckpoint:
    """One checkpoint that a user requested, and its progress. Instants are in virtual microseconds."""

    number: int
    requested_at_us: int
    is_full: bool = False
    """Whether the checkpoint must not use files of earlier ones (IN-5)."""
    checkpoint_id: int | None = None
    ended_at_us: int | None = None
    reason: FailureReason | None = None
    message: str | None = None


@dataclass(slots=True)
class Savepoint:
    """One requested savepoint, and its progress (SV-4). Instants are in virtual microseconds."""

    number: int
    format: RequestedFormat
    requested_at_us: int
    checkpoint_id: int | None = None
    ended_at_us: int | None = None
    reason: FailureReason | None = None
    message: str | None = None
    kind: SnapshotType = SnapshotType.SAVEPOINT
    """How the job stops with the savepoint, if it stops (SV-3). The request for a stop ends when the job has ended."""
    completed_at_us: int | None = None
    when_ended: Action | None = None
    """The action to run when the request ends."""
