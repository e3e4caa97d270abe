"""What is stored of a job, as the backtest reads it: its runs, its checkpoints and its readings of back-pressure.

Each value has a constructor from the JSON document that the statements of ``store.history`` return, so that the same
values are read with Spark and without it. Times of documents are whole milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from backend.domain import losses, pod_ends, protocols
from backend.domain.checkpoint import (
    DETAIL_ARRAYS,
    Checkpoint,
    CheckpointConfig,
    CheckpointHeader,
    CheckpointKind,
    CheckpointStatus,
    ClusterSettings,
    LateBarrier,
    SavepointFormat,
    VertexDetail,
)
from backend.domain.clock import from_epoch_ms
from backend.domain.engines import EngineCapabilities
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.losses import Loss
from backend.domain.pod_ends import PodEnd
from backend.domain.pressure import VertexPressure
from backend.domain.stored_form import (
    batch_from,
    cluster_from,
    config_from,
    engine_from,
    expand,
    expand_ratios,
    placements_from,
    topology_from,
)
from backend.domain.topology import Placement, Topology

PRESSURE_ARRAYS: Final = (
    *("busy_ratio", "backpressured_ratio", "idle_ratio", "out_pool_usage_ratio", "in_pool_usage_ratio"),
    *("queued_in_bytes", "queued_out_bytes", "records_in_count", "records_out_count", "bytes_in_count"),
    *("start_delay_gauge_ms", "alignment_gauge_ms", "records_in_per_s", "records_out_per_s"),
)
"""The arrays of a reading. Bit ``i`` of a document's ``asked`` is set if the ``i``-th of them was read."""
_RATIOS: Final = frozenset(PRESSURE_ARRAYS[:5])


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint that has ended.

    ``late`` are the first barriers of the subtasks that had not acknowledged it, as they were read while it was open.
    ``judged`` is the kind and the vertex of the verdict on this checkpoint that is stored; None if none is stored.
    """

    run_id: str
    checkpoint: Checkpoint
    late: tuple[LateBarrier, ...] = ()
    judged: tuple[str, str | None] | None = None

    @property
    def header(self) -> CheckpointHeader:
        """The header of the checkpoint."""
        return self.checkpoint.header

    @property
    def ended_at(self) -> datetime:
        """When the checkpoint ended, on the engine's clock."""
        header = self.header
        end = header.triggered_at + timedelta(milliseconds=header.end_to_end_duration_ms or 0)
        return max(end, header.failed_at or end)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> StoredCheckpoint:
        """Return the checkpoint of a document."""
        reason, savepoint = document["failure_reason"], document["savepoint_format"]
        header = CheckpointHeader(
            checkpoint_id=document["checkpoint_id"],
            kind=CheckpointKind(document["kind"]),
            status=CheckpointStatus(document["status"]),
            triggered_at=from_epoch_ms(document["triggered_ms"]),
            is_unaligned=document["is_unaligned"],
            latest_ack_at=_instant(document["latest_ack_ms"]),
            failure_reason=None if reason is None else FailureReason(reason),
            failed_at=_instant(document["failed_ms"]),
            savepoint_format=None if savepoint is None else SavepointFormat(savepoint),
            protocol=None if document["protocol"] is None else protocols.Protocol(document["protocol"]),
            **{name: document[name] for name in PLAIN_COLUMNS},
        )
        batch = document["batch"]
        if batch is not None:
            batch = batch_from({**batch, "watermark_at": _instant(batch["watermark_ms"])})
        details = tuple(_detail(*row) for row in document["details"] or ())
        late = tuple(
            LateBarrier(VertexId(vertex), subtask, delay_ms, from_epoch_ms(seen_ms), resolution_ms)
            for vertex, subtask, delay_ms, seen_ms, resolution_ms in document["late"] or ()
        )
        judged = None if document["judged_kind"] is None else (document["judged_kind"], document["judged_vertex"])
        return cls(document["run_id"], Checkpoint(header, details, batch), late, judged)


