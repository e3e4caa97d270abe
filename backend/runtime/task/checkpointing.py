"""One subtask's part in checkpoints: receives barriers, carries out the protocol's commands (runtime.md 2.3, TE-1).

The protocol decides. This module applies its commands to the gate's channels, and ``snapshots`` takes the snapshot. The
subtask goes on processing elements meanwhile (UC-6). This module also sets the subtask's checkpoint gauges (ME-16).

Invariant: the state contains the effect of exactly the data in front of the cut of each channel. In-flight data is the
data between the cut at the sender and the cut at the receiver of a channel (INV-2, INV-3). In at-least-once mode, the
state may contain the effect of more records, and their number is measured (INV-6).
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from backend.domain.barriers import BarrierEventKind as Kind
from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Barrier, CancelMarker, Element, Event, Record
from backend.runtime.core.scheduler import EventClass
from backend.runtime.job.config import LogUntil
from backend.runtime.measure.measures import PhaseOrder, SubtaskCheckpoint
from backend.runtime.network.buffers import Data
from backend.runtime.network.channel import ChannelKey, InputChannel
from backend.runtime.protocols.base import (
    COORDINATOR,
    Began,
    Block,
    Close,
    Command,
    Convert,
    Ended,
    Forget,
    GiveUp,
    Keeper,
    LogClosed,
    Persist,
    Reopen,
    Resume,
    SetStallTimer,
    SetTimer,
    Snapshot,
    Switched,
)
from backend.runtime.protocols.mode import TaskView
from backend.runtime.protocols.registry import commands_at_source, keeper_of
from backend.runtime.task.capping import Capping, may_poll
from backend.runtime.task.messages import DeclineMessage, Trigger
from backend.runtime.task.ports import FinishPort
from backend.runtime.task.snapshots import Run, Snapshots, SnapshottingTask
from backend.runtime.task.spilling import writer_of


class CheckpointedTask(SnapshottingTask, Protocol):
    """The part of a task's interface that ``TaskCheckpointing`` uses."""

    finishing: FinishPort

    @property
    def records_in(self) -> int:
        """The number of records that this attempt has taken from its input."""
        ...

    @property
    def bytes_out(self) -> int:
        """The bytes that this attempt wrote. A record that goes to several channels counts once for each."""
        ...


