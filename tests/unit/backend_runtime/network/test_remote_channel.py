"""Credit-based flow control of one remote channel, step by step (CR-1 to CR-3, CR-6, BUF-1 to BUF-4, Q-1 to Q-5)."""

from __future__ import annotations

import pytest

from backend.domain.errors import ProtocolViolationError
from backend.runtime.core.elements import Alignment, Barrier
from backend.runtime.network.buffers import DataBuffer
from backend.runtime.network.channel import ChannelKey, InputChannel, LocalChannel
from tests.support.remote_link import SEGMENT_BYTES, Link

_ALIGNED = Barrier(1, 0, Alignment.ALIGNED)
_TIMEOUTABLE = Barrier(1, 0, Alignment.ALIGNED, aligned_timeout_us=1_000)
_UNALIGNED = Barrier(1, 0, Alignment.UNALIGNED)


def test_without_any_floating_buffer_as_many_are_sent_as_there_are_exclusive_ones() -> None:
    link = Link(exclusive=2, floating=0)
    link.send(5)
    link.settle()
    assert link.channels[0].queued == (2, 2 * SEGMENT_BYTES)
    assert link.pool.subpartitions[0].data_count == 3


def test_a_backlog_brings_floating_buffers_and_each_is_one_credit() -> None:
    link = Link(exclusive=2, floating=3)
    link.send(9)
    link.settle()
    assert link.channels[0].queued[0] == 5
    assert link.floating.free == 0
    assert link.channels[0]._credit == 0


def test_each_consumed_buffer_lets_one_more_come() -> None:
    link = Link(exclusive=2, floating=0)
    link.send(5)
    link.settle()
    for left in (2, 1, 0):
        link.take()
        link.settle()
        assert link.pool.subpartitions[0].data_count == left
        assert link.channels[0].queued[0] == 2


def test_everything_arrives_in_the_order_in_which_it_was_sent() -> None:
    link = Link()
    link.send(9)
    link.pool.subpartitions[0].add_event(_ALIGNED)
    seen: list[object] = []
    for _ in range(40):
        link.settle(50)
        item = link.take()
        if item is not None:
            seen.append(item.data[0] if isinstance(item, DataBuffer) else item)
    assert seen == [*range(9), _ALIGNED]


def test_floating_buffers_are_handed_back_when_the_backlog_is_gone() -> None:
    link = Link(exclusive=2, floating=3)
    link.send(9)
    for _ in range(30):
        link.settle(50)
        link.take()
    link.send(1)
    link.settle()
    link.take()
    link.settle()
    assert link.channels[0]._credit >= 2
    assert link.floating.free + link.channels[0]._credit - 2 == 3


def test_two_channels_share_the_floating_buffers_and_the_one_that_waits_gets_the_next() -> None:
    link = Link(channels=2, exclusive=1, floating=2)
    link.send(4, channel=0)
    link.settle()
    assert link.channels[0].queued[0] == 3
    link.send(4, channel=1)
    link.settle()
    assert link.channels[1].queued[0] == 1
    # An exclusive buffer goes back to its own channel, a floating one to whoever stands in line.
    link.take(channel=0)
    link.settle()
    assert (link.channels[0].queued[0], link.channels[1].queued[0]) == (3, 1)
    # The first channel asked first; then it is the other's turn.
    link.take(channel=0)
    link.settle()
    assert (link.channels[0].queued[0], link.channels[1].queued[0]) == (2, 1)
    link.take(channel=0)
    link.settle()
    assert (link.channels[0].queued[0], link.channels[1].queued[0]) == (1, 2)


def test_a_barrier_needs_no_credit() -> None:
    link = Link(exclusive=1, floating=0)
    link.send(1)
    link.settle()
    link.pool.subpartitions[0].add_event(_ALIGNED)
    link.settle()
    assert isinstance(link.take(), DataBuffer)
    assert link.take() == _ALIGNED


