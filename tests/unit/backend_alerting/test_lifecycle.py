"""Tests of when an alert becomes pending, fires and is resolved."""

from __future__ import annotations

from datetime import timedelta

import pytest

from backend.alerting.conditions import read
from backend.alerting.lifecycle import (
    CHECKPOINTS_KEPT,
    OVER,
    AlertState,
    Identity,
    LinkedCheckpoint,
    Reading,
    ReadingKind,
    Timing,
    step,
    summary_of,
)
from backend.alerting.rules import rule_of, shipped
from backend.domain.ids import RunId
from tests.support.alert_signals import target_signal
from tests.support.observations import NOW

_WHO = Identity("CheckpointExpired", "warning", "f", {"alertname": "CheckpointExpired"})


def _run(timing, *readings):
    """Evaluate these readings (second, kind) in order, and return the state of the alert after each one."""
    alert, states = None, []
    for second, kind in readings:
        alert, _ = step(alert, _WHO, Reading(kind, "so it is"), timing, NOW + timedelta(seconds=second))
        states.append(None if alert is None else alert.state)
        if alert is not None and not alert.state.is_open:
            alert = None
    return states


def test_an_alert_fires_as_soon_as_its_condition_has_held_for_for_s():
    active = ReadingKind.ACTIVE
    fires_at = _run(Timing(for_s=10), (0, active), (9.9, active), (10, active))
    assert fires_at == [AlertState.PENDING, AlertState.PENDING, AlertState.FIRING]
    assert _run(Timing(for_s=0.5), (0, active)) == [AlertState.PENDING]


@pytest.mark.parametrize("kind", [ReadingKind.CLEAR, ReadingKind.GONE])
def test_a_condition_that_ends_before_the_alert_fires_makes_it_inactive(kind):
    assert _run(Timing(for_s=10), (0, ReadingKind.ACTIVE), (5, kind)) == [AlertState.PENDING, AlertState.INACTIVE]


def test_an_alert_resolves_as_soon_as_it_was_clear_for_keep_firing_for_s():
    clear = ReadingKind.CLEAR
    states = _run(Timing(keep_firing_for_s=10), (0, ReadingKind.ACTIVE), (1, clear), (10.9, clear), (11, clear))
    assert states == [AlertState.FIRING, AlertState.FIRING, AlertState.FIRING, AlertState.RESOLVED]


def test_the_summary_of_an_alert_that_still_fires_says_what_has_contradicted_it():
    """A page said "checkpoint 693 will probably exceed its timeout" while checkpoint 699 had taken 225 ms."""
    warned = Reading(ReadingKind.ACTIVE, "so it is", annotations={"summary": "checkpoint 693 will expire"})
    over = Reading(ReadingKind.UNKNOWN, "one completed", annotations={OVER: "no checkpoint is running"})
    stale = Reading(ReadingKind.UNKNOWN, "its target does not answer")
    clear = Reading(ReadingKind.CLEAR, "two completed")
    alert, said = None, []
    for second, reading in enumerate([warned, stale, over, stale, clear, warned]):
        alert, _ = step(alert, _WHO, reading, Timing(keep_firing_for_s=10), NOW + timedelta(seconds=second))
        said.append(summary_of(alert))

    plain = "checkpoint 693 will expire"
    ended = f"{plain} (no longer: no checkpoint is running)"
    assert said == [plain, plain, ended, ended, f"{plain} (no longer: two completed)", plain]


def test_an_episode_links_to_its_newest_checkpoints_only():
    alert = None
    for number in range(CHECKPOINTS_KEPT + 5):
        reading = Reading(ReadingKind.ACTIVE, "again", checkpoints=(LinkedCheckpoint(RunId("r"), number),))
        alert, _ = step(alert, _WHO, reading, Timing(), NOW + timedelta(seconds=number))

    assert [c.checkpoint_id for c in alert.checkpoints] == list(range(5, CHECKPOINTS_KEPT + 5))


@pytest.mark.parametrize(
    ("read_s", "words"),
    [(90, "It was last read 1 min 30 s ago"), (None, "It has never been read; it was added 2 min ago")],
)
def test_a_stale_target_says_when_it_was_read_last_or_that_it_never_was(read_s, words):
    last = None if read_s is None else NOW - timedelta(seconds=read_s)
    signal = target_signal(last_attempt_at=last, added_at=NOW - timedelta(minutes=2))

    reading = read(shipped(rule_of("CollectorStale")), signal)

    assert reading.kind is ReadingKind.ACTIVE
    assert words in reading.annotations["description"]


def test_a_collector_is_late_only_after_the_threshold():
    signal = target_signal(last_attempt_at=NOW - timedelta(seconds=60))

    assert read(shipped(rule_of("CollectorStale")), signal).kind is ReadingKind.CLEAR