PLAIN_COLUMNS: Final = (
    *("end_to_end_duration_ms", "checkpointed_size_bytes", "full_state_size_bytes", "processed_bytes"),
    *("persisted_bytes", "subtask_count", "acknowledged_count", "failure_message"),
)
"""The fields of a checkpoint's header whose values are those of its document."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The graph and the settings of a run at one time. ``settings`` is when these settings were first read, or None."""

    topology: Topology
    config: CheckpointConfig | None
    cluster: ClusterSettings | None
    settings: datetime | None


@dataclass(slots=True)
class StoredRun:
    """One run of a job. ``ahead`` is the engine's clock minus the clock of the readings.

    ``versions`` has, for each kind of document, when it was first read and its value, oldest first. ``restarts`` has
    the number of restarts and when it was reached. The methods return what was known at a time.
    """

    id: str
    engine: EngineCapabilities
    engine_version: str | None
    ahead: timedelta
    placements: tuple[Placement, ...]
    versions: Mapping[str, Sequence[tuple[datetime, Any]]]
    started_at: datetime | None = None
    restarts: Sequence[tuple[datetime, int]] = ()
    exceptions: Sequence[tuple[datetime, str]] = ()
    losses: Sequence[Loss] = ()
    pod_ends: Sequence[PodEnd] = ()
    _shapes: dict[tuple[datetime | None, ...], Shape] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> StoredRun:
        """Return the run of a document."""
        versions: dict[str, list[tuple[datetime, Any]]] = {}
        for kind, since_ms, value in document["versions"] or ():
            read = _READERS.get(kind)
            if read is not None:
                versions.setdefault(kind, []).append((from_epoch_ms(since_ms), read(value)))
        events = [(from_epoch_ms(at), kind, key, words) for at, kind, key, words in document["events"] or ()]
        return cls(
            id=document["id"],
            engine=engine_from(document["capabilities"], document["engine"], document["engine_version"]),
            engine_version=document["engine_version"],
            ahead=timedelta(milliseconds=document["ahead_ms"]),
            placements=placements_from(document["placements"]),
            versions=versions,
            started_at=_instant(document["started_ms"]),
            restarts=[(at, int(key)) for at, kind, key, _ in events if kind == "restarted" and key.isdigit()],
            exceptions=[(at, words) for at, kind, _, words in events if kind == "exception"],
            losses=[x for at, kind, _, words in events if kind == "rows-lost" and (x := losses.read(at, words))],
            pod_ends=[p for at, kind, _, words in events if kind == "pod-ended" and (p := pod_ends.read(at, words))],
        )

    def shape_at(self, engine_at: datetime) -> Shape:
        """Return the graph and the settings that were known at this time, or else the first known ones."""
        at = engine_at - self.ahead
        chosen = {kind: _in_force(rows, at) for kind, rows in self.versions.items()}
        key = tuple(chosen[kind][0] if kind in chosen else None for kind in _READERS)
        if key not in self._shapes:
            value = {kind: row[1] for kind, row in chosen.items()}
            settings = chosen["config"][0] if "config" in chosen else None
            topology = value.get("topology") or Topology(())
            self._shapes[key] = Shape(topology, value.get("config"), value.get("cluster"), settings)
        return self._shapes[key]

    def settings_changed_at(self, engine_at: datetime) -> datetime | None:
        """Return when the settings of this time were first read; None if no change of the settings was seen by then."""
        known = [since for since, _ in self.versions.get("config", ()) if since <= engine_at - self.ahead]
        return known[-1] if len(known) > 1 else None

    def placements_at(self, engine_at: datetime) -> tuple[Placement, ...]:
        """Return the placements if the job has not restarted since. Only the last ones are stored."""
        return () if any(at > engine_at for at, _ in self.restarts) else self.placements

    def restart_count_at(self, engine_at: datetime) -> int | None:
        """Return the number of restarts that was known at this time; None if none was seen."""
        return max((count for at, count in self.restarts if at <= engine_at), default=None)

    def exceptions_at(self, engine_at: datetime, *, limit: int) -> tuple[tuple[datetime, str], ...]:
        """Return the newest exceptions that were known at this time, newest first."""
        known = [row for row in self.exceptions if row[0] <= engine_at]
        return tuple(sorted(known, key=lambda row: row[0], reverse=True)[:limit])

    def losses_at(self, engine_at: datetime, *, limit: int) -> tuple[Loss, ...]:
        """Return the newest losses that were known at this time, newest first."""
        known = [loss for loss in self.losses if loss.at <= engine_at]
        return tuple(sorted(known, key=lambda loss: loss.at, reverse=True)[:limit])

    def pod_ends_at(self, engine_at: datetime, *, limit: int) -> tuple[PodEnd, ...]:
        """Return the newest ends of pods that were known at this time, newest first."""
        known = [end for end in self.pod_ends if end.at <= engine_at]
        return tuple(sorted(known, key=lambda end: end.at, reverse=True)[:limit])


