"""What a capped checkpoint decided at a subtask (CAP-7). Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CapAction(StrEnum):
    """What a capped checkpoint did at a task (CAP-7)."""

    OVERTOOK = "overtook"
    WAITED = "waited"
    """It overtook, once what was in flight had become little enough."""
    PARTIAL = "partial"
    """It overtook as much of the output as fitted, from its tail (CAP-5)."""
    DRAINED = "drained"
    """All input in front of the cuts was processed, and the output still did not fit: aligned."""
    ALIGNED = "aligned"
    """A source whose output did not fit."""
    DECLINED = "declined"


@dataclass(frozen=True, slots=True)
class CapDecision:
    """CAP-7: the cap, what was in flight when all barriers were there and when it was decided, and what was done."""

    cap_bytes: int
    in_flight_before_bytes: int
    in_flight_bytes: int
    waited_us: int
    action: CapAction
