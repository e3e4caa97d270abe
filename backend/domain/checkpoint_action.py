"""The actions on a checkpoint in progress, which the services, the API and the pages share."""

from __future__ import annotations

from enum import StrEnum


class CheckpointAction(StrEnum):
    """An action that a person can take while a checkpoint is in progress."""

    EXTEND_TIMEOUT = "extend-timeout"
    SAVEPOINT = "savepoint"
    SWITCH_TO_UNALIGNED = "switch-to-unaligned"
    ABORT = "abort"
