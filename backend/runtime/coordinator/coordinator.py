"""The checkpoint coordinator: triggers, collects, completes, subsumes, expires and fails checkpoints (runtime.md 2.2).

``triggering`` decides which checkpoint starts and when. This module carries out the trigger and everything after it.

Completed checkpoints, the statistics and the next checkpoint id survive a failure of the job. Pending checkpoints do
not.

A savepoint belongs to the user and is stored separately. A restart does not restore it, and its completion commits
nothing (CO-8). The savepoint that stops the job is an exception: its completion commits, and a restart can restore it.

Several checkpoints may be pending. When one completes, it subsumes the older pending ones (CC-1, CC-2).
Invariant (INV-9): each triggered checkpoint completes or fails, and every task is notified of the result.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from backend.domain.barriers import BarrierEventKind
from backend.domain.failure import FailureReason
from backend.runtime.coordinator.failure_policy import MESSAGES, Failure, FailurePolicy
from backend.runtime.coordinator.plan import CheckpointPlan, plan_of
from backend.runtime.coordinator.requests import Request
from backend.runtime.coordinator.triggering import Triggering
from backend.runtime.core.elements import Barrier, SnapshotType
from backend.runtime.core.scheduler import EventClass
from backend.runtime.job.graph import FaultAction
from backend.runtime.measure.measures import Ack, CheckpointState, MeasuredCheckpoint, SubtaskSnapshot, TaskKey
from backend.runtime.measure.requested import RequestedFormat, Savepoint, UserCheckpoint
from backend.runtime.protocols.registry import barrier_of, triggers_every_task
from backend.runtime.snapshot.completed import Completed, cap_share_bytes
from backend.runtime.snapshot.finished import nothing_left, partly_finished_union
from backend.runtime.snapshot.metadata import operator_ids
from backend.runtime.snapshot.shared_files import register_late, registered
from backend.runtime.snapshot.spill_logs import resolved
from backend.runtime.task.environment import Environment
from backend.runtime.task.messages import (
    AckMessage,
    BacklogMessage,
    DeclineMessage,
    EndOfDataMessage,
    FinishedMessage,
    Trigger,
)
from backend.runtime.task.task import Task, TaskStatus

_NO_LONGER_TOLERABLE = "Exceeded checkpoint tolerable failure threshold. The latest checkpoint failed due to {}"
# FINISHED is allowed, because a plan includes a finished subtask until the coordinator receives the message that the
# subtask has finished (FN-5).
_RUNNING = (TaskStatus.RUNNING,)
_MAY_TAKE_PART = (TaskStatus.RUNNING, TaskStatus.FINISHED)
_STOP_FAILED = "Stopping with a savepoint failed, and the job restarts: {}"


class AckOutcome(StrEnum):
    """The result of handling an acknowledgement (CO-6)."""

    SUCCESS = "success"
    DUPLICATE = "duplicate"
    UNKNOWN_TASK = "unknown-task"
    DISCARDED = "discarded"


@dataclass(slots=True)
class _Pending:
    record: MeasuredCheckpoint
    waiting: set[TaskKey]
    snapshots: dict[TaskKey, SubtaskSnapshot]
    barrier: Barrier
    asked: UserCheckpoint | None
    expires_at_us: int


class Coordinator:
    """The coordinator of one job. It calls ``on_job_failure`` if the failure policy fails the job (FP-4)."""

    def __init__(self, env: Environment, *, on_job_failure: Callable[[str], None]) -> None:
        self._env = env
        self._on_job_failure = on_job_failure
        self._tasks: Sequence[Task] = ()
        self._by_key: dict[TaskKey, Task] = {}
        self._pending: dict[int, _Pending] = {}
        self._next_id = 1
        self.triggering = Triggering(
            env, pending=lambda: (p.barrier for p in self._pending.values()), trigger=self._trigger
        )
        self._finished: set[TaskKey] = set()
        self._at_end: set[TaskKey] = set()
        """The subtasks that have reported the end of their data, whether or not they have finished."""
        self._plan_of_all: CheckpointPlan | None = None
        """The plan while no subtask has finished."""
        self._policy = FailurePolicy()
        self.completed: list[Completed] = []
        self.savepoints: dict[int, Completed] = {}
        """Completed savepoints by checkpoint id. The runtime deletes none of them (SV-2)."""
        self.latest_savepoint: MeasuredCheckpoint | None = None
        self.ack_outcomes: Counter[AckOutcome] = Counter()
        self.history: deque[MeasuredCheckpoint] = deque()
        """The last triggered checkpoints, newest first (ME-15)."""
        self.latest_completed: MeasuredCheckpoint | None = None
        self.latest_failed: MeasuredCheckpoint | None = None
        self.all_completed: deque[MeasuredCheckpoint] = deque(maxlen=1000)
        self.total_count = 0
        """Number of checkpoints since the job began. A restart does not reset this or the next three counts (ME-14)."""
        self.completed_count = 0
        self.failed_count = 0
        self.restored_count = 0
        self.on_job_finished: Callable[[], None] | None = None
        self.on_terminal: Callable[[MeasuredCheckpoint], None] | None = None

    def continue_after(self, checkpoint_id: int) -> None:
        """Raise the next checkpoint id above the id of the checkpoint from which the job begins (INV-10)."""
        self._next_id = max(self._next_id, checkpoint_id + 1)

    # --- the job's life -------------------------------------------------------------------------------------------

    def begin(self, tasks: Sequence[Task]) -> None:
        """Use the new attempts of all tasks from now on, and schedule the first trigger (CO-1)."""
        self._tasks = tasks
        self._by_key = {task.key: task for task in tasks}
        self._subsume()
        self._finished.clear()
        self._at_end.clear()
        self._plan_of_all = None
        self.triggering.begin()

    def suspend(self) -> None:
        """Fail all pending checkpoints. Called when the job fails or restarts (CO-13)."""
        self.triggering.suspend()
        for checkpoint_id in sorted(self._pending):
            self._fail(checkpoint_id, FailureReason.COORDINATOR_SUSPENDED, is_notified=False)
        self.triggering.stop_failed()

    @property
    def in_progress_count(self) -> int:
        """Number of pending checkpoints."""
        return len(self._pending)

    @property
    def newest(self) -> Completed | None:
        """The newest checkpoint that a restart can restore, or None if no checkpoint has completed."""
        return self.completed[-1] if self.completed else None

    def cap_bytes(self, task: TaskKey) -> int:
        """Return the cap on the in-flight data that one subtask persists, in bytes (CAP-6)."""
        return cap_share_bytes(self._env.config, task, subtasks=len(self._tasks), newest=self.newest)

    # --- triggering -----------------------------------------------------------------------------------------------

    def on_backlog(self, message: BacklogMessage) -> None:
        """Record a source's message about its backlog (SRC-5). Ignore messages of earlier attempts."""
        task = self._by_key.get(message.task)
        if task is not None and task.attempt == message.attempt:
            self.triggering.note_backlog(message)

    def _trigger(self, request: Request) -> None:
        """Trigger a checkpoint (CO-5), or refuse the request if a subtask is still recovering (RC-5)."""
        faults, now = self._env.faults, self._env.now
        plan = self._plan()
        if plan is None:
            # As in Flink, a checkpoint that fails with NOT_ALL_REQUIRED_TASKS_RUNNING is counted but not listed in the
            # history (flink-baseline.md, "Quirks of the REST API").
            self.total_count += 1
            self.failed_count += 1
            self.triggering.refuse(request, FailureReason.NOT_ALL_TASKS_RUNNING)
            return
        faults.passed("coordinator.before-id")
        checkpoint_id = self._next_id
        self._next_id += 1
        faults.passed("coordinator.after-id")
        savepoint = request.savepoint
        kind = SnapshotType.CHECKPOINT if savepoint is None else savepoint.kind
        barrier = barrier_of(self._env.config, checkpoint_id, now, kind)
        if request.checkpoint is not None and request.checkpoint.is_full:
            barrier = replace(barrier, is_full=True)
        record = MeasuredCheckpoint(
            checkpoint_id,
            now,
            barrier,
            len(plan.wait_for),
            self._env.graph,
            savepoint=savepoint,
            finished=plan.finished,
        )
        if savepoint is not None:
            savepoint.checkpoint_id = checkpoint_id
        if request.checkpoint is not None:
            request.checkpoint.checkpoint_id = checkpoint_id
        self._open(record, plan, request.checkpoint)
        self.triggering.is_under_way()
        faults.passed("coordinator.before-location")
        if self._is_failing("coordinator.location"):
            self._fail(checkpoint_id, FailureReason.IO_FAILURE)
            return
        faults.passed("coordinator.before-first-rpc")
        is_for_all = triggers_every_task(self._env.config, kind)
        message = Trigger(barrier, is_for_all)
        for key in plan.wait_for if is_for_all else plan.trigger:
            self._env.send_trigger(self._on_trigger, (self._by_key[key], message), record.trigger_count)
            record.trigger_count += 1
            faults.passed("coordinator.between-rpcs")
        faults.passed("coordinator.after-last-rpc")

    def _plan(self) -> CheckpointPlan | None:
        """Return the plan of a checkpoint that is triggered now, or None if none can be triggered (FN-1, FN-6)."""
        tasks_finish = self._env.config.tasks_finish
        if any(task.status not in (_MAY_TAKE_PART if tasks_finish else _RUNNING) for task in self._tasks):
            return None
        if not self._finished:
            if self._plan_of_all is None:
                self._plan_of_all = plan_of(self._env.graph)
            return self._plan_of_all
        if not self._env.config.checkpoints_after_end or len(self._finished) == len(self._tasks):
            return None
        return plan_of(self._env.graph, self._finished)

    def _on_trigger(self, message: tuple[Task, Trigger]) -> None:
        """Deliver a trigger message. If the subtask has finished meanwhile, the checkpoint fails (FN-5)."""
        task, trigger = message
        is_late = self._env.config.tasks_finish and task.status is TaskStatus.FINISHED
        if is_late and trigger.barrier.checkpoint_id in self._pending:
            self._fail(trigger.barrier.checkpoint_id, FailureReason.DECLINED_TASK_CLOSING, is_at_task=True)
            return
        task.mail(task.checkpointing.trigger, trigger)

    def _open(self, record: MeasuredCheckpoint, plan: CheckpointPlan, asked: UserCheckpoint | None) -> None:
        vertices = self._env.graph.vertices
        ended = {key: nothing_left(len(operator_ids(vertices[key[0]]))) for key in plan.finished}
        expires_at_us = self._env.now + self._env.config.timeout_us
        self._pending[record.id] = _Pending(record, set(plan.wait_for), ended, record.barrier, asked, expires_at_us)
        self.total_count += 1
        self.history.appendleft(record)
        while len(self.history) > self._env.config.history_size:
            self.history.pop()
        self._env.log.open(record.id, record.triggered_at_us, in_progress=self._pending)
        for key in plan.finished:
            self._by_key[key].checkpointing.had_finished(record.id)
        self._env.scheduler.after(self._env.config.timeout_us, EventClass.TIMER, self._expire, record.id)

    def _is_failing(self, point: str) -> bool:
        fault = self._env.faults.message(point)
        return fault is not None and fault.action == FaultAction.ERROR

    # --- collecting -----------------------------------------------------------------------------------------------

    def on_ack(self, message: AckMessage) -> None:
        """Handle an acknowledgement. Only the first one from the current attempt of each task counts (CO-6)."""
        self._env.faults.passed("coordinator.on-ack")
        pending = self._pending.get(message.checkpoint_id)
        task = self._by_key.get(message.task)
        outcome = _outcome(message, pending, task)
        self.ack_outcomes[outcome] += 1
        if outcome is not AckOutcome.SUCCESS:
            if outcome is not AckOutcome.UNKNOWN_TASK:
                register_late(message.snapshot, message.checkpoint_id, self._env.files)
                if len(self._finished) == len(self._by_key):
                    # All subtasks have finished. Delete these files now, because no later checkpoint will complete and
                    # delete them.
                    self._delete_unused_files()
            return
        assert pending is not None
        assert task is not None
        pending.waiting.discard(message.task)
        pending.snapshots[message.task] = registered(message.snapshot, message.checkpoint_id, self._env.files)
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
        """Fail a checkpoint because a task declined it (CO-10). Ignore messages of earlier attempts."""
        task = self._by_key.get(message.task)
        if task is not None and task.attempt == message.attempt and message.checkpoint_id in self._pending:
            self._fail(message.checkpoint_id, message.reason, is_at_task=True)

    def _complete(self, pending: _Pending) -> None:
        """Complete a checkpoint: write its metadata, store it, subsume older checkpoints, and notify the tasks (CO-7).

        A savepoint that does not stop the job is only written and stored (CO-8).
        """
        faults = self._env.faults
        record = pending.record
        may_be_partly_finished = self._env.config.checkpoints_after_end
        if may_be_partly_finished and partly_finished_union(record.graph, pending.snapshots) is not None:
            self._fail(record.id, FailureReason.DECLINED_TASK_CLOSING)
            return
        faults.passed("coordinator.before-metadata")
        if self._is_failing("coordinator.metadata"):
            self._fail(record.id, FailureReason.FINALIZE_FAILURE)
            return
        faults.passed("coordinator.mid-metadata")
        completed = Completed(record, resolved(pending.snapshots), self._env.files)
        self._env.channel_files.completed(record.id)
        faults.passed("coordinator.after-metadata")
        record.state = CheckpointState.COMPLETED
        del self._pending[record.id]
        self._count_completed(record)
        if pending.asked is not None:
            self.triggering.ended(pending.asked)
        if record.savepoint is not None:
            self.savepoints[record.id] = completed
            self.latest_savepoint = record
            record.savepoint.completed_at_us = self._env.now
        if record.savepoint is not None and record.savepoint is not self.triggering.stop:
            self.triggering.ended(record.savepoint)
            faults.passed("coordinator.after-store")
        else:
            # The savepoint that stops the job is handled here as well. Its completion commits, so nothing older may
            # be restored (CO-8).
            self._store(completed)
            faults.passed("coordinator.after-store")
            for older in sorted(k for k, p in self._pending.items() if k < record.id and not p.record.is_savepoint):
                self._fail(older, FailureReason.SUBSUMED)
            self._notify_complete(record.id)
        self._terminal(record)
        self.triggering.slot_freed()

    def _notify_complete(self, checkpoint_id: int) -> None:
        for task in self._tasks:
            if task.key not in self._finished:
                self._env.send("rpc.notify", _notify, (task, checkpoint_id))
                self._env.faults.passed("coordinator.between-notifies")
        if self.triggering.stop is not None and self.triggering.stop.checkpoint_id == checkpoint_id:
            # If a notification is lost, the notification of the next checkpoint makes up for it (SNK-2). A stopping
            # job has no next checkpoint, so the notification is repeated.
            delay_us = self._env.config.effective_interval_us
            self._env.scheduler.after(delay_us, EventClass.TIMER, self._notify_again, checkpoint_id)

    def _notify_again(self, checkpoint_id: int) -> None:
        if self.triggering.stop is not None and self.triggering.stop.checkpoint_id == checkpoint_id:
            self._notify_complete(checkpoint_id)

    def _count_completed(self, record: MeasuredCheckpoint) -> None:
        self.completed_count += 1
        self.all_completed.append(record)
        self.triggering.completed()
        self._policy.succeeded(record.id)

    def _store(self, completed: Completed) -> None:
        self.completed.append(completed)
        if not completed.record.is_savepoint:
            self.latest_completed = completed.record
        self._subsume()

    def _subsume(self) -> None:
        """Drop the oldest completed checkpoints until ``num_retained`` are left (CO-12).

        If the job fails before all of them are dropped, the next start of the job drops the rest.
        """
        while len(self.completed) > self._env.config.num_retained:
            self._env.faults.passed("coordinator.on-subsume")
            dropped = self.completed.pop(0).record
            # A savepoint's files belong to the user, so they are not discarded (SV-2).
            dropped.is_discarded = not dropped.is_savepoint
        self._delete_unused_files()

    def _delete_unused_files(self) -> None:
        if self.completed:
            lowest_id = self.completed[0].record.id
            self._env.files.registry.unregister_unused(lowest_id)
            self._env.channel_files.retain(lowest_id, [each.snapshots for each in self.completed])

    def on_end_of_data(self, message: EndOfDataMessage) -> None:
        """Record that a subtask's data has ended.

        When the data of all subtasks has ended, trigger the final checkpoint (FN-25).
        """
        task = self._by_key.get(message.task)
        if task is None or task.attempt != message.attempt:
            return
        self._at_end.add(message.task)
        if len(self._at_end) == len(self._by_key) and self._env.config.checkpoints_after_end:
            self.triggering.request_final()

    def on_finished(self, message: FinishedMessage) -> None:
        """Record that a subtask has finished. When all subtasks have finished, the job has finished (FN-28)."""
        task = self._by_key.get(message.task)
        if task is None or task.attempt != message.attempt:
            return
        if self.triggering.stop is None and not self._env.config.tasks_finish:
            return
        self._finished.add(message.task)
        if len(self._finished) == len(self._by_key):
            self.triggering.stopped()
            self._shut_down()

    def _shut_down(self) -> None:
        self.triggering.shut_down()
        for checkpoint_id in sorted(self._pending):
            self._fail(checkpoint_id, FailureReason.COORDINATOR_SHUTDOWN, is_notified=False)
        self._delete_unused_files()
        if self.on_job_finished is not None:
            self.on_job_finished()

    # --- failing --------------------------------------------------------------------------------------------------

    def _expire(self, checkpoint_id: int) -> None:
        """Fail a checkpoint that is still pending after its timeout (CO-9)."""
        pending = self._pending.get(checkpoint_id)
        # If the timeout became longer in the meantime, a later event expires the checkpoint (CO-14).
        if pending is not None and self._env.now >= pending.expires_at_us:
            self._env.faults.passed("coordinator.on-expiry")
            self._fail(checkpoint_id, FailureReason.EXPIRED)

    def reconfigured(self) -> None:
        """Extend the pending checkpoints if the timeout became longer (CO-14). Called when the settings change.

        A shorter timeout applies from the next checkpoint on.
        """
        self.triggering.reconfigured()
        for checkpoint_id, pending in self._pending.items():
            expires_at_us = pending.record.triggered_at_us + self._env.config.timeout_us
            if expires_at_us > pending.expires_at_us:
                pending.expires_at_us = expires_at_us
                delay_us = expires_at_us - self._env.now
                self._env.scheduler.after(delay_us, EventClass.TIMER, self._expire, checkpoint_id)

    def request_stop(self, form: RequestedFormat, *, drains: bool) -> Savepoint:
        """Stop the job with a savepoint (SV-3). All pending checkpoints fail first.

        If the job is already stopping, return the savepoint of that stop.
        """
        if self.triggering.stop is None:
            for checkpoint_id in sorted(self._pending):
                self._fail(checkpoint_id, FailureReason.COORDINATOR_SUSPENDED)
        return self.triggering.request_stop(form, drains=drains)

    def abort(self, checkpoint_id: int) -> bool:
        """Fail a pending checkpoint because a user aborts it (CO-14). Return whether it was pending.

        The savepoint that stops the job is not aborted, because its sources have already stopped.
        """
        pending = self._pending.get(checkpoint_id)
        if pending is None or pending.record.barrier.snapshot_type.is_synchronous:
            return False
        self._fail(checkpoint_id, FailureReason.ABORTED)
        return True

    def _fail(
        self, checkpoint_id: int, reason: FailureReason, *, is_notified: bool = True, is_at_task: bool = False
    ) -> None:
        """Fail a pending checkpoint, notify the tasks (CO-11), and apply the failure policy.

        If ``is_notified`` is false, only record the failure. ``is_at_task`` is true if a task declined the checkpoint.
        """
        pending = self._pending.pop(checkpoint_id)
        self._env.channel_files.aborted(checkpoint_id)
        record = pending.record
        record.state = CheckpointState.FAILED
        record.failed_at_us = self._env.now
        record.reason = reason
        record.message = MESSAGES[reason]
        self.failed_count += 1
        self.latest_failed = record
        if pending.asked is not None:
            self.triggering.ended(pending.asked, reason)
        if record.savepoint is not None:
            self.triggering.ended(record.savepoint, reason)
        self._terminal(record)
        if not is_notified:
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
        self.triggering.slot_freed()

    def _terminal(self, record: MeasuredCheckpoint) -> None:
        if self.on_terminal is not None:
            self.on_terminal(record)


def _outcome(message: AckMessage, pending: _Pending | None, task: Task | None) -> AckOutcome:
    if task is None or task.attempt != message.attempt:
        return AckOutcome.UNKNOWN_TASK
    if pending is None:
        return AckOutcome.DISCARDED
    return AckOutcome.SUCCESS if message.task in pending.waiting else AckOutcome.DUPLICATE


def _notify(message: tuple[Task, int]) -> None:
    task, checkpoint_id = message
    task.mail(task.checkpointing.complete, checkpoint_id)


def _abort(message: tuple[Task, int, int]) -> None:
    task, checkpoint_id, completed_id = message
    if completed_id:
        task.mail(task.checkpointing.complete, completed_id)
    task.mail(task.checkpointing.abort, checkpoint_id)
