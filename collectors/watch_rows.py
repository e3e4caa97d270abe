"""What ``diagnose --watch`` shows: the jobs, one checkpoint, and its subtasks with the likeliest culprit first.

Of a query of Spark it shows the newest micro-batches by phase, because they have no subtasks.

Pure: no terminal, no clock. *Late is not guilty*: the subtasks that the verdict names come first, then those of the
suspects, and only then the other subtasks that checkpoints wait for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from backend.analysis.measures.pressure import ranked, suspects, vertex_loads
from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.ids import VertexId
from backend.domain.micro_batch import BatchPhase
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Topology
from backend.domain.verdict import Diagnosis, Verdict

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SubtaskRow:
    """One subtask in one checkpoint. None means *not reported*. ``ack_delay_ms`` is None while it is pending."""

    vertex: str
    subtask: int
    is_named: bool
    """Whether the verdict names this subtask."""
    is_suspect: bool
    ack_delay_ms: int | None
    start_delay_ms: int | None = None
    alignment_ms: int | None = None
    sync_ms: int | None = None
    async_ms: int | None = None
    busy_ratio: float | None = None
    backpressured_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class WatchedJob:
    """One running job at the last reading. ``diagnosis`` is None if its graph could not be read."""

    id: str
    """The id of the run. Two jobs may have one name."""
    name: str
    engine_state: str
    diagnosis: Diagnosis | None
    topology: Topology
    checkpoints: tuple[Checkpoint, ...]
    """In the order of their ids."""
    pressure: tuple[VertexPressure, ...]
    now: datetime
    """The time of the reading on the clock of the engine."""
    is_micro_batched: bool = False
    """Whether it is a query of Spark, whose checkpoints are micro-batches without subtasks."""


@dataclass(slots=True)
class Selection:
    """Which job is shown and which of its checkpoints. ``checkpoint_id`` is None for the newest one."""

    job_id: str | None = None
    checkpoint_id: int | None = None
    jobs: tuple[WatchedJob, ...] = field(default=())

    @property
    def shown(self) -> WatchedJob | None:
        """The selected job, or the first one if it is gone."""
        return next((j for j in self.jobs if j.id == self.job_id), self.jobs[0] if self.jobs else None)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The selected checkpoint, or the newest one if it is no longer listed."""
        job = self.shown
        if job is None or not job.checkpoints:
            return None
        found = (c for c in job.checkpoints if c.header.checkpoint_id == self.checkpoint_id)
        return next(found, job.checkpoints[-1])

    def press(self, key: str) -> None:
        """Move to a neighbour: ``<`` and ``>`` among the checkpoints, ``up`` and ``down`` among the jobs.

        All batches of a query are shown at once, so all four keys move among the queries of Spark.
        """
        is_query = self.shown is not None and self.shown.is_micro_batched
        if key in ("up", "down") or (is_query and key in ("<", ">")):
            self._move_job(-1 if key in ("up", "<") else 1)
        elif key in ("<", ">"):
            self._move_checkpoint(-1 if key == "<" else 1)

    def _move_job(self, by: int) -> None:
        ids = [job.id for job in self.jobs]
        if self.shown is not None:
            place = ids.index(self.shown.id) + by
            self.job_id = ids[min(max(place, 0), len(ids) - 1)]
            self.checkpoint_id = None

    def _move_checkpoint(self, by: int) -> None:
        job, now = self.shown, self.checkpoint
        if job is None or now is None:
            return
        ids = [c.header.checkpoint_id for c in job.checkpoints]
        place = min(max(ids.index(now.header.checkpoint_id) + by, 0), len(ids) - 1)
        # The newest one is followed when the next checkpoint begins.
        self.checkpoint_id = None if place == len(ids) - 1 else ids[place]


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One micro-batch. None means *not reported*. ``took_ms`` of a batch that runs is its time so far."""

    number: int
    status: CheckpointStatus
    took_ms: int | None
    phases_ms: tuple[int | None, ...]
    """In the order of ``BatchPhase``."""
    row_count: int | None


def batch_rows(job: WatchedJob) -> list[BatchRow]:
    """Return the micro-batches of a query, the newest first."""
    rows = []
    for checkpoint in reversed(job.checkpoints):
        header, batch = checkpoint.header, checkpoint.batch
        took_ms = header.end_to_end_duration_ms
        if header.status is CheckpointStatus.IN_PROGRESS:
            took_ms = max(0, round((job.now - header.triggered_at).total_seconds() * 1000))
        phases_ms = tuple(None if batch is None else batch.phase_ms(phase) for phase in BatchPhase)
        row_count = None if batch is None else batch.input_row_count
        rows.append(BatchRow(header.checkpoint_id, header.status, took_ms, phases_ms, row_count))
    return rows


def subtask_rows(job: WatchedJob, checkpoint: Checkpoint) -> list[SubtaskRow]:
    """Return the subtasks of ``checkpoint``: those that the verdict names, the suspects, and then the others."""
    newest = {reading.vertex_id: reading for reading in job.pressure}
    found = ranked(job.topology, suspects(job.topology, vertex_loads(job.pressure)))
    order = {suspect.vertex_id: place for place, suspect in enumerate(found)}
    verdict = None if job.diagnosis is None else job.diagnosis.verdict
    rows = []
    for detail in checkpoint.details:
        vertex = job.topology.vertex(detail.vertex_id)
        full = next((s.full for s in found if s.vertex_id == detail.vertex_id), ())
        for n, delay_ms in enumerate(detail.ack_delay_ms):
            row = SubtaskRow(
                vertex=detail.vertex_id if vertex is None else vertex.name,
                subtask=n,
                is_named=verdict is not None and _names(verdict, detail.vertex_id, n),
                is_suspect=n in full,
                ack_delay_ms=delay_ms,
                start_delay_ms=_at(detail.start_delay_ms, n),
                alignment_ms=_at(detail.alignment_duration_ms, n),
                sync_ms=_at(detail.sync_duration_ms, n),
                async_ms=_at(detail.async_duration_ms, n),
                busy_ratio=_of(newest, detail.vertex_id, "busy_ratio", n),
                backpressured_ratio=_of(newest, detail.vertex_id, "backpressured_ratio", n),
            )
            rows.append((_guilt(row, order.get(detail.vertex_id)), row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def _guilt(row: SubtaskRow, place: int | None) -> tuple[bool, int, bool, float, float]:
    """Return the sort key of a row: the likeliest culprit is the smallest."""
    place = place if row.is_suspect and place is not None else 10**6
    is_pending = row.ack_delay_ms is None
    return not row.is_named, place, not is_pending, -float(row.ack_delay_ms or 0), -(row.busy_ratio or 0.0)


def _names(verdict: Verdict, vertex_id: VertexId, subtask: int) -> bool:
    return verdict.vertex_id == vertex_id and (not verdict.subtasks or subtask in verdict.subtasks)


def _at(values: Sequence[_T | None], n: int) -> _T | None:
    return values[n] if n < len(values) else None


def _of(readings: Mapping[VertexId, VertexPressure], vertex_id: VertexId, name: str, n: int) -> float | None:
    reading = readings.get(vertex_id)
    return None if reading is None else _at(getattr(reading, name), n)
