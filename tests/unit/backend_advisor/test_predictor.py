"""Tests that a card and the what-if page have one predictor: they say the same number for the same settings."""

from __future__ import annotations

import random
from dataclasses import fields, replace

import pytest

from backend.advisor import advise
from backend.advisor.advice import Candidate, Interval, Recommendation, Setting
from backend.advisor.choice.choosing import refused
from backend.advisor.predictor import Answer, Predictor, what_if_of
from backend.advisor.simulating import answered
from backend.advisor.situation import situation
from backend.advisor.twin.asking.asking import asked_of
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.tiers import tiers
from backend.advisor.twin.tiers.tiers import QuickTiers, TieredModel
from backend.contracts.whatif import Measure
from backend.domain.advice import Metric, Mode, Topic
from backend.domain.engines import RUNTIME, flink
from backend.services.whatif.models import ModelledJob
from backend.services.whatif.presenting import checked, measured_of, prediction_of
from tests.support.advised_jobs import EXACTLY_ONCE, UNALIGNED, persisting, readings, slow_run, writing
from tests.support.chosen_jobs import QUICK, outcome
from tests.support.handwritten_jobs import LAST, chain, job, quick

_MEASURES = {
    Metric.DURATION: Measure.DURATION,
    Metric.PERSISTED: Measure.PERSISTED,
    Metric.EXPIRED: Measure.EXPIRED,
    Metric.THROUGHPUT: Measure.THROUGHPUT,
    Metric.REPLAYED: Measure.REPLAY,
}
_SEED_COUNT = 5
_VERSION = "1.20.5"


