"""Tests of making text printable."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.analysis.words import sentences
from backend.domain.text import capitalised, printable, said_once, shortened, with_whole_characters
from dashboard import text


def test_printable_text_is_unchanged():
    assert printable("jobs/größe → 5 µs") == "jobs/größe → 5 µs"


def test_no_character_of_unicode_stays_unprintable():
    every = "".join(map(chr, range(sys.maxunicode + 1)))

    shown = printable(every)

    assert shown.isprintable()
    assert shown.isascii() is False
    assert printable("\x1b\n\ud800\U000e0001") == r"\x1b\n\ud800\U000e0001"


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (rb'["\ud800", "\uDFFF!", "\uD83D\uDE00"]', ["\ufffd", "\ufffd!", "\U0001f600"]),
        (rb'["\ud800\ud83d\ude00", "\udc00\ud800\u0041"]', ["\ufffd\U0001f600", "\ufffd\ufffdA"]),
        (rb'["\\ud800", "\\\ud800", "\"\ud800\n"]', ["\\ud800", "\\\ufffd", '"\ufffd\n']),
        (b'["\xff\xc3", "\xed\xa0\x80", "\xc3\xa4"]', ["\ufffd\ufffd", "\ufffd\ufffd\ufffd", "ä"]),
    ],
)
def test_only_broken_characters_of_json_are_replaced(body, value):
    assert json.loads(with_whole_characters(body)) == value


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_without_broken_characters_is_unchanged(value):
    for is_ascii in (True, False):
        body = json.dumps(value, ensure_ascii=is_ascii).encode()
        assert with_whole_characters(body) == body


@given(st.text(st.characters(exclude_categories=[])))
def test_any_text_can_be_read_after_the_replacement(raw):
    json.loads(with_whole_characters(json.dumps([raw]).encode())).pop().encode()


@given(st.text(), st.integers(8, 120))
def test_a_shortened_name_is_one_line_and_keeps_both_ends(name, most):
    whole = shortened(name, 100_000)
    short = shortened(name, most)

    assert len(short) <= most
    assert "\n" not in short
    if whole != short:
        head, tail = short.split("…", 1) if "…" not in whole else (whole[:2], whole[-2:])
        assert whole.startswith(head)
        assert whole.endswith(tail)


def test_a_name_that_sql_made_keeps_its_operator_and_its_sink():
    name = "GroupAggregate[4]<br/>" + "Calc(select=[a, b, c]) -> " * 14 + "Sink: orders_by_region[9]"

    for short in (shortened(name), sentences.vertex(name), text.short(name, 80)):
        assert short.startswith("GroupAggregate[4] Calc(")
        assert short.endswith("Sink: orders_by_region[9]")
        assert len(short) == 80


def test_problems_that_differ_only_in_the_id_of_a_vertex_are_said_once_with_their_number():
    ids = [f"{n:032x}" for n in range(100)]
    refused = [f"http://flink/jobs/x/vertices/{i}: HTTP 500" for i in ids]

    found = said_once(["the detail of checkpoint 7 is gone", *refused, refused[3], "another"])

    assert found == (
        "the detail of checkpoint 7 is gone",
        f"{refused[0]} (and 99 more that differ only in the id of the vertex)",
        "another",
    )
    assert said_once(refused[:2])[0].endswith("(and 1 more that differs only in the id of the vertex)")
    assert said_once(refused[:1] * 2) == (refused[0],)


def test_a_sentence_begins_with_a_capital_letter_but_an_address_stays_as_it_is():
    assert capitalised("a task was late") == "A task was late"
    assert capitalised("http://jm:8081/config: cannot connect") == "http://jm:8081/config: cannot connect"
    assert capitalised("") == ""
