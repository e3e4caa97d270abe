"""The pages of the alerts: matchers, the strip of states, addresses and links between runbooks."""

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
def test_typed_matchers_are_parsed_and_a_part_without_a_sign_has_no_name(typed, matchers):
    assert [(m.name, m.value, m.is_equal) for m in matchers_of(typed)] == matchers


def test_shown_matchers_parse_to_the_same_matchers():
    shown = [MatcherOut(name="job", value="orders"), MatcherOut(name="severity", value="x", is_equal=False)]

    assert matchers_of(matchers_text(shown)) == shown


def _episode(began_s, fired_s, ended_s, state):
    def at(seconds):
        return None if seconds is None else NOW - timedelta(seconds=seconds)

    return EpisodeOut(id=f"a{began_s}", began_at=at(began_s), fired_at=at(fired_s), ended_at=at(ended_s), state=state)


def test_the_strip_shows_when_the_alert_was_pending_and_firing():
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


def test_a_strip_without_episodes_shows_the_reason():
    assert strip([], theme=DARK, where=UTC, now=NOW).summary == "No episodes yet."


@pytest.mark.parametrize(
    ("path", "page"),
    [
        (routes.alerts(), "alerts"),
        (routes.alert("a/b c"), "alert"),
        (routes.runbook("Watchdog"), "runbook"),
    ],
)
def test_addresses_of_alert_pages_parse_to_their_routes(path, page):
    route = routes.parse(path)

    assert route.page == page
    assert (route.alert, route.rule) == {
        "alerts": (None, None),
        "alert": ("a/b c", None),
        "runbook": (None, "Watchdog"),
    }[page]


@pytest.mark.parametrize("rule", [r.value for r in RuleName])
def test_links_between_runbooks_lead_to_existing_pages(rule):
    written = (Path(__file__).parents[4] / "docs" / "runbooks" / f"{rule}.md").read_text()

    shown = runbook.runbook_text(written).to_plotly_json()["props"]["children"]

    links = re.findall(r"\]\((?!http)([^)]*)\)", shown)
    assert len(links) == len(re.findall(r"\]\((?!http)[^)]*\)", written))
    for link in links:
        route = routes.parse(link)
        assert (route.page, route.rule in set(RuleName)) == ("runbook", True), link
