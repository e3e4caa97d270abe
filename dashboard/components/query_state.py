"""Shows the state of a Spark query by operator, as its batches report it, and what its checkpoint folder holds."""

from __future__ import annotations

from collections.abc import Sequence

from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.api import JobDetailOut
from backend.contracts.checkpoint_folders import (
    CheckpointFolderOut,
    FolderBatchOut,
    OperatorFilesOut,
    SourceLogOut,
)
from backend.contracts.micro_batches import MicroBatchOut, OperatorStateOut
from dashboard import routes, text
from dashboard.components import cards

STATE_TITLE = "State by operator"
FOLDER_TITLE = "Checkpoint folder"
_STATE_HEADS = (
    "Operator", "Rows", "Updated", "Removed", "Dropped as late", "Memory", "Size", "State stores", "Commit, summed",
)  # fmt: skip
_OPERATOR_HEADS = (
    "State", "Size", "Partitions", "Largest partition", "Median partition", "Largest / median", "Files",
    "Deltas", "Snapshots", "Version", "Versions since a snapshot",
)  # fmt: skip
_PARTITION_HEADS = ("Partition", "Size", "Files", "Deltas", "Snapshots", "Version", "Newest snapshot")
_AT_LEAST = "at least "
_UNEVEN = 5.0
"""A ratio of the largest partition to the median one from which on it is marked, if it is large at all."""
_UNEVEN_BYTES = 10 << 20


def cards_of(job: JobDetailOut) -> list[Component]:
    """Build the cards of a job's page: the state of the newest batch that has it, and the checkpoint folders."""
    known = [b for b in job.batches if b.state is not None and b.state.by_operator]
    state = by_operator(max(known, key=lambda b: b.triggered_at), job=job.id) if known else None
    return [*([] if state is None else [state]), *(_folder(job, one) for one in job.folders)]


def by_operator(batch: MicroBatchOut, *, job: str | None = None) -> Component | None:
    """Build the table of the operators of one batch; return None if it has none.

    ``job`` is the job whose page shows the card, which then links to the batch's page.
    """
    if batch.state is None or not batch.state.by_operator:
        return None
    rows = [_state_row(state) for state in batch.state.by_operator]
    parts: list[Component] = []
    if job is not None:
        page = routes.checkpoint(job, batch.run_id, batch.checkpoint_id)
        parts.append(html.Div(dcc.Link(f"batch {batch.checkpoint_id}", href=page), className="links-out"))
    parts.append(html.Div(cards.table(_STATE_HEADS, rows, numbers=_STATE_HEADS[1:]), className="table-scroll"))
    hint = "as Spark reports it; of single partitions it reports nothing"
    return cards.card(STATE_TITLE, parts, hint=hint)


def _state_row(state: OperatorStateOut) -> html.Tr:
    values = (
        text.count(state.row_count),
        text.count(state.updated_row_count),
        text.count(state.removed_row_count),
        text.count(state.dropped_row_count),
        text.size(state.memory_bytes),
        text.size(state.size_bytes),
        text.count(state.store_count),
        text.duration(state.commit_total_ms),
    )
    return html.Tr([html.Td(state.name or text.MISSING), *map(_number, values)])


def _folder(job: JobDetailOut, folder: CheckpointFolderOut) -> Component:
    parts: list[Component] = [
        html.P(
            [html.Code(folder.url), ", ", cards.age("read", folder.observed_at), f" by target {folder.target_name}"],
            className="hint",
        ),
        html.Div(cards.facts(_facts(folder)), className="spaced"),
    ]
    parts += [html.P(problem, className="spaced") for problem in folder.problems]
    if folder.operators:
        rows = [_operator_row(operator, is_cut=folder.is_cut) for operator in folder.operators]
        parts.append(_table(_OPERATOR_HEADS, rows))
        left_out = folder.operator_count - len(folder.operators)
        if left_out > 0:
            parts.append(html.P(f"{text.counted(left_out, 'more operator')} left out.", className="hint spaced"))
        parts += [_partitions(o, is_cut=folder.is_cut) for o in folder.operators if o.partition_count > 1]
    if folder.batches:
        parts.append(_batches(job, folder.batches))
        parts += _sources(folder, folder.batches[-1])
    return cards.card(FOLDER_TITLE, parts, hint="names, sizes and times of its files, and its logs")


def _facts(folder: CheckpointFolderOut) -> list[html.Div]:
    more = _AT_LEAST if folder.is_cut else ""
    is_known = folder.file_count and not folder.is_cut
    share = f" ({text.percent(folder.small_count / folder.file_count)})" if is_known else ""
    committed = [batch.number for batch in folder.batches if batch.is_committed]
    shown = [
        cards.fact(
            "Newest offsets",
            f"batch {folder.batches[-1].number}" if folder.batches else text.MISSING,
            hint=f"{text.counted(folder.offsets_count, 'file')} of offsets",
        ),
        cards.fact(
            "Newest commit",
            f"batch {committed[-1]}" if committed else text.MISSING,
            hint=f"{text.counted(folder.commits_count, 'file')} of commits",
        ),
        cards.fact(
            "Files",
            f"{more}{text.count(folder.file_count)}",
            hint=f"and {more}{text.counted(folder.checksum_count, 'checksum')}",
        ),
        cards.fact(
            f"Below {text.size(folder.small_bytes)}",
            f"{more}{text.count(folder.small_count)}{share}",
            hint="small files; each costs a store as much as a larger one",
        ),
        cards.fact("Size", f"{more}{text.size(folder.size_bytes)}", hint="of all files"),
        cards.fact("Watermark", text.instant_utc(folder.watermark_at), hint="of the newest batch with offsets"),
    ]
    if folder.temporary_count:
        hint = "temporary files of a write that did not end, or of one that runs now"
        shown.append(cards.fact("Unfinished writes", f"{more}{text.count(folder.temporary_count)}", hint=hint))
    return shown


