"""Tests of a local channel: which data it persists, and which buffers count as in use."""

from __future__ import annotations

from backend.runtime.core.elements import Alignment, Barrier
from backend.runtime.core.scheduler import Scheduler
from backend.runtime.network.buffers import OutputPool
from backend.runtime.network.channel import ChannelKey, LocalChannel
from backend.runtime.network.gate import InputGate

_SEGMENT = 64
_ALIGNED = Barrier(1, 0, Alignment.ALIGNED)
_UNALIGNED = Barrier(1, 0, Alignment.UNALIGNED)


def test_a_local_channel_persists_polled_data_and_never_data_that_the_sender_persisted() -> None:
    subpartition = _pool(Scheduler()).subpartitions[0]
    channel = LocalChannel(ChannelKey(0, 0, 0), 0, subpartition, InputGate(on_data=_nothing, on_priority=_nothing))
    channel.attach()
    copied: list[bytes] = []
    for number in range(3):
        subpartition.append(bytes([number]) * _SEGMENT)
    channel.start_persisting(False, 1, copied.append)
    channel.poll()
    overtaken = subpartition.overtake(_UNALIGNED)
    assert channel.poll_priority() == _UNALIGNED
    channel.stop_persisting()
    channel.poll()
    assert [data[0] for data in copied] == [0]
    assert [data[0] for data in overtaken] == [1, 2]


def _nothing() -> None:
    return None


def _pool(scheduler: Scheduler, *, flush_phase_us: int = 0) -> OutputPool:
    return OutputPool(
        scheduler,
        channels=1,
        segment_bytes=_SEGMENT,
        size=8,
        max_per_channel=8,
        max_overdraft=0,
        flush_timeout_us=1_000,
        flush_phase_us=flush_phase_us,
        on_change=_nothing,
    )


def test_a_local_receiver_counts_events_and_the_unfinished_buffer_as_buffers_in_use() -> None:
    subpartition = _pool(Scheduler()).subpartitions[0]
    channel = LocalChannel(ChannelKey(0, 0, 0), 0, subpartition, InputGate(on_data=_nothing, on_priority=_nothing))
    subpartition.append(bytes(2 * _SEGMENT))
    subpartition.add_event(_ALIGNED)
    assert channel.buffers_in_use == 3
    subpartition.append(b"x")
    assert channel.buffers_in_use == 4
