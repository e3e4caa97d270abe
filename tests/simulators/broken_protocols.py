"""Broken variants of the protocols (T-9). Each variant has one error, which an invariant must catch.

A variant consists of a patch of the runtime and a job in which the error has an effect. The product contains
none of these errors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest

from backend.domain.failure import FailureReason
from backend.runtime.coordinator import coordinator, restore_point
from backend.runtime.coordinator.coordinator import Coordinator
from backend.runtime.coordinator.rescales import RescaleSpec
from backend.runtime.core.elements import Alignment, Barrier, RecoveryCompletion
from backend.runtime.core.scheduler import Scheduler
from backend.runtime.job.graph import FaultAction, FaultSpec
from backend.runtime.measure.measures import ChannelState
from backend.runtime.network.buffers import Subpartition
from backend.runtime.network.channel import ByteDecoder, InputChannel
from backend.runtime.network.emission import Emission
from backend.runtime.network.gate import InputGate
from backend.runtime.network.remote_channel import RemoteChannel
from backend.runtime.operators.sinks import TransactionalSink
from backend.runtime.operators.sources import Source
from backend.runtime.protocols.base import Ended, Persist, Resume, Snapshot
from backend.runtime.protocols.gatekeeper import Gatekeeper
from backend.runtime.protocols.unaligned import Unaligned
from backend.runtime.snapshot import metadata
from backend.runtime.task.snapshots import Snapshots
from backend.runtime.task.task import Task
from tests.simulators.fault_plans import AT_LEAST_ONCE
from tests.support.runtime_jobs import STAYS

_CRASH = (FaultSpec("coordinator.between-notifies", hit=8),)
_EXPIRING = {"execution.checkpointing.timeout": "60 ms"}
_LATE_ACKS = tuple(FaultSpec("rpc.ack", hit=7, action=FaultAction.DELAY, delay_us=300_000) for _ in range(20))
_CONCURRENT = {"execution.checkpointing.max-concurrent-checkpoints": 3}


@dataclass(frozen=True, slots=True)
class Variant:
    """A patch of the runtime, and the job in which an invariant must catch it.

    ``breaks`` applies the patch. ``rule`` is the invariant that must catch the error in a job of ``protocol``.
    """

    breaks: Callable[[pytest.MonkeyPatch], None]
    rule: str
    protocol: str = "unaligned"
    plan: tuple[FaultSpec, ...] = ()
    config: dict[str, object] = field(default_factory=dict)
    asks_for_savepoints: bool = False
    partitioner: str = ""
    """The partitioner of the first edge in the job for rescaling.

    If it is set, the variant runs this job, which is rescaled as in ``rescales``.
    """
    rescales: tuple[RescaleSpec, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether the job must process every record exactly once."""
        return self.protocol != AT_LEAST_ONCE


def forward_one_record_late(patch: pytest.MonkeyPatch) -> None:
    """Send the barrier after the next record, although the snapshot does not include this record."""
    forward, emit = Snapshots._forward, Emission.emit
    waiting: dict[int, Callable[[], None]] = {}

    def forward_later(self: Snapshots, run: Any, barrier: Barrier) -> None:
        if self._task.outputs:
            waiting[id(self._task.emission)] = lambda: forward(self, run, barrier)

    def emit_and_forward(self: Emission, record: Any) -> None:
        emit(self, record)
        waiting.pop(id(self), lambda: None)()

    patch.setattr(Snapshots, "_forward", forward_later)
    patch.setattr(Emission, "emit", emit_and_forward)


def forget_the_partial_record(patch: pytest.MonkeyPatch) -> None:
    """Do not persist the bytes of an incomplete record that were already read."""
    start = InputChannel.start_persisting

    def without(self: InputChannel, barrier_arrived: bool, checkpoint_id: int, write: Any) -> None:
        held = self._decoder, self.elements
        self._decoder, self.elements = ByteDecoder(), []
        start(self, barrier_arrived, checkpoint_id, write)
        self._decoder, self.elements = held

    patch.setattr(InputChannel, "start_persisting", without)


def persist_the_polled_buffer(patch: pytest.MonkeyPatch) -> None:
    """Persist the whole buffer that is being read, including records that the state already contains."""
    start = InputChannel.start_persisting

    def from_the_beginning(self: InputChannel, barrier_arrived: bool, checkpoint_id: int, write: Any) -> None:
        decoder = self._decoder
        assert isinstance(decoder, ByteDecoder)
        held, decoder._whole = decoder._whole, sum(element.size_bytes for element in self.elements)
        start(self, barrier_arrived, checkpoint_id, write)
        decoder._whole = held

    patch.setattr(InputChannel, "start_persisting", from_the_beginning)


def forget_the_queued_input(patch: pytest.MonkeyPatch) -> None:
    """Do not persist the data in the receiver's queue before the barrier."""
    patch.setattr(RemoteChannel, "_persist_queued", lambda *_: None)


def persist_behind_the_barrier(patch: pytest.MonkeyPatch) -> None:
    """Continue to persist a channel after its barrier has arrived."""
    patch.setattr(InputChannel, "_barrier_came", lambda *_: None)


