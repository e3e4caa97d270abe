"""The conditions of ``diagnose --fail-on``: each includes the ones before it, and every health has its place."""

from __future__ import annotations

import pytest

from backend.domain.fail_on import FailOn, reason_to_fail
from backend.domain.verdict import Confidence, Diagnosis, Health, Verdict, VerdictKind

FIRST_MET_BY = {
    Health.FAILING: FailOn.FAILING,
    Health.RESTARTING: FailOn.FAILING,
    Health.SLOW: FailOn.SLOW,
    Health.INTERMITTENT: FailOn.SLOW,
    Health.OFF: FailOn.SLOW,
    Health.HEALTHY: None,
    Health.TOO_FEW: None,
}


def met_by(health, *, kind=VerdictKind.NONE, is_batch=False, has_advice=False):
    """Return the conditions that the job meets, in their order."""
    found = Diagnosis(health, Verdict(kind, "", Confidence.HIGH))
    return [c for c in FailOn if reason_to_fail(c, found, is_batch=is_batch, has_advice=has_advice) is not None]


@pytest.mark.parametrize("health", Health)
def test_a_health_meets_its_condition_and_every_later_one(health):
    order = list(FailOn)
    first = FIRST_MET_BY[health]

    assert met_by(health) == ([] if first is None else order[order.index(first) :])


def test_a_recommended_change_meets_only_the_last_condition():
    assert met_by(Health.HEALTHY, has_advice=True) == [FailOn.ADVICE]


def test_a_job_that_loses_output_is_failing_although_its_checkpoints_complete():
    assert met_by(Health.HEALTHY, kind=VerdictKind.LOST_ROWS) == list(FailOn)


def test_a_job_in_batch_mode_may_have_its_checkpointing_off():
    assert met_by(Health.OFF, is_batch=True) == []
