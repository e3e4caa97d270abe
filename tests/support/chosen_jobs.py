"""Choices of settings on made-up predictions, without a simulation."""

from __future__ import annotations

from backend.advisor import advise
from backend.advisor.advice import Interval
from backend.advisor.choice.choosing import choose
from backend.advisor.tier_choice import TierChoice
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.model.building import build
from backend.advisor.twin.model.model import JobModel
from backend.advisor.twin.model.outcomes import Outcome, Tier
from backend.domain.advice import Mode
from backend.domain.engines import RUNTIME

QUICK, SLOW = Interval(200.0, 100.0, 400.0), Interval(8_000.0, 6_000.0, 9_000.0)
NOTHING = Interval(0.0, 0.0, 0.0)


def outcome(duration: Interval, persisted: float = 0.0, expired: float = 0.0) -> Outcome:
    return Outcome(
        tier=Tier.FAST,
        duration_ms=duration,
        expired_ratio=Interval(expired, expired, expired),
        persisted_bytes=Interval(persisted, persisted / 2, persisted * 2) if persisted else NOTHING,
        records_per_s=None,
        sync_pause_ms=Interval(100.0, 50.0, 200.0),
    )


class Predicted:
    """Predicts what the test says, and remembers what was asked."""

    def __init__(self, aligned: Outcome, unaligned: Outcome) -> None:
        self._by_mode = {Mode.ALIGNED: aligned, Mode.UNALIGNED: unaligned, Mode.ALIGNED_WITH_TIMEOUT: unaligned}
        self.asked: list[WhatIf] = []

    def __call__(self, model: JobModel, what_if: WhatIf) -> Outcome:
        self.asked.append(what_if)
        return self._by_mode[what_if.mode or model.settings.mode]


def chosen(known, aligned=None, unaligned=None) -> TierChoice:
    predicted = Predicted(aligned or outcome(SLOW), unaligned or outcome(QUICK, 20_000.0))
    return choose(known, model_of=uncalibrated, predict_with=predicted)


def uncalibrated(known) -> JobModel:
    return build(known.evidence, engine=known.engine, version=known.version)


def advised(evidence, choice, *, is_simulated=True):
    return advise(evidence, engine=RUNTIME, version="0.0.0", choice=choice, is_simulated=is_simulated)
