"""Converts the events of a Spark listener to observations, one for each run of a query. It does no I/O.

Every event carries its own time, so late, repeated or reordered events lead to the same result. What Spark lacks
(barriers, subtasks, in-flight bytes) stays missing. Spark does not report a failed batch. It reports only that the
query ended with an error. The number and the trigger time of the failed batch are reconstructed from the batch before
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import orjson

from backend.contracts import spark as wire
from backend.domain.checkpoint import (
    Checkpoint,
    CheckpointConfig,
    CheckpointHeader,
    CheckpointKind,
    CheckpointStatus,
)
from backend.domain.failure import FailureReason
from backend.domain.ids import EngineRunId
from backend.domain.micro_batch import BatchPhase, BatchState, KnownBatch, MicroBatch, OperatorState, SourceProgress
from backend.domain.observation import JobObservation, JobState
from backend.domain.verdict import Basis

_PHASE_KEYS: Mapping[str, BatchPhase] = {
    "latestOffset": BatchPhase.LATEST_OFFSET,
    "walCommit": BatchPhase.WAL_COMMIT,
    "getBatch": BatchPhase.GET_BATCH,
    "queryPlanning": BatchPhase.QUERY_PLANNING,
    "addBatch": BatchPhase.ADD_BATCH,
    "commitOffsets": BatchPhase.COMMIT_OFFSETS,
}
_OLDER_OFFSET_KEYS = ("getOffset", "setOffsetRange", "getEndOffset")
# The metrics that contain the size of a state store, the preferred one first: the size of RocksDB's files, or the
# size of the current version's map in the heap store.
_SIZE_KEYS = ("rocksdbSstFileSize", "stateOnCurrentVersionSizeBytes")
_SNAPSHOT_KEY = "SnapshotLastUploaded."
_UPLOAD_KEY = "rocksdbCommitFileSyncLatencyMs"
_OFFSET_TEXT_MAX = 500
_OPERATOR_MAX = 100
# More stateful operators than these are left out of the values by operator. The sums have all.
_OPERATORS_MAX = 20
_OFFSET_MAX = 2**53
_ERROR_LINE_MAX = 500
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION_MAX = 4000


@dataclass(frozen=True, slots=True)
class RunEvents:
    """The events of one query run in one push, in the order in which they were sent."""

    query_id: str
    run_id: str
    events: tuple[wire.SparkEvent, ...]

    @property
    def engine_run_id(self) -> EngineRunId:
        """The id of the run at its engine: the query's id, a slash and the run's own id."""
        return EngineRunId(f"{self.query_id}/{self.run_id}")

    @property
    def observed_at(self) -> datetime:
        """The time of the newest event."""
        return max(_instant(e) for e in self.events)

    @property
    def started_at(self) -> datetime:
        """The time at which the run started. If the start event is missing, the earliest time in the other events."""
        return min(e.progress.timestamp if isinstance(e, wire.ProgressEventIn) else _instant(e) for e in self.events)

    @property
    def end(self) -> wire.TerminatedIn | None:
        """The event that reports the end of the query, or None."""
        return next((e for e in self.events if isinstance(e, wire.TerminatedIn)), None)

    @property
    def needs_batch_before(self) -> bool:
        """Whether the number of the failed batch must be derived from a stored batch.

        This is so if the run failed and these events do not contain its last batch.
        """
        return self.end is not None and self.end.exception is not None and self.batch_before is None

    @property
    def batch_before(self) -> tuple[int, datetime | None] | None:
        """The number and the end time of the last batch before the query's end, or None if the events lack it."""
        if self.end is not None and self.end.last_batch_id is not None:
            return self.end.last_batch_id, self.end.last_batch_ended_at
        batches = [e.progress for e in self.events if isinstance(e, wire.ProgressEventIn) and is_batch(e.progress)]
        last = max(batches, key=lambda p: p.batch_id, default=None)
        return None if last is None else (last.batch_id, _ended_at(last))


def runs_of(events: Sequence[wire.SparkEvent]) -> list[RunEvents]:
    """Group the events by run. The runs come in the order of their first events."""
    found: dict[tuple[str, str], list[wire.SparkEvent]] = {}
    for event in events:
        of = event.progress if isinstance(event, wire.ProgressEventIn) else event
        found.setdefault((of.id, of.run_id), []).append(event)
    return [RunEvents(query, run, tuple(rows)) for (query, run), rows in found.items()]


