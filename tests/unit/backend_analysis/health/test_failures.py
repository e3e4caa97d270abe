"""Tests of which failed checkpoints count against a job."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.analysis.health.failures import without_aborted
from backend.analysis.verdict.verdict import diagnose
from backend.domain.failure import FailureReason
from backend.domain.observation import JobState
from backend.domain.verdict import Health
from tests.support.handwritten_jobs import LAST, SOURCE, START, completed, detail, failed, job, quick

TWO = [quick(1), quick(2)]
SUSPENDED = FailureReason.COORDINATOR_SUSPENDED


def ended(*rows, state="CANCELED", **more):
    return job([*TWO, *rows], state=JobState.ENDED, engine_state=state, restart_count=1, **more)


@pytest.mark.parametrize("reason", [SUSPENDED, FailureReason.TASK_FAILURE, FailureReason.REGION_RESTARTING])
def test_the_last_checkpoints_that_the_end_of_the_job_aborts_are_no_failures(reason):
    evidence = ended(failed(3, reason=reason), failed(4, reason=reason), exceptions=((START, "an earlier restart"),))

    assert diagnose(evidence).health is Health.FAILING
    assert [c.header.checkpoint_id for c in without_aborted(evidence).checkpoints] == [1, 2]
    assert diagnose(without_aborted(evidence)).health is Health.TOO_FEW


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (ended(failed(3, reason=SUSPENDED), state="FAILED"), "the job failed"),
        (ended(failed(3, reason=SUSPENDED), exceptions=((START + timedelta(seconds=16), "boom"),)), "a restart"),
        (ended(failed(3, reason=FailureReason.EXPIRED)), "another reason"),
        (ended(failed(3, reason=SUSPENDED), quick(4)), "not among the last"),
        (job([*TWO, failed(3, reason=SUSPENDED)], state=JobState.RUNNING, engine_state="RUNNING"), "it runs"),
        (job([*TWO, failed(3, reason=SUSPENDED)]), "its state is not known"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_other_failures_of_an_ended_job_stay(evidence, why):
    assert without_aborted(evidence) is evidence, why


def declined(number, subtask, reason=FailureReason.ASYNC_FAILURE):
    rows = [detail(SOURCE, first=[None if i == subtask else 5 for i in range(4)]), detail(LAST, first=[5] * 4)]
    return failed(number, *rows, reason=reason, after_ms=20)


def after_finish(number, subtask):
    """Build a completed checkpoint before which a source subtask had finished."""
    own = detail(SOURCE, first=[None if i == subtask else 5 for i in range(4)])
    acks = tuple(0 if i == subtask else 5 for i in range(4))
    return completed(number, replace(own, ack_delay_ms=acks), detail(LAST, first=[5] * 4))


@pytest.mark.parametrize("reason", [FailureReason.DECLINED, FailureReason.ASYNC_FAILURE, FailureReason.TASK_FAILURE])
def test_a_checkpoint_that_waited_only_for_a_subtask_that_had_just_finished_is_no_failure(reason):
    evidence = job([*TWO, declined(3, 1, reason), after_finish(4, 1), after_finish(5, 1)])

    assert [c.header.checkpoint_id for c in without_aborted(evidence).checkpoints] == [1, 2, 4, 5]
    other = job([*TWO, declined(3, 1, reason), after_finish(4, 2)])
    assert without_aborted(other) is other
    late = job([*TWO, declined(3, 1, FailureReason.EXPIRED), after_finish(4, 1)])
    assert without_aborted(late) is late
