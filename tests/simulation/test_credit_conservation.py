"""Goal: no sender ever exceeds its credit, and no buffer is lost or doubled (INV-8; CR-1, CR-5, BUF-3, BUF-4).

Method: after every event of a run the books of each channel, gate and pool must balance: every credit announced stands
for a free buffer of the receiver, every floating buffer is free or held by one channel, every segment of an output pool
is in a queue, on the wire or at a reader. Seeds draw schedules, record sizes and late triggers; every run ends with
the failure and the restart of the job.
"""

from __future__ import annotations

import pytest

from backend.runtime.buffers import DataBuffer
from backend.runtime.graph import FaultSpec
from backend.runtime.kernel import Engine
from backend.runtime.remote_channel import RemoteChannel
from backend.runtime.task import Task
from tests.support.runtime_jobs import PROTOCOLS, late_triggers, small_job


def _held(channel: RemoteChannel) -> list[bool]:
    """For each buffer with data at the receiver, whether it is a floating one."""
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
        # The buffers were let go and the credits for them are void: the sender must be blocked until it knows (CR-4).
        assert channel._initial_credit == 0, where
        assert channel.subpartition.is_blocked, f"{where}: may send on void credits"
        assert (free, on_wire) == (0, 0), where
        return
    # What is missing between the two sides is a credit on its way to the sender.
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


def _check_output(task: Task, tasks: list[Task], where: str) -> None:
    for output in task.outputs:
        pool = output.pool
        assert pool.requested == sum(s.in_use for s in pool.subpartitions), where
        assert pool.full_channels == sum(s.in_use >= pool.max_per_channel for s in pool.subpartitions), where
        for subpartition in pool.subpartitions:
            reader = next(c for t in tasks for c in t.gate.channels if c.subpartition is subpartition)
            queued = sum(isinstance(item, DataBuffer) for item in subpartition.queue)
            elsewhere = 0
            if isinstance(reader, RemoteChannel):
                elsewhere = sum(isinstance(item, DataBuffer) for item, _ in reader._wire)
            elif reader._owner is not None:
                elsewhere = 1
            building = subpartition._builder is not None
            assert subpartition.in_use == queued + building + elsewhere, f"{where}, {reader.key}: segments"
            assert subpartition.data_count == queued, where


@pytest.mark.parametrize("exclusive", [2, 0])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_books_of_credits_and_buffers_balance_after_every_event(protocol: str, exclusive: int) -> None:
    for seed in range(4 if exclusive else 2):
        plan = [FaultSpec("task.in-sync", hit=15 + seed), *(late_triggers() if seed % 2 else ())]
        spec = small_job(
            protocol,
            seed=seed,
            fuzz=1 + seed,
            task_managers=2,
            record_bytes=(60, 120, 700, 1500)[seed],
            records=None,
            plan=tuple(plan),
            config={
                "taskmanager.network.memory.buffers-per-channel": exclusive,
                "taskmanager.network.memory.floating-buffers-per-gate": 8 if exclusive else 1 + seed,
            },
        )
        engine = Engine(spec)
        _after_every_event(engine, f"{protocol}, {exclusive} exclusive, seed {seed}", until_us=1_300_000)
        assert engine.restart_count == 1, f"seed {seed}"
        assert engine.coordinator.completed_count > 1, f"seed {seed}"


def _after_every_event(engine: Engine, what: str, *, until_us: int) -> None:
    heap = engine.scheduler._heap
    checked = 0
    while engine.now_us < until_us:
        engine.run_until(heap[0][0] if heap else until_us)
        checked += 1
        # Every third event: the books of one event show at the next as well, and the check costs more than the run.
        if checked % 3 or engine.status != "RUNNING":
            continue
        where = f"{what}, {engine.now_us} us"
        for task in engine.tasks:
            _check_task(task, where)
            _check_output(task, engine.tasks, where)
    assert checked > 2_000
