"""Checkpoints and savepoints that a user asked for, and what became of them. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import SnapshotType
from backend.runtime.core.scheduler import Action


class SavepointFormat(StrEnum):
    """What a savepoint was asked to be written as (SV-2); here both hold the same."""

    CANONICAL = "CANONICAL"
    NATIVE = "NATIVE"


@dataclass(slots=True)
class UserCheckpoint:
    """One checkpoint that a user asked for and how far it has come; instants are virtual microseconds."""

    number: int
    requested_at_us: int
    checkpoint_id: int | None = None
    ended_at_us: int | None = None
    reason: FailureReason | None = None
    message: str | None = None


@dataclass(slots=True)
class Savepoint:
    """One requested savepoint and how far it has come (SV-4); instants are virtual microseconds."""

    number: int
    format: SavepointFormat
    requested_at_us: int
    checkpoint_id: int | None = None
    ended_at_us: int | None = None
    reason: FailureReason | None = None
    message: str | None = None
    kind: SnapshotType = SnapshotType.SAVEPOINT
    """Whether the job stops with it, and how (SV-3). Then its end is that of the job."""
    completed_at_us: int | None = None
    when_ended: Action | None = None
    """Whom its end is an event for."""
