"""What one subtask does for checkpoints: carries out the protocol's commands, takes snapshots, acknowledges (2.3).

Order of one snapshot, atomic towards records (TE-1 to TE-8): forward the barrier, close what needs closing, take the
operators' state last to first, then write it without holding the subtask up. It acknowledges when the state is written,
the input side is complete, and every barrier on the output side is gone or has overtaken (AT-7).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from backend.domain.barriers import BarrierEventKind as Kind
from backend.domain.failure import FailureReason
from backend.runtime.channel import ChannelKey, InputChannel
from backend.runtime.config import UNLIMITED
from backend.runtime.elements import Alignment, Barrier, CancelMarker
from backend.runtime.environment import AckMessage, DeclineMessage
from backend.runtime.measures import ChannelState, SubtaskCheckpoint, SubtaskSnapshot
from backend.runtime.operators import factor_of
from backend.runtime.protocols.aligned import Aligned
from backend.runtime.protocols.aligned_timeout import AlignedTimeout
from backend.runtime.protocols.base import (
    Began,
    Block,
    CheckpointProtocol,
    Close,
    Command,
    Convert,
    Ended,
    Gatekeeper,
    GiveUp,
    Persist,
    Reopen,
    Resume,
    SetStallTimer,
    SetTimer,
    Snapshot,
    Switched,
)
from backend.runtime.protocols.capped import Capped, InFlight
from backend.runtime.protocols.unaligned import Unaligned
from backend.runtime.scheduler import EventClass
from backend.runtime.state import OperatorSnapshot
from backend.runtime.task import Output, Task


@dataclass(slots=True)
class _Run:
    """One checkpoint in work at this subtask."""

    measured: SubtaskCheckpoint
    polled_before_bytes: int
    last_barrier_us: int
    polled_by_last_bytes: int
    channels: ChannelState = field(default_factory=ChannelState)
    arrived: set[int] = field(default_factory=set)
    operators: tuple[OperatorSnapshot, ...] = ()
    watermark_us: int = -1
    is_input_open: bool = True
    waiting_outputs: set[ChannelKey] = field(default_factory=set)
    sync_end_us: int | None = None
    persisted_bytes: int = 0
    unwritten: int = 0
    is_channel_state_written: bool = False
    is_over: bool = False


class TaskCheckpointing:
    """The checkpoints of one attempt of one subtask."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._env = task.env
        self.last_id = 0
        self.start_delay_gauge_us = 0
        self._gauged_id = 0
        self.is_waiting_for_room = False
        self._runs: dict[int, _Run] = {}
        self._arriving = -1
        self._aborted: set[int] = set()
        self._gatekeeper: Gatekeeper | None = None
        task.gate.announced = self._announced

    # --- what comes in --------------------------------------------------------------------------------------------

    def trigger(self, barrier: Barrier) -> None:
        """The coordinator's request to a source (UC-8); a mail of this subtask."""
        if barrier.checkpoint_id <= self.last_id:
            return
        if barrier.checkpoint_id in self._aborted:
            self.last_id = barrier.checkpoint_id
            self._broadcast_cancel(barrier.checkpoint_id)
            return
        run = self._began(barrier)
        run.measured.alignment_us = 0
        run.measured.processed_bytes = 0
        run.is_input_open = False
        if barrier.is_capped and self._in_flight().output_bytes > self._cap_bytes():
            if self._env.config.on_cap == "decline":
                self._give_up(barrier.checkpoint_id, FailureReason.INFLIGHT_LIMIT_EXCEEDED)
                return
            # A source has no front to drain: what does not fit goes on aligned at once (CAP-3).
            barrier = barrier.as_aligned()
        self._snapshot(barrier)

    def on_barrier(self, channel: InputChannel, barrier: Barrier) -> None:
        """A barrier was taken from a channel."""
        task = self._task
        k = barrier.checkpoint_id
        task.lamport = max(task.lamport, barrier.lamport) + 1
        task.cost_us += self._env.config.barrier_cost_us
        run = self._runs.get(k)
        if run is not None:
            self._env.faults.passed("task.between-barriers", task.name)
            run.arrived.add(channel.index)
            run.last_barrier_us = self._env.now
            run.polled_by_last_bytes = task.gate.polled_bytes
        self._log(k, Kind.BARRIER_RECEIVED, channel=channel.key)
        self._arriving = channel.index
        self._execute(self._keeper().barrier(channel.index, barrier, self._env.now), k)
        if run is None and k in self._runs:
            self._env.faults.passed("task.after-first-barrier", task.name)
        elif run is None and k > self._gauged_id:
            # Aborted before its barrier came: the gauge tells all the same when it did (flink-baseline.md, 13).
            self._gauge(barrier)

    def on_priority(self, _: object) -> None:
        """Mail: handle all priority events that are there (Q-6)."""
        while (found := self._task.gate.next_priority()) is not None:
            self.on_barrier(*found)

    def on_cancel(self, checkpoint_id: int) -> None:
        """A cancel marker was taken from a channel."""
        self._execute(self._keeper().cancel(checkpoint_id), checkpoint_id)

    def on_end_of_partition(self, channel: InputChannel) -> None:
        """A channel ended."""
        keeper = self._keeper()
        self._execute(keeper.end_of_partition(channel.index, self._env.now), keeper.current_id)

    def abort(self, checkpoint_id: int) -> None:
        """Mail: the coordinator gave the checkpoint up (CO-11)."""
        self._aborted.add(checkpoint_id)
        if len(self._aborted) > 256:
            self._aborted.discard(min(self._aborted))
        if self._task.gate.channels:
            self._execute(self._keeper().aborted(checkpoint_id), checkpoint_id)
        self._drop(checkpoint_id, "aborted by the coordinator")

    def complete(self, checkpoint_id: int) -> None:
        """Mail: the checkpoint is complete; sinks commit (SNK-2)."""
        faults = self._env.faults
        faults.passed("task.in-notify", self._task.name)
        for operator in self._task.operators:
            if self._task.spec.kind.has_sink:
                faults.passed("sink.before-commit", self._task.name)
            operator.complete(checkpoint_id)
            if self._task.spec.kind.has_sink:
                faults.passed("sink.after-commit", self._task.name)

    def recheck(self, _: object) -> None:
        """Data moved while a capped checkpoint waits for room (CAP-3)."""
        if self.is_waiting_for_room:
            keeper = self._keeper()
            self._execute(keeper.recheck(self._env.now), keeper.current_id)

    @property
    def alignment_gauge_us(self) -> int:
        """How long the pending checkpoint has been aligning here; 0 where none is (ME-2)."""
        pending = self._gatekeeper.pending_id if self._gatekeeper is not None else None
        run = self._runs.get(pending) if pending is not None else None
        if run is None or run.measured.alignment_us is not None:
            return 0
        return self._env.now - run.measured.first_barrier_us

    # --- the protocol's commands ----------------------------------------------------------------------------------

    def _keeper(self) -> Gatekeeper:
        if self._gatekeeper is None:
            self._gatekeeper = Gatekeeper(len(self._task.gate.channels), self._make)
            self._gatekeeper.current_id = self.last_id
        return self._gatekeeper

    def _make(self, barrier: Barrier, open_channels: frozenset[int]) -> CheckpointProtocol:
        if barrier.is_capped:
            return Capped(
                open_channels,
                cap_bytes=self._cap_bytes(),
                in_flight=self._in_flight,
                declines=self._env.config.on_cap == "decline",
            )
        if barrier.alignment is Alignment.UNALIGNED:
            return Unaligned(open_channels)
        if barrier.is_timeoutable:
            return AlignedTimeout(barrier, open_channels)
        return Aligned(open_channels)

    def _announced(self, channel: InputChannel, barrier: Barrier) -> None:
        # The announcement is a priority event: it is handled by a mail, ahead of the data.
        self._task.mail(self._on_announcement, (channel, barrier))

    def _on_announcement(self, announced: tuple[InputChannel, Barrier]) -> None:
        channel, barrier = announced
        k = barrier.checkpoint_id
        self._execute(self._keeper().announcement(channel.index, barrier, self._env.now), k)
        self._env.faults.passed("task.after-announcement", self._task.name)

    def _execute(self, commands: list[Command], checkpoint_id: int) -> None:
        for command in commands:
            self._carry_out(command, checkpoint_id)

    def _carry_out(self, command: Command, k: int) -> None:
        task = self._task
        match command:
            case Began(barrier=barrier):
                self._began(barrier).arrived.add(self._arriving)
            case Block(channel=index):
                self._log(k, Kind.CHANNEL_BLOCKED, channel=task.gate.channels[index].key)
            case Resume(channel=index):
                self._log(k, Kind.CHANNEL_UNBLOCKED, channel=task.gate.channels[index].key)
                task.gate.channels[index].resume()
            case Close(channel=index):
                task.gate.channels[index].is_closed = True
                self._log(k, Kind.CHANNEL_BLOCKED, channel=task.gate.channels[index].key)
            case Reopen(channel=index):
                self._log(k, Kind.CHANNEL_UNBLOCKED, channel=task.gate.channels[index].key)
                task.gate.reopen(task.gate.channels[index])
            case Convert(channel=index):
                task.gate.channels[index].convert_to_priority(k)
            case SetTimer(at_us=at_us):
                self._env.scheduler.at(at_us, EventClass.TIMER, self._mail_timer, k)
            case SetStallTimer():
                self.is_waiting_for_room = True
                task.gate.may_poll = _may_poll
                self._watch_for_stall((k, -1))
            case Persist():
                self._persist(k)
            case Switched():
                self._log(k, Kind.MODE_SWITCHED, reason="the alignment timeout passed")
                self._env.faults.passed("task.input-switch", task.name)
            case Snapshot(barrier=barrier):
                self._snapshot(barrier)
            case Ended():
                self._ended(k)
            case GiveUp(checkpoint_id=given_up, reason=reason):
                self._give_up(given_up, reason)

    def _began(self, barrier: Barrier) -> _Run:
        self._env.faults.passed("task.before-first-barrier", self._task.name)
        now = self._env.now
        measured = SubtaskCheckpoint(barrier.checkpoint_id, barrier.triggered_at_us, first_barrier_us=now)
        polled = self._task.gate.polled_bytes
        run = _Run(measured, polled, last_barrier_us=now, polled_by_last_bytes=polled)
        self._runs[barrier.checkpoint_id] = run
        self._gauge(barrier)
        return run

    def _gauge(self, barrier: Barrier) -> None:
        self._gauged_id = barrier.checkpoint_id
        self.start_delay_gauge_us = max(0, self._env.now - barrier.triggered_at_us)

    def _persist(self, k: int) -> None:
        run = self._runs[k]
        for channel in self._task.gate.channels:
            if not channel.is_ended:
                channel.start_persisting(channel.index in run.arrived, k, partial(self._add_input, run, channel.key))

    def _add_input(self, run: _Run, key: ChannelKey, data: bytes) -> None:
        run.channels.inputs.setdefault(key, []).append(data)
        run.persisted_bytes += len(data)

    def _ended(self, k: int) -> None:
        self.is_waiting_for_room = False
        gate = self._task.gate
        gate.may_poll = None
        for channel in gate.channels:
            channel.stop_persisting()
            channel.is_closed = False
        gate.recheck()
        run = self._runs.get(k)
        if run is None:
            return
        # The alignment ends with the last barrier (ME-2), also where a cap makes the snapshot wait longer.
        run.measured.alignment_us = run.last_barrier_us - run.measured.first_barrier_us
        run.measured.processed_bytes = run.polled_by_last_bytes - run.polled_before_bytes
        run.is_input_open = False
        self._advance(run)

    # --- one snapshot ---------------------------------------------------------------------------------------------

    def _snapshot(self, barrier: Barrier) -> None:
        k = barrier.checkpoint_id
        run = self._runs[k]
        task, faults = self._task, self._env.faults
        self.last_id = k
        self.is_waiting_for_room = False
        for older in [r for r in self._runs.values() if r is not run and r.waiting_outputs]:
            # The news that it is over got lost or is late; its barriers must not overtake any more (AT-7, UC-12).
            self._give_up(older.measured.checkpoint_id, FailureReason.DECLINED_SUBSUMED)
        faults.passed("task.before-forward", task.name)
        self._forward(run, barrier)
        faults.passed("task.before-sync", task.name)
        self._log(k, Kind.SNAPSHOT_SYNC_START)
        if task.spec.kind.has_sink:
            faults.passed("sink.before-pre-commit", task.name)
        run.operators = tuple(reversed([operator.snapshot(k) for operator in reversed(task.operators)]))
        if task.spec.kind.has_sink:
            faults.passed("sink.after-pre-commit", task.name)
        faults.passed("task.in-sync", task.name)
        run.watermark_us = task.watermark_us
        run.measured.state_bytes = sum(operator.state_bytes for operator in task.operators)
        config = self._env.config
        fixed_us = config.sync_fixed_us if task.spec.sync_us is None else task.spec.sync_us
        sync_us = fixed_us + config.sync_ns_per_byte * run.measured.state_bytes // 1000
        run.measured.sync_us = sync_us
        task.cost_us += sync_us
        self._env.scheduler.after(sync_us, EventClass.TIMER, self._after_sync, run)

    def _forward(self, run: _Run, barrier: Barrier) -> None:
        task = self._task
        task.lamport += 1
        stamped = Barrier(
            barrier.checkpoint_id,
            barrier.triggered_at_us,
            barrier.alignment,
            barrier.aligned_timeout_us,
            barrier.restored_alignment,
            barrier.is_capped,
            task.lamport,
            barrier.snapshot_type,
        )
        for output in task.outputs:
            for position in range(len(output.targets)):
                self._forward_on(run, output, position, stamped)
                self._env.faults.passed("task.between-outputs", task.name)
        if barrier.is_timeoutable and run.waiting_outputs:
            assert barrier.aligned_timeout_us is not None
            due_us = barrier.triggered_at_us + barrier.aligned_timeout_us
            self._env.scheduler.at(due_us, EventClass.TIMER, self._mail_output_timer, run)

    def _forward_on(self, run: _Run, output: Output, position: int, barrier: Barrier) -> None:
        k = barrier.checkpoint_id
        subpartition = output.pool.subpartitions[position]
        key = ChannelKey(output.edge, self._task.index, output.targets[position])
        self._log(k, Kind.BARRIER_EMITTED, channel=key)
        if not barrier.needs_channel_state:
            subpartition.add_event(barrier)
        elif not output.can_overtake:
            subpartition.add_event(barrier.as_forced_aligned())
        elif barrier.is_timeoutable:
            run.waiting_outputs.add(key)
            subpartition.add_timeoutable(barrier, partial(self._output_resolved, run, key))
        else:
            self._overtaken(run, key, subpartition.overtake(barrier))

    def _overtaken(self, run: _Run, key: ChannelKey, data: list[bytes]) -> None:
        if data:
            size = sum(map(len, data))
            run.channels.outputs[key] = data
            run.persisted_bytes += size
            self._log(run.measured.checkpoint_id, Kind.OVERTOOK, channel=key, size_bytes=size)

    def _output_resolved(self, run: _Run, key: ChannelKey, data: list[bytes]) -> None:
        if run.is_over:
            return
        self._overtaken(run, key, data)
        run.waiting_outputs.discard(key)
        self._advance(run)

    def _after_sync(self, run: _Run) -> None:
        if run.is_over or self._task.is_dead:
            return
        faults = self._env.faults
        run.sync_end_us = self._env.now
        self._log(run.measured.checkpoint_id, Kind.SNAPSHOT_SYNC_END)
        faults.passed("task.after-sync", self._task.name)
        self._write(run, run.measured.state_bytes)
        faults.passed("task.mid-upload", self._task.name)
        self._advance(run)

    def _write(self, run: _Run, size_bytes: int) -> None:
        run.unwritten += 1
        factor = factor_of(self._task.spec.slow_upload_factors, self._task.index)
        self._env.write(size_bytes, partial(self._written, run), partial(self._not_written, run), factor)

    def _written(self, run: _Run, _: object) -> None:
        run.unwritten -= 1
        if not self._task.is_dead:
            self._advance(run)

    def _not_written(self, run: _Run, _: object) -> None:
        if not run.is_over and not self._task.is_dead:
            self._give_up(run.measured.checkpoint_id, FailureReason.ASYNC_FAILURE)

    def _advance(self, run: _Run) -> None:
        """Go on with a checkpoint whose input, output or state has become complete."""
        if run.is_over or run.sync_end_us is None or run.is_input_open or run.waiting_outputs:
            return
        if not run.is_channel_state_written:
            run.is_channel_state_written = True
            if run.persisted_bytes:
                k = run.measured.checkpoint_id
                self._log(k, Kind.CHANNEL_STATE_PERSISTED, size_bytes=run.persisted_bytes)
                self._write(run, run.persisted_bytes)
                self._env.faults.passed("task.mid-channel-state", self._task.name)
        if run.unwritten == 0:
            self._acknowledge(run)

    def _acknowledge(self, run: _Run) -> None:
        task, faults = self._task, self._env.faults
        measured = run.measured
        assert run.sync_end_us is not None
        run.is_over = True
        del self._runs[measured.checkpoint_id]
        measured.async_us = self._env.now - run.sync_end_us
        measured.persisted_bytes = run.persisted_bytes
        self._log(measured.checkpoint_id, Kind.SNAPSHOT_ASYNC_END)
        faults.passed("task.before-ack", task.name)
        snapshot = SubtaskSnapshot(
            run.operators, run.channels, run.watermark_us, measured.state_bytes, run.persisted_bytes
        )
        message = AckMessage(measured.checkpoint_id, task.key, task.attempt, snapshot, measured)
        self._env.send("rpc.ack", self._env.coordinator.on_ack, message)
        faults.passed("task.after-ack", task.name)

    # --- giving up ------------------------------------------------------------------------------------------------

    def _give_up(self, k: int, reason: FailureReason) -> None:
        self._drop(k, reason.value)
        self._broadcast_cancel(k)
        message = DeclineMessage(k, self._task.key, self._task.attempt, reason)
        self._env.send("rpc.decline", self._env.coordinator.on_decline, message)

    def _drop(self, k: int, reason: str) -> None:
        run = self._runs.pop(k, None)
        if run is not None:
            run.is_over = True
            self._log(k, Kind.ABORTED, reason=reason)
        for output in self._task.outputs:
            for subpartition in output.pool.subpartitions:
                subpartition.forget_timeoutable(k)

    def _broadcast_cancel(self, k: int) -> None:
        self.last_id = max(self.last_id, k)
        for output in self._task.outputs:
            for subpartition in output.pool.subpartitions:
                subpartition.add_event(CancelMarker(k))

    # --- timers ---------------------------------------------------------------------------------------------------

    def _mail_timer(self, k: int) -> None:
        self._task.mail(self._on_timer, k)

    def _on_timer(self, k: int) -> None:
        self._execute(self._keeper().timer(k, self._env.now), k)

    def _mail_output_timer(self, run: _Run) -> None:
        if not run.is_over:
            self._task.mail(self._on_output_timer, run)

    def _on_output_timer(self, run: _Run) -> None:
        if run.is_over or not run.waiting_outputs:
            return
        self._env.faults.passed("task.output-switch", self._task.name)
        k = run.measured.checkpoint_id
        self._log(k, Kind.MODE_SWITCHED, reason="the alignment timeout passed in an output queue")
        for output in self._task.outputs:
            for subpartition in output.pool.subpartitions:
                subpartition.time_out(k)

    def _watch_for_stall(self, watched: tuple[int, int]) -> None:
        k, moved_before = watched
        if self._task.is_dead or k not in self._runs or self._keeper().pending_id != k:
            return
        moved = self._task.gate.polled_bytes + self._task.records_in + self._task.bytes_out
        if moved == moved_before:
            self._task.mail(self._on_timer, k)
            return
        stall_us = self._env.config.cap_stall_us
        self._env.scheduler.after(stall_us, EventClass.TIMER, self._watch_for_stall, (k, moved))

    # --- the cap --------------------------------------------------------------------------------------------------

    def _cap_bytes(self) -> int:
        cap = self._env.coordinator.cap_bytes(self._task.key)
        return (1 << 62) if cap == UNLIMITED else cap

    def _in_flight(self) -> InFlight:
        task = self._task
        pending = self._gatekeeper.current_id if self._gatekeeper is not None else 0
        waiting = sum(channel.front_bytes(pending) for channel in task.gate.channels)
        overtakable = sum(output.queued[1] for output in task.outputs if output.can_overtake)
        return InFlight(waiting, overtakable)

    # --- the log --------------------------------------------------------------------------------------------------

    def _log(
        self,
        k: int,
        kind: Kind,
        *,
        channel: ChannelKey | None = None,
        size_bytes: int | None = None,
        reason: str | None = None,
    ) -> None:
        task = self._task
        self._env.log.add(
            k,
            kind,
            vertex=task.spec.id,
            subtask=task.index,
            now_us=self._env.now,
            lamport=task.lamport,
            channel=None if channel is None else task.channel_id(channel),
            size_bytes=size_bytes,
            reason=reason,
        )


def _may_poll(channel: InputChannel) -> bool:
    """A channel that is closed behind its cut yields what is in front of it (CAP-3)."""
    return not channel.is_closed or channel.has_front
