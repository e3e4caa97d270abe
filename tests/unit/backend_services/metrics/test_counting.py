"""Tests of the counters of ended checkpoints."""

from __future__ import annotations

from backend.domain.checkpoint import CheckpointStatus
from backend.domain.failure import FailureReason
from backend.services.metrics.counting import EndedCounter, FailureGroup, group_of
from backend.store.checkpoints.ended import EndedSince


def ended(number, reason=None, *, job="j1", run="r1"):
    status = CheckpointStatus.COMPLETED if reason is None else CheckpointStatus.FAILED
    return EndedSince(job, run, number, status, reason)


def test_a_checkpoint_that_is_written_again_counts_once():
    counter = EndedCounter()
    counter.count([ended(1), ended(2), ended(1)])
    counter.count([ended(2), ended(3)])

    assert counter.completed("j1") == 3


def test_the_same_number_in_another_run_of_the_job_is_another_checkpoint():
    counter = EndedCounter()
    counter.count([ended(1), ended(1, run="r2")])

    assert counter.completed("j1") == 2


def test_failures_count_by_group_and_every_group_has_a_count_from_the_beginning():
    counter = EndedCounter()
    assert counter.failed("j1") == dict.fromkeys(FailureGroup, 0)
    counter.count([ended(1, FailureReason.EXPIRED), ended(2, FailureReason.DECLINED_TASK_CLOSING), ended(3)])

    assert counter.failed("j1") == dict.fromkeys(FailureGroup, 0) | {"expired": 1, "declined": 1}
    assert counter.completed("j1") == 1


def test_a_reason_without_a_group_is_other():
    assert group_of(None) is group_of(FailureReason.UNKNOWN) is FailureGroup.OTHER
    assert {group_of(reason) for reason in FailureReason} == set(FailureGroup)


def test_a_job_that_is_not_watched_any_more_is_forgotten():
    counter = EndedCounter()
    counter.count([ended(1), ended(2, FailureReason.EXPIRED), ended(1, job="j2", run="r2")])
    counter.forget_others({"j2"})

    assert (counter.completed("j1"), counter.failed("j1")["expired"], counter.completed("j2")) == (0, 0, 1)
    counter.count([ended(1)])
    assert counter.completed("j1") == 1, "it counts again if the job comes back"


def test_many_checkpoints_of_one_run_take_bounded_memory_and_count_all():
    counter = EndedCounter()
    for number in range(2000):
        counter.count([ended(number), ended(max(0, number - 1))])

    assert counter.completed("j1") == 2000
    assert len(counter._seen["r1"]) == 512


def test_checkpoints_that_are_read_again_by_the_thousand_count_once():
    """A transaction that stays open keeps the horizon where it is, so each look finds all rows since then."""
    counter = EndedCounter()
    for _ in range(3):
        counter.count([ended(number) for number in range(2000)])

    assert counter.completed("j1") == 2000
