"""Tests of durations and key-value pairs on the command line: their values, and errors that show the allowed form."""

from __future__ import annotations

import pytest

from backend.cli.options import pairs, say, seconds
from backend.domain.errors import InvalidInputError


@pytest.mark.parametrize(
    ("text", "expected"),
    [("120s", 120), ("500ms", 0.5), ("2min", 120), ("2 m", 120), ("1.5h", 5400), ("1d", 86400), ("0s", 0)],
)
def test_a_duration_is_a_number_with_a_unit(text, expected):
    assert seconds(text, option="--duration") == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "120", "-5s", "s", "1 week", "1e3s", "nan s", "١s"])
def test_an_invalid_duration_is_refused_with_the_allowed_form(text):
    with pytest.raises(InvalidInputError) as refused:
        seconds(text, option="--duration")

    (problem,) = refused.value.problems
    assert problem.field == "--duration"
    assert problem.allowed == "a number with a unit: 500ms, 120s, 2min, 1h, 1d"


def test_a_duration_out_of_bounds_is_refused_with_the_bounds():
    with pytest.raises(InvalidInputError, match="1s to 60s"):
        seconds("2h", option="--poll-interval", least=1, most=60)


def test_control_characters_in_the_output_are_shown_as_escapes(capsys):
    say("t1  a\x1b[31m\r\n\x9b  ü", "ok")

    assert capsys.readouterr().out == "t1  a\\x1b[31m\\r\\n\\x9b  ü\nok\n"


def test_pairs_keep_their_order_and_the_last_value_of_a_key_is_used():
    assert pairs(["b=1", "a = x=y ", "b=2"], option="--set") == {"b": "2", "a": "x=y"}


@pytest.mark.parametrize("text", ["", "key", "=value", " =v"])
def test_an_invalid_pair_is_refused(text):
    with pytest.raises(InvalidInputError, match="key=value"):
        pairs([text], option="--set")
