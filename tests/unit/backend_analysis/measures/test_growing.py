"""Growth over days: found in what doubles at the same input, and in none of the patterns of a healthy job."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from math import pi, sin

import pytest

from backend.analysis.measures.growing import HourValues, growth_of, sentence
from backend.domain.growth import Grown
from tests.support.drawn_growth import GROWTH_FAMILIES
from tests.support.seeds import over_seeds

NOW = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
GB = 1e9


def hours(count, size, duration=lambda n: 1000.0, rate=lambda n: 500.0):
    """Return ``count`` hours up to now. The functions get the number of the hour, from 0 for the oldest one."""
    begin = NOW - timedelta(hours=count - 1)
    return [HourValues(begin + timedelta(hours=n), size(n), duration(n), rate(n)) for n in range(count)]


def doubling(every_h):
    return lambda n: GB * 2 ** (n / every_h)


def test_a_state_that_doubles_in_two_days_at_the_same_input_is_told_with_the_time_that_is_left():
    found = growth_of(hours(120, doubling(48), duration=lambda n: 10_000 + 200 * n), timeout_ms=120_000)

    assert found.what is Grown.STATE
    assert (found.span, found.ratio) == (timedelta(days=2), pytest.approx(2.0))
    assert found.is_input_same
    assert not found.is_filling
    text = sentence(found)
    assert text.startswith("the state doubled in 2 days at the same input: ")
    assert " GB on Wed 25 Nov, " in text
    assert text.endswith(" GB in the last 24 h; at this rate the duration passes the timeout in about 18 days")


@pytest.mark.parametrize("ratio", [3.0, 8.0])
def test_a_state_that_multiplies_faster_says_how_many_times(ratio):
    found = growth_of(hours(96, lambda n: GB * ratio ** (n / 48)))

    assert f"the state became {ratio:.1f} times as large in 2 days" in sentence(found)


def test_a_state_that_doubles_within_hours_is_told_before_two_days_are_over():
    found = growth_of(hours(60, lambda n: GB if n < 46 else GB * 2 ** ((n - 46) / 3)))

    assert found.span == timedelta(hours=9)
    assert found.is_input_same
    assert "in 9 h at the same input" in sentence(found)
    assert "in the last 3 h" in sentence(found)


def daily(n):
    return 2 + sin(2 * pi * n / 24)


def shrunk(n):
    return GB if n < 100 else GB / 4 + min(0.75, (n - 100) / 40) * GB


@pytest.mark.parametrize(
    ("name", "series"),
    [
        ("steady", hours(168, lambda n: GB)),
        ("windows of a day", hours(168, lambda n: GB * daily(n))),
        ("windows of a day that grow by 5 % a day", hours(168, lambda n: GB * daily(n) * 1.05 ** (n / 24))),
        ("its first hours", hours(20, lambda n: GB * (n + 1))),
        ("its first two days", hours(40, lambda n: GB * (n + 1))),
        ("a restart at which the state shrinks and comes back", hours(168, shrunk)),
        ("a deployment that adds state at once", hours(168, lambda n: GB if n < 140 else 3 * GB)),
        ("the same, a day and a half ago", hours(168, lambda n: GB if n < 132 else 3 * GB)),
        ("a weekend with little state", hours(168, lambda n: GB * (3 if n % 168 < 100 or n > 148 else 1))),
        ("every fifth checkpoint compacts", hours(168, lambda n: GB * (1.6 if n % 5 else 1.0))),
        ("an input that grew as well", hours(168, doubling(48), rate=lambda n: 500 * 2 ** (n / 48))),
        ("less than 64 MiB", hours(168, lambda n: 1000 * 2 ** (n / 48))),
        ("no sizes", hours(168, lambda n: None)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_healthy_patterns_are_no_growth(name, series):
    assert growth_of(series, timeout_ms=600_000) is None
    for end in range(24, len(series), 7):
        assert growth_of(series[:end], timeout_ms=600_000) is None, f"{name}, at hour {end}"


def test_a_daily_pattern_does_not_hide_growth():
    found = growth_of(hours(168, lambda n: GB * daily(n) * 2 ** (n / 48)))

    assert (found.span, found.ratio) == (timedelta(days=2), pytest.approx(2.0, rel=0.05))


def test_an_input_that_is_not_known_is_said():
    found = growth_of(hours(120, doubling(48), rate=lambda n: None))

    assert found.input_ratio is None
    assert not found.is_input_same
    assert "in 2 days (its input in this time is not known): " in sentence(found)


def test_a_state_that_grows_much_more_than_its_input_is_told_with_both():
    found = growth_of(hours(120, doubling(24), rate=lambda n: 500 * 1.2 ** (n / 24)))

    assert found.ratio == pytest.approx(4.0)
    assert "while the input became 1.4 times as large" in sentence(found)


def test_a_state_that_began_empty_and_still_fills_up_is_marked():
    found = growth_of(hours(80, lambda n: GB * (n + 1) / 10))

    assert found.is_filling
    assert sentence(found).endswith(
        ". It has grown evenly for 3 days, since the history begins, when it was nearly empty. A window or a time to"
        " live of more than 3 days decides: with one, the state may still fill up; without one, nothing removes it"
    )


@pytest.mark.parametrize("days", range(8, 13))
def test_a_state_that_grows_evenly_since_the_job_began_still_fills_up_after_the_history_no_longer_shows_its_begin(days):
    begun_at = NOW - timedelta(days=days)
    series = hours(168, lambda n: GB * (n + 1 + 24 * (days - 7)))

    found = growth_of(series, begun_at=begun_at)
    assert found.is_filling
    # A leak looks the same, so the sentence says what decides.
    assert f". It has grown evenly for {days} days, as from nothing since the job began. A window or" in sentence(found)
    assert not growth_of(series).is_filling, "not known since when"
    assert not growth_of(series, begun_at=begun_at - timedelta(days=30)).is_filling, "it grows faster than on average"


def test_a_job_that_began_with_a_large_state_does_not_fill_up():
    series = hours(168, lambda n: GB * (100 + 1.2 * max(0, n - 60)))

    found = growth_of(series, begun_at=NOW - timedelta(days=9))
    assert (found.what, found.is_filling) == (Grown.STATE, False)


def test_a_state_that_began_empty_and_grows_faster_and_faster_is_not_filling_up():
    found = growth_of(hours(168, doubling(24)))

    assert not found.is_filling


def test_a_job_with_gaps_in_its_history_is_compared_at_the_same_times_of_day():
    # At night the state is small, and in the last night the job was not read.
    series = [h for n, h in enumerate(hours(168, lambda n: GB * daily(n))) if n not in range(132, 140)]

    assert growth_of(series) is None


def test_a_state_that_comes_back_after_a_gap_is_no_growth():
    # It had 100 GB, the job was down for 28 hours and began again without its state.
    def refilling(n):
        return GB * (100 if n < 68 else n - 95)

    series = [h for n, h in enumerate(hours(169, refilling)) if n not in range(68, 96)]

    for end in range(100, len(series) + 1):
        assert growth_of(series[:end]) is None


def test_a_state_that_comes_back_within_hours_is_no_growth_however_long_it_was_small():
    def back(n):
        return GB * (10 if n < 60 else max(1.0, 2 ** ((n - 156) / 3)))

    assert growth_of(hours(168, back)) is None
    assert growth_of(hours(168, lambda n: min(GB, back(n)) if n < 60 else back(n))).ratio == pytest.approx(8.0)


# The input of each hour of a working day. A window of one hour has a state in proportion to it.
WORKING_DAY = [100, 104, 108, 112, 116, 115, 140, 250, 600, 900, *[1000] * 8, *[300] * 3, *[100] * 3]


def after_a_weekend(hour):
    """Return the input at an hour after the beginning of a Saturday."""
    day, hour = divmod(hour, 24)
    return WORKING_DAY[hour] if day >= 2 else 130 if 8 <= hour < 20 else 100


def test_a_small_window_of_a_job_that_began_on_a_quiet_weekend_does_not_grow_on_monday():
    for end in range(48, 96):
        series = hours(end, lambda n: GB / 100 * after_a_weekend(n), rate=after_a_weekend)
        assert growth_of(series) is None, f"hour {end}"


def test_a_larger_window_of_a_job_that_began_on_a_quiet_weekend_does_not_grow_on_monday():
    def window(n):
        return GB / 100 * sum(after_a_weekend(m) for m in range(max(0, n - 5), n + 1))

    for end in range(54, 96):
        assert growth_of(hours(end, window, rate=after_a_weekend)) is None, f"hour {end}"


def test_growth_within_hours_at_the_input_of_the_day_before_is_told_although_the_night_is_quiet():
    def rate(n):
        return WORKING_DAY[n % 24]

    found = growth_of(hours(84, lambda n: GB * (1 if n < 72 else 2 ** ((n - 72) / 4)), rate=rate))

    assert found.input_ratio == pytest.approx(1.0)
    assert not found.is_filling
    assert "in 9 h although the input was as high on the day before: " in sentence(found)


def test_growth_within_hours_that_the_input_explains_in_part_is_told_with_the_highest_input_before():
    def rate(n):
        return 100 if n < 76 else 150

    found = growth_of(hours(82, lambda n: GB * (1 if n < 70 else 2 ** ((n - 70) / 4)), rate=rate))

    assert "while the input became 1.5 times as large as the highest before: " in sentence(found)


def test_checkpoints_that_take_longer_at_the_same_state_and_input_are_told():
    found = growth_of(hours(120, lambda n: GB, duration=lambda n: 4000 * 2 ** (n / 48)), timeout_ms=60_000)

    assert found.what is Grown.DURATION
    text = sentence(found)
    assert text.startswith(
        "checkpoints take twice as long as 2 days ago, with a state of the same size, at the same input: "
    )
    assert "the duration passes the timeout in about" in text


def test_short_checkpoints_that_become_longer_are_no_growth():
    assert growth_of(hours(120, lambda n: GB, duration=lambda n: 50 * 2 ** (n / 48))) is None


def test_a_timeout_that_is_far_off_is_not_predicted():
    found = growth_of(hours(120, doubling(48), duration=lambda n: 1000 + n), timeout_ms=3_600_000)

    assert found.timeout_in is None


@pytest.mark.parametrize("name", GROWTH_FAMILIES)
@over_seeds(5, more=40)
def test_drawn_growth_is_told_apart_from_the_patterns_of_healthy_jobs(name, seed):
    family = GROWTH_FAMILIES[name]
    drawn = family.draw(random.Random(f"{name} {seed}"))

    found = growth_of(drawn.hours, begun_at=drawn.begun_at)

    assert (found is not None) is family.said, found and sentence(found)
    if found is not None:
        assert found.what is Grown.STATE
        assert found.is_filling is family.is_filling, sentence(found)


def test_a_state_that_has_grown_evenly_for_weeks_is_told_although_it_no_longer_doubles():
    begun_at = NOW - timedelta(days=30)
    series = hours(168, lambda n: GB * (n + 1 + 24 * 23))

    found = growth_of(series, begun_at=begun_at)

    assert (found.span, found.ratio) == (timedelta(days=6), pytest.approx(1.25, abs=0.02))
    assert found.is_filling
    assert "the state became 1.3 times as large in 6 days at the same input" in sentence(found)
    assert ". It has grown evenly for 30 days, as from nothing since the job began. A window or" in sentence(found)


@pytest.mark.parametrize(
    ("name", "size", "rate", "age_days"),
    [
        ("not known since when", lambda n: n + 1 + 24 * 23, lambda n: 500.0, None),
        ("faster than on average since the job began", lambda n: n + 1 + 24 * 23, lambda n: 500.0, 90),
        ("a little slower than on average", lambda n: 302 + 0.58 * (552 + n), lambda n: 500.0, 30),
        ("slower, from a large state", lambda n: 2_000 + n, lambda n: 500.0, 30),
        ("with its input", lambda n: n + 1 + 24 * 23, lambda n: 500.0 * (1 + n / 700), 30),
        ("only on some days", lambda n: max(n, 100) + 24 * 23, lambda n: 500.0, 30),
    ],
)
def test_a_state_that_grows_a_little_otherwise_is_not_told(name, size, rate, age_days):
    begun_at = None if age_days is None else NOW - timedelta(days=age_days)

    assert growth_of(hours(168, lambda n: GB * size(n), rate=rate), begun_at=begun_at) is None, name


def test_a_state_that_was_small_for_a_day_and_then_grows_evenly_is_not_only_filling_up():
    """Windows that no longer fire keep all records from then on. A job of some age has filled up before."""
    found = growth_of(hours(168, lambda n: GB * (1 + max(0, n - 60))), begun_at=NOW - timedelta(days=40))

    assert found.is_filling is False
