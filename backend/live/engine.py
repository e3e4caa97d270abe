"""Runs one job in the live runtime, and translates the state of its engine into ``JobView``.

The reference runtime does not know the REST, so this module translates its values into Flink's. It follows two
conventions of Flink: a checkpoint is unaligned if a subtask persisted in-flight bytes, and the checkpointed size
includes these bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from backend.domain import losses, restore_effects, spelling
from backend.domain.barriers import BarrierEvent, ChannelId
from backend.domain.errors import PlanError
from backend.domain.ids import VertexId
from backend.live import measure_json
from backend.live.view import (
    AckView,
    BegunFrom,
    CheckpointView,
    CompletedFigures,
    ConfigView,
    Counts,
    ExceptionView,
    FlinkCheckpointState,
    FlinkJobState,
    GateView,
    InputView,
    JobView,
    RatesView,
    RequestedCheckpointView,
    SavepointView,
    SubtaskView,
    TaskState,
    VertexView,
)
from backend.live.wire import Json, Object
from backend.runtime.coordinator.rescales import rescaled_graph
from backend.runtime.engine.debloating import GateDebloater
from backend.runtime.engine.handover import begin, kept_checkpoint, save
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job import config as settings
from backend.runtime.job.config import LIVE_CONFIG_KEYS, UNLIMITED
from backend.runtime.job.graph import Graph, Partitioner
from backend.runtime.measure.measures import CheckpointState, MeasuredCheckpoint, TaskKey
from backend.runtime.measure.requested import RequestedFormat
from backend.runtime.network.remote_channel import RemoteChannel
from backend.runtime.operators.storage import LostTransaction
from backend.runtime.protocols.registry import other_protocol
from backend.runtime.snapshot.checked import as_corrupt
from backend.runtime.snapshot.saved import RestoreOptions, SavedCheckpoint
from backend.runtime.task.restarts import Restart
from backend.runtime.task.task import Task

_HOST = "localhost"
_UNLIMITED_FAILURES = 2**31 - 1
_CHANNELS_MAX = 20_000
"""A job with more channels would take seconds to build, in which the service answers nobody, and much memory."""
_STATES: Mapping[CheckpointState, FlinkCheckpointState] = {
    CheckpointState.IN_PROGRESS: FlinkCheckpointState.IN_PROGRESS,
    CheckpointState.COMPLETED: FlinkCheckpointState.COMPLETED,
    CheckpointState.FAILED: FlinkCheckpointState.FAILED,
}


def build_live_engine(spec: JobSpec, *, seed: int | None = None) -> RuntimeEngine:
    """Return the engine of one job, at virtual time 0."""
    engine = JobEngine(spec, seed=seed)
    # This deploys the job, so that even a request before the driver's first slice gets the subtasks of every vertex.
    engine.run_until(0)
    return RuntimeEngine(engine)


def build_from_saved(spec: JobSpec, saved: SavedCheckpoint, options: RestoreOptions, *, location: str) -> RuntimeEngine:
    """Return the engine of a job that continues from a saved checkpoint of a run elsewhere, at that run's virtual time.

    Raises:
        PlanError: the checkpoint cannot be restored into the job.
        CorruptCheckpointError: it is not what a job writes.
    """
    engine = begin(spec, saved, options)
    with as_corrupt():
        engine.run_until(engine.began_at_us)
        read = engine.restore_point.begun_from
        assert read is not None
        kind = read.name_of_kind
    return RuntimeEngine(engine, begun_from=BegunFrom(location, saved.job, kind, options.is_claimed, engine.left_out))


def job_run_id(name: str, origin_epoch_ms: int) -> str:
    """Return the id of one execution of a job, with 32 hexadecimal digits as in Flink."""
    return hashlib.blake2b(f"{name}/{origin_epoch_ms}".encode(), digest_size=16).hexdigest()


def check_channels(graph: Graph) -> None:
    """Check that a job of this graph is small enough to be built between two requests.

    Raises:
        PlanError: the graph has too many channels.
    """
    if graph.channel_count > _CHANNELS_MAX:
        raise PlanError(
            f"{graph.channel_count} channels between subtasks",
            rule="G-6",
            vertex=None,
            fix=f"at most {_CHANNELS_MAX} in a live job: set a lower parallelism",
        )


class RuntimeEngine:
    """Implements ``driver.LiveEngine`` with the engine of the reference runtime."""

    def __init__(self, engine: JobEngine, *, begun_from: BegunFrom | None = None) -> None:
        self._engine = engine
        self._begun_from = begun_from
        """The checkpoint of another job from which the job began, or None."""
        self._effects_seen: dict[str, int] = {}
        """When each effect of a restore was first seen, in virtual microseconds, by its text."""
        spec = engine.spec
        self._vertex_ids = {
            v.id: hashlib.blake2b(f"{spec.name}/{v.id}".encode(), digest_size=16).hexdigest()
            for v in spec.graph.vertices
        }

    @property
    def name(self) -> str:
        """The name of the job."""
        return self._engine.spec.name

    @property
    def is_over(self) -> bool:
        """Whether the job has ended, for whatever reason."""
        return self._engine.ended_at_us is not None

    @property
    def now_us(self) -> int:
        """The current virtual time."""
        return self._engine.now_us

    def cancel(self) -> None:
        """End the job at once. Its completed checkpoints stay."""
        self._engine.cancel()

    def break_off(self, error: Exception) -> None:
        """End the job as FAILED after ``run_until`` raised an error, which becomes an exception of the job."""
        words = f"{error} (a fault of the runtime, not of the job; the log of the role runtime has its place)"
        self._engine.break_off(type(error).__name__, words)

    def successor(
        self, checkpoint_id: int, spec: JobSpec | None, options: RestoreOptions, *, location: str
    ) -> RuntimeEngine:
        """Return the engine of a job that continues this one, which has ended. ``spec``: None for the same job.

        ``location`` is that of the checkpoint.

        Raises:
            UnknownEntityError: there is no such checkpoint.
            PlanError: the checkpoint cannot be restored into the job, or not now.
        """
        if not self.is_over:
            raise PlanError(
                "the job still runs, and both would write to its external system",
                rule="SNK-3",
                vertex=None,
                fix="stop it with a savepoint or cancel it first",
            )
        kept = kept_checkpoint(self._engine, checkpoint_id, is_at_own_risk=options.is_at_own_risk)
        own = self._engine.spec if spec is None else spec
        return build_from_saved(own, save(self._engine, kept), options, location=location)

    def run_until(self, at_us: int) -> None:
        """Run the job up to and including virtual time ``at_us``."""
        self._engine.run_until(at_us)

    def barriers(self, checkpoint_id: int) -> Sequence[BarrierEvent] | None:
        """Return the barrier events of one checkpoint, with the vertex ids of the REST; None if no events are known."""
        events = self._engine.barriers(checkpoint_id)
        return None if events is None else [self._shown(event) for event in events]

    def measurements(self, checkpoint_id: int) -> Object | None:
        """Return the values of one checkpoint that only this runtime measures; None if the checkpoint is not known."""
        engine = self._engine
        record = next((r for r in engine.coordinator.history if r.id == checkpoint_id), None)
        return None if record is None else measure_json.checkpoint(record, record.graph, self._vertex_ids)

    def restarts(self) -> list[Json]:
        """Return the cost of each of the last restarts, newest first, and of the start from a checkpoint, if any."""
        return measure_json.restarts(self._starts(), self._engine.env.graph, self._vertex_ids)

    def _starts(self) -> list[Restart]:
        start = self._engine.start
        return [*([] if start is None else [start]), *self._engine.restarts]

    def settings(self) -> Mapping[str, str]:
        """Return the settings that can change while the job runs, with their current values."""
        return settings.show(self._engine.config, LIVE_CONFIG_KEYS)

    def change_settings(self, changes: Mapping[str, str]) -> None:
        """Apply all of ``changes``, or none of them.

        Raises:
            InvalidInputError: a key cannot change while the job runs, or a value is out of bounds.
            PlanError: the settings contradict each other.
        """
        self._engine.set_config(changes)

    def check_settings(self, changes: Mapping[str, str]) -> None:
        """Raise what ``change_settings`` would raise. Nothing changes."""
        settings.change(self._engine.config, changes, live=True, where="")

    def trigger_savepoint(self, form: str) -> int:
        """Request a savepoint at the current virtual time. Return the number of the request."""
        return self._engine.request_savepoint(RequestedFormat(form)).number

    def stop(self, form: str, *, drains: bool) -> int:
        """Request a stop of the job with a savepoint. Return the number of the request."""
        return self._engine.request_stop(RequestedFormat(form), drains=drains).number

    def trigger_checkpoint(self, *, is_full: bool) -> int:
        """Request a checkpoint at the current virtual time. Return the number of the request."""
        return self._engine.request_checkpoint(is_full=is_full).number

    def abort_checkpoint(self, checkpoint_id: int) -> bool:
        """Abort a checkpoint in progress. Return whether it was in progress."""
        return self._engine.abort_checkpoint(checkpoint_id)

    def requested_checkpoint(self, number: int) -> RequestedCheckpointView | None:
        """Return the state of a requested checkpoint, or None if the request is not known."""
        asked = self._engine.coordinator.triggering.checkpoint_requests.get(number)
        if asked is None:
            return None
        return RequestedCheckpointView(asked.requested_at_us, asked.ended_at_us, asked.checkpoint_id, asked.message)

    def rescale(self, parallelism: Mapping[str, int], *, from_savepoint: bool) -> None:
        """Restart the job with a new parallelism for each named vertex.

        The keys of ``parallelism`` are the vertex ids that the REST API shows.

        Raises:
            PlanError: the job cannot run or be restored with the new parallelism. The job continues unchanged.
        """
        own = {shown: vertex for vertex, shown in self._vertex_ids.items()}
        wanted = {own[v]: p for v, p in parallelism.items()}
        check_channels(rescaled_graph(self._engine.env.graph, wanted))
        self._engine.rescale(wanted, from_savepoint=from_savepoint)

    def rescales(self) -> list[Json]:
        """Return the last requested changes of parallelism, newest first."""
        return measure_json.rescales(self._engine.rescales, self._vertex_ids)

    def savepoint(self, number: int, job_id: str) -> SavepointView | None:
        """Return the state of a requested savepoint, or None if the request is not known."""
        asked = self._engine.coordinator.triggering.savepoint_requests.get(number)
        if asked is None:
            return None
        is_complete = asked.ended_at_us is not None and asked.reason is None
        return SavepointView(
            requested_at_us=asked.requested_at_us,
            ended_at_us=asked.ended_at_us,
            location=f"runtime:/{job_id}/savepoint-{asked.checkpoint_id}" if is_complete else None,
            failure_message=asked.message,
        )

    def view(self, *, job_id: str, origin_epoch_ms: int, lag_ms: int) -> JobView:
        """Return the current values that the REST shows."""
        engine, coordinator = self._engine, self._engine.coordinator
        latest, failed = coordinator.latest_completed, coordinator.latest_failed
        savepoint = coordinator.latest_savepoint
        return JobView(
            id=job_id,
            name=engine.spec.name,
            state=FlinkJobState(engine.status),
            origin_epoch_ms=origin_epoch_ms,
            began_at_us=engine.began_at_us,
            now_us=engine.now_us,
            ended_at_us=engine.ended_at_us,
            restarts=engine.restart_count,
            vertices=self._vertices(),
            config=self._config(),
            counts=Counts(
                restored=coordinator.restored_count,
                total=coordinator.total_count,
                in_progress=coordinator.in_progress_count,
                completed=coordinator.completed_count,
                failed=coordinator.failed_count,
            ),
            history=tuple(self._checkpoint(r, job_id) for r in coordinator.history),
            latest_completed=None if latest is None else self._checkpoint(latest, job_id),
            latest_failed=None if failed is None else self._checkpoint(failed, job_id),
            latest_savepoint=None if savepoint is None else self._checkpoint(savepoint, job_id),
            restored_id=engine.restored_id,
            restored_at_us=engine.restored_at_us,
            restored_is_savepoint=engine.restored_id in coordinator.savepoints or engine.is_restored_from_savepoint,
            begun_from=self._begun_from if engine.is_restored_from_other else None,
            completed=tuple(_figures(r, origin_epoch_ms) for r in coordinator.all_completed),
            exceptions=tuple(ExceptionView(f.at_us, f.name, f.message, f.task) for f in engine.exceptions),
            losses=self._losses(),
            effects=self._effects(),
            lost_rows=engine.ledger.lost_count,
            overdue_rows=engine.ledger.overdue[1],
            lag_ms=lag_ms,
        )

    def _losses(self) -> tuple[ExceptionView, ...]:
        timeout_ms = self._engine.config.transaction_timeout_us // 1000
        return tuple(
            ExceptionView(x.at_us, losses.EXCEPTION, losses.timed_out(x.row_count, 1, timeout_ms), _task_name(x))
            for x in self._engine.ledger.losses
        )

    def _effects(self) -> tuple[ExceptionView, ...]:
        """Return what the restores of this job changed for its records, each at the time at which it was known."""
        known: dict[str, int] = {}
        for one in self._starts():
            if one.deployed_at_us is None:
                continue
            at = spelling.duration(one.failed_at_us / 1000)
            origin = one.restored_id if self._begun_from is None else self._begun_from.location
            when = f"start from {origin}" if one.is_start else f"restart at {at}"
            for text in restore_effects.told(one.costs, f"after the {when}", says_unknown=False):
                known[text] = self._effects_seen.get(text, self._engine.now_us)
        self._effects_seen = known
        return tuple(ExceptionView(at_us, restore_effects.EXCEPTION, text, None) for text, at_us in known.items())

    def _shown(self, event: BarrierEvent) -> BarrierEvent:
        channel = event.channel
        shown = None
        if channel is not None:
            shown = ChannelId(
                VertexId(self._vertex_ids[channel.source]),
                VertexId(self._vertex_ids[channel.target]),
                channel.source_subtask,
                channel.target_subtask,
            )
        return replace(event, vertex_id=VertexId(self._vertex_ids[event.vertex_id]), channel=shown)

    def _vertices(self) -> tuple[VertexView, ...]:
        graph = self._engine.env.graph
        by_vertex = dict(self._engine.tasks_of())
        now_us = self._engine.now_us
        return tuple(
            VertexView(
                id=self._vertex_ids[spec.id],
                name=spec.name,
                parallelism=spec.parallelism,
                max_parallelism=spec.effective_max_parallelism,
                inputs=tuple(
                    InputView(self._vertex_ids[graph.edges[e].source], _ship_strategy(graph.edges[e].partitioner))
                    for e in graph.inputs(spec.id)
                ),
                subtasks=tuple(
                    _subtask(
                        task,
                        now_us,
                        self._engine.debloating.gates(task.key),
                        self._engine.ledger.lost_of(spec.id, task.index, parallelism=spec.parallelism)
                        if spec.kind.has_sink
                        else None,
                    )
                    for task in by_vertex.get(spec.id, [])
                ),
            )
            for spec in graph.vertices
        )

    def _config(self) -> ConfigView:
        config = self._engine.config
        unlimited = config.tolerable_failures == UNLIMITED
        return ConfigView(
            is_exactly_once=config.is_exactly_once,
            interval_ms=config.interval_us // 1000,
            timeout_ms=config.timeout_us // 1000,
            min_pause_ms=config.min_pause_us // 1000,
            max_concurrent=config.max_concurrent,
            # Flink has no Chandy-Lamport checkpoints. They are reported as unaligned, because they contain in-flight
            # data, and ``protocol`` names them.
            is_unaligned=config.logs_in_flight,
            aligned_timeout_ms=0 if config.is_chandy_lamport else config.aligned_timeout_us // 1000,
            tolerable_failures=_UNLIMITED_FAILURES if unlimited else config.tolerable_failures,
            state_backend=config.state_backend.value,
            is_incremental=config.is_incremental,
            inflight_cap_bytes=None if config.cap_bytes == UNLIMITED else config.cap_bytes,
            debloat_target_ms=config.debloat_target_us // 1000 if config.is_debloating else None,
            protocol=other_protocol(config),
            spilling=config.spilling.value if config.logs_in_flight else None,
            checkpoints_after_end=config.checkpoints_after_end,
        )

    def _checkpoint(self, record: MeasuredCheckpoint, job_id: str) -> CheckpointView:
        acks: dict[str, tuple[AckView | None, ...]] = {}
        for v, spec in enumerate(record.graph.vertices):
            acks[self._vertex_ids[spec.id]] = tuple(_ack(record, (v, i)) for i in range(spec.parallelism))
        return CheckpointView(
            id=record.id,
            state=_STATES[record.state],
            is_unaligned=record.persisted_bytes > 0,
            triggered_at_us=record.triggered_at_us,
            acks=acks,
            failed_at_us=record.failed_at_us,
            failure_message=record.message,
            external_path=_location(record, job_id) if record.state is CheckpointState.COMPLETED else None,
            is_discarded=record.is_discarded,
            savepoint_format=None if record.savepoint is None else record.savepoint.format.value,
            is_synchronous=record.barrier.snapshot_type.is_synchronous,
            protocol=record.barrier.alignment.protocol,
            cap_bound_count=record.cap_bound_count,
        )


def _location(record: MeasuredCheckpoint, job_id: str) -> str:
    return f"runtime:/{job_id}/{'savepoint' if record.is_savepoint else 'chk'}-{record.id}"


def _ack(record: MeasuredCheckpoint, key: TaskKey) -> AckView | None:
    if key in record.finished:
        # Flink shows a subtask that had finished as one that acknowledged at the trigger, with nothing to write.
        return AckView(record.triggered_at_us, 0, 0, 0, 0, 0, 0, 0, 0)
    ack = record.acks.get(key)
    if ack is None:
        return AckView(record.triggered_at_us) if key in record.finished else None
    m = ack.measured
    return AckView(
        at_us=ack.at_us,
        start_delay_us=m.start_delay_us,
        alignment_us=m.alignment_us or 0,
        sync_us=m.sync_us or 0,
        async_us=m.async_us or 0,
        checkpointed_bytes=m.written_bytes + m.persisted_bytes,
        state_bytes=m.state_bytes + m.persisted_bytes,
        processed_bytes=m.processed_bytes or 0,
        persisted_bytes=m.persisted_bytes,
    )


def _figures(record: MeasuredCheckpoint, origin_epoch_ms: int) -> CompletedFigures:
    latest_us = record.latest_ack_us
    assert latest_us is not None
    return CompletedFigures(
        # Both instants are rounded to whole milliseconds first, so that the summary agrees with the details.
        end_to_end_ms=(origin_epoch_ms + latest_us // 1000) - (origin_epoch_ms + record.triggered_at_us // 1000),
        checkpointed_bytes=record.written_bytes + record.persisted_bytes,
        state_bytes=record.state_bytes + record.persisted_bytes,
        processed_bytes=record.processed_bytes,
        persisted_bytes=record.persisted_bytes,
    )


def _ship_strategy(partitioner: Partitioner) -> str:
    return partitioner.value.upper()


def _host_of(task: Task) -> str:
    """Return the name of the subtask's machine. With several task managers, each is a machine of its own."""
    count = task.env.config.task_managers
    return f"host-{task.index % count}" if count > 1 else _HOST


