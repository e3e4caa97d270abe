"""Tests of what a failure at the end of an hour would have replayed, from the rollups of the hours before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from backend.domain.rollup import HOUR, HourRollup
from backend.services.rollups.reader import replay_debts

BEGIN = datetime(2026, 11, 21, 8, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MINUTE_MS = 60_000


def hour(number, *, triggered_min=None, took_min=1, completed_count=None):
    at = BEGIN + number * HOUR
    count = (0 if triggered_min is None else 5) if completed_count is None else completed_count
    if triggered_min is None:
        return HourRollup(at, 5, count, 5 - count)
    triggered_at = at + triggered_min * MINUTE
    return HourRollup(at, 5, count, 0, last_completed_at=triggered_at + took_min * MINUTE, restorable_at=triggered_at)


def at_ends(*hours, now=BEGIN + 10 * HOUR):
    found = replay_debts(hours[::-1], now)
    return [found.get(h.hour) for h in hours]


def test_the_debt_is_the_age_of_the_newest_completed_checkpoint_at_the_end_of_the_hour():
    assert at_ends(hour(0, triggered_min=57), hour(1, triggered_min=59)) == [(3 * MINUTE_MS, False), (MINUTE_MS, False)]


def test_in_hours_in_which_none_completes_it_grows_by_an_hour_each_and_hours_without_checkpoints_count_too():
    found = at_ends(hour(0, triggered_min=50), hour(1), hour(3))

    assert found == [(10 * MINUTE_MS, False), (70 * MINUTE_MS, False), (190 * MINUTE_MS, False)]


def test_it_is_not_known_before_the_first_completed_checkpoint_and_while_the_hour_is_not_over():
    assert at_ends(hour(0), hour(1, triggered_min=50), now=BEGIN + 1.5 * HOUR) == [None, None]


def test_it_is_not_known_after_an_hour_whose_newest_completed_checkpoint_was_not_stored():
    assert at_ends(hour(0, triggered_min=50), hour(1, completed_count=3), hour(2)) == [
        (10 * MINUTE_MS, False),
        None,
        None,
    ]


def test_it_is_at_least_that_if_the_checkpoint_completed_after_the_end_of_the_hour():
    assert at_ends(hour(0, triggered_min=58, took_min=30), hour(1)) == [(2 * MINUTE_MS, True), (62 * MINUTE_MS, False)]
