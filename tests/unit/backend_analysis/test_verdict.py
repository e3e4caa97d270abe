"""Who is named, on jobs written down by hand; what real clusters show is in the contract tests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.analysis.verdict import checkpoint_verdict, diagnose
from backend.domain.checkpoint import CheckpointConfig, LateBarrier
from backend.domain.failure import FailureReason
from backend.domain.topology import Edge, Placement, Topology, Vertex
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
    held_back,
    in_progress,
    job,
    reading,
)
from tests.support.handwritten_runs import (
    CALM,
    FOUR,
    FULL_LAST,
    HEALTHY_RUN,
    HELD_UP,
    SLOW_DELAYS,
    SLOW_RUN,
    counted,
    declined,
    silent,
    snapshotting,
    two_readings,
)


def statements(verdict):
    """The statements of the verdict's evidence."""
    return [row.statement for row in verdict.evidence]


# --- capacity -------------------------------------------------------------------------------------------------------


def test_a_vertex_whose_subtasks_are_all_full_below_something_held_back_lacks_capacity():
    found = diagnose(job(SLOW_RUN, FULL_LAST))

    assert found.health is Health.SLOW
    assert found.verdict.kind is VerdictKind.CAPACITY
    assert found.verdict.vertex == "last"
    assert found.verdict.subtasks == (0, 1, 2, 3)
    assert found.verdict.phase is Phase.START_DELAY
    assert found.verdict.confidence is Confidence.HIGH
    assert found.verdict.sentence == (
        "Checkpoints take 5.0 s because last is at capacity: all 4 subtasks are busy 98 % of the time."
    )


def test_capacity_is_named_though_unaligned_checkpoints_hide_it():
    found = diagnose(job(HEALTHY_RUN, FULL_LAST, config=UNALIGNED))

    assert found.health is Health.HEALTHY
    assert found.verdict.kind is VerdictKind.CAPACITY
    assert found.verdict.phase is None
    assert "healthy" in found.verdict.sentence


def test_the_latest_subtask_of_an_idle_vertex_is_not_guilty():
    """The longest delay is behind the culprit: the middle is full, the last vertex only waits."""
    readings = [
        *two_readings(reading(SOURCE, [0.0] * 4, FOUR)),
        *two_readings(reading(MIDDLE, FOUR)),
        *two_readings(reading(LAST, [0.02] * 4)),
    ]

    found = diagnose(job(SLOW_RUN, readings)).verdict

    assert (found.kind, found.vertex) == (VerdictKind.CAPACITY, "middle")


def test_the_lowest_full_vertex_is_the_root_where_two_are_full():
    topology = chain(SOURCE, MIDDLE, "third", LAST)
    readings = [
        *two_readings(reading(SOURCE, [0.0] * 4, FOUR)),
        *two_readings(reading(MIDDLE, FOUR)),
        *two_readings(reading("third", [0.0] * 4, FOUR)),
        *two_readings(reading(LAST, FOUR)),
    ]

    assert diagnose(job(HEALTHY_RUN, readings, topology=topology)).verdict.vertex == "last"


def test_full_subtasks_that_nothing_presses_are_no_sign():
    """Right after a start a vertex whose gauges were not updated shows busy 1.0."""
    readings = two_readings(reading(SOURCE, [0.0] * 4), reading(MIDDLE, FOUR), reading(LAST, FOUR))

    assert diagnose(job(HEALTHY_RUN, readings)).verdict.kind is VerdictKind.NONE


def test_readings_of_a_job_that_has_ended_are_all_zero_and_count_for_nothing():
    dead = replace(reading(LAST, [0.0] * 4), idle_ratio=(0.0,) * 4)

    found = diagnose(job(HEALTHY_RUN, [dead])).verdict

    assert found.kind is VerdictKind.NONE
    assert "could not be read" in found.sentence
    assert found.would_decide


