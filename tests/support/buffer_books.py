"""Check that all credits, buffers and segments of a job are accounted for (INV-8; CR-1, CR-5, BUF-3, BUF-4).

The check can run between any two events. Every announced credit corresponds to a free buffer of the receiver. Every
floating buffer is free or held by one channel. Every segment of an output pool is in a queue, on the wire or at a
reader.
"""

from __future__ import annotations

from backend.runtime.network.buffers import DataBuffer
from backend.runtime.network.channel import InputChannel
from backend.runtime.network.remote_channel import RemoteChannel
from backend.runtime.task.task import Task


def check_books(tasks: list[Task], where: str = "") -> None:
    """Assert that all credits, buffers and segments of the running attempts are accounted for."""
    readers = {id(channel.subpartition): channel for task in tasks for channel in task.gate.channels}
    for task in tasks:
        _check_task(task, where)
        _check_output(task, readers, where)


def _held(channel: RemoteChannel) -> list[bool]:
    """Return, for each buffer that holds data at the receiver, whether this buffer is a floating one."""
    buffers = [item for _, item in channel._queue if isinstance(item, DataBuffer)]
    if channel._owner is not None:
        buffers.append(channel._owner)
    return [buffer.owner is channel._floating_slot for buffer in buffers]


def _check_channel(channel: RemoteChannel, where: str) -> None:
    floating = _held(channel)
    on_wire = sum(isinstance(item, DataBuffer) for item, _ in channel._wire)
    free = channel._exclusive_free + channel._floating_free
    assert channel._credit >= 0, f"{where}: sent without credit"
    if channel._sender_round != channel._round:
        # The receiver released its buffers, so their credits are void. The sender must stay blocked until it knows
        # this (CR-4).
        assert channel._initial_credit == 0, where
        assert channel.subpartition.is_blocked, f"{where}: may send on void credits"
        assert (free, on_wire) == (0, 0), where
        return
    # `free` may be larger than this sum. The difference is credit that is on its way to the sender.
    assert channel._credit + on_wire <= free, f"{where}: more may arrive than there are buffers for"
    assert channel._exclusive_free + floating.count(False) == channel._initial_credit, f"{where}: exclusive buffers"


def _check_task(task: Task, where: str) -> None:
    remote = [c for c in task.gate.channels if isinstance(c, RemoteChannel)]
    for channel in remote:
        _check_channel(channel, f"{where}, {channel.key}")
    for edge, pool in task.floating.items():
        of_edge = [c for c in remote if c.key.edge == edge]
        taken = sum(c._floating_free + _held(c).count(True) for c in of_edge)
        assert pool.free + taken == pool.size, f"{where}: floating buffers"
        assert pool.free >= 0, where


def _check_output(task: Task, readers: dict[int, InputChannel], where: str) -> None:
    for output in task.outputs:
        pool = output.pool
        assert pool.requested == sum(s.in_use for s in pool.subpartitions), where
        assert pool.full_channels == sum(s.in_use >= pool.max_per_channel for s in pool.subpartitions), where
        for subpartition in pool.subpartitions:
            reader = readers[id(subpartition)]
            queued = sum(isinstance(item, DataBuffer) for item in subpartition.queue)
            elsewhere = 0
            if isinstance(reader, RemoteChannel):
                elsewhere = sum(isinstance(item, DataBuffer) for item, _ in reader._wire)
            elif reader._owner is not None:
                elsewhere = 1
            building = subpartition._builder is not None
            assert subpartition.in_use == queued + building + elsewhere, f"{where}, {reader.key}: segments"
            assert subpartition.data_count == queued, where
