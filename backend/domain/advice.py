"""Words of advice that the store, the API and the pages share with the advisor."""

from __future__ import annotations

from enum import StrEnum


class Topic(StrEnum):
    """What a rule is about; at most one recommendation is open for each."""

    MODE = "mode"
    IN_FLIGHT = "in-flight"


class Mode(StrEnum):
    """How checkpoints are taken."""

    ALIGNED = "aligned"
    ALIGNED_WITH_TIMEOUT = "aligned-with-timeout"
    UNALIGNED = "unaligned"


class Metric(StrEnum):
    """What is predicted, and measured later."""

    DURATION = "end_to_end_duration_ms"
    PERSISTED = "persisted_bytes"
    EXPIRED = "expired_ratio"
    RESTORE = "restore_extra_ms"


class AdviceState(StrEnum):
    """What became of a piece of advice."""

    NEW = "new"
    ACCEPTED = "accepted"
    DISMISSED = "dismissed"
    APPLIED = "applied"
    VERIFIED = "verified"
    ROLLED_BACK = "rolled-back"
    EXPIRED = "expired"

    @property
    def is_open(self) -> bool:
        """Whether somebody may still act on it."""
        return self in (AdviceState.NEW, AdviceState.ACCEPTED)
