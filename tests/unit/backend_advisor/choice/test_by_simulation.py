"""Tests of the advice that follows from a choice of settings by the fast simulation (R-INT-1)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.advisor import advise
from backend.advisor.advice import Interval, NoAdvice, Recommendation
from backend.advisor.choice import by_simulation
from backend.advisor.simulating import answered
from backend.advisor.tier_choice import HOLDS, RENEWED_AFTER, RENEWED_COUNT
from backend.advisor.twin.model.outcomes import Tier
from backend.domain.advice import Metric, Mode, Topic
from backend.domain.engines import flink
from backend.services.jobs.findings import choice_from, document_of_choice
from tests.support.advised_jobs import EXACTLY_ONCE, mode_of, on, readings, slow_run
from tests.support.chosen_jobs import NOTHING, QUICK, advised, chosen, outcome
from tests.support.handwritten_jobs import START, job


def test_the_card_names_the_tier_and_its_prediction_with_an_interval(evidence, known):
    advice = advised(evidence, chosen(known))
    card = on(Topic.MODE, advice)

    assert isinstance(card, Recommendation)
    assert card.chosen_by == advice.chosen_by.tier == Tier.FAST.value
    assert "fast simulation compared" in card.reason
    lost = next(e for e in card.expected if e.metric is Metric.LOST)
    assert lost.predicted.low < lost.predicted.value < min(lost.before, lost.predicted.high)
    assert {Metric.DURATION, Metric.PERSISTED} <= {e.metric for e in card.expected}
    assert [c.is_proposed for c in card.candidates].count(True) == 1
    assert {type(on(t, advice)) for t in (Topic.IN_FLIGHT, Topic.INTERVAL)} == {NoAdvice}


def test_the_card_predicts_what_the_what_if_of_its_settings_says_and_shows_what_else_the_choice_counted(
    evidence, known
):
    answer = replace(outcome(Interval(333.0, 300.0, 400.0), 7_000.0), tier=Tier.FORMULAS)
    choice = answered(known, chosen(known), lambda _: answer)
    card = mode_of(advised(evidence, choice))

    shown = {e.metric: e for e in card.expected}
    assert shown[Metric.DURATION].predicted == answer.duration_ms
    assert shown[Metric.PERSISTED].predicted == answer.persisted_bytes
    assert {c.duration_ms for c in card.candidates} == {answer.duration_ms}
    assert card.predicted_by == Tier.FORMULAS.value
    assert "333 ms" in card.reason or "300 ms" in card.reason
    counted = {e.value for e in card.evidence if "the choice assumes" in e.statement}
    assert counted == {QUICK.value, 20_000.0}


def test_without_a_gain_the_three_topics_say_so(evidence, known):
    choice = chosen(known)
    advice = advised(evidence, replace(choice, best=choice.now))

    assert advice.chosen_by.tier == Tier.FAST.value
    for topic in (Topic.MODE, Topic.IN_FLIGHT, Topic.INTERVAL):
        assert "none loses clearly less" in on(topic, advice).reason


def test_without_a_choice_the_rules_answer_and_say_why(evidence, known):
    refused = replace(chosen(known), best=None, now=None, why_not="it is too large")
    for choice, why in ((None, "has not compared"), (refused, "it is too large")):
        advice = advised(evidence, choice)
        assert advice.chosen_by.tier is None
        assert why in advice.chosen_by.text
        assert all(r.chosen_by is None for r in advice.recommendations)


def test_a_choice_for_other_settings_or_of_long_ago_is_not_used(evidence, known):
    choice = chosen(known)
    other = replace(choice, config=replace(evidence.config, interval_ms=1))
    old = replace(choice, made_at=evidence.now - HOLDS - timedelta(seconds=1))
    for one in (other, old):
        advice = advised(evidence, one)
        assert advice.is_choice_due
        assert advice.chosen_by.tier is None


def test_the_rules_say_why_a_choice_is_not_used(evidence, known):
    choice = chosen(known)
    other = replace(choice, config=replace(evidence.config, interval_ms=1))
    old = replace(choice, made_at=evidence.now - HOLDS - timedelta(seconds=1))

    assert "settings were changed" in advised(evidence, other).chosen_by.text
    assert "more than 24 hours ago" in advised(evidence, old).chosen_by.text


def test_no_rule_chooses_an_interval_by_what_it_loses_before_the_simulation_has_compared_or_after_that_is_outdated(
    evidence, known
):
    choice = chosen(known)
    other = replace(choice, config=replace(evidence.config, interval_ms=1))
    old = replace(choice, made_at=evidence.now - HOLDS - timedelta(seconds=1))
    for one, why in ((None, "has not compared"), (other, "settings were changed"), (old, "more than 24 hours ago")):
        advice = advised(evidence, one)
        found = on(Topic.INTERVAL, advice)
        assert isinstance(found, NoAdvice)
        assert found.rule == "R-INT-1"
        assert found.reason.startswith("the interval is not chosen by what it loses, because")
        assert why in found.reason
        assert "only the simulation does" in advice.chosen_by.text


def test_rules_choose_the_interval_by_what_it_loses_if_no_simulation_can(evidence, known):
    refused = replace(chosen(known), best=None, now=None, why_not="it is too large")
    for advice in (advised(evidence, None, is_simulated=False), advised(evidence, refused)):
        found = on(Topic.INTERVAL, advice)
        assert isinstance(found, Recommendation)
        assert "R-INT-1" in found.rules
        assert Metric.LOST in {e.metric for e in found.expected}
        assert "only the simulation" not in advice.chosen_by.text


@pytest.mark.parametrize(("is_simulated", "speaks"), [(False, True), (True, False)])
def test_no_rule_chooses_a_mode_for_healthy_checkpoints_if_the_simulation_will(is_simulated, speaks):
    """Failures make the travel of the barriers costly, although the checkpoints are healthy."""
    config = replace(EXACTLY_ONCE, interval_ms=60_000)
    failures = tuple((START - timedelta(seconds=600 * n), "lost") for n in range(9, 0, -1))
    found = job(slow_run(), readings(), config=config, exceptions=failures)
    advice = advise(found, engine=flink("1.20.5"), version="1.20.5", is_simulated=is_simulated)

    assert isinstance(mode_of(advice), Recommendation) is speaks


def test_a_rule_cures_slow_checkpoints_with_its_prediction_also_while_the_simulation_has_not_compared():
    failures = tuple((START - timedelta(seconds=3_600 * n), "lost") for n in range(9, 0, -1))
    found = job(slow_run(), readings(), config=EXACTLY_ONCE, exceptions=failures)
    card = mode_of(advise(found, engine=flink("1.20.5"), version="1.20.5", is_simulated=True))

    assert isinstance(card, Recommendation)
    assert "R-INT-1" not in card.rules
    assert {Metric.DURATION, Metric.PERSISTED} <= {e.metric for e in card.expected}


def test_of_a_choice_of_another_mode_the_interval_remains_if_the_mode_must_stay(evidence, known, monkeypatch):
    choice = chosen(known)
    now = choice.now
    shorter = replace(now, lost_ratio=now.lost_ratio / 2, chosen=replace(now.chosen, interval_ms=2_000))
    monkeypatch.setattr(by_simulation, "refusal_of_modes", lambda _: "the store is slow")
    advice = advised(evidence, replace(choice, by_mode=(choice.best, shorter)))
    without = advised(evidence, replace(choice, by_mode=(choice.best,)))

    assert on(Topic.INTERVAL, advice).proposed.interval_ms == 2_000
    assert all(r.topic is Topic.INTERVAL for r in advice.recommendations if r.chosen_by)
    assert without.chosen_by.tier is None
    assert "by now the mode must stay as it is: the store is slow" in without.chosen_by.text


def test_a_tiny_difference_of_a_share_is_not_worth_a_change(evidence, known):
    choice = chosen(known, outcome(QUICK), outcome(QUICK))
    now = replace(choice.now, heavy_ratio=0.02, expired_ratio=Interval(0.01, 0.0, 0.02))
    same = replace(now, heavy_ratio=0.0, expired_ratio=NOTHING, chosen=replace(now.chosen, interval_ms=3_000))
    heavy = replace(now, heavy_ratio=0.5)

    assert isinstance(on(Topic.INTERVAL, advised(evidence, replace(choice, now=now, best=same))), NoAdvice)
    assert on(Topic.INTERVAL, advised(evidence, replace(choice, now=heavy, best=same))).proposed.interval_ms == 3_000


@pytest.mark.parametrize(
    ("now", "best", "words"),
    [
        ((None, None), (0, 131_072), "that do not fit the cap wait"),
        ((0, None), (0, 131_072), "that do not fit the cap wait"),
        ((0, 131_072), (0, None), "nothing limits the in-flight data"),
        ((0, 131_072), (None, 131_072), "wait for full queues"),
    ],
)
def test_the_risks_are_those_of_the_proposed_mode_and_cap(evidence, known, now, best, words):
    choice = chosen(known)

    def of(timeout, cap, lost):
        mode = Mode.ALIGNED if timeout is None else Mode.UNALIGNED
        chosen = replace(choice.now.chosen, mode=mode, aligned_timeout_ms=timeout, inflight_cap_bytes=cap)
        return replace(choice.best, chosen=chosen, lost_ratio=lost)

    made = replace(choice, now=of(*now, 0.02), best=of(*best, 0.01))
    (card,) = (r for r in advised(evidence, made).recommendations if r.chosen_by)
    told = [w for w in ("do not fit the cap", "nothing limits", "for full queues") if any(w in r for r in card.risks)]

    assert any(words in r for r in card.risks)
    assert len(told) == 1


def test_a_choice_is_due_after_a_while_and_some_checkpoints(evidence, known):
    choice = chosen(known)
    later = choice.made_at + RENEWED_AFTER
    newer = range(choice.newest_id + 1, choice.newest_id + 1 + RENEWED_COUNT)

    assert not choice.is_due(choice.config, later - timedelta(seconds=1), newer, is_lacking=False)
    assert not choice.is_due(choice.config, later, newer[:-1], is_lacking=False)
    assert choice.is_due(choice.config, later, newer, is_lacking=False)
    assert advised(evidence, None).is_choice_due
    assert not advised(evidence, choice).is_choice_due


def test_a_job_whose_failures_are_not_known_waits_for_no_choice(evidence):
    advice = advised(replace(evidence, exceptions=()), None)

    assert (advice.is_choice_due, advice.chosen_by) == (False, None)


def test_a_choice_is_stored_and_read_again(known):
    choice = chosen(known)

    assert choice_from(document_of_choice(choice)) == choice
    assert choice_from({"made_at": 1}) is choice_from(None) is None


def test_a_longer_interval_counts_in_the_bytes_of_an_hour(evidence, known):
    choice = chosen(known)
    best = choice.best
    slow = replace(choice, best=replace(best, chosen=replace(best.chosen, interval_ms=10_000)))
    quick = replace(choice, best=replace(best, chosen=replace(best.chosen, interval_ms=5_000)))
    first, second = (on(Topic.MODE, advised(evidence, c)).risks[0] for c in (slow, quick))

    assert first != second
