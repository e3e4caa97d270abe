"""Tests of the diagnosis of jobs about which nothing can be read."""

from __future__ import annotations

import pytest

from backend.analysis.verdict.without_data import diagnosis_of
from backend.domain.observation import JobState
from backend.domain.verdict import Health, VerdictKind


def test_a_job_that_starts_has_too_few_checkpoints_and_no_cause() -> None:
    found = diagnosis_of(JobState.STARTING, "INITIALIZING", None)
    assert found is not None
    assert (found.health, found.verdict.kind) == (Health.TOO_FEW, VerdictKind.UNDECIDED)
    assert "INITIALIZING" in found.verdict.sentence


def test_a_job_that_cannot_be_read_is_failing_and_the_reason_is_named() -> None:
    found = diagnosis_of(JobState.UNREADABLE, "RUNNING", "x: it has no 'counts'")
    assert found is not None
    assert (found.health, found.verdict.kind) == (Health.FAILING, VerdictKind.UNDECIDED)
    assert "it has no 'counts'" in found.verdict.sentence


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.RESTARTING, JobState.ENDED, JobState.UNKNOWN])
def test_any_other_job_is_judged_by_its_checkpoints(state: JobState) -> None:
    assert diagnosis_of(state, "RUNNING", "a problem") is None
