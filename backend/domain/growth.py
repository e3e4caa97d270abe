"""What may grow in a job over hours or days although its input does not."""

from __future__ import annotations

from enum import StrEnum


class Grown(StrEnum):
    """What has grown."""

    STATE = "state"
    DURATION = "duration"
    """The duration of the checkpoints, at the same size of the state."""
