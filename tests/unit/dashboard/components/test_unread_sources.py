"""Tests of the message that a file or a discovery of targets is wrong."""

from __future__ import annotations

from backend.contracts.status import StatusOut
from dashboard.components.unread_sources import banner
from tests.support.api_examples import example
from tests.support.dash_calls import texts


def _source(**changed):
    (found,) = StatusOut.model_validate(example("status")).unread_sources
    return found.model_copy(update=changed)


def test_the_message_has_the_place_the_problem_and_what_is_read_instead():
    (message,) = banner([_source()])

    said = texts(message)
    assert "The newest targets of /etc/barrierscope/targets.yaml are not all read" in said
    assert "targets.yaml:3: targets[0].intervall: is not a key of this file; did you mean interval?" in said
    assert "invalid targets file" not in said
    assert "The 2 targets of its last good reading," in said
    assert "are kept. Correct it there" in said
    assert "What to do" in said


def test_one_target_is_counted_in_the_singular_and_a_list_that_was_never_read_keeps_none():
    assert ", is kept." in texts(banner([_source(target_count=1)]))
    assert "No target of it is read yet." in texts(banner([_source(read_at=None, target_count=None)]))


def test_sources_beyond_the_third_are_counted():
    shown = banner([_source(source=str(n)) for n in range(5)])

    assert len(shown) == 4
    assert "2 more sources of targets are wrong" in texts(shown)
    assert banner([]) == []
