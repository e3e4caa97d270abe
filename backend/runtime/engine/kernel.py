"""Runs one job on virtual time: deploys its subtasks, runs them, and restores the last checkpoint after a failure.

Invariant: the same job, settings, seed and faults give the same trace, however the run is divided into ``run_until``
calls. Reading state does not change the run (DET-4, INV-12). A change of settings becomes part of the trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby

from backend.domain.barriers import BarrierEvent
from backend.domain.errors import CorruptCheckpointError
from backend.runtime.coordinator.coordinator import Coordinator
from backend.runtime.coordinator.rescales import Rescale, Rescaler
from backend.runtime.coordinator.restore_point import RestorePoint, assigned
from backend.runtime.core.barrier_log import BarrierLog
from backend.runtime.core.prng import mix64
from backend.runtime.core.provenance import Provenance
from backend.runtime.core.scheduler import EventClass, Scheduler
from backend.runtime.engine.debloating import Debloating
from backend.runtime.engine.jobfile import JobSpec, SavepointSpec, Stop
from backend.runtime.engine.wiring import connect
from backend.runtime.job import config as settings
from backend.runtime.job.config import OnStopFailure, RuntimeConfig
from backend.runtime.job.faults import Faults, InducedFailure
from backend.runtime.job.graph import Graph
from backend.runtime.measure.requested import RequestedFormat, Savepoint, UserCheckpoint
from backend.runtime.network.remote_channel import RemoteChannel
from backend.runtime.operators.storage import SnapshotStore, TransactionLedger
from backend.runtime.snapshot.metadata import ReadCheckpoint, StoredCheckpoint, read_checkpoint, without_shared_files
from backend.runtime.snapshot.restoring import at_own_risk, left_out, restored_graph
from backend.runtime.snapshot.saved import Handover, RestoreOptions
from backend.runtime.snapshot.sizes import sized
from backend.runtime.task.environment import Environment
from backend.runtime.task.restarts import OffsetsReached, Restart
from backend.runtime.task.task import Task, TaskStatus

_EXCEPTIONS_KEPT = 20
NO_OPTIONS = RestoreOptions()


class JobStatus(StrEnum):
    """The state of a job."""

    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


@dataclass(frozen=True, slots=True)
class JobFailure:
    """A failure of the job, or a refused rescale, as shown to users."""

    at_us: int
    name: str
    message: str
    task: str | None


class JobEngine:
    """Runs one job. Virtual time advances only in ``run_until``."""

    def __init__(
        self,
        spec: JobSpec,
        *,
        seed: int | None = None,
        keeps_rows: bool = False,
        restore: StoredCheckpoint | None = None,
        is_size_only: bool = False,
        is_stepwise: bool = False,
        options: RestoreOptions = NO_OPTIONS,
        handover: Handover | None = None,
    ) -> None:
        """Set up the job. ``run_until`` runs it.

        ``seed``: replaces the seed of the job file.
        ``restore``: a checkpoint, of this run or another, from which the job begins. The parallelism may differ.
        ``is_size_only``: track only the sizes of records, not their bytes. Times, sizes and events are the same.
        ``is_stepwise``: make every step an event. The run has the same results, but is slower.
        ``options``: what the restore may do.
        ``handover``: what the run that took the checkpoint hands over. Without it, the run begins at virtual time 0
        with an empty external system.

        Raises:
            PlanError: the checkpoint cannot be restored into the graph, because the graph changed in a way that is not
                allowed (GR-1, GR-2), an edge with data in flight cannot be rescaled (RS-11), or the maximum parallelism
                differs (PT-4).
        """
        begun_from = None if restore is None else read_checkpoint(restore)
        if begun_from is not None and not options.is_claimed:
            begun_from = without_shared_files(begun_from)
        graph = spec.graph
        self.at_own_risk: tuple[str, ...] = ()
        """Vertices whose operators changed although an edge to or from them has data in flight (GR-2)."""
        self.left_out: tuple[str, ...] = ()
        """Operators whose state was left out because the job does not have them (GR-1)."""
        if begun_from is not None:
            graph = restored_graph(begun_from, graph, allows_non_restored=options.allows_non_restored)
            assigned(begun_from, graph, spec.config)
            self.at_own_risk = at_own_risk(begun_from, graph)
            self.left_out = tuple(operator for _, operator in left_out(begun_from, graph))
        self.spec = spec
        self.seed = spec.seed if seed is None else seed
        self.began_at_us = 0 if handover is None else handover.at_us
        self.scheduler = Scheduler(spec.config.fuzz_schedule, now_us=self.began_at_us)
        self.env = _environment(
            spec,
            graph,
            self.scheduler,
            seed=self.seed,
            keeps_rows=keeps_rows,
            is_size_only=is_size_only,
            is_stepwise=is_stepwise,
        )
        self.ledger = self.env.ledger
        if handover is not None:
            self.ledger.take_over(handover.outside, attempt=handover.attempt)
        if restore is not None and begun_from is not None:
            self.env.files.adopt(begun_from.shared_files, restore.files, begun_from.id)
        self.coordinator = Coordinator(self.env, on_job_failure=self._on_checkpoint_failures)
        self.coordinator.on_job_finished = self._on_finished
        self.env.coordinator = self.coordinator
        self.ledger.committed = lambda: self.env.faults.passed("sink.between-commits")
        self._begun_from_id = None if begun_from is None else begun_from.id
        self._is_from_savepoint = begun_from is not None and begun_from.savepoint_format is not None
        self.restore_point = RestorePoint(self.env, self.coordinator, begun_from)
        self.debloating = Debloating(self.env)
        self.tasks: list[Task] = []
        self.status = JobStatus.RUNNING
        self.ended_at_us: int | None = None
        self.restart_count = 0
        self.restored_id: int | None = None
        self.restored_at_us: int | None = None
        self.exceptions: list[JobFailure] = []
        self.restarts: deque[Restart] = deque(maxlen=_EXCEPTIONS_KEPT)
        """The last restarts with their costs, oldest first (RC-11)."""
        self.start: Restart | None = None
        """What the start from the checkpoint of another run cost and changed; None if the job began without one."""
        if begun_from is not None:
            self.start = Restart(self.began_at_us, f"started from id {begun_from.id}", {}, is_start=True)
        self._rescaler = Rescaler(
            self.env,
            self.coordinator,
            newest=self.restore_point.newest,
            check=lambda read, graph: assigned(read, graph, self.config),
            restart=self._restart_as,
            is_over=lambda: self.ended_at_us is not None,
            on_refused=lambda error: self._excepted("RescaleRefused", str(error), None),
        )
        self._reached = OffsetsReached()
        self.attempt = 0
        self._past_steps = (0, 0)
        """Number and hash of the steps of all earlier attempts."""
        if begun_from is not None:
            self.coordinator.continue_after(begun_from.id)
        self._schedule_plan()

    def _schedule_plan(self) -> None:
        """Schedule what is known before the run: deployment, savepoints, rescales and the first metrics sample.

        The instants of a job file count from the beginning of the run.
        """
        self.scheduler.after(0, EventClass.RPC, self._redeploy, self.attempt)
        for savepoint in self.spec.savepoints:
            self.scheduler.after(savepoint.at_us, EventClass.TIMER, self._on_savepoint_due, savepoint)
        for rescale in self.spec.rescales:
            self.scheduler.after(rescale.at_us, EventClass.TIMER, self._rescaler.on_due, rescale)
        self.scheduler.after(self.config.metric_period_us, EventClass.TIMER, self._sample)

    # --- for callers ----------------------------------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        """The current virtual time in microseconds."""
        return self.scheduler.now

    @property
    def config(self) -> RuntimeConfig:
        """The current settings."""
        return self.env.config

    @property
    def is_restored_from_other(self) -> bool:
        """Whether the last restore was of the checkpoint of an earlier run, from which the job began."""
        return self.restored_id is not None and self.restored_id == self._begun_from_id

    @property
    def is_restored_from_savepoint(self) -> bool:
        """Whether the last restore was of the savepoint of an earlier run, from which the job began."""
        return self.is_restored_from_other and self._is_from_savepoint

    @property
    def trace_hash(self) -> str:
        """The hash of all events so far (DET-4). It includes the number of steps and the sum of their squared times."""
        return f"{mix64(self.scheduler.hash ^ self._all_steps()[1]):016x}"

    @property
    def event_count(self) -> int:
        """Number of events so far, including steps."""
        return self.scheduler.event_count + (0 if self.scheduler.is_fuzzed else self._all_steps()[0])

    def run_until(self, at_us: int) -> None:
        """Run all events up to and including ``at_us``. An induced failure on the way restarts the job."""
        while True:
            try:
                self.scheduler.run_until(at_us)
            except InducedFailure as failure:
                self._fail("InducedFailure", str(failure), failure.task)
            else:
                break
        for task in self.tasks:
            task.settle()

    def set_config(self, changes: Mapping[str, object]) -> None:
        """Change settings while the job runs. They apply from the next checkpoint on.

        A longer checkpoint timeout applies to pending checkpoints too (CO-14).

        Raises:
            InvalidInputError: a key may not change while the job runs, or a value is out of bounds.
            PlanError: the settings contradict each other.
        """
        changed = settings.change(self.env.config, changes, live=True, where="")
        text = ",".join(f"{k}={v}" for k, v in sorted(settings.show(changed).items()))
        self.scheduler.fold(text)
        self.env.config = changed
        self.coordinator.reconfigured()
        self.debloating.reconfigured()

    def request_checkpoint(self, *, is_full: bool = False) -> UserCheckpoint:
        """Request a checkpoint now. The returned object is updated while the checkpoint runs.

        With ``is_full``, it does not use files of earlier checkpoints (IN-5).
        """
        self.scheduler.fold("checkpoint full" if is_full else "checkpoint")
        return self.coordinator.triggering.request_checkpoint(is_full=is_full)

    def abort_checkpoint(self, checkpoint_id: int) -> bool:
        """Abort a pending checkpoint (CO-14). Return whether it was pending. The job goes on."""
        self.scheduler.fold(f"abort {checkpoint_id}")
        return self.coordinator.abort(checkpoint_id)

    def request_savepoint(self, form: RequestedFormat = RequestedFormat.CANONICAL) -> Savepoint:
        """Request a savepoint now. The returned object is updated while the savepoint runs."""
        self.scheduler.fold(f"savepoint {form}")
        return self.coordinator.triggering.request_savepoint(form)

    def request_stop(self, form: RequestedFormat = RequestedFormat.CANONICAL, *, drains: bool = False) -> Savepoint:
        """Stop the job with a savepoint (SV-3).

        With ``drains``, the job ends for good: all timers fire and all windows close.
        """
        self.scheduler.fold(f"stop {form} {drains}")
        return self.coordinator.request_stop(form, drains=drains)

    def cancel(self) -> None:
        """End the job at once, without a savepoint. Its completed checkpoints stay, and another job can begin from one.

        Has no effect on a job that has ended.
        """
        if self.ended_at_us is not None:
            return
        self.scheduler.fold("cancel")
        for each in self.tasks:
            each.settle()
        self._kill()
        # A restart that is already scheduled belongs to an earlier attempt from now on.
        self.attempt += 1
        self.status = JobStatus.CANCELED
        self.ended_at_us = self.now_us

    def break_off(self, name: str, message: str) -> None:
        """End the job as FAILED, because a fault of the engine itself was raised out of ``run_until``.

        Its state may contradict itself, so it is not restarted, and nothing of it is called to end it in order. Its
        completed checkpoints stay. Has no effect on a job that has ended.
        """
        if self.ended_at_us is None:
            self._end(name, message)
            self.attempt += 1

    def savepoint(self, checkpoint_id: int) -> StoredCheckpoint | None:
        """Return a completed savepoint, from which another job can begin, or None if there is no such savepoint."""
        kept = self.coordinator.savepoints.get(checkpoint_id)
        return None if kept is None else kept.stored(kept.record.graph)

    def rescale(self, parallelism: Mapping[str, int], *, from_savepoint: bool = False) -> Rescale:
        """Restart the job at another parallelism. ``parallelism`` maps vertex ids to their new parallelism.

        The job restarts immediately from the newest checkpoint. With ``from_savepoint``, it restarts from a new
        savepoint as soon as that savepoint is complete.

        Raises:
            PlanError: the job cannot run or cannot be restored at this parallelism. The job continues unchanged.
        """
        return self._rescaler.ask(parallelism, from_savepoint=from_savepoint)

    @property
    def rescales(self) -> list[Rescale]:
        """The last rescale requests, oldest first."""
        return self._rescaler.asked

    def barriers(self, checkpoint_id: int) -> tuple[BarrierEvent, ...] | None:
        """Return the barrier events of a checkpoint, or None if they are no longer stored."""
        return self.env.log.events(checkpoint_id)

    def tasks_of(self) -> Iterator[tuple[str, list[Task]]]:
        """Yield each vertex id with its subtasks by index, in topological order."""
        for vertex, group in groupby(self.tasks, key=lambda t: t.spec.id):
            yield vertex, list(group)

    @property
    def queued_bytes(self) -> int:
        """Bytes in all queues between subtasks. An unaligned checkpoint would persist about as many bytes."""
        waiting = sum(channel.queued[1] for task in self.tasks for channel in task.gate.channels)
        return waiting + sum(output.queued[1] for task in self.tasks for output in task.outputs)

    # --- deploying ------------------------------------------------------------------------------------------------

    def _deploy(self, _: object) -> None:
        graph = self.env.graph
        try:
            restored = self.restore_point.read()
        except CorruptCheckpointError as error:
            self._end("CorruptCheckpointError", str(error))
            return
        self.status = JobStatus.RUNNING
        if self.restore_point.begun_from is not None:
            # Attempt numbers continue after those of the earlier run, because the transactions of the earlier run may
            # still be open.
            self.attempt = max(self.attempt, 1 + self.ledger.newest_attempt)
        self._past_steps = self._all_steps()
        self.env.finish_steps.clear()
        self.tasks = [
            Task(
                self.env,
                spec,
                (v, index),
                attempt=self.attempt,
                on_running=self._on_task_running,
            )
            for v, spec in enumerate(graph.vertices)
            for index in range(spec.parallelism)
        ]
        tasks = {(task.spec.id, task.index): task for task in self.tasks}
        for edge in range(len(graph.edges)):
            connect(self.env, edge, tasks)
        assignment, has_channel_state, lost_bytes = assigned(restored, graph, self.config)
        if self.attempt or restored:
            self.restored_id = restored.id if restored else None
            self.restored_at_us = self.now_us if restored else None
            self.coordinator.restored_count += restored is not None
        if self.env.is_size_only:
            assignment = replace(assignment, snapshots=sized(assignment.snapshots))
        self.coordinator.begin(self.tasks)
        self.debloating.begin(self.tasks)
        for task in self.tasks:
            task.start(
                assignment.snapshots.get(task.key),
                checkpoint_id=restored.id if restored else 0,
                has_channel_state=has_channel_state,
                rescaled=assignment.rescaled,
            )
        restart = self._newest_start
        if restart is not None and restart.deployed_at_us is None:
            restart.deployed_at_us = self.now_us
            restart.restored_id = restored.id if restored else None
            restart.lost_channel_bytes = lost_bytes
            restart.repeated_records = restored.repeatable_records if restored else 0
            restart.subtasks = {task.key: task.initialization for task in self.tasks}
            restart.source_offsets = self._reached.of(self.tasks, assignment.snapshots)
            for task in self.tasks:
                if task.sourcing is not None:
                    task.sourcing.restart = restart

    @property
    def _newest_start(self) -> Restart | None:
        return self.restarts[-1] if self.restarts else self.start

    def _all_steps(self) -> tuple[int, int]:
        """Return the number of steps and a hash of their times, over this attempt and all earlier ones."""
        count, folded = self._past_steps
        for task in self.tasks:
            count += task.steps.count
            folded = mix64(folded ^ mix64(task.steps.count ^ mix64(task.steps.squares)))
        return count, folded

    def _on_savepoint_due(self, savepoint: SavepointSpec) -> None:
        if savepoint.stop is None:
            self.coordinator.triggering.request_savepoint(savepoint.format)
        else:
            self.coordinator.request_stop(savepoint.format, drains=savepoint.stop is Stop.DRAIN)

    # --- failing --------------------------------------------------------------------------------------------------

    def _on_checkpoint_failures(self, message: str) -> None:
        self._fail("FlinkRuntimeException", message, None)

    def _on_finished(self) -> None:
        for each in self.tasks:
            each.increments.close()
            each.checkpointing.channel_state.close()
        self.env.channel_files.close()
        self.status = JobStatus.FINISHED
        self.ended_at_us = self.now_us

    def _fail(self, name: str, message: str, task: str | None) -> None:
        """Fail the job. Volatile state is lost, and the job restarts from its newest checkpoint (CO-13)."""
        self._excepted(name, message, task)
        self._stop(f"{name}: {message}")

    def _excepted(self, name: str, message: str, task: str | None) -> None:
        self.exceptions.insert(0, JobFailure(self.now_us, name, message, task))
        del self.exceptions[_EXCEPTIONS_KEPT:]

    def _stop(self, cause: str) -> None:
        """Stop this attempt, and start the next one after the restart delay.

        If the job fails while it stops with a savepoint, and the savepoint is already complete, a setting may end the
        job instead of restarting it (FN-30).
        """
        for each in self.tasks:
            each.settle()
        self._reached.note(self.tasks)
        if (newest := self._newest_start) is not None and newest.running_at_us is None:
            newest.is_interrupted = True
        self.restarts.append(Restart(self.now_us, cause, self._reached.of(self.tasks, {})))
        stop = self.coordinator.triggering.stop
        self._kill()
        if stop is not None and stop.completed_at_us is not None and self.config.on_stop_failure is OnStopFailure.FAIL:
            self._end("StopWithSavepointStoppingException", f"the job failed after its savepoint {stop.checkpoint_id}")
            return
        self.status = JobStatus.RESTARTING
        self.restart_count += 1
        self.attempt += 1
        self.scheduler.after(self.config.restart_delay_us, EventClass.TIMER, self._redeploy, self.attempt)

    def _kill(self) -> None:
        """End all subtasks of this attempt at once, and what is in progress."""
        for each in self.tasks:
            each.kill()
            for channel in each.gate.channels:
                if isinstance(channel, RemoteChannel):
                    channel.is_dead = True
        self.coordinator.suspend()
        self.env.store.forget()

    def _end(self, name: str, message: str) -> None:
        """End the job as FAILED, without a restart from an older checkpoint, which would commit records twice."""
        self._excepted(name, message, None)
        self.status = JobStatus.FAILED
        self.ended_at_us = self.now_us

    def _restart_as(self, graph: Graph, read: ReadCheckpoint | None, cause: str) -> Restart:
        """Restart the job with another graph. It restores ``read``, or a newer checkpoint if one has completed."""
        self.restore_point.begun_from = read
        self._stop(cause)
        self.env.local.clear()
        self.env.graph = graph
        return self.restarts[-1]

    def _redeploy(self, attempt: int) -> None:
        if attempt == self.attempt:
            self._deploy(None)

    def _on_task_running(self) -> None:
        if all(task.status is TaskStatus.RUNNING for task in self.tasks):
            self.status = JobStatus.RUNNING

    def _sample(self, _: object) -> None:
        now = self.now_us
        for task in self.tasks:
            if not task.is_dead:
                task.sample(now)
        self.scheduler.after(self.config.metric_period_us, EventClass.TIMER, self._sample)


def _environment(
    spec: JobSpec,
    graph: Graph,
    scheduler: Scheduler,
    *,
    seed: int,
    keeps_rows: bool,
    is_size_only: bool,
    is_stepwise: bool,
) -> Environment:
    config, began_at_us = spec.config, scheduler.now
    return Environment(
        scheduler=scheduler,
        config=config,
        graph=graph,
        faults=Faults(spec.faults, lambda: scheduler.now - began_at_us),
        store=SnapshotStore(
            scheduler,
            latency_us=spec.store.latency_us,
            bytes_per_s=spec.store.bytes_per_s,
            upload_bytes_per_s=spec.store.upload_bytes_per_s,
        ),
        ledger=TransactionLedger(
            lambda: scheduler.now, keeps_rows=keeps_rows, timeout_us=config.transaction_timeout_us
        ),
        log=BarrierLog(kept=config.history_size),
        provenance=Provenance(is_kept=keeps_rows),
        seed=seed,
        is_size_only=is_size_only,
        is_stepwise=is_stepwise,
    )
