"""Joins what several channels reported of one batch: which value is shown, where it comes from, and what disagrees.

A channel that measured a value is preferred to one that reconstructed it, then one that has the whole batch to one that
has its execution only. A value that the first channel lacks comes from the next one. Nothing is lost by that: every
value of which two channels report something else is a disagreement.

The driver's REST API has the SQL execution of a batch, which begins later and ends earlier than the batch. So its times
are not compared with those of the batch; they must lie within it. A batch can fail after its execution completed, for
example when Spark writes the commit log. So a completed execution never hides a failure that another channel reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, Final

from backend.domain import spelling
from backend.domain.channel import BatchReport, Channel, ChannelValue, Disagreement, JoinedBatch
from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.micro_batch import BatchState, MicroBatch, OperatorState, SourceProgress
from backend.domain.verdict import Basis

WITHIN: Final = timedelta(seconds=1)
"""An execution may begin this much before its batch, or end this much after it. The clock may be set meanwhile."""

Values = Mapping[str, object]
_HALF: Final = 0.5 + 1e-6
# Two programs that divide the same numbers may differ by this part of the quotient.
_QUOTIENT: Final = 1e-9
_ROWS: Final = spelling.count
_HEADER: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "status": ("status", str),
    "triggered_at": ("trigger", lambda at: f"{at:%H:%M:%S.%f}"[:-3]),
    "end_to_end_duration_ms": ("duration", lambda ms: f"{ms:,} ms"),
    "full_state_size_bytes": ("state size", lambda size: f"{size:,} B"),
    "failure_message": ("error", str),
    "failed_at": ("end", lambda at: f"{at:%H:%M:%S.%f}"[:-3]),
}
_BATCH: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "input_row_count": ("input rows", _ROWS),
    "processed_rows_per_s": ("processed rows/s", lambda rate: f"{rate:.4g}"),
    "watermark_at": ("watermark", lambda at: f"{at:%Y-%m-%d %H:%M:%S.%f}"[:-3]),
    "sink": ("sink", str),
}
_WORDS: Final = dict((*_HEADER.values(), *_BATCH.values()))
# Of an execution only these say the same as those of a batch. Its error has other words than that of the query.
_OF_EXECUTION: Final = ("status",)
_NEVER_COMPARED: Final = ("failure_message", "failed_at")
WORK: Final = "Spark jobs"
"""The name of the value that is the Spark jobs and stages of a batch. Two channels choose different batches of it."""
_TIMES: Final = ("triggered_at", "end_to_end_duration_ms")


def joined(reports: Sequence[BatchReport]) -> JoinedBatch:
    """Join the reports of one batch, of which there must be one at least. At most one is from each target."""
    ordered = sorted(reports, key=_preference)
    execution, failure = ordered[0], _failure_after(ordered)
    if failure is None:
        checkpoint = execution.checkpoint
        origins = dict.fromkeys(values_of(checkpoint), execution.target)
    else:
        ordered = [failure, *(report for report in ordered if report is not failure)]
        checkpoint = _filled(_with_times_of(failure.checkpoint, execution.checkpoint), execution.checkpoint)
        times = dict.fromkeys((_HEADER[name][0] for name in _TIMES), execution.target)
        filled = dict.fromkeys(values_of(checkpoint), execution.target)
        origins = filled | dict.fromkeys(values_of(failure.checkpoint), failure.target) | times
    for report in ordered[1:]:
        if checkpoint.header.status is report.checkpoint.header.status:
            checkpoint = _filled(checkpoint, report.checkpoint)
            for name in values_of(checkpoint):
                origins.setdefault(name, report.target)
    return JoinedBatch(checkpoint, tuple(origins.items()), tuple(_disagreements(ordered)))


def _failure_after(ordered: Sequence[BatchReport]) -> BatchReport | None:
    """Return the report of a failure that may have come after the execution, which is the preferred report."""
    first = ordered[0]
    if first.channel is not Channel.DRIVER or first.checkpoint.header.status is not CheckpointStatus.COMPLETED:
        return None
    return next((r for r in ordered if r.checkpoint.header.status is CheckpointStatus.FAILED), None)


def _with_times_of(failure: Checkpoint, execution: Checkpoint) -> Checkpoint:
    times = {name: getattr(execution.header, name) for name in _TIMES}
    return replace(failure, header=replace(failure.header, **times))


def _preference(report: BatchReport) -> tuple[int, bool, int, str]:
    header, batch = report.checkpoint.header, report.checkpoint.batch
    is_guess = batch is not None and batch.number_basis is not Basis.MEASURED
    is_open = header.status is CheckpointStatus.IN_PROGRESS
    return 2 * is_open + is_guess, is_open, report.channel.rank, report.target


def values_of(checkpoint: Checkpoint) -> dict[str, object]:
    """Return the values of a batch that are known, by their names."""
    header, batch = checkpoint.header, checkpoint.batch or MicroBatch()
    found: dict[str, object] = {label: getattr(header, name) for name, (label, _) in _HEADER.items()}
    found |= {label: getattr(batch, name) for name, (label, _) in _BATCH.items()}
    found |= {f"phase {phase.value}": ms for phase, ms in batch.phases_ms}
    if batch.state is not None:
        found |= {f"state {_plain(f.name)}": getattr(batch.state, f.name) for f in fields(BatchState)}
    for number, source in enumerate(batch.sources, 1):
        found |= {f"source {number} {_plain(f.name)}": getattr(source, f.name) for f in fields(SourceProgress)}
    found[WORK] = batch.work
    return {name: value for name, value in found.items() if value is not None and value != ()}


def _plain(name: str) -> str:
    """Return the name of a field in words, without its unit: ``removed rows``, ``memory``, ``commit total``."""
    if name.endswith("_count"):
        return f"{name.removesuffix('_count')}s".replace("_", " ")
    return name.removesuffix("_bytes").removesuffix("_ms").replace("_", " ")


def _filled(checkpoint: Checkpoint, other: Checkpoint) -> Checkpoint:
    """Return the checkpoint with those values of ``other`` that it lacks."""
    header = replace(checkpoint.header, **_missing(checkpoint.header, other.header, _HEADER))
    batch, more = checkpoint.batch or MicroBatch(), other.batch or MicroBatch()
    changes = _missing(batch, more, (*_BATCH, "state", "work"))
    if not batch.phases_ms:
        changes["phases_ms"] = more.phases_ms
    if not batch.sources:
        changes["sources"] = more.sources
    return replace(checkpoint, header=header, batch=replace(batch, **changes))


def _missing(mine: object, theirs: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(theirs, name) for name in names if getattr(mine, name) is None}


def _disagreements(ordered: Sequence[BatchReport]) -> Iterable[Disagreement]:
    known = [(report, comparable(report)) for report in ordered if not _is_open(report)]
    for name in dict.fromkeys(name for _, values in known for name in values):
        with_value = [(report, values[name]) for report, values in known if name in values]
        if not all(_is_equal(with_value[0][1], value) for _, value in with_value[1:]):
            yield Disagreement(name, tuple(_in_words(report, name, value) for report, value in with_value))
    whole = next((r for r, _ in known if r.channel is not Channel.DRIVER and _is_measured(r)), None)
    for report, _ in known:
        if (
            whole is not None
            and report.channel is Channel.DRIVER
            and not _is_within(report.checkpoint, whole.checkpoint)
        ):
            spans = (ChannelValue(r.target, r.channel, _span(r.checkpoint)) for r in (whole, report))
            yield Disagreement("time", tuple(spans))


def _is_open(report: BatchReport) -> bool:
    return report.checkpoint.header.status is CheckpointStatus.IN_PROGRESS


def _is_measured(report: BatchReport) -> bool:
    batch = report.checkpoint.batch
    return batch is None or batch.number_basis is Basis.MEASURED


def comparable(report: BatchReport) -> dict[str, object]:
    """Return the values that say the same in each channel."""
    values = values_of(report.checkpoint)
    # Of a reconstructed batch only the end is known. That an execution ran is measured.
    only = _OF_EXECUTION if report.channel is Channel.DRIVER or not _is_measured(report) else values
    left_out = {WORK, *(_HEADER[name][0] for name in _NEVER_COMPARED)}
    return {name: value for name, value in values.items() if name in only and name not in left_out}


def _is_equal(mine: object, theirs: object) -> bool:
    """Return whether two values are equal after rounding to the coarser of the two.

    Since Spark 4, a listener gets rates with one decimal, and the event log has all of them.
    """
    if not isinstance(mine, float) or not isinstance(theirs, float):
        return mine == theirs
    decimals = min(len(repr(value).partition(".")[2]) for value in (mine, theirs))
    return bool(abs(mine - theirs) <= max(_HALF / 10**decimals, _QUOTIENT * abs(mine)))


def _is_within(execution: Checkpoint, batch: Checkpoint) -> bool:
    begin, end = _times(execution)
    first, last = _times(batch)
    return first - WITHIN <= begin and end <= last + WITHIN


def _times(checkpoint: Checkpoint) -> tuple[datetime, datetime]:
    header = checkpoint.header
    return header.triggered_at, header.triggered_at + timedelta(milliseconds=header.end_to_end_duration_ms or 0)


def _span(checkpoint: Checkpoint) -> str:
    begin, end = _times(checkpoint)
    return f"{begin:%H:%M:%S.%f}"[:-3] + f" to {end:%H:%M:%S.%f}"[:-3]


def _in_words(report: BatchReport, name: str, value: object) -> ChannelValue:
    words = _WORDS.get(name)
    text = words(value) if words is not None else _text(name, value)
    if name == "status" and not _is_measured(report):
        text += ", reconstructed"
    return ChannelValue(report.target, report.channel, text)


def _text(name: str, value: object) -> str:
    if isinstance(value, int) and name.startswith("phase "):
        return f"{value:,} ms"
    if isinstance(value, tuple):
        return ", ".join(_operator(v) if isinstance(v, OperatorState) else str(v) for v in value)
    return spelling.count(value) if isinstance(value, int) else str(value)


def _operator(state: OperatorState) -> str:
    """Return the values of an operator that are known: ``stateStoreSave (rows 5, memory 1,024)``."""
    known = ((_plain(f.name), getattr(state, f.name)) for f in fields(OperatorState) if f.name != "name")
    values = ", ".join(f"{name} {spelling.count(value)}" for name, value in known if value is not None)
    return f"{state.name or 'an operator'} ({values})"
