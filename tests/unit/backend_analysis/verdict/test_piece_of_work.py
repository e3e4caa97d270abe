"""Tests of one piece of work that holds the thread of a task, beside a vertex that only lacks capacity."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.analysis.verdict.verdict import diagnose
from backend.domain.pressure import FETCH_INTERVAL_KEY
from backend.domain.topology import Placement
from backend.domain.verdict import Confidence, VerdictKind
from tests.support.handwritten_jobs import (
    ALIGNED,
    LAST,
    MIDDLE,
    SOURCE,
    START,
    chain,
    completed,
    detail,
    failed,
    job,
    reading,
)

TIMES = (20, 40, 60)


def expired(number, *, at=MIDDLE, width=2):
    """Build a checkpoint that expires after ten seconds because no subtask from a vertex on acknowledges."""
    order = (SOURCE, MIDDLE, LAST)
    rows = (detail(v, first=[None if order.index(v) >= order.index(at) else 5] * width) for v in order)
    return failed(number, *rows, after_ms=10_000, every_s=10)


def counted(vertex, counts, *, width=2, busy=1.0, rate=None):
    """Build readings of a vertex whose subtasks have read these numbers of records."""
    rates = () if rate is None else (rate,) * width
    rows = (reading(vertex, [busy] * width, records=[n] * width, at_s=at) for at, n in zip(TIMES, counts, strict=True))
    return [replace(r, records_in_per_s=rates) for r in rows]


def steady(vertex, *, held=0.0, width=2):
    return [reading(vertex, [0.05] * width, [held] * width, records=[100 * at] * width, at_s=at) for at in TIMES]


def judged(readings, *, at=MIDDLE, run=None, width=2, **more):
    run = [expired(n, at=at, width=width) for n in range(1, 6)] if run is None else run
    more = {"started_at": START - timedelta(minutes=5), **more}
    return diagnose(job(run, readings, topology=chain(parallelism=width), **more)).verdict


@pytest.mark.parametrize(("width", "held"), [(1, 0.0), (2, 0.9), (8, 0.9)])
def test_a_vertex_that_needs_seconds_for_a_record_is_named_with_this_time(width, held):
    long = counted(MIDDLE, (3, 5, 7), rate=0.1, width=width)
    found = judged([*steady(SOURCE, held=held, width=width), *long, *steady(LAST, width=width)], width=width)

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.CALLBACK, "middle", tuple(range(width)))
    assert "about 10.0 s with each record" in found.sentence
    assert found.evidence[0].value == 10_000
    assert not found.would_decide


def test_a_vertex_whose_busy_time_is_not_reported_is_named_by_its_records():
    def unreported(counts):
        rows = counted(MIDDLE, counts, rate=None)
        return [replace(r, busy_ratio=(None,) * 2, idle_ratio=(None,) * 2) for r in rows]

    few = judged([*steady(SOURCE, held=0.9), *unreported((3, 10, 17)), *steady(LAST)])
    assert (few.kind, few.vertex) == (VerdictKind.CALLBACK, "middle")
    assert "about 2.9 s with each record" in few.sentence
    none = judged([*steady(SOURCE), *unreported((3, 3, 3)), *steady(LAST)])
    assert none.kind is not VerdictKind.CALLBACK


def test_a_full_vertex_that_reads_many_records_lacks_capacity():
    short = counted(MIDDLE, (2_000, 4_000, 6_000), rate=100.0)
    found = judged([*steady(SOURCE, held=0.9), *short, *steady(LAST)])

    assert (found.kind, found.vertex) == (VerdictKind.CAPACITY, "middle")


def test_records_of_a_second_in_a_long_queue_are_a_lack_of_capacity():
    """A barrier that overtakes the queue then waits for a second only."""
    found = judged([*steady(SOURCE, held=0.9), *counted(MIDDLE, (20, 40, 60), rate=1.0), *steady(LAST)])

    assert found.kind is VerdictKind.CAPACITY


def test_few_records_between_two_readings_bound_the_time_of_a_record():
    """Each subtask read two records in 40 s, so at least one of three took 13 s."""
    found = judged([*steady(SOURCE, held=0.9), *counted(MIDDLE, (3, 4, 5)), *steady(LAST)])

    assert found.kind is VerdictKind.CALLBACK
    assert "at least 13.3 s with each record" in found.sentence
    assert found.evidence[0].is_lower_bound


@pytest.mark.parametrize(
    ("before", "kind"),
    [
        pytest.param(2_880, VerdictKind.CALLBACK, id="30 s a record in a day"),
        pytest.param(86_400, VerdictKind.CAPACITY, id="a second a record in a day"),
    ],
)
def test_a_record_that_ends_between_two_near_readings_does_not_make_a_long_piece_a_lack_of_capacity(before, kind):
    """Goal: with readings 14 s apart and values that may be 10 s old, the records of the whole run show the piece."""
    run = [failed(n, *expired(n).details, after_ms=600_000, every_s=600) for n in range(-5, 0)]
    readings = [
        reading(v, [busy] * 2, [held] * 2, records=[count] * 2, at_s=at)
        for at, count in ((46, before), (60, before + 1))
        for v, busy, held in ((SOURCE, 0.0, 0.9), (MIDDLE, 1.0, 0.0), (LAST, 0.1, 0.0))
    ]

    found = judged(
        readings,
        run=run,
        started_at=START - timedelta(days=1),
        cluster_settings=((FETCH_INTERVAL_KEY, "10000 ms"),),
        config=replace(ALIGNED, interval_ms=60_000),
    )

    assert (found.kind, found.vertex) == (kind, "middle")


def late_at_the_sink(number):
    rows = detail(SOURCE, first=[5] * 2), detail(MIDDLE, first=[10] * 2), detail(LAST, first=[4_000] * 2)
    return completed(number, *rows, every_s=10)


def test_a_sink_that_is_busy_without_a_record_while_checkpoints_complete_probably_commits():
    found = judged(
        [*steady(SOURCE), *steady(MIDDLE), *counted(LAST, (3, 3, 3))], run=[late_at_the_sink(n) for n in range(1, 6)]
    )

    assert (found.kind, found.vertex) == (VerdictKind.COMMIT, "last")
    assert found.confidence is Confidence.LOW
    assert "read no record for at least 40.0 s" in found.sentence
    assert "waits up to 4.0 s" in found.sentence
    assert "thread dump" in found.would_decide[0]


def test_without_a_completed_checkpoint_there_is_nothing_to_commit():
    found = judged([*steady(SOURCE), *steady(MIDDLE), *counted(LAST, (3, 3, 3))], at=LAST)

    assert (found.kind, found.vertex) == (VerdictKind.CALLBACK, "last")
    assert "forwarded the barrier" not in found.sentence


@pytest.mark.parametrize("started_at", [None, START])
def test_busy_values_that_may_not_be_set_yet_show_no_piece_of_work(started_at):
    found = judged(
        [*steady(SOURCE), *steady(MIDDLE), *counted(LAST, (3, 3, 3))],
        run=[late_at_the_sink(n) for n in range(1, 6)],
        started_at=started_at,
    )

    assert found.kind is VerdictKind.UNDECIDED


def test_a_count_that_did_not_grow_in_a_few_seconds_is_a_chance_if_many_records_were_read_before():
    """Goal: a vertex at capacity is not called one that works on one record because values were fetched earlier."""
    slow = ((FETCH_INTERVAL_KEY, "38000 ms"),)
    same = [*steady(SOURCE, held=0.9), *counted(MIDDLE, (9_000, 9_000, 9_000)), *steady(LAST)]
    assert judged(same, cluster_settings=slow).kind is VerdictKind.CAPACITY
    few = [*steady(SOURCE, held=0.9), *counted(MIDDLE, (3, 3, 3)), *steady(LAST)]
    found = judged(few, cluster_settings=slow)
    assert found.kind is VerdictKind.CALLBACK
    # Two seconds are certain, which says little of how long the record takes.
    assert "have read hardly a record since they began" in found.sentence
    older = ((FETCH_INTERVAL_KEY, "40000 ms"),)
    assert judged(few, cluster_settings=older).kind is VerdictKind.CAPACITY


@pytest.mark.parametrize(("rate", "took", "wait_ms"), [(0.3, "3.3 s", 60_000), (0.5, "2.0 s", 15_000)])
def test_a_long_queue_of_records_of_seconds_is_a_lack_of_capacity(rate, took, wait_ms):
    """A barrier that overtakes the queue waits for one of them, which is a fraction of the time."""
    heavy = counted(MIDDLE, (6, 12, 18), rate=rate)
    delays = {SOURCE: 5, MIDDLE: wait_ms, LAST: wait_ms}
    slow = [
        completed(n, *(detail(v, first=[first] * 2) for v, first in delays.items()), every_s=100) for n in range(1, 6)
    ]
    found = judged([*steady(SOURCE, held=0.9), *heavy, *steady(LAST)], run=slow)

    assert (found.kind, found.vertex, found.confidence) == (VerdictKind.CAPACITY, "middle", Confidence.MEDIUM)
    assert f"busy for about {took} with each record, and the barrier waits up to" in found.sentence
    assert "a list that ends" in found.would_decide[0]


@pytest.mark.parametrize(("rate", "wait_ms"), [(0.3, 20_000), (0.2, 9_000), (0.05, 300_000)])
def test_a_barrier_that_waits_for_a_few_long_records_is_held_by_pieces_of_work(rate, wait_ms):
    """Goal: the exact rate decides although the counts may be ten seconds old.

    A record of 20 s holds the thread for too long also for a barrier that overtakes a long queue.
    """
    n = round(20 * rate)
    long = counted(MIDDLE, (900, 900 + n, 900 + 2 * n), rate=rate)
    slow = [
        completed(n, *(detail(v, first=[5 if v == SOURCE else wait_ms] * 2) for v in (SOURCE, MIDDLE, LAST)))
        for n in range(1, 6)
    ]
    fetched = ((FETCH_INTERVAL_KEY, "38000 ms"),)
    found = judged([*steady(SOURCE, held=0.9), *long, *steady(LAST)], run=slow, cluster_settings=fetched)

    assert (found.kind, found.vertex) == (VerdictKind.CALLBACK, "middle"), found.sentence
    assert f"about {1 / rate:.1f} s with each record" in found.sentence


def test_a_vertex_that_has_read_many_records_and_then_none_for_a_minute_is_held_by_one_piece_of_work():
    hung = counted(MIDDLE, (900_000, 900_000, 900_000), rate=0.0)
    found = judged([*steady(SOURCE, held=1.0), *hung, *steady(LAST)], started_at=START - timedelta(hours=2))

    assert (found.kind, found.vertex, found.confidence) == (VerdictKind.CALLBACK, "middle", Confidence.LOW)
    assert found.would_decide


def test_the_row_of_a_vertex_that_has_read_a_few_records_does_not_say_that_it_read_none():
    found = judged([*steady(SOURCE, held=0.9), *counted(MIDDLE, (0, 1, 2)), *steady(LAST)])

    assert found.evidence[0].is_lower_bound
    assert "time for one record" in found.evidence[0].statement


def of_one_subtask(count, *, rate, at_s=60):
    """Build one reading of a subtask that is always busy, beside an idle sibling."""
    one = reading(MIDDLE, [1.0, 0.0], records=[count, 4_000], at_s=at_s)
    return [replace(one, records_in_per_s=(rate, 40.0))]


def waiting_for_one(number):
    rows = (detail(v, first=[None if v is not SOURCE else 5, 5]) for v in (SOURCE, MIDDLE))
    return failed(number, *rows, detail(LAST, first=[None] * 2), after_ms=60_000, every_s=60)


def test_one_subtask_with_long_records_in_its_queue_works_long_and_the_vertex_does_not_lack_capacity():
    readings = [*steady(SOURCE)[-1:], *of_one_subtask(50, rate=1 / 6), *steady(LAST)[-1:]]
    found = judged(readings, run=[waiting_for_one(n) for n in (1, 2, 3)])

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.CALLBACK, "middle", (0,))
    assert "about 6.0 s with each record" in found.sentence


def test_the_long_records_that_queue_before_one_subtask_are_no_lack_of_capacity():
    def one(number):
        rows = (detail(v, first=[5, 5]) for v in (SOURCE,))
        return completed(number, *rows, detail(MIDDLE, first=[92_000, 5]), detail(LAST, first=[92_000] * 2), every_s=95)

    readings = [*steady(SOURCE)[-1:], *of_one_subtask(50, rate=1 / 6), *steady(LAST)[-1:]]
    found = judged(readings, run=[one(n) for n in (1, 2, 3)])

    assert (found.kind, found.subtasks) == (VerdictKind.CALLBACK, (0,))
    assert "the barrier waits up to 1 min 32 s behind the queued ones" in found.sentence


@pytest.mark.parametrize(
    ("count", "rate", "more"),
    [
        pytest.param(5_000, 1 / 6, {}, id="it has read many records since it began"),
        pytest.param(50, None, {}, id="no rate is reported"),
        pytest.param(5, 1 / 6, {"started_at": START + timedelta(seconds=30)}, id="the rate is of a shorter time"),
    ],
)
def test_a_single_reading_shows_long_records_only_by_the_rate_of_a_minute_and_the_count_since_the_start(
    count, rate, more
):
    readings = [*steady(SOURCE)[-1:], *of_one_subtask(count, rate=rate), *steady(LAST)[-1:]]
    found = judged(readings, run=[waiting_for_one(n) for n in (1, 2, 3)], **more)

    assert "with each record" not in found.sentence


def quick(number):
    rows = detail(SOURCE, first=[5] * 2), detail(MIDDLE, first=[900] * 2), detail(LAST, first=[910] * 2)
    return completed(number, *rows, every_s=10)


@pytest.mark.parametrize(
    ("counts", "rate", "kind", "words"),
    [
        ((10, 20, 30), 0.5, VerdictKind.CALLBACK, "for about 2.0 s with each record"),
        ((3, 4, 5), None, VerdictKind.CALLBACK, "for at least 13.3 s with each record"),
        ((3, 3, 3), 0.0, VerdictKind.CALLBACK, "read no record for at least 1 min"),
        ((30, 60, 90), 1.5, VerdictKind.CAPACITY, "is at capacity"),
        ((2_000, 4_000, 6_000), 100.0, VerdictKind.CAPACITY, "is at capacity"),
    ],
)
def test_a_full_vertex_of_a_healthy_job_that_works_for_seconds_on_a_record_is_not_said_to_lack_capacity(
    counts, rate, kind, words
):
    """It may read a list that ends, such as splits. Records of less than a second show a lack of capacity."""
    run = [quick(n) for n in range(1, 6)]
    found = judged([*steady(SOURCE, held=0.9), *counted(MIDDLE, counts, rate=rate), *steady(LAST)], run=run)

    assert (found.kind, found.vertex, found.subtasks) == (kind, "middle", (0, 1))
    assert found.sentence.startswith("Checkpoints are healthy at 9")
    assert words in found.sentence
    if kind is VerdictKind.CALLBACK:
        assert found.confidence is not Confidence.HIGH
        assert "a list that ends" in found.would_decide[0]


def uneven(rows, busy):
    """Return readings whose first subtask is busy for the first share of the time, and the second for the second."""
    return [replace(r, busy_ratio=busy, idle_ratio=tuple(round(1 - b, 2) for b in busy)) for r in rows]


def test_long_records_of_one_subtask_of_a_healthy_job_do_not_show_that_the_vertex_may_lack_capacity():
    run = [quick(n) for n in range(1, 6)]
    long = uneven(counted(MIDDLE, (10, 20, 30), rate=0.5), (1.0, 0.0))
    found = judged([*steady(SOURCE, held=0.9), *long, *steady(LAST)], run=run)

    assert (found.kind, found.subtasks) == (VerdictKind.CALLBACK, (0,))
    assert not any("at capacity" in text for text in found.would_decide)
    assert any("thread dump" in text for text in found.would_decide)


@pytest.mark.parametrize(("last", "kind"), [((0.05, 0.05), VerdictKind.STRAGGLER), ((0.4, 0.1), VerdictKind.SLOW_HOST)])
def test_records_that_are_long_at_one_subtask_of_a_healthy_job_are_those_of_a_straggler_or_of_its_slow_host(last, kind):
    run = [quick(n) for n in range(1, 6)]
    long = uneven(counted(MIDDLE, (10, 20, 30), rate=0.5), (1.0, 0.1))
    hosts = ("slow", "other")
    found = judged(
        [*steady(SOURCE, held=0.9), *long, *uneven(steady(LAST), last)],
        run=run,
        placements=tuple(Placement(v, hosts, hosts, (1, 1), ("RUNNING",) * 2) for v in (MIDDLE, LAST)),
    )

    assert (found.kind, found.vertex, found.subtasks) == (kind, "middle", (0,)), found.sentence
    assert found.hosts == ("slow",)


@pytest.mark.parametrize(("last", "kind"), [((0.05, 0.05), VerdictKind.CALLBACK), ((0.4, 0.1), VerdictKind.SLOW_HOST)])
def test_long_records_that_make_checkpoints_expire_are_those_of_a_slow_host_if_other_vertices_show_it(last, kind):
    long = uneven(counted(MIDDLE, (10, 20, 30), rate=0.5), (1.0, 0.1))
    hosts = ("slow", "other")
    found = judged(
        [*steady(SOURCE, held=0.9), *long, *uneven(steady(LAST), last)],
        placements=tuple(Placement(v, hosts, hosts, (1, 1), ("RUNNING",) * 2) for v in (MIDDLE, LAST)),
    )

    assert (found.kind, found.vertex, found.subtasks) == (kind, "middle", (0,)), found.sentence


def test_a_healthy_vertex_that_works_for_seconds_on_a_record_and_holds_nothing_back_is_not_named():
    run = [quick(n) for n in range(1, 6)]
    found = judged([*steady(SOURCE), *counted(MIDDLE, (10, 20, 30), rate=0.5), *steady(LAST)], run=run)

    assert found.kind is VerdictKind.NONE


def test_long_records_of_a_healthy_job_come_before_a_long_part_of_its_snapshots():
    """Goal: what limits the job is told first, as it is for a lack of capacity."""
    run = [
        completed(n, *(detail(v, first=[5] * 2, async_=[900] * 2) for v in (SOURCE, MIDDLE, LAST)), every_s=10)
        for n in range(1, 6)
    ]
    found = judged([*steady(SOURCE, held=0.9), *counted(MIDDLE, (10, 20, 30), rate=0.5), *steady(LAST)], run=run)

    assert found.kind is VerdictKind.CALLBACK
