"""Tests of the predicted finish of a checkpoint: its interval contains the real finish as often as promised.

If there is no prediction, the reason is given in plain words.
"""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.analysis.finish import PastCheckpoint, past_checkpoint, predict
from backend.analysis.progress import OpenCheckpoint
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.progress import Outlook
from tests.support.advised_jobs import expired_run, slow_run


def predicted(open_, past):
    found = predict(open_, past)
    assert found is not None
    return found


def completed(*acks_ms):
    return PastCheckpoint(acks_ms, len(acks_ms), acks_ms[-1])


def expired(*acks_ms, subtasks=4):
    return PastCheckpoint(acks_ms, subtasks, inf)


def opened(elapsed_ms, acknowledged, last_ack_ms=None, timeout_ms=60_000, **more):
    return OpenCheckpoint(elapsed_ms, acknowledged, 4, last_ack_ms, timeout_ms, **more)


PAST = [completed(10, 20, 30, 1_000 * n) for n in range(1, 10)]


def test_the_finish_is_the_middle_of_what_earlier_checkpoints_needed_from_the_same_acknowledgement():
    found = predicted(opened(500, 3, 130), PAST)

    # The third acknowledgement is 100 ms later than in the earlier checkpoints.
    assert (found.outlook, found.likely_ms, found.low_ms, found.high_ms) == (Outlook.FINISHES, 5_100, 1_100, 9_100)
    assert (found.compared_count, found.coverage_ratio) == (9, 0.8)
    assert found.words == (
        "will probably finish 5.1 s after its trigger (1.1 s to 9.1 s, which holds in about 80 % of cases;"
        " from 9 checkpoints that had come as far)"
    )


def test_earlier_checkpoints_that_would_have_ended_by_now_are_left_out():
    found = predicted(opened(4_500, 3, 30), PAST)

    assert (found.likely_ms, found.low_ms, found.compared_count) == (7_000, 5_000, 5)
    late = predicted(opened(5_500, 3, 30), PAST)
    assert (late.outlook, late.likely_ms) == (Outlook.UNKNOWN, None)
    assert late.words == (
        "not predictable: at 3 of 4 acknowledgements after 5.5 s, only 4 of the last 9 checkpoints can be compared,"
        " 5 are needed"
    )


def test_expired_checkpoints_count_as_ones_that_reach_the_timeout():
    most = predicted(opened(500, 3, 30, 10_000), [*PAST[:4], *[expired(10, 20, 30)] * 5])
    few = predicted(opened(500, 3, 30, 10_000), [*PAST[:5], *[expired(10, 20, 30)] * 4])
    unlike = predicted(opened(500, 3, 30, 10_000), [*PAST[:5], *[expired(10, 20)] * 9])

    assert (most.outlook, most.likely_ms, most.low_ms) == (Outlook.TIMES_OUT, None, 1_000)
    assert most.words == (
        "will probably reach its timeout of 10.0 s: of 9 earlier checkpoints that had come as far, 5 expired"
    )
    assert (few.outlook, few.high_ms) == (Outlook.FINISHES, None)
    assert "to the timeout" in few.words
    assert unlike.compared_count == 5, "checkpoints that did not come as far say nothing about this one"


def test_a_finish_after_the_timeout_is_a_timeout():
    found = predicted(opened(500, 3, 30, 2_500), PAST)

    assert (found.outlook, found.low_ms) == (Outlook.TIMES_OUT, 1_000)


def test_only_checkpoints_that_expired_are_said_to_have_expired():
    quick = [completed(10, 20, 30, 9_000 + 100 * n) for n in range(10)]
    late = predicted(opened(55_000, 3, 55_000), quick)
    mixed = predicted(opened(55_000, 3, 55_000), [*quick[:8], *[expired(10, 20, 30)] * 2])

    assert (late.outlook, mixed.outlook) == (Outlook.TIMES_OUT, Outlook.TIMES_OUT)
    assert late.words == (
        "will probably reach its timeout of 1 min: of 10 earlier checkpoints that had come as far,"
        " 10 took longer from there than the time left"
    )
    assert mixed.words.endswith("as far, 2 expired and 8 took longer from there than the time left")


def test_a_checkpoint_without_enough_to_compare_with_is_not_predictable_yet():
    none, few = predicted(opened(500, 0), []), predicted(opened(500, 0), PAST[:4])

    assert none.words == "not predictable yet: no earlier checkpoint of this job is known in detail"
    assert few.words == "not predictable yet: only 4 checkpoints to compare with, 5 are needed"


def test_an_ended_checkpoint_has_no_prediction():
    assert predict(opened(500, 3, status=CheckpointStatus.FAILED), PAST) is None
    assert predict(opened(500, 4), PAST) is None


def test_completed_and_expired_checkpoints_are_compared_and_others_are_not():
    slow, over = past_checkpoint(slow_run(1)[0]), past_checkpoint(expired_run(1)[0])

    assert (slow.end_ms, len(slow.acks_ms)) == (slow.acks_ms[-1], slow.subtask_count)
    assert (over.end_ms, len(over.acks_ms) < over.subtask_count) == (inf, True)


@given(
    past=st.lists(st.lists(st.integers(1, 90_000), min_size=7, max_size=7).map(sorted), min_size=5, max_size=12),
    elapsed_ms=st.integers(0, 59_999),
    acknowledged=st.integers(0, 6),
)
def test_a_prediction_is_after_the_present_and_before_the_timeout(past, elapsed_ms, acknowledged):
    open_ = OpenCheckpoint(elapsed_ms, acknowledged, 7, elapsed_ms // 2, 60_000)
    found = predicted(open_, [completed(*acks) for acks in past])

    for value in (found.low_ms, found.likely_ms, found.high_ms):
        assert value is None or elapsed_ms < value < 60_000
    if found.outlook is Outlook.FINISHES:
        assert found.low_ms <= found.likely_ms <= (found.high_ms or 60_000)


@pytest.mark.parametrize("count", range(8))
def test_a_share_is_the_same_count_again(count):
    assert completed(1, 2, 3, 4, 5, 6, 7).remaining_ms(count / 7) == 7 - count


def test_the_interval_holds_as_often_as_it_states():
    """Each checkpoint of a random series is predicted from the nine before it, at its third acknowledgement."""
    from random import Random

    drawn = Random(5)
    runs = [completed(10, 20, 30, 30 + round(drawn.lognormvariate(7, 0.8))) for _ in range(1_009)]
    held = 0
    for n in range(9, len(runs)):
        found = predicted(opened(30, 3, 30, 10**9), runs[n - 9 : n])
        held += found is not None and found.low_ms <= runs[n].end_ms <= found.high_ms

    assert held / 1_000 == pytest.approx(0.8, abs=0.04)
