"""Tests of a sync part that does not end, beside other work that lets no barrier through and a store that is slow."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import ClassVar

import pytest

from backend.analysis.verdict import case as cases
from backend.analysis.verdict import stuck_sync
from backend.analysis.verdict.verdict import diagnose
from backend.domain.pressure import VertexPressure
from backend.domain.verdict import Confidence, VerdictKind
from tests.support.handwritten_jobs import LAST, MIDDLE, SOURCE, START, chain, completed, detail, failed, job, reading

TIMES = (40, 50, 60)


def took(number, sink_ms):
    rows = (detail(v, first=[ms] * 2) for v, ms in ((SOURCE, 5), (MIDDLE, 9), (LAST, sink_ms)))
    return completed(number, *rows, every_s=8)


def expired(number, pending):
    rows = (detail(v, first=[None if v in pending else 5] * 2) for v in (SOURCE, MIDDLE, LAST))
    return failed(number, *rows, after_ms=10_000, every_s=8)


def judged(run, full, records):
    """Return the verdict on a job of which one vertex is full, and its subtasks have read these records."""
    readings = [
        reading(v, [1.0 if v is full else 0.1] * 2, records=[n if v is full else 90 * at] * 2, at_s=at)
        for at, n in zip(TIMES, records, strict=True)
        for v in (SOURCE, MIDDLE, LAST)
    ]
    started = START - timedelta(minutes=1)
    return diagnose(job(run, readings, topology=chain(parallelism=2), started_at=started)).verdict


EARLIER = [took(n, 20) for n in (1, 2, 3)]
SINK = [expired(n, (LAST,)) for n in (4, 5, 6)]


def test_a_sink_that_took_earlier_barriers_at_once_and_reads_nothing_since_is_stuck_in_its_sync_part():
    found = judged([*EARLIER, *SINK], LAST, (700, 700, 700))

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.SYNC, "last", (0, 1))
    assert "took earlier barriers at once" in found.sentence
    assert found.confidence is Confidence.LOW
    assert "thread dump" in found.would_decide[0]
    said = "; ".join([found.sentence, *(e.statement for e in found.evidence)])
    assert "forwarded the barrier" not in said
    assert "downstream of last" not in said


def test_a_vertex_whose_barrier_went_on_is_stuck_in_its_sync_part():
    run = [expired(n, (MIDDLE,)) for n in (1, 2, 3)]
    found = judged(run, MIDDLE, (700, 700, 700))

    assert (found.kind, found.vertex) == (VerdictKind.SYNC, "middle")
    assert "forwarded the barrier" in found.sentence


@pytest.mark.parametrize(
    ("run", "full"),
    [
        pytest.param([*(took(n, 4_000) for n in (1, 2, 3)), *SINK], LAST, id="earlier barriers waited at the sink"),
        pytest.param(
            [*EARLIER, *(expired(n, (MIDDLE, LAST)) for n in (4, 5, 6))], LAST, id="the barrier has not left middle"
        ),
        pytest.param(SINK, LAST, id="no earlier barrier is known"),
        pytest.param([expired(n, (MIDDLE, LAST)) for n in (1, 2, 3)], MIDDLE, id="the barrier did not go on"),
    ],
)
def test_a_barrier_that_may_not_have_arrived_shows_no_sync_part_and_no_store(run, full):
    found = judged(run, full, (700, 700, 700))

    assert found.kind in (VerdictKind.UNDECIDED, VerdictKind.CALLBACK, VerdictKind.COMMIT), found.sentence
    assert found.kind is not VerdictKind.UNDECIDED or found.would_decide


def test_a_full_sink_that_read_hardly_a_record_since_it_began_proves_nothing_about_the_store():
    """Goal: with a single reading, work on long records is not called a slow store."""
    readings = [reading(v, [1.0 if v is LAST else 0.0] * 2, records=[6] * 2) for v in (SOURCE, MIDDLE, LAST)]
    evidence = job(SINK, readings, topology=chain(parallelism=2), started_at=START - timedelta(minutes=1))

    assert diagnose(evidence).verdict.kind is not VerdictKind.STORE


def test_a_sink_that_goes_on_reading_writes_to_a_slow_store():
    assert judged(SINK, LAST, (700, 900, 1_100)).kind is VerdictKind.STORE


def test_other_subtasks_that_did_not_acknowledge_either_are_not_said_to_have_done_so():
    """Goal: a source that waits too, in each checkpoint, contradicts the note that all others acknowledged."""
    run = [expired(n, (MIDDLE,)) for n in (1, 2, 3)]
    waits = [
        replace(c, details=tuple(replace(d, ack_delay_ms=(None, 5)) if d.vertex_id == SOURCE else d for d in c.details))
        for c in run
    ]
    note = "all other subtasks acknowledged a checkpoint, also those downstream of middle"

    for checkpoints, is_said in ((run, True), (waits, False)):
        found = judged(checkpoints, MIDDLE, (700, 700, 700))
        assert found.kind is VerdictKind.SYNC
        assert (note in [e.statement for e in found.evidence]) is is_said


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        pytest.param((700, 800, 900), VerdictKind.STORE, id="it goes on emitting"),
        pytest.param((None, None, None), VerdictKind.STORE, id="what it emits is not known"),
        pytest.param((700, 700, 700), VerdictKind.SYNC, id="it emits nothing since"),
    ],
)
def test_a_busy_source_never_reads_records_of_another_task_so_those_that_it_sends_decide(sent, kind):
    run = [expired(n, (SOURCE,)) for n in (1, 2, 3)]
    readings = [
        replace(reading(v, [0.9 if v is SOURCE else 0.1] * 2, records=[n] * 2, at_s=at), records_out_count=(out,) * 2)
        for at, out in zip(TIMES, sent, strict=True)
        for v, n in ((SOURCE, 0), (MIDDLE, 90 * at), (LAST, 90 * at))
    ]
    started = START - timedelta(minutes=1)
    found = diagnose(job(run, readings, topology=chain(parallelism=2), started_at=started)).verdict

    assert (found.kind, found.vertex) == (kind, "source"), found.sentence
    assert kind is VerdictKind.STORE or "emitted no records since" in found.sentence


class Counted(tuple[VertexPressure, ...]):
    """Readings that count how often they are searched."""

    __slots__ = ()
    searches: ClassVar[list[int]] = []

    def __iter__(self):
        self.searches.append(len(self))
        return super().__iter__()


def test_readings_are_searched_as_often_for_many_idle_subtasks_as_for_few():
    """Goal: a job of tens of thousands of subtasks that wait is judged quickly."""
    found = []
    for size in (2, 40):
        run = [failed(n, detail(SOURCE, first=[None] * size), after_ms=10_000, every_s=8) for n in (1, 2, 3)]
        readings = [
            replace(reading(v, [0.1] * size, records=[700] * size, at_s=at), records_out_count=(5,) * size)
            for at in TIMES
            for v in (SOURCE, MIDDLE, LAST)
        ]
        case = cases.of_job(job(run, readings, topology=chain(parallelism=size)))
        Counted.searches.clear()
        assert stuck_sync.still_at_work(replace(case, readings=Counted(case.readings)), MIDDLE, range(size)) == ()
        found.append(len(Counted.searches))

    assert found[0] == found[1] > 0
