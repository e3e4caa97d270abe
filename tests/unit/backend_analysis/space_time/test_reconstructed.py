"""Tests of the trace that is reconstructed from the phases that Flink reports."""

from __future__ import annotations

from dataclasses import replace

from backend.analysis.measures.phases import SubtaskPhases
from backend.analysis.space_time.reconstructed import trace_of
from backend.domain.ids import VertexId
from backend.domain.topology import Edge, Topology, Vertex
from backend.domain.verdict import Basis

A, B = VertexId("a"), VertexId("b")


def phases(subtask, first, aligned, snapshot, **more):
    blank = SubtaskPhases(subtask, True, *([None] * 13))
    return replace(
        blank, first_barrier_ms=first, alignment_end_ms=aligned, snapshot_at_ms=snapshot,
        sync_end_ms=None if snapshot is None else snapshot + 1,
        async_end_ms=None if snapshot is None else snapshot + 5,
        ack_ms=None if snapshot is None else snapshot + 6, **more,
    )  # fmt: skip


def topology(strategy="HASH"):
    return Topology((Vertex(A, "a", 3), Vertex(B, "b", 3)), (Edge(A, B, strategy),))


SENDERS = [phases(0, 5, 5, 5), phases(1, 2, 2, 2), phases(2, 9, 9, 9)]


def test_the_first_barrier_comes_from_the_first_sender_and_the_last_from_the_last():
    found = trace_of({A: SENDERS, B: [phases(0, 10, 30, 30)]}, topology())
    arrows = [(c.sender, c.receiver, c.emitted_ms, c.received_ms) for c in found.channels]
    assert arrows == [((A, 1), (B, 0), 2, 10), ((A, 2), (B, 0), 9, 30)]
    assert found.basis is Basis.RECONSTRUCTED
    assert [(s.begin_ms, s.end_ms) for s in found.subtasks[B, 0].blocked] == [(10, 30)]


def test_a_forward_edge_has_one_arrow_from_the_same_subtask():
    found = trace_of({A: SENDERS, B: [phases(i, 10 + i, 10 + i, 10 + i) for i in range(3)]}, topology("FORWARD"))
    assert [(c.sender[1], c.receiver[1]) for c in found.channels] == [(0, 0), (1, 1), (2, 2)]


def test_an_arrow_that_would_end_before_it_begins_is_left_out():
    found = trace_of({A: SENDERS, B: [phases(0, 4, 8, 8)]}, topology())
    assert [(c.sender[1], c.received_ms) for c in found.channels] == [(1, 4)]
    early = trace_of({A: SENDERS, B: [phases(0, 1, 30, 30)]}, topology())
    assert [(c.sender[1], c.received_ms) for c in early.channels] == [(2, 30)]


def test_an_unaligned_subtask_records_after_its_snapshot_and_one_that_reported_nothing_has_no_times():
    overlaid = phases(0, 10, 30, 12, is_alignment_overlaid=True, persisted_bytes=77)
    found = trace_of({A: SENDERS, B: [overlaid, phases(1, None, None, None)]}, topology())
    own = found.subtasks[B, 0]
    assert (own.recorded.begin_ms, own.recorded.end_ms, own.logged_bytes) == (12, 30, 77)
    assert [(s.begin_ms, s.end_ms) for s in own.blocked] == [(10, 12)]
    assert found.subtasks[B, 1].first_ms is None
    assert {c.receiver for c in found.channels} == {(B, 0)}