def test_without_readings_long_hops_to_most_subtasks_make_capacity_likely_and_say_so():
    found = diagnose(job(SLOW_RUN)).verdict

    assert (found.kind, found.vertex, found.confidence) == (VerdictKind.CAPACITY, "last", Confidence.LOW)
    assert any("back-pressure" in what for what in found.would_decide)


def test_without_readings_one_long_hop_decides_nothing():
    run = [held_back(n, {SOURCE: [5] * 4, MIDDLE: [10] * 4, LAST: [5_000, 20, 20, 20]}) for n in range(1, 9)]

    found = diagnose(job(run)).verdict

    assert (found.kind, found.subtasks) == (VerdictKind.UNDECIDED, (0,))
    assert any("records" in what for what in found.would_decide)


# --- one subtask ----------------------------------------------------------------------------------------------------


def test_one_full_subtask_with_an_outsized_share_of_the_records_is_skew():
    skewed = counted(LAST, [0.2, 1.0, 0.2, 0.2], [0.0] * 4, [0, 0, 0, 0], [100, 500, 100, 100])

    found = diagnose(job(SLOW_RUN, [*HELD_UP, *skewed])).verdict

    assert (found.kind, found.subtasks) == (VerdictKind.SKEW, (1,))
    assert "5.0 times" in found.sentence


def test_one_full_subtask_with_an_even_share_is_a_straggler_and_its_host_is_named():
    even = counted(LAST, [0.2, 0.2, 1.0, 0.2], [0.0] * 4, [0] * 4, [100, 100, 100, 100])
    placement = Placement(LAST, ("a", "b", "worker-7", "d"), (None,) * 4, (0,) * 4, ("RUNNING",) * 4)

    found = diagnose(job(SLOW_RUN, [*HELD_UP, *even], placements=(placement,))).verdict

    assert (found.kind, found.subtasks, found.hosts) == (VerdictKind.STRAGGLER, (2,), ("worker-7",))
    assert "worker-7" in found.sentence


def test_a_straggler_in_the_middle_makes_its_siblings_look_half_held_back():
    """Their channels are blocked while the next vertex aligns; that is no guilt and no acquittal of the straggler."""
    readings = [
        *two_readings(reading(SOURCE, [0.0] * 4, FOUR)),
        *counted(MIDDLE, [0.2, 1.0, 0.2, 0.2], [0.5, 0.0, 0.5, 0.5], [0] * 4, [90, 88, 90, 90]),
        *two_readings(reading(LAST, [0.1] * 4)),
    ]

    found = diagnose(job(SLOW_RUN, readings)).verdict

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.STRAGGLER, "middle", (1,))


def test_one_full_subtask_without_record_counts_is_undecided_and_says_what_would_decide():
    one = two_readings(reading(LAST, [0.2, 1.0, 0.2, 0.2]))

    found = diagnose(job(SLOW_RUN, [*HELD_UP, *one])).verdict

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.UNDECIDED, "last", (1,))
    assert found.confidence is Confidence.LOW
    assert any("records" in what for what in found.would_decide)


def test_totals_serve_where_the_counters_stood_still_between_two_readings():
    still = counted(LAST, [0.2, 1.0, 0.2, 0.2], [0.0] * 4, [100, 900, 100, 100], [100, 900, 100, 100])

    assert diagnose(job(SLOW_RUN, [*HELD_UP, *still])).verdict.kind is VerdictKind.SKEW


def test_a_subtask_that_gets_all_the_records_is_skew():
    only = counted(LAST, [0.0, 1.0, 0.0, 0.0], [0.0] * 4, [0] * 4, [0, 900, 0, 0])

    found = diagnose(job(SLOW_RUN, [*HELD_UP, *only])).verdict

    assert found.kind is VerdictKind.SKEW
    assert "all the records" in found.sentence


# --- snapshots ------------------------------------------------------------------------------------------------------


def test_a_long_sync_part_of_one_subtask_is_named_with_it():
    found = diagnose(job([snapshotting(n, sync=[2, 2, 3_000, 2]) for n in range(1, 7)], CALM)).verdict

    assert (found.kind, found.vertex, found.subtasks, found.phase) == (VerdictKind.SYNC, "last", (2,), Phase.SYNC)


