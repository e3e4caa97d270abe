"""Tests of the time range that a page reads from the browser's store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dashboard.span import epoch_ms, span_of


def test_an_invalid_end_of_a_range_means_no_limit_and_a_reversed_range_is_ignored():
    assert span_of({"since": True, "until": 9e15}).is_whole
    assert span_of({"since": "1", "until": None}).is_whole
    assert span_of({"since": 2_000, "until": 1_000}).is_whole
    one = span_of({"since": 1_000, "until": 1_000})
    at = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert [one.holds(at), one.holds(at - timedelta(milliseconds=1)), one.holds(at + timedelta(milliseconds=1))] == [
        True, False, False,
    ]  # fmt: skip
    assert epoch_ms(at) == 1_000
