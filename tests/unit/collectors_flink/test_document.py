"""Tests of values from a target: text is shortened, numbers are finite, and unexpected JSON is a clear error."""

from __future__ import annotations

import pytest

from backend.domain.errors import TargetProtocolError
from collectors.flink.document import Document, RowCache, clean, number, read


def test_text_from_a_target_is_one_line_of_bounded_length() -> None:
    assert clean("a\x00b\n\u202ec", length_max=10) == "a b  c"
    assert clean("x" * 100, length_max=5) == "xxxx…"


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1.5", 1.5), (3, 3.0), ("NaN", None), ("Infinity", None), (True, None), ("n/a", None), ([], None)],
)
def test_a_metric_that_is_not_a_finite_number_is_missing(value: object, expected: float | None) -> None:
    assert number(value) == expected


def test_a_broken_character_does_not_hide_the_rest_of_an_answer() -> None:
    found = read(rb'{"name": "odd \ud800 name", "count": 3}', url="http://flink/x")

    assert found.get("name").text(length_max=100) == "odd \ufffd name"
    assert found.get("count").whole() == 3


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"", "it is empty"), (b" <html>", "it looks like HTML"), (b'{"a": [1', "not JSON"), (b"[" * 100_000, "not JSON")],
)
def test_an_answer_that_is_not_json_is_reported_as_such(body: bytes, words: str) -> None:
    with pytest.raises(TargetProtocolError, match=words):
        read(body, url="http://flink/x")


def test_an_unchanged_row_is_not_parsed_again_and_a_changed_or_new_one_is() -> None:
    parsed: list[int] = []

    def parse(row: Document) -> int:
        parsed.append(row.get("id").whole())
        return row.get("id").whole() * 10 + row.get("n").whole()

    cache: RowCache[int] = RowCache()
    first = [{"id": 1, "n": 0}, {"id": 2, "n": 0}]
    assert cache.read(Document(first, "u"), parse, key="id") == (10, 20)
    assert cache.read(Document([{"id": 3, "n": 0}, {"id": 1, "n": 0}, {"id": 2, "n": 5}], "u"), parse, key="id") == (
        30,
        10,
        25,
    )
    assert parsed == [1, 2, 3, 2]
    # Row 1 left the response for one poll, so it is parsed again.
    assert cache.read(Document([], "u"), parse, key="id") == ()
    assert cache.read(Document(first[:1], "u"), parse, key="id") == (10,)
    assert parsed == [1, 2, 3, 2, 1]


@pytest.mark.parametrize("row", [None, 7, [], {}, {"id": []}, {"id": {}}, {"id": 1.5}, {"id": 1, "n": "x"}])
def test_a_malformed_row_is_an_error_that_names_it_at_every_reading(row: object) -> None:
    cache: RowCache[int] = RowCache()
    rows = Document({"rows": [{"id": 1, "n": 2}, row]}, "u").get("rows")
    for _ in range(2):
        with pytest.raises(TargetProtocolError, match=r"rows\[1\]"):
            cache.read(rows, lambda r: r.get("id").whole() + r.get("n").whole(), key="id")
