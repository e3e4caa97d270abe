"""Tests of the critical path, which leads from a source to the last acknowledgement."""

from __future__ import annotations

from datetime import timedelta

from backend.analysis.measures.critical_path import critical_path, kept_pace_ms, with_persistence
from backend.analysis.measures.phases import checkpoint_phases
from backend.domain.checkpoint import LateBarrier
from backend.domain.topology import Edge, Topology, Vertex
from backend.domain.verdict import Phase
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
    in_progress,
)

DUO = chain(parallelism=2)


def walked(path):
    return [(s.vertex, s.subtask, s.phase, s.start_ms, s.end_ms) for s in path.steps]


def test_the_path_goes_from_the_last_acknowledgement_over_the_latest_sender_to_a_source():
    checkpoint = completed(
        1,
        detail(SOURCE, first=[5, 9]),
        detail(MIDDLE, first=[900, 1_400], alignment=[0, 100]),
        detail(LAST, first=[2_000, 4_000], alignment=[50, 300], sync=[0, 20], async_=[0, 80]),
    )

    path = critical_path(checkpoint, DUO, ALIGNED)

    assert walked(path) == [
        ("source", 1, Phase.START_DELAY, 0, 9),
        ("middle", 1, Phase.START_DELAY, 9, 1_400),
        ("middle", 1, Phase.ALIGNMENT, 1_400, 1_500),
        ("last", 1, Phase.START_DELAY, 1_500, 4_000),
        ("last", 1, Phase.ALIGNMENT, 4_000, 4_300),
        ("last", 1, Phase.SYNC, 4_300, 4_320),
        ("last", 1, Phase.ASYNC, 4_320, 4_400),
    ]
    assert (path.last_vertex, path.last_subtask, path.without_last_ms) == ("last", 1, 2_050)
    assert path.dominant_phase is Phase.START_DELAY


def test_a_sender_that_forwarded_after_the_barrier_arrived_is_not_on_the_path():
    checkpoint = completed(
        1,
        detail(SOURCE, first=[5, 5]),
        detail(MIDDLE, first=[100, 3_000]),
        detail(LAST, first=[150, 150], async_=[5_000, 0]),
    )

    path = critical_path(checkpoint, DUO, ALIGNED)

    assert [s.subtask for s in path.steps if s.vertex == "middle"] == [0]


def test_a_forward_edge_is_followed_by_index():
    checkpoint = completed(
        1,
        detail(SOURCE, first=[5, 700]),
        detail(LAST, first=[900, 800]),
    )

    path = critical_path(checkpoint, chain(SOURCE, LAST, parallelism=2, ship="FORWARD"), ALIGNED)

    assert walked(path)[0] == ("source", 0, Phase.START_DELAY, 0, 5)


def test_an_unaligned_async_part_that_waits_for_the_last_barrier_leads_to_its_sender():
    checkpoint = completed(
        1,
        detail(SOURCE, first=[5, 900]),
        detail(LAST, first=[10, 10], alignment=[900, 900], async_=[950, 950], ack=[960, 960]),
    )
    topology = chain(SOURCE, LAST, parallelism=2)

    path = critical_path(checkpoint, topology, UNALIGNED)

    assert [(s.vertex, s.phase) for s in path.steps] == [
        ("source", Phase.START_DELAY),
        ("last", Phase.ALIGNMENT),
        ("last", Phase.ASYNC),
    ]
    assert path.steps[1].end_ms == 910


def test_the_path_of_a_failed_checkpoint_ends_with_the_latest_barrier_that_a_gauge_showed():
    checkpoint = failed(
        7, detail(SOURCE, first=[5, 5]), detail(MIDDLE, first=[900, 900]), detail(LAST, first=[None, None])
    )
    late = [LateBarrier(LAST, i, ms, START + timedelta(seconds=9), 1_000) for i, ms in ((0, 3_200), (1, 5_000))]

    path = critical_path(checkpoint, DUO, ALIGNED, late)

    assert (path.last_vertex, path.last_subtask) == ("last", 1)
    assert walked(path)[-1] == ("last", 1, Phase.START_DELAY, 900, 5_000)
    assert path.without_last_ms is None


