"""Tests of the strip that shows when an alert was pending and firing."""

from __future__ import annotations

from datetime import UTC, timedelta

import plotly.graph_objects as go

from backend.contracts.alerts import EpisodeOut
from dashboard.figures.alert_strip import strip
from dashboard.palette import DARK
from tests.support.observations import NOW


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
