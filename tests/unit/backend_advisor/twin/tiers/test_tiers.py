"""The quick tiers: which one answers, and the calibration that belongs to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.asking.changing import changed
from backend.advisor.twin.fast.fast import FullQueueError, seeds_within
from backend.advisor.twin.model.outcomes import Simulated, Tier
from backend.advisor.twin.tiers import predicting
from backend.advisor.twin.tiers.calibration import Measured
from backend.advisor.twin.tiers.tiers import QuickTiers, TieredModel, choose, predict
from backend.domain.advice import Mode
from backend.domain.errors import TooLargeError
from tests.support.interpreted_fast_tier import interpreted_fast_tier
from tests.support.made_up_what_ifs import rehearsal, small_model
from tests.support.twin_models import three_vertices

_UNALIGNED = WhatIf(mode=Mode.UNALIGNED)


@pytest.fixture
def interpreted() -> Iterator[None]:
    with interpreted_fast_tier():
        yield


def both(model=None) -> TieredModel:
    model = model or small_model()
    return TieredModel({Tier.FORMULAS: replace(model, calibration=None), Tier.FAST: model})


def test_the_fast_tier_answers_with_its_own_calibration(interpreted: None):
    job = both()

    assert choose(job, [WhatIf(), _UNALIGNED]) == (Tier.FAST, None)
    assert job.best.calibration is not None
    found = predict(job, _UNALIGNED, Tier.FAST)
    assert found.tier is Tier.FAST
    assert len(found.durations_ms) > 1
    assert found.duration_ms is not None
    assert found.duration_ms.value < 500
    # Closed formulas have another model, which was not scored.
    assert any("not be scored" in n for n in predict(job, _UNALIGNED, Tier.FORMULAS).notes)


def test_a_small_job_is_simulated_several_times_because_what_is_queued_differs_more_between_runs(interpreted: None):
    model = small_model()
    (one,) = predicting.simulated(changed(model, _UNALIGNED), Tier.FAST, seeds=(1,))
    found = predict(both(), _UNALIGNED, Tier.FAST)

    assert len(found.durations_ms) == 4 * len(one.checkpoints)
    large = changed(model, WhatIf(parallelism=(("enrich", 64), ("aggregate", 64))))
    assert seeds_within(large) == (1,)


def test_formulas_answer_for_the_whole_comparison_if_one_of_its_what_ifs_is_too_large():
    job = both(three_vertices())
    wide = WhatIf(parallelism=(("sink", 3000),))

    tier, why = choose(job, [WhatIf(), wide])

    assert tier is Tier.FORMULAS
    assert (
        why
        == "it has 12016 channels, and the fast simulation takes 8192, so closed formulas answer, which are less exact"
    )
    # A change that does not apply to the job says so by itself.
    assert choose(job, [WhatIf(), WhatIf(parallelism=(("no such vertex", 3),))]) == (Tier.FAST, None)


def test_a_job_that_was_modelled_before_the_tier_was_ready_says_why():
    job = TieredModel({Tier.FORMULAS: small_model()}, "the fast simulation is still being compiled")

    tier, why = choose(job, [WhatIf()])

    assert tier is Tier.FORMULAS
    assert (why or "").startswith("the fast simulation is still being compiled, so closed formulas answer")
    assert predict(job, _UNALIGNED, tier).tier is Tier.FORMULAS


def test_a_queue_without_a_place_left_is_a_job_that_is_too_large(monkeypatch: pytest.MonkeyPatch):
    def full(*_: object, **__: object) -> None:
        raise FullQueueError("a queue of its fast simulation is full")

    monkeypatch.setattr(predicting, "simulate_fast", full)

    with pytest.raises(TooLargeError, match="queue of its fast simulation"):
        predict(both(), WhatIf(), Tier.FAST)


def test_the_tier_follows_the_preparation():
    tiers = QuickTiers()
    assert tiers.tier is Tier.FORMULAS
    assert not tiers.is_coming
    tiers.begin()
    assert (tiers.tier, tiers.is_coming) == (Tier.FORMULAS, True)
    tiers.finish()
    assert (tiers.tier, tiers.is_coming) == (Tier.FAST, False)
    tiers.finish("no space left")
    assert not tiers.is_coming
    assert "no space left" in (tiers.why_not or "")


def test_a_run_in_which_no_checkpoint_ended_does_not_score_its_tier():
    run = Simulated(tier=Tier.RUNTIME, seed=1, checkpoints=(), records_per_s=100.0, notes=())
    older = rehearsal()
    with_rate = replace(older, measured=(*older.measured, Measured(predicting.RATE, "records/s", (100.0,))))

    assert older.calibration_of([run]) is None
    assert with_rate.calibration_of([run]) is None
