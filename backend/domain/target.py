"""The states and origins of a target, as the store, the API and the rules write them."""

from __future__ import annotations

from enum import StrEnum


class TargetState(StrEnum):
    """The outcome of reading a target."""

    OK = "ok"
    PENDING = "pending"
    """It has not been read yet."""
    UNREACHABLE = "unreachable"
    MALFORMED = "malformed"
    """It answered, but not as its kind answers."""
    SILENT = "silent"
    """It pushes its own data and has stopped."""
    PAUSED = "paused"


class TargetOrigin(StrEnum):
    """What added a target."""

    API = "api"
    CONFIGURATION = "configuration"
    BUILT_IN = "built-in"
    PUSH = "push"
    """A push of its own data. No collector reads it."""
