"""The requests that can be sent to a running job, apart from changes of its settings."""

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
class CheckSettings:
    """Answer whether these settings, as (key, value), can be set now. Nothing changes."""

    settings: tuple[tuple[str, str], ...]


JobRequest: TypeAlias = TriggerSavepoint | AbortCheckpoint | CheckSettings
