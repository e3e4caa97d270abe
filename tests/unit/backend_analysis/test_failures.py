"""Tests of which failed checkpoints count against a job."""

from __future__ import annotations

from datetime import timedelta

import pytest

from backend.analysis.failures import without_aborted_by_end
from backend.analysis.verdict import diagnose
from backend.domain.failure import FailureReason
from backend.domain.observation import JobState
from backend.domain.verdict import Health
from tests.support.handwritten_jobs import START, failed, job, quick

TWO = [quick(1), quick(2)]
SUSPENDED = FailureReason.COORDINATOR_SUSPENDED


def ended(*rows, state="CANCELED", **more):
    return job([*TWO, *rows], state=JobState.ENDED, engine_state=state, restart_count=1, **more)


@pytest.mark.parametrize("reason", [SUSPENDED, FailureReason.TASK_FAILURE, FailureReason.REGION_RESTARTING])
def test_the_last_checkpoints_that_the_end_of_the_job_aborts_are_no_failures(reason):
    evidence = ended(failed(3, reason=reason), failed(4, reason=reason), exceptions=((START, "an earlier restart"),))

    assert diagnose(evidence).health is Health.FAILING
    assert [c.header.checkpoint_id for c in without_aborted_by_end(evidence).checkpoints] == [1, 2]
    assert diagnose(without_aborted_by_end(evidence)).health is Health.TOO_FEW


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
    assert without_aborted_by_end(evidence) is evidence, why
