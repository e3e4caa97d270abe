"""Text, numbers and JSON from a target: text is bounded, numbers are finite, and other JSON is a clear error."""

from __future__ import annotations

import pytest

from backend.domain.errors import TargetProtocolError
from collectors.flink.document import clean, number, read


def test_text_from_a_target_is_one_line_of_bounded_length() -> None:
    assert clean("a\x00b\n\u202ec", length_max=10) == "a b  c"
    assert clean("x" * 100, length_max=5) == "xxxx…"


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1.5", 1.5), (3, 3.0), ("NaN", None), ("Infinity", None), (True, None), ("n/a", None), ([], None)],
)
def test_a_metric_that_is_not_a_finite_number_is_missing(value: object, expected: float | None) -> None:
    assert number(value) == expected


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"", "it is empty"), (b" <html>", "it looks like HTML"), (b'{"a": [1', "not JSON"), (b"[" * 100_000, "not JSON")],
)
def test_an_answer_that_is_not_json_is_reported_as_such(body: bytes, words: str) -> None:
    with pytest.raises(TargetProtocolError, match=words):
        read(body, url="http://flink/x")
