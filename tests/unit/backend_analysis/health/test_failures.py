"""Tests of which failed checkpoints count against a job."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.analysis.health.failures import without_aborted
from backend.analysis.verdict.verdict import diagnose
from backend.domain.failure import FailureReason
from backend.domain.observation import JobState
from backend.domain.verdict import Confidence, Health, VerdictKind
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


def refused(number, *pending, of_source=()):
    """Build a checkpoint whose asynchronous part failed while these subtasks of the last vertex were pending."""
    source = [None if i in of_source else 5 for i in range(4)]
    rows = [detail(SOURCE, first=source), detail(LAST, first=[None if i in pending else 5 for i in range(4)])]
    return failed(number, *rows, reason=FailureReason.ASYNC_FAILURE, after_ms=20)


IN_TURN = ((3,), (2, 3), (1, 2, 3), (2, 3), (1, 2, 3), (2, 3))
MIXED = ((3,), (0, 3), (1, 3), (2, 3), (1, 2, 3), (0, 3))
OFTEN_ALONE = ((3,), (3,), (3,), (2, 3), (3,), (1, 2, 3))
ALONE = ((3,), (3,), (3,), (2, 3), (3,), (3,))


@pytest.mark.parametrize(
    ("pending", "kind", "confidence"),
    [
        pytest.param(IN_TURN, VerdictKind.STORE, Confidence.MEDIUM, id="the last in turn"),
        pytest.param(MIXED, VerdictKind.FAILING_SUBTASK, Confidence.MEDIUM, id="beside changing others"),
        pytest.param(OFTEN_ALONE, VerdictKind.FAILING_SUBTASK, Confidence.MEDIUM, id="alone in four of six"),
        pytest.param(ALONE, VerdictKind.FAILING_SUBTASK, Confidence.HIGH, id="mostly alone"),
    ],
)
def test_a_subtask_that_is_pending_in_each_failure_is_surely_the_cause_only_if_it_is_mostly_alone(
    pending, kind, confidence
):
    """Goal: a store that refuses some writes is not taken for a fault of the subtask that always writes last."""
    found = diagnose(job([refused(n, *who) for n, who in enumerate(pending, 1)])).verdict

    assert (found.kind, found.confidence) == (kind, confidence), found.sentence
    # A subtask that is surely the cause still has an unknown error. Otherwise it is not sure which subtask fails.
    about_the_error = [why for why in found.would_decide if why.startswith("the error in the log")]
    is_sure = confidence is Confidence.HIGH or kind is VerdictKind.STORE
    assert (list(found.would_decide) == about_the_error) is is_sure


@pytest.mark.parametrize(
    ("others", "kind"),
    [
        pytest.param(((), (0,), (1,), (2,), (0, 1)), VerdictKind.STORE, id="another vertex mostly"),
        pytest.param(((), (), (1,), (2,), ()), VerdictKind.FAILING_SUBTASK, id="another vertex now and then"),
    ],
)
def test_a_subtask_that_is_pending_as_often_as_those_of_another_vertex_is_not_the_cause(others, kind):
    """Goal: a store that throttles its writers at random names no subtask, although one is pending in each failure."""
    siblings = ((0, 3), (1, 3), (2, 3), (1, 2, 3), (3,))
    run = [refused(n, *who, of_source=of) for n, (who, of) in enumerate(zip(siblings, others, strict=True), 1)]

    assert diagnose(job(run)).verdict.kind is kind
