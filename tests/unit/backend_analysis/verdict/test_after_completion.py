"""Tests of work after each completed checkpoint that lets the next one expire, beside a queue."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.analysis.verdict.verdict import checkpoint_verdict, diagnose
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.verdict import VerdictKind
from tests.support.handwritten_jobs import LAST, MIDDLE, SOURCE, START, chain, completed, detail, failed, job, reading

# Records read while the vertex may already process a queue, in the second half of the time after a completion.
QUEUE = {"records": (700, 3_700), "before_s": (12, 2)}
CONFIG = CheckpointConfig(interval_ms=8_000, timeout_ms=20_000, is_unaligned_enabled=False)


def run_of(waits_ms, *, at=LAST, late=None):
    """Build checkpoints that follow one another. Each has its wait at a vertex, or None if it expires after 20 s.

    ``late`` is the vertex that does not acknowledge the expired ones, by default the same.
    """
    found, now_s = [], 0.0
    order = (SOURCE, MIDDLE, LAST)
    for number, wait in enumerate(waits_ms, start=1):
        rows = [detail(v, first=[5 if order.index(v) < order.index(at) else wait] * 2) for v in order]
        if wait is None and late is not None:
            rows = [detail(v, first=[None if v is late else 5] * 2) for v in order]
        one = failed(number, *rows, after_ms=20_000) if wait is None else completed(number, *rows)
        began = START + timedelta(seconds=now_s)
        found.append(replace(one, header=replace(one.header, triggered_at=began)))
        now_s += 20 if wait is None else wait / 1000
    return found, now_s


def evidence_of(waits_ms, *, at=LAST, busy=1.0, left_out=None, late=None, records=(700, 702), before_s=(20, 10)):
    """Build the evidence. Each subtask of the vertex has read ``records``, so long before the end of the newest one."""
    run, end_s = run_of(waits_ms, at=at, late=late)
    times = [end_s - s for s in before_s]
    readings = [
        row
        for at_s, count in zip(times, records, strict=True)
        for v in (SOURCE, MIDDLE, LAST)
        for row in [
            reading(v, [busy] * 2, records=[count] * 2, at_s=at_s)
            if v == at
            else reading(v, [0.1] * 2, [0.8 if v != LAST else 0.0] * 2, records=[int(300 * at_s)] * 2, at_s=at_s)
        ]
    ]
    run = [c for c in run if c.header.checkpoint_id != left_out]
    evidence = job(run, readings, topology=chain(parallelism=2), config=CONFIG)
    return replace(evidence, now=START + timedelta(seconds=end_s + 1))


def judged(waits_ms, **more):
    return diagnose(evidence_of(waits_ms, **more)).verdict


@pytest.mark.parametrize(
    ("waits", "work"),
    [
        ([5_000, None, 5_000, None, 5_200, None, 5_100], "25.1 s"),
        ([300, None, None, 6_000, None, None, 6_500], "46.2 s"),
    ],
)
def test_work_after_each_completed_checkpoint_that_outlasts_the_timeout_is_named_with_its_time(waits, work):
    found = judged(waits)

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.COMMIT, "last", (0, 1))
    assert f"about {work} after each completed checkpoint" in found.sentence
    assert "forwarded" not in found.sentence


def test_a_single_checkpoint_that_expired_meanwhile_has_the_same_verdict():
    evidence = evidence_of([5_000, None, 5_000, None, 5_200])
    found = checkpoint_verdict(evidence.checkpoints[3], evidence)

    assert (found.kind, found.vertex) == (VerdictKind.COMMIT, "last")


def test_work_after_a_completion_is_also_found_at_a_vertex_that_is_no_sink():
    assert judged([5_000, None, 5_000, None, 5_200], at=MIDDLE).vertex == "middle"


@pytest.mark.parametrize(
    "waits",
    [
        pytest.param([15_000, None, 16_000, None, 15_500, None, 15_000], id="a queue of about the timeout"),
        pytest.param([1_000, None, 9_000, None, 300, 400, 9_500], id="times that differ"),
        pytest.param([5_000, None, 5_000], id="once"),
        pytest.param([None, None, None, None, None], id="none completes"),
    ],
)
def test_a_full_vertex_whose_barriers_do_not_follow_completions_lacks_capacity(waits):
    assert judged(waits, **QUEUE).kind is VerdictKind.CAPACITY


def test_a_checkpoint_that_is_not_known_breaks_the_row():
    waits = [5_000, None, 5_000, None, 5_200]

    assert judged(waits, **QUEUE).kind is VerdictKind.COMMIT
    assert judged(waits, left_out=4, **QUEUE).kind is VerdictKind.CAPACITY


def test_a_vertex_that_acknowledged_the_expired_checkpoints_did_not_hold_them_up():
    """Goal: a store that hangs in every second checkpoint, at triggers of even times, is no work of a quick sink."""
    waits = [30, None, 30, None, 30, None, 30]
    found = judged(waits, late=MIDDLE, busy=0.85, records=(5_000, 55_000))

    assert found.kind is not VerdictKind.COMMIT, found.sentence


def test_only_the_subtasks_that_did_not_acknowledge_the_expired_checkpoints_are_named():
    evidence = evidence_of([5_000, None, 5_000, None, 5_200])
    rows = {c.header.checkpoint_id: c for c in evidence.checkpoints}
    for number in (2, 4):
        one = rows[number]
        rows[number] = replace(one, details=(*one.details[:2], detail(LAST, first=[None, 9])))
    found = diagnose(replace(evidence, checkpoints=tuple(rows.values()))).verdict

    assert (found.kind, found.subtasks) == (VerdictKind.COMMIT, (0,))


def test_a_vertex_that_reads_on_after_each_completion_does_no_work_that_holds_its_thread():
    found = judged([5_000, None, 5_000, None, 5_000], records=(700, 3_700), before_s=(24, 14))

    assert found.kind is VerdictKind.CAPACITY, found.sentence


def test_an_acknowledgement_that_comes_after_the_end_is_none_in_time():
    """Goal: Flink keeps it, with the start delay that the work gave it (measured on Flink 1.20.5 and 2.3.0)."""
    evidence = evidence_of([5_000, None, 5_000, None, 5_200])
    rows = [
        replace(c, details=(*c.details[:2], detail(LAST, first=[25_000] * 2))) if c.header.failure_reason else c
        for c in evidence.checkpoints
    ]
    found = diagnose(replace(evidence, checkpoints=tuple(rows))).verdict

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.COMMIT, "last", (0, 1))


def in_a_row(waits_ms, *, gap_s=0.05, held=0.0, async_=0, records=(700, 700), rate=None, over_s=40):
    """Build a job whose checkpoints begin soon after one another, and wait for one subtask of the last vertex.

    Each subtask of this vertex has read ``records``: ``over_s`` before the end, and at the end. The engine reports its
    ``rate`` in records a second.
    """
    run, now_s = [], 0.0
    for number, wait in enumerate(waits_ms, start=1):
        one = completed(
            number, *(detail(v, first=[5, 5]) for v in (SOURCE, MIDDLE)), detail(LAST, first=[wait, 5], async_=async_)
        )
        run.append(replace(one, header=replace(one.header, triggered_at=START + timedelta(seconds=now_s))))
        now_s += (wait + async_) / 1000 + gap_s
    readings = [
        replace(
            reading(
                v,
                [1.0 if v is LAST else 0.0, 0.0],
                [held if v is MIDDLE else 0.0] * 2,
                [count if v is LAST else round(20 * (now_s + at))] * 2,
                at_s=now_s + at,
            ),
            records_in_per_s=() if rate is None or v is not LAST else (rate, rate),
        )
        for at, count in zip((-over_s, 0), records, strict=True)
        for v in (SOURCE, MIDDLE, LAST)
    ]
    evidence = job(run, readings, topology=chain(parallelism=2), config=replace(CONFIG, interval_ms=4_000))
    return diagnose(replace(evidence, now=START + timedelta(seconds=now_s + 1))).verdict


SAME = [8_000, 8_020, 8_010, 7_990, 8_030, 8_015, 8_005, 8_020]


@pytest.mark.parametrize(("waits", "over_s"), [(SAME, 40), ([*SAME[:4], 12, *SAME[4:]], 40), (SAME, 8)])
def test_barriers_that_always_wait_equally_long_after_a_completion_wait_for_work(waits, over_s):
    found = in_a_row(waits, over_s=over_s)

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.COMMIT, "last", (0,))
    assert "works about 8.1 s" in found.sentence
    assert "after each completed checkpoint" in found.sentence


@pytest.mark.parametrize(
    ("waits", "more"),
    [
        pytest.param([8_000, 6_500, 9_000, 7_100, 8_800, 6_000, 9_500, 7_700], {}, id="a queue that varies"),
        pytest.param(SAME, {"held": 0.4}, id="a queue as long as the buffers allow"),
        pytest.param(SAME, {"gap_s": 2.0}, id="triggers long after the completion"),
        pytest.param(SAME[:5], {}, id="too few"),
        pytest.param([5] * 8, {"async_": 8_000, "gap_s": 0.0}, id="barriers that do not wait"),
    ],
)
def test_other_waits_of_a_full_subtask_are_not_called_work_after_each_completion(waits, more):
    """A sink that reads nothing may still commit: another rule says so, without a time and with low confidence."""
    found = in_a_row(waits, **more)

    assert "after each completed checkpoint" not in found.sentence
    assert found.second is None or "after each completed checkpoint" not in found.second.sentence


@pytest.mark.parametrize("rate", [None, 0.125])
def test_barriers_that_wait_for_equally_long_records_do_not_wait_for_work_on_completion(rate):
    """Goal: a vertex that reads one record in 8 s, as often as a checkpoint completes, is not said to commit."""
    found = in_a_row(SAME, records=(20, 25), rate=rate)

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.CALLBACK, "last", (0,)), found.sentence
    assert "about 8.0 s with each record" in found.sentence


def test_records_of_another_length_leave_equal_waits_to_work_on_completion():
    """Goal: a record that takes a minute does not explain waits of 8 s."""
    assert in_a_row(SAME, records=(20, 21), rate=1 / 60).kind is VerdictKind.COMMIT
