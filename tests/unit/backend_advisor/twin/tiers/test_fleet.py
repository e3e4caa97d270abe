"""One job of a fleet under other settings: what its effect is called, and what is said if there is no prediction."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from backend.advisor.advice import Interval
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.model.outcomes import Tier
from backend.advisor.twin.tiers import tiers
from backend.advisor.twin.tiers.fleet import Effect, Figures, JobAnswer, answer_of
from backend.advisor.twin.tiers.tiers import QuickTiers
from backend.domain.advice import Mode
from backend.domain.engines import FLINK, SPARK
from tests.support.twin_evidence import recorded_evidence

_LONG, _SHORT = Interval(4000, 3500, 4500), Interval(200, 150, 260)
_NONE, _HALF, _LITTLE = Interval(0, 0, 0), Interval(0.5, 0.3, 0.7), Interval(0.1, 0, 0.4)


def _figures(duration: Interval | None, expired: Interval | None = _NONE) -> Figures:
    return Figures(duration_ms=duration, expired_ratio=expired, persisted_bytes=_NONE, records_per_s=None)


def _answer(before: Figures | None, after: Figures | None, **settings: str) -> JobAnswer:
    return JobAnswer(settings=settings or {"mode": "unaligned"}, tier=Tier.FAST, as_is=before, changed=after)


@pytest.mark.parametrize(
    ("before", "after", "effect", "saved_ms"),
    [
        (_figures(_LONG), _figures(_SHORT), Effect.QUICKER, 3800),
        (_figures(_SHORT), _figures(_LONG), Effect.SLOWER, -3800),
        (_figures(_SHORT), _figures(Interval(240, 200, 300)), Effect.UNCLEAR, -40),
        (_figures(_LONG, _HALF), _figures(_SHORT, _NONE), Effect.CURES, 3800),
        (_figures(_SHORT, _NONE), _figures(_LONG, _HALF), Effect.FAILS, -3800),
        # A share whose interval contains none may be chance.
        (_figures(_LONG, _LITTLE), _figures(_SHORT, _NONE), Effect.QUICKER, 3800),
        (_figures(_LONG, None), _figures(_SHORT, None), Effect.QUICKER, 3800),
        (_figures(None), _figures(_SHORT), Effect.UNKNOWN, 0),
        (None, None, Effect.UNKNOWN, 0),
    ],
)
def test_an_effect_is_one_only_if_the_intervals_do_not_overlap(before, after, effect, saved_ms):
    answer = _answer(before, after)
    assert (answer.effect, answer.saved_ms) == (effect, saved_ms)


def test_a_document_gives_the_same_answer_back():
    measured = {"notes": ("a note",), "error_ratio": 0.1, "measured_ms": _LONG, "as_of": "2026-11-28T12:00:00+00:00"}
    answer = replace(_answer(_figures(_LONG, _HALF), _figures(_SHORT)), **measured)
    document = json.loads(json.dumps(answer.document()))
    assert JobAnswer.of(document) == answer
    assert document["effect"] == "cures"
    refused = JobAnswer(settings={}, problem="it has ended")
    assert JobAnswer.of(json.loads(json.dumps(refused.document()))) == refused


def _asked(settings, name="B2", engine=FLINK, version="1.20.5"):
    return answer_of(recorded_evidence(name), settings, engine=engine, version=version, quick=QuickTiers())


def test_the_figures_are_those_of_the_what_if_on_the_job_alone():
    found = _asked({"execution.checkpointing.unaligned.enabled": "true"})

    alone = QuickTiers().build(recorded_evidence("B2"), FLINK, "1.20.5")
    after = tiers.predict(alone, WhatIf(mode=Mode.UNALIGNED), Tier.FORMULAS)
    assert found.changed == Figures.of_outcome(after)
    assert (found.settings, found.tier, found.effect) == ({"mode": "unaligned"}, Tier.FORMULAS, Effect.QUICKER)
    assert found.checkpoint_count > 5
    assert found.measured_ms.low < found.measured_ms.value < found.measured_ms.high
    assert found.measured_ms.value == pytest.approx(4800, rel=0.1)
    assert found.as_of == recorded_evidence("B2").now.isoformat()
    assert found.measured_expired_ratio == 0
    assert any("closed formulas answer" in note for note in found.notes)


def test_a_job_that_has_the_settings_already_says_so():
    assert _asked({"mode": "aligned"}).effect is Effect.NOTHING
    assert _asked({"mode": "unaligned"}, "C2").effect is Effect.NOTHING


def test_a_share_of_expired_checkpoints_that_the_model_does_not_explain_is_not_predicted(monkeypatch):
    found = _asked({"mode": "unaligned"}, "E")
    assert found.measured_expired_ratio == 1
    monkeypatch.setattr("backend.advisor.twin.tiers.predicting.explains_expired", lambda current, share, count: False)
    without = _asked({"mode": "unaligned"}, "E")
    assert found.as_is.expired_ratio is not None
    assert without.as_is.expired_ratio is None
    assert any("does not explain why checkpoints expire" in note for note in without.notes)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"interval": "soon"}, "settings.interval"),
        ({"parallelism.nothing": "4"}, "names no vertex"),
        ({"in-flight-cap": "1 mb"}, "settings.in-flight-cap"),
    ],
)
def test_a_setting_that_does_not_apply_is_a_part_of_the_answer(settings, words):
    found = _asked(settings)
    assert found.effect is Effect.UNKNOWN
    assert words in found.problem
    assert found.measured_ms is not None


def test_a_job_that_cannot_be_modelled_says_why():
    assert "no checkpoint barriers" in _asked({"mode": "unaligned"}, engine=SPARK).problem
