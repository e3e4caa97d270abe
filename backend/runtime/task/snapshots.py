"""One subtask's snapshots: forward the barrier, take the state, write it, acknowledge (runtime.md 2.3, TE-3 to TE-8).

The subtask forwards the barrier, and then takes the operators' state from the last operator to the first, without
processing a record in between. The state is then written while the subtask goes on (ST-4). The subtask acknowledges
once the state is written, the input side is complete, and every barrier on the output side has left or has overtaken
(AT-7). The input side and the output side are independent (AT-9). In-flight data is written only if a barrier has
overtaken data (SP-1).

A setting reverses the order: the state is taken first, and the barrier is forwarded after the sync phase and before
anything else (PH-1). Downstream subtasks then wait for the sync phase too (PH-2).

Invariant (INV-4): the state contains the effect of the records in front of the cut, and no effect of the records that
are persisted as channel state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from backend.domain.barriers import BarrierEventKind as Kind
from backend.domain.barriers import ChannelId
from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Barrier
from backend.runtime.core.scheduler import EventClass
from backend.runtime.measure.measures import (
    ChannelState,
    Finished,
    IncrementFigures,
    Persisted,
    SubtaskCheckpoint,
    SubtaskSnapshot,
)
from backend.runtime.network.buffers import Data
from backend.runtime.network.channel import ChannelKey
from backend.runtime.network.emission import Output
from backend.runtime.operators.backends.base import Piece
from backend.runtime.operators.operators import factor_of
from backend.runtime.operators.state import NO_STATE, OperatorSnapshot
from backend.runtime.operators.storage import Upload
from backend.runtime.snapshot.metadata import files_of
from backend.runtime.task.channel_writing import ChannelStateWriter, Written
from backend.runtime.task.increments import Increments
from backend.runtime.task.messages import AckMessage
from backend.runtime.task.ports import FinishPort, TaskPort

_NOTICED_US = 1
"""How long after a buffer has left a subtask notices that the rest of its output fits the cap."""


@dataclass(slots=True)
class Run:
    """The progress of one pending checkpoint at this subtask."""

    measured: SubtaskCheckpoint
    polled_before_bytes: int
    last_barrier_us: int
    polled_by_last_bytes: int
    channels: ChannelState = field(default_factory=ChannelState)
    arrived: set[int] = field(default_factory=set)
    operators: tuple[OperatorSnapshot, ...] = ()
    watermark_us: int = -1
    finished: Finished = Finished.NO
    is_input_open: bool = True
    is_forwarded: bool = False
    waiting_outputs: set[ChannelKey] = field(default_factory=set)
    sync_end_us: int | None = None
    pieces: tuple[Piece, ...] | None = None
    """The shared files that the keyed state consists of. None if the snapshot itself contains the keyed state."""
    begun: list[Piece] = field(default_factory=list)
    """The shared files that are written for this checkpoint."""
    alone_bytes: int = 0
    """The size of the state that is not in shared files."""
    compared_us: int = 0
    extra_bytes: int = 0
    """The time and the memory to compare the state with that of the base (IN-12)."""
    persisted_bytes: int = 0
    output_bytes_left: int | None = None
    """How many bytes the checkpoint's barrier may still overtake (CAP-5), or None if there is no limit."""
    overtakes_later: bool = False
    """Whether the barrier waits in the output until at most ``output_bytes_left`` are in front of it (CAP-3)."""
    front_bytes: int = 0
    """How many bytes of output are in front of the barriers that wait there for room."""
    forwarded_us: int = 0
    unwritten: int = 0
    uploads: list[Upload] = field(default_factory=list)
    is_channel_state_begun: bool = False
    written: Written | None = None
    """The channel state, once it is durable."""
    is_over: bool = False
    is_counting: bool = False
    """At-least-once mode: whether records that follow a barrier of this checkpoint are being counted (ALO-5).

    Counting ends with the snapshot.
    """
    clock_us: int = 0
    """The time from which the checkpoint's alignment timeout counts, in virtual microseconds.

    This is the time of the trigger, or that of the first announcement or barrier at this subtask (AT-14).
    """


class SnapshottingTask(TaskPort, Protocol):
    """The part of a task's interface that ``Snapshots`` uses."""

    finishing: FinishPort
    is_finished_on_restore: bool
    increments: Increments

    @property
    def watermark_us(self) -> int:
        """The watermark of the subtask, or -1 if it is unknown."""
        ...

    def go_on_with(self, action: Callable[[Any], None], argument: Any) -> None:
        """Run ``action(argument)`` as the next step, after the cost of the current step has passed (PH-1)."""
        ...

    def channel_id(self, key: ChannelKey) -> ChannelId:
        """Return the id that the channel has in barrier events."""
        ...