def test_an_aligned_barrier_behind_data_waits_for_credit_and_an_unaligned_one_does_not() -> None:
    for barrier, arrives in ((_ALIGNED, False), (_UNALIGNED, True)):
        link = Link(exclusive=1, floating=0)
        link.send(3)
        link.settle()
        if arrives:
            overtaken = link.pool.subpartitions[0].overtake(barrier)
            assert [data[0] for data in overtaken] == [1, 2]
        else:
            link.pool.subpartitions[0].add_event(barrier)
        link.settle()
        assert (link.channels[0].poll_priority() == barrier) is arrives


def test_behind_an_aligned_barrier_the_sender_stops_until_it_is_resumed() -> None:
    link = Link(exclusive=4, floating=0)
    link.pool.subpartitions[0].add_event(_ALIGNED)
    link.send(1)
    link.settle()
    assert link.take() == _ALIGNED
    assert link.take() is None
    assert link.pool.subpartitions[0].is_blocked
    link.channels[0].resume()
    link.settle()
    assert isinstance(link.take(), DataBuffer)


def test_a_timeoutable_barrier_is_announced_once_and_can_be_converted_once() -> None:
    link = Link(exclusive=4, floating=0)
    announced: list[Barrier] = []
    link.gate.announced = lambda _, barrier: announced.append(barrier)
    link.send(2)
    resolved: list[list[bytes]] = []
    link.pool.subpartitions[0].add_timeoutable(_TIMEOUTABLE, resolved.append)
    link.settle()
    assert announced == [_TIMEOUTABLE]
    # It left the sender in time, so nothing was overtaken there (AT-7).
    assert resolved == [[]]
    channel = link.channels[0]
    assert channel.convert_to_priority(1)
    assert link.priority_mails == 1
    assert channel.poll_priority() == _TIMEOUTABLE
    assert not channel.convert_to_priority(1)
    assert isinstance(link.take(), DataBuffer)


def test_a_barrier_stuck_in_the_output_overtakes_when_its_time_is_up() -> None:
    link = Link(exclusive=1, floating=0)
    subpartition = link.pool.subpartitions[0]
    resolved: list[list[bytes]] = []
    link.send(3)
    subpartition.add_timeoutable(_TIMEOUTABLE, resolved.append)
    link.send(1, fill=7)
    with pytest.raises(ProtocolViolationError, match="unresolved"):
        subpartition.add_timeoutable(_TIMEOUTABLE, resolved.append)
    link.settle()
    assert resolved == []
    overtaken = subpartition.time_out(1)
    assert overtaken is not None
    # Number 0 is at the receiver; what was written behind the barrier is not of this checkpoint.
    assert [data[0] for data in overtaken] == [1, 2]
    assert resolved == [overtaken]
    assert subpartition.time_out(1) is None
    link.settle()
    assert link.channels[0].poll_priority() == _TIMEOUTABLE.as_unaligned()


def test_what_comes_in_front_of_the_barrier_is_copied_and_nothing_behind_it() -> None:
    link = Link(exclusive=8, floating=0)
    link.send(2)
    link.settle()
    copied: list[bytes] = []
    link.channels[0].start_persisting(False, 1, copied.append)
    link.send(1, fill=5)
    link.settle()
    link.pool.subpartitions[0].overtake(_UNALIGNED)
    link.settle()
    link.send(1, fill=9)
    link.settle()
    assert [data[0] for data in copied] == [0, 1, 5]


@pytest.mark.parametrize("is_local", [False, True])
def test_the_barrier_of_an_older_checkpoint_ends_no_copy_and_the_own_one_does(is_local: bool) -> None:
    link = Link(exclusive=8, floating=0)
    channel: InputChannel = link.channels[0]
    if is_local:
        channel = LocalChannel(ChannelKey(0, 0, 0), 0, link.pool.subpartitions[0], link.gate)
        channel.attach()
    copied: list[bytes] = []
    channel.start_persisting(False, 2, copied.append)
    for number in (1, 2):
        link.send(1, fill=number)
        link.settle()
        channel.poll()
        link.pool.subpartitions[0].overtake(Barrier(number, 0, Alignment.UNALIGNED))
        link.settle()
        assert channel.poll_priority() is not None
    link.send(1, fill=3)
    link.settle()
    channel.poll()
    assert [data[0] for data in copied] == [1, 2]


