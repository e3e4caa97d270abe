"""The kinds of rows that can be exported."""

from __future__ import annotations

from enum import StrEnum


class Contents(StrEnum):
    """What one export contains."""

    CHECKPOINTS = "checkpoints"
    SUBTASKS = "subtasks"
    PRESSURE = "pressure"
    ALERTS = "alerts"
    EVENTS = "events"
