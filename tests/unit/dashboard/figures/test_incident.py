"""Tests of the chart of an incident: states of alerts above the durations of checkpoints, on one clock."""

from __future__ import annotations

from datetime import UTC, timedelta

import plotly.graph_objects as go

from backend.contracts.incidents import IncidentAlertOut
from backend.domain.checkpoint import CheckpointStatus
from dashboard import text
from dashboard.figures.incident import Signal, height_px, incident
from dashboard.palette import DARK
from tests.support.api_examples import example
from tests.support.observations import NOW


def _alert(rule, began_s, fired_s, ended_s, state):
    def at(seconds):
        return None if seconds is None else NOW - timedelta(seconds=seconds)

    update = {"rule": rule, "began_at": at(began_s), "fired_at": at(fired_s), "ended_at": at(ended_s), "state": state}
    return IncidentAlertOut(**example("alert").model_copy(update=update).model_dump(), events=[])


_SPAN = {"since": NOW - timedelta(seconds=700), "until": NOW, "theme": DARK, "where": UTC}


def test_the_chart_shows_each_state_of_each_rule_and_the_checkpoints_on_our_clock():
    alerts = [
        _alert("CheckpointStuck", 60, 30, None, "firing"),
        _alert("CheckpointExpired", 600, 600, 500, "resolved"),
    ]
    update = {"triggered_at": NOW, "end_to_end_duration_ms": 60_000, "status": CheckpointStatus.FAILED}
    checkpoint = example("checkpoint").model_copy(update=update)

    chart = incident(alerts, Signal([checkpoint], 60_000, timedelta(seconds=100)), **_SPAN)

    go.Figure(chart.figure)
    rows = [(name, state, took_s) for name, state, _, _, took_s in chart.table.rows]
    assert rows == [
        ("CheckpointExpired", "firing", 100.0),
        ("CheckpointExpired", "resolved", 500.0),
        ("CheckpointStuck", "pending", 30.0),
        ("CheckpointStuck", "firing", 30.0),
        (f"checkpoint {checkpoint.checkpoint_id}", "failed", 60.0),
    ]
    # The engine's clock is 100 s ahead.
    assert chart.table.rows[-1][2].startswith((NOW - timedelta(seconds=100)).strftime("%Y-%m-%d %H:%M:%S"))
    assert chart.summary == (
        "2 alerts of 2 rules, 1 firing now; 1 checkpoint around them, 1 failed; the timeout is 1 min now."
    )
    assert chart.height_px == height_px(2, has_signal=True)
    assert [list(t["y"]) for t in chart.figure["data"] if t["name"] in ("completed", "failed")] == [[], [60.0]]
    (timeout,) = (s for s in chart.figure["layout"]["shapes"] if s["type"] == "line" and s.get("xref") == "paper")
    assert [timeout[side] for side in ("x0", "x1", "y0", "y1")] == [0, 1, 60.0, 60.0]


def test_an_incident_of_a_target_has_no_checkpoints():
    chart = incident([_alert("TargetUnreachable", 60, 30, None, "firing")], Signal(), **_SPAN)

    go.Figure(chart.figure)
    assert chart.height_px == height_px(1, has_signal=False)
    assert chart.summary == "1 alert of 1 rule, 1 firing now."


def test_an_alert_that_fired_at_once_was_not_pending_before():
    def states(fired_s):
        chart = incident([_alert("CheckpointStuck", 60, fired_s, None, "firing")], Signal(), **_SPAN)
        return [(state, took_s) for _, state, _, _, took_s in chart.table.rows]

    assert states(60) == [("firing", 60.0)]
    # A clock that is set back between the two makes an alert fire before it began.
    assert [state for state, _ in states(70)] == ["firing"]
    assert states(20) == [("pending", 40.0), ("firing", 20.0)]


def test_a_resolved_state_ends_when_the_next_episode_of_the_rule_begins():
    alerts = [
        _alert("CheckpointExpired", 100, 100, None, "firing"),
        _alert("CheckpointStuck", 250, 250, 240, "resolved"),
        _alert("CheckpointExpired", 600, 600, 500, "resolved"),
    ]

    chart = incident(alerts, Signal(), **_SPAN)

    rows = [(name, state, took_s) for name, state, _, _, took_s in chart.table.rows]
    assert rows == [
        ("CheckpointExpired", "firing", 100.0),
        ("CheckpointExpired", "resolved", 400.0),
        ("CheckpointStuck", "firing", 10.0),
        ("CheckpointStuck", "resolved", 240.0),
        ("CheckpointExpired", "firing", 100.0),
    ]


def test_the_chart_says_from_when_checkpoints_are_drawn_if_there_are_too_many():
    checkpoint = example("checkpoint").model_copy(update={"triggered_at": NOW, "end_to_end_duration_ms": 60_000})
    alerts = [_alert("CheckpointExpired", 600, 600, None, "firing")]

    def words(*, is_cut):
        chart = incident(alerts, Signal([checkpoint], 60_000, timedelta(seconds=100), is_cut=is_cut), **_SPAN)
        drawn = [a["text"] for a in chart.figure["layout"]["annotations"]]
        return [w for w in drawn if "only checkpoints since" in w], "earlier checkpoints are not drawn" in chart.summary

    since = text.instant(NOW - timedelta(seconds=100), UTC)
    assert words(is_cut=True) == ([f"only checkpoints since {since}"], True)
    assert words(is_cut=False) == ([], False)


def test_in_a_narrow_window_the_name_of_a_rule_is_above_its_bars():
    chart = incident([_alert("TargetUnreachable", 60, 30, None, "firing")], Signal(), **_SPAN, is_narrow=True)

    go.Figure(chart.figure)
    (name,) = (a for a in chart.figure["layout"]["annotations"] if a["text"] == "TargetUnreachable")
    (bars,) = {(t["y"][0], t["width"]) for t in chart.figure["data"] if t["y"]}
    # The axis points down.
    assert (name["yanchor"], name["y"]) == ("bottom", bars[0] - bars[1] / 2)
    assert chart.height_px == height_px(1, has_signal=False, is_narrow=True)


def test_the_durations_are_below_the_rows_of_the_rules_and_their_axis_holds_the_longest_and_the_timeout():
    update = {"triggered_at": NOW, "end_to_end_duration_ms": 60_000, "status": CheckpointStatus.FAILED}
    checkpoint = example("checkpoint").model_copy(update=update)
    alerts = [_alert("CheckpointStuck", 60, 30, None, "firing"), _alert("CheckpointExpired", 600, 600, 500, "resolved")]

    def layout(signal):
        return incident(alerts, signal, **_SPAN).figure["layout"]

    for timeout_ms, longest_s in ((None, 60.0), (30_000, 60.0), (90_000, 90.0)):
        drawn = layout(Signal([checkpoint], timeout_ms))
        durations, states = drawn["yaxis"], drawn["yaxis2"]
        assert durations["domain"][0] == 0
        # Between the two there is room for the words on the checkpoints that are not drawn.
        assert 0 < durations["domain"][1] < states["domain"][0] < states["domain"][1] == 1
        assert states["domain"][0] - durations["domain"][1] < 0.1
        assert durations["range"][0] == 0
        assert 1.05 * longest_s < durations["range"][1] < 1.2 * longest_s
        assert durations["visible"]
    alone = layout(Signal())
    assert (alone["yaxis"]["domain"], alone["yaxis"]["visible"]) == ([0, 0.0], False)
    assert alone["yaxis2"]["domain"] == [0.0, 1]
    # Half a row more on either side, so that each bar has the whole of its row. The axis points down.
    assert alone["yaxis2"]["range"] == [1.5, -0.5]
