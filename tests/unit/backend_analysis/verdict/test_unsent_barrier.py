"""Tests of barriers that a task gets, or should emit, but does not send on."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.analysis.verdict import case as cases
from backend.analysis.verdict import piece_of_work, unsent_barrier
from backend.analysis.verdict.verdict import diagnose
from backend.domain.checkpoint import CheckpointCounts
from backend.domain.ids import VertexId
from backend.domain.topology import Edge, Vertex
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
    job,
    quick,
    reading,
)

OTHER = VertexId("other")
TIMES = (40, 60)
TWO_EACH = chain(parallelism=2)


def expired(number, acknowledged=(SOURCE,), *, vertices=(SOURCE, MIDDLE, LAST)):
    rows = (detail(v, first=[5 if v in acknowledged else None] * 2) for v in vertices)
    return failed(number, *rows, after_ms=10_000, every_s=10)


def full(vertex, gauge_ms, *, records=7):
    rows = (reading(vertex, [1.0] * 2, records=[records] * 2, at_s=at) for at in TIMES)
    return [replace(r, start_delay_gauge_ms=(gauge_ms,) * 2) for r in rows]


def steady(vertex, *, held=0.0, sent=None):
    """Build readings of a vertex. ``sent`` are the records that it has emitted in each of them."""
    rows = [reading(vertex, [0.0] * 2, [held] * 2, records=[0] * 2, at_s=at) for at in TIMES]
    return rows if sent is None else [replace(r, records_out_count=(n,) * 2) for r, n in zip(rows, sent, strict=True)]


def judged(run, readings, **more):
    more = {"started_at": START - timedelta(hours=1), "topology": chain(parallelism=2), **more}
    return diagnose(job(run, readings, **more)).verdict


ALL = [expired(n) for n in range(1, 6)]


def test_subtasks_that_get_barriers_early_and_pass_none_on_work_on_their_snapshot_first():
    found = judged(ALL, [*steady(SOURCE, held=0.9), *full(MIDDLE, 800), *steady(LAST)])

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.SYNC, "middle", (0, 1))
    assert found.phase is Phase.SYNC
    assert "get the barrier within 800 ms but do not acknowledge" in found.sentence
    assert "last waits for it" in found.sentence
    assert "forwarded" not in found.sentence
    assert "raise the checkpoint timeout" in found.would_decide[0]


def test_a_sink_that_gets_barriers_early_and_never_acknowledges_works_on_its_snapshot():
    run = [expired(n, (SOURCE, MIDDLE)) for n in range(1, 6)]
    found = judged(run, [*steady(SOURCE), *steady(MIDDLE), *full(LAST, 800)])

    assert (found.kind, found.vertex) == (VerdictKind.SYNC, "last")
    assert "they work on the snapshot (a flush, or rewritten files)." in found.sentence


@pytest.mark.parametrize(
    ("first", "more", "is_named"),
    [
        pytest.param(1, {"counts": CheckpointCounts(0, 5, 0, 0, 5)}, True, id="none was completed"),
        pytest.param(11, {"counts": CheckpointCounts(0, 15, 0, 0, 15)}, True, id="none of those before was completed"),
        pytest.param(11, {"counts": CheckpointCounts(0, 15, 0, 5, 10)}, False, id="some before were completed"),
        pytest.param(11, {}, False, id="those before are not known"),
        pytest.param(11, {"exceptions": ((START + timedelta(seconds=112), "lost"),)}, True, id="a restart since"),
        pytest.param(11, {"exceptions": ((START + timedelta(seconds=60), "lost"),)}, False, id="a restart before"),
    ],
)
def test_a_gauge_that_may_be_of_a_checkpoint_before_the_known_ones_proves_no_work_on_a_snapshot(first, more, is_named):
    run = [expired(n, (SOURCE, MIDDLE)) for n in range(first, first + 5)]
    later = timedelta(seconds=10 * first)
    readings = [*steady(SOURCE), *steady(MIDDLE), *full(LAST, 3)]
    evidence = job(run, [replace(r, observed_at=r.observed_at + later) for r in readings], topology=TWO_EACH, **more)
    found = diagnose(replace(evidence, started_at=START - timedelta(hours=1), now=evidence.now + later)).verdict

    assert ("within 3 ms but do not acknowledge" in found.sentence) is is_named, found.sentence


@pytest.mark.parametrize(
    ("run", "gauge_ms"),
    [
        pytest.param(ALL, 0, id="no barrier came late"),
        pytest.param(ALL, 9_000, id="the barrier came at the end"),
        pytest.param([quick(1, topology=chain(parallelism=2)), *ALL[1:]], 800, id="the barrier of a completed one"),
        pytest.param([expired(n, ()) for n in range(1, 6)], 800, id="not all senders have sent it"),
    ],
)
def test_a_barrier_that_may_not_have_arrived_proves_no_work_on_a_snapshot(run, gauge_ms):
    found = judged(run, [*steady(SOURCE, held=0.9), *full(MIDDLE, gauge_ms), *steady(LAST)])

    assert found.kind is VerdictKind.CALLBACK, found.sentence


def test_a_silent_source_that_nothing_holds_back_is_named():
    run = [*(quick(n, topology=chain(parallelism=2)) for n in (1, 2)), *(expired(n, ()) for n in (3, 4, 5))]
    found = judged(run, [*steady(SOURCE, sent=(70, 70)), *steady(MIDDLE), *steady(LAST)])

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.LATE_INPUT, "source", (0, 1))
    assert found.confidence is Confidence.LOW
    assert "checkpoint lock of the source" in found.sentence
    assert "thread dump" in found.would_decide[0]


@pytest.mark.parametrize(
    ("readings", "run"),
    [
        pytest.param(steady(SOURCE, sent=(70, 90)), [expired(n, ()) for n in (1, 2, 3)], id="it goes on emitting"),
        pytest.param(steady(SOURCE), [expired(n, ()) for n in (1, 2, 3)], id="what it emits is not known"),
        pytest.param(
            steady(SOURCE, held=0.9, sent=(70, 70)), [expired(n, ()) for n in (1, 2, 3)], id="something holds it back"
        ),
        pytest.param(
            steady(SOURCE, sent=(70, 70)), [expired(n, (MIDDLE, LAST)) for n in (1, 2, 3)], id="the barrier went on"
        ),
    ],
)
def test_a_source_that_may_have_sent_the_barrier_is_not_called_silent(readings, run):
    found = judged(run, [*readings, *steady(MIDDLE), *steady(LAST)])

    assert found.kind is not VerdictKind.LATE_INPUT


@pytest.mark.parametrize("busy", [0.1, 0.9])
def test_a_subtask_of_a_job_of_one_vertex_whose_upload_hangs_emits_no_records_at_any_time(busy):
    """Goal: the records of a chain that ends in a sink are not counted, so its source is not called silent or stuck."""
    one = chain(SOURCE)
    run = [failed(n, detail(SOURCE, first=[None, 5, 5, 5]), after_ms=10_000, every_s=10) for n in range(1, 6)]
    readings = [
        replace(reading(SOURCE, [busy] * 4, records=[0] * 4, at_s=at), records_out_count=(0,) * 4) for at in TIMES
    ]
    found = judged(run, readings, topology=one)

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.STORE, "source", (0,)), found.sentence


def test_several_silent_sources_may_not_have_got_the_trigger_so_none_is_named():
    two = chain(parallelism=2)
    two = replace(two, vertices=(Vertex(OTHER, "other", 2), *two.vertices), edges=(*two.edges, Edge(OTHER, MIDDLE)))
    every = (OTHER, SOURCE, MIDDLE, LAST)
    readings = [*steady(SOURCE, sent=(7, 7)), *steady(OTHER, sent=(7, 7)), *steady(MIDDLE), *steady(LAST)]

    assert judged([expired(n, (), vertices=every) for n in (1, 2, 3)], readings, topology=two).kind is (
        VerdictKind.UNDECIDED
    )
    one = judged([expired(n, (OTHER,), vertices=every) for n in (1, 2, 3)], readings, topology=two)
    assert (one.kind, one.vertex) == (VerdictKind.LATE_INPUT, "source")


def test_a_sync_part_that_never_ends_has_no_second_cause_of_the_same_readings():
    """Goal: subtasks that are stuck in their sync part are not said to get more records than their siblings."""
    rows = detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[9, 9, 9, None]), detail(LAST, first=[20] * 4)
    run = [completed(n, *(detail(v, first=[9] * 4, sync=40, async_=700) for v in (SOURCE, MIDDLE, LAST))) for n in (1,)]
    run += [failed(n, *rows, after_ms=10_000, every_s=10) for n in (2, 3, 4, 5)]
    stuck = [reading(MIDDLE, [0.0, 0.0, 0.0, 1.0], records=[700] * 4, at_s=at) for at in TIMES]
    held = [reading(SOURCE, [0.0] * 4, [1.0] * 4, at_s=at) for at in TIMES]

    found = judged(run, [*held, *stuck], topology=chain())

    assert (found.kind, found.subtasks, found.second) == (VerdictKind.SYNC, (3,), None)


def test_the_readings_of_a_vertex_that_is_not_busy_are_not_searched(monkeypatch):
    """Goal: a job of a thousand vertices, of which few are busy, is judged quickly."""
    searched = []
    newest = piece_of_work.newest
    monkeypatch.setattr(piece_of_work, "newest", lambda case, vertex: searched.append(vertex) or newest(case, vertex))
    run = [expired(n, (SOURCE, MIDDLE)) for n in range(1, 6)]
    evidence = job(run, [*steady(SOURCE), *steady(MIDDLE), *full(LAST, 800)], topology=TWO_EACH)
    case = cases.of_job(replace(evidence, started_at=START - timedelta(hours=1)))

    assert unsent_barrier.BEFORE_FORWARDING.verdict_of(case) is not None
    assert set(searched) == {LAST}


# --- without readings -----------------------------------------------------------------------------------------------


def stopped(number, *, source=(5, 5), middle=(None, 5), last=(None, None)):
    rows = (detail(v, first=list(row)) for v, row in ((SOURCE, source), (MIDDLE, middle), (LAST, last)))
    return failed(number, *rows, after_ms=10_000, every_s=10)


def test_a_subtask_that_sends_no_barrier_on_is_named_and_not_the_vertex_that_waits_for_it():
    """Goal: no store is blamed for a sink that never got the barrier (measured on Flink 1.20.5 and 2.3.0)."""
    found = judged([stopped(n) for n in range(1, 6)], [])

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.UNDECIDED, "middle", (0,))
    assert "sends no barrier on" in found.sentence
    assert found.confidence is Confidence.LOW
    assert found.would_decide


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"last": (5, None)}, id="a subtask below got all barriers"),
        pytest.param({"middle": (None, None)}, id="no sibling shows that the barriers came"),
    ],
)
def test_a_subtask_is_not_said_to_stop_the_barrier_if_it_may_not_have(changes):
    found = judged([stopped(n, **changes) for n in range(1, 6)], [])

    assert "no barrier on" not in found.sentence


def test_of_two_vertices_that_wait_the_upper_one_stops_the_barrier():
    assert judged([stopped(n, source=(5, None), middle=(None, None)) for n in range(1, 6)], []).vertex == "source"


def test_no_store_is_blamed_for_a_vertex_that_may_not_have_got_the_barrier():
    calm = [row for v in (SOURCE, MIDDLE, LAST) for row in steady(v)]

    assert judged([stopped(n) for n in range(1, 6)], calm).kind is not VerdictKind.STORE
