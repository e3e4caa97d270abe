"""Tests of verdicts on snapshots that take long: a store, a sync phase, or a subtask that does not acknowledge."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.analysis.verdict.verdict import checkpoint_verdict, diagnose
from backend.domain.checkpoint import LateBarrier
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
    chain,
    completed,
    detail,
    failed,
    job,
    reading,
)
from tests.support.handwritten_runs import (
    CALM,
    FULL_LAST,
    HEALTHY_RUN,
    declined,
    silent,
    snapshotting,
    two_readings,
)

# --- snapshots ------------------------------------------------------------------------------------------------------


def test_a_long_sync_part_of_one_subtask_is_named_with_it():
    found = diagnose(job([snapshotting(n, sync=[2, 2, 3_000, 2]) for n in range(1, 7)], CALM)).verdict

    assert (found.kind, found.vertex, found.subtasks, found.phase) == (VerdictKind.SYNC, "last", (2,), Phase.SYNC)


def test_long_async_parts_of_an_aligned_job_are_the_store():
    found = diagnose(job([snapshotting(n, async_=[3_000, 3_100, 3_000, 2_900]) for n in range(1, 7)], CALM)).verdict

    assert (found.kind, found.subtasks, found.phase) == (VerdictKind.STORE, (0, 1, 2, 3), Phase.ASYNC)
    assert any(row.metric == "checkpointed_size" and row.value == 50_000_000 for row in found.evidence)


def test_a_short_checkpoint_is_not_slow_because_of_its_largest_phase():
    found = diagnose(job([snapshotting(n, async_=400) for n in range(1, 7)], CALM))

    assert (found.health, found.verdict.kind) == (Health.HEALTHY, VerdictKind.NONE)


@pytest.mark.parametrize("config", [aligned_timeout(3_000), UNALIGNED])
def test_an_async_part_that_waits_for_output_barriers_is_not_the_store(config):
    run = [
        completed(
            n,
            detail(SOURCE, first=[5] * 4, async_=3_000),
            detail(MIDDLE, first=[10] * 4, async_=3_000),
            detail(LAST, first=[2_900] * 4, async_=5),
        )
        for n in range(1, 7)
    ]

    found = diagnose(job(run, FULL_LAST, config=config)).verdict

    assert (found.kind, found.vertex) == (VerdictKind.CAPACITY, "last")


def test_an_async_part_that_waits_for_the_last_barrier_is_not_the_store():
    run = [
        completed(n, detail(SOURCE, first=[5] * 4), detail(LAST, first=[10] * 4, alignment=3_000, async_=3_005))
        for n in range(1, 7)
    ]

    found = diagnose(job(run, CALM, config=UNALIGNED, topology=chain(SOURCE, LAST))).verdict

    assert found.kind is not VerdictKind.STORE


def test_an_expiry_with_one_silent_vertex_and_no_back_pressure_is_the_store():
    found = diagnose(job([silent(n) for n in range(1, 7)], CALM))

    assert found.health is Health.FAILING
    assert (found.verdict.kind, found.verdict.vertex) == (VerdictKind.STORE, "last")
    assert found.verdict.confidence is Confidence.MEDIUM


def test_a_single_silent_subtask_of_an_expiry_is_named_and_not_called_failing():
    found = diagnose(job([silent(n, (20, 20, None, 20)) for n in range(1, 7)], CALM)).verdict

    assert (found.kind, found.subtasks) == (VerdictKind.STORE, (2,))


def test_the_same_expiry_under_back_pressure_is_not_the_store():
    assert diagnose(job([silent(n) for n in range(1, 7)], FULL_LAST)).verdict.kind is VerdictKind.CAPACITY


def test_a_silent_subtask_with_a_late_barrier_is_not_the_store():
    late = {n: (LateBarrier(LAST, 0, 11_000, START, 1_000),) for n in range(1, 7)}

    found = diagnose(job([silent(n) for n in range(1, 7)], CALM, late_barriers=late)).verdict

    assert found.kind is VerdictKind.UNDECIDED


# --- failing subtask ------------------------------------------------------------------------------------------------


def test_the_only_subtask_pending_in_every_failure_is_the_failing_one():
    run = [*HEALTHY_RUN[:2], declined(3, {0}), *HEALTHY_RUN[3:5], declined(6, {0, 2}), HEALTHY_RUN[6], declined(9, {0})]

    found = diagnose(job(run, CALM))

    assert found.health is Health.FAILING
    assert (found.verdict.kind, found.verdict.vertex, found.verdict.subtasks) == (
        VerdictKind.FAILING_SUBTASK,
        "last",
        (0,),
    )
    assert found.verdict.phase is Phase.ASYNC
    assert "last subtask 0 did not acknowledge them" in found.verdict.sentence
    assert found.verdict.evidence[0].value == 3


@pytest.mark.parametrize(("alone", "sure"), [(8, Confidence.HIGH), (7, Confidence.MEDIUM), (5, Confidence.MEDIUM)])
def test_a_subtask_that_is_often_not_the_only_one_pending_is_not_surely_the_failing_one(alone, sure):
    """Goal: on a full disk the larger of two files never has room, and the smaller one sometimes: both failed."""
    run = [declined(n, {0} if n < alone else {0, 1}) for n in range(10)]

    found = diagnose(job(run, CALM)).verdict

    assert (found.kind, found.subtasks, found.confidence) == (VerdictKind.FAILING_SUBTASK, (0,), sure)
    assert any("others were pending too" in text for text in found.would_decide) is (sure is not Confidence.HIGH)


def test_failures_without_a_common_subtask_name_none():
    run = [*HEALTHY_RUN[:2], declined(3, {0}), declined(6, {1})]

    assert diagnose(job(run, CALM)).verdict.kind is VerdictKind.UNDECIDED


def test_async_parts_that_fail_at_once_at_changing_subtasks_are_of_the_store():
    run = [*HEALTHY_RUN[:2], declined(3, {0}), declined(4, {1, 2}), declined(6, {3})]

    found = diagnose(job(run, CALM)).verdict

    assert (found.kind, found.phase, found.vertex, found.subtasks) == (VerdictKind.STORE, Phase.ASYNC, "last", ())
    assert "end with an error after at most 50 ms: the checkpoint store refuses what they write" in found.sentence
    assert "log of a task manager" in found.would_decide[0]


def test_declines_for_another_reason_are_not_of_the_store():
    run = [*HEALTHY_RUN[:2], *(declined(n, {n % 4}, reason=FailureReason.DECLINED) for n in (3, 4, 6))]

    assert diagnose(job(run, CALM)).verdict.kind is not VerdictKind.STORE


def test_a_subtask_pending_in_every_expiry_is_late_and_not_failing():
    run = [
        failed(
            n,
            detail(SOURCE, first=[5] * 4),
            detail(MIDDLE, first=[1_900] * 4),
            detail(LAST, first=[None, 2_500, 2_000, 2_400]),
        )
        for n in range(1, 7)
    ]

    found = diagnose(job(run, FULL_LAST)).verdict

    assert (found.kind, found.subtasks) == (VerdictKind.CAPACITY, (0, 1, 2, 3))


# --- a slow store at any vertex -------------------------------------------------------------------------------------


def storing(number, async_middle=3_000, async_last=5, last_first=20, last_bytes=1_000):
    return completed(
        number,
        detail(SOURCE, first=[5] * 4),
        detail(MIDDLE, first=[10] * 4, async_=async_middle, size_bytes=50_000_000),
        detail(LAST, first=[last_first] * 4, async_=async_last, size_bytes=last_bytes),
    )


@pytest.mark.parametrize("config", [ALIGNED, aligned_timeout(1_000), UNALIGNED])
def test_a_slow_store_behind_a_vertex_in_the_middle_is_named_in_every_mode(config):
    found = diagnose(job([storing(n) for n in range(1, 7)], CALM, config=config)).verdict

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.STORE, "middle", (0, 1, 2, 3))
    (rate,) = [row for row in found.evidence if "bytes written in a second" in row.statement]
    assert rate.value == pytest.approx(66_800_000, rel=0.003)


@pytest.mark.parametrize("config", [aligned_timeout(3_000), UNALIGNED])
def test_an_async_part_that_ends_when_the_barrier_arrives_below_is_not_the_store(config):
    """With and without readings, the time at which the barrier reaches the next vertex rules out the store."""
    run = [storing(n, async_middle=2_990, last_first=2_980) for n in range(1, 7)]

    assert diagnose(job(run, CALM, config=config)).verdict.kind is not VerdictKind.STORE
    assert diagnose(job(run, config=config)).verdict.kind is not VerdictKind.STORE


def test_of_two_vertices_that_wait_for_the_store_the_one_that_wrote_more_is_named():
    found = diagnose(job([storing(n, async_last=3_200) for n in range(1, 7)], CALM)).verdict

    assert (found.kind, found.vertex) == (VerdictKind.STORE, "middle")
    assert "last: async part, which is long too" in [row.statement for row in found.evidence]


def test_a_subtask_that_did_not_acknowledge_is_named_with_the_slow_ones():
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


def test_if_a_store_serves_its_writers_in_turn_all_of_them_are_named():
    found = diagnose(job([snapshotting(n, async_=[1_000, 1_600, 3_300, 3_400]) for n in range(1, 7)], CALM)).verdict

    assert (found.kind, found.subtasks) == (VerdictKind.STORE, (0, 1, 2, 3))


def test_one_subtask_with_a_slow_way_to_the_store_is_named_with_its_host():
    placement = Placement(LAST, ("a", "b", "worker-7", "d"), (None,) * 4, (0,) * 4, ("RUNNING",) * 4)
    run = [snapshotting(n, async_=[20, 30, 3_000, 20]) for n in range(1, 7)]

    found = diagnose(job(run, CALM, placements=(placement,))).verdict

    assert (found.kind, found.subtasks, found.hosts) == (VerdictKind.STORE, (2,), ("worker-7",))
    assert found.sentence.endswith("the way from worker-7 to the checkpoint store is slow.")


def test_a_long_snapshot_within_the_settings_is_mentioned_but_no_culprit():
    leisurely = replace(ALIGNED, interval_ms=600_000)

    found = diagnose(job([snapshotting(n, async_=9_000) for n in range(1, 7)], CALM, config=leisurely))

    assert (found.health, found.verdict.kind, found.verdict.vertex) == (Health.HEALTHY, VerdictKind.NONE, None)
    assert ("last: async part, for which the settings leave enough time", 9_000) in [
        (row.statement, row.value) for row in found.verdict.evidence
    ]


def test_a_sync_part_within_the_noise_is_no_culprit():
    found = diagnose(job([snapshotting(n, sync=400) for n in range(1, 7)], CALM))

    assert (found.health, found.verdict.kind) == (Health.HEALTHY, VerdictKind.NONE)


def test_a_sync_part_that_takes_most_of_healthy_checkpoints_is_named():
    found = diagnose(job([snapshotting(n, sync=800) for n in range(1, 9)], CALM))

    assert found.health is Health.HEALTHY
    assert (found.verdict.kind, found.verdict.vertex, found.verdict.subtasks) == (
        VerdictKind.SYNC,
        "last",
        (0, 1, 2, 3),
    )
    assert (found.verdict.phase, found.verdict.share_ratio) == (Phase.SYNC, 0.9756)
    assert found.verdict.headline == "Checkpoints are healthy at 820 ms"
    assert found.verdict.sentence == (
        "Checkpoints are healthy at 820 ms, but the sync part of all 4 subtasks of last takes 800 ms:"
        " the task processes no records meanwhile."
    )
    assert "the interval and the timeout leave enough time for it" in [e.statement for e in found.verdict.evidence]
    one = checkpoint_verdict(snapshotting(3, sync=800), job([snapshotting(n, sync=800) for n in range(1, 9)], CALM))
    assert (one.kind, one.vertex) == (VerdictKind.SYNC, "last")


def test_a_store_that_takes_most_of_healthy_checkpoints_is_named_and_not_called_too_slow():
    found = diagnose(job([snapshotting(n, async_=1_200) for n in range(1, 9)], CALM))

    assert (found.health, found.verdict.kind) == (Health.HEALTHY, VerdictKind.STORE)
    assert found.verdict.sentence.endswith(" of last takes 1.2 s: it writes 200 MB to the checkpoint store.")


@pytest.mark.parametrize(
    ("sync", "seldom", "interval_ms"), [(450, 0, 5_000), (700, 0, 8_000), (800, 6, 5_000), (800, 0, None)]
)
def test_a_snapshot_part_of_healthy_checkpoints_that_is_short_or_seldom_is_no_verdict(sync, seldom, interval_ms):
    run = [snapshotting(n, sync=20 if n <= seldom else sync) for n in range(1, 9)]
    config = replace(ALIGNED, interval_ms=interval_ms)

    found = diagnose(job(run, CALM, config=config))

    assert (found.health, found.verdict.kind) == (Health.HEALTHY, VerdictKind.NONE)


def test_an_async_part_that_waits_for_the_barriers_of_other_subtasks_is_no_store():
    """Subtasks write in-flight data into the same file, so each async part lasts until the last one is done."""
    rows = (
        detail(SOURCE, first=[5] * 4),
        detail(MIDDLE, first=[9] * 4),
        detail(LAST, first=[20] * 3 + [900], size_bytes=0),
    )
    waited = replace(rows[2], async_duration_ms=(880, 880, 880, 3), ack_delay_ms=(900, 900, 900, 903))

    found = diagnose(job([completed(n, *rows[:2], waited) for n in range(1, 9)], CALM, config=aligned_timeout(1_000)))

    assert (found.health, found.verdict.kind) == (Health.HEALTHY, VerdictKind.NONE), found.verdict.sentence


def test_a_full_vertex_of_a_healthy_job_comes_before_its_long_sync_part():
    readings = two_readings(
        reading(SOURCE, [0.1] * 4, [0.9] * 4), reading(MIDDLE, [1.0] * 4), reading(LAST, [0.3] * 4, [0.0] * 4)
    )

    verdict = diagnose(job([snapshotting(n, sync=800) for n in range(1, 9)], readings)).verdict

    assert (verdict.kind, verdict.vertex) == (VerdictKind.CAPACITY, "middle")
    assert verdict.second is not None
    assert (verdict.second.kind, verdict.second.vertex) == (VerdictKind.SYNC, "last")


# --- a sync part that outlasts the timeout --------------------------------------------------------------------------


def outlasting(number, sync_ms):
    """Build a checkpoint that expires after eight seconds.

    One subtask of the middle acknowledges it too late with this sync part, or never.
    """
    late = detail(MIDDLE, first=[5] * 4, sync=[sync_ms or 0, 0, 0, 0])
    middle = late if sync_ms is not None else detail(MIDDLE, first=[None, 5, 5, 5])
    below = detail(LAST, first=[5 if sync_ms is not None else None] * 4)
    return failed(number, detail(SOURCE, first=[5] * 4), middle, below, after_ms=8_000, every_s=8)


BUSY_MIDDLE = [
    reading(v, [1.0 if v == MIDDLE else 0.0, 0.0, 0.0, 0.0], records=[10 * at] * 4, at_s=at)
    for at in (40, 60)
    for v in (SOURCE, MIDDLE, LAST)
]


def test_late_acknowledgements_show_the_sync_part_that_outlasts_the_timeout():
    """Goal: it is no key skew and no straggler, for which barriers would have to overtake (Flink 1.20.5 and 2.3.0)."""
    run = [outlasting(n, 20_000 if n in (2, 4) else None) for n in range(1, 8)]
    found = diagnose(job(run, BUSY_MIDDLE)).verdict

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.SYNC, "middle", (0,))
    assert "the sync part of middle subtask 0 takes 20.0 s" in found.sentence
    assert any("came after the timeout" in row.statement for row in found.evidence)


def test_long_sync_parts_of_checkpoints_that_completed_in_time_do_not_explain_those_that_expire():
    rows = (detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[5] * 4, sync=[7_000, 0, 0, 0]))
    in_time = [completed(n, *rows, detail(LAST, first=[5] * 4), every_s=8) for n in (1, 2)]
    found = diagnose(job([*in_time, *(outlasting(n, None) for n in range(3, 8))], CALM)).verdict

    assert found.kind is not VerdictKind.SYNC, found.sentence
    assert not any("came after the timeout" in row.statement for row in found.evidence)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([20_000, *[None] * 6], id="one alone may be a chance"),
        pytest.param([20_000, 20_000, 5, 5, 5, 5, 5], id="most checkpoints show a short one"),
    ],
)
def test_a_sync_part_that_few_checkpoints_show_is_not_the_cause_of_all(parts):
    run = [outlasting(n, ms) for n, ms in enumerate(parts, start=1)]
    found = diagnose(job(run, BUSY_MIDDLE)).verdict

    assert found.kind is not VerdictKind.SYNC, found.sentence


def test_a_subtask_whose_asynchronous_part_fails_is_named_with_the_errors_that_would_decide():
    asynchronous, refused = (
        diagnose(job([declined(n, {2}, reason=reason) for n in range(1, 7)], CALM)).verdict
        for reason in (FailureReason.ASYNC_FAILURE, FailureReason.DECLINED)
    )

    assert {asynchronous.kind, refused.kind} == {VerdictKind.FAILING_SUBTASK}
    assert "a full disk" in asynchronous.would_decide[0]
    assert not refused.would_decide