_READERS: Final = {"topology": topology_from, "config": config_from, "cluster": cluster_from}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some checkpoints of a job, in the order of their triggers, and the readings that belong to them, by run.

    The readings are on the engine's clock, oldest first. Each reading is in one chunk only.
    """

    checkpoints: Sequence[StoredCheckpoint]
    readings: Mapping[str, Sequence[VertexPressure]]


class JobHistory(Protocol):
    """What is stored of one job. It is read once."""

    runs: Mapping[str, StoredRun]

    def chunks(self) -> Iterator[Chunk]:
        """Yield the checkpoints that have ended, in the order of their triggers, with their readings."""
        ...


def reading_of(document: Sequence[Any], ahead: timedelta) -> VertexPressure:
    """Return a reading, on the engine's clock, from its time, vertex, number of subtasks, ``asked`` and arrays."""
    at_ms, vertex_id, count, asked, *arrays = document
    values: dict[str, Any] = {}
    for bit, (name, stored) in enumerate(zip(PRESSURE_ARRAYS, arrays, strict=True)):
        is_known = asked & (1 << bit)
        values[name] = (expand_ratios if name in _RATIOS else expand)(stored, count) if is_known else ()
    return VertexPressure(VertexId(vertex_id), from_epoch_ms(at_ms) + ahead, **values)


def as_open(stored: StoredCheckpoint, at: datetime) -> Checkpoint:
    """Return a checkpoint as it was known while it was in progress: without its end, and without its subtasks."""
    header = stored.header
    age_ms = (at - header.triggered_at) / timedelta(milliseconds=1)
    acks = [ms for d in stored.checkpoint.details for ms in d.ack_delay_ms if ms is not None and ms <= age_ms]
    unknown: dict[str, Any] = dict.fromkeys(_KNOWN_AT_END)
    return Checkpoint(replace(header, status=CheckpointStatus.IN_PROGRESS, acknowledged_count=len(acks), **unknown))


_KNOWN_AT_END: Final = (
    *("latest_ack_at", "end_to_end_duration_ms", "checkpointed_size_bytes", "full_state_size_bytes", "processed_bytes"),
    *("persisted_bytes", "failure_reason", "failure_message", "failed_at"),
)


def _detail(vertex_id: str, count: int, *arrays: Sequence[int | None] | None) -> VertexDetail:
    return VertexDetail(VertexId(vertex_id), *(expand(a, count) for a in arrays[: len(DETAIL_ARRAYS)]))


def _in_force(rows: Sequence[tuple[datetime, Any]], at: datetime) -> tuple[datetime, Any]:
    known = [row for row in rows if row[0] <= at]
    return known[-1] if known else rows[0]


def _instant(ms: int | None) -> datetime | None:
    return None if ms is None else from_epoch_ms(ms)
