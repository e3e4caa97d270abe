"""Goal: what-ifs for a job whose checkpoint store hangs now and then say how often its checkpoints will hang.

Method: a drawn job of the reference runtime is polled like a live target, and its model is built from that. Each quick
tier predicts it as it is, and at another interval. Then it runs with other records. To compare the choice of settings:
``make eval ARGS="--kind noisy_store"``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from backend.advisor.twin import tiers
from backend.advisor.twin.changes import WhatIf
from backend.advisor.twin.hung_writes import SUBJECT
from backend.advisor.twin.outcomes import Tier
from backend.advisor.twin.predicting import DURATION, EXPIRED
from backend.advisor.twin.tiers import QuickTiers, TieredModel
from backend.domain.engines import RUNTIME
from tests.simulators.regret_jobs import SEEN_S, Drawn, fare
from tests.support.twin_evidence import runtime_evidence

_NAME = "noisy_store/137"
"""In most of its checkpoints no write hangs, and some expire."""


@cache
def _model() -> TieredModel:
    job = Drawn.of(_NAME)
    evidence = runtime_evidence(job.spec(job.now.config(), seed=1), run_s=SEEN_S, every_s=4.0)
    return QuickTiers(is_ready=True).build(evidence, RUNTIME, "0.0.0")


@pytest.mark.parametrize("tier", [Tier.FORMULAS, Tier.FAST])
@pytest.mark.parametrize("factor", [1.0, 2.0], ids=["as it is", "twice the interval"])
def test_the_expired_share_and_the_slowest_checkpoints_are_predicted_also_at_another_interval(
    tier: Tier, factor: float
):
    job = Drawn.of(_NAME)
    interval_ms = job.interval_ms * factor
    happened = fare(job, replace(job.now, interval_ms=round(interval_ms)).config(), seed=2, run_s=460.0)
    found = tiers.predict(_model(), WhatIf(interval_ms=interval_ms), tier)

    assert happened.expired > 0.05
    assert found.expired_ratio is not None
    assert found.expired_ratio.low <= happened.expired <= found.expired_ratio.high
    assert abs(found.expired_ratio.value - happened.expired) <= 0.12
    assert found.duration_ms is not None
    # More than one in twenty expire, so the interval of 90 % contains the timeout, and so does the distribution.
    assert found.duration_ms.high == job.timeout_ms
    assert max(found.durations_ms) == job.timeout_ms
    assert found.duration_ms.value < job.timeout_ms / 2


def test_fewer_checkpoints_expire_at_a_shorter_interval_and_more_at_a_longer_one():
    shares = [
        found.expired_ratio.value
        for ms in (5_000.0, 10_000.0, 20_000.0, 30_000.0)
        if (found := tiers.predict(_model(), WhatIf(interval_ms=ms), Tier.FAST)).expired_ratio is not None
    ]

    assert shares == sorted(set(shares))


def test_the_model_says_what_it_assumes_and_is_scored_with_its_hangs():
    for model in _model().by_tier.values():
        (said,) = [a for a in model.assumptions if a.subject == SUBJECT]
        assert "checkpoints a write hung for" in said.taken
        assert "by time and not by bytes" in said.reason
        assert model.calibration is not None
        errors = {e.measure: e for e in model.calibration.errors}
        # Without its hangs, no checkpoint of the model would expire or differ from the others.
        assert errors[EXPIRED].predicted > 0.03
        assert errors[DURATION].unexplained_spread < 0.8