class TaskCheckpointing:
    """Handles the checkpoints of one attempt of one subtask."""

    def __init__(self, task: CheckpointedTask) -> None:
        self._task = task
        self._env = task.env
        self.last_id = 0
        self.start_delay_gauge_us = 0
        self._gauged_id = 0
        self.is_waiting_for_room = False
        self._input_bytes_max: int | None = None
        self.channel_state = writer_of(task)
        self._snapshots = Snapshots(task, self._give_up, self.channel_state)
        self._arriving = -1
        self._aborted: set[int] = set()
        self._first_sign = (-1, 0)
        self._known_keeper: Keeper | None = None
        self._capping = Capping(task, lambda: 0 if self._known_keeper is None else self._known_keeper.current_id)
        self._view = TaskView(
            self._first_sign_us,
            self._capping.cap,
            closes_logs_on_arrival=lambda: self._env.config.log_until is LogUntil.ARRIVAL,
            front_input=lambda: self._env.config.front_input,
            has_front=lambda: any(channel.has_front or channel.elements for channel in task.gate.channels),
        )
        self.is_watching = False
        task.gate.announced = self._announced

    # --- events ---------------------------------------------------------------------------------------------------

    def had_finished(self, checkpoint_id: int) -> None:
        """Log that this subtask had finished before the checkpoint was triggered, and where its channels ended."""
        self._snapshots.log_end(checkpoint_id)

    def trigger(self, triggered: Trigger) -> None:
        """Start a checkpoint at this task, because the coordinator triggered it (UC-8, CL-7, FN-4). Runs as a mail."""
        barrier = triggered.barrier
        if barrier.checkpoint_id <= self.last_id:
            return
        opened = [channel for channel in self._task.gate.channels if not channel.is_ended]
        if self._task.gate.channels and not triggered.is_for_all:
            self._snapshots.log(barrier.checkpoint_id, Kind.BARRIER_RECEIVED)
            for channel in opened:
                self._arrive(channel.index, barrier)
            if opened:
                return
        elif self._task.gate.channels:
            self._snapshots.log(barrier.checkpoint_id, Kind.BARRIER_RECEIVED)
            self._arriving = COORDINATOR
            self._execute(self._keeper().barrier(COORDINATOR, barrier, self._env.now), barrier.checkpoint_id)
            return
        if barrier.checkpoint_id in self._aborted:
            self.last_id = barrier.checkpoint_id
            self._broadcast_cancel(barrier.checkpoint_id)
            return
        run = self._began(barrier)
        run.measured.alignment_us = 0
        run.measured.processed_bytes = 0
        run.measured.order = PhaseOrder.FORWARD_SNAPSHOT
        run.is_input_open = False
        self._task.finishing.triggered(barrier)
        self._execute(commands_at_source(barrier, self._view), barrier.checkpoint_id)

    def _arrive(self, index: int, barrier: Barrier) -> None:
        """Count the barrier as arrived on a channel whose sender has finished and therefore sends no barrier (FN-4)."""
        run = self._snapshots.runs.get(barrier.checkpoint_id)
        if run is not None:
            self._note_arrival(run, index)
        self._arriving = index
        self._execute(self._keeper().barrier(index, barrier, self._env.now), barrier.checkpoint_id)
        self._watch()

    def on_barrier(self, channel: InputChannel, barrier: Barrier) -> None:
        """Handle a barrier that was read from a channel."""
        task = self._task
        k = barrier.checkpoint_id
        task.lamport = max(task.lamport, barrier.lamport) + 1
        task.cost_us += self._env.config.barrier_cost_us
        run = self._snapshots.runs.get(k)
        if run is not None:
            self._env.faults.passed("task.between-barriers", task.name)
            self._note_arrival(run, channel.index)
        self._snapshots.log(k, Kind.BARRIER_RECEIVED, channel=channel.key)
        self._arriving = channel.index
        self._execute(self._keeper().barrier(channel.index, barrier, self._env.now), k)
        self._watch()
        if run is None and k in self._snapshots.runs:
            self._env.faults.passed("task.after-first-barrier", task.name)
        elif run is None and k > self._gauged_id:
            # The checkpoint was aborted before its barrier arrived. As in Flink, the gauge is set nevertheless
            # (flink-baseline.md, 13).
            self._gauge(barrier)

    def _note_arrival(self, run: Run, index: int) -> None:
        if run.is_input_open:
            run.arrived.add(index)
            run.last_barrier_us = self._env.now
            run.polled_by_last_bytes = self._task.gate.polled_bytes

    def on_priority(self, _: object) -> None:
        """Handle all priority events that have arrived (Q-6). Runs as a mail."""
        while (found := self._task.gate.next_priority()) is not None:
            self.on_barrier(*found)

    def on_cancel(self, channel: InputChannel, checkpoint_id: int) -> None:
        """Handle a cancel marker that was read from a channel."""
        keeper = self._keeper()
        pending = keeper.pending_id
        self._execute(keeper.cancel(checkpoint_id, channel.index), checkpoint_id)
        if pending is not None and pending < checkpoint_id and keeper.pending_id != pending:
            # As in Flink, the superseded checkpoint is not declined, but its data is dropped (CC-5).
            self._drop(pending, "superseded by a cancelled checkpoint")

    def on_end_of_partition(self, channel: InputChannel) -> None:
        """Handle the end of a channel."""
        for k, run in self._snapshots.runs.items() if self._env.config.tasks_finish else ():
            # The end counts as a barrier, so the alignment may end with it (FN-7, FN-8).
            if run.is_input_open and channel.index not in run.arrived:
                self._snapshots.log(k, Kind.BARRIER_RECEIVED, channel=channel.key)
                self._note_arrival(run, channel.index)
        keeper = self._keeper()
        self._execute(keeper.end_of_partition(channel.index, self._env.now), keeper.current_id)
        self._watch()

    def abort(self, checkpoint_id: int) -> None:
        """Give up the checkpoint, because the coordinator aborted it (CO-11). Runs as a mail."""
        self._aborted.add(checkpoint_id)
        if len(self._aborted) > 256:
            self._aborted.discard(min(self._aborted))
        commands = self._keeper().aborted(checkpoint_id) if self._task.gate.channels else []
        self._execute(commands, checkpoint_id)
        if commands:
            # Downstream subtasks may miss the coordinator's abort message and wait for the barrier, so send them a
            # cancel marker (Appendix A, abort).
            self._broadcast_cancel(checkpoint_id)
        self._drop(checkpoint_id, "aborted by the coordinator")
        self._env.local.drop(self._task.key, checkpoint_id)

    def complete(self, checkpoint_id: int) -> None:
        """Let sinks commit, because the checkpoint is complete (SNK-2). Runs as a mail."""
        faults = self._env.faults
        faults.passed("task.in-notify", self._task.name)
        for operator in self._task.operators:
            if self._task.spec.kind.has_sink:
                faults.passed("sink.before-commit", self._task.name)
            operator.complete(checkpoint_id)
            if self._task.spec.kind.has_sink:
                faults.passed("sink.after-commit", self._task.name)
        self._task.cost_us += self._task.spec.commit_us
        self._env.local.confirm(self._task.key, checkpoint_id)
        self._task.increments.confirm(checkpoint_id)
        self.channel_state.confirm(checkpoint_id)
        self._task.finishing.completed(checkpoint_id)

    def recheck(self, _: object) -> None:
        """If a checkpoint waits until its data fits a cap or is processed, check again (CAP-3, UL-3).

        Called after an element was processed, when there is none to process, and when output has left.
        """
        if self.is_waiting_for_room:
            keeper = self._keeper()
            self._execute(keeper.recheck(self._env.now), keeper.current_id)

    def processed(self, channel: InputChannel, element: Element | Event) -> None:
        """Do what the checkpoints need after an element was processed.

        A checkpoint that waits may start now (CAP-3, UL-3). In at-least-once mode, count the records that follow a
        barrier (ALO-5).
        """
        self.recheck(None)
        if isinstance(element, Record):
            for run in self._snapshots.runs.values():
                if run.is_counting and channel.index in run.arrived:
                    run.measured.repeatable_records += 1

    def unwatched_bytes(self) -> int:
        """How many bytes of input can be processed before ``processed`` has something to do, if it is watching.

        As long as the input in front of the cuts alone exceeds the cap, the waiting checkpoint cannot start (CAP-3).
        """
        if self._input_bytes_max is None or not self.is_waiting_for_room or self._is_counting():
            return 0
        unwatched = self._capping.input_bytes() - self._input_bytes_max - 1
        if unwatched <= 0:
            # No more input is added in front of the cuts, so this need not be computed again for this checkpoint.
            self._input_bytes_max = None
            return 0
        return unwatched

    @property
    def is_pending(self) -> bool:
        """Whether a checkpoint is in progress at this subtask."""
        return bool(self._snapshots.runs)

    @property
    def alignment_gauge_us(self) -> int:
        """How long the pending checkpoint has been aligning here, in microseconds; 0 without an alignment (ME-2)."""
        pending = self._known_keeper.pending_id if self._known_keeper is not None else None
        run = self._snapshots.runs.get(pending) if pending is not None else None
        if run is None or run.measured.alignment_us is not None:
            return 0
        return self._env.now - run.measured.first_barrier_us

    # --- the protocol's commands ----------------------------------------------------------------------------------

    def _keeper(self) -> Keeper:
        if self._known_keeper is None:
            self._known_keeper = keeper_of(len(self._task.gate.channels), self._env.config, self._view)
            self._known_keeper.current_id = self.last_id
        return self._known_keeper

    def _first_sign_us(self, barrier: Barrier) -> int:
        self._first_sign = (barrier.checkpoint_id, self._env.now)
        return self._clock_us(barrier)

    def _announced(self, channel: InputChannel, barrier: Barrier) -> None:
        # An announcement is a priority event, so a mail handles it before any further data.
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
                self._snapshots.log(k, Kind.CHANNEL_BLOCKED, channel=task.gate.channels[index].key)
            case Resume(channel=index):
                self._snapshots.log(k, Kind.CHANNEL_UNBLOCKED, channel=task.gate.channels[index].key)
                task.gate.channels[index].resume()
            case Close(channel=index):
                task.gate.channels[index].is_closed = True
                self._snapshots.log(k, Kind.CHANNEL_BLOCKED, channel=task.gate.channels[index].key)
            case Reopen(channel=index):
                self._snapshots.log(k, Kind.CHANNEL_UNBLOCKED, channel=task.gate.channels[index].key)
                task.gate.reopen(task.gate.channels[index])
            case Convert(channel=index):
                task.gate.channels[index].convert_to_priority(k)
            case SetTimer(at_us=at_us):
                self._env.scheduler.at(at_us, EventClass.TIMER, self._mail_timer, k)
            case SetStallTimer(input_bytes_max=input_bytes_max):
                self.is_waiting_for_room = True
                self._input_bytes_max = input_bytes_max
                task.gate.may_poll = may_poll
                self._watch()
                self._watch_for_stall((k, -1))
            case Persist():
                self._persist(k)
            case LogClosed(channel=index):
                # The checkpoint may have been given up meanwhile, because a write of its state failed.
                if k in self._snapshots.runs:
                    self._note_arrival(self._snapshots.runs[k], index)
                    self._snapshots.log(k, Kind.LOG_CLOSED, channel=task.gate.channels[index].key)
            case Switched():
                self._snapshots.log(k, Kind.MODE_SWITCHED, reason="the alignment timeout passed")
                self._env.faults.passed("task.input-switch", task.name)
            case Snapshot():
                self._take(command)
            case Ended(checkpoint_id=ended):
                self._ended(k if ended is None else ended, is_alone=ended is None)
            case Forget(checkpoint_id=forgotten):
                self._drop(forgotten, "a newer checkpoint completed first at this subtask")
            case GiveUp(checkpoint_id=given_up, reason=reason):
                self._give_up(given_up, reason)

    def _began(self, barrier: Barrier) -> Run:
        """Start the measurements of a checkpoint whose first barrier arrived (AL-3, UC-1)."""
        self._env.faults.passed("task.before-first-barrier", self._task.name)
        now = self._env.now
        measured = SubtaskCheckpoint(barrier.checkpoint_id, barrier.triggered_at_us, first_barrier_us=now)
        polled = self._task.gate.polled_bytes
        measured.received = barrier.alignment
        run = Run(measured, polled, last_barrier_us=now, polled_by_last_bytes=polled)
        run.clock_us = self._clock_us(barrier)
        self._snapshots.runs[barrier.checkpoint_id] = run
        run.is_counting = not barrier.alignment.is_exactly_once
        self._watch()
        self._gauge(barrier)
        return run

    def _watch(self) -> None:
        is_due = self.is_waiting_for_room and self._has_every_barrier()
        self.is_watching = is_due or self._is_counting()

    def _is_counting(self) -> bool:
        return any(run.is_counting for run in self._snapshots.runs.values())

    def _has_every_barrier(self) -> bool:
        """Return whether data that moves may start the pending checkpoint, because no barrier is missing (CAP-3, UL-3).

        If it is unknown, return True.
        """
        pending = self._keeper().pending_id
        run = None if pending is None else self._snapshots.runs.get(pending)
        return run is None or all(c.is_ended or c.index in run.arrived for c in self._task.gate.channels)

    def _clock_us(self, barrier: Barrier) -> int:
        """Return the time from which the alignment timeout counts (AT-1, AT-14), in virtual microseconds."""
        if not self._env.config.aligns_after_first:
            return barrier.triggered_at_us
        k, at_us = self._first_sign
        return at_us if k == barrier.checkpoint_id else self._env.now

    def _gauge(self, barrier: Barrier) -> None:
        self._gauged_id = barrier.checkpoint_id
        self.start_delay_gauge_us = max(0, self._env.now - barrier.triggered_at_us)

    def _persist(self, k: int) -> None:
        """Start to copy the input (UC-2).

        Not called if the input was aligned, because it has no in-flight data then (AT-8).
        """
        run = self._snapshots.runs[k]
        run.measured.order = PhaseOrder.FORWARD_SNAPSHOT_LOG
        self._snapshots.log(k, Kind.LOG_OPENED)
        if self._env.config.prioritizes_missing:
            self._task.gate.prefers = lambda channel: channel.index not in run.arrived
        for channel in self._task.gate.channels:
            if not channel.is_ended:
                channel.start_persisting(channel.index in run.arrived, k, partial(self._add_input, run, channel.key))

    def _add_input(self, run: Run, key: ChannelKey, data: Data) -> None:
        run.channels.inputs.setdefault(key, []).append(data)
        run.persisted_bytes += len(data)

    def _ended(self, k: int, *, is_alone: bool) -> None:
        """End the alignment, and measure it (ME-2, ME-3).

        ``is_alone``: whether no other checkpoint can be copying input at this task (CC-4).
        """
        self.is_waiting_for_room = False
        gate = self._task.gate
        gate.may_poll = None
        gate.prefers = None
        for channel in gate.channels:
            channel.stop_persisting(None if is_alone else k)
            channel.is_closed = False
        gate.recheck()
        run = self._snapshots.runs.get(k)
        if run is not None:
            run.is_counting = False
        self._watch()
        if run is None or not run.is_input_open:
            return
        # The measured alignment ends with the last barrier (ME-2), even if a cap delays the snapshot further.
        run.measured.alignment_us = run.last_barrier_us - run.measured.first_barrier_us
        run.measured.processed_bytes = run.polled_by_last_bytes - run.polled_before_bytes
        run.is_input_open = False
        self._snapshots.advance(run)

    def _take(self, command: Snapshot) -> None:
        barrier = command.barrier
        run = self._snapshots.runs[barrier.checkpoint_id]
        run.output_bytes_left, run.overtakes_later = command.output_bytes_max, command.overtakes_later
        self.last_id = barrier.checkpoint_id
        self.is_waiting_for_room = False
        self._watch()
        run.measured.cap = self._capping.take_decision()
        self._task.finishing.snapshotting(barrier)
        self._snapshots.take(barrier)

    # --- giving up ------------------------------------------------------------------------------------------------

    def _give_up(self, k: int, reason: FailureReason) -> None:
        self._drop(k, reason.value)
        self._broadcast_cancel(k)
        message = DeclineMessage(k, self._task.key, self._task.attempt, reason)
        self._env.send("rpc.decline", self._env.coordinator.on_decline, message)

    def decline_at_end(self, k: int) -> None:
        """Decline a checkpoint that was triggered here, because the subtask ends before it could begin (FN-5)."""
        message = DeclineMessage(k, self._task.key, self._task.attempt, FailureReason.DECLINED_TASK_CLOSING)
        self._env.send("rpc.decline", self._env.coordinator.on_decline, message)

    def _drop(self, k: int, reason: str) -> None:
        run = self._snapshots.runs.pop(k, None)
        self._watch()
        self._task.finishing.on_checkpoint_over()
        decision = self._capping.take_decision()
        if run is not None:
            self._snapshots.cancel(run)
            declined_bytes = None if decision is None else decision.in_flight_bytes
            self._snapshots.log(k, Kind.ABORTED, size_bytes=declined_bytes, reason=reason)
        self._task.increments.abort(k)
        self.channel_state.cancel(k)
        for output in self._task.outputs:
            for subpartition in output.pool.subpartitions:
                subpartition.forget_waiting(k)

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

    def _watch_for_stall(self, watched: tuple[int, int]) -> None:
        k, moved_before = watched
        if self._task.is_dead or k not in self._snapshots.runs or self._keeper().pending_id != k:
            return
        moved = self._task.gate.polled_bytes + self._task.records_in + self._task.bytes_out
        if moved == moved_before:
            self._task.mail(self._on_timer, k)
            return
        stall_us = self._env.config.cap_stall_us
        self._env.scheduler.after(stall_us, EventClass.TIMER, self._watch_for_stall, (k, moved))
