"""Tests of the mode of a job and of its checkpoints: at-least-once is neither aligned nor unaligned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.domain.advice import Mode
from backend.domain.checkpoint import CheckpointConfig, CheckpointKind, Guarantee, QueryConsistency, query_consistency
from backend.domain.checkpoint_mode import (
    AT_LEAST_ONCE,
    MODE_WORDS,
    course_of_checkpoint,
    mode_of,
    mode_of_checkpoint,
)
from backend.domain.protocols import Protocol
from dashboard.components import status
from dashboard.figures.timeline.marks import mode_of as mode_on_the_timeline
from dashboard.figures.timeline.words import table
from tests.support.api_examples import example
from tests.support.handwritten_jobs import LAST, completed, detail

RELAXED = CheckpointConfig(mode="at_least_once", interval_ms=5_000, is_unaligned_enabled=False)
EXACT = replace(RELAXED, mode="exactly_once")


def test_an_at_least_once_job_and_each_of_its_checkpoints_have_a_mode_of_their_own():
    header = replace(completed(1, detail(LAST, first=[1, 2])).header, is_unaligned=False)

    assert mode_of(RELAXED) == mode_of_checkpoint(header, RELAXED) == AT_LEAST_ONCE
    assert mode_of(EXACT) == mode_of_checkpoint(header, EXACT) == Mode.ALIGNED
    assert mode_of_checkpoint(header) == Mode.ALIGNED
    # What is not known is not guessed.
    assert mode_of_checkpoint(replace(header, is_unaligned=None), RELAXED) is None
    assert mode_of(None) is None


def test_a_job_without_periodic_checkpoints_has_no_mode_although_flink_reports_at_least_once():
    off = replace(RELAXED, interval_ms=None, is_off=True)
    savepoint = replace(completed(1, detail(LAST, first=[1, 2])).header, is_unaligned=False)

    assert mode_of(off) is None
    assert mode_of_checkpoint(savepoint, off) == Mode.ALIGNED


def test_every_mode_has_words():
    assert set(MODE_WORDS) >= {*Mode, *Protocol, AT_LEAST_ONCE}


def test_the_badge_and_the_timeline_say_at_least_once():
    checkpoint = example("checkpoint").model_copy(update={"mode": AT_LEAST_ONCE})

    assert status.mode(AT_LEAST_ONCE).children[1] == "at least once"
    assert mode_on_the_timeline(checkpoint) == "at least once"


@pytest.mark.parametrize(
    ("is_unaligned", "changed", "course"),
    [
        (True, {"aligned_timeout_ms": 1_000}, "aligned, then unaligned after 1 s"),
        (True, {"aligned_timeout_ms": 1_250}, "aligned, then unaligned after 1250 ms"),
        (False, {"aligned_timeout_ms": 1_000}, "aligned"),
        (True, {"aligned_timeout_ms": 0}, "unaligned"),
        (False, {"is_unaligned_enabled": False, "inflight_cap_bytes": 64_000}, "aligned"),
        (None, {"aligned_timeout_ms": 1_000}, None),
    ],
)
def test_a_checkpoint_is_named_as_it_went(is_unaligned: bool | None, changed: dict[str, Any], course: str | None):
    header = replace(completed(1, detail(LAST, first=[1, 2])).header, is_unaligned=is_unaligned)

    assert course_of_checkpoint(header, replace(EXACT, **({"is_unaligned_enabled": True} | changed))) == course


@pytest.mark.parametrize(
    ("is_unaligned", "bound", "course"),
    [
        (False, 0, "aligned"),
        (True, 0, "unaligned"),
        (False, 1, "aligned, capped"),
        (True, 3, "unaligned, capped"),
        # The cap was set after the checkpoint, or an older version stored it.
        (False, None, "aligned"),
        (True, None, "unaligned"),
    ],
)
def test_a_cap_is_named_if_it_had_an_effect_and_not_if_nothing_was_in_flight(
    is_unaligned: bool, bound: int | None, course: str
):
    header = replace(completed(1, detail(LAST, first=[1, 2])).header, is_unaligned=is_unaligned, cap_bound_count=bound)
    config = replace(EXACT, is_unaligned_enabled=True, aligned_timeout_ms=0, inflight_cap_bytes=64_000)

    assert course_of_checkpoint(header, config) == course


def test_a_savepoint_of_a_job_with_a_timeout_and_a_checkpoint_of_an_unknown_job_are_named_by_their_mode():
    config = replace(EXACT, is_unaligned_enabled=True, aligned_timeout_ms=1_000)
    header = replace(completed(1, detail(LAST, first=[1, 2])).header, is_unaligned=False)

    assert course_of_checkpoint(replace(header, kind=CheckpointKind.SAVEPOINT), config) == "aligned"
    assert course_of_checkpoint(replace(header, is_unaligned=True)) == "unaligned"


def test_the_badge_and_the_timeline_name_a_switched_checkpoint_as_it_went():
    switched = example("checkpoint").model_copy(
        update={"mode": "unaligned", "course": "aligned, then unaligned after 1 s"}
    )

    assert status.mode(switched.mode, switched.course).children[1] == switched.course
    assert switched.course in table([switched]).rows[0]


def test_only_exactly_once_checkpoints_without_in_flight_data_are_consistent_for_queries():
    once, twice = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE

    assert query_consistency(once, is_unaligned=False) is QueryConsistency.ALL
    assert query_consistency(once, is_unaligned=True) is QueryConsistency.EMPTY
    assert query_consistency(None, is_unaligned=True) is QueryConsistency.EMPTY
    assert query_consistency(twice, is_unaligned=True) is QueryConsistency.NONE
    assert query_consistency(once, is_unaligned=None) is None
    assert query_consistency(None, is_unaligned=False) is None
