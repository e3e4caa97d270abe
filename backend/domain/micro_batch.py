"""The data of one micro-batch of a Spark Structured Streaming query, in addition to the header of its checkpoint.

A micro-batch is Spark's checkpoint: Spark writes the offsets file (a write-ahead log), runs the batch, commits the
state stores and writes the commits file. There are no barriers, no alignment and no values of subtasks. Units are
milliseconds, bytes and rows. None means *not reported*, never zero. Names follow ``StreamingQueryProgress`` of Spark
4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from backend.domain.batch_work import BatchWork
from backend.domain.verdict import Basis


class BatchPhase(StrEnum):
    """The phases of a micro-batch, in the order in which Spark runs them.

    ``ADD_BATCH`` runs the query and writes to the sink; the state stores commit during this phase. ``WAL_COMMIT``
    writes the offsets file, and ``COMMIT_OFFSETS`` writes the commits file. With asynchronous progress tracking both
    take zero time.
    """

    LATEST_OFFSET = "latest-offset"
    WAL_COMMIT = "wal-commit"
    GET_BATCH = "get-batch"
    QUERY_PLANNING = "query-planning"
    ADD_BATCH = "add-batch"
    COMMIT_OFFSETS = "commit-offsets"


class PressureSign(StrEnum):
    """Signs of backpressure on Spark, strongest first. Spark does not measure backpressure itself."""

    OVERRUN = "overrun"
    BACKLOG_GROWTH = "backlog-growth"
    ROWS_GROWTH = "rows-growth"
    UTILISATION = "utilisation"


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """The progress of one source. The offsets are the source's own JSON, and long ones are cut.

    ``backlog`` is the amount of data that waits in the source after the end of the batch, in the source's own units
    (offsets, rows). It is None if the source does not report its newest offset, as a file source does not.
    """

    description: str
    start_offset: str | None = None
    end_offset: str | None = None
    latest_offset: str | None = None
    input_row_count: int | None = None
    backlog: int | None = None


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The state stores of one stateful operator of a batch. ``name`` is Spark's, and ``size_bytes`` that of its files.

    ``commit_total_ms`` is a sum over its state stores. Of single partitions, Spark reports nothing.
    """

    name: str | None = None
    row_count: int | None = None
    updated_row_count: int | None = None
    removed_row_count: int | None = None
    dropped_row_count: int | None = None
    memory_bytes: int | None = None
    size_bytes: int | None = None
    store_count: int | None = None
    commit_total_ms: int | None = None


@dataclass(frozen=True, slots=True)
class BatchState:
    """The state stores of a batch, summed over the query's stateful operators.

    ``commit_ms`` is the mean over the state stores, which is the elapsed time if all stores commit in parallel. Spark
    reports only the sum, ``commit_total_ms``. ``upload_total_ms`` is the time to write to the checkpoint store
    (RocksDB), summed over the state stores. ``snapshot_lag`` is the number of batches that a recovery would replay,
    for the reported state store that is furthest behind. ``removed_row_count`` is the number of rows that the batch
    removed from the state, and ``dropped_row_count`` the input rows that came after the watermark. ``operators`` are
    Spark's names of the stateful operators, and ``by_operator`` has the values of each, in the order of Spark's report.
    """

    row_count: int | None = None
    updated_row_count: int | None = None
    memory_bytes: int | None = None
    commit_total_ms: int | None = None
    commit_ms: int | None = None
    upload_total_ms: int | None = None
    store_count: int | None = None
    snapshot_lag: int | None = None
    removed_row_count: int | None = None
    dropped_row_count: int | None = None
    operators: tuple[str, ...] = ()
    by_operator: tuple[OperatorState, ...] = ()


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The data of a batch without its header. ``phases_ms`` has the reported phases, in the order of ``BatchPhase``.

    Spark reports neither the number nor the trigger of a failed batch. Both are then reconstructed from the previous
    batch, and ``number_basis`` states this.
    """

    phases_ms: tuple[tuple[BatchPhase, int], ...] = ()
    input_row_count: int | None = None
    processed_rows_per_s: float | None = None
    watermark_at: datetime | None = None
    state: BatchState | None = None
    sources: tuple[SourceProgress, ...] = ()
    sink: str | None = None
    """Spark's description of where the batch writes; None if it was not sent."""
    number_basis: Basis = Basis.MEASURED
    work: BatchWork | None = None
    """Its Spark jobs and stages; None if the channel cannot know them, or if they were not kept."""

    def phase_ms(self, phase: BatchPhase) -> int | None:
        """Return the duration of one phase, or None if it was not reported."""
        return next((ms for p, ms in self.phases_ms if p is phase), None)

    @property
    def backlog(self) -> int | None:
        """The sum of the backlogs of all sources that report one; None if no source does."""
        known = [s.backlog for s in self.sources if s.backlog is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class KnownBatch:
    """The newest stored batch of a query. ``is_own`` is whether the batch belongs to the requested run."""

    checkpoint_id: int
    is_failed: bool
    is_own: bool
    ended_at: datetime | None