def test_long_async_parts_of_an_aligned_job_are_the_store():
    found = diagnose(job([snapshotting(n, async_=[3_000, 3_100, 3_000, 2_900]) for n in range(1, 7)], CALM)).verdict

    assert (found.kind, found.subtasks, found.phase) == (VerdictKind.STORE, (0, 1, 2, 3), Phase.ASYNC)
    assert any(row.metric == "checkpointed_size" and row.value == 50_000_000 for row in found.evidence)


def test_a_short_checkpoint_is_not_called_slow_for_its_largest_phase():
    found = diagnose(job([snapshotting(n, async_=400) for n in range(1, 7)], CALM))

    assert (found.health, found.verdict.kind) == (Health.HEALTHY, VerdictKind.NONE)


@pytest.mark.parametrize("config", [aligned_timeout(3_000), UNALIGNED])
def test_async_kept_open_upstream_by_unconsumed_barriers_is_not_the_store(config):
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


def test_async_that_waits_for_the_last_barrier_is_not_the_store():
    run = [
        completed(n, detail(SOURCE, first=[5] * 4), detail(LAST, first=[10] * 4, alignment=3_000, async_=3_005))
        for n in range(1, 7)
    ]

    found = diagnose(job(run, CALM, config=UNALIGNED, topology=chain(SOURCE, LAST))).verdict

    assert found.kind is not VerdictKind.STORE


def test_an_expiry_with_one_silent_vertex_and_nothing_held_back_is_the_store():
    found = diagnose(job([silent(n) for n in range(1, 7)], CALM))

    assert found.health is Health.FAILING
    assert (found.verdict.kind, found.verdict.vertex) == (VerdictKind.STORE, "last")
    assert found.verdict.confidence is Confidence.MEDIUM


def test_a_single_silent_subtask_of_an_expiry_is_named_and_not_called_failing():
    found = diagnose(job([silent(n, (20, 20, None, 20)) for n in range(1, 7)], CALM)).verdict

    assert (found.kind, found.subtasks) == (VerdictKind.STORE, (2,))


def test_the_same_expiry_under_back_pressure_is_not_the_store():
    assert diagnose(job([silent(n) for n in range(1, 7)], FULL_LAST)).verdict.kind is VerdictKind.CAPACITY


def test_a_silent_subtask_whose_barrier_came_late_is_not_the_store():
    late = {n: (LateBarrier(LAST, 0, 11_000, START, 1_000),) for n in range(1, 7)}

    found = diagnose(job([silent(n) for n in range(1, 7)], CALM, late_barriers=late)).verdict

    assert found.kind is VerdictKind.UNDECIDED


# --- late input -----------------------------------------------------------------------------------------------------


def joined():
    vertices = tuple(Vertex(v, v, 2) for v in ("fast", "late", "join"))
    return Topology(vertices, (Edge("fast", "join", "HASH"), Edge("late", "join", "HASH")))


def late_run(delay_ms=4_000):
    return [
        completed(
            n,
            detail("fast", first=[5, 5]),
            detail("late", first=[delay_ms, 5]),
            detail("join", first=[20, 20], alignment=delay_ms),
        )
        for n in range(1, 7)
    ]


def test_a_source_that_lets_its_barrier_in_late_is_named_and_not_the_join_that_waits():
    readings = [
        *two_readings(reading("fast", [0.1, 0.1], [0.8, 0.8])),
        *two_readings(reading("late", [1.0, 0.1])),
        *two_readings(reading("join", [0.2, 0.2])),
    ]

    found = diagnose(job(late_run(), readings, topology=joined())).verdict

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.LATE_INPUT, "late", (0,))
    assert any("join waits" in row.statement for row in found.evidence)


