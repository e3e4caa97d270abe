"""Tests of matchers as text: what a user types is parsed, and what is shown parses to the same matchers."""

from __future__ import annotations

import pytest

from backend.contracts.alerts import MatcherOut
from dashboard.components.alerts import matchers_of, matchers_text


@pytest.mark.parametrize(
    ("typed", "matchers"),
    [
        ("", []),
        ("job=orders, severity!=warning", [("job", "orders", True), ("severity", "warning", False)]),
        (" job = a=b ,", [("job", "a=b", True)]),
        ("nonsense", [("", "", True)]),
    ],
)
def test_typed_matchers_are_parsed_and_a_part_without_a_sign_has_no_name(typed, matchers):
    assert [(m.name, m.value, m.is_equal) for m in matchers_of(typed)] == matchers


def test_shown_matchers_parse_to_the_same_matchers():
    shown = [MatcherOut(name="job", value="orders"), MatcherOut(name="severity", value="x", is_equal=False)]

    assert matchers_of(matchers_text(shown)) == shown
