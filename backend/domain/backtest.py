"""What a backtest can replay."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Part(StrEnum):
    """What can be replayed."""

    WARNING = "warning"
    VERDICT = "verdict"
    ADVICE = "advice"


EVERY_PART: Final = frozenset(Part)
