"""Tests of the queues in front of barriers: the result is 0 if the queues are empty, and None if they were not read."""

from __future__ import annotations

from datetime import UTC, datetime

from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Edge, Topology, Vertex
from backend.services.checkpoints.queues import queued_in_front

A, B, C = VertexId("a"), VertexId("b"), VertexId("c")
CHAIN = Topology(tuple(Vertex(v, v, 2) for v in (A, B, C)), (Edge(A, B), Edge(B, C)))


def reading(vertex, queued_in, queued_out):
    at = datetime(2026, 11, 23, tzinfo=UTC)
    return VertexPressure(vertex, at, (), (), (), queued_in_bytes=queued_in, queued_out_bytes=queued_out)


READ = {
    A: reading(A, (), (1, 2)),
    B: reading(B, (10, 20), (100, 200)),
    C: reading(C, (1_000, 2_000), ()),
}


def test_only_the_queues_of_subtasks_that_barriers_have_not_passed_count():
    assert queued_in_front(CHAIN, {B: [0, 1], C: [0, 1]}, READ) == 3_333
    # The barriers have passed subtask 0 of b.
    assert queued_in_front(CHAIN, {B: [1], C: [0, 1]}, READ) == 3_323
    assert queued_in_front(CHAIN, {B: [], C: [1]}, READ) == 2_300, "a's out-queues are behind the barriers"


def test_without_a_queue_in_front_the_sum_is_zero_only_if_queues_are_reported():
    silent = {v: reading(v, (), (None, None)) for v in (A, B, C)}

    assert queued_in_front(CHAIN, {A: [0, 1]}, READ) == 0, "only sources are pending"
    assert queued_in_front(CHAIN, {B: []}, READ) == 0
    assert queued_in_front(CHAIN, {A: [0]}, silent) is None
    assert queued_in_front(CHAIN, {}, {}) is None


def test_if_the_queues_in_front_were_not_read_the_sum_is_unknown():
    assert queued_in_front(CHAIN, {B: [0]}, {C: READ[C]}) is None
