"""Tests of the comparison of the two listeners of Spark: a value that differs and an event too many are found."""

from __future__ import annotations

import json

from tests.simulators.spark_versions import compared, table
from tests.support.recorded_spark import push, recorded

_BODY = push(recorded("b_windowed_hdfs"))


def _sent(change=lambda events: events):
    events = change(json.loads(json.dumps(_BODY["events"])))
    # Each event is a push of its own, as in a query that runs.
    return [json.dumps({**_BODY, "events": [event]}).encode() for event in events]


def test_the_same_events_in_another_order_are_equal():
    found = compared("4.3", _sent(), _sent(lambda events: events[::-1]))

    assert (found.is_good, found.event_count) == (True, 27)
    assert found.counts["progress.state_operators[].commit_time_ms"] == 25
    assert "UNEQUAL" not in table([found])


def test_a_value_that_differs_is_found_and_named():
    def change(events):
        events[3]["progress"]["stateOperators"][0]["commitTimeMs"] += 1
        return events

    found = compared("4.3", _sent(), _sent(change))

    assert not found.is_good
    (line,) = found.unequal
    assert "progress.state_operators[0].commit_time_ms: " in line
    row = next(
        line for line in table([found]).splitlines() if line.startswith("progress.state_operators[].commit_time_ms")
    )
    assert "UNEQUAL" in row


def test_an_event_that_is_missing_or_doubled_is_found():
    missing = compared("4.3", _sent(), _sent(lambda events: events[:-1]))
    doubled = compared("4.3", _sent(), _sent(lambda events: [*events, events[2]]))

    assert missing.unequal[0].endswith("1 by Python, 0 by the jar")
    assert doubled.unequal[0].endswith("1 by Python, 2 by the jar")
    assert not compared("4.3", [], []).is_good
