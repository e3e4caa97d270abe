"""Conditions that the listed checkpoints do not show: refused checkpoints, growth over days, and lost output."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.alerting.conditions import read
from backend.alerting.lifecycle import LinkedCheckpoint, ReadingKind
from backend.alerting.rules import rule_of, shipped
from backend.alerting.signals import Place
from backend.domain import losses
from backend.domain.growth import Grown
from tests.support.alert_signals import RUN, growth, job_signal, refusal
from tests.support.observations import NOW


def _rule(name, **thresholds):
    settings = shipped(rule_of(name))
    return replace(settings, thresholds=dict(settings.thresholds) | thresholds)


def test_checkpoints_that_fail_before_they_start_have_a_rule_of_their_own():
    signal = job_signal(*["completed"] * 5, refusal=refusal(refused=120))
    reading = read(_rule("CheckpointsRefused"), signal)

    assert (reading.kind, reading.value) == (ReadingKind.ACTIVE, 120)
    assert reading.reason == "orders: 120 checkpoints in a row failed without starting"
    assert "None has begun for 2 h." in reading.annotations["description"]
    assert reading.checkpoints == (LinkedCheckpoint(RUN, 1),), "the newest completed one"
    assert read(_rule("ConsecutiveFailures"), signal).kind is ReadingKind.CLEAR


def test_checkpoints_that_the_tasks_decline_one_after_the_other_are_refused():
    reading = read(_rule("CheckpointsRefused"), job_signal("completed", refusal=refusal(declined=4)))

    assert reading.reason == "orders: 4 checkpoints in a row were declined by a task"


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (None, ReadingKind.CLEAR),
        # A job that starts, restarts or rescales refuses one or two.
        ({"refused": 2}, ReadingKind.CLEAR),
        ({"refused": 3}, ReadingKind.ACTIVE),
        ({"refused": 2, "declined": 1}, ReadingKind.ACTIVE),
        # At an interval of 5 s, three are refused while a job starts.
        ({"refused": 3, "silent_ms": 29_000.0}, ReadingKind.CLEAR),
        # Flink before 1.14 does not count them.
        ({}, ReadingKind.ACTIVE),
    ],
)
def test_a_few_refused_checkpoints_are_no_alert(found, kind):
    signal = job_signal("completed", refusal=None if found is None else refusal(**found))

    assert read(_rule("CheckpointsRefused"), signal).kind is kind


def test_refused_checkpoints_that_the_engine_does_not_count_are_told_by_the_silence():
    reading = read(_rule("CheckpointsRefused"), job_signal("completed", refusal=refusal()))

    assert reading.reason == "orders: no checkpoint has begun for 2 h, and a task has finished"
    assert reading.value == 7200


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (None, ReadingKind.CLEAR),
        (growth(), ReadingKind.ACTIVE),
        (growth(input_ratio=None), ReadingKind.CLEAR),
        (growth(input_ratio=None, timeout_in=timedelta(days=2)), ReadingKind.ACTIVE),
        # It may just fill up, unless it will have failed by then.
        (growth(is_filling=True), ReadingKind.CLEAR),
        (growth(is_filling=True, timeout_in=timedelta(days=9)), ReadingKind.CLEAR),
        (growth(is_filling=True, timeout_in=timedelta(days=2)), ReadingKind.ACTIVE),
        (growth(what=Grown.DURATION, before=9000.0, after=20_000.0), ReadingKind.ACTIVE),
    ],
)
def test_growth_is_an_alert_unless_the_input_may_explain_it_or_the_state_may_just_fill_up(found, kind):
    assert read(_rule("StateGrowing"), job_signal("completed", growth=found)).kind is kind


def test_an_alert_on_growth_says_it_in_a_sentence_and_points_at_no_vertex_if_none_is_known():
    reading = read(_rule("StateGrowing"), job_signal("completed", growth=growth(), place=Place()))

    assert reading.value == pytest.approx(2.5 / 1.2)
    assert reading.reason.startswith("orders: the state doubled in 2 days at the same input: 1.2 GB on ")
    assert reading.annotations["description"] == f"{reading.reason}."
    more = _rule("StateGrowing", growth_min_ratio=3.0)
    assert read(more, job_signal("completed", growth=growth())).kind is ReadingKind.CLEAR


def test_growth_is_unknown_until_the_history_is_read():
    signal = job_signal("completed", is_growth_read=False)
    assert read(_rule("StateGrowing"), signal).kind is ReadingKind.UNKNOWN


@pytest.mark.parametrize(
    ("seconds_ago", "changes", "kind"),
    [
        ((), {}, ReadingKind.CLEAR),
        ((10,), {}, ReadingKind.ACTIVE),
        ((10,), {"lost_min_count": 2}, ReadingKind.CLEAR),
        ((10, 20), {"lost_min_count": 2}, ReadingKind.ACTIVE),
        ((3_610,), {}, ReadingKind.CLEAR),
        ((3_610,), {"window_s": 7_200.0}, ReadingKind.ACTIVE),
    ],
)
def test_lost_output_is_paged_although_no_checkpoint_fails(seconds_ago, changes, kind):
    text = f"sink/0: {losses.EXCEPTION}: {losses.timed_out(300, 1, 1_000)}"
    lost = tuple(losses.read(NOW - timedelta(seconds=s), text) for s in seconds_ago)
    reading = read(_rule("RowsLost", **changes), job_signal(*["completed"] * 5, losses=lost))

    assert reading.kind is kind, reading.reason
    if kind is ReadingKind.ACTIVE:
        count = len(seconds_ago)
        held = f"{300 * count} rows in {count} transaction{'s' if count > 1 else ''}"
        assert reading.annotations["summary"].startswith(f"orders: output is lost: {held} since ")
        assert "older than their timeout of 1.0 s" in reading.annotations["description"]
        assert reading.value == count


def test_commits_that_a_connector_gave_up_are_paged_without_a_number_of_rows():
    lost = (losses.Loss(NOW, losses.given_up("Sink: Committer", 3), 3, None, None),)
    reading = read(_rule("RowsLost"), job_signal(*["completed"] * 5, losses=lost))

    assert (reading.kind, reading.value) == (ReadingKind.ACTIVE, 3)
    assert reading.annotations["summary"].startswith("orders: output is most likely lost: 3 transactions since ")
    assert "these commits failed and are not tried again" in reading.annotations["description"]
