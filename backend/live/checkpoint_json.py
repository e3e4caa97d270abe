"""Builds the JSON of checkpoints of the live runtime, with the names, units, types and sentinels of Flink 1.20.

The source is recordings of a real cluster (``tests/contract``), not documentation. Flink's peculiarities are repeated
on purpose. Percentiles of an empty set, and all percentiles over subtasks, are the *string* ``"NaN"``. A latest
acknowledgement of -1 means that there is none. ``alignment_buffered`` has no meaning in Flink. An entry in
``history`` has no tasks. The functions have no side effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from backend.contracts.flink import (
    NOT_YET,
    RUNTIME_CAP_BOUND,
    RUNTIME_PROTOCOL,
    RUNTIME_SPILLING,
    TYPE_CHECKPOINT,
    TYPE_SAVEPOINT,
    TYPE_SYNC_SAVEPOINT,
    TYPE_UNALIGNED,
    UNSET_ALIGNED_TIMEOUT_MS,
)
from backend.domain.checkpoint import Guarantee
from backend.live.view import AckView, CheckpointView, FlinkCheckpointState, JobView
from backend.live.wire import Json, Object, quantile

_PERCENTILES = (("p50", 0.50), ("p90", 0.90), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))
# Flink stores the number of tolerable failures in a Java int, whose largest value means unlimited.
_INT_MAX = 2**31 - 1

_FULL_BACKEND = "HashMapStateBackend"
"""Flink's name of the backend that writes the whole state each time."""


def checkpoints(view: JobView) -> Object:
    """Return the JSON of ``/jobs/:id/checkpoints``."""
    counts = view.counts
    done = view.completed
    return {
        "counts": {
            "restored": counts.restored,
            "total": counts.total,
            "in_progress": counts.in_progress,
            "completed": counts.completed,
            "failed": counts.failed,
        },
        "summary": {
            "checkpointed_size": _summary([c.checkpointed_bytes for c in done]),
            "state_size": _summary([c.state_bytes for c in done]),
            "end_to_end_duration": _summary([c.end_to_end_ms for c in done]),
            "alignment_buffered": _dead_summary(),
            "processed_data": _summary([c.processed_bytes for c in done]),
            "persisted_data": _summary([c.persisted_bytes for c in done]),
        },
        "latest": {
            "completed": None if view.latest_completed is None else checkpoint_entry(view, view.latest_completed),
            "savepoint": None if view.latest_savepoint is None else checkpoint_entry(view, view.latest_savepoint),
            "failed": None if view.latest_failed is None else checkpoint_entry(view, view.latest_failed),
            "restored": _restored(view),
        },
        "history": [checkpoint_entry(view, c) for c in view.history],
    }


def checkpoint_config(view: JobView) -> Object:
    """Return the JSON of ``/jobs/:id/checkpoints/config``."""
    settings = view.config
    answer: Object = {
        "mode": (Guarantee.EXACTLY_ONCE if settings.is_exactly_once else Guarantee.AT_LEAST_ONCE).value,
        "interval": settings.interval_ms,
        "timeout": settings.timeout_ms,
        "min_pause": settings.min_pause_ms,
        "max_concurrent": settings.max_concurrent,
        "externalization": {"enabled": False, "delete_on_cancellation": True},
        "state_backend": _FULL_BACKEND if settings.state_backend == "full" else settings.state_backend,
        "checkpoint_storage": "FileSystemCheckpointStorage",
        "unaligned_checkpoints": settings.is_unaligned,
        "tolerable_failed_checkpoints": min(settings.tolerable_failures, _INT_MAX),
        # Flink reports 0 if unaligned checkpoints are off, because the timeout does not apply then.
        "aligned_checkpoint_timeout": settings.aligned_timeout_ms
        if settings.is_unaligned
        else UNSET_ALIGNED_TIMEOUT_MS,
        "checkpoints_after_tasks_finish": settings.checkpoints_after_end,
        "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": 600_000,
        "changelog_storage": "memory",
    }
    if settings.inflight_cap_bytes is not None:
        answer["inflight-cap-bytes"] = settings.inflight_cap_bytes
    if settings.debloat_target_ms is not None:
        answer["debloat-target-ms"] = settings.debloat_target_ms
    if settings.protocol is not None:
        answer[RUNTIME_PROTOCOL] = settings.protocol
    if settings.spilling is not None:
        answer[RUNTIME_SPILLING] = settings.spilling
    return answer


