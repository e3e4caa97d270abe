"""The actions on a checkpoint and its job, which the services, the API and the pages share."""

from __future__ import annotations

from enum import StrEnum


class CheckpointAction(StrEnum):
    """An action that a person can take on a checkpoint.

    The last two are actions on its job, also when the checkpoint has ended.
    """

    EXTEND_TIMEOUT = "extend-timeout"
    SAVEPOINT = "savepoint"
    SWITCH_TO_UNALIGNED = "switch-to-unaligned"
    ABORT = "abort"
    STOP = "stop-with-savepoint"
    START = "start-from"
