"""Micro-batches of a Spark query as our API shows them."""

from __future__ import annotations

from datetime import datetime

from backend.contracts.model import Model
from backend.domain.micro_batch import BatchPhase
from backend.domain.verdict import Basis


class BatchPhaseOut(Model):
    """One phase of a micro-batch."""

    phase: BatchPhase
    duration_ms: int


class BatchStateOut(Model):
    """The state stores of a micro-batch, summed over its stateful operators; null means *not reported*."""

    row_count: int | None
    updated_row_count: int | None
    memory_bytes: int | None
    commit_ms: int | None
    """Mean over the state stores (reconstructed: Spark reports ``commit_total_ms``, the sum); inside ``add-batch``."""
    commit_total_ms: int | None
    upload_total_ms: int | None
    store_count: int | None
    snapshot_lag: int | None
    """Batches that a recovery would replay, for the reported store that is furthest behind."""


class BatchSourceOut(Model):
    """One source of a micro-batch; offsets are the source's own JSON."""

    description: str
    start_offset: str | None
    end_offset: str | None
    latest_offset: str | None
    input_row_count: int | None
    backlog: int | None
    """Data that waits after the end of the batch, in the source's units; null if the source does not report it."""


class MicroBatchOut(Model):
    """A checkpoint on Spark, which is a micro-batch: it has no vertices, subtasks or barriers."""

    checkpoint_id: int
    run_id: str
    triggered_at: datetime
    duration_ms: int | None
    number_basis: Basis
    """Reconstructed for a failed batch: Spark reports neither its number nor its trigger."""
    phases: list[BatchPhaseOut]
    """The reported phases, in the order in which Spark runs them."""
    other_ms: int | None
    """The part of the duration that is in no phase."""
    input_row_count: int | None
    processed_rows_per_s: float | None
    watermark_at: datetime | None
    state: BatchStateOut | None
    """Null for a query without state."""
    sources: list[BatchSourceOut]
