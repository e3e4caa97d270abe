"""Describes what a checkpoint with a cap on in-flight data did at a subtask.

For example, it overtook the data, or it waited (CAP-7).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class CapAction(StrEnum):
    """What a checkpoint with a cap on the in-flight data that it persists did at a subtask (CAP-7)."""

    OVERTOOK = "overtook"
    WAITED = "waited"
    """The checkpoint waited until the in-flight data had shrunk to the cap, and then overtook it (CAP-3)."""
    PARTIAL = "partial"
    """The checkpoint overtook only the last part of the queued output, as much as fits under the cap (CAP-5)."""
    ALIGNED = "aligned"
    """The checkpoint waited, and overtook nothing: all input and all output in front of its barriers left first.

    This happens if the last buffer in front of the barriers alone exceeds the cap.
    """
    DECLINED = "declined"


@dataclass(frozen=True, slots=True)
class CapDecision:
    """What a checkpoint with a cap did at a subtask, with the cap and the in-flight bytes (CAP-7).

    ``in_flight_before_bytes`` is the in-flight data at the time when all barriers had arrived. ``in_flight_bytes`` is
    the in-flight data at the time of the action. ``waited_us`` is the time between the two.
    """

    cap_bytes: int
    in_flight_before_bytes: int
    in_flight_bytes: int
    waited_us: int
    action: CapAction

    def after_output(self, persisted_bytes: int, waited_us: int) -> CapDecision:
        """Return the decision after the barriers waited in the output for ``waited_us`` (CAP-3).

        ``persisted_bytes``: what the checkpoint persists at the subtask. If it is 0, the barriers overtook nothing.
        """
        action = CapAction.WAITED if persisted_bytes else CapAction.ALIGNED
        return replace(self, in_flight_bytes=persisted_bytes, waited_us=self.waited_us + waited_us, action=action)
