"""Tests of the spill log of one subtask: one write at a time, failed writes, and checkpoints that wait for the log."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from backend.domain.failure import FailureReason
from backend.runtime.measure.measures import ChannelState
from backend.runtime.network.channel import ChannelKey
from backend.runtime.network.segments import SegmentStore
from backend.runtime.snapshot.spill_logs import SpillLogs
from backend.runtime.task import spilling
from backend.runtime.task.channel_writing import Positions

KEY = ChannelKey(0, 0, 0)


class Store:
    """Collects the writes of a subtask. The test ends each of them, well or badly."""

    def __init__(self):
        self.writes = []

    def __call__(self, size_bytes, done, failed, factor):
        self.writes.append((size_bytes, done, failed))

    @property
    def sizes(self):
        return [size for size, *_ in self.writes]

    def end(self, *, well=True):
        _, done, failed = self.writes.pop(0)
        (done if well else failed)(None)


class Sender:
    """One subtask with one output channel and its spill log."""

    def __init__(self, monkeypatch):
        self.store, self.logs = Store(), SpillLogs(SegmentStore())
        env = SimpleNamespace(
            config=SimpleNamespace(merged_bytes_max=1_000),
            channel_files=SimpleNamespace(logs=self.logs),
            write=self.store,
        )
        spec = SimpleNamespace(id="source", slow_upload_factors={})
        task = SimpleNamespace(env=env, spec=spec, index=0, key=(0, 0), attempt=1)
        self.writer = spilling.SpillLogWriter(task)
        self.channel = SimpleNamespace(written_bytes=0)
        self.output = SimpleNamespace(
            edge=0, targets=[0], pool=SimpleNamespace(spill=None, subpartitions=[self.channel])
        )
        self.writer.attach(self.output)
        self.done, self.failed = [], []
        monkeypatch.setattr(spilling, "positions_of", lambda _: Positions({KEY: self.channel.written_bytes}, {}))

    def send(self, data):
        self.channel.written_bytes += len(data)
        self.output.pool.spill(0, data)

    def checkpoint(self, number, *, is_savepoint=False):
        barrier = SimpleNamespace(checkpoint_id=number, snapshot_type=SimpleNamespace(is_savepoint=is_savepoint))
        self.writer.snapshot(barrier)
        return self.write(number)

    def write(self, number):
        return self.writer.write(number, ChannelState(), self.done.append, self.failed.append)


@pytest.fixture
def sender(monkeypatch):
    return Sender(monkeypatch)


def logged(written):
    return b"".join(bytes(segment) for _, segment in written.spilled.log[KEY])


def test_there_is_one_write_at_a_time_and_it_takes_all_that_waits(sender):
    for data in (b"ab", b"c", b"def"):
        sender.send(data)

    assert sender.store.sizes == [2]
    sender.store.end()
    assert sender.store.sizes == [4]
    sender.store.end()
    assert sender.store.sizes == []


def test_a_checkpoint_waits_until_the_log_is_written_up_to_its_barrier_and_no_longer(sender):
    sender.send(b"ab")
    sender.send(b"cd")
    assert sender.checkpoint(1) is None
    sender.send(b"late")

    sender.store.end()
    assert sender.done == []
    sender.store.end()

    (written,) = sender.done
    assert logged(written) == b"abcd"
    assert sender.checkpoint(1) is not None


def test_a_checkpoint_does_not_wait_for_what_was_sent_after_its_barrier(sender):
    sender.send(b"ab")
    sender.writer.snapshot(SimpleNamespace(checkpoint_id=1, snapshot_type=SimpleNamespace(is_savepoint=False)))
    sender.store.end()
    sender.send(b"after")

    written = sender.write(1)

    assert written is not None
    assert logged(written) == b"ab"
    assert written.spilled.sent == {KEY: 2}


def test_a_savepoint_waits_for_nothing_and_refers_to_nothing(sender):
    sender.send(b"ab")

    written = sender.checkpoint(1, is_savepoint=True)

    assert written is not None
    assert written.spilled is None


def test_a_failed_write_fails_the_checkpoints_that_wait_and_keeps_its_data_for_the_next_write(sender):
    """Goal: the log has no gap after a failed write, and goes on."""
    sender.send(b"ab")
    sender.checkpoint(1)
    sender.store.end(well=False)

    assert sender.failed == [FailureReason.ASYNC_FAILURE]
    sender.send(b"cd")
    assert sender.store.sizes == [4]
    sender.checkpoint(2)
    sender.store.end()
    assert [logged(written) for written in sender.done] == [b"abcd"]
    assert len(sender.failed) == 1


def test_after_a_failed_write_the_next_checkpoint_writes_again_although_nothing_more_is_sent(sender):
    sender.send(b"ab")
    sender.store.end(well=False)
    assert sender.store.sizes == []

    assert sender.checkpoint(1) is None

    assert sender.store.sizes == [2]


def test_a_checkpoint_that_is_given_up_is_neither_done_nor_failed(sender):
    sender.send(b"ab")
    sender.checkpoint(1)
    sender.writer.cancel(1)
    sender.store.end()

    assert (sender.done, sender.failed) == ([], [])
    written = sender.write(1)
    assert written is not None
    assert written.spilled is None


@pytest.mark.parametrize("well", [True, False])
def test_a_write_that_ends_after_the_attempt_leaves_no_file_and_tells_nobody(sender, well):
    sender.send(b"ab")
    sender.checkpoint(1)
    sender.writer.close()
    sender.store.end(well=well)
    sender.send(b"cd")

    assert (sender.done, sender.failed, sender.store.sizes) == ([], [], [])
    assert not sender.logs._store.paths
    sender.logs.retain([])
    assert not sender.logs._logs
