"""The jobs of ``make test-versions``."""

from __future__ import annotations

from tests.simulators.versions.jobs import JOBS, jobs_of

BY_NAME = {job.name: job for job in JOBS}


def test_jobs_run_only_on_versions_that_have_what_they_need():
    assert "legacy-source" in {job.name for job in jobs_of("1.20.5")}
    assert "legacy-source" not in {job.name for job in jobs_of("2.0.2")}
    assert "changelog" not in {job.name for job in jobs_of("1.14.6")}
    assert [job.name for job in jobs_of("2.3.0", "join window")] == ["sql-join", "sql-window"]


def test_each_job_has_a_name_of_its_own():
    assert len(BY_NAME) == len(JOBS)


def test_the_settings_of_a_job_override_the_common_ones_and_those_of_an_advice_override_both():
    base = {"execution.checkpointing.interval": "3s", "restart-strategy": "fixed-delay"}

    words = BY_NAME["checkpointing-off"].words(base)
    assert "restart-strategy=fixed-delay" in words
    assert not any(word.startswith("execution.checkpointing.interval") for word in words)

    assert "execution.checkpointing.interval=9s" in BY_NAME["sql-aggregation"].words(
        base, changed={"execution.checkpointing.interval": "9s"}
    )