def _with_records(rows):
    return [replace(r, records_in_count=tuple(b // 400 for b in r.bytes_in_count)) for r in rows]


def _late(draw):
    """Barriers wait in queues: a mode is advised, and more subtasks."""
    run = slow_run(10, last_ms=draw.randint(3_000, 9_000), middle_ms=draw.randint(500, 2_000))
    return job(run, readings(1.0, draw.randint(200_000, 900_000)), config=EXACTLY_ONCE), flink(_VERSION)


def _behind_pointwise_exchanges(draw):
    """No barrier overtakes there, so debloating is advised."""
    rows = _with_records(readings(queued_bytes=draw.randint(600_000, 1_500_000)))
    rows = [replace(r, busy_ratio=(0.8,) * 4) if r.vertex_id == LAST else r for r in rows]
    return job(slow_run(10), rows, topology=chain(ship="RESCALE"), config=EXACTLY_ONCE), flink(_VERSION)


def _with_much_in_flight(draw):
    """Writing in-flight data takes too long: a cap is advised on the runtime."""
    run = [persisting(quick(n, 50), draw.randint(1_500_000, 2_500_000), 2_400) for n in range(1, 11)]
    rows = readings(rate_bytes_per_s=5_000_000)
    return job(run, rows, config=replace(UNALIGNED, timeout_ms=60_000)), RUNTIME


def _crowded(draw):
    """Checkpoints run for most of the time: a longer interval is advised."""
    took = draw.randint(2_700, 4_800)
    return job([writing(n, took) for n in range(1, 11)], readings(0.0, busy=0.3), config=EXACTLY_ONCE), flink(_VERSION)


def _varied(draw):
    """They do so, and vary: a pause is advised."""
    took = [draw.randint(1_900, 2_100) if n % 3 else draw.randint(8_000, 10_000) for n in range(1, 11)]
    run = [writing(n, ms) for n, ms in enumerate(took, start=1)]
    return job(run, readings(0.0, busy=0.3), config=EXACTLY_ONCE), flink(_VERSION)


def _near_the_timeout(draw):
    """A longer timeout is advised."""
    config = replace(EXACTLY_ONCE, interval_ms=2_500, timeout_ms=2_600)
    run = [writing(n, draw.randint(870, 930)) for n in range(1, 11)]
    return job(run, readings(0.0, busy=0.3), config=config), flink(_VERSION)


_KINDS = {
    _late: {Topic.MODE, Topic.PARALLELISM},
    _behind_pointwise_exchanges: {Topic.BUFFERS},
    _with_much_in_flight: {Topic.IN_FLIGHT},
    _crowded: {Topic.INTERVAL},
    _varied: {Topic.MIN_PAUSE},
    _near_the_timeout: {Topic.TIMEOUT},
}


def _advice(evidence, engine, tiered: TieredModel):
    known = situation(evidence, engine=engine, version=_VERSION)
    choice = refused(known, "the time between failures is not known")
    choice = answered(known, choice, lambda what_if: tiers.answer(tiered, what_if, evidence).then)
    return advise(evidence, engine=engine, version=_VERSION, choice=choice, is_simulated=True)


def _page(evidence, tiered: TieredModel, card: Recommendation):
    """Return what the what-if page says for the settings of the card, as a person copies them from it."""
    settings = {c.key: c.proposed for c in card.changes}
    if card.topic is Topic.PARALLELISM:
        settings = {f"parallelism.{card.proposed.vertex_id}": str(card.proposed.parallelism)}
    asked = asked_of(tiered.best, settings)
    shown = ModelledJob(record=None, evidence=evidence, tiered=tiered)
    tier, _ = tiers.choose(tiered, [WhatIf(), asked.what_if])
    predicted = [prediction_of(tiered.best, {}, tiers.predict(tiered, one, tier)) for one in (WhatIf(), asked.what_if)]
    measured, ids = measured_of(shown)
    return {e.measure: e.predicted for e in checked(predicted, measured, len(ids))[1].estimates}


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("seed", range(_SEED_COUNT))
def test_each_card_of_a_job_with_a_model_predicts_what_the_what_if_page_says_of_its_settings(kind, seed):
    evidence, engine = kind(random.Random(seed))
    tiered = QuickTiers().build(evidence, engine, _VERSION)
    advice = _advice(evidence, engine, tiered)

    cards = [c for c in advice.recommendations if what_if_of(c.proposed) is not None]
    assert {c.topic for c in cards} >= _KINDS[kind], (seed, [s.reason for s in advice.silences])
    assert not advice.is_answer_due
    for card in cards:
        page = _page(evidence, tiered, card)
        shown = {e.metric: e for e in card.expected if e.metric in _MEASURES}
        assert shown, (seed, card.headline)
        for metric, one in shown.items():
            on_page = page[_MEASURES[metric]]
            if on_page is None:
                assert not one.method.startswith("what-if"), (seed, card.headline, metric)
                continue
            assert one.method.startswith("what-if, formulas tier"), (seed, card.headline, metric)
            assert (one.predicted.value, one.predicted.low, one.predicted.high) == (
                on_page.value,
                on_page.low,
                on_page.high,
            ), (seed, card.headline, metric)
        for row in card.candidates:
            if row.is_proposed:
                assert row.duration_ms == shown[Metric.DURATION].predicted


def test_until_the_simulation_has_answered_a_card_has_the_prediction_of_its_rule_and_asks():
    evidence, engine = _late(random.Random(0))
    advice = advise(evidence, engine=engine, version=_VERSION, is_simulated=True)

    (card,) = [c for c in advice.recommendations if c.topic is Topic.MODE]
    assert {e.method.partition(" ")[0] for e in card.expected} == {"replay", "share", "persisted"}
    assert (advice.is_answer_due, advice.is_choice_due) == (True, False)


def test_a_card_without_any_gain_in_the_simulation_is_not_given():
    evidence, engine = _late(random.Random(0))
    known = situation(evidence, engine=engine, version=_VERSION)
    slow = outcome(Interval(90_000.0, 80_000.0, 99_000.0), 1_000_000.0)
    choice = answered(known, refused(known, "no"), lambda _: slow)
    advice = advise(evidence, engine=engine, version=_VERSION, choice=choice)

    (found,) = [s for s in advice.silences if s.topic is Topic.MODE]
    assert "no certain gain" in found.reason


def test_modes_without_an_answer_are_not_compared_with_those_that_have_one():
    now = Candidate(Mode.ALIGNED, None, None, None, 0.5, is_current=True)
    other = Candidate(Mode.ALIGNED_WITH_TIMEOUT, 500, None, None, 0.5)
    proposed = Candidate(Mode.UNALIGNED, 0, None, None, 0.5, is_proposed=True)
    wanted = Setting(mode=Mode.UNALIGNED, aligned_timeout_ms=0)
    rows = [(now, Setting()), (other, Setting(mode=other.mode, aligned_timeout_ms=500)), (proposed, wanted)]
    answer = outcome(QUICK, 1_000.0, 0.1)
    found = Predictor(Answer(what_if=what_if_of(s), outcome=answer) for s in (Setting(), wanted)).candidates(rows)

    assert [(c.is_current, c.is_proposed, c.expired_ratio) for c in found] == [(True, False, 0.5), (False, True, 0.1)]
    assert {c.duration_ms for c in found} == {QUICK}
    assert Predictor().candidates(rows) == tuple(c for c, _ in rows)


def test_each_setting_that_a_card_can_propose_can_be_asked_or_has_a_reason_why_not():
    values = {
        "mode": Mode.UNALIGNED,
        "state_backend": "rocksdb",
        "changelog_directory": "s3://a",
        "vertex_id": "a",
    }
    for field in fields(Setting):
        value = values.get(field.name, True if field.name.startswith(("is_", "has_")) else 7)
        found = what_if_of(replace(Setting(), **{field.name: value}))
        assert found is None or isinstance(found, WhatIf), field.name