class Snapshots:
    """Takes the snapshots of one attempt of one subtask.

    ``give_up`` declines a checkpoint and sends cancel markers downstream.
    """

    def __init__(
        self,
        task: SnapshottingTask,
        give_up: Callable[[int, FailureReason], None],
        channel_state: ChannelStateWriter,
    ) -> None:
        self._task = task
        self._channel_state = channel_state
        self._env = task.env
        self._give_up = give_up
        self.runs: dict[int, Run] = {}

    def take(self, barrier: Barrier) -> None:
        """Take the snapshot of a checkpoint that has begun at this subtask."""
        run = self.runs[barrier.checkpoint_id]
        for older in [r for r in self.runs.values() if r is not run and r.waiting_outputs]:
            # The coordinator's abort message for the older checkpoint is lost or late. The barriers of that
            # checkpoint must not overtake now (AT-7, UC-12).
            self._give_up(older.measured.checkpoint_id, FailureReason.DECLINED_SUBSUMED)
        # TE-2: emit the records that operators hold back. If they find no free buffer, the barrier waits behind them
        # (BP-4).
        self._task.flush()
        self._task.emission.then(partial(self._forward_and_sync, run, barrier))

    def _forward_and_sync(self, run: Run, barrier: Barrier) -> None:
        if run.is_over:
            return
        run.measured.before_snapshot_us = self._env.now - run.measured.first_barrier_us
        if self._env.config.snapshots_first:
            run.measured.order = run.measured.order.with_snapshot_first
            self._sync(run, barrier)
            self._task.go_on_with(partial(self._forward_late, run), barrier)
            return
        self._forward(run, barrier)
        run.is_forwarded = True
        self._sync(run, barrier)

    def _forward_late(self, run: Run, barrier: Barrier) -> None:
        if run.is_over:
            # The checkpoint was given up meanwhile, and a cancel marker was sent instead of the barrier.
            return
        self._forward(run, barrier)
        run.is_forwarded = True
        self.advance(run)

    def _sync(self, run: Run, barrier: Barrier) -> None:
        """Run the sync phase, which takes the state of all operators (TE-6, ME-5).

        An error here fails the job (FP-5).
        """
        task, faults, k = self._task, self._env.faults, barrier.checkpoint_id
        faults.passed("task.before-sync", task.name)
        self.log(k, Kind.SNAPSHOT_SYNC_START)
        self._log_positions(k)
        self._channel_state.snapshot(barrier)
        if task.spec.kind.has_sink:
            faults.passed("sink.before-pre-commit", task.name)
        if task.is_finished_on_restore:
            run.operators = (NO_STATE,) * len(task.operators)
            run.finished = Finished.RESTORED
        else:
            task.increments.prepare(barrier)
            run.operators = tuple(reversed([operator.snapshot(k) for operator in reversed(task.operators)]))
            run.finished = Finished.OPERATORS if task.finishing.is_at_end else Finished.NO
        if task.spec.kind.has_sink:
            faults.passed("sink.after-pre-commit", task.name)
        faults.passed("task.in-sync", task.name)
        run.watermark_us = task.watermark_us
        copied_bytes = 0 if task.is_finished_on_restore else self._measure_state(run, k)
        config = self._env.config
        own_us = task.spec.sync_us if k % task.spec.sync_every == 0 else None
        fixed_us = config.sync_fixed_us if own_us is None else own_us
        factor = factor_of(task.spec.slow_sync_factors, task.index)
        sync_us = round(factor * (fixed_us + config.sync_ns_per_byte * copied_bytes // 1000))
        run.measured.sync_us = sync_us
        task.cost_us += sync_us
        self._env.scheduler.after(sync_us, EventClass.TIMER, self._after_sync, run)

    def log_end(self, k: int) -> None:
        """Log that the subtask had finished before the checkpoint, and the end of each channel that it had sent to."""
        self.log(k, Kind.FINISHED)
        self._log_sent(k)

    def _log_sent(self, k: int) -> None:
        for output in self._task.outputs:
            for subpartition, target in zip(output.pool.subpartitions, output.targets, strict=True):
                key = ChannelKey(output.edge, self._task.index, target)
                self.log(k, Kind.SENT_BEFORE_SNAPSHOT, channel=key, size_bytes=subpartition.written_bytes)

    def _log_positions(self, k: int) -> None:
        """Log the position of the snapshot in each channel, from which a reader can check the cut (INV-3)."""
        self._log_sent(k)
        for channel in self._task.gate.channels:
            key = channel.key
            self.log(k, Kind.PROCESSED_BEFORE_SNAPSHOT, channel=key, size_bytes=channel.processed_bytes)
            if channel.restored_bytes:
                self.log(k, Kind.RESTORED_BEFORE_SNAPSHOT, channel=key, size_bytes=channel.restored_bytes)

    def _measure_state(self, run: Run, k: int) -> int:
        """Set the sizes of the state (ME-8), and return the number of bytes that the sync phase copies.

        Only the first operator of a chain can have keyed state.
        """
        task, measured = self._task, run.measured
        sizes = [operator.state_bytes for operator in task.operators]
        run.pieces = task.increments.taken(k, run.operators)
        if run.pieces is None:
            measured.state_bytes = measured.written_bytes = run.alone_bytes = sum(sizes)
            return run.alone_bytes
        backend = task.increments.backend
        assert backend is not None
        run.compared_us, run.extra_bytes = backend.async_us, backend.extra_bytes
        run.alone_bytes = sum(sizes[1:])
        measured.state_bytes = run.alone_bytes + sum(piece.size_bytes for piece in run.pieces)
        return run.alone_bytes + backend.sync_bytes

    def _forward(self, run: Run, barrier: Barrier) -> None:
        task = self._task
        self._env.faults.passed("task.before-forward", task.name)
        task.lamport += 1
        stamped = replace(barrier, lamport=task.lamport)
        run.measured.forwarded = barrier.alignment
        for output in task.outputs:
            for position in range(len(output.targets)):
                self._forward_on(run, output, position, stamped)
                self._env.faults.passed("task.between-outputs", task.name)
        run.forwarded_us = self._env.now
        if run.overtakes_later:
            self._overtake_if_fits(run)
        elif barrier.is_timeoutable and run.waiting_outputs:
            assert barrier.aligned_timeout_us is not None
            due_us = run.clock_us + barrier.aligned_timeout_us
            hop_us = self._env.config.overtake_unflushed_us
            if hop_us:
                # AT-13: a second limit applies to the time that the barrier waits in this output. The timeout still
                # limits the checkpoint's age.
                due_us = min(due_us, self._env.now + hop_us)
            self._env.scheduler.at(due_us, EventClass.TIMER, self._mail_output_timer, run)

    def _forward_on(self, run: Run, output: Output, position: int, barrier: Barrier) -> None:
        k = barrier.checkpoint_id
        subpartition = output.pool.subpartitions[position]
        key = ChannelKey(output.edge, self._task.index, output.targets[position])
        self.log(k, Kind.BARRIER_EMITTED, channel=key)
        if not (barrier.is_priority or barrier.is_timeoutable):
            subpartition.add_event(barrier)
        elif not output.can_overtake:
            run.measured.forced_hops += 1
            subpartition.add_event(barrier.as_forced_aligned())
        elif barrier.is_timeoutable:
            run.waiting_outputs.add(key)
            subpartition.add_waiting(barrier, partial(self._output_resolved, run, key))
        elif run.overtakes_later:
            run.waiting_outputs.add(key)
            run.front_bytes += subpartition.queued_bytes
            resolve = partial(self._output_resolved, run, key)
            subpartition.add_waiting(barrier, resolve, when_sent=partial(self._on_output_sent, run))
        else:
            data = subpartition.overtake(barrier, run.output_bytes_left)
            if run.output_bytes_left is not None:
                run.output_bytes_left -= sum(map(len, data))
            self._overtaken(run, key, data)

    def _overtaken(self, run: Run, key: ChannelKey, data: list[Data]) -> None:
        if data:
            size = sum(map(len, data))
            run.channels.outputs[key] = data
            run.persisted_bytes += size
            self.log(run.measured.checkpoint_id, Kind.OVERTOOK, channel=key, size_bytes=size)

    def _output_resolved(self, run: Run, key: ChannelKey, data: list[Data]) -> None:
        if run.is_over:
            return
        self._overtaken(run, key, data)
        run.waiting_outputs.discard(key)
        cap = run.measured.cap
        if run.overtakes_later and cap is not None and not run.waiting_outputs:
            run.measured.cap = cap.after_output(run.persisted_bytes, self._env.now - run.forwarded_us)
        self.advance(run)

    def _on_output_sent(self, run: Run, size_bytes: int) -> None:
        """Check again whether the output in front of the barriers fits the cap, because a buffer has left (CAP-3)."""
        before, run.front_bytes = run.front_bytes, run.front_bytes - size_bytes
        assert run.output_bytes_left is not None
        if run.front_bytes <= run.output_bytes_left < before:
            # A step of the receiver took the buffer. Whether that step was planned ahead or not, the barrier must
            # arrive after it has begun (DET-4).
            self._env.scheduler.after(_NOTICED_US, EventClass.TIMER, self._mail_overtaking, run)

    def _mail_overtaking(self, run: Run) -> None:
        self._task.mail(self._overtake_if_fits, run)

    def _overtake_if_fits(self, run: Run) -> None:
        assert run.output_bytes_left is not None
        if not run.is_over and run.waiting_outputs and run.front_bytes <= run.output_bytes_left:
            self._let_overtake(run, "the data in front of the barrier fits the cap")

    def _after_sync(self, run: Run) -> None:
        if run.is_over or self._task.is_dead:
            return
        faults = self._env.faults
        run.sync_end_us = self._env.now
        self.log(run.measured.checkpoint_id, Kind.SNAPSHOT_SYNC_END)
        faults.passed("task.after-sync", self._task.name)
        if run.compared_us:
            # Write the state after the comparison with the base, which another thread of the subtask carries out
            # (IN-12).
            run.unwritten += 1
            self._env.scheduler.after(run.compared_us, EventClass.STORAGE, self._write_late, run)
        else:
            self._write_state(run)
        faults.passed("task.mid-upload", self._task.name)
        self.advance(run)

    def _write_late(self, run: Run) -> None:
        if run.is_over or self._task.is_dead:
            return
        run.unwritten -= 1
        self._write_state(run)

    def _write_state(self, run: Run) -> None:
        """Write the state that is not in the store yet. Wait for the files that are being written already."""
        begun = self._begin(run, run.pieces or ())
        self._write(run, run.alone_bytes + sum(piece.size_bytes for piece in begun), begun)

    def _begin(self, run: Run, pieces: Sequence[Piece]) -> list[Piece]:
        """Return the files that the checkpoint must write. Wait for those that another write will complete."""
        begun = self._task.increments.begin(pieces, run.measured.checkpoint_id)
        run.begun += begun
        for piece in pieces:
            if not piece.is_durable and piece not in begun:
                run.unwritten += 1
                piece.waiting.append(partial(self._piece_ended, run, piece))
        return begun

    def _piece_ended(self, run: Run, piece: Piece, is_durable: bool) -> None:
        """Continue after the end of a write that another checkpoint began.

        If that write was cancelled, write the file again, or wait if another checkpoint is already writing it again.
        """
        if run.is_over or self._task.is_dead:
            return
        run.unwritten -= 1
        if is_durable:
            self.advance(run)
        elif self._begin(run, (piece,)):
            self._write(run, piece.size_bytes, (piece,))

    def _write(self, run: Run, size_bytes: int, pieces: Sequence[Piece] = ()) -> None:
        run.unwritten += 1
        factor = factor_of(self._task.spec.slow_upload_factors, self._task.index)
        done, failed = partial(self._written, run, pieces), partial(self._not_written, run, pieces)
        upload = self._env.write(size_bytes, done, failed, factor)
        if upload is not None:
            run.uploads.append(upload)

    def cancel(self, run: Run) -> None:
        """Cancel the writes of a checkpoint that was given up (TE-8). Those of a log go on, for the next one (IN-7)."""
        run.is_over = True
        increments = self._task.increments
        if run.begun and increments.keeps_writing:
            increments.hand_on(run.begun, run.measured.checkpoint_id)
            return
        for upload in run.uploads:
            self._env.store.cancel(upload)
        increments.ended(run.begun, is_durable=False)

    def _written(self, run: Run, pieces: Sequence[Piece], _: object) -> None:
        run.unwritten -= 1
        if not self._task.is_dead:
            self._task.increments.ended(pieces, is_durable=True)
            self.advance(run)

    def _not_written(self, run: Run, pieces: Sequence[Piece], _: object) -> None:
        if self._task.is_dead:
            return
        if self._task.increments.keeps_writing:
            self._task.increments.ended(pieces, is_durable=False)
        if not run.is_over:
            self._give_up(run.measured.checkpoint_id, FailureReason.ASYNC_FAILURE)

    def advance(self, run: Run) -> None:
        """Write the channel state once input and output are complete, then acknowledge once everything is written.

        Called whenever the input, the output or the state has changed.
        """
        if run.is_over or run.sync_end_us is None:
            return
        measured = run.measured
        if run.unwritten == 0 and measured.state_durable_us is None:
            measured.state_durable_us = self._env.now - run.sync_end_us
        if run.is_input_open:
            return
        if not run.is_forwarded or run.waiting_outputs:
            return
        if not run.is_channel_state_begun:
            run.is_channel_state_begun = True
            measured.channels_begun_us = self._env.now - run.sync_end_us
            self._write_channel_state(run)
        if run.unwritten == 0:
            self._acknowledge(run)

    def _write_channel_state(self, run: Run) -> None:
        k = run.measured.checkpoint_id
        if run.persisted_bytes:
            for key, data in run.channels.inputs.items():
                self.log(k, Kind.INPUT_PERSISTED, channel=key, size_bytes=sum(map(len, data)))
            self.log(k, Kind.CHANNEL_STATE_PERSISTED, size_bytes=run.persisted_bytes)
        done, failed = partial(self._channels_written, run), partial(self._channels_not_written, run)
        run.written = self._channel_state.write(k, run.channels, done, failed)
        run.unwritten += run.written is None
        if run.persisted_bytes:
            self._env.faults.passed("task.mid-channel-state", self._task.name)

    def _channels_written(self, run: Run, written: Written) -> None:
        if not run.is_over and not self._task.is_dead:
            run.unwritten -= 1
            run.written = written
            self.advance(run)

    def _channels_not_written(self, run: Run, reason: FailureReason) -> None:
        if not run.is_over and not self._task.is_dead:
            self._give_up(run.measured.checkpoint_id, reason)

    def _acknowledge(self, run: Run) -> None:
        """Complete the measurements, and send the acknowledgement (TE-7, ME-4, ME-6)."""
        task, faults = self._task, self._env.faults
        measured = run.measured
        assert run.sync_end_us is not None
        assert run.written is not None
        run.is_over = True
        del self.runs[measured.checkpoint_id]
        measured.async_us = self._env.now - run.sync_end_us
        measured.persisted_bytes = run.persisted_bytes
        measured.inputs = {key: Persisted(len(c), sum(map(len, c))) for key, c in run.channels.inputs.items()}
        measured.outputs = {key: Persisted(len(c), sum(map(len, c))) for key, c in run.channels.outputs.items()}
        self.log(measured.checkpoint_id, Kind.SNAPSHOT_ASYNC_END)
        faults.passed("task.before-ack", task.name)
        operators = task.increments.acknowledged(measured.checkpoint_id, run.operators)
        replayed = sum(o.increment.replayed_changes for o in operators if o.increment is not None)
        measured.channel_write = run.written.figures
        snapshot = SubtaskSnapshot(
            operators,
            run.written.channels,
            run.watermark_us,
            measured.state_bytes,
            run.persisted_bytes,
            replayed,
            run.finished,
            run.written.spilled,
        )
        new_files = self._measure_increment(run, operators)
        measured.files = files_of(snapshot, new_files=new_files)
        if self._env.config.recovers_locally:
            self._env.local.keep(task.key, measured.checkpoint_id, snapshot.operators)
        message = AckMessage(measured.checkpoint_id, task.key, task.attempt, snapshot, measured)
        self._env.send("rpc.ack", self._env.coordinator.on_ack, message)
        faults.passed("task.after-ack", task.name)
        task.finishing.on_checkpoint_over()

    def _measure_increment(self, run: Run, operators: tuple[OperatorSnapshot, ...]) -> int:
        """Set the measurements of the incremental backend. Return the number of new shared files (ME-8, IN-12)."""
        increment = next((o.increment for o in operators if o.increment is not None), None)
        if increment is None or run.pieces is None:
            return 0
        new = [piece for piece in run.pieces if piece.first_id == run.measured.checkpoint_id]
        run.measured.written_bytes = run.alone_bytes + sum(piece.size_bytes for piece in new)
        run.measured.increment = IncrementFigures(
            increment.base_id, len(increment.files), len(new), run.compared_us, run.extra_bytes
        )
        return len(new)

    def _mail_output_timer(self, run: Run) -> None:
        if not run.is_over:
            self._task.mail(self._on_output_timer, run)

    def _on_output_timer(self, run: Run) -> None:
        if run.is_over or not run.waiting_outputs:
            return
        self._env.faults.passed("task.output-switch", self._task.name)
        self._let_overtake(run, "the barrier waited too long in an output queue")

    def _let_overtake(self, run: Run, reason: str) -> None:
        k = run.measured.checkpoint_id
        self.log(k, Kind.MODE_SWITCHED, reason=reason)
        for output in self._task.outputs:
            for subpartition in output.pool.subpartitions:
                subpartition.let_overtake(k)

    def log(
        self,
        k: int,
        kind: Kind,
        *,
        channel: ChannelKey | None = None,
        size_bytes: int | None = None,
        reason: str | None = None,
    ) -> None:
        """Add one barrier event of this subtask to the log."""
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
