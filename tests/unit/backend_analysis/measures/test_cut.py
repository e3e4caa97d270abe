"""Tests of the check of a cut, on one channel from ``a`` to ``b``."""

from __future__ import annotations

import pytest

from backend.analysis.measures.cut import check_cut
from backend.domain.barriers import BarrierEvent, ChannelId
from backend.domain.barriers import BarrierEventKind as Kind
from backend.domain.cut import CutError, CutState
from backend.domain.ids import VertexId

A, B = VertexId("a"), VertexId("b")
CHANNEL = ChannelId(A, B, 0, 0)


def event(kind, vertex=B, size=None, channel=CHANNEL):
    return BarrierEvent(kind, vertex, 0, 0, 0, channel, size)


def trace(sent=1000, processed=1000, restored=0, logged=0, overtook=0, ended=(A, B)):
    return [
        event(Kind.SENT_BEFORE_SNAPSHOT, A, sent),
        event(Kind.PROCESSED_BEFORE_SNAPSHOT, B, processed),
        *([event(Kind.RESTORED_BEFORE_SNAPSHOT, B, restored)] if restored else []),
        *([event(Kind.INPUT_PERSISTED, B, logged)] if logged else []),
        *([event(Kind.OVERTOOK, A, overtook)] if overtook else []),
        *(event(Kind.SNAPSHOT_ASYNC_END, vertex, channel=None) for vertex in ended),
    ]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"processed": 400, "logged": 600},
        {"processed": 400, "logged": 250, "overtook": 350},
        {"processed": 1200, "restored": 200},
        {"sent": 0, "processed": 0},
    ],
    ids=["aligned", "logged", "overtaken", "restored", "idle"],
)
def test_the_cut_is_consistent_if_every_byte_that_was_sent_is_in_the_checkpoint_once(given):
    found = check_cut(trace(**given), is_completed=True)
    assert (found.state, found.checked_count, found.channel_count, found.problems) == (CutState.CONSISTENT, 1, 1, ())


@pytest.mark.parametrize(
    ("given", "error", "size"),
    [
        ({"processed": 1001}, CutError.BACKWARDS, 1),
        ({"processed": 1201, "restored": 200}, CutError.BACKWARDS, 1),
        ({"processed": 900, "logged": 101}, CutError.REPEATED, 1),
        ({"processed": 900, "logged": 99}, CutError.LOST, 1),
        ({"processed": 0}, CutError.LOST, 1000),
    ],
)
def test_one_byte_too_many_or_too_few_is_an_error_of_its_channel(given, error, size):
    found = check_cut(trace(**given), is_completed=True)
    assert found.state is CutState.INCONSISTENT
    assert [(p.channel, p.error, p.size_bytes) for p in found.problems] == [(CHANNEL, error, size)]


def test_an_unfinished_part_can_still_log_what_is_missing_but_cannot_undo_what_crossed_backwards():
    missing = trace(processed=900, ended=(A,))
    crossed = trace(processed=1001, ended=())
    assert check_cut(missing, is_completed=False).state is CutState.INCOMPLETE
    assert check_cut(crossed, is_completed=False).state is CutState.INCONSISTENT


def test_nothing_is_called_consistent_without_the_positions_of_the_snapshots():
    without = [event(Kind.BARRIER_EMITTED, A), event(Kind.BARRIER_RECEIVED, B)]
    half = trace()[1:]
    assert check_cut(without, is_completed=True).state is CutState.UNCHECKED
    assert check_cut([], is_completed=True).state is CutState.UNCHECKED
    assert check_cut(half, is_completed=True).state is CutState.UNCHECKED


def test_one_channel_without_positions_leaves_the_whole_cut_unchecked():
    found = check_cut([*trace(), event(Kind.BARRIER_EMITTED, A, channel=ChannelId(A, B, 0, 1))], is_completed=True)
    assert (found.state, found.checked_count, found.channel_count) == (CutState.UNCHECKED, 1, 2)


def test_the_largest_problem_comes_first():
    other = ChannelId(A, B, 0, 1)
    events = [
        *trace(processed=999),
        event(Kind.SENT_BEFORE_SNAPSHOT, A, 500, other),
        BarrierEvent(Kind.PROCESSED_BEFORE_SNAPSHOT, B, 1, 0, 0, other, 600),
    ]
    sizes = [p.size_bytes for p in check_cut(events, is_completed=True).problems]
    assert sizes == [100, 1]


def test_the_channels_of_finished_subtasks_are_checked_against_their_end():
    positions = trace()[:2]
    assert check_cut(positions, is_completed=True).checked_count == 0
    found = check_cut([event(Kind.FINISHED, A, channel=None), *trace(ended=(B,))], is_completed=True)
    assert (found.state, found.checked_count, found.channel_count) == (CutState.CONSISTENT, 1, 1)
    lost = check_cut([event(Kind.FINISHED, A, channel=None), *trace(processed=900, ended=(B,))], is_completed=True)
    assert [(p.error, p.size_bytes) for p in lost.problems] == [(CutError.LOST, 100)]


def test_nothing_crosses_the_cut_on_a_channel_between_finished_subtasks():
    ends = [event(Kind.FINISHED, vertex, channel=None) for vertex in (A, B)]
    found = check_cut([*ends, event(Kind.SENT_BEFORE_SNAPSHOT, A, 1000)], is_completed=True)
    assert (found.state, found.channel_count) == (CutState.CONSISTENT, 0)
