"""The pages of the alerts: matchers read as typed, the strip shows each state once, addresses hold the alert."""

from __future__ import annotations

import re
from datetime import UTC, timedelta
from pathlib import Path

import plotly.graph_objects as go
import pytest

from backend.alerting.rules import RuleName
from backend.contracts.alerts import EpisodeOut, MatcherOut
from dashboard import routes
from dashboard.components.alerts import matchers_of, matchers_text
from dashboard.figures.alert_strip import strip
from dashboard.pages import runbook
from dashboard.palette import DARK
from tests.support.observations import NOW


@pytest.mark.parametrize(
    ("typed", "matchers"),
    [
        ("", []),
        ("job=orders, severity!=warning", [("job", "orders", True), ("severity", "warning", False)]),
        (" job = a=b ,", [("job", "a=b", True)]),
        ("nonsense", [("", "", True)]),
    ],
)
def test_matchers_are_read_as_they_are_typed_and_nonsense_is_left_to_be_refused(typed, matchers):
    assert [(m.name, m.value, m.is_equal) for m in matchers_of(typed)] == matchers


def test_matchers_come_back_as_they_were_shown():
    shown = [MatcherOut(name="job", value="orders"), MatcherOut(name="severity", value="x", is_equal=False)]

    assert matchers_of(matchers_text(shown)) == shown


def _episode(began_s, fired_s, ended_s, state):
    def at(seconds):
        return None if seconds is None else NOW - timedelta(seconds=seconds)

    return EpisodeOut(id=f"a{began_s}", began_at=at(began_s), fired_at=at(fired_s), ended_at=at(ended_s), state=state)


def test_the_strip_shows_when_it_was_pending_and_when_it_fired_until_now():
    episodes = [
        _episode(60, 30, None, "firing"),
        _episode(300, None, 290, "inactive"),
        _episode(600, 600, 500, "resolved"),
    ]

    chart = strip(episodes, theme=DARK, where=UTC, now=NOW)

    go.Figure(chart.figure)
    rows = [(state, duration_s) for state, _, _, duration_s in chart.table.rows]
    assert rows == [("firing", 100.0), ("pending", 10.0), ("pending", 30.0), ("firing", 30.0)]
    assert chart.summary == "3 episodes, 2 of them fired; now firing."


def test_a_strip_of_nothing_says_so():
    assert strip([], theme=DARK, where=UTC, now=NOW).summary == "No episodes yet."


@pytest.mark.parametrize(
    ("path", "page"),
    [
        (routes.alerts(), "alerts"),
        (routes.alert("a/b c"), "alert"),
        (routes.runbook("Watchdog"), "runbook"),
    ],
)
def test_the_pages_of_alerts_have_addresses_both_ways(path, page):
    route = routes.parse(path)

    assert route.page == page
    assert (route.alert, route.rule) == {
        "alerts": (None, None),
        "alert": ("a/b c", None),
        "runbook": (None, "Watchdog"),
    }[page]


@pytest.mark.parametrize("rule", [r.value for r in RuleName])
def test_a_runbooks_links_lead_to_pages_that_are_there(rule):
    written = (Path(__file__).parents[4] / "docs" / "runbooks" / f"{rule}.md").read_text()

    shown = runbook.runbook_text(written).to_plotly_json()["props"]["children"]

    links = re.findall(r"\]\((?!http)([^)]*)\)", shown)
    assert len(links) == len(re.findall(r"\]\((?!http)[^)]*\)", written))
    for link in links:
        route = routes.parse(link)
        assert (route.page, route.rule in set(RuleName)) == ("runbook", True), link