def test_a_source_that_is_itself_held_back_is_not_late_by_itself():
    readings = [
        *two_readings(reading("fast", [0.0] * 2, [1.0] * 2)),
        *two_readings(reading("late", [0.0] * 2, [1.0] * 2)),
        *two_readings(reading("join", [1.0] * 2)),
    ]

    assert diagnose(job(late_run(), readings, topology=joined())).verdict.vertex == "join"


def test_a_start_delay_that_outlives_its_acknowledgement_is_a_clock_and_no_late_source():
    run = [
        completed(n, detail(SOURCE, first=[9_000], ack=[30]), detail(LAST, first=[20], async_=4_000))
        for n in range(1, 7)
    ]

    found = diagnose(job(run, topology=chain(SOURCE, LAST, parallelism=1))).verdict

    assert found.kind is VerdictKind.STORE


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


def test_failures_that_share_no_single_subtask_accuse_none():
    run = [*HEALTHY_RUN[:2], declined(3, {0}), declined(6, {1})]

    assert diagnose(job(run, CALM)).verdict.kind is VerdictKind.UNDECIDED


def test_the_only_subtask_pending_in_every_expiry_is_not_failing_but_late():
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


def test_a_restart_loop_names_the_subtask_and_the_exception():
    run = [
        declined(n, {3}, FailureReason.COORDINATOR_SUSPENDED, "Checkpoint Coordinator is suspending.") for n in (1, 2)
    ]
    broken = ((START, "java.io.IOException: disk full\n\tat Foo"),)

    found = diagnose(job(run, CALM, restart_count=2, exceptions=broken)).verdict

    assert (found.kind, found.subtasks, found.phase) == (VerdictKind.FAILING_SUBTASK, (3,), Phase.SYNC)
    assert any("disk full" in row.statement for row in found.evidence)
    assert not any("\n" in row.statement for row in found.evidence)


# --- one checkpoint, few data ---------------------------------------------------------------------------------------


def test_an_expired_checkpoint_tells_when_the_barrier_came_to_whom():
    checkpoint = failed(
        9,
        detail(SOURCE, first=[5] * 4),
        detail(MIDDLE, first=[1_800] * 4),
        detail(LAST, first=[None, None, 2_400, None]),
    )
    late = {9: tuple(LateBarrier(LAST, i, ms, START, 2_000) for i, ms in ((1, 3_200), (3, 3_300), (0, 5_000)))}

    found = checkpoint_verdict(checkpoint, job([checkpoint], FULL_LAST, late_barriers=late))

    assert found.sentence.startswith("Expired after 3.0 s because last is at capacity: all 4 subtasks are busy")
    assert statements(found)[2] == (
        "checkpoint 9, expired after 3.0 s: the barrier reached last subtasks 1, 3 and 0 after 3.2 s, 3.3 s and 5.0 s"
    )
    assert sum(row.metric == "checkpointStartDelayNanos" for row in found.evidence) == 3


@pytest.mark.parametrize(("reached_ms", "told"), [(2_980, "2.98 s"), (3_040, "3.04 s"), (3_000, "3.0 s")])
def test_a_barrier_that_came_just_before_or_after_the_expiry_is_told_to_the_hundredth(reached_ms, told):
    rows = detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[1_800] * 4), detail(LAST, first=[None, 9, 9, 9])
    checkpoint = failed(9, *rows)
    late = {9: (LateBarrier(LAST, 0, reached_ms, START, 2_000),)}

    found = checkpoint_verdict(checkpoint, job([checkpoint], FULL_LAST, late_barriers=late))

    assert f"checkpoint 9, expired after 3.0 s: the barrier reached last subtask 0 after {told}" in statements(found)


def test_an_expired_checkpoint_without_gauges_names_who_did_not_acknowledge():
    rows = detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[1_800] * 4), detail(LAST, first=[None, 9, 9, None])
    checkpoint = failed(9, *rows)

    found = checkpoint_verdict(checkpoint, job([checkpoint], FULL_LAST))

    assert "no acknowledgement came from last subtasks 0 and 3" in statements(found)


