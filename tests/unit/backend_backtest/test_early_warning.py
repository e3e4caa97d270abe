"""Tests of the replay of the early warning: it knows only what was known then, and counts what came of it."""

from __future__ import annotations

from math import inf

import pytest

from backend.analysis.health.finish import PastCheckpoint, predict
from backend.analysis.health.progress import OpenCheckpoint
from backend.analysis.words.thresholds import FINISH_WARN_AGAIN_RATIO, FINISH_WARN_RATIO
from backend.backtest.early_warning import (
    AGE_EDGES,
    LOOKS_COUNT,
    EndedCheckpoint,
    Tally,
    tally_of,
    watched,
)

TIMEOUT_MS = 60_000.0


def ended(number, end_ms=2_000, *, outcome="completed", settings=0, acks=None):
    times = acks if acks is not None else (end_ms // 4, end_ms // 2, end_ms)
    own = times if outcome == "completed" else times[:1]
    past = PastCheckpoint(own, 3, end_ms, outcome == "completed")
    return EndedCheckpoint(number, number * 100_000.0, TIMEOUT_MS, past, outcome == "expired", settings)


def expired(number, **more):
    return ended(number, 60_000, outcome="expired", acks=(500,), **more)


def test_each_look_says_what_the_prediction_says_of_the_checkpoints_that_had_ended_by_then():
    rows = [ended(n, 20_000 + 100 * n) for n in range(12)]
    last = list(watched(rows))[-1]

    assert [look.age_ms for look in last.looks][:3] == [1.0, 1_500.0, 3_000.0]
    assert all(look.age_ms < 21_100 for look in last.looks)
    at = last.looks[5]
    found = predict(OpenCheckpoint(7_500, 1, 3, 21_100 // 4, 60_000), [r.past for r in rows[:-1]])
    assert (at.expiry_ratio, at.low_ms, at.high_ms) == (found.expiry_ratio, found.low_ms, found.high_ms)


def test_a_checkpoint_that_ended_after_the_trigger_is_not_known_yet():
    late = ended(0, 60_000, outcome="expired")
    early = [EndedCheckpoint(n, n * 10_000.0, TIMEOUT_MS, late.past, True) for n in range(6)]

    # All five before the last one are still open when it is triggered.
    assert all(look.expiry_ratio is None for look in list(watched(early))[-1].looks)
    apart = [expired(n) for n in range(6)]
    assert all(look.expiry_ratio > FINISH_WARN_RATIO for look in list(watched(apart))[-1].looks)


def test_checkpoints_under_other_settings_are_not_compared():
    rows = [expired(n) for n in range(6)] + [ended(n, 2_000, settings=1) for n in range(6, 12)]
    seen = list(watched(rows))

    assert [w.looks[0].expiry_ratio is None for w in seen] == [True] * 5 + [False] + [True] * 5 + [False]


def test_leads_recall_pages_and_false_pages_are_counted():
    rows = [ended(n) for n in range(8)] + [expired(n) for n in range(8, 12)] + [ended(n) for n in range(12, 20)]
    tally = tally_of(list(watched(rows)))

    assert (tally.predicted.expired_count, tally.predicted.caught_count) == (4, 4)
    assert (tally.predicted.page_count, tally.predicted.false_page_count) == (1, 0), "one episode"
    assert (tally.plain.expired_count, tally.plain.page_count) == (4, 1)
    assert tally.plain.lead_ratio == pytest.approx(0.175)
    assert tally.predicted.lead_ratio > tally.plain.lead_ratio
    assert tally.days == pytest.approx((19 * 100_000 + 2_000) / 86_400_000)


def test_a_page_of_an_episode_without_an_expired_checkpoint_is_false():
    near = (
        [ended(n) for n in range(8)] + [ended(8, 59_000, acks=(500, 1_000, 59_000))] + [ended(n) for n in (9, 10, 11)]
    )
    tally = tally_of(list(watched(near)))

    assert (tally.plain.page_count, tally.plain.false_page_count) == (1, 1)
    assert (tally.predicted.page_count, tally.predicted.false_page_count) == (1, 1)
    still_open = tally_of(list(watched(near[:9])))
    assert (still_open.plain.page_count, still_open.plain.false_page_count) == (1, 1)


def test_without_history_the_age_alone_decides_and_later_than_in_the_plain_rule():
    (first,) = watched([expired(0)])

    assert first.plain_ms == pytest.approx(TIMEOUT_MS * 33 / LOOKS_COUNT)
    assert first.warned_ms == pytest.approx(TIMEOUT_MS * 37 / LOOKS_COUNT)


def test_after_an_expiry_a_lower_probability_is_enough_until_three_checkpoints_completed():
    slow = [ended(n, 40_000, acks=(500, 1_000, 40_000)) for n in range(8)]
    outcomes = {}
    for calm in (0, 2, 3):
        rows = [*slow, expired(8), *(ended(9 + n, 40_000, acks=(500, 1_000, 40_000)) for n in range(calm))]
        (last,) = list(watched([*rows, expired(20)]))[-1:]
        look = next(look for look in last.looks if look.age_ms == last.warned_ms)
        outcomes[calm] = look.expiry_ratio

    assert FINISH_WARN_AGAIN_RATIO <= outcomes[0] < FINISH_WARN_RATIO
    assert FINISH_WARN_AGAIN_RATIO <= outcomes[2] < FINISH_WARN_RATIO
    assert outcomes[3] >= FINISH_WARN_RATIO


def test_aborted_ones_and_those_without_a_timeout_are_not_watched():
    aborted = ended(0, 30_000, outcome="aborted")
    endless = EndedCheckpoint(1, 1e5, None, ended(1).past)

    assert list(watched([aborted, endless])) == []
    assert tally_of([]).days == 0


def test_tallies_add_up():
    a = tally_of(list(watched([ended(n) for n in range(8)] + [expired(n) for n in range(8, 12)])))
    b = tally_of(list(watched([expired(n) for n in range(7)])))
    whole = Tally()
    whole.add(a)
    whole.add(b)

    assert whole.checkpoint_count == 19
    assert whole.predicted.expired_count == 11
    assert sorted(whole.predicted.leads) == sorted(a.predicted.leads + b.predicted.leads)
    assert whole.days == pytest.approx(a.days + b.days)
    assert [x.count for x in whole.bands] == [x.count + y.count for x, y in zip(a.bands, b.bands, strict=True)]


def test_coverage_is_counted_by_age_and_an_expired_checkpoint_ends_after_every_interval():
    rows = [ended(n, 28_000 + 10 * n) for n in range(20)]
    tally = tally_of(list(watched(rows)))

    counted = [band.count for band in tally.bands]
    assert len(counted) == len(AGE_EDGES) - 1
    assert counted[-1] == 0, "none was open after three quarters of its timeout"
    assert all(band.held_count >= 0.8 * band.count for band in tally.bands)
    assert all(band.stated_count <= band.count for band in tally.bands)
    chronic = tally_of(list(watched([expired(n) for n in range(20)])))
    assert sum(b.held_count for b in chronic.bands) == sum(b.count for b in chronic.bands) > 0
    assert inf > chronic.days > 0