def _operator_row(operator: OperatorFilesOut, *, is_cut: bool) -> html.Tr:
    """Build the row of an operator. If not all files were read, counts are lower bounds, and the rest is missing."""
    more = _AT_LEAST if is_cut else ""
    largest = operator.partitions[0] if operator.partitions and not is_cut else None
    ratio = None if is_cut else operator.skew_ratio
    said = text.MISSING if ratio is None else f"{text.factor(ratio)}×"
    is_uneven = ratio is not None and largest is not None and ratio >= _UNEVEN and largest.size_bytes >= _UNEVEN_BYTES
    lag = text.count(operator.snapshot_lag) if operator.snapshot_count else "no snapshot"
    return html.Tr(
        [
            html.Td([f"Operator {operator.number}", html.Div(operator.name or "name not known", className="hint")]),
            _number(f"{more}{text.size(operator.size_bytes)}"),
            _number(f"{more}{text.count(operator.partition_count)}"),
            _number(text.MISSING if largest is None else f"{text.size(largest.size_bytes)} (no. {largest.number})"),
            _number(text.size(None if is_cut else operator.median_bytes)),
            html.Td(html.Strong(said) if is_uneven else said, className="right number"),
            _number(f"{more}{text.count(operator.file_count)}"),
            _number(f"{more}{text.count(operator.delta_count)}"),
            _number(f"{more}{text.count(operator.snapshot_count)}"),
            _number(text.count(None if is_cut else operator.version)),
            _number(text.MISSING if is_cut else lag),
        ]
    )


def _partitions(operator: OperatorFilesOut, *, is_cut: bool) -> Component:
    more = _AT_LEAST if is_cut else ""
    rows = [
        html.Tr(
            [
                html.Td(f"Partition {part.number}"),
                _number(f"{more}{text.size(part.size_bytes)}"),
                _number(f"{more}{text.count(part.file_count)}"),
                _number(f"{more}{text.count(part.delta_count)}"),
                _number(f"{more}{text.count(part.snapshot_count)}"),
                _number(text.count(None if is_cut else part.version)),
                _number(text.count(None if is_cut else part.snapshot_version)),
            ]
        )
        for part in operator.partitions
    ]
    shown, many = len(operator.partitions), operator.partition_count
    if is_cut:
        which = f"{shown} of at least {many} partitions"
    else:
        which = f"the largest {shown} of {many} partitions" if shown < many else f"all {many} partitions"
    return html.Details([html.Summary(f"Operator {operator.number}: {which}"), _table(_PARTITION_HEADS, rows)])


def _batches(job: JobDetailOut, batches: Sequence[FolderBatchOut]) -> Component:
    """Build the table of the newest batches. One that another channel reported too is linked to its page."""
    runs = {batch.checkpoint_id: batch.run_id for batch in job.batches}
    heads = ("Batch", "Sources asked", "Offsets written", "Committed")
    rows = []
    for batch in reversed(batches):
        run = runs.get(batch.number)
        name = f"batch {batch.number}"
        page = None if run is None else routes.checkpoint(job.id, run, batch.number)
        # A commit without a time is of a folder whose files have lost their times.
        end = text.instant_utc(batch.committed_at) if batch.committed_at else "yes" if batch.is_committed else "not yet"
        rows.append(
            html.Tr(
                [
                    html.Td(name if page is None else dcc.Link(name, href=page)),
                    html.Td(text.instant_utc(batch.triggered_at)),
                    html.Td(text.instant_utc(batch.offsets_at)),
                    html.Td(end),
                ]
            )
        )
    return _table(heads, rows, numbers=())


def _sources(folder: CheckpointFolderOut, newest: FolderBatchOut) -> list[Component]:
    """Build the table of the sources: where the newest batch ends in each, and the log that a file source keeps."""
    logs = {log.number: log for log in folder.source_logs}
    count = max(len(newest.offsets), *(number + 1 for number in logs), 0)
    if not count:
        return []
    heads = ["Source", f"Offset at the end of batch {newest.number}"]
    rows = []
    for number in range(count):
        offset = newest.offsets[number] if number < len(newest.offsets) else None
        words = html.Code(text.short(offset, 160)) if offset else "none yet"
        cells = [html.Td(f"Source {number}"), html.Td(words, title=offset)]
        rows.append(html.Tr([*cells, *_log_cells(logs.get(number), is_cut=folder.is_cut)] if logs else cells))
    heads += ["Log files", "Newest whole log"] if logs else []
    return [_table(heads, rows, numbers=heads[2:])]


def _log_cells(log: SourceLogOut | None, *, is_cut: bool) -> list[html.Td]:
    if log is None:
        return [_number(text.MISSING), _number(text.MISSING)]
    is_known = log.compact_number is not None and not is_cut
    whole = f"{log.compact_number}.compact, {text.size(log.compact_bytes)}" if is_known else text.MISSING
    return [_number(f"{_AT_LEAST if is_cut else ''}{text.count(log.file_count)}"), _number(whole)]


def _table(heads: Sequence[str], rows: Sequence[html.Tr], *, numbers: Sequence[str] | None = None) -> Component:
    over = heads[1:] if numbers is None else numbers
    return html.Div(cards.table(heads, rows, numbers=over), className="table-scroll spaced")


def _number(words: str) -> html.Td:
    return html.Td(words, className="right number")
