"""Tests of verdicts on handwritten jobs. The contract tests use recordings of real clusters instead."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from backend.analysis.verdict.verdict import checkpoint_verdict, diagnose
from backend.analysis.words.sentences import percent
from backend.domain.checkpoint import CheckpointConfig, CheckpointCounts, LateBarrier
from backend.domain.failure import FailureReason
from backend.domain.topology import Edge, Topology, Vertex
from backend.domain.verdict import Confidence, Health, Phase, VerdictKind
from tests.support.handwritten_jobs import (
    ALIGNED,
    LAST,
    MIDDLE,
    SOURCE,
    START,
    UNALIGNED,
    chain,
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
    HELD_UP,
    SLOW_DELAYS,
    SLOW_RUN,
    counted,
    declined,
    joined,
    late_run,
    silent,
    snapshotting,
    two_readings,
)


def statements(verdict):
    """Return the statements in the verdict's evidence."""
    return [row.statement for row in verdict.evidence]


def test_a_restart_loop_names_the_subtask_and_the_exception():
    run = [
        declined(n, {3}, FailureReason.COORDINATOR_SUSPENDED, "Checkpoint Coordinator is suspending.") for n in (1, 2)
    ]
    broken = ((START, "java.io.IOException: disk full\n\tat Foo"),)

    found = diagnose(job(run, CALM, restart_count=2, exceptions=broken)).verdict

    assert (found.kind, found.subtasks, found.phase) == (VerdictKind.FAILING_SUBTASK, (3,), Phase.SYNC)
    assert any("disk full" in row.statement for row in found.evidence)
    assert not any("\n" in row.statement for row in found.evidence)


# --- one checkpoint, little data ------------------------------------------------------------------------------------


def test_an_expired_checkpoint_shows_when_the_barrier_reached_which_subtask():
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
def test_a_barrier_just_before_or_after_the_expiry_is_shown_with_hundredths(reached_ms, told):
    rows = detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[1_800] * 4), detail(LAST, first=[None, 9, 9, 9])
    checkpoint = failed(9, *rows)
    late = {9: (LateBarrier(LAST, 0, reached_ms, START, 2_000),)}

    found = checkpoint_verdict(checkpoint, job([checkpoint], FULL_LAST, late_barriers=late))

    assert f"checkpoint 9, expired after 3.0 s: the barrier reached last subtask 0 after {told}" in statements(found)


def test_an_expired_checkpoint_without_gauges_names_the_subtasks_that_did_not_acknowledge():
    rows = detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[1_800] * 4), detail(LAST, first=[None, 9, 9, None])
    checkpoint = failed(9, *rows)

    found = checkpoint_verdict(checkpoint, job([checkpoint], FULL_LAST))

    assert "no acknowledgement came from last subtasks 0 and 3" in statements(found)


def test_the_largest_phases_without_the_subtasks_that_did_not_acknowledge_are_lower_bounds():
    """The evidence said 9 ms for a start delay that was at least as long as the timeout."""
    rows = detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[1_800] * 4), detail(LAST, first=[None, 9, 9, None])
    run = [failed(8, *rows), failed(9, *rows)]

    of_one = checkpoint_verdict(run[-1], job(run, FULL_LAST)).evidence
    of_job = diagnose(job(run, FULL_LAST)).verdict.evidence
    whole = diagnose(job(SLOW_RUN, FULL_LAST)).verdict.evidence

    for evidence in (of_one, of_job):
        delays = [row for row in evidence if row.metric == "start_delay" and "largest" in row.statement]
        assert [(row.value, row.is_lower_bound) for row in delays] == [(9, True)]
    assert not any(row.is_lower_bound for row in whole)


@pytest.mark.parametrize(("quick_count", "is_bound"), [(1, True), (2, False)])
def test_a_median_between_a_known_and_an_unknown_largest_value_is_a_lower_bound(quick_count, is_bound):
    others = detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[1_800] * 4)
    known = [failed(n, *others, detail(LAST, first=[2, 3, 4, 5])) for n in range(1, quick_count + 1)]
    missing = failed(9, *others, detail(LAST, first=[None, 9, 9, None]))

    evidence = diagnose(job([*known, missing], FULL_LAST)).verdict.evidence

    (delay,) = (row for row in evidence if row.metric == "start_delay" and "largest" in row.statement)
    assert delay.value < 9
    assert delay.is_lower_bound == is_bound


