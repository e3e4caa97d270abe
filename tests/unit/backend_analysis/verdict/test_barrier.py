"""Tests of verdicts on barriers that wait: for a full vertex, a straggler, a skewed subtask, or a late source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.analysis.verdict.verdict import diagnose
from backend.domain.topology import Placement
from backend.domain.verdict import Confidence, Health, LastSubtask, Phase, VerdictKind
from tests.support.handwritten_jobs import (
    LAST,
    MIDDLE,
    SOURCE,
    UNALIGNED,
    chain,
    completed,
    detail,
    failed,
    held_back,
    job,
    reading,
)
from tests.support.handwritten_runs import (
    FOUR,
    FULL_LAST,
    HEALTHY_RUN,
    HELD_UP,
    SLOW_RUN,
    counted,
    joined,
    late_run,
    two_readings,
)

# --- capacity -------------------------------------------------------------------------------------------------------


def test_a_vertex_with_all_subtasks_full_below_a_back_pressured_one_lacks_capacity():
    found = diagnose(job(SLOW_RUN, FULL_LAST))

    assert found.health is Health.SLOW
    assert found.verdict.kind is VerdictKind.CAPACITY
    assert found.verdict.vertex == "last"
    assert found.verdict.subtasks == (0, 1, 2, 3)
    assert found.verdict.phase is Phase.START_DELAY
    assert found.verdict.confidence is Confidence.HIGH
    assert found.verdict.sentence == (
        "Checkpoints take 5.0 s because last is at capacity, and its subtask 0 gets the barrier last: all 4 subtasks"
        " are busy 98 % of the time; last in 8 of 8 checkpoints."
    )


def test_the_headline_names_the_vertex_that_lacks_capacity_and_the_subtask_that_checkpoints_wait_for():
    """A verdict named subtasks 0, 1, 2 and 3, while each checkpoint waited for subtask 3."""
    delays = {SOURCE: [5] * 4, MIDDLE: [9] * 4, LAST: [3_000, 3_100, 3_200, 5_000]}
    other = {**delays, LAST: [5_000, 3_100, 3_200, 3_000]}
    pending = failed(5, *(detail(v, first=d if v != LAST else [3_000, 3_100, 3_200, None]) for v, d in delays.items()))
    often = [held_back(n, delays) for n in range(1, 5)]

    def found(run, **more):
        return diagnose(job(run, FULL_LAST, **more)).verdict

    verdict = found([*often, pending])
    assert verdict.headline == "last is at capacity, and its subtask 3 gets the barrier last"
    assert verdict.last == LastSubtask(3, 5, 5)
    assert verdict.subtasks == (0, 1, 2, 3)
    # It is not named if it is often another one, if too few checkpoints show it, or if two are equally late.
    assert found([*often, *(held_back(n, other) for n in (5, 6))]).last is None
    assert found(often[:2]).last is None
    assert found([held_back(n, {**delays, LAST: [5_000] * 4}) for n in range(1, 5)]).last is None


def test_a_lack_of_capacity_that_unaligned_checkpoints_hide_is_named():
    found = diagnose(job(HEALTHY_RUN, FULL_LAST, config=UNALIGNED))

    assert found.health is Health.HEALTHY
    assert found.verdict.kind is VerdictKind.CAPACITY
    assert found.verdict.phase is None
    assert "healthy" in found.verdict.sentence


def test_the_latest_subtask_of_an_idle_vertex_is_not_the_culprit():
    """The longest delay is downstream of the culprit: the middle vertex is full, and the last one only waits."""
    readings = [
        *two_readings(reading(SOURCE, [0.0] * 4, FOUR)),
        *two_readings(reading(MIDDLE, FOUR)),
        *two_readings(reading(LAST, [0.02] * 4)),
    ]

    found = diagnose(job(SLOW_RUN, readings)).verdict

    assert (found.kind, found.vertex) == (VerdictKind.CAPACITY, "middle")


def test_of_two_full_vertices_the_lower_one_is_the_culprit():
    topology = chain(SOURCE, MIDDLE, "third", LAST)
    readings = [
        *two_readings(reading(SOURCE, [0.0] * 4, FOUR)),
        *two_readings(reading(MIDDLE, FOUR)),
        *two_readings(reading("third", [0.0] * 4, FOUR)),
        *two_readings(reading(LAST, FOUR)),
    ]

    assert diagnose(job(HEALTHY_RUN, readings, topology=topology)).verdict.vertex == "last"


def test_full_subtasks_without_back_pressure_above_are_no_sign():
    """Directly after a start, a metric that was not updated yet shows a vertex as fully busy."""
    readings = two_readings(reading(SOURCE, [0.0] * 4), reading(MIDDLE, FOUR), reading(LAST, FOUR))

    assert diagnose(job(HEALTHY_RUN, readings)).verdict.kind is VerdictKind.NONE


def test_the_zero_readings_of_an_ended_job_are_ignored():
    dead = replace(reading(LAST, [0.0] * 4), idle_ratio=(0.0,) * 4)

    found = diagnose(job(HEALTHY_RUN, [dead])).verdict

    assert found.kind is VerdictKind.NONE
    assert "could not be read" in found.sentence
    assert found.would_decide


def test_without_readings_long_hops_to_most_subtasks_give_capacity_with_low_confidence():
    found = diagnose(job(SLOW_RUN)).verdict

    assert (found.kind, found.vertex, found.confidence) == (VerdictKind.CAPACITY, "last", Confidence.LOW)
    assert any("back-pressure" in what for what in found.would_decide)


def test_without_readings_one_long_hop_is_undecided():
    run = [held_back(n, {SOURCE: [5] * 4, MIDDLE: [10] * 4, LAST: [5_000, 20, 20, 20]}) for n in range(1, 9)]

    found = diagnose(job(run)).verdict

    assert (found.kind, found.subtasks) == (VerdictKind.UNDECIDED, (0,))
    assert any("records" in what for what in found.would_decide)


# --- one subtask ----------------------------------------------------------------------------------------------------


def test_one_full_subtask_with_a_large_share_of_the_records_is_skew():
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


def test_a_straggler_is_found_even_if_its_siblings_are_half_back_pressured():
    """The siblings' channels are blocked while the next vertex aligns.

    Their backpressure says nothing about the straggler.
    """
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


def test_totals_are_used_if_counters_did_not_change_between_readings():
    still = counted(LAST, [0.2, 1.0, 0.2, 0.2], [0.0] * 4, [100, 900, 100, 100], [100, 900, 100, 100])

    assert diagnose(job(SLOW_RUN, [*HELD_UP, *still])).verdict.kind is VerdictKind.SKEW


def test_a_subtask_that_gets_all_the_records_is_skew():
    only = counted(LAST, [0.0, 1.0, 0.0, 0.0], [0.0] * 4, [0] * 4, [0, 900, 0, 0])

    found = diagnose(job(SLOW_RUN, [*HELD_UP, *only])).verdict

    assert found.kind is VerdictKind.SKEW
    assert "all the records" in found.sentence


def test_siblings_that_are_idle_although_they_read_as_much_show_no_skew():
    """The counts are from before the full subtask began to hang, so they do not tell its records from theirs."""
    same = counted(LAST, [0.0, 1.0, 0.0, 0.0], [0.0] * 4, [900] * 4, [900] * 4)

    found = diagnose(job(SLOW_RUN, [*HELD_UP, *same])).verdict

    assert (found.kind, found.subtasks) == (VerdictKind.UNDECIDED, (1,))
    assert "1.0 times" not in found.sentence


# --- late input -----------------------------------------------------------------------------------------------------


def test_a_source_that_emits_its_barrier_late_is_named_and_not_the_join_that_waits():
    readings = [
        *two_readings(reading("fast", [0.1, 0.1], [0.8, 0.8])),
        *two_readings(reading("late", [1.0, 0.1])),
        *two_readings(reading("join", [0.2, 0.2])),
    ]

    found = diagnose(job(late_run(), readings, topology=joined())).verdict

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.LATE_INPUT, "late", (0,))
    assert any("join waits" in row.statement for row in found.evidence)


def test_a_back_pressured_source_is_not_a_late_source():
    readings = [
        *two_readings(reading("fast", [0.0] * 2, [1.0] * 2)),
        *two_readings(reading("late", [0.0] * 2, [1.0] * 2)),
        *two_readings(reading("join", [1.0] * 2)),
    ]

    assert diagnose(job(late_run(), readings, topology=joined())).verdict.vertex == "join"


@pytest.mark.parametrize(("held", "is_late"), [((0.6, 0.6), True), ((0.9, 0.9), False), ((0.7, 0.5), False)])
def test_a_source_that_is_held_as_much_as_its_punctual_siblings_is_late_for_another_reason(held, is_late):
    readings = [
        *two_readings(reading("fast", [0.0] * 2, [0.6] * 2)),
        *two_readings(reading("late", [0.0] * 2, held)),
        *two_readings(reading("join", [0.6] * 2)),
    ]
    found = diagnose(job(late_run(), readings, topology=joined())).verdict

    assert (found.kind is VerdictKind.LATE_INPUT) is is_late


def test_a_start_delay_longer_than_the_acknowledgement_is_clock_skew_and_no_late_source():
    run = [
        completed(n, detail(SOURCE, first=[9_000], ack=[30]), detail(LAST, first=[20], async_=4_000))
        for n in range(1, 7)
    ]

    found = diagnose(job(run, topology=chain(SOURCE, LAST, parallelism=1))).verdict

    assert found.kind is VerdictKind.STORE


# --- queues that are still filling ----------------------------------------------------------------------------------


def filling(first, busy, records=(100, 100, 100, 100)):
    """Build a job in which the barrier waits in a queue before the last vertex, but nothing is backpressured yet."""
    readings = [
        *two_readings(reading(SOURCE, [0.1] * 4)),
        *two_readings(reading(MIDDLE, [0.1] * 4)),
        *counted(LAST, busy, [0.0] * 4, [0] * 4, list(records)),
    ]
    return job([held_back(n, {SOURCE: [5] * 4, MIDDLE: [10] * 4, LAST: first}) for n in range(1, 5)], readings)


def test_a_full_subtask_with_a_growing_queue_is_named_before_the_vertex_above_is_back_pressured():
    found = diagnose(filling([20, 20, 3_000, 20], [0.2, 0.2, 1.0, 0.2])).verdict

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.STRAGGLER, "last", (2,))
    assert (
        "last: longest time of the barrier in the queue before subtask 2, mean",
        pytest.approx(3_000, rel=0.01),
    ) in [(row.statement, row.value) for row in found.evidence]
    assert found.confidence is not Confidence.HIGH


def test_a_full_subtask_without_a_queue_is_not_the_cause_of_a_wait_before_its_sibling():
    found = diagnose(filling([3_000, 20, 20, 20], [0.2, 0.2, 1.0, 0.2])).verdict

    assert found.kind is VerdictKind.UNDECIDED


def test_a_full_subtask_that_nothing_waits_for_is_mentioned_but_not_the_culprit():
    readings = two_readings(reading(SOURCE, [0.1] * 4), reading(MIDDLE, [0.2, 0.9, 0.2, 0.2]), reading(LAST, [0.1] * 4))

    found = diagnose(job(HEALTHY_RUN, readings)).verdict

    assert (found.kind, found.vertex) == (VerdictKind.NONE, None)
    assert ("middle subtask 1 is nearly always busy: no reserve if the load grows", 0.9) in [
        (row.statement, row.value) for row in found.evidence
    ]
    assert found.confidence is Confidence.MEDIUM


def test_a_busy_source_is_not_mentioned():
    readings = two_readings(reading(SOURCE, [0.95] * 4), reading(MIDDLE, [0.2] * 4), reading(LAST, [0.1] * 4))

    found = diagnose(job(HEALTHY_RUN, readings)).verdict

    assert (found.kind, found.confidence) == (VerdictKind.NONE, Confidence.HIGH)
    assert not any("no reserve" in row.statement for row in found.evidence)


def test_a_busy_subtask_is_not_called_skewed_or_slow_alone_if_nothing_is_back_pressured():
    """Goal: one long piece of work looks the same, and a thread dump decides."""
    found = diagnose(filling([5, 5, 5, 3_000], [0.2, 0.2, 0.2, 1.0], records=(None,) * 4)).verdict

    assert found.kind is VerdictKind.UNDECIDED
    assert "nothing is back-pressured: one long piece of work, a straggler, or key skew" in found.sentence
    assert any("thread dump" in text for text in found.would_decide)
