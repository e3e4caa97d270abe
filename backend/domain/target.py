"""The states and origins of a target, with the values that the store, the API and the alert rules use."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

COLLECTOR_GROUP: Final = "barrierscope.collectors"
"""The group of entry points that offer collectors. The name of an entry point is the kind of target that it reads."""


class TargetState(StrEnum):
    """The result of the latest attempts to read a target."""

    OK = "ok"
    PENDING = "pending"
    """The target has not been read yet."""
    UNREACHABLE = "unreachable"
    MALFORMED = "malformed"
    """The target responded, but its response is not valid for its kind of target."""
    PARTIAL = "partial"
    """The target responds, but what it reports about some of its jobs cannot be read."""
    SILENT = "silent"
    """The target pushes its own data and has stopped doing so."""
    PAUSED = "paused"


class TargetOrigin(StrEnum):
    """How a target was added."""

    API = "api"
    CONFIGURATION = "configuration"
    BUILT_IN = "built-in"
    DISCOVERY = "discovery"
    """Found by a section of the operator's file. The operator chose the credentials, and others chose the address."""
    PUSH = "push"
    """The target added itself by pushing its own data. No collector reads it."""

    @property
    def is_trusted(self) -> bool:
        """Whether the operator chose the address and the credentials, so that nothing is refused."""
        return self in (TargetOrigin.CONFIGURATION, TargetOrigin.BUILT_IN)

    @property
    def has_operators_credentials(self) -> bool:
        """Whether the operator named the credentials, so that every reference may be read."""
        return self.is_trusted or self is TargetOrigin.DISCOVERY