def forget_the_overtaken_output(patch: pytest.MonkeyPatch) -> None:
    """Do not persist the output that a barrier overtakes."""
    overtake = Subpartition.overtake
    patch.setattr(Subpartition, "overtake", lambda self, *given: overtake(self, *given) and [])


def snapshot_at_the_last_barrier(patch: pytest.MonkeyPatch) -> None:
    """Start to persist at the first barrier, but take the state at the last barrier (CL-9).

    The records between these barriers are then both persisted and in the state.
    """

    def start(self: Unaligned, barrier: Barrier) -> list[Any]:
        self._is_snapshot_taken = True
        self._late = barrier.as_unaligned()
        return [Persist()]

    def complete(self: Unaligned) -> list[Any]:
        if not self._is_snapshot_taken or self._arrived < self._open:
            return []
        self.is_done = True
        return [Snapshot(self._late), Ended(), *(Resume(c) for c in sorted(self._blocked))]

    patch.setattr(Unaligned, "start", start)
    patch.setattr(Unaligned, "_complete", complete)


def forget_the_output_behind_the_timer(patch: pytest.MonkeyPatch) -> None:
    """Do not persist the output that a barrier overtakes because its timer fired (AT-6)."""
    resolved = Snapshots._output_resolved
    patch.setattr(Snapshots, "_output_resolved", lambda self, run, key, data: resolved(self, run, key, []))


def do_not_block(patch: pytest.MonkeyPatch) -> None:
    """Let the sender continue after an aligned barrier, instead of blocking the channel (AL-2)."""
    poll = Subpartition.poll

    def on(self: Subpartition) -> Any:
        item = poll(self)
        if isinstance(item, Barrier):
            self.is_blocked = False
        return item

    patch.setattr(Subpartition, "poll", on)


def forget_resume_on_an_obsolete_barrier(patch: pytest.MonkeyPatch) -> None:
    """Leave a channel blocked after the barrier of a finished checkpoint (AL-5)."""
    barrier = Gatekeeper.barrier

    def forgetful(self: Gatekeeper, channel: int, which: Barrier, now_us: int) -> list[Any]:
        is_obsolete = self._is_obsolete(which.checkpoint_id)
        commands = barrier(self, channel, which, now_us)
        return [c for c in commands if c != Resume(channel)] if is_obsolete else commands

    patch.setattr(Gatekeeper, "barrier", forgetful)


def swap_the_replay_order(patch: pytest.MonkeyPatch) -> None:
    """Replay the receiver's part of a channel after the sender's part (RC-3)."""
    assign = restore_point.assign

    def swapped(*given: Any) -> Any:
        assigned = assign(*given)
        snapshots = assigned.snapshots
        inputs = {k: c for s in snapshots.values() for k, c in s.channels.inputs.items()}
        outputs = {k: c for s in snapshots.values() for k, c in s.channels.outputs.items()}
        vertices = given[1].vertices
        edges = given[1].edges
        by_task: defaultdict[Any, ChannelState] = defaultdict(ChannelState)
        index = {vertex.id: n for n, vertex in enumerate(vertices)}
        for key, chunks in outputs.items():
            by_task[index[edges[key.edge].target], key.target_subtask].inputs[key] = chunks
        for key, chunks in inputs.items():
            by_task[index[edges[key.edge].source], key.source_subtask].outputs[key] = chunks
        return replace(assigned, snapshots={task: replace(s, channels=by_task[task]) for task, s in snapshots.items()})

    patch.setattr(restore_point, "assign", swapped)


def read_new_input_first(patch: pytest.MonkeyPatch) -> None:
    """Process new input while recovered input is still waiting (RC-1)."""
    start, following = Task.start, InputGate.next_element

    def attached(self: Task, *given: Any, **named: Any) -> None:
        start(self, *given, **named)
        for channel in self.gate.channels:
            channel.attach()

    def new_first(self: InputGate) -> Any:
        if self.is_recovering and any(channel.has_more for channel in self.channels):
            self.is_recovering = False
            found = following(self)
            self.is_recovering = True
            if found is not None:
                return found
        return following(self)

    patch.setattr(Task, "start", attached)
    patch.setattr(InputGate, "next_element", new_first)


def pass_by_the_end_of_recovery(patch: pytest.MonkeyPatch) -> None:
    """Let a sender continue after its recovered output while other channels still have recovered data (RC-2)."""
    poll = Subpartition.poll

    def on(self: Subpartition) -> Any:
        item = poll(self)
        if isinstance(item, RecoveryCompletion):
            self.is_blocked = False
        return item

    patch.setattr(Subpartition, "poll", on)


def commit_on_a_savepoint(patch: pytest.MonkeyPatch) -> None:
    """Notify the tasks of a completed savepoint as if it were a checkpoint (CO-8)."""
    complete = Coordinator._complete

    def and_notify(self: Coordinator, pending: Any) -> None:
        complete(self, pending)
        if pending.record.is_savepoint:
            for task in self._tasks:
                self._env.send("rpc.notify", coordinator._notify, (task, pending.record.id))

    patch.setattr(Coordinator, "_complete", and_notify)


