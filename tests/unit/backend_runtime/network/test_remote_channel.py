"""Tests of credit-based flow control, step by step (CR-1 to CR-3, CR-6, BUF-1 to BUF-4, Q-1 to Q-5)."""

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


def test_without_floating_buffers_the_exclusive_ones_limit_the_sender() -> None:
    link = Link(exclusive=2, floating=0)
    link.send(5)
    link.settle()
    assert link.channels[0].queued == (2, 2 * SEGMENT_BYTES)
    assert link.pool.subpartitions[0].data_count == 3


def test_a_backlog_requests_floating_buffers_and_each_is_one_credit() -> None:
    link = Link(exclusive=2, floating=3)
    link.send(9)
    link.settle()
    assert link.channels[0].queued[0] == 5
    assert link.floating.free == 0
    assert link.channels[0]._credit == 0


def test_each_consumed_buffer_allows_one_more_to_arrive() -> None:
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


def test_floating_buffers_are_returned_when_the_backlog_is_gone() -> None:
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


def test_two_channels_share_the_floating_buffers_in_the_order_of_their_requests() -> None:
    link = Link(channels=2, exclusive=1, floating=2)
    link.send(4, channel=0)
    link.settle()
    assert link.channels[0].queued[0] == 3
    link.send(4, channel=1)
    link.settle()
    assert link.channels[1].queued[0] == 1
    # A released exclusive buffer returns to its own channel. A released floating buffer goes to the channel that has
    # waited longest.
    link.take(channel=0)
    link.settle()
    assert (link.channels[0].queued[0], link.channels[1].queued[0]) == (3, 1)
    # The first channel requested floating buffers first. After that channel has got a buffer, the other channel gets
    # the next buffer.
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


def test_an_aligned_barrier_after_data_waits_for_credit_and_an_unaligned_one_does_not() -> None:
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


def test_after_an_aligned_barrier_the_sender_stops_until_it_is_resumed() -> None:
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
    link.pool.subpartitions[0].add_waiting(_TIMEOUTABLE, resolved.append)
    link.settle()
    assert announced == [_TIMEOUTABLE]
    # The barrier left the sender before its timeout expired, so it overtook no data there (AT-7).
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
    subpartition.add_waiting(_TIMEOUTABLE, resolved.append)
    link.send(1, fill=7)
    with pytest.raises(ProtocolViolationError, match="unresolved"):
        subpartition.add_waiting(_TIMEOUTABLE, resolved.append)
    link.settle()
    assert resolved == []
    overtaken = subpartition.let_overtake(1)
    assert overtaken is not None
    # Buffer 0 is already at the receiver. Data written after the barrier does not belong to this checkpoint.
    assert [data[0] for data in overtaken] == [1, 2]
    assert resolved == [overtaken]
    assert subpartition.let_overtake(1) is None
    link.settle()
    assert link.channels[0].poll_priority() == _TIMEOUTABLE.as_unaligned()


def test_data_before_the_barrier_is_persisted_and_none_after_it() -> None:
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
def test_only_the_checkpoints_own_barrier_ends_persisting_and_no_older_one(is_local: bool) -> None:
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


def test_each_concurrent_checkpoint_persists_the_data_before_its_own_barrier() -> None:
    link = Link(exclusive=20, floating=0)
    channel, subpartition = link.channels[0], link.pool.subpartitions[0]
    copies: dict[int, list[bytes]] = {k: [] for k in (1, 2, 3)}
    channel.start_persisting(False, 1, copies[1].append)
    for k in (1, 2, 3):
        link.send(1, fill=10 + k)
        link.settle()
        subpartition.overtake(Barrier(k, 0, Alignment.UNALIGNED))
        link.settle()
    # The barriers of checkpoints 2 and 3 arrived before the task began checkpoint 2. Data between these two barriers
    # does not belong to checkpoint 2.
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


# --- no exclusive buffers (CR-4) --------------------------------------------------------------------------------------


def test_without_exclusive_buffers_the_backlog_is_announced_before_any_data() -> None:
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


def test_a_flushed_partial_buffer_also_gets_a_credit() -> None:
    link = Link(exclusive=0, floating=1)
    assert link.pool.subpartitions[0].append(b"half") == 4
    link.settle(2_000)
    assert link.channels[0].queued == (1, 4)


def test_a_blocked_channel_releases_its_floating_buffers_for_others() -> None:
    link = Link(channels=2, exclusive=0, floating=2)
    blocked = link.pool.subpartitions[0]
    link.send(1)
    blocked.add_event(Barrier(1, 0, Alignment.ALIGNED))
    link.send(3)
    link.settle()
    # The first channel holds both floating buffers: one contains data that was sent before the barrier, and the other
    # is reserved for data that the blocked sender cannot send.
    assert blocked.is_blocked
    assert isinstance(link.take(), DataBuffer)
    link.send(4, channel=1)
    link.settle()
    assert link.channels[1].queued[0] == 2
    assert link.channels[0]._floating_free == 0


def test_credit_for_released_buffers_is_void_when_the_sender_is_resumed() -> None:
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
    # The other channel has all three buffers. If the old credits were still valid, data would arrive without a buffer
    # (CR-5).
    link.settle()
    assert link.floating.free == 0
    link.channels[0].resume()
    link.settle()
    assert link.channels[0].queued[0] == 0
    for _ in range(6):
        link.take(1)
        link.settle()
    assert link.channels[0].queued[0] == 2
