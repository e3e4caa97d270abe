"""Tests of new channels that carry data of old ones: partial records, watermarks and the filter (RS-7 to RS-10)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from backend.domain.errors import ProtocolViolationError
from backend.runtime.core.elements import (
    EndOfData,
    Event,
    Record,
    RecoveryCompletion,
    VirtualChannel,
    Watermark,
    WatermarkStatus,
)
from backend.runtime.core.scheduler import Scheduler
from backend.runtime.job.graph import EdgeSpec, Graph, Partitioner, VertexKind, VertexSpec
from backend.runtime.measure.measures import ChannelState, SubtaskSnapshot
from backend.runtime.network.buffers import OutputPool, Subpartition
from backend.runtime.network.channel import ChannelKey, LocalChannel
from backend.runtime.network.demultiplexing import OldChannels
from backend.runtime.network.gate import InputGate
from backend.runtime.network.rescaling import EdgeRescale
from backend.runtime.task.recovery import Recovery
from backend.runtime.task.restarts import Initialization

# --- one gate with one channel ----------------------------------------------------------------------------------------


def _record(n: int, size_bytes: int = 60) -> bytes:
    return Record(n, n, 0, 0, size_bytes).encode()


class _Receiver:
    """A channel from new sender 0 to new receiver 1. It carries the data of two old senders for two old receivers."""

    rescale = EdgeRescale(receivers=((0,), (0, 1)), senders=((0, 1),))

    def __init__(self) -> None:
        self.gate = InputGate(on_data=lambda: None, on_priority=lambda: None)
        pool = OutputPool(
            Scheduler(0),
            channels=1,
            segment_bytes=64,
            size=1000,
            max_per_channel=1000,
            max_overdraft=0,
            flush_timeout_us=1000,
            on_change=lambda: None,
        )
        self.sender: Subpartition = pool.subpartitions[0]
        self.channel = LocalChannel(ChannelKey(0, 0, 1), 0, self.sender, self.gate)
        self.gate.channels.append(self.channel)
        self.filtered = 0
        old = OldChannels(self.channel.key, self.rescale, lambda record: record.key % 2 == 0, self._on_filtered)
        self.channel.decoder_of = old.decoder
        self.gate.is_recovering = True

    def _on_filtered(self) -> None:
        self.filtered += 1

    def recovered(self, *items: bytes | VirtualChannel) -> list[object]:
        self.channel.recovered.extend(items)
        self.gate.is_recovering = True
        found = self._all()
        self.gate.is_recovering = False
        self.channel.attach()
        return found

    def sent(self, *items: bytes | Event) -> list[object]:
        for item in items:
            if isinstance(item, bytes):
                self.sender.append_recovered(item, 0)
            else:
                self.sender.add_event(item)
        return self._all()

    def _all(self) -> list[object]:
        found: list[object] = []
        while (one := self.gate.next_element()) is not None:
            found.append(one[1])
            if isinstance(one[1], RecoveryCompletion):
                self.channel.end_virtual()
        return found


_OLD = {(i, j): VirtualChannel(i, j) for i in (0, 1) for j in (0, 1)}


def _keys(found: Iterable[object]) -> list[int]:
    return [element.key for element in found if isinstance(element, Record)]


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_record_cut_between_receiver_and_sender_is_reassembled_across_other_data(cut: int) -> None:
    """RS-8, T-10: each old channel continues where its bytes stopped, despite other channels' bytes in between."""
    receiver = _Receiver()
    one, other = _record(11), _record(12, 200)
    found = receiver.recovered(_OLD[0, 1], one[:cut], _OLD[1, 1], other[: 3 * cut], _OLD[0, 1], one[cut : cut + 1])
    assert _keys(found) == ([11] if cut == 59 else [])
    found = receiver.sent(_OLD[1, 1], other[3 * cut :], _OLD[0, 1], one[cut + 1 :] + _record(13), RecoveryCompletion())
    assert _keys(found) == ([12, 13] if cut == 59 else [12, 11, 13])
    assert found[-1] == RecoveryCompletion()
    # The data after this point is new and belongs to no old channel.
    assert receiver.channel.virtual is None
    assert _keys(receiver.sent(_record(15))) == []
    receiver.sender.resume()
    assert _keys(receiver.sent(_record(16))) == [15, 16]
    assert receiver.filtered == 0


def test_the_edge_filters_records_of_ambiguous_old_channels_and_keeps_all_others() -> None:
    """RS-9: the keys of old receiver 0 now belong to two receivers. Those of old receiver 1 still belong to one."""
    receiver = _Receiver()
    many = b"".join(_record(n) for n in range(6))
    assert _keys(receiver.recovered(_OLD[0, 0], many, _OLD[0, 1], many)) == [0, 2, 4, 0, 1, 2, 3, 4, 5]
    assert receiver.filtered == 3
    assert receiver.channel.record_bytes == 0, "filtered records are not used to detect a common record size"
    assert _keys(receiver.sent(_OLD[1, 0], many, RecoveryCompletion())) == [0, 2, 4]
    assert receiver.filtered == 6


