"""Tests of whether an open checkpoint is progressing, slow or stuck.

The open checkpoint is compared with completed ones, or with the timeout if there are none.
"""

from __future__ import annotations

import pytest

from backend.analysis.health.progress import AckCurve, Judged, OpenCheckpoint, ack_curve, elapsed_of_last_ack_ms, judge
from backend.domain.checkpoint import CheckpointStatus
from tests.support.handwritten_jobs import LAST, MIDDLE, completed, detail, failed, in_progress

PAST = [AckCurve((100, 200, 1_000, 4_000)), AckCurve((120, 220, 1_200, 4_400))]


@pytest.mark.parametrize(
    ("elapsed", "acknowledged", "last_ack", "state"),
    [
        (900, 2, 210, Judged.PROGRESSING),
        (1_700, 2, 210, Judged.PROGRESSING),
        (1_900, 2, 210, Judged.SLOW),
        (9_000, 2, 210, Judged.SLOW),
        (9_900, 2, 210, Judged.STUCK),
        (4_500, 3, 1_100, Judged.PROGRESSING),
        (9_000, 4, 4_000, Judged.PROGRESSING),
        (900, 0, None, Judged.PROGRESSING),
        (1_100, 0, None, Judged.SLOW),
    ],
)
def test_an_open_checkpoint_is_compared_with_completed_ones(elapsed, acknowledged, last_ack, state):
    found = judge(OpenCheckpoint(elapsed, acknowledged, 4, last_ack), PAST)

    assert found.state is state
    assert found.typical_duration_ms == 4_200


def test_the_rule_states_its_numbers():
    assert "2 of 4 acknowledged after 1.9 s" in judge(OpenCheckpoint(1_900, 2, 4, 210), PAST).rule
    assert "no acknowledgement for 9.7 s" in judge(OpenCheckpoint(9_900, 2, 4, 210), PAST).rule


@pytest.mark.parametrize(
    ("elapsed", "last_ack", "state"),
    [(1_000, 100, Judged.PROGRESSING), (1_700, 1_600, Judged.SLOW), (1_700, 100, Judged.STUCK)],
)
def test_without_completed_checkpoints_it_is_compared_with_the_timeout(elapsed, last_ack, state):
    assert judge(OpenCheckpoint(elapsed, 8, 12, last_ack, timeout_ms=3_000), []).state is state


def test_without_completed_checkpoints_and_timeout_nothing_is_slow():
    assert judge(OpenCheckpoint(999_999, 1, 4), []).state is Judged.PROGRESSING


def test_a_checkpoint_that_has_ended_is_not_judged():
    found = judge(OpenCheckpoint(10, 4, 4, status=CheckpointStatus.FAILED), PAST)

    assert (found.state, found.rule) == (Judged.ENDED, "the checkpoint is failed")


def test_a_curve_needs_every_acknowledgement_of_a_completed_checkpoint():
    whole = completed(1, detail(MIDDLE, first=[30, 10]), detail(LAST, first=[20, 40]))

    assert ack_curve(whole) == AckCurve((10, 20, 30, 40))
    assert ack_curve(failed(1, detail(MIDDLE, first=[30, 10]))) is None
    assert ack_curve(completed(1, detail(MIDDLE, first=[30, None]))) is None
    assert ack_curve(completed(1)) is None


def test_the_last_acknowledgement_of_an_open_checkpoint_comes_from_its_detail():
    assert elapsed_of_last_ack_ms(in_progress(1, detail(MIDDLE, first=[30, None]))) == 30
    assert elapsed_of_last_ack_ms(in_progress(1, detail(MIDDLE, first=[None, None]))) is None
