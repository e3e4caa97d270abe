"""Runs a job as fast as the machine can, and returns its results.

The same job, settings and seed give the same results (DET-4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from backend.runtime.coordinator.rescales import Rescale
from backend.runtime.engine.handover import begin, newest_of, save
from backend.runtime.engine.jobfile import JobSpec
from backend.runtime.engine.kernel import NO_OPTIONS, JobEngine
from backend.runtime.job import config as settings
from backend.runtime.measure.measures import MeasuredCheckpoint
from backend.runtime.measure.requested import Savepoint
from backend.runtime.snapshot.checked import as_corrupt
from backend.runtime.snapshot.metadata import read_checkpoint
from backend.runtime.snapshot.saved import RestoreOptions, SavedCheckpoint
from backend.runtime.task.restarts import Restart

_SLICE_US = 250_000
_MESSAGE = "microseconds are virtual time; null means unknown"


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The results of one run. ``barrierscope simulate --format json`` prints ``to_json()``."""

    document: Mapping[str, Any]
    saved: SavedCheckpoint | None = None
    """The newest checkpoint or savepoint of the run, if it was to be saved and there is one."""
    has_newer: bool = False
    """Whether a checkpoint of this run is complete, so that it needs the one that it began from no longer (IN-16)."""

    def to_json(self) -> dict[str, Any]:
        """Return the results as plain values. They do not depend on the machine or the time of day."""
        return dict(self.document)

    @property
    def saved_as(self) -> dict[str, Any]:
        """What tells ``saved`` from other checkpoints, as plain values. Empty if there is none."""
        return {} if self.saved is None else _shown(self.saved)


def simulate(
    spec: JobSpec,
    *,
    duration_us: int,
    seed: int | None = None,
    progress: Callable[[int], None] | None = None,
    is_size_only: bool = False,
    begun_from: SavedCheckpoint | None = None,
    options: RestoreOptions = NO_OPTIONS,
    saves: bool = False,
) -> SimulationResult:
    """Run ``spec`` for ``duration_us``, from virtual time 0 or from the time of the checkpoint ``begun_from``.

    ``progress`` is called with the virtual time of the run after every 0.25 s. ``is_size_only`` makes the run faster
    and changes no result: only the sizes of records are tracked, not their bytes. ``options`` are those of the restore.
    ``saves`` adds the newest checkpoint to the result.

    If a rescale of the job file is refused (RS-11), the job goes on without it, and the results contain the refusal.

    Raises:
        PlanError: the job cannot continue from ``begun_from``.
        CorruptCheckpointError: ``begun_from`` is not what a job writes.
    """
    if begun_from is None:
        engine = JobEngine(spec, seed=seed, is_size_only=is_size_only)
    else:
        engine = begin(spec, begun_from, options, is_size_only=is_size_only)
    terminal: list[MeasuredCheckpoint] = []
    engine.coordinator.on_terminal = terminal.append
    with nullcontext() if begun_from is None else as_corrupt():
        _run(engine, duration_us, progress)
    newest = newest_of(engine) if saves else None
    return SimulationResult(
        _document(engine, terminal, begun_from, options),
        None if newest is None else save(engine, newest),
        engine.coordinator.newest is not None,
    )


def _run(engine: JobEngine, duration_us: int, progress: Callable[[int], None] | None) -> None:
    at_us = 0
    while at_us < duration_us:
        at_us = min(duration_us, at_us + _SLICE_US)
        engine.run_until(engine.began_at_us + at_us)
        if progress is not None:
            progress(at_us)