def job_observation(run: RunEvents, push: wire.SparkPushIn, before: KnownBatch | None) -> JobObservation:
    """Convert the events of one run to an observation.

    ``before`` is the newest stored batch of the query. It is used only if ``run.needs_batch_before``.
    """
    end = run.end
    failure = None if end is None or end.exception is None else end
    batches = [
        _completed(e.progress) for e in run.events if isinstance(e, wire.ProgressEventIn) and is_batch(e.progress)
    ]
    if failure is not None:
        batches.append(_failed(run, failure, before))
    return JobObservation(
        engine_run_id=run.engine_run_id,
        name=_name(run),
        state=JobState.RUNNING if end is None else JobState.ENDED,
        engine_state="ACTIVE" if end is None else "STOPPED" if failure is None else "FAILED",
        started_at=run.started_at,
        ended_at=None if end is None else end.seen_at,
        config=None if push.trigger_interval_ms is None else CheckpointConfig(interval_ms=push.trigger_interval_ms),
        checkpoints=tuple(batches),
        exceptions=() if failure is None else ((failure.seen_at, (failure.exception or "")[:_EXCEPTION_MAX]),),
        problems=_problems(push),
    )


def _problems(push: wire.SparkPushIn) -> tuple[str, ...]:
    if not push.dropped_count:
        return ()
    what = "event" if push.dropped_count == 1 else "events"
    return (f"the listener dropped {push.dropped_count} {what}, so micro-batches may be missing",)


def _name(run: RunEvents) -> str:
    # A query without a name is shown under its id, which stays the same as long as its checkpoint folder exists.
    names = (e.progress.name if isinstance(e, wire.ProgressEventIn) else e.name for e in run.events)
    return next((name for name in names if name), run.query_id)


def _instant(event: wire.SparkEvent) -> datetime:
    match event:
        case wire.ProgressEventIn():
            return _ended_at(event.progress)
        case wire.StartedIn() | wire.IdleIn():
            return event.timestamp
    return event.seen_at


def is_batch(progress: wire.ProgressIn) -> bool:
    """Return whether the progress is that of a micro-batch."""
    # Older Spark versions report a trigger without new data as progress, with the number of the next batch. Only the
    # progress of a real batch contains ``addBatch``.
    return "addBatch" in progress.duration_ms


def _ended_at(progress: wire.ProgressIn) -> datetime:
    return progress.timestamp + timedelta(milliseconds=progress.batch_duration or 0)


def _completed(progress: wire.ProgressIn) -> Checkpoint:
    operators = progress.state_operators
    return Checkpoint(
        CheckpointHeader(
            checkpoint_id=progress.batch_id,
            kind=CheckpointKind.CHECKPOINT,
            status=CheckpointStatus.COMPLETED,
            triggered_at=progress.timestamp,
            end_to_end_duration_ms=progress.batch_duration,
            full_state_size_bytes=_sum(_state_bytes(o) for o in operators),
        ),
        batch=MicroBatch(
            phases_ms=_phases(progress.duration_ms),
            input_row_count=progress.num_input_rows,
            processed_rows_per_s=progress.processed_rows_per_second,
            watermark_at=progress.event_time.watermark if progress.event_time is not None else None,
            state=_state(progress) if operators else None,
            sources=tuple(_source(s) for s in progress.sources),
            sink=progress.sink.description[:_OFFSET_TEXT_MAX] or None if progress.sink is not None else None,
        ),
    )


def _phases(duration_ms: Mapping[str, int]) -> tuple[tuple[BatchPhase, int], ...]:
    known = {key: ms for key, ms in duration_ms.items() if ms >= 0}
    if "latestOffset" not in known:
        # Spark before 3.0 asks the sources in several steps, each with a name of its own.
        older = [known[key] for key in _OLDER_OFFSET_KEYS if key in known]
        known |= {"latestOffset": sum(older)} if older else {}
    return tuple((phase, known[key]) for key, phase in _PHASE_KEYS.items() if key in known)


def _failed(run: RunEvents, end: wire.TerminatedIn, before: KnownBatch | None) -> Checkpoint:
    last = run.batch_before
    began_at: datetime | None = run.started_at
    if last is not None:
        number, began_at = last[0] + 1, last[1]
    elif before is None:
        number = 0
    else:
        # The next start of a query repeats a failed batch under the same number, so the number rises only after a
        # completed batch.
        number = before.checkpoint_id + (0 if before.is_failed else 1)
        began_at = before.ended_at if before.is_own else run.started_at
    message = ": ".join(part for part in (end.error_class, _said(end.exception or "")) if part)
    return Checkpoint(
        CheckpointHeader(
            checkpoint_id=number,
            kind=CheckpointKind.CHECKPOINT,
            status=CheckpointStatus.FAILED,
            # The real trigger time and the duration are unknown. The earliest possible trigger is the end of the
            # previous batch.
            triggered_at=min(began_at or end.seen_at, end.seen_at),
            failure_reason=FailureReason.QUERY_FAILURE,
            failure_message=message[:_ERROR_LINE_MAX] or None,
            failed_at=end.seen_at,
        ),
        batch=MicroBatch(number_basis=Basis.RECONSTRUCTED),
    )