def test_a_quick_checkpoint_says_that_nothing_holds_it():
    found = checkpoint_verdict(HEALTHY_RUN[0], job(HEALTHY_RUN, CALM))

    assert found.kind is VerdictKind.NONE
    assert found.sentence.startswith("Completed after 40 ms: nothing holds the barrier")


def test_a_checkpoint_in_progress_tells_how_long_and_how_far():
    checkpoint = in_progress(12, detail(SOURCE, first=[5] * 4), detail(LAST, first=[None] * 4), every_s=5)

    found = checkpoint_verdict(checkpoint, job([checkpoint], FULL_LAST, topology=chain(SOURCE, LAST)))

    assert found.sentence.startswith("Open for 2.0 s with 4 of 8 subtasks acknowledged")


def test_readings_far_from_the_checkpoint_lower_the_confidence_and_are_told_of():
    old = held_back(1, SLOW_DELAYS, every_s=-3_600)

    found = checkpoint_verdict(old, job([old], FULL_LAST))

    assert found.confidence is Confidence.LOW
    assert any("apart" in row.statement for row in found.evidence)


def test_nothing_at_all_is_undecided_and_names_everything_that_is_missing():
    found = diagnose(job())

    assert (found.health, found.verdict.kind) == (Health.TOO_FEW, VerdictKind.UNDECIDED)
    assert len(found.verdict.would_decide) == 2


def test_one_slow_checkpoint_without_readings_still_gets_an_answer():
    found = diagnose(job([held_back(1, SLOW_DELAYS)]))

    assert found.health is Health.TOO_FEW
    assert (found.verdict.kind, found.verdict.confidence) == (VerdictKind.CAPACITY, Confidence.LOW)


def test_a_job_without_detail_of_its_slow_checkpoints_says_so():
    run = [replace(c, details=()) for c in SLOW_RUN]

    found = diagnose(job(run, CALM)).verdict

    assert found.kind is VerdictKind.UNDECIDED
    assert any("no longer holds" in what for what in found.would_decide)


def test_a_broadcast_input_is_told_where_unaligned_checkpoints_stay_slow():
    topology = chain(SOURCE, LAST, ship="BROADCAST")
    run = [held_back(n, {SOURCE: [5] * 4, LAST: [4_000] * 4}) for n in range(1, 7)]
    readings = [*two_readings(reading(SOURCE, [0.0] * 4, FOUR)), *two_readings(reading(LAST, FOUR))]

    found = diagnose(job(run, readings, topology=topology, config=UNALIGNED)).verdict

    assert any("BROADCAST" in row.statement for row in found.evidence)


def test_settings_that_are_not_known_do_not_keep_a_verdict_from_being_reached():
    found = diagnose(job(SLOW_RUN, FULL_LAST, config=None))

    assert found.verdict.kind is VerdictKind.CAPACITY
    assert diagnose(job(SLOW_RUN, FULL_LAST, config=CheckpointConfig())).verdict.kind is VerdictKind.CAPACITY


def test_every_number_of_the_evidence_has_a_unit_of_the_contract():
    for evidence in (job(SLOW_RUN, FULL_LAST), job(HEALTHY_RUN, CALM), job([silent(1), silent(2)], CALM)):
        for row in diagnose(evidence).verdict.evidence:
            assert (row.value is None) == (row.unit is None)
            assert row.unit in {None, "ms", "bytes", "ratio", "count", "records/s"}


def test_a_vertex_name_of_hundreds_of_characters_is_cut_in_the_sentence_only():
    name = "Map<br/>+- " + "very-long-name " * 40
    topology = Topology((Vertex(SOURCE, "source", 4), Vertex(LAST, name, 4)), (Edge(SOURCE, LAST, "HASH"),))
    readings = [*two_readings(reading(SOURCE, [0.0] * 4, FOUR)), *two_readings(reading(LAST, FOUR))]

    found = diagnose(job(HEALTHY_RUN, readings, topology=topology, config=ALIGNED)).verdict

    assert found.vertex == name
    assert "<br/>" not in found.sentence
    assert len(found.sentence) < 200


