"""Tests of what pages show about a job, an alert or a fleet that is stale."""

from __future__ import annotations

from datetime import timedelta

import pytest

from backend.contracts.freshness import StaleOut
from backend.domain.freshness import FRESHNESS_REASONS, Freshness
from backend.domain.verdict import Health
from dashboard.components import freshness
from tests.support.api_examples import example, stale
from tests.support.dash_calls import texts

_FRESH = example("job").freshness


@pytest.mark.parametrize("value", [None, _FRESH, stale(Freshness.FINAL)])
def test_a_current_document_has_no_note(value):
    assert freshness.note(value, "This job") is None


def test_only_a_document_that_cannot_change_is_marked_as_final():
    marks = {s: freshness.final(stale(s)) for s in Freshness}
    assert [s for s, mark in marks.items() if mark is not None] == [Freshness.FINAL]
    assert freshness.final(None) is None


def test_two_documents_are_final_only_together_and_each_stale_subject_has_one_note():
    final, gone = stale(Freshness.FINAL), stale(Freshness.NO_COLLECTOR)

    def marks(*sides):
        return [getattr(part, "data-stale") for part in freshness.of_sides(sides)]

    assert marks(("This job", final), ("This job", final)) == ["final"]
    assert marks(("This job", final), ("This job", _FRESH)) == marks(("a", final), ("b", None)) == []
    assert marks(("This job", gone), ("This job", gone)) == ["page"]
    assert marks(("a", gone), ("b", gone)) == ["page", "page"]


@pytest.mark.parametrize("state", [s for s in Freshness if s.is_stale])
def test_the_note_names_the_reason_of_each_stale_state(state):
    words = texts(freshness.note(stale(state), "This job"))
    assert FRESHNESS_REASONS[state] in words
    assert "What to do" in words or state not in freshness._RUNBOOKS


def test_a_note_without_the_time_of_a_reading_invents_none():
    words = texts(freshness.note(stale(Freshness.JOB_UNREADABLE, has_time=False), "This job"))
    assert words.startswith("This job is stale: what the engine reports about the job cannot be read.")


def test_an_alert_that_is_not_evaluated_was_last_evaluated_and_not_read():
    note = freshness.note(stale(Freshness.NO_EVALUATOR), "The job of this alert", evaluated="This alert")
    assert texts(note).startswith("This alert was last evaluated")


def test_the_note_of_the_fleet_counts_the_rows_by_reason_and_names_their_targets():
    at = _FRESH.read_at + timedelta(seconds=1)

    def group(state, count, names, targets):
        reason = FRESHNESS_REASONS[state]
        return StaleOut(
            state=state, reason=reason, job_count=count, target_names=names, target_count=targets, read_at=at
        )

    groups = [
        group(Freshness.NO_COLLECTOR, 7, ["a", "b", "c"], 5),
        group(Freshness.JOB_SILENT, 1, ["spark"], 1),
    ]
    words = texts(freshness.fleet_note(groups, 9))
    assert words.startswith("8 of 9 jobs are stale")
    assert "7 jobs of a, b, c and 2 more; no collector runs" in words
    assert "1 job of spark" in words
    assert freshness.fleet_note([], 9) is None


def test_only_an_outage_changes_the_word_live_of_the_fleet():
    def scope(state):
        one = StaleOut(state=state, reason="", job_count=1, target_names=["a"], target_count=1, read_at=None)
        return getattr(freshness.fleet_note([one], 2), "data-stale")

    assert scope(Freshness.NO_COLLECTOR) == "rows"
    assert scope(Freshness.JOB_GONE) == scope(Freshness.TARGET_PAUSED) == "expected"


@pytest.mark.parametrize("health", list(Health))
def test_the_past_of_each_health_is_a_phrase(health):
    assert freshness.was(health).split()[0] in ("was", "had")


def test_a_verdict_about_the_silence_itself_is_not_in_the_past():
    assert freshness.is_past(stale(Freshness.NO_COLLECTOR))
    assert not freshness.is_past(stale(Freshness.JOB_SILENT))
    assert not freshness.is_past(_FRESH)
