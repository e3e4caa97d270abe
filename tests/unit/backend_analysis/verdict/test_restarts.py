"""Tests of jobs that restart again and again, and of the replay of data after a restart."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.analysis.verdict.verdict import diagnose
from backend.domain.failure import FailureReason
from backend.domain.topology import Placement
from backend.domain.verdict import Health, VerdictKind
from tests.support.handwritten_jobs import CHAIN, LAST, START, job, quick
from tests.support.handwritten_runs import CALM, HEALTHY_RUN, declined


def crashes(*at_s):
    return tuple((START + timedelta(seconds=s), "java.lang.IllegalStateException: poison\n\tat Foo") for s in at_s)


def test_a_job_that_restarts_every_half_minute_is_not_healthy():
    found = diagnose(job(HEALTHY_RUN, CALM, restart_count=4, exceptions=crashes(-40, -10, 20, 50)))

    assert (found.health, found.verdict.kind) == (Health.RESTARTING, VerdictKind.RESTARTS)
    assert found.verdict.sentence == (
        "The job restarts every 30.0 s; its checkpoints complete (40 ms), and what its newest exception says decides:"
        ' "java.lang.IllegalStateException: poison".'
    )


def test_checkpoints_that_the_restarts_end_do_not_hide_the_loop():
    ended = [declined(n, {n % 4, 3 - n % 2}, FailureReason.COORDINATOR_SUSPENDED) for n in (3, 6)]
    run = sorted([*ended, *(quick(n) for n in (1, 2, 4, 5, 7, 8))], key=lambda c: c.header.checkpoint_id)

    found = diagnose(job(run, CALM, restart_count=3, exceptions=crashes(0, 30, 55)))

    assert (found.health, found.verdict.kind) == (Health.RESTARTING, VerdictKind.RESTARTS)


@pytest.mark.parametrize("at_s", [(20, 50), (-600, -590, -580), (-4_000, -2_000, 50)])
def test_few_or_old_restarts_leave_the_job_healthy(at_s):
    found = diagnose(job(HEALTHY_RUN, CALM, restart_count=3, exceptions=crashes(*at_s)))

    assert (found.health, found.verdict.kind) == (Health.HEALTHY, VerdictKind.NONE)


# --- replay ---------------------------------------------------------------------------------------------------------


def restoring(statuses):
    return tuple(
        Placement(v, ("h",) * 4, ("t",) * 4, (2,) * 4, statuses if v == LAST else ("RUNNING",) * 4) for v in CHAIN
    )


def test_subtasks_that_process_in_flight_data_after_a_restart_are_named():
    last = replace(HEALTHY_RUN[-1], header=replace(HEALTHY_RUN[-1].header, persisted_bytes=5_000_000))
    statuses = ("RUNNING", "INITIALIZING", "INITIALIZING", "RUNNING")

    found = diagnose(
        job([*HEALTHY_RUN[:-1], last], CALM, restart_count=1, exceptions=crashes(50), placements=restoring(statuses))
    ).verdict

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.REPLAY, "last", (1, 2))
    assert any(row.value == 5_000_000 and row.unit == "bytes" for row in found.evidence)
    calm = diagnose(job([*HEALTHY_RUN[:-1], last], CALM, placements=restoring(statuses))).verdict
    assert calm.kind is VerdictKind.NONE, "no restart was seen: the job has only just started"


@pytest.mark.parametrize(
    ("broken_count", "kind"),
    [(1, VerdictKind.RESTARTS), (3, VerdictKind.FAILING_SUBTASK)],
)
def test_a_checkpoint_that_one_of_many_restarts_broke_off_does_not_make_its_subtask_the_cause(broken_count, kind):
    """Goal: the exceptions of the loop are told (measured on Flink 1.20.5, with ended transactions)."""
    reason, said = FailureReason.COORDINATOR_SUSPENDED, "Checkpoint Coordinator is suspending."
    broken = [declined(n, {2}, reason=reason, message=said) for n in range(1, 1 + broken_count)]
    run = [*broken, *(quick(n) for n in range(1 + broken_count, 11))]
    found = diagnose(job(run, CALM, restart_count=4, exceptions=crashes(12, 25, 40, 55))).verdict

    assert found.kind is kind, found.sentence
