"""The order in which jobs are listed, in the fleet and in ``diagnose``: the worst first."""

from __future__ import annotations

from collections.abc import Mapping
from math import log2
from typing import Final

from backend.domain.verdict import Health, VerdictKind

URGENCY: Final[Mapping[Health | None, int]] = {
    Health.FAILING: 0,
    Health.RESTARTING: 1,
    Health.SLOW: 2,
    Health.INTERMITTENT: 3,
    Health.OFF: 4,
    Health.TOO_FEW: 5,
    None: 5,
    Health.HEALTHY: 6,
}
"""The rank of each health, 0 is the worst. None is the health of a job that is not analysed yet."""

_ENDED = 10
_DEBT_STEPS = 20
_HARMLESS = (VerdictKind.NONE, VerdictKind.UNDECIDED)


def urgency_key(
    health: Health | None, kind: VerdictKind | None, *, debt_ms: float | None, has_ended: bool = False
) -> int:
    """Return the sort key of a job. ``debt_ms`` is its replay debt, and ``kind`` that of its verdict.

    Jobs that have not ended come before ended ones. Then worse health comes first. At equal health, the larger replay
    debt comes first, then jobs with a known cause. Debts count in steps that double, from a minute on: otherwise jobs
    would change places at each of their checkpoints. A snapshot part does not limit a job whose checkpoints are
    healthy.
    """
    harmless = _HARMLESS if health is not Health.HEALTHY else (*_HARMLESS, VerdictKind.SYNC, VerdictKind.STORE)
    is_limited = kind is not None and kind not in harmless
    debt_min = (debt_ms or 0.0) / 60_000
    step = 0 if debt_min < 1 else min(_DEBT_STEPS, 1 + int(log2(debt_min)))
    urgency = has_ended * _ENDED + URGENCY[health]
    return (urgency * (_DEBT_STEPS + 1) + _DEBT_STEPS - step) * 2 + (not is_limited)
