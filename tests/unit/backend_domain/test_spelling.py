"""Tests of the spelling of numbers, which pages, sentences, the command line and alerts share."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backend.analysis.words import sentences
from backend.domain import spelling
from backend.domain.advice import Metric
from dashboard import text

ROOT = Path(__file__).resolve().parents[3]
SPELT = ("dashboard", "backend/alerting", "backend/notify", "backend/contracts", "collectors", "backend/services")
# A number with a format of its own beside a unit. An axis places its ticks itself, and budgets are settings.
RAW = re.compile(r"\{[^{}]*:[0-9.,]+[fg%]?\}(?: ?(?:ms|s|kB|MB|GB|%|×|times|rows/s|records/s|/s))(?!\w)")


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "0 ms"), (0.4, "0.4 ms"), (3.47, "3.5 ms"), (52, "52 ms"), (994, "994 ms"), (995, "1.0 s"),
        (4_940, "4.9 s"), (59_949, "59.9 s"), (59_950, "1 min"), (79_954, "1 min 20 s"), (125_000, "2 min 5 s"),
        (3_599_600, "1 h"), (12_000_000, "3 h 20 min"), (187_200_000, "2 d 4 h"), (-1_500, "-1.5 s"),
    ],
)  # fmt: skip
def test_a_duration_is_rounded_to_the_nearest_in_the_unit_that_fits(ms, shown):
    assert spelling.duration(ms) == shown


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [
        (0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (99_940, "99.9 kB"), (99_960, "100 kB"), (999_499, "999 kB"),
        (999_500, "1.0 MB"), (3_172_554, "3.2 MB"), (2.5e15, "2.5 PB"), (-4_812_000, "-4.8 MB"),
    ],
)  # fmt: skip
def test_a_size_has_three_digits_at_most(size_bytes, shown):
    assert spelling.size(size_bytes) == shown


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (0.0, "0 %"), (0.00003, "0.003 %"), (0.0183, "1.83 %"), (0.07, "7 %"), (0.0999, "9.99 %"), (0.09999, "10 %"),
        (0.954, "95 %"), (0.997, "99.7 %"), (0.99999, "99.9 %"), (1.0, "100 %"), (1.3, "130 %"), (-0.2, "-20 %"),
    ],
)  # fmt: skip
def test_a_share_below_one_is_never_100_percent_and_one_above_zero_never_0_percent(ratio, shown):
    assert spelling.percent(ratio) == shown


def test_a_factor_is_not_written_as_a_share():
    assert spelling.quantity(0.91, "ratio") == "91 %"
    assert spelling.quantity(1.94, "ratio") == "1.9 ×"
    assert spelling.quantity(0.8, "ratio", "busyRatio / numRecordsIn") == "0.8 ×"
    assert spelling.quantity(1.04, "ratio", "busyRatio") == "104 %"
    assert spelling.quantity(1.3, "ratio", Metric.LOST) == "130 %"
    assert spelling.quantity(12.4, "ratio", "start_delay") == "12 ×"


def test_counts_and_rates_have_a_narrow_space_between_thousands():
    assert spelling.count(79_954) == "79\u202f954"
    assert spelling.rate(1_250.4, "records") == spelling.quantity(1_250.4, "records/s") == "1\u202f250 records/s"
    assert spelling.rate(0.42) == "0.42/s"


@pytest.mark.parametrize("value", [0, 3.47, 840, 4_840, 4_851, 59_960, 79_954, 1_320_900, 7_205_000, 99_960, 999_500])
def test_pages_and_sentences_spell_a_number_alike(value):
    assert text.duration(value) == sentences.duration(value) == text.evidence_value(value, "ms")
    assert text.size(value) == sentences.size(value) == text.evidence_value(value, "bytes")
    assert text.percent(value / 1e6) == sentences.percent(value / 1e6)
    assert text.count(value) == sentences.count(value)


def test_no_other_module_formats_a_number_with_a_unit_itself():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in SPELT
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if RAW.search(line)
    ]

    assert found == []
