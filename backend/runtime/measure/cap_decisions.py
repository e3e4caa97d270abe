"""What a capped checkpoint decided at a subtask (CAP-7). Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CapAction(StrEnum):
    """What a capped checkpoint did at a subtask (CAP-7)."""

    OVERTOOK = "overtook"
    WAITED = "waited"
    """It overtook after the in-flight data had shrunk to the cap."""
    PARTIAL = "partial"
    """It overtook the part of the output that fits under the cap, from the tail (CAP-5)."""
    DRAINED = "drained"
    """It became aligned: the output exceeded the cap even after all input before the barriers was processed."""
    ALIGNED = "aligned"
    """It became aligned at a source whose output exceeded the cap."""
    DECLINED = "declined"


@dataclass(frozen=True, slots=True)
class CapDecision:
    """The cap, the in-flight bytes when all barriers had arrived and at the decision, and the action (CAP-7)."""

    cap_bytes: int
    in_flight_before_bytes: int
    in_flight_bytes: int
    waited_us: int
    action: CapAction
