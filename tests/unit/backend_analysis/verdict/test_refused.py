"""Tests of jobs that take no checkpoints: checkpointing is off, or every checkpoint is refused or declined."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.analysis.health.refusals import refusal_of
from backend.analysis.verdict.verdict import diagnose
from backend.domain.checkpoint import CheckpointConfig, CheckpointCounts, CheckpointKind
from backend.domain.failure import FailureReason
from backend.domain.observation import JobState
from backend.domain.topology import Placement
from backend.domain.verdict import Confidence, Health, VerdictKind
from tests.support.handwritten_jobs import ALIGNED, LAST, SOURCE, START, chain, failed, in_progress, job, quick

ENDS = replace(ALIGNED, ends_with_first_task=True)
OFF = CheckpointConfig(timeout_ms=600_000, is_off=True)
TEN = [quick(n) for n in range(1, 11)]
"""Ten quick checkpoints, the last one triggered 50 s after the start."""


def placed(vertex_id=SOURCE, *statuses):
    there = statuses or ("RUNNING", "FINISHED", "RUNNING", "RUNNING")
    count = len(there)
    return Placement(vertex_id, ("host-1",) * count, (None,) * count, (0,) * count, there)


def counts(*, total, failed, restored=0, in_progress=0):
    return CheckpointCounts(restored, total, in_progress, total - failed, failed)


def silent(checkpoints=TEN, *, at_s=150, refused=20, config=ENDS, **more):
    """Build a running job that has triggered no checkpoint since the last of ``checkpoints``."""
    rows = list(checkpoints)
    failures = sum(c.header.failure_reason is not None for c in rows)
    values = {
        "state": JobState.RUNNING,
        "started_at": START,
        "counted_at": START + timedelta(seconds=at_s),
        "counts": counts(total=len(rows) + refused, failed=failures + refused),
        "placements": (placed(), placed(LAST, *["RUNNING"] * 4)),
        "flink_version": "1.20.5",
    }
    return job(rows, config=config, **(values | more))


# --- refused before they start --------------------------------------------------------------------------------------


def test_a_finished_source_is_the_cause_if_checkpoints_end_with_the_first_task():
    found = diagnose(silent())

    assert (found.health, found.verdict.kind, found.verdict.confidence) == (
        Health.FAILING,
        VerdictKind.REFUSED,
        Confidence.HIGH,
    )
    assert found.verdict.sentence == (
        "No checkpoint has begun for 1 min 40 s (refused 20 times; the last one completed 1 min 40 s ago) because"
        " source subtask 1 has finished, and the job takes no checkpoint after that: set"
        " execution.checkpointing.checkpoints-after-tasks-finish to true."
    )
    assert (found.verdict.vertex_id, found.verdict.subtasks) == (SOURCE, (1,))
    assert found.verdict.headline == "source subtask 1 has finished, and the job takes no checkpoint after that"


@pytest.mark.parametrize(
    ("version", "confidence", "words"),
    [
        ("1.14.6", Confidence.MEDIUM, "set execution.checkpointing.checkpoints-after-tasks-finish.enabled to true"),
        (
            "1.13.6",
            Confidence.HIGH,
            "takes no checkpoint after that: upgrade to 1.15 or later, or keep the tasks from finishing",
        ),
    ],
)
def test_before_1_15_no_checkpoint_follows_a_finished_task_unless_it_is_set(version, confidence, words):
    verdict = diagnose(silent(config=ALIGNED, flink_version=version)).verdict

    assert (verdict.kind, verdict.confidence) == (VerdictKind.REFUSED, confidence)
    assert words in verdict.sentence


def test_a_finished_task_is_no_cause_if_checkpoints_go_on_after_it():
    verdict = diagnose(silent(config=ALIGNED)).verdict

    assert (verdict.kind, verdict.confidence, verdict.vertex_id) == (VerdictKind.REFUSED, Confidence.LOW, None)
    assert verdict.sentence.endswith("; why they are refused is not reported.")
    assert verdict.would_decide == ("the log of the JobManager at 'Failed to trigger', which names the reason",)


def test_tasks_that_start_for_longer_than_a_checkpoint_may_take_are_the_cause():
    starting = placed(LAST, "RUNNING", "INITIALIZING", "RUNNING", "RUNNING")
    config = replace(ALIGNED, timeout_ms=60_000)

    verdict = diagnose(silent(config=config, placements=(starting,))).verdict
    assert (verdict.kind, verdict.vertex_id, verdict.subtasks) == (VerdictKind.REFUSED, LAST, (1,))
    assert "because last subtask 1 is not running" in verdict.sentence
    assert refusal_of(silent(config=ALIGNED, placements=(starting,))) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"at_s": 64}, "less than three intervals"),
        ({"refused": 1}, "one refused checkpoint, of a start"),
        ({"refused": 5}, "far fewer than were due"),
        ({"checkpoints": [*TEN, in_progress(11)]}, "one is open"),
        ({"counts": counts(total=31, failed=20, in_progress=1)}, "one is open that is not read yet"),
        ({"state": JobState.RESTARTING}, "it restarts"),
        ({"state": JobState.ENDED}, "it ended"),
        ({"counted_at": None}, "it is not known when the counters were read"),
        ({"exceptions": ((START + timedelta(seconds=140), "boom"),)}, "it restarted just now"),
        ({"counts": replace(counts(total=30, failed=20), restored_at=START + timedelta(seconds=140))}, "a restore"),
        ({"counts": counts(total=10, failed=0), "failed_unlisted_count": 20}, "an earlier coordinator refused them"),
        ({"config": replace(ENDS, min_pause_ms=60_000)}, "the minimum pause is longer than the interval"),
    ],
)
def test_checkpoints_are_not_called_refused(changes, why):
    evidence = silent(**({"placements": ()} | changes))

    assert refusal_of(evidence) is None, why


def test_the_first_failures_of_a_start_do_not_raise_the_number():
    refusal = refusal_of(silent(refused=200))

    assert (refusal.refused_count, refusal.is_about) == (21, True)
    assert "(refused about 21 times;" in diagnose(silent(refused=200)).verdict.sentence


def test_what_the_history_has_dropped_is_not_called_refused():
    old = [quick(n, every_s=0.5) for n in range(91, 101)]
    evidence = silent(old, refused=0, counts=counts(total=103, failed=30))

    assert refusal_of(replace(evidence, placements=())) is None


def test_failures_that_the_store_has_counted_over_all_readings_show_refusals():
    rows = [quick(n, every_s=1) for n in range(31, 51)]
    kept = counts(total=70, failed=40, restored=1)

    assert refusal_of(silent(rows, counts=kept, failed_unlisted_count=20)).refused_count == 20
    assert refusal_of(silent(rows, counts=kept, failed_unlisted_count=1, placements=())) is None


def test_a_version_that_counts_no_refused_checkpoint_needs_twice_the_time_and_a_finished_task():
    evidence = silent(refused=0, config=ALIGNED, flink_version="1.13.6")

    verdict = diagnose(evidence).verdict
    assert (verdict.kind, verdict.confidence) == (VerdictKind.REFUSED, Confidence.MEDIUM)
    assert verdict.sentence.startswith("No checkpoint has begun for 1 min 40 s (the last one completed")
    assert refusal_of(silent(refused=0, at_s=70, config=ALIGNED)) is None
    assert refusal_of(replace(evidence, placements=())) is None


@pytest.mark.parametrize(
    ("version", "ends", "is_refused"),
    [
        ("1.13.6", None, True),
        ("1.14.6", None, False),
        ("1.20.5", None, False),
        (None, None, False),
        ("1.20.5", True, True),
        (None, True, True),
    ],
)
def test_a_silence_without_counts_may_be_on_purpose_unless_no_checkpoint_follows_a_finished_task(
    version, ends, is_refused
):
    # A source that reads its backlog with execution.checkpointing.interval-during-backlog = 0 takes no checkpoints.
    config = replace(ALIGNED, ends_with_first_task=ends)

    found = refusal_of(silent(refused=0, at_s=7200, config=config, flink_version=version))
    assert (found is not None) is is_refused


def test_a_restart_loop_is_told_before_refused_checkpoints():
    loop = tuple((START + timedelta(seconds=s), "boom") for s in (30, 60, 90, 120))
    evidence = replace(silent(at_s=150, exceptions=loop), now=START + timedelta(seconds=150))

    assert diagnose(evidence).health is Health.RESTARTING


# --- declined by the tasks ------------------------------------------------------------------------------------------


def declined(number, reason=FailureReason.DECLINED_TASK_NOT_READY):
    return failed(number, reason=reason, after_ms=4)


def test_checkpoints_that_a_finished_task_declines_one_after_the_other_protect_nothing():
    rows = [*TEN[:2], *(declined(n) for n in range(3, 12))]
    found = diagnose(silent(rows, at_s=60, refused=0, config=ALIGNED, flink_version="1.9.2"))

    assert (found.health, found.verdict.kind, found.verdict.subtasks) == (Health.FAILING, VerdictKind.REFUSED, (1,))
    assert found.verdict.sentence.startswith(
        "No checkpoint has passed the tasks for 50.0 s (declined 9 times; the last one completed 50.0 s ago) because"
        " source subtask 1 has finished"
    )


def test_a_vertex_that_has_finished_in_part_may_need_all_of_its_subtasks():
    rows = [*TEN[:2], *(declined(n, FailureReason.DECLINED_TASK_CLOSING) for n in range(3, 12))]
    verdict = diagnose(silent(rows, at_s=60, refused=0, config=ALIGNED)).verdict

    assert (verdict.kind, verdict.confidence) == (VerdictKind.REFUSED, Confidence.MEDIUM)
    assert "union list state" in verdict.sentence


def test_one_checkpoint_that_a_finished_task_declines_is_no_failure():
    rows = [*TEN[:5], declined(6, FailureReason.DECLINED_TASK_CLOSING), *TEN[6:]]
    found = diagnose(silent(rows, at_s=52, refused=0, config=ALIGNED))

    assert (found.health, found.verdict.kind) == (Health.HEALTHY, VerdictKind.NONE)


# --- checkpointing is off -------------------------------------------------------------------------------------------


def test_a_job_without_checkpoints_has_a_health_of_its_own():
    found = diagnose(job(config=OFF))

    assert (found.health, found.verdict.kind, found.verdict.confidence, found.verdict.would_decide) == (
        Health.OFF,
        VerdictKind.CHECKPOINTING_OFF,
        Confidence.HIGH,
        (),
    )
    assert found.verdict.sentence == "Checkpointing is off; a failure loses all state of the job."


def test_a_savepoint_or_an_earlier_checkpoint_is_what_a_failure_goes_back_to():
    savepoint = replace(TEN[3], header=replace(TEN[3].header, kind=CheckpointKind.SAVEPOINT))
    said = "Checkpointing is off; a failure loses all state since {} ago."

    assert diagnose(job([savepoint], config=OFF)).verdict.sentence == said.format("savepoint 4, 42.0 s")
    assert diagnose(job(TEN, config=OFF)).verdict.sentence == said.format("checkpoint 10, 12.0 s")


def test_a_job_in_batch_mode_loses_nothing():
    verdict = diagnose(job(config=OFF, topology=replace(chain(), is_batch=True))).verdict

    assert (verdict.kind, "batch mode" in verdict.sentence, "loses" in verdict.sentence) == (
        VerdictKind.CHECKPOINTING_OFF,
        True,
        False,
    )


# --- tasks that still start -----------------------------------------------------------------------------------------

STARTING = placed(LAST, "RUNNING", "INITIALIZING", "RUNNING", "RUNNING")


def test_a_task_that_still_starts_is_why_no_checkpoint_has_begun():
    found = diagnose(silent((), config=ALIGNED, placements=(placed(SOURCE, *["RUNNING"] * 4), STARTING)))

    assert (found.health, found.verdict.kind) == (Health.TOO_FEW, VerdictKind.NONE)
    assert (found.verdict.vertex_id, found.verdict.subtasks) == (LAST, (1,))
    assert found.verdict.sentence.endswith(
        ": last subtask 1 is still starting, and no checkpoint begins before it runs."
    )
    assert "thread dump" in found.verdict.would_decide[0]


@pytest.mark.parametrize(
    ("checkpoints", "more"),
    [
        pytest.param(TEN, {}, id="checkpoints have begun"),
        pytest.param((), {"placements": (placed(LAST, *["RUNNING"] * 4),)}, id="all tasks run"),
        pytest.param((), {"state": JobState.RESTARTING}, id="the job does not run"),
        pytest.param((), {"exceptions": ((START, "com.acme.Failure"),)}, id="the job has restarted"),
    ],
)
def test_a_start_is_not_told_of_other_jobs(checkpoints, more):
    evidence = silent(checkpoints, **{"config": ALIGNED, "placements": (STARTING,), **more})

    assert "still starting" not in diagnose(evidence).verdict.sentence