def checkpoint_entry(view: JobView, checkpoint: CheckpointView) -> Object:
    """Return the JSON of one checkpoint in ``history`` and ``latest``, which is its details without the tasks."""
    return _checkpoint(view, checkpoint, {})


def checkpoint_details(view: JobView, checkpoint: CheckpointView) -> Object:
    """Return the JSON of ``/jobs/:id/checkpoints/details/:cid``."""
    tasks: Object = {vid: _task(view, checkpoint, acks) for vid, acks in checkpoint.acks.items()}
    return _checkpoint(view, checkpoint, tasks)


def checkpoint_subtasks(view: JobView, checkpoint: CheckpointView, vertex_id: str) -> Object:
    """Return the JSON of ``/jobs/:id/checkpoints/details/:cid/subtasks/:vid``."""
    acks = checkpoint.acks[vertex_id]
    got = [a for a in acks if a is not None]
    trigger = view.epoch_ms(checkpoint.triggered_at_us)
    return _task(view, checkpoint, acks) | {
        "summary": {
            "checkpointed_size": _min_max_avg(a.checkpointed_bytes for a in got),
            "state_size": _min_max_avg(a.state_bytes for a in got),
            "end_to_end_duration": _min_max_avg(view.epoch_ms(a.at_us) - trigger for a in got),
            "checkpoint_duration": {
                "sync": _min_max_avg(a.sync_us // 1000 for a in got),
                "async": _min_max_avg(a.async_us // 1000 for a in got),
            },
            "alignment": {
                "buffered": _dead_summary(),
                "processed": _min_max_avg(a.processed_bytes for a in got),
                "persisted": _min_max_avg(a.persisted_bytes for a in got),
                "duration": _min_max_avg(a.alignment_us // 1000 for a in got),
            },
            "start_delay": _min_max_avg(a.start_delay_us // 1000 for a in got),
        },
        "subtasks": [_subtask(view, trigger, n, a) for n, a in enumerate(acks)],
    }


def _checkpoint(view: JobView, checkpoint: CheckpointView, tasks: Object) -> Object:
    acks = [a for row in checkpoint.acks.values() for a in row]
    entry: Object = {
        "className": checkpoint.state.lower(),
        "id": checkpoint.id,
        "status": checkpoint.state,
        "is_savepoint": checkpoint.is_savepoint,
        "savepointFormat": checkpoint.savepoint_format,
        "trigger_timestamp": view.epoch_ms(checkpoint.triggered_at_us),
        **_ack_figures(view, checkpoint, acks),
        "checkpoint_type": _type(checkpoint),
        "tasks": tasks,
    }
    if checkpoint.state is FlinkCheckpointState.COMPLETED:
        entry |= {"external_path": checkpoint.external_path, "discarded": checkpoint.is_discarded}
    if checkpoint.protocol is not None:
        entry[RUNTIME_PROTOCOL] = checkpoint.protocol
    if checkpoint.cap_bound_count is not None:
        entry[RUNTIME_CAP_BOUND] = checkpoint.cap_bound_count
    if checkpoint.failed_at_us is not None:
        failed = view.epoch_ms(checkpoint.failed_at_us)
        entry["end_to_end_duration"] = failed - view.epoch_ms(checkpoint.triggered_at_us)
        entry |= {"failure_timestamp": failed, "failure_message": checkpoint.failure_message}
    return entry


def _type(checkpoint: CheckpointView) -> str:
    if checkpoint.is_savepoint:
        return TYPE_SYNC_SAVEPOINT if checkpoint.is_synchronous else TYPE_SAVEPOINT
    return TYPE_UNALIGNED if checkpoint.is_unaligned else TYPE_CHECKPOINT


def _task(view: JobView, checkpoint: CheckpointView, acks: Sequence[AckView | None]) -> Object:
    return {"id": checkpoint.id, "status": checkpoint.state, **_ack_figures(view, checkpoint, acks)}


def _ack_figures(view: JobView, checkpoint: CheckpointView, acks: Sequence[AckView | None]) -> Object:
    got = [a for a in acks if a is not None]
    latest = max((view.epoch_ms(a.at_us) for a in got), default=NOT_YET)
    return {
        "latest_ack_timestamp": latest,
        "checkpointed_size": sum(a.checkpointed_bytes for a in got),
        "state_size": sum(a.state_bytes for a in got),
        "end_to_end_duration": latest - view.epoch_ms(checkpoint.triggered_at_us) if got else NOT_YET,
        "alignment_buffered": 0,
        "processed_data": sum(a.processed_bytes for a in got),
        "persisted_data": sum(a.persisted_bytes for a in got),
        "num_subtasks": len(acks),
        "num_acknowledged_subtasks": len(got),
    }


def _subtask(view: JobView, trigger_ms: int, index: int, ack: AckView | None) -> Object:
    if ack is None:
        return {"className": "pending", "index": index, "status": "pending_or_failed"}
    return {
        "className": "completed",
        "index": index,
        "ack_timestamp": view.epoch_ms(ack.at_us),
        "end_to_end_duration": view.epoch_ms(ack.at_us) - trigger_ms,
        "checkpointed_size": ack.checkpointed_bytes,
        "state_size": ack.state_bytes,
        "checkpoint": {"sync": ack.sync_us // 1000, "async": ack.async_us // 1000},
        "alignment": {
            "buffered": 0,
            "processed": ack.processed_bytes,
            "persisted": ack.persisted_bytes,
            "duration": ack.alignment_us // 1000,
        },
        "start_delay": ack.start_delay_us // 1000,
        # As in Flink, this flag is set if the subtask persisted any bytes (runtime.md ME-7).
        "unaligned_checkpoint": ack.persisted_bytes > 0,
        "aborted": False,
        "status": "completed",
    }


def _restored(view: JobView) -> Json:
    if view.restored_id is None or view.restored_at_us is None:
        return None
    kind = "savepoint" if view.restored_is_savepoint else "chk"
    begun_from = view.begun_from
    own = f"runtime:/{view.id}/{kind}-{view.restored_id}"
    restored: dict[str, Json] = {
        "id": view.restored_id,
        "restore_timestamp": view.epoch_ms(view.restored_at_us),
        "is_savepoint": view.restored_is_savepoint,
        "external_path": own if begun_from is None else begun_from.location,
    }
    if begun_from is None:
        return restored
    # Flink has none of these fields.
    return restored | {
        "job-name": begun_from.job,
        "kind": begun_from.kind,
        "is-claimed": begun_from.is_claimed,
        "left-out-operators": list(begun_from.left_out),
    }


def _summary(values: Sequence[int]) -> Object:
    row = sorted(values)
    return _ends(row) | {name: quantile(row, q) if row else "NaN" for name, q in _PERCENTILES}


def _min_max_avg(values: Iterable[int]) -> Object:
    # Flink computes no percentiles over subtasks, and reports this string instead.
    return _ends(sorted(values)) | {name: "NaN" for name, _ in _PERCENTILES}


def _dead_summary() -> Object:
    return _ends([]) | {name: 0.0 for name, _ in _PERCENTILES}


def _ends(row: Sequence[int]) -> Object:
    if not row:
        return {"min": 0, "max": 0, "avg": 0}
    return {"min": row[0], "max": row[-1], "avg": sum(row) // len(row)}
