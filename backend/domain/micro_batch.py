"""One micro-batch of a Spark Structured Streaming query: what its checkpoint has beside a header.

A micro-batch is Spark's checkpoint: a write-ahead offsets file, the run, the commit of the state stores, a commits
file. There are no barriers and nothing is aligned, so nothing of a subtask is told here. Milliseconds, bytes and rows;
None is *not reported*, never zero. Names follow ``StreamingQueryProgress`` of Spark 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from backend.domain.verdict import Basis


class BatchPhase(StrEnum):
    """What a micro-batch spends its time on, in the order in which Spark does it.

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
    """What tells of back-pressure on Spark, which has no measure of it; the first that is raised tells most."""

    OVERRUN = "overrun"
    BACKLOG_GROWTH = "backlog-growth"
    ROWS_GROWTH = "rows-growth"
    UTILISATION = "utilisation"


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """How far one source came. Offsets are the source's own JSON, cut where they are long.

    ``backlog`` is what waits beyond the end of the batch, in the source's own units (offsets, rows); None where the
    source does not report its newest offset, as files do not.
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

    ``commit_ms`` is the mean over the state stores, so a time on the clock as far as stores commit side by side;
    Spark reports their sum, ``commit_total_ms``. ``snapshot_lag`` is how many batches a recovery would replay
    at the worst store that was reported. ``upload_total_ms``: writing to the checkpoint store (RocksDB), a sum
    over the stores.
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
    """A batch beside its header. ``phases_ms`` holds what was reported, in the order of ``BatchPhase``.

    ``number_basis``: of a batch that failed Spark tells neither number nor trigger; both are then reconstructed from
    the batch before it.
    """

    phases_ms: tuple[tuple[BatchPhase, int], ...] = ()
    input_row_count: int | None = None
    processed_rows_per_s: float | None = None
    watermark_at: datetime | None = None
    state: BatchState | None = None
    sources: tuple[SourceProgress, ...] = ()
    number_basis: Basis = Basis.MEASURED

    def phase_ms(self, phase: BatchPhase) -> int | None:
        """How long one phase took; None where it was not reported."""
        return next((ms for p, ms in self.phases_ms if p is phase), None)

    @property
    def backlog(self) -> int | None:
        """What waits at all sources that report it; None where none does."""
        known = [s.backlog for s in self.sources if s.backlog is not None]
        return sum(known) if known else None
