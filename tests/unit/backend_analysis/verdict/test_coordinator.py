"""Tests of a coordinator that cannot do its own part of a checkpoint, or is late."""

from __future__ import annotations

import pytest

from backend.analysis.verdict.verdict import checkpoint_verdict, diagnose
from backend.domain.failure import FailureReason
from backend.domain.topology import Placement
from backend.domain.verdict import Confidence, Health, Phase, VerdictKind
from tests.support.handwritten_jobs import (
    CHAIN,
    LAST,
    MIDDLE,
    SOURCE,
    completed,
    detail,
    failed,
    job,
    quick,
    reading,
)
from tests.support.handwritten_runs import CALM, two_readings


def acknowledged_late(number, waits_ms):
    """Build a checkpoint whose subtasks finish within 50 ms, and whose acknowledgements arrive later."""
    return completed(number, *(detail(v, first=[40] * 4, ack=[40 + w for w in waits_ms[v]]) for v in CHAIN))


LATE = {v: [3_000, 3_200, 3_100, 3_400] for v in CHAIN}


def test_acknowledgements_that_all_arrive_late_show_a_late_coordinator():
    found = diagnose(job([acknowledged_late(n, LATE) for n in range(1, 9)], CALM))

    assert (found.health, found.verdict.kind) == (Health.SLOW, VerdictKind.COORDINATOR)
    assert (found.verdict.vertex, found.verdict.phase) == (None, Phase.ACK_WAIT)
    assert "counts acknowledgements 3.4 s after the subtasks have finished" in found.verdict.sentence


@pytest.mark.parametrize("waits", [{**LATE, SOURCE: [0] * 4}, {v: [3_400, 0, 0, 0] for v in CHAIN}])
def test_acknowledgements_of_one_vertex_or_one_subtask_do_not_show_a_late_coordinator(waits):
    found = diagnose(job([acknowledged_late(n, waits) for n in range(1, 9)], CALM))

    assert found.verdict.kind is not VerdictKind.COORDINATOR


STOOD = {v: [52_000] * 4 for v in CHAIN}


def test_a_coordinator_that_stood_still_in_the_newest_checkpoint_is_told_at_once():
    run = [*(quick(n) for n in range(1, 9)), acknowledged_late(9, STOOD)]
    found = diagnose(job(run, CALM))

    assert (found.health, found.verdict.kind) == (Health.SLOW, VerdictKind.COORDINATOR)
    assert found.verdict.sentence.startswith("Checkpoint 9 took 52.0 s (usually ")
    assert found.verdict.confidence is Confidence.MEDIUM
    # The next checkpoint is as quick as ever, so it is over.
    assert diagnose(job([*run, quick(10)], CALM)).health is Health.HEALTHY


@pytest.mark.parametrize("waits", [{**STOOD, SOURCE: [0] * 4}, {v: [52_000, 0, 0, 0] for v in CHAIN}])
def test_one_slow_checkpoint_in_which_not_all_acknowledgements_waited_leaves_the_job_healthy(waits):
    run = [*(quick(n) for n in range(1, 9)), acknowledged_late(9, waits)]

    assert diagnose(job(run, CALM)).health is Health.HEALTHY


@pytest.mark.parametrize(("managers", "is_sure"), [("tttt", False), ("tuvw", True)])
def test_if_all_subtasks_run_in_one_task_manager_it_may_have_stood_still_and_not_the_coordinator(managers, is_sure):
    run = [*(quick(n) for n in range(1, 9)), acknowledged_late(9, STOOD)]
    placements = tuple(Placement(v, ("h",) * 4, tuple(managers), (0,) * 4, ("RUNNING",) * 4) for v in CHAIN)
    found = diagnose(job(run, CALM, placements=placements)).verdict

    assert found.kind is VerdictKind.COORDINATOR
    assert (found.confidence is not Confidence.LOW) is is_sure
    assert bool(found.would_decide) is not is_sure


def test_a_wait_that_the_interval_leaves_time_for_is_no_standstill():
    run = [*(quick(n) for n in range(1, 9)), acknowledged_late(9, {v: [2_000] * 4 for v in CHAIN})]

    assert diagnose(job(run, CALM)).health is Health.HEALTHY


def refused(reason, *, is_acknowledged, count=4, message=None):
    first = [5] * 4 if is_acknowledged else [None] * 4
    rows = [
        failed(n, *(detail(v, first=first) for v in CHAIN), reason=reason, after_ms=80, message=message)
        for n in range(5, 5 + count)
    ]
    return [*(quick(n) for n in range(1, 5)), *rows]


IO = "An Exception occurred while triggering the checkpoint. IO-problem detected."


@pytest.mark.parametrize(
    ("reason", "message", "says"),
    [
        (FailureReason.FINALIZE_FAILURE, "Failure to finalize checkpoint.", "cannot complete them: all subtasks have"),
        (FailureReason.TRIGGER_FAILURE, "Trigger checkpoint failure.", "cannot begin them: it fails while it triggers"),
        (FailureReason.IO_FAILURE, IO, "cannot begin them"),
    ],
)
def test_a_coordinator_that_cannot_do_its_own_part_is_the_cause_and_no_subtask_is(reason, message, says):
    is_last = reason is FailureReason.FINALIZE_FAILURE
    found = diagnose(job(refused(reason, is_acknowledged=is_last, message=message), CALM))

    assert (found.health, found.verdict.kind) == (Health.FAILING, VerdictKind.COORDINATOR)
    assert says in found.verdict.sentence
    assert (found.verdict.vertex, found.verdict.subtasks) == (None, ())
    assert found.verdict.would_decide[0].startswith("the exception in the JobManager's log")
    assert any(message in row.statement for row in found.verdict.evidence)


