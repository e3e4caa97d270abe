"""Tests of full subtasks that forwarded the barrier and do not acknowledge, beside the causes that look alike."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from backend.analysis.verdict.verdict import checkpoint_verdict, diagnose
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.verdict import Confidence, Phase, VerdictKind
from tests.support.handwritten_jobs import (
    LAST,
    MIDDLE,
    SOURCE,
    START,
    chain,
    completed,
    detail,
    failed,
    in_progress,
    job,
    reading,
)

WIDTH = 4
TIMEOUT_S = 30
CONFIG = CheckpointConfig(interval_ms=30_000, timeout_ms=30_000, is_unaligned_enabled=False)
BUSY = (1.0, 0.2, 0.2, 0.2)
EVEN = (100, 100, 100, 100)
SKEWED = (600, 100, 100, 100)


def expired(number, *, pending=(0,), below=5, after_s=TIMEOUT_S, every_s=TIMEOUT_S):
    """Build a checkpoint that waited for subtasks of ``middle``. The barrier reached ``last`` after ``below`` ms."""
    rows = [
        detail(SOURCE, first=[5] * WIDTH),
        detail(MIDDLE, first=[None if i in pending else 5 for i in range(WIDTH)]),
        detail(LAST, first=[below] * WIDTH),
    ]
    return failed(number, *rows, after_ms=1_000 * after_s, every_s=every_s)


RUN = [expired(n) for n in (0, 1, 2, 3)]


def readings(rate_at, *, busy=BUSY, records=SKEWED, every_s=4.0, until_s=116):
    """Build readings of which ``middle`` is full and holds back the source.

    ``rate_at`` returns at a second the share of its usual records that subtask 0 reads; None if none are reported.
    """
    found, counts, at_s = [], [3_000.0] * WIDTH, 2.0
    while at_s <= until_s:
        if rate_at is not None:
            now = [every_s * n * (rate_at(at_s) if i == 0 else 1) for i, n in enumerate(records)]
            counts = [c + n for c, n in zip(counts, now, strict=True)]
        found += [
            reading(SOURCE, [0.0] * WIDTH, [0.9] * WIDTH, at_s=at_s),
            reading(MIDDLE, busy, records=[round(c) for c in counts] if rate_at is not None else (), at_s=at_s),
            reading(LAST, [0.1] * WIDTH, records=[100] * WIDTH, at_s=at_s),
        ]
        at_s += every_s
    return found


def judged(run=RUN, rate_at=lambda _: 1.0, **more):
    return diagnose(job(run, readings(rate_at, **more), topology=chain(parallelism=WIDTH), config=CONFIG)).verdict


def test_a_subtask_that_reads_on_is_not_skewed_but_its_snapshot_does_not_arrive():
    """Goal: key skew is not called the cause of checkpoints whose barrier it did not delay."""
    found = judged()

    assert (found.kind, found.vertex, found.subtasks, found.phase) == (VerdictKind.STORE, MIDDLE, (0,), Phase.ASYNC)
    assert found.confidence is Confidence.MEDIUM
    assert found.second is None
    assert "middle subtask 0 forwarded the barrier but did not acknowledge: it read on" in found.sentence
    said = "; ".join([found.sentence, *(e.statement for e in found.evidence)])
    assert "skew" not in said
    assert "straggler" not in said


def test_a_subtask_that_reads_hardly_a_record_while_each_checkpoint_waits_is_in_its_sync_part():
    """Goal: a sync part that outlasts each timeout, and ends before the next trigger, is told from a slow store."""
    run = [expired(n, after_s=20, every_s=40) for n in (0, 1, 2)]
    found = judged(run, rate_at=lambda at_s: 0.02 if at_s % 40 < 26 else 2.0)

    assert (found.kind, found.vertex, found.subtasks, found.phase) == (VerdictKind.SYNC, MIDDLE, (0,), Phase.SYNC)
    assert "read hardly a record since" in found.sentence


def test_without_counts_it_is_not_decided_and_the_readings_that_would_decide_are_named():
    found = judged(rate_at=None)

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.UNDECIDED, MIDDLE, (0,))
    assert found.confidence is Confidence.LOW
    assert found.would_decide == (
        "records read by subtask 0 while a checkpoint waits, from readings some seconds apart:"
        " none in the sync part, as many as before in the async part",
    )


def test_a_single_checkpoint_is_judged_alike():
    found = checkpoint_verdict(
        RUN[-1], job(RUN, readings(lambda _: 1.0), topology=chain(parallelism=WIDTH), config=CONFIG)
    )

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.STORE, MIDDLE, (0,))


@pytest.mark.parametrize(
    ("records", "kind"),
    [pytest.param(SKEWED, VerdictKind.SKEW, id="skew"), pytest.param(EVEN, VerdictKind.STRAGGLER, id="straggler")],
)
def test_a_full_subtask_that_delays_the_barriers_below_it_is_the_cause(records, kind):
    """Goal: skew and a straggler are told as before where the subtasks downstream get the barrier late or not."""
    late = [expired(n, below=20_000) for n in (0, 1, 2, 3)]
    rows = (detail(v, first=[5] * WIDTH if v == SOURCE else [None] * WIDTH) for v in (SOURCE, MIDDLE, LAST))
    none = [failed(0, *rows, after_ms=1_000 * TIMEOUT_S, every_s=TIMEOUT_S)]

    for run in (late, none):
        found = judged(run, records=records)

        assert (found.kind, found.vertex, found.subtasks) == (kind, MIDDLE, (0,))


def test_a_full_sink_is_judged_by_its_queue_because_nothing_shows_that_the_barrier_was_forwarded():
    rows = [
        detail(SOURCE, first=[5] * WIDTH),
        detail(MIDDLE, first=[5] * WIDTH),
        detail(LAST, first=[None, 5, 5, 5]),
    ]
    run = [failed(n, *rows, after_ms=1_000 * TIMEOUT_S, every_s=TIMEOUT_S) for n in (0, 1, 2)]
    pressure = [
        r
        for at_s in (60, 100)
        for r in (
            reading(SOURCE, [0.1] * WIDTH, at_s=at_s),
            reading(MIDDLE, [0.1] * WIDTH, [0.9] * WIDTH, at_s=at_s),
            reading(LAST, BUSY, records=[6 * int(at_s), *[int(at_s)] * 3], at_s=at_s),
        )
    ]

    found = diagnose(job(run, pressure, topology=chain(parallelism=WIDTH), config=CONFIG)).verdict

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.SKEW, LAST, (0,))


def test_a_measured_cause_of_most_checkpoints_comes_before_one_checkpoint_that_waited_for_a_snapshot():
    long = [
        completed(
            n,
            detail(SOURCE, first=[5] * WIDTH),
            detail(MIDDLE, first=[5] * WIDTH),
            detail(LAST, first=[9] * WIDTH, sync=[25_000] * WIDTH),
            every_s=TIMEOUT_S,
        )
        for n in (0, 1, 2)
    ]

    assert (judged([*long, RUN[-1]]).kind, judged([*long, RUN[-1]]).vertex) == (VerdictKind.SYNC, LAST)


@pytest.mark.parametrize(("wait_ms", "first", "second"), [(9_000, "capacity", "sync"), (4_500, "sync", "capacity")])
def test_of_capacity_and_a_sync_part_the_one_that_takes_more_of_the_time_is_told_first(wait_ms, first, second):
    """Goal: the order of two causes is that of their shares of the delay."""
    sync = [6_000] * WIDTH
    run = [
        completed(
            n,
            detail(SOURCE, first=[5] * WIDTH),
            detail(MIDDLE, first=[wait_ms] * WIDTH),
            detail(LAST, first=[wait_ms + 5] * WIDTH, sync=sync),
            every_s=20,
        )
        for n in range(6)
    ]
    pressure = [
        r
        for at_s in (60, 100)
        for r in (
            reading(SOURCE, [0.0] * WIDTH, [1.0] * WIDTH, at_s=at_s),
            reading(MIDDLE, [1.0] * WIDTH, at_s=at_s),
            reading(LAST, [0.35] * WIDTH, at_s=at_s),
        )
    ]

    found = diagnose(job(run, pressure, topology=chain(parallelism=WIDTH), config=CONFIG)).verdict

    assert found.second is not None
    assert (found.kind, found.second.kind) == (first, second)
    assert (found.share_ratio or 0) > (found.second.share_ratio or 0)


@pytest.mark.parametrize("seed", range(12))
def test_wherever_the_subtask_is_no_queue_is_blamed_for_a_barrier_that_was_forwarded(seed):
    """Goal: the place, the parallelism, the mode, the edges and the readings of the job do not matter.

    Method: each seed draws a chain of three to five vertices of which one subtask is full and does not acknowledge,
    with or without counts of records, in one to five expired checkpoints of a job with or without unaligned ones.
    """
    rnd = random.Random(seed)
    width, names = rnd.randint(2, 6), [f"vertex-{n}" for n in range(rnd.randint(3, 5))]
    place, culprit = rnd.randint(1, len(names) - 2), rnd.randrange(width)
    timeout_s, early = rnd.choice([10, 30, 60]), rnd.choice([3, 400])
    config = CheckpointConfig(
        interval_ms=1_000 * timeout_s,
        timeout_ms=1_000 * timeout_s,
        is_unaligned_enabled=rnd.random() < 0.5,
        aligned_timeout_ms=rnd.choice([None, 0, 1_000]),
    )
    rows = [
        detail(v, first=[None if (n, i) == (place, culprit) else early for i in range(width)])
        for n, v in enumerate(names)
    ]
    run = [
        failed(n, *rows, after_ms=1_000 * timeout_s, every_s=timeout_s) for n in range(rnd.randint(1, 60 // timeout_s))
    ]
    times = rnd.choice([0.5, 1, 5])
    pressure = [
        reading(
            v,
            [0.98 if (n, i) == (place, culprit) else 0.1 for i in range(width)],
            [0.85 if n < place else 0.0] * width,
            [round(at_s * (100 * times if i == culprit else 100)) for i in range(width)] if rnd.random() < 0.8 else (),
            at_s=at_s,
        )
        for at_s in (56.0, 59.0, 61.0)
        for n, v in enumerate(names)
    ]
    topology = chain(*names, parallelism=width, ship=rnd.choice(["HASH", "REBALANCE"]))

    found = diagnose(job(run, pressure, topology=topology, config=config)).verdict

    assert found.kind in (VerdictKind.UNDECIDED, VerdictKind.STORE, VerdictKind.SYNC)
    assert (found.vertex, found.subtasks) == (names[place], (culprit,))
    assert "forwarded the barrier" in found.sentence


def looked_at(rate, *, pending=(0,), has_open=True):
    """Build what one look at a job shows: the last checkpoint has been open for 14 s, and the others have expired."""
    run = [expired(n, after_s=20, every_s=40) for n in (0, 1)]
    newest = in_progress(2, *expired(2, pending=pending).details, every_s=40)
    seen = readings(lambda at_s: rate if at_s > 80 else 2.0, every_s=2.0, until_s=94)
    seen = [r for r in seen if r.observed_at >= START + timedelta(seconds=62)]
    evidence = job([*run, newest] if has_open else run, seen, topology=chain(parallelism=WIDTH), config=CONFIG)
    return replace(evidence, now=START + timedelta(seconds=94))


@pytest.mark.parametrize(
    ("rate", "kind"),
    [pytest.param(2.0, VerdictKind.STORE, id="reads on"), pytest.param(0.02, VerdictKind.SYNC, id="stands still")],
)
def test_a_checkpoint_that_is_open_and_not_late_yet_decides_what_the_expired_ones_waited_for(rate, kind):
    """Goal: one look at a job decides, although the expired checkpoints had ended before the first reading."""
    found = diagnose(looked_at(rate)).verdict

    assert (found.kind, found.vertex, found.subtasks) == (kind, MIDDLE, (0,)), found.sentence
    assert diagnose(looked_at(rate, has_open=False)).verdict.kind is VerdictKind.UNDECIDED


def test_an_open_checkpoint_that_does_not_wait_for_the_subtask_decides_nothing():
    assert diagnose(looked_at(2.0, pending=())).verdict.kind is VerdictKind.UNDECIDED