def do_not_commit_at_restore(patch: pytest.MonkeyPatch) -> None:
    """Abort the transactions that the restored checkpoint contains, although they must be committed (SNK-3)."""
    restore = TransactionalSink.restore

    def without(self: TransactionalSink, snapshot: Any, checkpoint_id: int) -> None:
        restore(self, replace(snapshot, states=()), checkpoint_id)

    patch.setattr(TransactionalSink, "restore", without)


def store_the_offset_before_the_last_record(patch: pytest.MonkeyPatch) -> None:
    """Take a source's snapshot without the last record that the source emitted (SRC-3)."""
    snapshot = Source.snapshot

    def behind(self: Source, checkpoint_id: int) -> Any:
        offsets = [split.offset for split in self.splits]
        for split in self.splits:
            split.offset = max(0, split.offset - 1)
        taken = snapshot(self, checkpoint_id)
        for split, offset in zip(self.splits, offsets, strict=True):
            split.offset = offset
        return taken

    patch.setattr(Source, "snapshot", behind)


def announce_a_credit_twice(patch: pytest.MonkeyPatch) -> None:
    """Announce one recycled buffer as two credits (CR-2)."""
    announce = RemoteChannel._announce
    patch.setattr(RemoteChannel, "_announce", lambda self, n: announce(self, n + 1))


def complete_what_is_subsumed(patch: pytest.MonkeyPatch) -> None:
    """Let an older checkpoint complete after a newer one (CO-7)."""
    fail = Coordinator._fail

    def unless_subsumed(self: Coordinator, checkpoint_id: int, reason: FailureReason, **named: Any) -> None:
        if reason is not FailureReason.SUBSUMED:
            fail(self, checkpoint_id, reason, **named)

    patch.setattr(Coordinator, "_fail", unless_subsumed)


def never_expire(patch: pytest.MonkeyPatch) -> None:
    """Leave a checkpoint pending forever if an acknowledgement is lost (CO-9)."""
    patch.setattr(Coordinator, "_expire", lambda *_: None)


def measure_no_alignment(patch: pytest.MonkeyPatch) -> None:
    """Report an alignment duration of zero (ME-2)."""
    advance = Snapshots.advance

    def without(self: Snapshots, run: Any) -> None:
        if run.measured.received is Alignment.ALIGNED:
            run.measured.alignment_us = 0
        advance(self, run)

    patch.setattr(Snapshots, "advance", without)


def write_a_file_too_many(patch: pytest.MonkeyPatch) -> None:
    """Write a file that no handle refers to (CK-2)."""
    handle = metadata._Writer.handle

    def twice(self: Any, name: str, chunks: Any) -> Any:
        self.files[f"{name}-again"] = b"once more"
        return handle(self, name, chunks)

    patch.setattr(metadata._Writer, "handle", twice)


def draw_from_outside(patch: pytest.MonkeyPatch) -> None:
    """Let latencies depend on a counter that the seed does not determine (DET-3)."""
    drawn = count()
    patch.setattr(Scheduler, "jitter", lambda self, delay_us: delay_us + next(drawn) % 7)


VARIANTS: dict[str, Variant] = {
    each.breaks.__name__: each
    for each in (
        Variant(forward_one_record_late, "INV-3", protocol="aligned"),
        Variant(forget_the_partial_record, "INV-2"),
        Variant(persist_the_polled_buffer, "INV-2"),
        Variant(forget_the_queued_input, "INV-2"),
        Variant(persist_behind_the_barrier, "INV-2"),
        Variant(forget_the_overtaken_output, "INV-2"),
        Variant(snapshot_at_the_last_barrier, "INV-3"),
        Variant(forget_the_output_behind_the_timer, "INV-2", protocol="aligned-timeout"),
        Variant(do_not_block, "INV-3", protocol="aligned"),
        Variant(forget_resume_on_an_obsolete_barrier, "INV-9", protocol="aligned", config=_EXPIRING),
        Variant(swap_the_replay_order, "INV-1", plan=_CRASH),
        Variant(read_new_input_first, "INV-1", plan=_CRASH),
        Variant(pass_by_the_end_of_recovery, "INV-1", plan=_CRASH),
        Variant(commit_on_a_savepoint, "INV-14", asks_for_savepoints=True),
        Variant(do_not_commit_at_restore, "INV-5", plan=(FaultSpec("coordinator.after-store", hit=3),)),
        Variant(store_the_offset_before_the_last_record, "INV-4"),
        Variant(announce_a_credit_twice, "INV-8"),
        Variant(complete_what_is_subsumed, "INV-10", protocol="aligned", plan=_LATE_ACKS, config=_CONCURRENT | STAYS),
        Variant(never_expire, "INV-9", plan=(FaultSpec("rpc.ack", hit=9, action=FaultAction.DROP),)),
        Variant(measure_no_alignment, "INV-11", protocol="aligned"),
        Variant(write_a_file_too_many, "INV-7"),
        Variant(draw_from_outside, "INV-13"),
    )
}
