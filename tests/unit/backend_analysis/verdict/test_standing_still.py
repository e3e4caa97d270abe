"""Tests of subtasks that stand still: in a long callback, in a commit, or in a sync part that does not end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.analysis.verdict.verdict import checkpoint_verdict, diagnose
from backend.domain.ids import VertexId
from backend.domain.pressure import FETCH_INTERVAL_KEY
from backend.domain.protocols import Protocol
from backend.domain.topology import Edge, Vertex
from backend.domain.verdict import Confidence, Health, Phase, VerdictKind
from tests.support.handwritten_jobs import (
    LAST,
    MIDDLE,
    SOURCE,
    UNALIGNED,
    chain,
    completed,
    detail,
    failed,
    job,
    reading,
)
from tests.support.handwritten_runs import CALM

RATE = 100
OTHER = VertexId("other")


def waiting(number, wait_ms, *, at=LAST):
    """Build a checkpoint whose barrier waits in front of a vertex."""
    before = {SOURCE: 5, MIDDLE: 10, LAST: 20}
    rows = (
        detail(
            v, first=[ms + (wait_ms if (SOURCE, MIDDLE, LAST).index(v) >= (SOURCE, MIDDLE, LAST).index(at) else 0)] * 4
        )
        for v, ms in before.items()
    )
    return completed(number, *rows)


def counted(records_at, *, vertex=LAST, busy=0.7, until_s=50):
    """Build a reading of a vertex for each second. ``records_at`` gives its records by second."""
    rows = [reading(vertex, [busy] * 4, records=[records_at(s)] * 4, at_s=s) for s in range(until_s)]
    others = [v for v in (SOURCE, MIDDLE, LAST) if v != vertex]
    return [*(reading(v, [0.1] * 4, [0.3] * 4, at_s=s) for s in range(until_s) for v in others), *rows]


def stands_still(second):
    """Count records that are read except in the first three seconds of every five."""
    return RATE * (second // 5 * 2 + max(0, second % 5 - 3))


RUN = [waiting(n, 3_000) for n in range(1, 9)]


def test_a_vertex_that_reads_nothing_while_barriers_wait_is_in_a_long_callback():
    found = diagnose(job(RUN, counted(stands_still, vertex=MIDDLE), topology=chain(SOURCE, LAST, MIDDLE)))

    assert found.health is Health.SLOW
    sink = [waiting(n, 3_000, at=MIDDLE) for n in range(1, 9)]
    verdict = diagnose(job(sink, counted(stands_still, vertex=MIDDLE))).verdict
    assert (verdict.kind, verdict.vertex, verdict.subtasks) == (VerdictKind.CALLBACK, "middle", (0, 1, 2, 3))
    assert verdict.phase is Phase.START_DELAY
    assert verdict.share_ratio == pytest.approx(0.99, abs=0.02)
    where = "all 4 subtasks of middle"
    assert [e.statement for e in verdict.evidence[:3]] == [
        f"time for which the first barrier waited in front of {where}, mean",
        f"{where}: share of the time for which the first barrier waited there, in which no record was read",
        f"{where}: records read in a second while the first barrier waited there, divided by their usual number",
    ]
    assert "time to spare" not in said(verdict)


def test_a_vertex_that_reads_as_fast_as_ever_while_barriers_wait_has_a_queue():
    verdict = diagnose(job(RUN, counted(lambda second: RATE * second))).verdict

    assert verdict.kind is VerdictKind.UNDECIDED


def test_barriers_that_overtake_queues_and_wait_all_the_same_show_a_long_callback():
    verdict = diagnose(job([waiting(n, 3_000, at=MIDDLE) for n in range(1, 9)], CALM, config=UNALIGNED)).verdict

    assert (verdict.kind, verdict.vertex) == (VerdictKind.CALLBACK, "middle")


@pytest.mark.parametrize(
    ("version", "timeout_ms", "overtakes"),
    [("1.13.6", 500, False), ("1.13.6", None, False), ("1.13.6", 0, True), ("1.16.3", 500, True), (None, 500, True)],
)
def test_before_flink_1_16_barriers_overtake_nothing_in_the_buffers_of_their_sender_after_a_timeout(
    version, timeout_ms, overtakes
):
    run = [waiting(n, 3_000, at=MIDDLE) for n in range(1, 9)]
    config = replace(UNALIGNED, aligned_timeout_ms=timeout_ms)
    verdict = diagnose(job(run, CALM, config=config, flink_version=version)).verdict

    assert (verdict.kind is VerdictKind.CALLBACK) is overtakes


def test_markers_that_overtake_nothing_wait_in_queues_and_the_verdict_names_them():
    markers = replace(UNALIGNED, protocol=Protocol.CHANDY_LAMPORT)
    run = [waiting(n, 3_000, at=MIDDLE) for n in range(1, 9)]
    run = [replace(c, header=replace(c.header, protocol=markers.protocol)) for c in run]
    verdict = diagnose(job(run, CALM, config=markers)).verdict

    assert verdict.kind is not VerdictKind.CALLBACK
    assert "markers overtake nothing" in "; ".join(e.statement for e in verdict.evidence)


def test_over_a_broadcast_barriers_overtake_nothing():
    run = [waiting(n, 3_000, at=MIDDLE) for n in range(1, 9)]

    assert diagnose(job(run, CALM, config=UNALIGNED, topology=chain(ship="BROADCAST"))).verdict.kind is not (
        VerdictKind.CALLBACK
    )


def committing(number):
    """Build a checkpoint whose barrier waits three seconds at the sink, and which completes a second later."""
    rows = detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[10] * 4), detail(LAST, first=[3_000] * 4, async_=1_000)
    return completed(number, *rows)


def test_a_sink_that_stands_still_from_each_completion_to_the_next_barrier_waits_for_its_commit():
    """It reads only between the barrier, three seconds after the trigger, and the completion a second later."""
    readings = counted(lambda second: RATE * (second // 5 + (second % 5 >= 4)))

    verdict = diagnose(job([committing(n) for n in range(1, 9)], readings)).verdict

    assert (verdict.kind, verdict.vertex) == (VerdictKind.COMMIT, "last")
    assert "outside commit" in verdict.sentence


def test_a_sink_that_also_reads_after_completions_is_in_a_callback():
    verdict = diagnose(job([committing(n) for n in range(1, 9)], counted(stands_still))).verdict

    assert verdict.kind is VerdictKind.CALLBACK


def held_by_commits(records_between, *, later_s=0.0, took_s=7, until_s=110):
    """Build a job whose checkpoints take ``took_s`` one after the other, with readings of a busy sink 10 s apart.

    ``records_between`` gives the records of the sink between two readings, from the number of barriers between them. A
    barrier counts ``later_s`` after it arrived.
    """
    rows = (
        detail(SOURCE, first=[5] * 4),
        detail(MIDDLE, first=[10] * 4),
        detail(LAST, first=[round(1_000 * took_s) - 100] * 4, async_=100),
    )
    run = [completed(n, *rows, every_s=took_s) for n in range(1, 16)]
    arrivals = [took_s * (n + 1) - 0.1 for n in range(1, 16)]
    total, readings = 0, []
    for at_s in range(10, until_s, 10):
        total += records_between(sum(at_s - 10 < at + later_s <= at_s for at in arrivals))
        readings += [
            reading(SOURCE, [0.1] * 4, [0.8] * 4, records=[10 * at_s] * 4, at_s=at_s),
            reading(MIDDLE, [0.1] * 4, [0.8] * 4, records=[10 * at_s] * 4, at_s=at_s),
            reading(LAST, [1.0] * 4, [0.0] * 4, records=[total] * 4, at_s=at_s),
        ]
    return diagnose(job(run, readings)).verdict


def test_a_sink_that_is_always_busy_but_reads_only_with_each_barrier_waits_for_its_commit():
    verdict = held_by_commits(lambda barriers: 400 * barriers)

    assert (verdict.kind, verdict.vertex, verdict.subtasks) == (VerdictKind.COMMIT, LAST, (0, 1, 2, 3))
    assert "wait up to 6.9 s for an outside commit" in verdict.sentence


def test_records_that_come_with_a_barrier_may_be_counted_on_the_other_side_of_a_reading():
    """Goal: a commit is not called a lack of capacity because a barrier arrived just before a reading.

    The barrier of checkpoint 9 arrives 0.1 s before a reading, and its records are read 0.1 s after it.
    """
    verdict = held_by_commits(lambda barriers: 400 * barriers, later_s=0.2)

    assert (verdict.kind, verdict.vertex) == (VerdictKind.COMMIT, LAST)


def test_two_readings_beside_a_barrier_count_together():
    """Goal: the only time with more barriers is not left out because one of them arrived beside a reading.

    The barriers arrive after 32.3, 40.4 and 48.5 s. All other pairs of readings have one barrier between them.
    """
    verdict = held_by_commits(lambda barriers: 400 * barriers, took_s=8.1, until_s=90)

    assert verdict.kind is VerdictKind.COMMIT


def test_a_sink_at_changing_rates_is_not_surely_at_capacity_if_each_pair_of_readings_has_one_barrier():
    """Goal: what the readings cannot tell from commits is not called a lack of capacity with high confidence."""
    rates = iter([300, 300, 300, 500, 500, 500, 500, 500, 500, 500])
    steady = held_by_commits(lambda _: 400, took_s=10)
    found = held_by_commits(lambda _: next(rates), took_s=10)

    assert (steady.kind, steady.confidence, steady.would_decide) == (VerdictKind.CAPACITY, Confidence.HIGH, ())
    assert (found.kind, found.confidence) == (VerdictKind.CAPACITY, Confidence.MEDIUM)
    assert "is the sink in a record, or in a commit?" in found.would_decide[0]


def test_a_sink_that_is_always_busy_and_reads_steadily_lacks_capacity():
    assert held_by_commits(lambda barriers: 600).kind is VerdictKind.CAPACITY
    # Numbers that differ a little with the barriers prove nothing.
    assert held_by_commits(lambda barriers: 600 + 50 * barriers).kind is VerdictKind.CAPACITY


def struck_now_and_then(source_rate, *, held=0.0, busy=0.35, others=None):
    """Diagnose a job of which every third checkpoint waits 4 s before a vertex that is busy for the share ``busy``.

    The readings are 10 s apart, too far to show what the vertex reads while a barrier waits. ``source_rate`` gives the
    records that the source emits in the 10 s before a reading, by its number. ``held`` is the back-pressure of the
    vertex; if there is some, the vertex below it is the busy one. ``others`` are the readings of a second source.
    """
    run = [waiting(n, 4_000 if n % 3 == 0 else 0, at=MIDDLE) for n in range(1, 25)]
    readings, emitted = [], 0
    for number in range(1, 13):
        at_s, emitted = 10 * number, emitted + source_rate(number)
        source = reading(SOURCE, [0.1] * 4, [0.2] * 4, at_s=at_s)
        readings += [
            replace(source, records_out_count=(emitted,) * 4),
            reading(MIDDLE, [0.05 if held else busy] * 4, [held] * 4, records=[emitted] * 4, at_s=at_s),
            reading(LAST, [0.35 if held else 0.1] * 4, records=[emitted] * 4, at_s=at_s),
        ]
    topology = chain()
    if others is not None:
        edges = (*topology.edges, Edge(OTHER, MIDDLE, "HASH"))
        topology = replace(topology, vertices=(Vertex(OTHER, str(OTHER), 4), *topology.vertices), edges=edges)
    evidence = job(run, [*(others or ()), *readings], topology=topology)
    return diagnose(replace(evidence, now=evidence.now + timedelta(seconds=70)))


def test_an_intermittent_wait_before_a_vertex_with_time_to_spare_and_steady_input_is_a_callback():
    found = struck_now_and_then(lambda number: 1_000)

    assert found.health is Health.INTERMITTENT
    assert (found.verdict.kind, found.verdict.vertex) == (VerdictKind.CALLBACK, MIDDLE)
    assert "middle has time to spare and its input is steady, so no queue delayed" in said(found.verdict)


def said(verdict):
    return "; ".join(e.statement for e in verdict.evidence)


@pytest.mark.parametrize("known", [0, 1, 3])
def test_a_source_whose_rates_are_not_known_is_not_called_steady(known):
    """The first source is steady. The readings of the other are too few to show whether it emits in bursts."""
    rows = [replace(reading(OTHER, [0.1] * 4, at_s=10 * n), records_out_count=(30 * n,) * 4) for n in range(1, 13)]

    steady, unknown = (struck_now_and_then(lambda number: 1_000, others=read).verdict for read in (rows, rows[:known]))

    assert steady.kind is VerdictKind.CALLBACK
    assert unknown.kind is not VerdictKind.CALLBACK
    assert "steady" not in said(unknown)


@pytest.mark.parametrize(
    ("rates", "busy", "kind"),
    [
        # The source falls behind by 3 s of its flow, which is less than the 4 s that barriers wait, and catches up.
        ((700, 1_300), 0.65, VerdictKind.CALLBACK),
        ((700, 1_300), 0.8, VerdictKind.CAPACITY),
        # It falls behind by 5 s, so it emits in bursts of its own.
        ((500, 1_500), 0.65, VerdictKind.CAPACITY),
        ((500, 1_500), 0.35, VerdictKind.CAPACITY),
    ],
)
def test_a_source_that_is_only_held_back_by_the_wait_is_steady(rates, busy, kind):
    verdict = struck_now_and_then(lambda number: rates[number % 2], busy=busy).verdict

    assert (verdict.kind, verdict.vertex) == (kind, MIDDLE)
    assert ("falls behind for no longer than barriers waited" in said(verdict)) == (kind is VerdictKind.CALLBACK)
    assert "steady" not in said(verdict)


def test_every_subtask_at_which_overtaking_barriers_waited_long_stood_still():
    waits = [2_000, 1_800, 2_600, 1_200]
    run = [completed(n, detail(MIDDLE, first=waits), detail(LAST, first=[ms + 5 for ms in waits])) for n in range(1, 9)]
    verdict = diagnose(job(run, CALM, config=UNALIGNED)).verdict

    assert (verdict.kind, verdict.vertex, verdict.subtasks) == (VerdictKind.CALLBACK, MIDDLE, (0, 1, 2, 3))


def test_the_vertex_below_is_named_if_it_holds_back_the_one_before_which_barriers_wait():
    verdict = struck_now_and_then(lambda number: 1_000, held=0.25).verdict

    assert (verdict.kind, verdict.vertex) == (VerdictKind.CALLBACK, LAST)
    # The barrier waited in front of the vertex that is held back.
    assert verdict.evidence[0].statement == "time for which the first barrier waited in front of middle, mean"


def test_an_intermittent_wait_with_bursts_of_input_is_a_queue():
    found = struck_now_and_then(lambda number: 3_000 if number % 2 else 500)

    assert found.health is Health.INTERMITTENT
    assert found.verdict.kind is VerdictKind.CAPACITY


@pytest.mark.parametrize(
    ("busy", "second_ms", "kind", "named"),
    [
        ([0.35, 0.35, 0.30, 0.30], 4_000, VerdictKind.CAPACITY, (0, 1, 2, 3)),
        ([0.35, 0.35, 0.05, 0.05], 4_000, VerdictKind.SKEW, (0, 1)),
        pytest.param([0.35, 0.05, 0.05, 0.05], 900, VerdictKind.SKEW, (0,), id="a much shorter queue is not named"),
    ],
)
def test_a_queue_in_bursts_before_some_subtasks_is_skew_only_if_their_siblings_are_much_less_busy(
    busy, second_ms, kind, named
):
    def reached(number):
        return [4_000, second_ms, 30, 30] if number % 3 == 0 else [15] * 4

    run = [
        completed(
            n,
            detail(SOURCE, first=[5] * 4),
            detail(MIDDLE, first=reached(n)),
            detail(LAST, first=[max(reached(n)) + 10] * 4),
        )
        for n in range(1, 25)
    ]
    readings, emitted = [], 0
    for number in range(1, 13):
        at_s, emitted = 10 * number, emitted + (3_000 if number % 2 else 500)
        source = reading(SOURCE, [0.1] * 4, [0.2] * 4, at_s=at_s)
        # Each record takes as long at every subtask.
        records = [round(emitted * share / 0.35) for share in busy]
        readings += [
            replace(source, records_out_count=(emitted,) * 4),
            reading(MIDDLE, busy, records=records, at_s=at_s),
            reading(LAST, [0.1] * 4, records=[emitted] * 4, at_s=at_s),
        ]
    evidence = job(run, readings)

    verdict = diagnose(replace(evidence, now=evidence.now + timedelta(seconds=70))).verdict

    assert (verdict.kind, verdict.vertex, verdict.subtasks) == (kind, MIDDLE, named)


def passed_by_the_first(*, busy, source_rate=lambda number: 1_000):
    """Diagnose a job whose windows fire at each trigger: the first barrier gets through, the others wait for 3 s."""
    rows = [
        detail(SOURCE, first=[5] * 4),
        detail(MIDDLE, first=[10] * 4),
        detail(LAST, first=[20] * 4, alignment=[2_900, 3_000, 3_100, 2_800]),
    ]
    readings, emitted = [], 0
    for number in range(1, 7):
        at_s, emitted = 10 * number, emitted + source_rate(number)
        source = reading(SOURCE, [0.1] * 4, at_s=at_s)
        readings += [
            replace(source, records_out_count=(emitted,) * 4),
            reading(MIDDLE, [0.1] * 4, [0.05] * 4, records=[emitted] * 4, at_s=at_s),
            reading(LAST, [busy] * 4, records=[emitted] * 4, at_s=at_s),
        ]
    return diagnose(job([completed(n, *rows) for n in range(1, 9)], readings)).verdict


def test_a_vertex_with_time_to_spare_that_lets_the_last_barriers_wait_is_in_a_callback():
    verdict = passed_by_the_first(busy=0.65)

    assert (verdict.kind, verdict.vertex, verdict.subtasks) == (VerdictKind.CALLBACK, LAST, (0, 1, 2, 3))
    assert "stand still for up to 3.1 s" in verdict.sentence
    assert (
        verdict.evidence[0].statement
        == "time for which the last barrier waited in front of all 4 subtasks of last, mean"
    )


def test_last_barriers_that_wait_before_a_busy_vertex_or_with_bursts_of_input_are_in_a_queue():
    assert passed_by_the_first(busy=0.79).kind is not VerdictKind.CALLBACK
    bursts = passed_by_the_first(busy=0.65, source_rate=lambda number: 3_000 if number % 2 else 500)
    assert bursts.kind is not VerdictKind.CALLBACK


# --- a sync part that does not end ----------------------------------------------------------------------------------


def expired(number):
    rows = detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[9, None, 9, 9]), detail(LAST, first=[20] * 4)
    return failed(number, *rows, after_ms=10_000)


def test_a_subtask_that_alone_does_not_acknowledge_and_reads_nothing_is_stuck_in_its_sync_part():
    stuck = [reading(MIDDLE, [1.0] * 4, records=[100 * s, 700, 100 * s, 100 * s], at_s=s) for s in (56, 58, 60)]
    held = [reading(SOURCE, [0.0] * 4, [0.9] * 4, at_s=s) for s in (56, 58, 60)]

    found = diagnose(job([expired(n) for n in (1, 2, 3)], [*stuck, *held])).verdict

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.SYNC, "middle", (1,))
    assert found.phase is Phase.SYNC
    assert "stuck in the sync part" in found.sentence


def test_a_subtask_that_goes_on_reading_is_not_stuck():
    reads = [reading(MIDDLE, [0.3] * 4, records=[100 * s] * 4, at_s=s) for s in (56, 58, 60)]

    found = diagnose(job([expired(n) for n in (1, 2, 3)], [*reads, *CALM])).verdict

    assert (found.kind, found.phase) == (VerdictKind.STORE, Phase.ASYNC)


@pytest.mark.parametrize(
    ("fetched_every", "kind"), [("10000 ms", VerdictKind.CAPACITY), ("0 ms", VerdictKind.CALLBACK)]
)
def test_values_that_were_fetched_earlier_than_their_reading_do_not_show_that_a_subtask_stood_still(
    fetched_every, kind
):
    """Goal: a vertex at capacity is not said to stand still because two fetches were closer than the two readings.

    Method: the vertex reads steadily. The values of the second reading are 10 s old, as if another client had made
    Flink fetch just then, so few records seem to be read while the barrier waits.
    """
    readings = [
        row
        for at_s, value_s in ((0, 0), (13, 3), (26, 26))
        for row in (
            reading(SOURCE, [0.1] * 4, [0.9] * 4, at_s=at_s),
            reading(MIDDLE, [0.1] * 4, [0.9] * 4, at_s=at_s),
            reading(LAST, [1.0] * 4, records=[RATE * value_s] * 4, at_s=at_s),
        )
    ]
    evidence = job(
        [completed(1, *(detail(v, first=[ms] * 4) for v, ms in ((SOURCE, 5), (MIDDLE, 10), (LAST, 8_000))))],
        readings,
        cluster_settings=((FETCH_INTERVAL_KEY, fetched_every),),
    )

    assert checkpoint_verdict(evidence.checkpoints[0], evidence).kind is kind


def still(at_s, busy, *, vertex=MIDDLE, sent=None):
    """Build a reading of a vertex whose subtask 1 has read the same number of records as in every other reading."""
    records = [100 * at_s, 700, 100 * at_s, 100 * at_s]
    found = reading(vertex, [0.3, busy, 0.3, 0.3], records=records, at_s=at_s)
    return found if sent is None else replace(found, records_out_count=(100 * at_s, sent, 100 * at_s, 100 * at_s))


def calm_but(vertex):
    return [r for r in CALM if r.vertex_id != vertex]


@pytest.mark.parametrize(
    ("busy", "expected"),
    [
        pytest.param((0.02, 0.02, 0.01), VerdictKind.STORE, id="it waits for records"),
        pytest.param((0.4, 0.35, 0.3), VerdictKind.STORE, id="it has read what there was"),
        pytest.param((None, None, None), VerdictKind.STORE, id="not known"),
        pytest.param((0.1, 0.15, 0.2), VerdictKind.SYNC, id="busy since shortly"),
        pytest.param((0.85, 0.85, 0.85), VerdictKind.SYNC, id="busy"),
    ],
)
def test_a_subtask_that_reads_nothing_is_stuck_only_if_it_is_busy_meanwhile(busy, expected):
    readings = [still(s, share) for s, share in zip((50, 55, 60), busy, strict=True)]

    found = diagnose(job([expired(n) for n in (1, 2, 3)], [*readings, *calm_but(MIDDLE)])).verdict

    assert found.kind is expected, found.sentence


def test_a_source_that_goes_on_sending_is_not_stuck_although_it_reads_from_no_other_task():
    rows = detail(SOURCE, first=[5, None, 5, 5]), detail(MIDDLE, first=[9] * 4), detail(LAST, first=[20] * 4)
    run = [failed(n, *rows, after_ms=10_000) for n in (1, 2, 3)]

    def said_of(*sent):
        readings = [still(s, 0.9, vertex=SOURCE, sent=count) for s, count in zip((50, 55, 60), sent, strict=True)]
        return diagnose(job(run, [*readings, *calm_but(SOURCE)])).verdict.kind

    assert said_of(500, 600, 700) is VerdictKind.STORE
    assert said_of(500, 500, 500) is VerdictKind.SYNC
