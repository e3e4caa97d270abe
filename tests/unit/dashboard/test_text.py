"""Tests of values formatted as text."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from dashboard import text


@pytest.mark.parametrize(
    ("value_ms", "shown"),
    [
        (None, "–"), (0, "0 ms"), (0.4, "0.4 ms"), (840, "840 ms"), (999, "1.0 s"), (1_000, "1.0 s"), (7_900, "7.9 s"),
        (7_945, "7.9 s"), (12_345, "12.3 s"), (125_000, "2 min 5 s"), (12_000_000, "3 h 20 min"),
        (187_200_000, "2 d 4 h"), (-1_500, "-1.5 s"),
    ],
)  # fmt: skip
def test_a_duration_is_written_with_the_unit_that_fits(value_ms, shown):
    assert text.duration(value_ms) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"), (0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (999_499, "999 kB"), (999_500, "1.0 MB"),
        (3_172_554, "3.2 MB"), (2.5e15, "2.5 PB"), (-4_812_000, "-4.8 MB"),
    ],
)  # fmt: skip
def test_a_size_is_written_in_decimal_units_as_the_sentences_write_it(value, shown):
    assert text.size(value) == shown


@pytest.mark.parametrize(
    ("ratio", "shown"), [(None, "–"), (0.0, "0 %"), (0.954, "95 %"), (1.0, "100 %"), (0.9999, "99.9 %")]
)
def test_a_ratio_below_one_is_never_written_as_100_percent(ratio, shown):
    assert text.percent(ratio) == shown


def test_a_factor_is_not_written_as_a_percentage():
    assert text.evidence_value(0.91, "ratio") == "91 %"
    assert text.evidence_value(1.9, "ratio") == "1.9 ×"
    assert text.evidence_value(None, "ms") == text.MISSING


def test_a_long_name_keeps_both_its_ends():
    shown = text.short("Source: clickstream -> Timestamps/Watermarks -> Filter", 20)

    assert len(shown) == 20
    assert shown.startswith("Source")
    assert shown.endswith("Filter")


def test_markup_in_names_is_escaped():
    assert text.plain("<b>x</b>&\n") == "&lt;b&gt;x&lt;/b&gt;&amp; "


def test_an_unknown_time_zone_is_utc():
    assert text.zone("Nowhere/Land") is UTC
    assert text.zone("../../etc/passwd") is UTC
    assert text.zone("Europe/Berlin") == ZoneInfo("Europe/Berlin")
    at = datetime(2026, 11, 21, 23, 30, tzinfo=UTC)
    assert text.instant(at, ZoneInfo("Europe/Berlin")) == "2026-11-22 00:30:00"
    assert text.instant_utc(at) == "2026-11-21 23:30:00.000 UTC"


@pytest.mark.parametrize(
    ("offset_ms", "words"),
    [
        (None, None),
        (4_999, None),
        (-5_000, "engine clock 5 s behind"),
        (8_400, "engine clock 8 s ahead"),
        (-41_300, "engine clock 41 s behind"),
        (-1_320_900, "engine clock 22 min behind"),
        (7_205_000, "engine clock 2 h ahead"),
    ],
)
def test_a_difference_of_clocks_is_shown_from_five_seconds_on(offset_ms, words):
    assert text.clock_difference(offset_ms) == words
