"""Writes the texts of the timeline: summary and table."""

from __future__ import annotations

from collections.abc import Sequence

from backend.contracts.api import CheckpointOut
from backend.contracts.changes import ChangePointOut
from backend.domain.checkpoint import CheckpointStatus
from dashboard import text
from dashboard.figures.base import Table
from dashboard.figures.timeline.marks import is_micro_batch, state_words

_COLUMNS = (
    "checkpoint",
    "run",
    "kind",
    "status",
    "mode",
    "triggered (UTC)",
    "duration (ms)",
    "acknowledged",
    "subtasks",
    "start delay max (ms)",
    "alignment max (ms)",
    "sync max (ms)",
    "async max (ms)",
    "checkpointed size (bytes)",
    "full state size (bytes)",
    "persisted in-flight (bytes)",
    "failure",
)

# Columns that do not apply to micro-batches. They are left out, because an empty column would look like missing
# values.
_OF_BARRIERS = frozenset(_COLUMNS[7:13]) | {"mode", "checkpointed size (bytes)", "persisted in-flight (bytes)"}


def summary(checkpoints: Sequence[CheckpointOut], timeout_ms: int | None, changes: Sequence[ChangePointOut]) -> str:
    done = [c for c in checkpoints if c.status is CheckpointStatus.COMPLETED]
    failed = [c for c in checkpoints if c.status is CheckpointStatus.FAILED]
    durations = sorted(c.end_to_end_duration_ms for c in done if c.end_to_end_duration_ms is not None)
    middle = durations[len(durations) // 2] if durations else None
    return (
        f"{len(checkpoints)} checkpoints: {len(done)} completed (median {text.duration(middle)}, longest "
        f"{text.duration(durations[-1] if durations else None)}), {len(failed)} failed; "
        f"timeout {text.duration(timeout_ms)}." + "".join(f" {c.sentence}" for c in changes)
    )


def table(checkpoints: Sequence[CheckpointOut]) -> Table:
    rows = tuple(
        (
            c.checkpoint_id, c.run_id, c.kind.value, state_words(c), c.course or c.mode, c.triggered_at.isoformat(),
            c.end_to_end_duration_ms, c.acknowledged_count, c.subtask_count, c.start_delay_max_ms, c.alignment_max_ms,
            c.sync_max_ms, c.async_max_ms, c.checkpointed_size_bytes, c.full_state_size_bytes, c.persisted_bytes,
            c.failure_message or (c.failure_reason.value if c.failure_reason else None),
        )
        for c in checkpoints
    )  # fmt: skip
    if not all(is_micro_batch(c) for c in checkpoints):
        return Table(_COLUMNS, rows)
    kept = [i for i, column in enumerate(_COLUMNS) if column not in _OF_BARRIERS]
    return Table(tuple(_COLUMNS[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in rows))
