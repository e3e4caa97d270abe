"""The checkpoint coordinator: trigger, collect, complete, subsume, expire, and when failures fail the job (2.2).

Completed checkpoints are durable: they, the statistics and the next id outlive a failure of the job; pending ones do
not. Only aligned and unaligned periodic checkpoints are built so far; savepoints are not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from backend.domain.barriers import BarrierEventKind
from backend.domain.failure import FailureReason
from backend.runtime.config import UNLIMITED
from backend.runtime.elements import Alignment, Barrier
from backend.runtime.environment import AckMessage, DeclineMessage, Environment
from backend.runtime.graph import Graph
from backend.runtime.measures import Ack, CheckpointRecord, CheckpointState, SubtaskSnapshot, TaskKey
from backend.runtime.metadata import INLINE_BELOW_BYTES, StoredCheckpoint, write_checkpoint
from backend.runtime.prng import Stream
from backend.runtime.scheduler import EventClass
from backend.runtime.task import Task, TaskStatus

MESSAGES: Mapping[FailureReason, str] = {
    FailureReason.EXPIRED: "Checkpoint expired before completing.",
    FailureReason.DECLINED: "Checkpoint was declined.",
    FailureReason.DECLINED_SUBSUMED: "Checkpoint was canceled because a barrier from newer checkpoint was received.",
    FailureReason.DECLINED_ON_CANCELLATION: "Task received cancellation from one of its inputs.",
    FailureReason.INFLIGHT_LIMIT_EXCEEDED: "In-flight data limit exceeded.",
    FailureReason.ASYNC_FAILURE: "Asynchronous task checkpoint failed.",
    FailureReason.SUBSUMED: "Checkpoint has been subsumed.",
    FailureReason.COORDINATOR_SUSPENDED: "Checkpoint Coordinator is suspending.",
}


@dataclass(slots=True)
class _Pending:
    record: CheckpointRecord
    waiting: set[TaskKey]
    snapshots: dict[TaskKey, SubtaskSnapshot]
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class Completed:
    """A checkpoint that can be restored."""

    record: CheckpointRecord
    snapshots: Mapping[TaskKey, SubtaskSnapshot]

    @property
    def has_channel_state(self) -> bool:
        """Whether in-flight data is part of it."""
        return any(s.persisted_bytes for s in self.snapshots.values())

    def stored(self, graph: Graph, *, inline_below_bytes: int = INLINE_BELOW_BYTES) -> StoredCheckpoint:
        """As it lies in the store (CK-1, CK-2)."""
        return write_checkpoint(self.record, self.snapshots, graph, inline_below_bytes=inline_below_bytes)


class Coordinator:
    """One job's coordinator. ``on_job_failure`` is called where the failure policy ends the patience (FP-4)."""

    def __init__(self, env: Environment, *, on_job_failure: Callable[[FailureReason], None]) -> None:
        self._env = env
        self._on_job_failure = on_job_failure
        self._tasks: Sequence[Task] = ()
        self._by_key: dict[TaskKey, Task] = {}
        self._pending: dict[int, _Pending] = {}
        self._next_id = 1
        self._epoch = 0
        self._tick_number = 0
        self._is_waiting_for_slot = False
        self._last_completion_us: int | None = None
        self._consecutive_failures = 0
        self._delays = Stream(env.seed, "first trigger")
        self.completed: list[Completed] = []
        self.history: deque[CheckpointRecord] = deque()
        self.latest_completed: CheckpointRecord | None = None
        self.latest_failed: CheckpointRecord | None = None
        self.all_completed: deque[CheckpointRecord] = deque(maxlen=1000)
        self.total_count = 0
        self.completed_count = 0
        self.failed_count = 0
        self.restored_count = 0
        self.on_terminal: Callable[[CheckpointRecord], None] | None = None

    def continue_after(self, checkpoint_id: int) -> None:
        """The job begins from a checkpoint of another run: ids go on from there (INV-10)."""
        self._next_id = max(self._next_id, checkpoint_id + 1)

    # --- the job's life -------------------------------------------------------------------------------------------

    def begin(self, tasks: Sequence[Task]) -> None:
        """New attempts are deployed: schedule the first trigger (CO-1)."""
        self._tasks = tasks
        self._by_key = {task.key: task for task in tasks}
        self._epoch += 1
        config = self._env.config
        delay_us = self._delays.between(min(config.min_pause_us, config.interval_us), config.effective_interval_us)
        self._schedule_tick(delay_us)

    def suspend(self) -> None:
        """The job failed: what is pending is lost (CO-13)."""
        self._epoch += 1
        self._tick_number += 1
        self._is_waiting_for_slot = False
        for checkpoint_id in sorted(self._pending):
            self._fail(checkpoint_id, FailureReason.COORDINATOR_SUSPENDED, is_told=False)
        self._consecutive_failures = 0

    @property
    def in_progress_count(self) -> int:
        """Pending checkpoints."""
        return len(self._pending)

    @property
    def newest(self) -> Completed | None:
        """What a restart restores."""
        return self.completed[-1] if self.completed else None

    def cap_bytes(self, task: TaskKey) -> int:
        """CAP-6: the cap per subtask, and its share of the job's by what it persisted last."""
        config = self._env.config
        if config.cap_job_bytes == UNLIMITED:
            return config.cap_bytes
        share = config.cap_job_bytes // max(1, len(self._tasks))
        newest = self.newest
        total = sum(s.persisted_bytes for s in newest.snapshots.values()) if newest else 0
        if newest is not None and total:
            own = newest.snapshots.get(task)
            # Half by what was persisted, half evenly: a subtask that had nothing in flight may have some now.
            weighted = config.cap_job_bytes * (own.persisted_bytes if own else 0) // total
            share = (share + weighted) // 2
        return share if config.cap_bytes == UNLIMITED else min(share, config.cap_bytes)

    # --- triggering -----------------------------------------------------------------------------------------------

    def _schedule_tick(self, delay_us: int) -> None:
        """One tick is due at a time: an earlier one that is still to come is forgotten."""
        self._tick_number += 1
        self._env.scheduler.after(delay_us, EventClass.TIMER, self._tick, self._tick_number)

    def _tick(self, number: int) -> None:
        if number != self._tick_number:
            return
        config = self._env.config
        if len(self._pending) >= config.max_concurrent:
            self._is_waiting_for_slot = True
            self._schedule_tick(config.effective_interval_us)
            return
        pause_us = self._pause_left_us()
        if pause_us > 0:
            self._schedule_tick(pause_us)
            return
        self._schedule_tick(config.effective_interval_us)
        self._trigger()

    def _pause_left_us(self) -> int:
        """CO-4: counted from the last completion."""
        if self._last_completion_us is None:
            return 0
        return self._last_completion_us + self._env.config.min_pause_us - self._env.now

    def _slot_freed(self) -> None:
        """CO-3: a request that waited starts at once; where the pause forbids, when it is over (CO-4)."""
        if not self._is_waiting_for_slot or len(self._pending) >= self._env.config.max_concurrent:
            return
        self._is_waiting_for_slot = False
        pause_us = self._pause_left_us()
        if pause_us > 0:
            self._schedule_tick(pause_us)
        else:
            self._env.scheduler.after(0, EventClass.TIMER, self._start_waiting, self._epoch)

    def _start_waiting(self, epoch: int) -> None:
        if epoch == self._epoch and len(self._pending) < self._env.config.max_concurrent:
            self._trigger()

    def _trigger(self) -> None:
        faults, now = self._env.faults, self._env.now
        if any(task.status is not TaskStatus.RUNNING for task in self._tasks):
            # NOT_ALL_REQUIRED_TASKS_RUNNING: counted, and never listed (flink-baseline.md, quirks).
            self.total_count += 1
            self.failed_count += 1
            return
        faults.passed("coordinator.before-id")
        checkpoint_id = self._next_id
        self._next_id += 1
        faults.passed("coordinator.after-id")
        barrier = self._barrier(checkpoint_id, now)
        record = CheckpointRecord(checkpoint_id, now, barrier, len(self._tasks))
        self._pending[checkpoint_id] = _Pending(record, set(self._by_key), {}, barrier)
        self.total_count += 1
        self.history.appendleft(record)
        while len(self.history) > self._env.config.history_size:
            self.history.pop()
        self._env.log.open(checkpoint_id, now)
        self._env.scheduler.after(self._env.config.timeout_us, EventClass.TIMER, self._expire, checkpoint_id)
        faults.passed("coordinator.before-first-rpc")
        for task in self._tasks:
            if task.source is not None:
                self._env.send("rpc.trigger", _to_mailbox, (task, barrier))
                faults.passed("coordinator.between-rpcs")
        faults.passed("coordinator.after-last-rpc")

    def _barrier(self, checkpoint_id: int, now_us: int) -> Barrier:
        """OPT-2."""
        config = self._env.config
        if not config.is_unaligned:
            return Barrier(checkpoint_id, now_us, Alignment.ALIGNED)
        if config.has_cap:
            return Barrier(checkpoint_id, now_us, Alignment.UNALIGNED, is_capped=True)
        if config.aligned_timeout_us == 0:
            return Barrier(checkpoint_id, now_us, Alignment.UNALIGNED)
        return Barrier(checkpoint_id, now_us, Alignment.ALIGNED, config.aligned_timeout_us)

    # --- collecting -----------------------------------------------------------------------------------------------

    def on_ack(self, message: AckMessage) -> None:
        """CO-6: the first acknowledgement of a task counts, later and foreign ones do not."""
        self._env.faults.passed("coordinator.on-ack")
        pending = self._pending.get(message.checkpoint_id)
        task = self._by_key.get(message.task)
        if pending is None or task is None or task.attempt != message.attempt or message.task not in pending.waiting:
            return
        pending.waiting.discard(message.task)
        pending.snapshots[message.task] = message.snapshot
        pending.record.acks[message.task] = Ack(self._env.now, message.measured)
        self._env.log.add(
            message.checkpoint_id,
            BarrierEventKind.ACKED,
            vertex=task.spec.id,
            subtask=task.index,
            now_us=self._env.now,
            lamport=task.lamport,
        )
        if not pending.waiting:
            self._complete(pending)

    def on_decline(self, message: DeclineMessage) -> None:
        """CO-10: one refusal ends the checkpoint."""
        task = self._by_key.get(message.task)
        if task is not None and task.attempt == message.attempt and message.checkpoint_id in self._pending:
            self._fail(message.checkpoint_id, message.reason)

    def _complete(self, pending: _Pending) -> None:
        """CO-7: metadata, store, subsume, notify."""
        faults = self._env.faults
        record = pending.record
        faults.passed("coordinator.before-metadata")
        completed = Completed(record, dict(pending.snapshots))
        faults.passed("coordinator.after-metadata")
        self.completed.append(completed)
        record.state = CheckpointState.COMPLETED
        del self._pending[record.id]
        while len(self.completed) > self._env.config.num_retained:
            self.completed.pop(0).record.is_discarded = True
        self.completed_count += 1
        self.latest_completed = record
        self.all_completed.append(record)
        self._last_completion_us = self._env.now
        self._consecutive_failures = 0
        faults.passed("coordinator.after-store")
        for older in sorted(k for k in self._pending if k < record.id):
            self._fail(older, FailureReason.SUBSUMED)
        for task in self._tasks:
            self._env.send("rpc.notify", _notify, (task, record.id))
            faults.passed("coordinator.between-notifies")
        self._terminal(record)
        self._slot_freed()

    # --- failing --------------------------------------------------------------------------------------------------

    def _expire(self, checkpoint_id: int) -> None:
        if checkpoint_id in self._pending:
            self._env.faults.passed("coordinator.on-expiry")
            self._fail(checkpoint_id, FailureReason.EXPIRED)

    def _fail(self, checkpoint_id: int, reason: FailureReason, *, is_told: bool = True) -> None:
        """CO-11, then the failure policy."""
        pending = self._pending.pop(checkpoint_id)
        record = pending.record
        record.state = CheckpointState.FAILED
        record.failed_at_us = self._env.now
        record.reason = reason
        record.message = MESSAGES.get(reason, "Checkpoint was declined.")
        self.failed_count += 1
        self.latest_failed = record
        self._terminal(record)
        if not is_told:
            return
        newest = self.newest
        for task in self._tasks:
            self._env.send("rpc.abort", _abort, (task, checkpoint_id, newest.record.id if newest else 0))
        tolerable = self._env.config.tolerable_failures
        if reason.is_counted and tolerable != UNLIMITED:
            self._consecutive_failures += 1
            if self._consecutive_failures > tolerable:
                self._consecutive_failures = 0
                self._on_job_failure(reason)
                return
        self._slot_freed()

    def _terminal(self, record: CheckpointRecord) -> None:
        if self.on_terminal is not None:
            self.on_terminal(record)


def _to_mailbox(message: tuple[Task, Barrier]) -> None:
    task, barrier = message
    task.mail(task.checkpointing.trigger, barrier)


def _notify(message: tuple[Task, int]) -> None:
    task, checkpoint_id = message
    task.mail(task.checkpointing.complete, checkpoint_id)


def _abort(message: tuple[Task, int, int]) -> None:
    task, checkpoint_id, completed_id = message
    if completed_id:
        task.mail(task.checkpointing.complete, completed_id)
    task.mail(task.checkpointing.abort, checkpoint_id)