def test_of_checkpoints_side_by_side_each_copies_what_is_in_front_of_its_own_barrier() -> None:
    link = Link(exclusive=20, floating=0)
    channel, subpartition = link.channels[0], link.pool.subpartitions[0]
    copies: dict[int, list[bytes]] = {k: [] for k in (1, 2, 3)}
    channel.start_persisting(False, 1, copies[1].append)
    for k in (1, 2, 3):
        link.send(1, fill=10 + k)
        link.settle()
        subpartition.overtake(Barrier(k, 0, Alignment.UNALIGNED))
        link.settle()
    # Its barrier came before it begins, and so did a newer one: what lies between them is not its own.
    channel.start_persisting(True, 2, copies[2].append)
    channel.start_persisting(False, 4, copies[3].append)
    link.send(1, fill=14)
    link.settle()
    channel.stop_persisting(1)
    link.send(1, fill=15)
    link.settle()
    channel.stop_persisting(4)
    link.send(1, fill=16)
    link.settle()
    assert {k: [data[0] for data in copied] for k, copied in copies.items()} == {
        1: [11],
        2: [11, 12],
        3: [11, 12, 13, 14, 15],
    }


def test_data_without_an_assigned_buffer_is_fatal() -> None:
    link = Link(exclusive=1, floating=0)
    link.channels[0]._credit = 2
    link.send(2)
    with pytest.raises(ProtocolViolationError, match="data without a buffer"):
        link.settle()


# --- no buffers of one's own (CR-4) -----------------------------------------------------------------------------------


def test_without_exclusive_buffers_a_backlog_is_told_before_anything_is_sent() -> None:
    link = Link(exclusive=0, floating=2)
    link.send(5)
    link.settle()
    assert link.channels[0].queued[0] == 2
    got = 0
    while isinstance(link.take(), DataBuffer):
        got += 1
        link.settle()
    assert got == 5
    assert link.floating.free == 2


def test_what_is_flushed_and_not_full_is_asked_for_as_well() -> None:
    link = Link(exclusive=0, floating=1)
    assert link.pool.subpartitions[0].append(b"half") == 4
    link.settle(2_000)
    assert link.channels[0].queued == (1, 4)


def test_a_blocked_channel_lets_its_floating_buffers_go_so_that_others_get_them() -> None:
    link = Link(channels=2, exclusive=0, floating=2)
    blocked = link.pool.subpartitions[0]
    link.send(1)
    blocked.add_event(Barrier(1, 0, Alignment.ALIGNED))
    link.send(3)
    link.settle()
    # Both buffers went to the first channel: one holds what was in front of the barrier, one is for what cannot come.
    assert blocked.is_blocked
    assert isinstance(link.take(), DataBuffer)
    link.send(4, channel=1)
    link.settle()
    assert link.channels[1].queued[0] == 2
    assert link.channels[0]._floating_free == 0


def test_credit_of_buffers_that_were_let_go_is_void_when_the_sender_is_resumed() -> None:
    link = Link(channels=2, exclusive=0, floating=3)
    blocked = link.pool.subpartitions[0]
    link.send(1)
    blocked.add_event(Barrier(1, 0, Alignment.ALIGNED))
    link.send(2)
    link.settle()
    assert link.channels[0]._credit > 0
    link.send(6, channel=1)
    link.settle()
    assert isinstance(link.take(), DataBuffer)
    assert isinstance(link.take(), Barrier)
    # All three are with the other channel; on void credits data would arrive that has no buffer (CR-5).
    link.settle()
    assert link.floating.free == 0
    link.channels[0].resume()
    link.settle()
    assert link.channels[0].queued[0] == 0
    for _ in range(6):
        link.take(1)
        link.settle()
    assert link.channels[0].queued[0] == 2
