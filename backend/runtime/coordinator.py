"""The checkpoint coordinator: trigger, collect, complete, subsume, expire, and when failures fail the job (2.2).

Completed checkpoints are durable: they, the statistics and the next id outlive a failure of the job; pending ones do
not. A savepoint is a checkpoint that a user asked for: it is kept apart, a restart does not use it, and nothing is
committed for it (CO-8).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from backend.domain.barriers import BarrierEventKind
from backend.domain.failure import FailureReason
from backend.runtime.backlog import BacklogMessage
from backend.runtime.checkpoint_options import barrier_of
from backend.runtime.completed import Completed, cap_share_bytes
from backend.runtime.elements import Barrier, SnapshotType
from backend.runtime.environment import AckMessage, DeclineMessage, Environment
from backend.runtime.failure_policy import MESSAGES, Failure, FailurePolicy
from backend.runtime.measures import Ack, CheckpointRecord, CheckpointState, SubtaskSnapshot, TaskKey
from backend.runtime.requests import (
    Request,
    RequestQueue,
    Savepoint,
    SavepointFormat,
    Slots,
    Start,
    TooEarly,
    UserCheckpoint,
    keep,
)
from backend.runtime.scheduler import Action, EventClass
from backend.runtime.stopping import FinishedMessage
from backend.runtime.task import Task, TaskStatus
from backend.runtime.ticks import Ticks

_NO_LONGER_TOLERABLE = "Exceeded checkpoint tolerable failure threshold. The latest checkpoint failed due to {}"
_STOP_FAILED = "Stopping with a savepoint failed, and the job is started again: {}"


class AckOutcome(StrEnum):
    """What became of an acknowledgement (CO-6)."""

    SUCCESS = "success"
    DUPLICATE = "duplicate"
    UNKNOWN_TASK = "unknown-task"
    DISCARDED = "discarded"


@dataclass(slots=True)
class _Pending:
    record: CheckpointRecord
    waiting: set[TaskKey]
    snapshots: dict[TaskKey, SubtaskSnapshot]
    barrier: Barrier
    asked: UserCheckpoint | None


class Coordinator:
    """One job's coordinator. ``on_job_failure`` is called where the failure policy ends the patience (FP-4)."""

    def __init__(self, env: Environment, *, on_job_failure: Callable[[str], None]) -> None:
        self._env = env
        self._on_job_failure = on_job_failure
        self._tasks: Sequence[Task] = ()
        self._by_key: dict[TaskKey, Task] = {}
        self._pending: dict[int, _Pending] = {}
        self._next_id = 1
        self._epoch = 0
        self._queue = RequestQueue()
        self._starting: Request | None = None
        self._request_number = 0
        self._ticks = Ticks(env, self._tick)
        self._last_completion_us: int | None = None
        self.stop: Savepoint | None = None
        """The savepoint that the job stops with, from its request until the job has finished or failed (SV-3)."""
        self._finished: set[TaskKey] = set()
        self._policy = FailurePolicy()
        self.completed: list[Completed] = []
        self.savepoints: dict[int, Completed] = {}
        """By checkpoint id; the runtime drops none (SV-2)."""
        self.savepoint_requests: dict[int, Savepoint] = {}
        self.checkpoint_requests: dict[int, UserCheckpoint] = {}
        self.latest_savepoint: CheckpointRecord | None = None
        self.ack_outcomes: Counter[AckOutcome] = Counter()
        self.history: deque[CheckpointRecord] = deque()
        self.latest_completed: CheckpointRecord | None = None
        self.latest_failed: CheckpointRecord | None = None
        self.all_completed: deque[CheckpointRecord] = deque(maxlen=1000)
        self.total_count = 0
        self.completed_count = 0
        self.failed_count = 0
        self.restored_count = 0
        self.on_job_finished: Callable[[], None] | None = None
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
        self._subsume()
        self._finished.clear()
        self._ticks.begin()

    def suspend(self) -> None:
        """The job failed: what is pending is lost (CO-13)."""
        self._epoch += 1
        starting = [] if self._starting is None else [self._starting]
        for request in [*starting, *self._queue.clear()]:
            self._refused(request, FailureReason.COORDINATOR_SUSPENDED)
        self._starting = None
        self._ticks.stop()
        for checkpoint_id in sorted(self._pending):
            self._fail(checkpoint_id, FailureReason.COORDINATOR_SUSPENDED, is_told=False)
        stop, self.stop = self.stop, None
        if stop is not None and stop.ended_at_us is None:
            # FN-30: it is complete, and its effects are committed; the job did not end with it all the same.
            self._ended(stop, FailureReason.TASK_FAILURE)

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
        return cap_share_bytes(self._env.config, task, subtasks=len(self._tasks), newest=self.newest)

    # --- triggering -----------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._ask(Request(False, self._next_number(), is_periodic=True))

    def request_savepoint(self, form: SavepointFormat, *, when_ended: Action | None = None) -> Savepoint:
        """Ask for a savepoint; where unaligned checkpoints are off it need not wait for a slot (CO-3).

        ``when_ended`` is an event of its own behind the savepoint's end, and is given the savepoint.
        """
        return self._request(Savepoint(self._next_number(), form, self._env.now, when_ended=when_ended))

    def request_stop(self, form: SavepointFormat, *, drains: bool) -> Savepoint:
        """SV-3: stop the job with a savepoint; who asks again while it stops is told of the same."""
        if self.stop is not None:
            return self.stop
        kind = SnapshotType.SAVEPOINT_TERMINATE if drains else SnapshotType.SAVEPOINT_SUSPEND
        self.stop = Savepoint(self._next_number(), form, self._env.now, kind=kind)
        self._ticks.stop()
        self._queue.drop_periodic()
        return self._request(self.stop)

    def _request(self, savepoint: Savepoint) -> Savepoint:
        keep(self.savepoint_requests, savepoint)
        self._ask(Request(not self._env.config.is_unaligned, savepoint.number, savepoint))
        return savepoint

    def request_checkpoint(self) -> UserCheckpoint:
        """Ask for a checkpoint now: before the periodic ones, without the pause, and not before a slot is free."""
        asked = UserCheckpoint(self._next_number(), self._env.now)
        keep(self.checkpoint_requests, asked)
        self._ask(Request(False, asked.number, checkpoint=asked))
        return asked

    def reconfigured(self) -> None:
        """Other settings hold: what the timer asked for under the old ones is asked for once."""
        self._queue.keep_one_periodic()

    def _next_number(self) -> int:
        self._request_number += 1
        return self._request_number

    def _ask(self, request: Request) -> None:
        is_closed = self._queue.is_closed
        dropped = self._queue.add(request)
        if dropped is not None:
            self._refused(dropped, FailureReason.TOO_MANY_REQUESTS)
        if not is_closed:
            self._start_queued(self._epoch)

    def _refused(self, request: Request, reason: FailureReason) -> None:
        """A request that never became a checkpoint: no statistics know of it, who asked does."""
        if request.checkpoint is not None:
            self._ended(request.checkpoint, reason)
        if request.savepoint is None:
            return
        self._ended(request.savepoint, reason)
        if request.savepoint is self.stop:
            # Nothing has been stopped yet: the job goes on.
            self.stop = None
            self._ticks.go_on(self._env.config.effective_interval_us)

    def _ended(self, asked: Savepoint | UserCheckpoint, reason: FailureReason | None = None) -> None:
        asked.ended_at_us = self._env.now
        if reason is not None:
            asked.reason, asked.message = reason, MESSAGES[reason]
        if isinstance(asked, Savepoint) and asked.when_ended is not None:
            self._env.scheduler.after(0, EventClass.TIMER, asked.when_ended, asked)

    def _start_queued(self, epoch: int) -> None:
        while epoch == self._epoch and (request := self._next_request()) is not None:
            self._starting = request
            self._trigger(request)

    def _next_request(self) -> Request | None:
        """CO-3, CO-4: whose turn it is, if it may start now."""
        first = self._queue.first
        if first is None or (self.stop is not None and first.savepoint is not self.stop):
            # A newer checkpoint would supersede, at some task, the one that the job stops with.
            return None
        config = self._env.config
        if first.savepoint is not None and any(p.barrier.needs_channel_state for p in self._pending.values()):
            # CC-3: a savepoint waits for an unaligned checkpoint, also for one from before a change of settings.
            return None
        if (
            first.savepoint is None
            and config.is_unaligned
            and any(p.record.is_savepoint for p in self._pending.values())
        ):
            # CC-3, the other way round: where several may run, a free slot is not enough.
            return None
        completed_us = self._last_completion_us
        pause_ends_us = -1 if completed_us is None else completed_us + config.min_pause_us
        match self._queue.choose(Slots(self._env.now, len(self._pending), config.max_concurrent, pause_ends_us)):
            case Start(request=request):
                return request
            case TooEarly(request=request, delay_us=delay_us):
                self._refused(request, FailureReason.MIN_PAUSE)
                self._ticks.schedule(delay_us)
        return None

    def on_backlog(self, message: BacklogMessage) -> None:
        """SRC-5, of subtasks that run."""
        task = self._by_key.get(message.task)
        if task is not None and task.attempt == message.attempt:
            self._ticks.tell(message)

    def _slot_freed(self) -> None:
        """CO-3: a request that waited starts at once; where the pause forbids, when it is over (CO-4)."""
        if len(self._queue):
            self._env.scheduler.after(0, EventClass.TIMER, self._start_queued, self._epoch)

    def _trigger(self, request: Request) -> None:
        faults, now = self._env.faults, self._env.now
        if any(task.status is not TaskStatus.RUNNING for task in self._tasks):
            # NOT_ALL_REQUIRED_TASKS_RUNNING: counted, and never listed (flink-baseline.md, quirks).
            self.total_count += 1
            self.failed_count += 1
            self._refused(request, FailureReason.NOT_ALL_TASKS_RUNNING)
            self._starting = None
            return
        faults.passed("coordinator.before-id")
        checkpoint_id = self._next_id
        self._next_id += 1
        faults.passed("coordinator.after-id")
        savepoint = request.savepoint
        kind = SnapshotType.CHECKPOINT if savepoint is None else savepoint.kind
        barrier = barrier_of(self._env.config, checkpoint_id, now, kind)
        record = CheckpointRecord(checkpoint_id, now, barrier, len(self._tasks), self._env.graph, savepoint=savepoint)
        if savepoint is not None:
            savepoint.checkpoint_id = checkpoint_id
        if request.checkpoint is not None:
            request.checkpoint.checkpoint_id = checkpoint_id
        self._open(record, request.checkpoint)
        self._starting = None
        faults.passed("coordinator.before-location")
        if self._is_failing("coordinator.location"):
            self._fail(checkpoint_id, FailureReason.IO_FAILURE)
            return
        faults.passed("coordinator.before-first-rpc")
        for task in self._tasks:
            if task.source is not None:
                self._env.send("rpc.trigger", _to_mailbox, (task, barrier))
                faults.passed("coordinator.between-rpcs")
        faults.passed("coordinator.after-last-rpc")

    def _open(self, record: CheckpointRecord, asked: UserCheckpoint | None) -> None:
        self._pending[record.id] = _Pending(record, set(self._by_key), {}, record.barrier, asked)
        self.total_count += 1
        self.history.appendleft(record)
        while len(self.history) > self._env.config.history_size:
            self.history.pop()
        self._env.log.open(record.id, record.triggered_at_us)
        self._env.scheduler.after(self._env.config.timeout_us, EventClass.TIMER, self._expire, record.id)

    def _is_failing(self, point: str) -> bool:
        fault = self._env.faults.message(point)
        return fault is not None and fault.action == "error"

    # --- collecting -----------------------------------------------------------------------------------------------

    def on_ack(self, message: AckMessage) -> None:
        """CO-6: the first acknowledgement of a task counts, later and foreign ones do not."""
        self._env.faults.passed("coordinator.on-ack")
        pending = self._pending.get(message.checkpoint_id)
        task = self._by_key.get(message.task)
        outcome = _outcome(message, pending, task)
        self.ack_outcomes[outcome] += 1
        if outcome is not AckOutcome.SUCCESS:
            return
        assert pending is not None
        assert task is not None
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
            self._fail(message.checkpoint_id, message.reason, is_at_task=True)

    def _complete(self, pending: _Pending) -> None:
        """CO-7: metadata, store, subsume, notify. A savepoint is stored apart, and that is all (CO-8)."""
        faults = self._env.faults
        record = pending.record
        faults.passed("coordinator.before-metadata")
        if self._is_failing("coordinator.metadata"):
            self._fail(record.id, FailureReason.FINALIZE_FAILURE)
            return
        faults.passed("coordinator.mid-metadata")
        completed = Completed(record, dict(pending.snapshots))
        faults.passed("coordinator.after-metadata")
        record.state = CheckpointState.COMPLETED
        del self._pending[record.id]
        self._count_completed(record)
        if pending.asked is not None:
            self._ended(pending.asked)
        if record.savepoint is not None:
            self.savepoints[record.id] = completed
            self.latest_savepoint = record
            record.savepoint.completed_at_us = self._env.now
        if record.savepoint is not None and record.savepoint is not self.stop:
            self._ended(record.savepoint)
            faults.passed("coordinator.after-store")
        else:
            # Also what the job stops with: its effects are committed, so nothing older may be restored (CO-8).
            self._store(completed)
            faults.passed("coordinator.after-store")
            for older in sorted(k for k, p in self._pending.items() if k < record.id and not p.record.is_savepoint):
                self._fail(older, FailureReason.SUBSUMED)
            self._tell_complete(record.id)
        self._terminal(record)
        self._slot_freed()

    def _tell_complete(self, checkpoint_id: int) -> None:
        for task in self._tasks:
            if task.key not in self._finished:
                self._env.send("rpc.notify", _notify, (task, checkpoint_id))
                self._env.faults.passed("coordinator.between-notifies")
        if self.stop is not None and self.stop.checkpoint_id == checkpoint_id:
            # A lost notification is covered by that of the next checkpoint (SNK-2); of a job that stops there is none.
            delay_us = self._env.config.effective_interval_us
            self._env.scheduler.after(delay_us, EventClass.TIMER, self._tell_again, checkpoint_id)

    def _tell_again(self, checkpoint_id: int) -> None:
        if self.stop is not None and self.stop.checkpoint_id == checkpoint_id:
            self._tell_complete(checkpoint_id)

    def _count_completed(self, record: CheckpointRecord) -> None:
        self.completed_count += 1
        self.all_completed.append(record)
        self._last_completion_us = self._env.now
        self._policy.succeeded(record.id)

    def _store(self, completed: Completed) -> None:
        self.completed.append(completed)
        if not completed.record.is_savepoint:
            self.latest_completed = completed.record
        self._subsume()

    def _subsume(self) -> None:
        """CO-12; what a failure left of it undone, a restart finishes."""
        while len(self.completed) > self._env.config.num_retained:
            self._env.faults.passed("coordinator.on-subsume")
            dropped = self.completed.pop(0).record
            # A savepoint's files are the user's (SV-2).
            dropped.is_discarded = not dropped.is_savepoint

    def on_finished(self, message: FinishedMessage) -> None:
        """SV-3: when every subtask has ended, the job has."""
        task = self._by_key.get(message.task)
        if task is None or task.attempt != message.attempt or self.stop is None:
            return
        self._finished.add(message.task)
        if len(self._finished) == len(self._by_key):
            self._ended(self.stop)
            self.stop = None
            self._shut_down()

    def _shut_down(self) -> None:
        self._ticks.stop()
        for request in self._queue.clear():
            self._refused(request, FailureReason.COORDINATOR_SHUTDOWN)
        for checkpoint_id in sorted(self._pending):
            self._fail(checkpoint_id, FailureReason.COORDINATOR_SHUTDOWN, is_told=False)
        if self.on_job_finished is not None:
            self.on_job_finished()

    # --- failing --------------------------------------------------------------------------------------------------

    def _expire(self, checkpoint_id: int) -> None:
        if checkpoint_id in self._pending:
            self._env.faults.passed("coordinator.on-expiry")
            self._fail(checkpoint_id, FailureReason.EXPIRED)

    def _fail(
        self, checkpoint_id: int, reason: FailureReason, *, is_told: bool = True, is_at_task: bool = False
    ) -> None:
        """CO-11, then the failure policy."""
        pending = self._pending.pop(checkpoint_id)
        record = pending.record
        record.state = CheckpointState.FAILED
        record.failed_at_us = self._env.now
        record.reason = reason
        record.message = MESSAGES[reason]
        self.failed_count += 1
        self.latest_failed = record
        if pending.asked is not None:
            self._ended(pending.asked, reason)
        if record.savepoint is not None:
            self._ended(record.savepoint, reason)
        self._terminal(record)
        if not is_told:
            return
        newest = self.newest
        for task in self._tasks:
            self._env.send("rpc.abort", _abort, (task, checkpoint_id, newest.record.id if newest else 0))
        tolerable = self._env.config.tolerable_failures
        failure = Failure(checkpoint_id, reason, record.barrier.snapshot_type, is_at_task)
        if self._policy.failed(failure, tolerable=tolerable):
            words = _STOP_FAILED if failure.kind.is_synchronous else _NO_LONGER_TOLERABLE
            self._on_job_failure(words.format(MESSAGES[reason]))
            return
        self._slot_freed()

    def _terminal(self, record: CheckpointRecord) -> None:
        if self.on_terminal is not None:
            self.on_terminal(record)


def _outcome(message: AckMessage, pending: _Pending | None, task: Task | None) -> AckOutcome:
    if task is None or task.attempt != message.attempt:
        return AckOutcome.UNKNOWN_TASK
    if pending is None:
        return AckOutcome.DISCARDED
    return AckOutcome.SUCCESS if message.task in pending.waiting else AckOutcome.DUPLICATE


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