def test_a_quick_checkpoint_says_that_nothing_holds_it():
    found = checkpoint_verdict(HEALTHY_RUN[0], job(HEALTHY_RUN, CALM))

    assert found.kind is VerdictKind.NONE
    assert found.sentence.startswith("Completed after 40 ms: nothing holds the barrier")


def test_a_checkpoint_in_progress_shows_its_time_and_its_acknowledgements():
    checkpoint = in_progress(12, detail(SOURCE, first=[5] * 4), detail(LAST, first=[None] * 4), every_s=5)

    found = checkpoint_verdict(checkpoint, job([checkpoint], FULL_LAST, topology=chain(SOURCE, LAST)))

    assert found.sentence.startswith("Open for 2.0 s with 4 of 8 subtasks acknowledged")


def test_readings_far_from_the_checkpoint_lower_the_confidence_and_are_mentioned():
    old = held_back(1, SLOW_DELAYS, every_s=-3_600)

    found = checkpoint_verdict(old, job([old], FULL_LAST))

    assert found.confidence is Confidence.LOW
    assert any("more than a minute away" in row.statement for row in found.evidence)


def test_without_any_evidence_the_verdict_is_undecided_and_names_what_is_missing():
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


@pytest.mark.parametrize(("duration_ms", "kind"), [(1_500, VerdictKind.UNDECIDED), (60, VerdictKind.NONE)])
def test_durations_alone_do_not_show_that_nothing_holds_the_barrier_unless_they_are_short(duration_ms, kind):
    run = [replace(quick(n, duration_ms), details=()) for n in range(1, 9)]

    found = diagnose(job(run))

    assert (found.health, found.verdict.kind) == (Health.HEALTHY, kind)
    assert ("neither their subtasks nor back-pressure" in found.verdict.sentence) is (kind is VerdictKind.UNDECIDED)


def test_a_broadcast_input_is_mentioned_if_unaligned_checkpoints_stay_slow():
    topology = chain(SOURCE, LAST, ship="BROADCAST")
    run = [held_back(n, {SOURCE: [5] * 4, LAST: [4_000] * 4}) for n in range(1, 7)]
    readings = [*two_readings(reading(SOURCE, [0.0] * 4, FOUR)), *two_readings(reading(LAST, FOUR))]

    found = diagnose(job(run, readings, topology=topology, config=UNALIGNED)).verdict

    assert any("BROADCAST" in row.statement for row in found.evidence)


def test_a_verdict_does_not_need_the_settings():
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
    """Return readings after a rescale of the last vertex to six subtasks. All subtasks are nearly idle."""
    return [reading(MIDDLE, [0.1] * 4, at_s=at_s), reading(LAST, [0.2] * 6, at_s=at_s)]


def test_readings_after_a_rescale_are_not_used_for_a_checkpoint_before_it():
    checkpoint = SLOW_RUN[-1]
    alone = checkpoint_verdict(checkpoint, job([checkpoint], FULL_LAST))
    mixed = checkpoint_verdict(checkpoint, job([checkpoint], [*FULL_LAST, *_of_six(at_s=70)]))

    assert (mixed.kind, mixed.subtasks) == (VerdictKind.CAPACITY, (0, 1, 2, 3))
    assert "all 6" not in str(mixed.evidence)
    assert [row.value for row in mixed.evidence if "busy" in row.metric.lower()] == [
        row.value for row in alone.evidence if "busy" in row.metric.lower()
    ]


def test_readings_before_a_rescale_are_not_used_for_the_job_after_it():
    now = chain(SOURCE, MIDDLE, LAST)
    now = Topology(tuple(replace(v, parallelism=6) if v.id == LAST else v for v in now.vertices), now.edges)

    found = diagnose(job(SLOW_RUN, FULL_LAST, topology=now))

    assert found.verdict.subtasks != (0, 1, 2, 3)
    assert "subtasks busy" not in str(found.verdict.evidence)


# --- order of the evidence ------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("kind", sorted(_STRONGEST))
def test_evidence_begins_with_what_decides_the_kind_and_ends_with_the_settings(kind):
    evidence, strongest = _STRONGEST[kind]

    found = diagnose(evidence).verdict
    metrics = [row.metric for row in found.evidence]

    assert found.kind is kind
    assert metrics[:3] == strongest
    assert metrics[-2:] == ["interval", "timeout"]


# --- checkpoint in progress -----------------------------------------------------------------------------------------

