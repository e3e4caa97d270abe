"""Tests of the trace of real checkpoints of each protocol, and of single rules on handwritten events."""

from __future__ import annotations

import pytest

from backend.analysis.space_time.measured import trace_of
from backend.domain.barriers import BarrierEvent, ChannelId
from backend.domain.barriers import BarrierEventKind as Kind
from backend.domain.ids import VertexId
from tests.support.made_up_space_time import checkpoint_of
from tests.support.runtime_jobs import PROTOCOLS

A, B = VertexId("a"), VertexId("b")
ONE, TWO = ChannelId(A, B, 0, 0), ChannelId(A, B, 1, 0)


def at(ms, kind, channel=None, size=None, vertex=B):
    return BarrierEvent(kind, vertex, 0, int(ms * 1000), 0, channel, size)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_channel_has_one_arrow_that_does_not_end_before_it_begins(protocol):
    run = checkpoint_of(protocol)
    found = trace_of(run.events)
    channels = {e.channel for e in run.events if e.channel is not None}
    assert len(found.channels) == len(channels) > 0
    for c in found.channels:
        assert c.received_ms is not None
        assert c.emitted_ms <= c.received_ms
    assert len(found.subtasks) == sum(v.subtask_count for v in run.vertices)
    for s in found.subtasks.values():
        assert s.first_ms is not None
        assert s.snapshot_ms is not None
        assert s.ack_ms is not None
        assert s.first_ms <= s.snapshot_ms <= s.ack_ms


def test_channels_are_blocked_by_aligned_barriers_only_and_recorded_by_markers_and_unaligned_ones():
    def kinds(protocol):
        traces = trace_of(checkpoint_of(protocol).events).subtasks.values()
        return any(s.blocked for s in traces), any(s.recorded for s in traces)

    assert kinds("aligned") == (True, False)
    assert kinds("unaligned") == (False, True)
    assert kinds("chandy-lamport") == (False, True)


def test_the_bytes_of_a_checkpoint_are_those_that_the_runtime_measured():
    run = checkpoint_of("unaligned")
    traces = trace_of(run.events).subtasks.values()
    persisted = sum(ack.measured.persisted_bytes for ack in run.record.acks.values())
    assert sum((s.logged_bytes or 0) + (s.overtaken_bytes or 0) for s in traces) == persisted > 0


def test_overlapping_blocks_are_one_stretch_with_the_largest_number_of_channels():
    events = [
        at(1, Kind.CHANNEL_BLOCKED, ONE), at(3, Kind.CHANNEL_BLOCKED, TWO),
        at(5, Kind.CHANNEL_UNBLOCKED, ONE), at(6, Kind.CHANNEL_UNBLOCKED, TWO), at(8, Kind.CHANNEL_BLOCKED, ONE),
    ]  # fmt: skip
    (own,) = trace_of(events).subtasks.values()
    assert [(s.begin_ms, s.end_ms, s.channel_count) for s in own.blocked] == [(1, 6, 2), (8, None, 1)]


def test_recording_ends_with_the_last_log_and_has_not_ended_while_the_checkpoint_is_open():
    opened = [at(2, Kind.BARRIER_RECEIVED, ONE), at(2, Kind.LOG_OPENED), at(5, Kind.LOG_CLOSED, TWO)]
    written = [*opened, at(7, Kind.BARRIER_RECEIVED, TWO), at(9, Kind.SNAPSHOT_ASYNC_END)]
    (own,) = trace_of(opened).subtasks.values()
    assert (own.recorded.begin_ms, own.recorded.end_ms) == (2, None)
    (own,) = trace_of(written).subtasks.values()
    # The log of a channel is closed when its marker arrives, before the marker is read.
    assert (own.recorded.begin_ms, own.recorded.end_ms, own.recorded.channel_count) == (2, 5, 1)


def test_a_barrier_that_was_sent_and_not_received_has_an_arrow_without_an_end():
    (arrow,) = trace_of([at(4, Kind.BARRIER_EMITTED, ONE, vertex=A)]).channels
    assert (arrow.emitted_ms, arrow.received_ms) == (4, None)