def test_a_remaining_part_of_a_record_is_a_violation() -> None:
    receiver = _Receiver()
    receiver.recovered(_OLD[0, 1], _record(1)[:20], _OLD[1, 1], _record(2))
    with pytest.raises(ProtocolViolationError, match=r"RS-8: a part of a record is left of .*source_subtask=0"):
        receiver.sent(RecoveryCompletion())


def test_bytes_of_an_old_channel_that_is_not_carried_here_are_a_violation() -> None:
    receiver = _Receiver()
    with pytest.raises(ProtocolViolationError, match=r"RS-6: .* in .*, which does not carry it"):
        receiver.recovered(VirtualChannel(2, 0), _record(1))


def test_the_watermark_is_the_lowest_of_all_old_channels_once_each_has_one() -> None:
    """RS-10: the watermark of the new channel is the lowest watermark of its old channels.

    Until each old channel has a watermark, the new channel has none.
    """
    receiver = _Receiver()
    marks = {pair: Watermark(100 + 10 * n) for n, pair in enumerate(_OLD)}
    for pair in list(_OLD)[:3]:
        assert receiver.recovered(_OLD[pair], marks[pair].encode()) == []
    assert receiver.sent(_OLD[1, 1], Watermark(500).encode()) == [Watermark(100)]
    assert receiver.sent(_OLD[0, 0], Watermark(90).encode()) == [Watermark(100)], "no channel goes back"
    assert receiver.sent(_OLD[0, 0], Watermark(300).encode()) == [Watermark(110)]
    assert receiver.sent(RecoveryCompletion(), EndOfData()) == [RecoveryCompletion()]


def test_a_channel_is_idle_when_all_old_ones_are() -> None:
    """RS-10: the new channel is active as long as one of its old channels is active."""
    receiver = _Receiver()
    idle, active = WatermarkStatus(is_idle=True).encode(), WatermarkStatus(is_idle=False)
    told = [receiver.recovered(_OLD[pair], idle)[0] for pair in _OLD]
    assert told == [active, active, active, WatermarkStatus(is_idle=True)]
    assert receiver.sent(_OLD[0, 0], active.encode()) == [active]


def test_segments_return_to_their_owner_whatever_is_filtered() -> None:
    """INV-8: a buffer is returned when its bytes are decoded, even if all of its records are filtered out."""
    receiver = _Receiver()
    receiver.recovered()
    receiver.sent(_OLD[0, 0], b"".join(_record(n) for n in (1, 3, 5, 7)), RecoveryCompletion())
    assert receiver.filtered == 4
    assert receiver.sender.in_use == 0


# --- the end of recovered data ----------------------------------------------------------------------------------------


def test_after_recovered_data_a_channel_is_active_and_on_a_rescaled_edge_without_watermark() -> None:
    """RC-2, WM-1, RS-10: a channel that was idle in the checkpoint is active again, so watermarks wait for it.

    The watermark of a channel is reset only on rescaled edges.
    """
    vertices = tuple(VertexSpec(n, VertexKind.MAP, n, parallelism=2) for n in "ab")
    edges = tuple(EdgeSpec("a", "b", p) for p in (Partitioner.REBALANCE, Partitioner.HASH))
    told: list[tuple[int, WatermarkStatus, bool]] = []
    done: list[str] = []
    channels = [
        SimpleNamespace(
            index=n,
            key=ChannelKey(edge, sender, 0),
            is_idle=is_idle,
            watermark_us=70 + n,
            decoder_of=None,
            end_virtual=partial(done.append, f"end {n}"),
            resume=partial(done.append, f"resume {n}"),
        )
        for n, (edge, sender, is_idle) in enumerate(((0, 0, False), (0, 1, True), (1, 0, True)))
    ]
    env = SimpleNamespace(now=0, seed=0, graph=Graph(vertices, edges), faults=SimpleNamespace(passed=lambda *_: None))
    task: Any = SimpleNamespace(
        env=env,
        name="b",
        index=0,
        operators=(),
        outputs=(),
        gate=SimpleNamespace(channels=channels),
        emission=SimpleNamespace(then=lambda act: act(), broadcast_event=lambda event: done.append(str(event))),
        increments=SimpleNamespace(resume=lambda checkpoint_id, snapshot: None),
        initialization=Initialization(0),
        event_time=SimpleNamespace(
            restored=lambda watermark_us: None,
            on_status=lambda channel, status, *, counts_at_once: told.append((channel.index, status, counts_at_once)),
        ),
        become_running=partial(done.append, "running"),
    )
    recovery = Recovery(task)
    recovery.restore(
        SubtaskSnapshot((), ChannelState(), -1, 0, 0),
        checkpoint_id=3,
        has_channel_state=True,
        rescaled={1: EdgeRescale(receivers=((0,), (0,)), senders=((0,), ()))},
    )
    assert done == [str(RecoveryCompletion())]
    for channel in (*channels, channels[0]):
        ended: Any = channel
        recovery.on_completion(ended)
    assert told == [(n, WatermarkStatus(is_idle=False), True) for n in (1, 2)]
    assert [channel.watermark_us for channel in channels] == [70, 71, -1]
    assert done[1:] == ["end 0", "end 1", "end 2", "resume 0", "resume 1", "resume 2", "running"]
