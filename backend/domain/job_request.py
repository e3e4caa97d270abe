"""The requests about a job that can be sent to its target, apart from changes of its settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class TriggerSavepoint:
    """Take a savepoint, where the engine stores them by default. The job goes on."""


@dataclass(frozen=True, slots=True)
class AbortCheckpoint:
    """Abort a checkpoint in progress. The job goes on."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class StopWithSavepoint:
    """Take a savepoint and end the job, which can be started from it again."""


@dataclass(frozen=True, slots=True)
class StartFrom:
    """Start the job again, which has ended, from the checkpoint or savepoint at this location."""

    location: str


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """Answer whether these settings, as (key, value), can be set now. Nothing changes."""

    settings: tuple[tuple[str, str], ...]


JobRequest: TypeAlias = TriggerSavepoint | AbortCheckpoint | StopWithSavepoint | StartFrom | CheckSettings
