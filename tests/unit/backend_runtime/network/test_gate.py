"""Tests of the order in which a gate reads its channels (Q-4, Q-6), which is that of Flink's ``SingleInputGate``."""

from __future__ import annotations

import pytest

from backend.runtime.core.elements import Alignment, Barrier
from tests.support.remote_link import Link

_TIMEOUTABLE = Barrier(1, 0, Alignment.ALIGNED, aligned_timeout_us=1_000)
_UNALIGNED = Barrier(1, 0, Alignment.UNALIGNED)
_MARKER = Barrier(1, 0, Alignment.MARKER)


def _link(*segments: int) -> Link:
    """Return a link whose channels have received this many segments each, in this order."""
    link = Link(channels=len(segments), exclusive=4, floating=0)
    for channel, count in enumerate(segments):
        link.send(count, channel=channel)
        link.settle()
    return link


def _read(link: Link) -> list[int]:
    """Read everything, and return the channels of the buffers in order."""
    order = []
    while (found := link.gate._poll()) is not None:
        order.append(found[0].index)
    return order


def test_without_priority_events_the_channels_are_read_in_turn() -> None:
    assert _read(_link(2, 2, 2)) == [0, 1, 2, 0, 1, 2]


def test_after_its_overtaking_barrier_a_channel_is_read_after_the_others() -> None:
    link = _link(2, 2, 2)
    link.pool.subpartitions[0].overtake(_UNALIGNED)
    link.settle()
    assert link.gate.next_priority() == (link.channels[0], _UNALIGNED)
    assert link.gate.next_priority() is None
    assert _read(link) == [1, 2, 0, 1, 2, 0]


def test_a_channel_whose_barrier_came_alone_is_not_read_again() -> None:
    link = _link(0, 1)
    link.pool.subpartitions[0].overtake(_UNALIGNED)
    link.settle()
    assert link.gate.next_priority() == (link.channels[0], _UNALIGNED)
    assert not link.channels[0].is_ready
    assert _read(link) == [1]


@pytest.mark.parametrize(("barrier", "order"), [(_TIMEOUTABLE, [1, 2, 0, 1, 2, 0]), (_MARKER, [0, 1, 2, 0, 1, 2])])
def test_an_announced_barrier_puts_its_channel_behind_the_others_and_a_marker_does_not(
    barrier: Barrier, order: list[int]
) -> None:
    link = _link(2, 2, 2)
    if barrier is _MARKER:
        link.pool.subpartitions[0].add_event(barrier)
    else:
        link.pool.subpartitions[0].add_waiting(barrier, lambda _: None)
    link.settle()
    # Flink announces no markers. The last buffer read is the barrier itself, which stays behind the data.
    assert _read(link) == [*order, 0]
