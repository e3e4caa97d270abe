"""Tests of parsing and printing durations and sizes."""

from __future__ import annotations

import pytest

from backend.runtime.core.units import duration_us, size_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5 s", 5_000_000), ("250ms", 250_000), ("10 min", 600_000_000), ("7", 7_000), ("1.5s", 1_500_000)],
)
def test_durations_are_parsed(text: str, expected: int) -> None:
    assert duration_us(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("32 kb", 32768), ("1mb", 1 << 20), ("7", 7)])
def test_sizes_are_parsed(text: str, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "s", "-1 s", "1 fortnight", "1 s 2", "٣ s", "1" * 50, "nan"])
def test_text_that_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        duration_us(text)
