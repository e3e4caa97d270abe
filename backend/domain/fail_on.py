"""The conditions of ``barrierscope diagnose --fail-on``: which diagnosis makes a script stop. A condition includes
those before it: ``failing``, ``slow``, ``advice``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from backend.domain.verdict import Diagnosis, Health, VerdictKind

_FAILING: Final = {Health.FAILING: "failing", Health.RESTARTING: "restarting"}
_SLOW: Final = {Health.SLOW: "slow", Health.INTERMITTENT: "intermittent"}


class FailOn(StrEnum):
    """From which diagnosis on ``diagnose`` exits with another code."""

    FAILING = "failing"
    SLOW = "slow"
    ADVICE = "advice"


def reason_to_fail(fail_on: FailOn, diagnosis: Diagnosis, *, is_batch: bool, has_advice: bool) -> str | None:
    """Return why a job meets the condition, as ``failing``, ``restarting``, ``slow``..., or None if it does not.

    ``is_batch`` tells a job in batch mode, which loses nothing if its checkpointing is off. ``has_advice`` tells a job
    for which at least one change is recommended.
    """
    if diagnosis.health in _FAILING:
        return _FAILING[diagnosis.health]
    if diagnosis.verdict.kind is VerdictKind.LOST_ROWS:
        return "output is lost"
    if fail_on is FailOn.FAILING:
        return None
    if diagnosis.health in _SLOW:
        return _SLOW[diagnosis.health]
    if diagnosis.health is Health.OFF and not is_batch:
        return "checkpointing off"
    return "advice" if fail_on is FailOn.ADVICE and has_advice else None
