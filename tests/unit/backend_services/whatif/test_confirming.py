"""Confirmations in the queue: what is read of a stored document, also of one that an earlier version stored."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.model.hangs import Hangs
from backend.advisor.twin.model.model import JobModel
from backend.advisor.twin.tiers import runtime_tier
from backend.contracts.whatif import Measure
from backend.domain.errors import DomainError, NotModelledError, TooLargeError
from backend.services.simulations.catalog import LIMITS
from backend.services.simulations.simulating import Progress, SimulationStoppedError
from backend.services.whatif.confirming import document, model_of, run
from backend.services.whatif.presenting import value_of
from tests.support.made_up_what_ifs import rehearsal, small_model


def stored(callback_ms: Any) -> dict[str, Any]:
    """Return the document of a confirmation as the queue returns it, with this value at the last vertex."""
    found: dict[str, Any] = json.loads(json.dumps(document("jruntime", "rruntime", small_model(), {}, WhatIf())))
    for vertex in found["model"]["vertices"]:
        vertex["callback_ms"] = callback_ms if vertex is found["model"]["vertices"][-1] else None
    return found


@pytest.mark.parametrize(("callback_ms", "by_subtask"), [(None, ()), (300.0, (300.0, 300.0)), ([1.0, 2.0], (1.0, 2.0))])
def test_the_long_callback_of_earlier_versions_is_read(callback_ms, by_subtask):
    first, _, last = model_of(stored(callback_ms)).vertices

    assert (first.callback_ms, last.callback_ms) == ((), by_subtask)


def test_a_stored_model_is_the_one_that_was_queued():
    assert (
        model_of(json.loads(json.dumps(document("jruntime", "rruntime", small_model(), {}, WhatIf())))) == small_model()
    )


def hanging(model: JobModel) -> JobModel:
    """Return the model with writes that hung in one of ten checkpoints, of which two expired."""
    when = model.settings.schedule
    period_ms = when.period_ms(np.array([when.interval_ms] * 8 + [when.timeout_ms] * 2))
    hangs = Hangs((0.0,) * 7 + (2_000.0,), (0.0, 0.0), period_ms, endless_count=1)
    return replace(model, store=replace(model.store, hangs=hangs))


def test_a_stored_model_has_the_hangs_of_its_store_and_one_of_an_earlier_version_has_none():
    text = json.dumps(document("jruntime", "rruntime", hanging(small_model()), {}, WhatIf()), allow_nan=False)
    found = json.loads(text)

    assert model_of(found) == hanging(small_model())
    del found["model"]["store"]["hangs"]
    assert model_of(found) == small_model()


def test_a_confirmation_has_the_hangs_and_counts_those_that_its_own_simulation_does_not_explain():
    model = hanging(small_model())
    text = json.dumps(document("jruntime", "rruntime", model, {}, WhatIf()))
    (found,) = run(json.loads(text), Progress(), LIMITS).runs
    (plain,) = run(stored(None), Progress(), LIMITS).runs

    # No checkpoint of the simulation expires, so both that expired count.
    for with_hangs, without in zip(found.predictions, plain.predictions, strict=True):
        assert value_of(without, Measure.EXPIRED) == 0.0
        assert value_of(with_hangs, Measure.EXPIRED) == pytest.approx(0.2, abs=0.05)


def test_a_confirmation_that_an_earlier_version_queued_is_simulated():
    # The run gets as far as the first report of its progress, so its document was readable.
    with pytest.raises(SimulationStoppedError):
        run(stored(None), Progress(is_stopped=True), LIMITS)


@pytest.fixture(scope="module")
def queued() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        json.dumps(document("jruntime", "rruntime", small_model(), {}, WhatIf(), rehearsal()))
    )
    return found


def test_a_confirmation_states_the_error_of_the_runtime_and_not_that_of_another_tier(queued: dict[str, Any]):
    progress = Progress()
    (found,) = run(queued, progress, LIMITS).runs

    assert progress.ratio == pytest.approx(1.0)
    assert found.calibration is not None
    (error,) = found.calibration.errors
    # The quick tier predicted 3880 ms.
    assert (error.measured, error.sample_count) == (3_710.0, 3)
    assert error.predicted == value_of(found.predictions[0], Measure.DURATION)
    for prediction in found.predictions:
        errors = {e.measure: e.error_ratio for e in prediction.estimates}
        assert errors[Measure.DURATION] == error.error_ratio
        assert errors[Measure.SYNC] is None
        assert not any("not scored" in note for note in prediction.notes)


@pytest.mark.parametrize(
    "problem",
    [
        TooLargeError("job", "it needs more CPU time", field="confirm", fix="use the quick prediction"),
        NotModelledError("the older job cannot be simulated", fix="wait for more checkpoints"),
    ],
)
def test_a_confirmation_is_kept_without_an_error_if_it_cannot_be_scored(
    queued: dict[str, Any], problem: DomainError, monkeypatch: pytest.MonkeyPatch
):
    real = runtime_tier.run

    ran: list[JobModel] = []

    def counted(model: JobModel, **kwargs: Any) -> Any:
        ran.append(model)
        if len(ran) == 3:
            raise problem
        return real(model, **kwargs)

    monkeypatch.setattr(runtime_tier, "run", counted)
    (found,) = run(queued, Progress(), LIMITS).runs

    assert found.calibration is None
    assert len(found.predictions) == 2
    assert all(e.error_ratio is None for p in found.predictions for e in p.estimates)
    assert all(any("not scored" in note for note in p.notes) for p in found.predictions)


def test_all_runs_of_a_confirmation_have_the_guess_of_the_shares_that_the_quick_tier_takes(
    monkeypatch: pytest.MonkeyPatch,
):
    source, middle, last = small_model().vertices
    guessed = replace(last, input_shares=(0.5, 0.5), share_guesses=((0.4, 0.6), (0.3, 0.7), (0.2, 0.8)))
    model = replace(small_model(), vertices=(source, middle, guessed))
    older = replace(rehearsal(), model=model)
    real = runtime_tier.run
    ran: list[tuple[float, ...]] = []

    def noted(one: JobModel, **kwargs: Any) -> Any:
        ran.append(one.vertices[-1].input_shares)
        return real(small_model(), **kwargs)

    monkeypatch.setattr(runtime_tier, "run", noted)
    run(json.loads(json.dumps(document("jruntime", "rruntime", model, {}, WhatIf(), older))), Progress(), LIMITS)

    assert ran == [(0.3, 0.7)] * 3