def _task_name(lost: LostTransaction) -> str:
    return f"{lost.vertex}/{lost.subtask}"


def _subtask(task: Task, now_us: int, gates: Sequence[GateDebloater], lost: tuple[int, int] | None) -> SubtaskView:
    busy_us, idle_us, soft_us, hard_us = task.account.settle(now_us)
    busy, idle, soft, hard = task.account.ms_per_s()
    channels = task.gate.channels
    remote = [c for c in channels if isinstance(c, RemoteChannel)]
    floating_size = sum(pool.size for pool in task.floating.values())
    floating_used = sum(pool.size - pool.free for pool in task.floating.values())
    queued = [c.queued for c in channels]
    out = [output.queued for output in task.outputs]
    size = sum(output.pool.size for output in task.outputs)
    totals = task.totals
    return SubtaskView(
        status=TaskState(task.status.value),
        host=_host_of(task),
        attempt=task.attempt,
        started_at_us=task.started_us,
        ended_at_us=task.ended_us,
        records_in=task.records_in,
        records_out=task.records_out,
        bytes_in=sum(c.bytes_received for c in channels),
        bytes_out=task.bytes_out,
        busy_us=None if task.spec.is_legacy else busy_us,
        idle_us=idle_us,
        backpressured_us=soft_us + hard_us,
        busy_ms_per_s=None if task.spec.is_legacy else busy,
        idle_ms_per_s=idle,
        soft_backpressured_ms_per_s=soft,
        hard_backpressured_ms_per_s=hard,
        longest_soft_us=task.account.longest_us[0],
        longest_hard_us=task.account.longest_us[1],
        out_pool_usage_ratio=sum(o.pool.requested for o in task.outputs) / size if size else 0.0,
        in_exclusive_usage_ratio=_share(sum(c.exclusive_in_use for c in remote), sum(c.exclusive_size for c in remote)),
        in_floating_usage_ratio=_share(floating_used, floating_size),
        in_queue_buffers=sum(buffers for buffers, _ in queued),
        in_queue_bytes=sum(size_bytes for _, size_bytes in queued),
        out_queue_buffers=sum(buffers for buffers, _ in out),
        out_queue_bytes=sum(size_bytes for _, size_bytes in out),
        start_delay_gauge_us=task.checkpointing.start_delay_gauge_us,
        alignment_gauge_us=task.checkpointing.alignment_gauge_us,
        mailbox_size=task.mail_count,
        rates=RatesView(*task.rates.per_s()),
        mail_waits_us=tuple(task.mail_latency.row_us()),
        buffers_in=totals.buffers_in,
        buffers_out=totals.buffers_out,
        fired_timers=totals.fired_timers,
        buffers_in_remote=totals.buffers_in_remote,
        gates=tuple(GateView(g.estimator.announced_bytes, g.estimator.time_to_consume_ms) for g in gates),
        lost=lost,
    )


def _share(used: int, size: int) -> float:
    return used / size if size else 0.0
