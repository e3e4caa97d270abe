"""Which live jobs ``up`` runs."""

from __future__ import annotations

import pytest

from backend.cli.up import _live_jobs
from backend.domain.errors import InvalidInputError
from backend.runtime.demo import demo_names, job_names


def test_the_demo_jobs_run_and_those_that_are_asked_for_beside_them():
    assert _live_jobs([], with_demo=True) == demo_names()
    assert _live_jobs(["bounded", "healthy"], with_demo=True) == (*demo_names(), "bounded")
    assert set(_live_jobs(["all"], with_demo=True)) == set(job_names())


def test_without_the_demo_only_the_asked_jobs_run():
    assert _live_jobs([], with_demo=False) == ()
    assert _live_jobs(["chandy-lamport"], with_demo=False) == ("chandy-lamport",)


def test_an_unknown_job_is_refused_with_the_names_before_anything_starts():
    with pytest.raises(InvalidInputError, match="chandy-lamport"):
        _live_jobs(["chandy"], with_demo=True)