# --- another parallelism --------------------------------------------------------------------------------------------


def _of_six(at_s: float):
    """The same job with six subtasks at its end, all of them idle: what a rescale cured."""
    return [reading(MIDDLE, [0.1] * 4, at_s=at_s), reading(LAST, [0.2] * 6, at_s=at_s)]


def test_readings_from_after_a_rescale_say_nothing_of_a_checkpoint_before_it():
    checkpoint = SLOW_RUN[-1]
    alone = checkpoint_verdict(checkpoint, job([checkpoint], FULL_LAST))
    mixed = checkpoint_verdict(checkpoint, job([checkpoint], [*FULL_LAST, *_of_six(at_s=70)]))

    assert (mixed.kind, mixed.subtasks) == (VerdictKind.CAPACITY, (0, 1, 2, 3))
    assert "all 6" not in str(mixed.evidence)
    assert [row.value for row in mixed.evidence if "busy" in row.metric.lower()] == [
        row.value for row in alone.evidence if "busy" in row.metric.lower()
    ]


def test_readings_from_before_a_rescale_say_nothing_of_the_job_after_it():
    now = chain(SOURCE, MIDDLE, LAST)
    now = Topology(tuple(replace(v, parallelism=6) if v.id == LAST else v for v in now.vertices), now.edges)

    found = diagnose(job(SLOW_RUN, FULL_LAST, topology=now))

    assert found.verdict.subtasks != (0, 1, 2, 3)
    assert "subtasks busy" not in str(found.verdict.evidence)


# --- the order of the evidence --------------------------------------------------------------------------------------

_SKEWED = counted(LAST, [0.2, 1.0, 0.2, 0.2], [0.0] * 4, [0] * 4, [100, 500, 100, 100])
_STRAGGLING = counted(LAST, [0.2, 1.0, 0.2, 0.2], [0.0] * 4, [0] * 4, [100, 100, 100, 100])
_STRONGEST = {
    VerdictKind.CAPACITY: (job(SLOW_RUN, FULL_LAST), ["busyRatio", "backpressureRatio", "start_delay + alignment"]),
    VerdictKind.SKEW: (job(SLOW_RUN, [*HELD_UP, *_SKEWED]), ["numRecordsIn", "busyRatio / numRecordsIn", "busyRatio"]),
    VerdictKind.STRAGGLER: (
        job(SLOW_RUN, [*HELD_UP, *_STRAGGLING]),
        ["busyRatio / numRecordsIn", "numRecordsIn", "busyRatio"],
    ),
    VerdictKind.SYNC: (
        job([snapshotting(n, sync=[2, 2, 3_000, 2]) for n in range(1, 7)], CALM),
        ["sync", "sync", "end_to_end_duration"],
    ),
    VerdictKind.STORE: (
        job([snapshotting(n, async_=3_000) for n in range(1, 7)], CALM),
        ["async", "checkpointed_size", "checkpointed_size / async"],
    ),
    VerdictKind.LATE_INPUT: (job(late_run(), topology=joined()), ["start_delay", "start_delay", "note"]),
    VerdictKind.FAILING_SUBTASK: (job([declined(n, {0}) for n in (1, 2, 3)], CALM), ["pending", "pending", "note"]),
    VerdictKind.NONE: (job(HEALTHY_RUN, CALM), ["end_to_end_duration", "backpressureRatio", "busyRatio"]),
    VerdictKind.UNDECIDED: (job(SLOW_RUN, CALM), ["end_to_end_duration", "note", "backpressureRatio"]),
}


@pytest.mark.parametrize("kind", VerdictKind)
def test_evidence_begins_with_what_decides_the_kind_and_ends_with_the_settings(kind):
    evidence, strongest = _STRONGEST[kind]

    found = diagnose(evidence).verdict
    metrics = [row.metric for row in found.evidence]

    assert found.kind is kind
    assert metrics[:3] == strongest
    assert metrics[-2:] == ["interval", "timeout"]
