"""Tests of the mode of a job and of its checkpoints: at-least-once is neither aligned nor unaligned."""

from __future__ import annotations

from dataclasses import replace

from backend.domain.advice import Mode
from backend.domain.checkpoint import CheckpointConfig, Protocol
from backend.domain.checkpoint_mode import AT_LEAST_ONCE, MODE_WORDS, mode_of, mode_of_checkpoint
from dashboard.components import status
from dashboard.figures.timeline.marks import mode_of as mode_on_the_timeline
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
