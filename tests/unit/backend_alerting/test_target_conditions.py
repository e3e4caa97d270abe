"""When the rules on targets and on Barrierscope itself fire and resolve."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.alerting.conditions import read
from backend.alerting.lifecycle import ReadingKind
from backend.alerting.rules import RuleName, rule_of, shipped
from backend.alerting.signals import HistorySignal, ServiceSignal, SourceSignal
from backend.domain.target import TargetState
from tests.support.alert_signals import target_signal
from tests.support.observations import NOW


def _rule(name, **thresholds):
    settings = shipped(rule_of(name))
    return replace(settings, thresholds=dict(settings.thresholds) | thresholds)


@pytest.mark.parametrize(
    ("changes", "unreachable", "stale"),
    [
        ({}, ReadingKind.CLEAR, ReadingKind.CLEAR),
        ({"state": "unreachable", "reason": "cannot connect"}, ReadingKind.ACTIVE, ReadingKind.CLEAR),
        ({"state": "malformed"}, ReadingKind.ACTIVE, ReadingKind.CLEAR),
        ({"state": "silent", "is_pushed": True}, ReadingKind.ACTIVE, ReadingKind.CLEAR),
        # Its jobs that cannot be read have an alert each.
        ({"state": "partial"}, ReadingKind.CLEAR, ReadingKind.CLEAR),
        # All jobs of this target have ended, so the target is not expected to push data.
        ({"is_pushed": True, "last_attempt_at": NOW - timedelta(days=2)}, ReadingKind.CLEAR, ReadingKind.CLEAR),
        ({"state": "pending", "last_attempt_at": None}, ReadingKind.UNKNOWN, ReadingKind.ACTIVE),
        ({"last_attempt_at": NOW - timedelta(seconds=61)}, ReadingKind.CLEAR, ReadingKind.ACTIVE),
        # The target is configured to be polled once an hour, so data of the last 50 minutes is not stale.
        (
            {"last_attempt_at": NOW - timedelta(minutes=50), "poll_interval_s": 3600.0},
            ReadingKind.CLEAR,
            ReadingKind.CLEAR,
        ),
    ],
)
def test_an_unreachable_target_and_a_target_that_no_collector_reads(changes, unreachable, stale):
    signal = target_signal(**changes)

    assert read(_rule("TargetUnreachable"), signal).kind is unreachable
    assert read(_rule("CollectorStale"), signal).kind is stale


def test_the_alert_of_a_target_names_its_unwatched_jobs():
    signal = target_signal(state=TargetState.UNREACHABLE, reason="cannot connect", job_names=tuple("abcdefg"))

    text = read(_rule("TargetUnreachable"), signal).annotations["description"]

    assert "production has not answered for 1 h" in text
    assert "Cannot connect. These jobs are not watched: a, b, c, d, e and 2 more." in text


def test_the_watchdog_always_fires():
    assert read(shipped(rule_of(RuleName.WATCHDOG)), ServiceSignal(NOW)).kind is ReadingKind.ACTIVE


def test_a_history_that_will_be_shorter_than_promised_is_reported_with_the_size_that_it_needs():
    rule = _rule("HistoryTooShort")
    short = ServiceSignal(NOW, HistorySignal(2.94, 7.0, 2 * 2**30, 3 * 2**30 + 1))

    found = read(rule, short)

    assert (found.kind, found.value) == (ReadingKind.ACTIVE, 2.94 / 7)
    text = found.annotations["description"]
    assert text.startswith("The history will hold 2.9 days instead of 7. Its size limit is 2048 MiB. ")
    assert text.endswith("its age limits need 3073 MiB.")
    enough = ServiceSignal(NOW, HistorySignal(7.0, 7.0, 2**30, 2**30))
    assert read(rule, enough).kind is ReadingKind.CLEAR
    assert read(rule, ServiceSignal(NOW)).kind is ReadingKind.UNKNOWN
    assert read(_rule("HistoryTooShort", held_min_ratio=0.4), short).kind is ReadingKind.CLEAR


def test_a_wrong_file_of_targets_is_reported_with_what_is_wrong():
    rule = _rule("TargetsFileInvalid")
    good = SourceSignal("production", "/etc/targets.yaml")
    wrong = replace(good, problem="invalid targets file: /etc/targets.yaml:3: targets[0].urll: is not a key")

    found = read(rule, ServiceSignal(NOW, sources=(good, wrong)))

    assert (found.kind, found.value) == (ReadingKind.ACTIVE, 1.0)
    assert found.annotations["description"].endswith("/etc/targets.yaml:3: targets[0].urll: is not a key")
    assert read(rule, ServiceSignal(NOW, sources=(good,))).kind is ReadingKind.CLEAR
    assert read(rule, ServiceSignal(NOW)).kind is ReadingKind.CLEAR