def _document(
    engine: JobEngine, terminal: list[MeasuredCheckpoint], begun_from: SavedCheckpoint | None, options: RestoreOptions
) -> dict[str, Any]:
    coordinator = engine.coordinator
    return {
        "job": engine.spec.name,
        "seed": engine.seed,
        "began_at_us": engine.began_at_us,
        "begun_from": None if begun_from is None else _begun_from(engine, begun_from, options),
        "virtual_time_us": engine.now_us,
        "settings": settings.show(engine.config),
        "trace_hash": engine.trace_hash,
        "event_count": engine.event_count,
        "restart_count": engine.restart_count,
        "committed_records": engine.ledger.committed_count,
        "committed_hash": f"{engine.ledger.folded:016x}",
        "lost_transactions": len(engine.ledger.lost),
        "lost_records": engine.ledger.lost_count,
        "overdue": dict(zip(("transactions", "records"), engine.ledger.overdue, strict=True)),
        "queued_bytes": engine.queued_bytes,
        "counts": {
            "total": coordinator.total_count,
            "completed": coordinator.completed_count,
            "failed": coordinator.failed_count,
            "in_progress": coordinator.in_progress_count,
            "restored": coordinator.restored_count,
        },
        "channel_files": _channel_files(engine, terminal),
        "status": engine.status,
        "ended_at_us": engine.ended_at_us,
        "rescales": [_rescale(rescale) for rescale in engine.rescales],
        "restarts": [_restart(restart) for restart in engine.restarts],
        "stops": [_stop(s) for s in coordinator.triggering.savepoint_requests.values() if s.kind.is_synchronous],
        "summary": _summary(terminal),
        "checkpoints": [_checkpoint(engine, record) for record in terminal],
        "vertices": [_vertex(engine, name) for name, _ in engine.tasks_of()],
        "failures": [{"at_us": f.at_us, "name": f.name, "message": f.message} for f in engine.exceptions],
        "note": _MESSAGE,
    }


def _begun_from(engine: JobEngine, saved: SavedCheckpoint, options: RestoreOptions) -> dict[str, Any]:
    """Return the checkpoint from which the run began, what was allowed, and what the start cost and changed."""
    outside = saved.handover.outside
    return _shown(saved) | {
        "is_claimed": options.is_claimed,
        "at_own_risk": list(engine.at_own_risk),
        "left_out": list(engine.left_out),
        "committed_before": outside.committed_count,
        "lost_before": {"transactions": len(outside.lost), "records": outside.lost_count},
        "cost": None if engine.start is None else _restart(engine.start),
    }


def _shown(saved: SavedCheckpoint) -> dict[str, Any]:
    """Return what tells a saved checkpoint from others, as plain values."""
    read = read_checkpoint(saved.stored)
    return {
        "job": saved.job,
        "id": read.id,
        "kind": read.name_of_kind,
        "triggered_at_us": read.triggered_at_us,
        "saved_at_us": saved.handover.at_us,
        "persisted_bytes": read.persisted_bytes,
    }


def _channel_files(engine: JobEngine, terminal: list[MeasuredCheckpoint]) -> dict[str, Any]:
    """Return the sums of the files of channel state (FM-4, SP-5): files of checkpoints, shared files, or spill logs."""
    config, store = engine.config, engine.env.channel_files.store
    if not (config.spills_continuously or config.merges_files or config.are_buffers_incremental):
        kept = {completed.record.id for completed in engine.coordinator.completed}
        writes = [(record.id in kept, record.channel_write) for record in terminal if record.acks]
        return {
            "created": sum(write.new_files for _, write in writes),
            "deleted": sum(write.new_files for is_kept, write in writes if not is_kept),
            "written_bytes": sum(write.written_bytes for _, write in writes),
            "stored_bytes": sum(write.written_bytes for is_kept, write in writes if is_kept),
        }
    return {
        "created": store.created_count,
        "deleted": store.deleted_count,
        "written_bytes": store.written_bytes,
        "stored_bytes": store.stored_bytes,
    }


def _rescale(rescale: Rescale) -> dict[str, Any]:
    return {
        "requested_at_us": rescale.requested_at_us,
        "stopped_at_us": rescale.stopped_at_us,
        "parallelism": {v: {"before": rescale.before[v], "after": p} for v, p in sorted(rescale.parallelism.items())},
        "from": "savepoint" if rescale.from_savepoint else "checkpoint",
        "restored_id": rescale.restored_id,
        "persisted_bytes": rescale.persisted_bytes,
        "status": rescale.status,
        "refusal": None if rescale.refusal is None else str(rescale.refusal),
        "cost": None if rescale.restart is None else _restart(rescale.restart),
    }


def _restart(restart: Restart) -> dict[str, Any]:
    """Return the times and costs of one restart, after a failure or for a rescale."""
    running_us = restart.running_at_us
    return {
        "stopped_at_us": restart.failed_at_us,
        "cause": restart.cause,
        "restored_id": restart.restored_id,
        "running_at_us": running_us,
        "until_running_us": None if running_us is None else running_us - restart.failed_at_us,
        **restart.costs,
    }


