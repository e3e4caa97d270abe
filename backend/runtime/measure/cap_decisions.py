"""Describes what a checkpoint with a cap on in-flight data did at a subtask.

For example, it overtook the data, or it waited (CAP-7).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CapAction(StrEnum):
    """What a checkpoint with a cap on the in-flight data that it persists did at a subtask (CAP-7)."""

    OVERTOOK = "overtook"
    WAITED = "waited"
    """The checkpoint waited until the in-flight data had shrunk to the cap, and then overtook it."""
    PARTIAL = "partial"
    """The checkpoint overtook only the last part of the queued output, as much as fits under the cap (CAP-5)."""
    DRAINED = "drained"
    """The checkpoint became aligned, because its in-flight data could not shrink to the cap.

    The output exceeded the cap even after all input before the barriers had been processed.
    """
    ALIGNED = "aligned"
    """The checkpoint became aligned at a source, because the source's output exceeded the cap."""
    DECLINED = "declined"


@dataclass(frozen=True, slots=True)
class CapDecision:
    """What a checkpoint with a cap did at a subtask, with the cap and the in-flight bytes (CAP-7).

    ``in_flight_before_bytes`` is the in-flight data at the time when all barriers had arrived. ``in_flight_bytes`` is
    the in-flight data at the time of the action.
    """

    cap_bytes: int
    in_flight_before_bytes: int
    in_flight_bytes: int
    waited_us: int
    action: CapAction