@pytest.mark.parametrize(
    ("reason", "is_acknowledged"),
    [
        # A reason that does not fit the acknowledgements says nothing sure.
        (FailureReason.FINALIZE_FAILURE, False),
        (FailureReason.TRIGGER_FAILURE, True),
        (FailureReason.IO_FAILURE, True),
        # What subtasks fail in is not the coordinator's.
        (FailureReason.ASYNC_FAILURE, False),
        (FailureReason.DECLINED, False),
        (FailureReason.EXPIRED, False),
    ],
)
def test_other_failures_are_not_the_coordinators(reason, is_acknowledged):
    found = diagnose(job(refused(reason, is_acknowledged=is_acknowledged), CALM))

    assert found.verdict.kind is not VerdictKind.COORDINATOR


@pytest.mark.parametrize("reason", [FailureReason.FINALIZE_FAILURE, FailureReason.TRIGGER_FAILURE])
def test_one_such_failure_among_completed_checkpoints_is_not_the_cause_of_the_others(reason):
    *_, failure = refused(reason, is_acknowledged=reason is FailureReason.FINALIZE_FAILURE, count=1)
    later = [quick(failure.header.checkpoint_id + n) for n in range(1, 6)]
    found = diagnose(job([*(quick(n) for n in range(1, 5)), failure, *later], CALM))

    assert found.verdict.kind is VerdictKind.NONE
    assert "cannot" not in found.verdict.sentence


def test_one_such_checkpoint_is_told_from_its_own_reason():
    run = refused(FailureReason.FINALIZE_FAILURE, is_acknowledged=True, count=1)
    found = checkpoint_verdict(run[-1], job(run, CALM))

    assert (found.kind, found.confidence) == (VerdictKind.COORDINATOR, Confidence.LOW)


def triggered_late(number, delays_ms):
    last = max(delays_ms)
    return completed(
        number, detail(SOURCE, first=delays_ms), *(detail(v, first=[last + 10] * 4) for v in (MIDDLE, LAST))
    )


def test_a_trigger_that_reaches_every_idle_source_late_shows_a_late_coordinator():
    run = [triggered_late(n, [3_500, 3_510, 3_490, 3_505]) for n in range(1, 9)]

    found = diagnose(job(run, CALM)).verdict
    assert (found.kind, found.vertex) == (VerdictKind.COORDINATOR, None)
    # Without readings, a source that is busy looks the same.
    assert diagnose(job(run)).verdict.kind is VerdictKind.LATE_INPUT


HELD_SOURCE = two_readings(reading(SOURCE, [0.1] * 4, [0.8] * 4), reading(MIDDLE, [1.0] * 4), reading(LAST, [0.1] * 4))


@pytest.mark.parametrize(("spread_ms", "is_coordinator"), [(15, True), (400, False)])
def test_sources_that_are_held_back_show_a_late_coordinator_only_if_all_begin_at_the_same_time(
    spread_ms, is_coordinator
):
    run = [triggered_late(n, [3_500 + i * spread_ms // 3 for i in range(4)]) for n in range(1, 9)]

    found = diagnose(job(run, HELD_SOURCE)).verdict

    named = {found.kind, None if found.second is None else found.second.kind}
    assert (VerdictKind.COORDINATOR in named) is is_coordinator


def test_sources_that_a_standing_vertex_holds_back_begin_together_and_do_not_show_a_late_coordinator():
    run = [triggered_late(n, [3_500] * 4) for n in range(1, 9)]
    seconds = range(50)
    held = [reading(SOURCE, [0.1] * 4, [0.8] * 4, at_s=s) for s in seconds]
    # It reads nothing in the first three seconds of each interval of five, in which the barriers wait.
    stands = [reading(MIDDLE, [1.0] * 4, records=[100 * (s // 5 * 2 + max(0, s % 5 - 3))] * 4, at_s=s) for s in seconds]

    found = diagnose(job(run, [*held, *stands])).verdict

    assert found.kind is not VerdictKind.COORDINATOR
    assert found.second is None or found.second.kind is not VerdictKind.COORDINATOR


def test_a_late_source_subtask_that_is_free_is_named_although_its_siblings_are_held_back():
    held = two_readings(
        reading(SOURCE, [0.1] * 4, [0.0, 0.9, 0.9, 0.9]), reading(MIDDLE, [0.4] * 4), reading(LAST, [0.1] * 4)
    )

    found = diagnose(job([triggered_late(n, [3_500, 5, 5, 5]) for n in range(1, 9)], held)).verdict

    assert (found.kind, found.subtasks) == (VerdictKind.LATE_INPUT, (0,))


def test_one_late_source_subtask_is_not_the_coordinator():
    found = diagnose(job([triggered_late(n, [3_500, 5, 5, 5]) for n in range(1, 9)], CALM)).verdict

    assert (found.kind, found.subtasks) == (VerdictKind.LATE_INPUT, (0,))