def _stop(savepoint: Savepoint) -> dict[str, Any]:
    """Return times and result of one stop with a savepoint. ``ended_at_us`` is None while the job is stopping."""
    return {
        "requested_at_us": savepoint.requested_at_us,
        "drains": savepoint.kind.drains,
        "savepoint_id": savepoint.checkpoint_id,
        "savepoint_completed_at_us": savepoint.completed_at_us,
        "ended_at_us": savepoint.ended_at_us,
        "reason": None if savepoint.reason is None else savepoint.reason.value,
        "message": savepoint.message,
    }


def _summary(terminal: list[MeasuredCheckpoint]) -> dict[str, Any]:
    completed = [r for r in terminal if r.failed_at_us is None and not r.is_savepoint]
    durations = sorted(r.end_to_end_us or 0 for r in completed)
    persisted = sorted(r.persisted_bytes for r in completed)
    return {
        "end_to_end_us": {"median": _quantile(durations, 0.5), "p95": _quantile(durations, 0.95)},
        "persisted_bytes": {"median": _quantile(persisted, 0.5), "max": persisted[-1] if persisted else None},
    }


def _quantile(ordered: list[int], share: float) -> int | None:
    """Return the nearest-rank quantile of sorted values, or None if there are no values."""
    if not ordered:
        return None
    rank = -(-int(share * 1000) * len(ordered) // 1000)
    return ordered[max(0, min(len(ordered), rank) - 1)]


def _checkpoint(engine: JobEngine, record: MeasuredCheckpoint) -> dict[str, Any]:
    acks = [a.measured for a in record.acks.values()]
    last = max(record.acks.items(), key=lambda item: (item[1].at_us, item[0]), default=None)
    return {
        "id": record.id,
        "type": record.barrier.snapshot_type.value,
        "status": record.state.value,
        "triggered_at_us": record.triggered_at_us,
        "end_to_end_us": record.end_to_end_us,
        "barrier": record.barrier.alignment.value,
        "course": record.course,
        "cap": _cap(record),
        "acknowledged": len(record.acks),
        "total": record.total,
        "reason": None if record.reason is None else record.reason.value,
        "start_delay_max_us": max((m.start_delay_us for m in acks), default=None),
        "alignment_max_us": max((m.alignment_us or 0 for m in acks), default=None),
        "async_max_us": max((m.async_us or 0 for m in acks), default=None),
        "state_bytes": record.state_bytes,
        "written_bytes": record.written_bytes,
        "is_incremental": record.is_incremental,
        "processed_bytes": record.processed_bytes,
        "persisted_bytes": record.persisted_bytes,
        "channel_state": record.channel_write._asdict(),
        "last_subtask": None if last is None else _name(engine, last[0]),
    }


def _cap(record: MeasuredCheckpoint) -> dict[str, Any] | None:
    """Return what the subtasks did at their caps (CAP-7): the number of each action, and the longest wait."""
    decisions = [a.measured.cap for a in record.acks.values() if a.measured.cap is not None]
    if not decisions:
        return None
    actions = Counter(decision.action.value for decision in decisions)
    return {"actions": dict(sorted(actions.items())), "waited_max_us": max(d.waited_us for d in decisions)}


def _name(engine: JobEngine, key: tuple[int, int]) -> str:
    return f"{engine.spec.graph.vertices[key[0]].id}/{key[1]}"


def _vertex(engine: JobEngine, vertex_id: str) -> dict[str, Any]:
    tasks = next(tasks for name, tasks in engine.tasks_of() if name == vertex_id)
    # The time after the end of the job is not idle time.
    after_us = 0 if engine.ended_at_us is None else engine.now_us - engine.ended_at_us
    totals = [
        (busy, max(0, idle - after_us), soft, hard)
        for busy, idle, soft, hard in (t.account.settle(engine.now_us) for t in tasks)
    ]
    elapsed = [max(1, sum(t)) for t in totals]
    return {
        "id": vertex_id,
        "busy_ratio": [
            None if task.spec.is_legacy else round(t[0] / e, 6)
            for task, t, e in zip(tasks, totals, elapsed, strict=True)
        ],
        "idle_ratio": [round(t[1] / e, 6) for t, e in zip(totals, elapsed, strict=True)],
        "backpressured_ratio": [round((t[2] + t[3]) / e, 6) for t, e in zip(totals, elapsed, strict=True)],
        "records_in": [t.records_in for t in tasks],
        "records_out": [t.records_out for t in tasks],
    }
