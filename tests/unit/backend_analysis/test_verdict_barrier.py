"""Who is named where a plain rule would mislead: shared stores, filling queues, open checkpoints, restarts."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from backend.analysis.sentences import percent
from backend.analysis.verdict import diagnose
from backend.domain.checkpoint import CheckpointCounts
from backend.domain.failure import FailureReason
from backend.domain.topology import Placement
from backend.domain.verdict import Confidence, Health, Phase, VerdictKind
from tests.support.handwritten_jobs import (
    ALIGNED,
    LAST,
    MIDDLE,
    SOURCE,
    START,
    UNALIGNED,
    aligned_timeout,
    completed,
    detail,
    failed,
    held_back,
    in_progress,
    job,
    quick,
    reading,
)
from tests.support.handwritten_runs import (
    CALM,
    FOUR,
    FULL_LAST,
    HEALTHY_RUN,
    SLOW_DELAYS,
    SLOW_RUN,
    counted,
    declined,
    snapshotting,
    two_readings,
)

# --- a store behind any vertex --------------------------------------------------------------------------------------


def storing(number, async_middle=3_000, async_last=5, last_first=20, last_bytes=1_000):
    return completed(
        number,
        detail(SOURCE, first=[5] * 4),
        detail(MIDDLE, first=[10] * 4, async_=async_middle, size_bytes=50_000_000),
        detail(LAST, first=[last_first] * 4, async_=async_last, size_bytes=last_bytes),
    )


@pytest.mark.parametrize("config", [ALIGNED, aligned_timeout(1_000), UNALIGNED])
def test_a_slow_store_is_named_behind_a_vertex_in_the_middle_whatever_the_alignment(config):
    found = diagnose(job([storing(n) for n in range(1, 7)], CALM, config=config)).verdict

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.STORE, "middle", (0, 1, 2, 3))
    (rate,) = [row for row in found.evidence if "bytes written in a second" in row.statement]
    assert rate.value == pytest.approx(66_800_000, rel=0.003)


@pytest.mark.parametrize("config", [aligned_timeout(3_000), UNALIGNED])
def test_async_that_ends_as_the_barrier_comes_through_below_is_waiting_and_not_the_store(config):
    """Nothing tells of back-pressure here, as after the end of a job: the arrivals below acquit the store."""
    run = [storing(n, async_middle=2_990, last_first=2_980) for n in range(1, 7)]

    assert diagnose(job(run, CALM, config=config)).verdict.kind is not VerdictKind.STORE
    assert diagnose(job(run, config=config)).verdict.kind is not VerdictKind.STORE


def test_of_two_vertices_that_wait_for_the_store_the_one_that_wrote_the_most_is_named():
    found = diagnose(job([storing(n, async_last=3_200) for n in range(1, 7)], CALM)).verdict

    assert (found.kind, found.vertex) == (VerdictKind.STORE, "middle")
    assert "last: async part, which is long too" in [row.statement for row in found.evidence]


def test_a_subtask_that_did_not_even_get_through_is_named_with_the_slow_ones():
    run = [
        failed(
            n,
            detail(SOURCE, first=[5] * 4),
            detail(MIDDLE, first=[9] * 4),
            detail(LAST, first=[20, 20, None, 20], async_=[2_000, 10, 10, 10], size_bytes=1_000_000),
        )
        for n in range(1, 7)
    ]

    found = diagnose(job(run, CALM)).verdict

    assert (found.kind, found.subtasks) == (VerdictKind.STORE, (0, 2))


def test_a_store_that_serves_its_writers_in_turn_is_no_matter_of_the_last_ones():
    found = diagnose(job([snapshotting(n, async_=[1_000, 1_600, 3_300, 3_400]) for n in range(1, 7)], CALM)).verdict

    assert (found.kind, found.subtasks) == (VerdictKind.STORE, (0, 1, 2, 3))


def test_one_subtask_with_a_slow_way_to_the_store_is_named_with_its_host():
    placement = Placement(LAST, ("a", "b", "worker-7", "d"), (None,) * 4, (0,) * 4, ("RUNNING",) * 4)
    run = [snapshotting(n, async_=[20, 30, 3_000, 20]) for n in range(1, 7)]

    found = diagnose(job(run, CALM, placements=(placement,))).verdict

    assert (found.kind, found.subtasks, found.hosts) == (VerdictKind.STORE, (2,), ("worker-7",))
    assert found.sentence.endswith("the way from worker-7 to the checkpoint store is slow.")


def test_a_snapshot_that_the_settings_leave_time_for_is_told_and_accuses_nobody():
    leisurely = replace(ALIGNED, interval_ms=600_000)

    found = diagnose(job([snapshotting(n, async_=9_000) for n in range(1, 7)], CALM, config=leisurely))

    assert (found.health, found.verdict.kind, found.verdict.vertex) == (Health.HEALTHY, VerdictKind.NONE, None)
    assert ("last: async part, for which the settings leave enough time", 9_000) in [
        (row.statement, row.value) for row in found.verdict.evidence
    ]


def test_a_sync_part_within_the_noise_is_no_culprit():
    found = diagnose(job([snapshotting(n, sync=400) for n in range(1, 7)], CALM))

    assert (found.health, found.verdict.kind) == (Health.HEALTHY, VerdictKind.NONE)


# --- queues that still fill -----------------------------------------------------------------------------------------


def filling(first, busy, records=(100, 100, 100, 100)):
    """The barrier meets a queue before the last vertex, but nothing is held back yet."""
    readings = [
        *two_readings(reading(SOURCE, [0.1] * 4)),
        *two_readings(reading(MIDDLE, [0.1] * 4)),
        *counted(LAST, busy, [0.0] * 4, [0] * 4, list(records)),
    ]
    return job([held_back(n, {SOURCE: [5] * 4, MIDDLE: [10] * 4, LAST: first}) for n in range(1, 5)], readings)


def test_a_full_subtask_whose_queue_still_fills_is_named_before_what_feeds_it_is_held_back():
    found = diagnose(filling([20, 20, 3_000, 20], [0.2, 0.2, 1.0, 0.2])).verdict

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.STRAGGLER, "last", (2,))
    assert (
        "last: longest time of the barrier in the queue before subtask 2, mean",
        pytest.approx(3_000, rel=0.01),
    ) in [(row.statement, row.value) for row in found.evidence]
    assert found.confidence is not Confidence.HIGH


def test_a_full_subtask_without_a_queue_is_not_guilty_of_a_long_wait_before_its_sibling():
    found = diagnose(filling([3_000, 20, 20, 20], [0.2, 0.2, 1.0, 0.2])).verdict

    assert found.kind is VerdictKind.UNDECIDED


def test_a_full_subtask_that_nothing_waits_for_is_told_and_not_accused():
    readings = two_readings(reading(SOURCE, [0.1] * 4), reading(MIDDLE, [0.2, 0.9, 0.2, 0.2]), reading(LAST, [0.1] * 4))

    found = diagnose(job(HEALTHY_RUN, readings)).verdict

    assert (found.kind, found.vertex) == (VerdictKind.NONE, None)
    assert ("middle subtask 1 is nearly always busy: no reserve if the load grows", 0.9) in [
        (row.statement, row.value) for row in found.evidence
    ]
    assert found.confidence is Confidence.MEDIUM


def test_a_source_that_runs_as_fast_as_it_can_is_no_news():
    readings = two_readings(reading(SOURCE, [0.95] * 4), reading(MIDDLE, [0.2] * 4), reading(LAST, [0.1] * 4))

    found = diagnose(job(HEALTHY_RUN, readings)).verdict

    assert (found.kind, found.confidence) == (VerdictKind.NONE, Confidence.HIGH)
    assert not any("no reserve" in row.statement for row in found.evidence)


# --- the one in progress --------------------------------------------------------------------------------------------

OPEN_LONG = in_progress(
    9, detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[10] * 4), detail(LAST, first=[None] * 4), every_s=5
)


def test_a_checkpoint_open_for_far_longer_than_the_others_took_makes_a_quick_job_slow():
    found = diagnose(job([*HEALTHY_RUN, OPEN_LONG], FULL_LAST))

    assert (found.health, found.verdict.kind, found.verdict.vertex) == (Health.SLOW, VerdictKind.CAPACITY, "last")
    assert found.verdict.sentence.startswith("Checkpoint 9 has been open for 17.0 s (usually 40 ms) because last is")


def test_a_checkpoint_open_for_too_long_with_nothing_held_back_points_at_the_store():
    found = diagnose(job([*HEALTHY_RUN, OPEN_LONG], CALM))

    assert (found.health, found.verdict.kind, found.verdict.vertex) == (Health.SLOW, VerdictKind.STORE, "last")


def test_a_checkpoint_that_has_just_begun_changes_nothing():
    begun = in_progress(12, detail(SOURCE, first=[None] * 4), every_s=5.1)

    found = diagnose(job([*HEALTHY_RUN, begun], CALM))

    assert (found.health, found.verdict.kind) == (Health.HEALTHY, VerdictKind.NONE)


def test_a_checkpoint_open_for_little_longer_than_the_others_took_changes_nothing():
    run = [quick(n, duration_ms=2_400) for n in range(1, 9)]
    opened = in_progress(9, detail(SOURCE, first=[5] * 4), detail(LAST, first=[None] * 4), every_s=59 / 9)

    assert diagnose(job([*run, opened], CALM)).health is Health.HEALTHY
    assert diagnose(job([*HEALTHY_RUN, opened], CALM)).health is Health.SLOW


def test_a_checkpoint_open_past_its_timeout_has_ended_unseen_and_counts_for_nothing():
    found = diagnose(job([*HEALTHY_RUN, OPEN_LONG], CALM, config=replace(ALIGNED, timeout_ms=5_000)))

    assert found.health is Health.HEALTHY


def test_the_first_checkpoint_of_a_job_that_does_not_come_to_its_end_is_told_of():
    found = diagnose(job([replace(OPEN_LONG, header=replace(OPEN_LONG.header, checkpoint_id=1))], FULL_LAST))

    assert (found.health, found.verdict.kind) == (Health.TOO_FEW, VerdictKind.CAPACITY)
    assert found.verdict.sentence.startswith(
        "No checkpoint has completed yet (checkpoint 1 has been open for 17.0 s), "
    )


def test_what_has_just_begun_is_not_hidden_by_the_median():
    late = [held_back(n, SLOW_DELAYS) for n in (9, 10, 11)]

    found = diagnose(job([*HEALTHY_RUN, *late], FULL_LAST))

    assert (found.health, found.verdict.kind, found.verdict.vertex) == (Health.SLOW, VerdictKind.CAPACITY, "last")
    assert found.verdict.sentence.startswith("The newest 3 checkpoints took 5.0 s (before: 40 ms) because last is at")
    rows = {row.statement: row.value for row in found.verdict.evidence}
    assert rows["median duration of the newest 3 checkpoints"] == pytest.approx(5_000, rel=0.01)
    assert rows["median duration of the 7 before"] == pytest.approx(40, rel=0.01)
    assert found.verdict.phase is Phase.START_DELAY


def test_the_many_that_were_well_do_not_acquit_whoever_is_late_of_late():
    late = [
        completed(n, detail(SOURCE, first=[5, 4_000, 5, 5]), detail(MIDDLE, first=[4_010] * 4)) for n in (9, 10, 11)
    ]

    found = diagnose(job([*HEALTHY_RUN, *late], CALM)).verdict

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.LATE_INPUT, "source", (1,))


def test_two_slow_ones_among_many_are_a_hiccup():
    found = diagnose(job([*HEALTHY_RUN, *(held_back(n, SLOW_DELAYS) for n in (9, 10))], CALM))

    assert (found.health, found.verdict.kind) == (Health.HEALTHY, VerdictKind.NONE)


# --- restarts -------------------------------------------------------------------------------------------------------


def test_a_lost_task_manager_accuses_no_single_subtask_and_shows_the_exception():
    """Each attempt redeploys onto dead slots: failures with several subtasks pending, most of them never recorded."""
    run = [
        declined(n, {1, 3}, FailureReason.COORDINATOR_SUSPENDED, "Checkpoint Coordinator is suspending.")
        for n in (1, 2, 3)
    ]
    lost = ((START, "org.apache.flink.runtime.jobmaster.JobMasterException: TaskManager worker-7 is lost\n\tat X"),)
    counts = CheckpointCounts(restored=3, total=9, in_progress=0, completed=0, failed=9)

    found = diagnose(job(run, restart_count=6, exceptions=lost, counts=counts)).verdict

    assert (found.kind, found.subtasks) == (VerdictKind.UNDECIDED, ())
    rows = {row.metric: row.value for row in found.evidence}
    assert rows["numRestarts"] == 6
    assert any("worker-7 is lost" in row.statement for row in found.evidence)
    assert any(
        row.statement.startswith("failures counted but not recorded") and row.value == 6 for row in found.evidence
    )


def test_the_words_and_the_evidence_give_the_same_number():
    readings = [
        *two_readings(reading(SOURCE, [0.0] * 4, FOUR)),
        *two_readings(reading(MIDDLE, [0.0] * 4, FOUR)),
        *two_readings(reading(LAST, [0.98504] * 4)),
    ]

    found = diagnose(job(SLOW_RUN, readings)).verdict

    (row,) = [row for row in found.evidence if row.metric == "busyRatio"]
    assert f"busy {percent(row.value)} of the time" in found.sentence


@pytest.mark.parametrize("only", [quick(1), failed(1, *(detail(v, first=[5] * 4) for v in (SOURCE, MIDDLE, LAST)))])
def test_the_only_checkpoint_is_not_called_the_last_1_checkpoints(only):
    found = diagnose(job([only], CALM)).verdict

    said = " ".join([found.sentence, *(row.statement for row in found.evidence)])
    assert "only" in said
    assert not re.search(r"\b1 (completed )?checkpoints|median of 1\b", said), said
