"""What is known of a job is stale from a stated age on, and every stale state has a reason that can be shown."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from backend.domain.freshness import (
    FRESHNESS_REASONS,
    FRESHNESS_WORDS,
    PUSHED_STALE_AFTER,
    UNMEASURED_STALE_AFTER,
    Freshness,
    NewestReading,
    Polls,
    freshness,
    stale_after,
)
from backend.domain.observation import JobState
from backend.domain.target import TargetState

_NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
_POLLS = Polls(interval_s=2.0, duration_ms=500.0)
_LIMIT = timedelta(seconds=14.5)
_READ = NewestReading(
    at=_NOW,
    is_pushed=False,
    state=JobState.RUNNING,
    is_listed=True,
    target=TargetState.OK,
    polls=_POLLS,
    has_collector=True,
)


def _after(age, **changes):
    return freshness(replace(_READ, **changes), _NOW + age)


def test_a_polled_job_is_stale_after_two_polls_the_time_of_one_and_ten_seconds():
    assert stale_after(_POLLS, is_pushed=False) == _LIMIT
    assert _after(_LIMIT) is Freshness.FRESH
    assert _after(_LIMIT + timedelta(milliseconds=1)) is Freshness.NOT_READ


def test_a_job_that_is_read_once_an_hour_is_not_stale_after_a_minute():
    assert _after(timedelta(minutes=61), polls=Polls(interval_s=3600.0)) is Freshness.FRESH


def test_a_collector_that_stays_slow_does_not_make_old_readings_fresh():
    slow = Polls(interval_s=20.0, duration_ms=15_000.0, set_interval_s=2.0)
    assert stale_after(slow, is_pushed=False) == timedelta(seconds=16)
    assert _after(timedelta(seconds=20), polls=slow) is Freshness.NOT_READ


@pytest.mark.parametrize("interval_s", [None, 2.0, 3600.0])
def test_the_interval_that_a_collector_is_set_to_counts_whatever_was_measured(interval_s):
    hourly = Polls(interval_s=interval_s, duration_ms=500.0, set_interval_s=3600.0)
    assert stale_after(hourly, is_pushed=False) == timedelta(hours=2, seconds=10.5)


def test_a_target_whose_interval_is_not_measured_yet_has_a_limit_of_its_own():
    unmeasured = {"polls": Polls(), "has_collector": False}
    assert _after(UNMEASURED_STALE_AFTER, **unmeasured) is Freshness.FRESH
    assert _after(UNMEASURED_STALE_AFTER * 1.01, **unmeasured) is Freshness.NO_COLLECTOR


def test_a_job_that_pushes_is_stale_after_the_time_of_nine_events_whether_or_not_a_collector_runs():
    for has_collector in (True, False):
        pushed = {"is_pushed": True, "has_collector": has_collector}
        assert _after(PUSHED_STALE_AFTER, **pushed) is Freshness.FRESH
        assert _after(PUSHED_STALE_AFTER * 1.01, **pushed) is Freshness.JOB_SILENT


@pytest.mark.parametrize("age", [timedelta(), timedelta(days=3)])
def test_a_job_that_has_ended_does_not_become_stale(age):
    assert _after(age, state=JobState.ENDED, has_collector=False) is Freshness.FINAL


def test_a_job_that_its_target_no_longer_lists_is_gone():
    assert _after(timedelta(), state=JobState.ENDED, is_listed=False) is Freshness.JOB_GONE


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, Freshness.NOT_READ),
        ({"has_collector": False}, Freshness.NO_COLLECTOR),
        ({"target": TargetState.UNREACHABLE}, Freshness.TARGET_UNREACHABLE),
        ({"target": TargetState.MALFORMED}, Freshness.TARGET_MALFORMED),
        ({"target": TargetState.PAUSED}, Freshness.TARGET_PAUSED),
        ({"state": JobState.UNREADABLE}, Freshness.JOB_UNREADABLE),
        # Without a collector, nobody knows whether the target still does not answer.
        ({"has_collector": False, "target": TargetState.UNREACHABLE}, Freshness.NO_COLLECTOR),
        ({"has_collector": False, "state": JobState.UNREADABLE}, Freshness.NO_COLLECTOR),
        # A user who paused a target knows why its jobs are old.
        ({"has_collector": False, "target": TargetState.PAUSED}, Freshness.TARGET_PAUSED),
    ],
)
def test_an_old_reading_names_the_cause_that_explains_it(changes, found):
    assert _after(timedelta(minutes=1), **changes) is found


def test_a_first_failed_poll_does_not_make_a_reading_stale_that_is_young():
    assert _after(timedelta(seconds=3), target=TargetState.UNREACHABLE) is Freshness.FRESH


def test_a_job_that_is_listed_and_cannot_be_read_is_stale_although_its_reading_is_young():
    assert _after(timedelta(), state=JobState.UNREADABLE) is Freshness.JOB_UNREADABLE


def test_a_reading_from_the_future_of_another_clock_is_current():
    assert _after(timedelta(seconds=-30)) is Freshness.FRESH


def test_every_state_has_a_word_and_every_stale_one_a_reason():
    assert set(FRESHNESS_WORDS) == set(Freshness)
    assert set(FRESHNESS_REASONS) == {state for state in Freshness if state.is_stale}