OPEN_LONG = in_progress(
    9, detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[10] * 4), detail(LAST, first=[None] * 4), every_s=5
)


def test_a_checkpoint_open_for_far_longer_than_the_others_took_makes_a_quick_job_slow():
    found = diagnose(job([*HEALTHY_RUN, OPEN_LONG], FULL_LAST))

    assert (found.health, found.verdict.kind, found.verdict.vertex) == (Health.SLOW, VerdictKind.CAPACITY, "last")
    assert found.verdict.sentence.startswith("Checkpoint 9 has been open for 17.0 s (usually 40 ms) because last is")


def test_a_checkpoint_open_for_too_long_without_back_pressure_points_at_the_store():
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


def test_a_checkpoint_open_past_its_timeout_is_ignored():
    found = diagnose(job([*HEALTHY_RUN, OPEN_LONG], CALM, config=replace(ALIGNED, timeout_ms=5_000)))

    assert found.health is Health.HEALTHY


def test_a_first_checkpoint_that_does_not_complete_is_mentioned():
    found = diagnose(job([replace(OPEN_LONG, header=replace(OPEN_LONG.header, checkpoint_id=1))], FULL_LAST))

    assert (found.health, found.verdict.kind) == (Health.TOO_FEW, VerdictKind.CAPACITY)
    assert found.verdict.sentence.startswith(
        "No checkpoint has completed yet (checkpoint 1 has been open for 17.0 s), "
    )


def test_the_median_does_not_hide_a_problem_that_has_just_begun():
    late = [held_back(n, SLOW_DELAYS) for n in (9, 10, 11)]

    found = diagnose(job([*HEALTHY_RUN, *late], FULL_LAST))

    assert (found.health, found.verdict.kind, found.verdict.vertex) == (Health.SLOW, VerdictKind.CAPACITY, "last")
    assert found.verdict.sentence.startswith("The newest 3 checkpoints took 5.0 s (before: 40 ms) because last is at")
    rows = {row.statement: row.value for row in found.verdict.evidence}
    assert rows["median duration of the newest 3 checkpoints"] == pytest.approx(5_000, rel=0.01)
    assert rows["median duration of the 7 before"] == pytest.approx(40, rel=0.01)
    assert found.verdict.phase is Phase.START_DELAY


@pytest.mark.parametrize(
    ("sync_ms", "interval_ms", "is_named"),
    [(4_000, 14_000, True), (12_000, 14_000, True), (13_000, 14_000, False), (13_000, 5_000, True)],
)
def test_a_source_late_for_a_fifth_of_the_duration_or_for_half_of_the_interval_is_the_second_cause_beside_a_long_sync(
    sync_ms, interval_ms, is_named
):
    late = [
        completed(
            n, detail(SOURCE, first=[5, 3_100, 5, 5]), detail(MIDDLE, first=[3_110] * 4, sync=sync_ms), every_s=20
        )
        for n in range(1, 9)
    ]

    found = diagnose(job(late, CALM, config=replace(ALIGNED, interval_ms=interval_ms))).verdict

    assert (found.kind, found.vertex) == (VerdictKind.SYNC, "middle")
    assert (found.second is not None and found.second.kind is VerdictKind.LATE_INPUT) is is_named


def test_earlier_healthy_checkpoints_do_not_hide_a_source_that_is_late_now():
    late = [
        completed(n, detail(SOURCE, first=[5, 4_000, 5, 5]), detail(MIDDLE, first=[4_010] * 4)) for n in (9, 10, 11)
    ]

    found = diagnose(job([*HEALTHY_RUN, *late], CALM)).verdict

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.LATE_INPUT, "source", (1,))


def test_two_slow_checkpoints_among_many_leave_the_job_healthy():
    found = diagnose(job([*HEALTHY_RUN, *(held_back(n, SLOW_DELAYS) for n in (9, 10))], CALM))

    assert (found.health, found.verdict.kind) == (Health.HEALTHY, VerdictKind.NONE)


# --- restarts -------------------------------------------------------------------------------------------------------


def test_after_the_loss_of_a_task_manager_no_subtask_is_named_and_the_exception_is_shown():
    """Each attempt uses slots of the lost task manager, so the checkpoints of each attempt fail with pending subtasks.

    Most of the failed checkpoints are not in the history.
    """
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


def test_the_sentence_and_the_evidence_have_the_same_number():
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
