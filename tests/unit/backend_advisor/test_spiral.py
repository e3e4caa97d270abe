"""Tests of R-REC-1: whether a checkpoint completes between two failures, and what that limits."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.advisor.advice import Interval, Recommendation
from backend.advisor.spiral import until_next_checkpoint_ms
from backend.domain.engines import RUNTIME
from tests.support.advised_jobs import (
    UNALIGNED,
    advised,
    in_flight_of,
    persisting,
    readings,
    recommended,
    slow_run,
)
from tests.support.handwritten_jobs import START, quick


def failing_every(seconds):
    """Return the exceptions of a job that fails every ``seconds``."""
    return tuple((START - timedelta(seconds=seconds * n), "lost") for n in reversed(range(9)))


def test_the_next_checkpoint_needs_the_restart_the_restore_the_replay_and_its_own_duration():
    found = until_next_checkpoint_ms(Interval(1_000, 500, 2_000), Interval(4_000, 2_000, 8_000), 10_000)

    assert found == Interval(3_000 + 4_000 + 5_000 + 2_000, 1_000 + 2_000 + 1_000, 15_000 + 8_000 + 10_000 + 4_000)


@pytest.mark.parametrize(("seconds", "is_met"), [(600, True), (5, False)])
def test_r_rec_1_is_a_condition_of_unaligned_checkpoints_if_the_failures_are_known(seconds, is_met):
    found = recommended(advised(slow_run(), exceptions=failing_every(seconds)))
    (condition,) = [p for p in found.preconditions if "R-REC-1" in p.text]

    assert condition.is_met is is_met
    assert ("now it fails every 5.0 s" in condition.text) is not is_met
    assert not any("R-REC-1" in p.text for p in recommended(advised(slow_run())).preconditions)


@pytest.mark.parametrize(("seconds", "speaks"), [(60, False), (11, True)])
def test_r_rec_1_limits_in_flight_data_whose_restore_leaves_no_time_for_a_checkpoint(seconds, speaks):
    """Reading and processing 24 MB takes 7 s, less than the ten seconds that R-CAP-1 allows."""
    config = replace(UNALIGNED, timeout_ms=60_000)
    run = [persisting(quick(n, 50), 2_000_000, 600) for n in range(1, 9)]
    known = readings(rate_bytes_per_s=1_000_000)
    found = in_flight_of(advised(run, known, config=config, engine=RUNTIME, exceptions=failing_every(seconds)))

    assert isinstance(found, Recommendation) is speaks, found
    if speaks:
        assert found.rules == ("R-CAP-1", "R-REC-1")
        assert "fails again before it has completed a checkpoint" in found.reason