def _said(exception: str) -> str:
    """Return the most informative line of an exception's text.

    This is the line after a Python traceback, or the first line if the text contains no traceback.
    """
    lines = [line for line in exception.splitlines() if line.strip()]
    if not lines:
        return ""
    traceback = next((i for i, line in enumerate(lines) if line.endswith(_TRACEBACK)), None)
    after = [] if traceback is None else [line for line in lines[traceback + 1 :] if not line[0].isspace()]
    return after[0] if after else lines[0]


def _state(progress: wire.ProgressIn) -> BatchState:
    operators = progress.state_operators
    return BatchState(
        row_count=_sum(o.num_rows_total for o in operators),
        updated_row_count=_sum(o.num_rows_updated for o in operators),
        memory_bytes=_sum(o.memory_used_bytes for o in operators),
        commit_total_ms=_sum(o.commit_time_ms for o in operators),
        commit_ms=_sum(_mean_commit_ms(o) for o in operators),
        upload_total_ms=_sum(o.custom_metrics.get(_UPLOAD_KEY) for o in operators),
        store_count=_sum(o.num_state_store_instances for o in operators),
        snapshot_lag=_snapshot_lag(progress),
        removed_row_count=_sum(o.num_rows_removed for o in operators),
        dropped_row_count=_sum(o.num_rows_dropped_by_watermark for o in operators),
        operators=tuple(o.operator_name[:_OPERATOR_MAX] for o in operators if o.operator_name),
        by_operator=tuple(_operator_state(o) for o in operators[:_OPERATORS_MAX]),
    )


def _operator_state(operator: wire.StateOperatorIn) -> OperatorState:
    return OperatorState(
        name=operator.operator_name[:_OPERATOR_MAX] if operator.operator_name else None,
        row_count=operator.num_rows_total,
        updated_row_count=operator.num_rows_updated,
        removed_row_count=operator.num_rows_removed,
        dropped_row_count=operator.num_rows_dropped_by_watermark,
        memory_bytes=operator.memory_used_bytes,
        size_bytes=_state_bytes(operator),
        store_count=operator.num_state_store_instances,
        commit_total_ms=operator.commit_time_ms,
    )


def _state_bytes(operator: wire.StateOperatorIn) -> int | None:
    known = (operator.custom_metrics.get(key) for key in _SIZE_KEYS)
    return next((size for size in known if size is not None), operator.memory_used_bytes)


def _mean_commit_ms(operator: wire.StateOperatorIn) -> int | None:
    if operator.commit_time_ms is None or not operator.num_state_store_instances:
        return None
    return round(operator.commit_time_ms / operator.num_state_store_instances)


def _snapshot_lag(progress: wire.ProgressIn) -> int | None:
    # Batch N writes state version N+1. A version of -1 means that no snapshot exists yet, so a recovery replays every
    # batch.
    lags = (
        progress.batch_id + 1 - max(version, 0)
        for operator in progress.state_operators
        for key, version in operator.custom_metrics.items()
        if key.startswith(_SNAPSHOT_KEY) and version is not None
    )
    return max(lags, default=None)


def _source(source: wire.SourceIn) -> SourceProgress:
    return SourceProgress(
        description=source.description[:_OFFSET_TEXT_MAX],
        start_offset=_offset_text(source.start_offset),
        end_offset=_offset_text(source.end_offset),
        latest_offset=_offset_text(source.latest_offset),
        input_row_count=source.num_input_rows,
        backlog=_distance(source.end_offset, source.latest_offset),
    )


def _offset_text(offset: object) -> str | None:
    if offset is None:
        return None
    try:
        text = offset if isinstance(offset, str) else orjson.dumps(offset).decode()
    except orjson.JSONEncodeError:
        # orjson cannot write the offset, because it contains a number beyond 64 bits or is nested too deeply.
        return None
    return text[:_OFFSET_TEXT_MAX]


def _distance(end: object, latest: object) -> int | None:
    """Return how far ``end`` is behind ``latest``, in the source's units, or None if this is unknown.

    If both are mappings by partition, return the sum over the partitions that both contain.
    """
    if isinstance(end, dict) and isinstance(latest, dict):
        return _sum(_distance(end[key], latest[key]) for key in end.keys() & latest.keys())
    if type(end) is int and type(latest) is int and max(abs(end), abs(latest)) <= _OFFSET_MAX:
        return max(0, latest - end)
    return None


def _sum(values: Iterable[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None