def test_without_gauges_the_path_of_a_failed_checkpoint_ends_with_the_first_pending_vertex():
    checkpoint = failed(
        7,
        detail(SOURCE, first=[5, 5]),
        detail(MIDDLE, first=[900, None]),
        detail(LAST, first=[None, None]),
        after_ms=3_000,
    )

    path = critical_path(checkpoint, DUO, ALIGNED)

    assert (path.last_vertex, path.last_subtask) == ("middle", 1)
    assert walked(path)[-1] == ("middle", 1, Phase.START_DELAY, 5, 3_000)


def test_an_open_checkpoint_without_an_acknowledgement_has_no_steps():
    path = critical_path(in_progress(3, detail(SOURCE, first=[None, None])), DUO, ALIGNED)

    assert path.steps == ()


def test_without_detail_there_is_no_path():
    assert critical_path(completed(1), DUO, ALIGNED) is None


def test_in_a_diamond_the_path_goes_through_the_later_arm():
    vertices = [Vertex(v, v, 1) for v in ("source", "fast", "slow", "join")]
    edges = [
        Edge(a, b, "HASH") for a, b in (("source", "fast"), ("source", "slow"), ("fast", "join"), ("slow", "join"))
    ]
    checkpoint = completed(
        1,
        detail("source", first=[5]),
        detail("fast", first=[10]),
        detail("slow", first=[4_000]),
        detail("join", first=[15], alignment=4_000),
    )

    path = critical_path(checkpoint, Topology(tuple(vertices), tuple(edges)), ALIGNED)

    assert [s.vertex for s in path.steps] == ["source", "slow", "join"]


def test_persistence_counts_the_checkpoints_that_ended_with_the_same_subtask():
    one = completed(1, detail(LAST, first=[10, 90]))
    other = completed(2, detail(LAST, first=[90, 10]))
    same = completed(3, detail(LAST, first=[10, 80]))
    topology = chain(LAST, parallelism=2)

    path = with_persistence(critical_path(one, topology, ALIGNED), [one, other, same, completed(4)], topology, ALIGNED)

    assert path.last_in == "last in 2 of 3"


def _straggling():
    return completed(
        1,
        detail(SOURCE, first=[5, 9]),
        detail(MIDDLE, first=[900, 13_000], alignment=[0, 100]),
        detail(LAST, first=[13_200, 13_300], alignment=[50, 0], async_=[70, 80]),
    )


def _pace(checkpoint, vertex_id, subtasks, topology=DUO):
    return kept_pace_ms(checkpoint_phases(checkpoint, ALIGNED, ()), topology, vertex_id, subtasks)


def test_the_delay_of_a_subtask_is_taken_from_all_that_waited_for_it():
    # Without the 12.2 s by which subtask 1 was later than its sibling, both subtasks downstream would have been
    # earlier too.
    assert _pace(_straggling(), MIDDLE, [1]) == 13_380 - (13_100 - 900)
    # The last vertex is not the cause. If its subtasks had kept pace, only the difference between them would have been
    # gained.
    assert _pace(_straggling(), LAST, [1]) == 13_320


def test_the_delay_of_a_subtask_reaches_only_the_subtasks_that_it_sends_to():
    pointwise = Topology(DUO.vertices, (DUO.edges[0], Edge(MIDDLE, LAST, "FORWARD")))

    # Subtask 0 of the last vertex received its barrier from subtask 0 of the middle one, and so it stays late.
    assert _pace(_straggling(), MIDDLE, [1], pointwise) == 13_320


def test_without_siblings_or_with_a_missing_acknowledgement_no_pace_is_known():
    assert _pace(_straggling(), MIDDLE, [0, 1]) is None
    assert _pace(_straggling(), MIDDLE, []) is None
    assert _pace(failed(1, detail(SOURCE, first=[5, None]), detail(MIDDLE, first=[1, 1])), MIDDLE, [1]) is None


def test_a_subtask_that_was_no_later_than_its_siblings_cost_nothing():
    assert _pace(_straggling(), MIDDLE, [0]) == 13_380
