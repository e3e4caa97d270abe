"""Tests of the message that a file or a discovery of targets is wrong."""

from __future__ import annotations

from backend.contracts.status import StatusOut
from dashboard.components.unread_sources import banner, gaps
from tests.support.api_examples import example
from tests.support.dash_calls import texts


def _source(**changed):
    (found,) = StatusOut.model_validate(example("status")).unread_sources
    return found.model_copy(update=changed)


def test_the_message_has_the_place_the_problem_and_what_is_read_instead():
    (message,) = banner([_source()])

    said = texts(message)
    assert "The newest list of targets of /etc/barrierscope/targets.yaml is not used" in said
    assert "targets.yaml:3: targets[0].intervall: is not a key of this file; did you mean interval?" in said
    assert "invalid targets file" not in said
    assert "Barrierscope still reads the 2 targets of the list that was good last," in said
    assert "Once the problem is solved, the new list is used within a minute, without a restart." in said
    assert "What to do" in said


def test_one_target_is_counted_in_the_singular_and_a_list_that_was_never_read_keeps_none():
    assert "still reads the 1 target of the list" in texts(banner([_source(target_count=1)]))
    assert "No target of it is read yet." in texts(banner([_source(read_at=None, target_count=None)]))


def test_what_a_source_left_out_and_a_missing_history_say_that_the_targets_are_current():
    (source,) = StatusOut.model_validate(example("status")).partial_sources

    said = texts(gaps([source]))
    assert "Left out: SparkApplication reports/daily" in said
    assert "The history of the jobs is not read: pods in namespace payments: HTTP 403" in said
    assert "The targets are current." in said
    assert "current" not in texts(gaps([source.model_copy(update={"history_problem": None})]))
    assert gaps([]) == []


def test_five_sentences_on_what_was_left_out_are_shown_whole():
    (source,) = StatusOut.model_validate(example("status")).partial_sources
    left_out = "; ".join(
        f"namespace n{n} is not read, " + "because a right is missing " * 8 + f"end {n}" for n in range(5)
    )

    assert left_out in texts(gaps([source.model_copy(update={"left_out": left_out})]))


def test_sources_beyond_the_third_are_counted():
    shown = banner([_source(source=str(n)) for n in range(5)])

    assert len(shown) == 4
    assert "2 more sources of targets are wrong" in texts(shown)
    assert banner([]) == []
