"""Tests of matchers as text: what a user types is parsed, and what is shown parses to the same matchers."""

from __future__ import annotations

from datetime import UTC

import pytest

from backend.contracts.alerts import MatcherOut
from dashboard.components.alerts import line, matchers_of, matchers_text, tone_of
from dashboard.pages import alert
from dashboard.palette import Tone
from tests.support.api_examples import example
from tests.support.dash_calls import texts


def test_a_number_of_alerts_that_somebody_has_silenced_or_seen_is_quiet():
    assert [tone_of(s) for s in ("critical", "warning", None)] == [Tone.BAD, Tone.WARN, Tone.QUIET]


@pytest.mark.parametrize("silenced_by", [[], ["s1"]])
def test_the_page_of_a_silenced_alert_is_quiet(silenced_by):
    found = example("alert_detail").model_copy(update={"state": "firing", "silenced_by": silenced_by})

    shown = str(alert._head(found)[0].to_plotly_json())

    assert ("tone-bad" in shown or "tone-warn" in shown) == (not silenced_by)


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


def test_the_line_of_an_ended_alert_says_why_it_ended():
    alert = example("alert")
    reason = "its target is no longer watched"
    ended = alert.model_copy(update={"state": "resolved", "ended_at": alert.began_at, "ended_reason": reason})

    assert f"because {reason}" in texts(line(ended, UTC))
    assert "because" not in texts(line(alert.model_copy(update={"ended_reason": None}), UTC))
