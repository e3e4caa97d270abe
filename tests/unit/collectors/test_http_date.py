"""The clock of a server is read from the date of its answers, within bounds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from collectors.http_date import ahead_of

NOW = datetime(2026, 11, 30, 12, 0, 0, 500_000, tzinfo=UTC)


def dated(ahead, **more):
    return {"Date": f"{NOW + ahead:%a, %d %b %Y %H:%M:%S} GMT", **more}


@pytest.mark.parametrize("minutes", [-90, -11, 11, 90])
def test_a_clock_that_is_minutes_away_is_known(minutes):
    assert ahead_of(dated(timedelta(minutes=minutes)), NOW) == timedelta(minutes=minutes)


@pytest.mark.parametrize("seconds", [-2, -1, 0, 1, 2])
def test_whole_seconds_on_the_way_are_no_difference(seconds):
    assert ahead_of(dated(timedelta(seconds=seconds)), NOW) == timedelta(0)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Date": ""},
        {"Date": "yesterday"},
        {"Date": "Mon, 99 Nov 2026 12:00:00 GMT"},
        dated(timedelta(days=2)),
        dated(timedelta(days=-400)),
        dated(timedelta(minutes=-20), Age="1200"),
    ],
)
def test_a_date_that_cannot_be_believed_is_none(headers):
    assert ahead_of(headers, NOW) is None


def test_a_date_in_another_zone_is_the_same_instant():
    assert ahead_of({"Date": "Mon, 30 Nov 2026 13:30:00 +0100"}, NOW) == timedelta(minutes=30)
