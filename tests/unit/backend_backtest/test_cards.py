"""Replayed cards: opened when the rules give them, measured after a change, and withdrawn if they no longer hold."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from backend.advisor.thresholds import CHECKPOINTS_MIN_COUNT
from backend.backtest.cards import AdviceScore
from backend.backtest.jobs import result_of
from backend.domain.backtest import Part
from tests.support.advised_jobs import EXACTLY_ONCE, persisting
from tests.support.handwritten_jobs import START, quick
from tests.support.made_choices import made_choice
from tests.support.past_jobs import BEGIN, Past, loaded, slow, stored

TIMED = replace(EXACTLY_ONCE, is_unaligned_enabled=True, aligned_timeout_ms=200)
CHANGED_AT = START + timedelta(seconds=62)


def _replayed(past: Past):
    return result_of("j", past, {Part.ADVICE}).advice


def _mode(replay):
    return [c for c in replay.cards if c.topic == "mode"]


def test_a_card_is_opened_as_soon_as_the_rules_give_it_and_states_only_predictions():
    (card,) = _mode(_replayed(Past(stored(slow(1, 12)), loaded(70))))

    assert card.opened_checkpoint_id == CHECKPOINTS_MIN_COUNT
    assert (card.state, card.applied_at, card.effect) == ("new", None, None)
    assert card.given_count == 12 - CHECKPOINTS_MIN_COUNT + 1
    assert {p.basis for p in card.predictions} == {"predicted"}
    assert all(p.measured is None and p.is_inside is None for p in card.predictions)
    assert ("execution.checkpointing.unaligned.enabled", "false", "true") in [tuple(c) for c in card.changes]


def test_a_change_in_history_is_measured_and_stands_beside_the_prediction():
    after = [persisting(quick(n, 230), 270_000) for n in range(13, 40)]
    past = Past(stored([*slow(1, 12), *after]), loaded(200), configs=[(BEGIN, EXACTLY_ONCE), (CHANGED_AT, TIMED)])

    replay = _replayed(past)

    (card,) = _mode(replay)
    duration = next(p for p in card.predictions if p.metric == "end_to_end_duration_ms")
    assert (card.state, card.applied_at) == ("verified", CHANGED_AT.isoformat())
    assert (duration.measured, duration.before) == (230, 4_800)
    assert duration.is_inside
    assert card.effect["direction"] == "lower"
    assert card.effect["difference"] == 230 - 4_800
    assert (replay.score.applied_count, replay.score.withdrawn_count) == (1, 0)
    assert replay.score.held_count <= replay.score.predicted_count


def test_a_change_that_made_it_worse_is_regressed():
    after = [quick(n, 30_000 + n, every_s=40) for n in range(13, 30)]
    past = Past(stored([*slow(1, 12), *after]), loaded(70), configs=[(BEGIN, EXACTLY_ONCE), (CHANGED_AT, TIMED)])

    replay = _replayed(past)

    assert _mode(replay)[0].state == "regressed"
    assert replay.score.regressed_count == 1


def test_a_card_is_withdrawn_when_the_rules_have_not_given_it_for_ten_minutes():
    healthy = [quick(n, every_s=20) for n in range(10, 60)]
    replay = _replayed(Past(stored([*slow(1, 12), *healthy]), loaded(60)))

    (card,) = _mode(replay)
    assert card.state == "expired"
    assert card.state_reason.startswith("the rules no longer give it")
    assert replay.score.withdrawn_count == 1


def test_scores_add_up():
    score = _replayed(Past(stored(slow(1, 12)), loaded(70))).score
    total = AdviceScore()
    for _ in range(3):
        total.add(score)

    assert (total.opened_count, total.checkpoint_count) == (3 * score.opened_count, 36)
    assert total.topics == {topic: 3 * count for topic, count in score.topics.items()}


def test_the_fast_simulation_chooses_when_it_is_due_and_the_next_moment_uses_its_choice():
    config = replace(EXACTLY_ONCE, interval_ms=10_000, timeout_ms=60_000)
    failures = tuple((BEGIN - timedelta(hours=n), f"lost {n}") for n in range(5, 0, -1))
    past = Past(stored(slow(1, 12)), loaded(130), configs=[(BEGIN, config)], exceptions=failures)
    asked = []

    def choose_for(known):
        asked.append(known)
        return made_choice(known)

    (card,) = _mode(result_of("j", past, {Part.ADVICE}, choose_for=choose_for).advice)

    (known,) = asked
    assert len(known.recorded) == CHECKPOINTS_MIN_COUNT
    assert known.evidence.pressure
    assert max(r.observed_at for r in known.evidence.pressure) <= known.evidence.now
    assert ("execution.checkpointing.aligned-checkpoint-timeout", "0 ms", "300 ms") in [tuple(c) for c in card.changes]
    assert any("fast simulation" in p.method for p in card.predictions)


def test_no_card_of_a_rule_comes_before_the_choice_of_the_simulation_that_decides_by_what_settings_lose():
    config = replace(EXACTLY_ONCE, interval_ms=10_000, timeout_ms=60_000)
    failures = tuple((BEGIN - timedelta(minutes=10 * n), f"lost {n}") for n in range(5, 0, -1))
    run = [quick(n, 900, every_s=10) for n in range(1, 13)]
    past = Past(stored(run), loaded(130), configs=[(BEGIN, config)], exceptions=failures)

    def none_is_better(known):
        choice = made_choice(known)
        return replace(choice, best=choice.now)

    (by_rule,) = (c for c in _replayed(past).cards if c.topic == "interval")
    assert "R-INT-1" in by_rule.rules
    found = result_of("j", past, {Part.ADVICE}, choose_for=none_is_better).advice
    assert [c for c in found.cards if c.topic == "interval"] == []


def test_the_choice_after_a_change_that_was_advised_knows_the_limit_before_it():
    config = replace(EXACTLY_ONCE, interval_ms=10_000, timeout_ms=60_000)
    followed = replace(config, is_unaligned_enabled=True, aligned_timeout_ms=300)
    failures = tuple((BEGIN - timedelta(hours=n), f"lost {n}") for n in range(5, 0, -1))
    after = [persisting(quick(n, 230), 270_000) for n in range(13, 40)]
    configs = [(BEGIN, config), (CHANGED_AT, followed)]
    past = Past(stored([*slow(1, 12), *after]), loaded(200), configs=configs, exceptions=failures)
    asked = []

    def choose_for(known):
        asked.append(known)
        return made_choice(known)

    result_of("j", past, {Part.ADVICE}, choose_for=choose_for)

    assert asked[0].series is None
    assert asked[-1].evidence.config == followed
    assert asked[-1].series.limit_bytes == 1e6
