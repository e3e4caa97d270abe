"""Tests of the choice of lanes: small jobs show every subtask, large ones are folded, opened vertices are bounded."""

from __future__ import annotations

from collections import Counter

import pytest

from backend.analysis.space_time.folding import LANES_MAX, LaneVertex, fold
from backend.analysis.space_time.trace import ChannelTrace, Stretch, SubtaskTrace, Trace
from backend.domain.ids import VertexId
from backend.domain.verdict import Basis

A, B = VertexId("a"), VertexId("b")


def job(a=2, b=2, slow=()):
    subtasks = {
        (v, i): SubtaskTrace(
            first_ms=1.0 + i, last_ms=2.0 + i, snapshot_ms=2.0 + i, ack_ms=None if (v, i) in slow else 3.0 + i,
            blocked=(Stretch(1.0 + i, 2.0 + i, 1),), logged_bytes=10,
        )
        for v, count in ((A, a), (B, b))
        for i in range(count)
    }  # fmt: skip
    channels = [ChannelTrace((A, i), (B, j), 2.0 + i, 3.0 + i + j) for i in range(a) for j in range(b)]
    return Trace(subtasks, channels, Basis.MEASURED), [LaneVertex(A, "a", a), LaneVertex(B, "b", b)]


def names(diagram):
    return [(lane.vertex_id, lane.subtask, lane.subtask_count) for lane in diagram.lanes]


def test_up_to_the_limit_each_subtask_has_a_lane_and_each_channel_an_arrow():
    trace, vertices = job(LANES_MAX // 2, LANES_MAX // 2)
    found = fold(trace, vertices, opened=[A])
    assert not found.is_folded
    assert found.opened == ()
    assert [(v, i) for v, i, _ in names(found)] == [(v, i) for v in (A, B) for i in range(LANES_MAX // 2)]
    assert len(found.arrows) == (LANES_MAX // 2) ** 2
    assert {a.channel_count for a in found.arrows} == {1}


def test_above_the_limit_each_vertex_is_one_lane_and_the_critical_path_keeps_its_own():
    trace, vertices = job(31, 30)
    found = fold(trace, vertices, pinned=[(A, 7), (B, 29), (B, 99), (VertexId("gone"), 0)])
    assert names(found) == [(A, None, 30), (A, 7, 1), (B, None, 29), (B, 29, 1)]
    folded = found.lanes[0]
    assert (folded.first_ms, folded.snapshot_ms, folded.snapshot_last_ms, folded.ack_last_ms) == (1, 2, 32, 33)
    assert folded.logged_bytes == 300
    assert [(b.begin_ms, b.end_ms) for b in folded.blocked] == [(1, 32)]
    assert sum(a.channel_count for a in found.arrows) == 31 * 30
    assert len(found.arrows) == 4


def test_an_opened_vertex_shows_its_slowest_subtasks_as_far_as_there_is_room():
    trace, vertices = job(400, 400, slow={(A, 3)})
    found = fold(trace, vertices, opened=[A])
    assert len(found.lanes) == LANES_MAX
    assert found.opened == (A,)
    own = [i for v, i, _ in names(found) if v == A and i is not None]
    assert own == [3, *range(400 - len(own) + 1, 400)]
    assert names(found)[-1] == (B, None, 400)


@pytest.mark.parametrize("opened", [(), (A,), (B,), (A, B)])
def test_every_subtask_and_every_channel_is_in_the_diagram_once(opened):
    trace, vertices = job(70, 45)
    found = fold(trace, vertices, opened=opened, pinned=[(A, 0)])
    counts = Counter()
    for lane in found.lanes:
        counts[lane.vertex_id] += lane.subtask_count
    assert counts == {A: 70, B: 45}
    assert len(found.lanes) <= LANES_MAX
    assert sum(a.channel_count for a in found.arrows) == 70 * 45
    assert len(found.arrows) <= (LANES_MAX // 2) ** 2


def test_more_vertices_than_lanes_are_all_folded():
    vertices = [LaneVertex(VertexId(f"v{n}"), f"v{n}", 2) for n in range(80)]
    found = fold(Trace({}, [], Basis.MEASURED), vertices, opened=[VertexId("v1")], pinned=[(VertexId("v2"), 0)])
    assert [lane.subtask_count for lane in found.lanes] == [2] * 80


def test_a_folded_arrow_says_how_many_barriers_were_not_received():
    trace, vertices = job(31, 30)
    lost = Trace(trace.subtasks, [*trace.channels[1:], ChannelTrace((A, 0), (B, 0), 9.0, None)], Basis.MEASURED)
    (arrow,) = fold(lost, vertices).arrows
    assert (arrow.unreceived_count, arrow.received_last_ms) == (1, None)
    assert arrow.received_ms == 4


def test_a_folded_lane_keeps_the_earliest_and_the_latest_end_of_the_sync_parts():
    subtasks = {(A, i): SubtaskTrace(snapshot_ms=5, sync_end_ms=10, async_end_ms=20) for i in range(99)}
    subtasks[A, 99] = SubtaskTrace(snapshot_ms=5, sync_end_ms=500)
    (lane,) = fold(Trace(subtasks, [], Basis.MEASURED), [LaneVertex(A, "a", 100)]).lanes
    assert (lane.sync_end_ms, lane.sync_end_last_ms, lane.async_end_last_ms) == (10, 500, 20)


def test_a_folded_lane_does_not_say_how_many_channels_were_blocked_or_recorded_at_once():
    subtasks = {
        (A, i): SubtaskTrace(blocked=(Stretch(i, i + 1, 1),), recorded=Stretch(i, i + 1, 1)) for i in range(100)
    }
    folded, own = fold(Trace(subtasks, [], Basis.MEASURED), [LaneVertex(A, "a", 100)], pinned=[(A, 7)]).lanes
    assert folded.blocked == (folded.recorded,) == (Stretch(0, 100),)
    assert own.blocked == (own.recorded,) == (Stretch(7, 8, 1),)
