"""Writes the texts of the phase chart: hover text, summary and table."""

from __future__ import annotations

from backend.contracts.api import CheckpointDetailOut, SubtaskPhasesOut
from backend.domain.verdict import Basis
from dashboard import text
from dashboard.figures.base import Table
from dashboard.figures.gantt.rows import GanttRow
from dashboard.palette import PHASE_WORDS

_COLUMNS = (
    "vertex",
    "subtask",
    "host",
    "acknowledged",
    "first barrier (ms)",
    "first barrier basis",
    "start delay (ms)",
    "alignment (ms)",
    "sync (ms)",
    "async (ms)",
    "ack (ms)",
    "snapshot at (ms, reconstructed)",
    "ack wait (ms, reconstructed)",
    "unaligned",
    "clock skew",
    "checkpointed size (bytes)",
    "full state size (bytes)",
    "processed during alignment (bytes)",
    "persisted in-flight (bytes)",
)


def hover(row: GanttRow) -> str:
    s = row.subtask
    if s is None:
        return f"<b>{text.plain(row.vertex.vertex)}</b>"
    which = "subtask"
    if s.has_finished:
        which = "all had finished: subtask" if row.is_vertex else which
    elif row.is_vertex:
        which = "on the critical path: subtask" if row.is_critical else "slowest: subtask"
    lines = [
        f"<b>{text.plain(row.vertex.vertex)}</b>",
        f"{which} {s.subtask}" + (f" on {text.plain(s.host)}" if s.host else ""),
    ]
    if s.has_finished:
        return "<br>".join([*lines, "had finished before the checkpoint, so it took no part"])
    if s.first_barrier_ms is not None:
        is_marked = s.first_barrier_basis not in (None, Basis.MEASURED)
        basis = f" ({s.first_barrier_basis.value})" if is_marked and s.first_barrier_basis is not None else ""
        width = (
            f" ± {text.duration(s.first_barrier_resolution_ms)}" if s.first_barrier_resolution_ms is not None else ""
        )
        lines.append(f"first barrier at {text.duration(s.first_barrier_ms)}{width}{basis}")
    else:
        lines.append("first barrier not reported")
    if not s.is_acknowledged:
        return "<br>".join([*lines, "has not acknowledged"])
    lines += [
        f"alignment {text.duration(s.alignment_duration_ms)}",
        f"snapshot from {text.duration(s.snapshot_at_ms)} (reconstructed)",
        f"sync {text.duration(s.sync_duration_ms)}, async {text.duration(s.async_duration_ms)}",
        f"acknowledged at {text.duration(s.ack_ms)}",
        f"persisted in-flight {text.size(s.persisted_bytes)}, state {text.size(s.checkpointed_size_bytes)}",
    ]
    if s.has_clock_skew:
        lines.append("clock skew: the clocks of JobManager and TaskManager differ")
    return "<br>".join(lines)


def summary(checkpoint: CheckpointDetailOut) -> str:
    parts = []
    for vertex in checkpoint.vertices:
        acks = [s.ack_ms for s in vertex.subtasks if s.ack_ms is not None]
        slowest = f", slowest subtask {vertex.slowest_subtask}" if vertex.slowest_subtask is not None else ""
        finished = f"{vertex.finished_count} of {vertex.subtask_count} had finished before"
        if vertex.finished_count == vertex.subtask_count:
            parts.append(f"{vertex.vertex}: {finished}")
            continue
        parts.append(
            f"{vertex.vertex}: {vertex.acknowledged_count - vertex.finished_count} of {vertex.subtask_count} "
            f"acknowledged, the last after {text.duration(max(acks, default=None))}{slowest}"
            + (f", {finished}" if vertex.finished_count else "")
        )
    path = checkpoint.critical_path
    steps = path.steps if path is not None else []
    said = ", then ".join(
        f"{s.vertex} subtask {s.subtask} {PHASE_WORDS[s.phase]} {text.duration(s.end_ms - s.start_ms)} "
        f"({s.basis.value})"
        for s in steps
    )
    end = f" Critical path: {said}." if said else ""
    return "Phases since the trigger. " + "; ".join(parts) + "." + end


def acknowledged(subtask: SubtaskPhasesOut) -> str:
    """Return whether a subtask acknowledged, in words."""
    return "had finished" if subtask.has_finished else "yes" if subtask.is_acknowledged else "no"


def table(checkpoint: CheckpointDetailOut) -> Table:
    rows = tuple(
        (
            vertex.vertex, s.subtask, s.host, acknowledged(s), s.first_barrier_ms,
            s.first_barrier_basis.value if s.first_barrier_basis else None, s.start_delay_ms, s.alignment_duration_ms,
            s.sync_duration_ms, s.async_duration_ms, s.ack_ms, s.snapshot_at_ms, s.ack_wait_ms,
            None if s.is_unaligned is None else ("yes" if s.is_unaligned else "no"),
            "yes" if s.has_clock_skew else "no", s.checkpointed_size_bytes, s.full_state_size_bytes,
            s.processed_bytes, s.persisted_bytes,
        )
        for vertex in checkpoint.vertices
        for s in vertex.subtasks
    )  # fmt: skip
    return Table(_COLUMNS, rows)
