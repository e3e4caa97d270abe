"""Draws what ``diagnose --watch`` shows. Names come from a foreign engine, so they are never read as markup."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from backend.domain import spelling
from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.micro_batch import BatchPhase
from backend.domain.text import printable
from collectors.diagnosis_print import HEALTH_WORDS, KIND_WORDS
from collectors.watch_rows import Selection, SubtaskRow, WatchedJob, batch_rows, subtask_rows

KEYS = "↑ ↓ job   < > checkpoint   q quit"
QUERY_KEYS = "< > query   q quit"
_JOBS_MAX = 8
# The lines around the two tables: title, verdict, heads (one of two lines), checkpoint, and the keys.
_LINES_AROUND = 11
_MISSING = "-"
# Short enough for ten columns in a terminal of 80 characters.
_PHASES = {
    BatchPhase.LATEST_OFFSET: "offset",
    BatchPhase.WAL_COMMIT: "wal",
    BatchPhase.GET_BATCH: "get",
    BatchPhase.QUERY_PLANNING: "plan",
    BatchPhase.ADD_BATCH: "add",
    BatchPhase.COMMIT_OFFSETS: "commit",
}
_STATUS = {
    CheckpointStatus.IN_PROGRESS: ("in progress", "cyan"),
    CheckpointStatus.COMPLETED: ("completed", "green"),
    CheckpointStatus.FAILED: ("failed", "red"),
}


def screen(selection: Selection, *, title: str, notice: str, height: int) -> RenderableType:
    """Return the whole screen, at most ``height`` lines of it with content."""
    parts: list[RenderableType] = [_line(title, style="bold")]
    job = selection.shown
    if job is None:
        parts.append(_line(notice or "no job is running"))
        return Group(*parts, _line(KEYS, style="dim"))
    parts.append(_jobs(selection))
    if job.diagnosis is not None:
        parts.append(Text(printable(job.diagnosis.verdict.sentence)))
    checkpoint = selection.checkpoint
    left = max(3, height - _LINES_AROUND - min(len(selection.jobs), _JOBS_MAX))
    if job.is_micro_batched:
        parts.append(_batches(job, most=left))
    elif checkpoint is None:
        parts.append(_line("no checkpoint yet"))
    else:
        parts.append(_head(job, checkpoint))
        parts.append(_subtasks(subtask_rows(job, checkpoint), most=left))
    if notice:
        parts.append(_line(notice, style="yellow"))
    keys = QUERY_KEYS if job.is_micro_batched else KEYS
    parts.append(_line(f"{keys}   values are the engine's own", style="dim"))
    return Group(*parts)


def _line(text: str, *, style: str = "") -> Text:
    return Text(printable(text), style=style, overflow="ellipsis", no_wrap=True)


def _jobs(selection: Selection) -> Table:
    jobs, shown = selection.jobs, selection.shown
    place = next((n for n, job in enumerate(jobs) if job is shown), 0)
    first = min(max(0, place - _JOBS_MAX + 1), max(0, len(jobs) - _JOBS_MAX))
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, expand=False)
    for column in ("mark", "job", "health", "verdict"):
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    for job in jobs[first : first + _JOBS_MAX]:
        mark = ">" if job is shown else " "
        if job.diagnosis is None:
            table.add_row(mark, Text(printable(job.name)), Text(printable(job.engine_state)), "")
            continue
        icon, word, color = HEALTH_WORDS[job.diagnosis.health]
        health = Text(f"{icon} {word}", style=color)
        table.add_row(mark, Text(printable(job.name)), health, Text(KIND_WORDS[job.diagnosis.verdict.kind]))
    if len(jobs) > _JOBS_MAX:
        table.add_row("", Text(f"{len(jobs)} jobs"), "", "")
    return table


def _head(job: WatchedJob, checkpoint: Checkpoint) -> Text:
    header = checkpoint.header
    word, color = _STATUS[header.status]
    took_ms = header.end_to_end_duration_ms
    if header.status is CheckpointStatus.IN_PROGRESS:
        took_ms = max(0, round((job.now - header.triggered_at).total_seconds() * 1000))
    took = "" if took_ms is None else f" · {spelling.duration(took_ms)}"
    acknowledged = f" · {header.acknowledged_count} of {header.subtask_count} subtasks acknowledged"
    return Text.assemble(f"checkpoint {header.checkpoint_id} ", (word, color), f"{took}{acknowledged}")


def _subtasks(rows: list[SubtaskRow], *, most: int) -> RenderableType:
    if not rows:
        return Text("its subtasks are not known", style="dim")
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    # In a narrow terminal only names become shorter, because a number without its end would be another number.
    table.add_column("vertex", min_width=6)
    for column in ("sub-\ntask", "acked", "start\ndelay", "align-\nment", "sync", "async", "busy", "pressed"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows[:most]:
        table.add_row(
            Text("culprit" if row.is_named else "suspect" if row.is_suspect else "", style="red"),
            _line(row.vertex),
            str(row.subtask),
            Text("pending", style="cyan") if row.ack_delay_ms is None else Text(spelling.duration(row.ack_delay_ms)),
            *(_ms(ms) for ms in (row.start_delay_ms, row.alignment_ms, row.sync_ms, row.async_ms)),
            *(_ratio(ratio) for ratio in (row.busy_ratio, row.backpressured_ratio)),
        )
    if len(rows) > most:
        table.add_row("", Text(f"and {len(rows) - most} more", style="dim"))
    return table


def _batches(job: WatchedJob, *, most: int) -> RenderableType:
    rows = batch_rows(job)
    if not rows:
        return Text("no micro-batch yet", style="dim")
    # A driver reports neither phases nor rows, so these columns would be empty.
    has_phases = any(ms is not None for row in rows for ms in row.phases_ms)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("batch", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    phases = [_PHASES[phase] for phase in BatchPhase] if has_phases else []
    for column in ("took" if has_phases else "time of addBatch", *phases, *(["rows"] if has_phases else [])):
        table.add_column(column, justify="right", no_wrap=True, overflow="ellipsis")
    for row in rows[:most]:
        word, color = _STATUS[row.status]
        cells = [_ms(row.took_ms)]
        if has_phases:
            cells += [*map(_ms, row.phases_ms), _MISSING if row.row_count is None else spelling.count(row.row_count)]
        table.add_row(str(row.number), Text(word, style=color), *cells)
    if len(rows) > most:
        table.add_row("", Text(f"and {len(rows) - most} older", style="dim"))
    return table


def _ms(value: int | None) -> str:
    return _MISSING if value is None else spelling.duration(value)


def _ratio(value: float | None) -> str:
    return _MISSING if value is None else spelling.percent(value)
