"""A choice of settings as the fast simulation would make it, without a simulation."""

from __future__ import annotations

from dataclasses import replace

from backend.advisor.advice import Interval
from backend.advisor.choice.choosing import refused
from backend.advisor.situation import Situation
from backend.advisor.tier_choice import Chosen, Scored, TierChoice
from backend.domain.advice import Mode


def made_choice(known: Situation) -> TierChoice:
    """Return the choice of an aligned timeout of 300 ms, which halves what is lost."""
    now = Chosen(mode=Mode.ALIGNED, aligned_timeout_ms=None, inflight_cap_bytes=None, interval_ms=10_000)
    best = replace(now, mode=Mode.ALIGNED_WITH_TIMEOUT, aligned_timeout_ms=300)
    return replace(
        refused(known, None),
        now=_scored(now, 0.02),
        best=_scored(best, 0.01),
        setting_count=9,
        error_ratio=0.0,
        error_words="exact",
        limit_bytes=1e6,
    )


def _scored(chosen: Chosen, lost: float) -> Scored:
    one, none = Interval(500.0, 400.0, 600.0), Interval(0.0, 0.0, 0.0)
    return Scored(
        chosen=chosen,
        lost_ratio=lost,
        heavy_ratio=0.0,
        sync_ms=1.0,
        duration_ms=one,
        usual_ms=one.value,
        persisted_bytes=one,
        expired_ratio=none,
        bound_ratio=0.0,
    )
