"""One micro-batch of a Spark Structured Streaming query, in addition to the header of its checkpoint.

A micro-batch is Spark's checkpoint: a write-ahead offsets file, the run, the commit of the state stores, a commits
file. It has no barriers, no alignment and no values of subtasks. Units are milliseconds, bytes and rows. None means
*not reported*, never zero. Names follow ``StreamingQueryProgress`` of Spark 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from backend.domain.verdict import Basis


class BatchPhase(StrEnum):
    """The phases of a micro-batch, in Spark's order.

    ``ADD_BATCH`` runs the query and writes to the sink; the state stores commit inside it. ``WAL_COMMIT`` writes the
    offsets file and ``COMMIT_OFFSETS`` the commits file; both are zero with asynchronous progress tracking.
    """

    LATEST_OFFSET = "latest-offset"
    WAL_COMMIT = "wal-commit"
    GET_BATCH = "get-batch"
    QUERY_PLANNING = "query-planning"
    ADD_BATCH = "add-batch"
    COMMIT_OFFSETS = "commit-offsets"


class PressureSign(StrEnum):
    """Signs of backpressure on Spark, which does not measure it; strongest first."""

    OVERRUN = "overrun"
    BACKLOG_GROWTH = "backlog-growth"
    ROWS_GROWTH = "rows-growth"
    UTILISATION = "utilisation"


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """The progress of one source. Offsets are the source's own JSON; long ones are cut.

    ``backlog`` is the amount after the end of the batch, in the source's own units (offsets, rows). It is None if the
    source does not report its newest offset, such as a file source.
    """

    description: str
    start_offset: str | None = None
    end_offset: str | None = None
    latest_offset: str | None = None
    input_row_count: int | None = None
    backlog: int | None = None


@dataclass(frozen=True, slots=True)
class BatchState:
    """The state stores of a batch, summed over its stateful operators.

    ``commit_ms`` is the mean over the state stores, which is the elapsed time if all stores commit in parallel. Spark
    reports the sum, ``commit_total_ms``. ``snapshot_lag`` is the largest number of batches that a recovery would replay
    at a reported store. ``upload_total_ms`` is the time to write to the checkpoint store (RocksDB), summed over the
    stores.
    """

    row_count: int | None = None
    updated_row_count: int | None = None
    memory_bytes: int | None = None
    commit_total_ms: int | None = None
    commit_ms: int | None = None
    upload_total_ms: int | None = None
    store_count: int | None = None
    snapshot_lag: int | None = None


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The data of a batch without its header. ``phases_ms`` has the reported phases, in the order of ``BatchPhase``.

    ``number_basis``: Spark reports neither number nor trigger of a failed batch; both are reconstructed from the
    previous batch.
    """

    phases_ms: tuple[tuple[BatchPhase, int], ...] = ()
    input_row_count: int | None = None
    processed_rows_per_s: float | None = None
    watermark_at: datetime | None = None
    state: BatchState | None = None
    sources: tuple[SourceProgress, ...] = ()
    number_basis: Basis = Basis.MEASURED

    def phase_ms(self, phase: BatchPhase) -> int | None:
        """The duration of one phase; None if it was not reported."""
        return next((ms for p, ms in self.phases_ms if p is phase), None)

    @property
    def backlog(self) -> int | None:
        """The sum of the reported backlogs; None if no source reports one."""
        known = [s.backlog for s in self.sources if s.backlog is not None]
        return sum(known) if known else None
