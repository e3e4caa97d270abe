"""Which numbers are only lower bounds, because what they measure had not ended (``domain.rollup``)."""

from __future__ import annotations

from backend.contracts.model import Model


class DurationBoundsOut(Model):
    """Whether the durations of a job's last 24 hours are lower bounds.

    They cover the completed and the expired checkpoints. An expired one counts with the time until it expired, so a
    percentile at or above the least of these times is a lower bound.
    """

    is_p50_lower_bound: bool = False
    is_p99_lower_bound: bool = False


class EvidenceBoundOut(Model):
    """Whether the number of a row of evidence is a lower bound."""

    is_lower_bound: bool = False
    """Whether subtasks that had not acknowledged are missing in it, so that the true number is at least this."""


class CheckpointBoundsOut(Model):
    """Whether the numbers of a checkpoint leave out subtasks that did not acknowledge it."""

    is_lower_bound: bool = False
    """Whether the largest phases and the sums of bytes are lower bounds, because some subtasks did not acknowledge."""
