"""Puts what a checkpoint folder alone proves into sentences: batches, gaps, age, state, files, and what it cannot know.

A folder has no rows, phases or errors. Its only clock besides the trigger's is that of its files, which a copy may have
lost. So a sentence that needs the times of files is left out if they do not fit the triggers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from statistics import median
from typing import Final

from backend.analysis.words import sentences as say
from collectors.spark.checkpoint_folder import (
    PARTITIONS,
    PROVIDER,
    SMALL_BYTES,
    CheckpointFolder,
    Entry,
    Operator,
    Partition,
)

_NEWEST: Final = 20
# Spark writes the offsets at most so long after the trigger, or the times of the files are not its own.
_TIMES_FIT_S: Final = 600.0
# File times of object stores have whole seconds.
_ORDER_S: Final = 2.0
_COMMITS_MANY: Final = 1_000
_FILES_MANY: Final = 50_000
_SNAPSHOT_LAG: Final = 30
_SKEW: Final = 5.0
_SKEW_BYTES: Final = 10 << 20
_GROWTH: Final = 1.5
_STILL: Final = timedelta(minutes=30)
_SHOWN: Final = 8
_HANGS_LEAST_MS: Final = 600_000.0
_HANGS_TIMES: Final = 10
_MISSING: Final = (
    "the rows, and the time that each phase of a batch takes",
    "why a batch is not committed, and whether a driver works on it now",
    "the trigger's interval, and whether the query keeps up",
)
_TO_LEARN: Final = "the listener, an event log (--event-log) or the history server has them"


class Level(StrEnum):
    """How much a finding matters."""

    BLOCKS = "blocks"
    """Spark refuses to start the query."""
    TROUBLE = "trouble"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the folder proves. The cure is empty if the folder does not show it."""

    level: Level
    text: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """One number of the folder, in words. ``basis`` is ``measured`` or ``reconstructed``."""

    name: str
    text: str
    basis: str = "measured"


@dataclass(frozen=True, slots=True)
class FolderFindings:
    """What one folder proves: a sentence on its newest batch, findings, the worst first, facts, and what is missing."""

    path: str
    query_id: str | None
    summary: str
    findings: tuple[Finding, ...]
    facts: tuple[Fact, ...]
    missing: tuple[str, ...]


def findings_of(folder: CheckpointFolder, *, now: datetime) -> FolderFindings:
    """Return what the folder proves as of ``now``."""
    seen = _Seen(folder, now)
    found = [*_broken(folder), *_of_logs(seen), *_of_state(seen), *_of_files(seen)]
    order = list(Level)
    missing = (
        _MISSING
        if seen.has_times
        else (*_MISSING, "how old the newest commit is, because the times of the files are lost")
    )
    return FolderFindings(
        folder.path,
        folder.query_id,
        _summary(seen),
        tuple(sorted(found, key=lambda one: order.index(one.level))),
        tuple(_facts(seen)),
        (*missing, _TO_LEARN),
    )


def shared_queries(folders: Sequence[CheckpointFolder]) -> list[Finding]:
    """Find folders of one query: copies, of which only one may be used."""
    by_id: dict[str, list[str]] = {}
    for folder in folders:
        if folder.query_id is not None:
            by_id.setdefault(folder.query_id, []).append(folder.path)
    return [
        Finding(
            Level.TROUBLE,
            f"the query {query} has {len(paths)} of these folders: {say.listed(paths)}",
            "a copy keeps the id of its query: if both are in use, two queries write the same batches; start one of"
            " them with a new folder",
        )
        for query, paths in by_id.items()
        if len(paths) > 1
    ]


def times_fit(folder: CheckpointFolder) -> bool:
    """Return whether the times of the files are those at which Spark wrote them. A copy of the folder loses them."""
    late_s = [
        (entry.written_at - entry.triggered_at).total_seconds()
        for entry in list(folder.offsets.values())[-_NEWEST:]
        if entry.triggered_at is not None
    ]
    # Spark 2.1 to 4.3 writes the trigger's time; only continuous mode does not.
    return not late_s or abs(median(late_s)) <= _TIMES_FIT_S


class _Seen:
    """What several rules need to know of a folder."""

    def __init__(self, folder: CheckpointFolder, now: datetime) -> None:
        self.folder = folder
        self.now = now
        self.offsets = sorted(folder.offsets)
        self.commits = sorted(folder.commits)
        committed = self.commits[-1] if self.commits else -1
        self.open = [number for number in self.offsets if number > committed]
        missing = _holes(self.offsets)
        # Asynchronous progress tracking and continuous mode skip the same numbers in both logs.
        common = (
            range(max(self.offsets[0], self.commits[0]), committed + 1) if self.offsets and self.commits else range(0)
        )
        is_same = [n for n in self.offsets if n in common] == [n for n in self.commits if n in common]
        self.is_skipping = len(missing) > 1 and is_same and len(common) > len(self.commits)
        self.gaps = [] if self.is_skipping else missing
        self.has_times = times_fit(folder)

    def age(self, at: datetime) -> str:
        """Return how long ago something was, in words."""
        return f"{say.duration(max(0.0, (self.now - at).total_seconds() * 1000))} ago"


def _summary(seen: _Seen) -> str:
    folder, newest = seen.folder, seen.folder.newest_commit
    if not seen.offsets and newest is None:
        return "no batch has begun in this folder"
    at = "" if newest is None else f"batch {newest.number} is the newest that is committed"
    if newest is not None and seen.has_times:
        at += f", at {say.utc_minute(newest.written_at)}, {seen.age(newest.written_at)}"
    if not seen.open:
        return f"{at}; no later batch has begun"
    last = folder.offsets[seen.open[-1]]
    if newest is None and len(seen.open) > 1:
        return f"batch {last.number} is the newest that began{_ago(seen, last.triggered_at)}"
    began = "" if last.triggered_at is None else f" began {seen.age(last.triggered_at)} and"
    what = f"batch {last.number}{began} is not committed: it runs, or it failed, or the query was stopped in it"
    return f"{at}; {what}" if at else what


def _ago(seen: _Seen, at: datetime | None) -> str:
    return "" if at is None else f", {seen.age(at)}"


def _broken(folder: CheckpointFolder) -> Iterator[Finding]:
    newest = {f"{log}/{entry.number}" for log, entry in _newest(folder) if entry is not None}
    for problem in folder.problems:
        blocks = problem.split(" ", 1)[0] in newest or "refuses" in problem
        yield Finding(
            Level.BLOCKS if blocks else Level.TROUBLE,
            problem,
            "restore the file from a copy, or start the query with a new checkpoint folder" if blocks else "",
        )


def _newest(folder: CheckpointFolder) -> tuple[tuple[str, Entry | None], tuple[str, Entry | None]]:
    return ("offsets", folder.newest_offsets), ("commits", folder.newest_commit)


def _of_logs(seen: _Seen) -> Iterator[Finding]:
    offsets, commits = seen.offsets, seen.commits
    if seen.is_skipping:
        text = (
            "both logs skip the same batches: the query tracks its progress asynchronously or runs in continuous mode"
        )
        yield Finding(Level.NOTE, text)
    if commits and (not offsets or commits[-1] > offsets[-1]):
        yield Finding(
            Level.BLOCKS,
            f"batch {commits[-1]} is committed, but its file of offsets is missing",
            "restore offsets from a copy: something other than Spark removed it",
        )
    if len(offsets) > 1 and offsets[-1] - 1 in seen.gaps:
        yield Finding(
            Level.BLOCKS,
            f"offsets/{offsets[-1] - 1} is missing before the newest batch {offsets[-1]}: Spark refuses to start the"
            f" query (batch {offsets[-1] - 1} doesn't exist)",
            "restore the file from a copy; find what removes files of the folder, such as a rule of the store that"
            " expires objects",
        )
    elif seen.gaps:
        yield Finding(Level.TROUBLE, f"offsets has no file of {_batches(seen.gaps)}, although older ones are there")
    lost = (
        []
        if seen.is_skipping
        else [n for n in offsets if commits and commits[0] < n < commits[-1] and n not in set(commits)]
    )
    if lost:
        yield Finding(Level.TROUBLE, f"commits has no file of {_batches(lost)}, although later batches are committed")
    if len(offsets) > 1 and not commits:
        text = "there is no file of commits, as in Spark 2.1.0: which batches are committed is not known"
        yield Finding(Level.NOTE, text)
    elif len(seen.open) > 1 and not seen.is_skipping:
        yield Finding(
            Level.TROUBLE,
            f"{say.count(len(seen.open))} batches after batch {commits[-1]} have offsets and no commit:"
            f" {_batches(seen.open)}",
            "Spark runs one at a time: files of commits were lost, or the query tracks its progress asynchronously",
        )
    yield from _of_open_batch(seen)
    if seen.folder.commits_count > _COMMITS_MANY:
        yield Finding(
            Level.TROUBLE,
            f"commits has {say.count(seen.folder.commits_count)} files, and Spark keeps 100 by default",
            "spark.sql.streaming.minBatchesToRetain is large, or Spark cannot remove files: look for refused deletes",
        )
    yield from _of_order(seen)
    yield from _of_watermark(seen)


def _of_open_batch(seen: _Seen) -> Iterator[Finding]:
    took = _durations_ms(seen)
    last = seen.folder.offsets[seen.open[-1]] if seen.open else None
    if last is None or last.triggered_at is None or not took:
        return
    age_ms = (seen.now - last.triggered_at).total_seconds() * 1000
    if age_ms >= max(_HANGS_LEAST_MS, _HANGS_TIMES * max(took)):
        yield Finding(
            Level.TROUBLE,
            f"batch {last.number} is open for {say.duration(age_ms)}, and none of the newest {_pairs(took)} took longer"
            f" than {say.duration(max(took))}: the query has ended or hangs",
        )


def _of_order(seen: _Seen) -> Iterator[Finding]:
    """Find signs that two runs write into the folder."""
    folder = seen.folder
    if not seen.has_times or seen.is_skipping:
        return
    for number in seen.commits:
        after = folder.offsets.get(number + 1)
        commit = folder.commits[number]
        if after is not None and (commit.written_at - after.written_at).total_seconds() > _ORDER_S:
            later = say.duration((commit.written_at - after.written_at).total_seconds() * 1000)
            yield Finding(
                Level.TROUBLE,
                f"commits/{number} is {later} newer than offsets/{number + 1}, which Spark writes after it: two runs"
                " use this folder, or a copy changed the times",
                "stop all but one query on this folder, and give the others a folder of their own",
            )
            return
    for first, second in pairwise(folder.offsets.values()):
        if first.triggered_at is None or second.triggered_at is None:
            continue
        back_s = (first.triggered_at - second.triggered_at).total_seconds()
        if back_s > _ORDER_S:
            yield Finding(
                Level.TROUBLE,
                f"batch {second.number} was triggered {say.duration(back_s * 1000)} before batch {first.number}: the"
                " drivers have different clocks, or two runs use this folder",
            )
            return


def _of_watermark(seen: _Seen) -> Iterator[Finding]:
    known = [e for e in seen.folder.offsets.values() if e.watermark_at is not None and e.triggered_at is not None]
    if not known:
        return
    last = known[-1]
    same = [entry for entry in known if entry.watermark_at == last.watermark_at]
    stood = (last.triggered_at or seen.now) - (same[0].triggered_at or seen.now)
    if len(same) >= _NEWEST and stood >= _STILL:
        yield Finding(
            Level.TROUBLE,
            f"the watermark stands at {say.utc_minute(last.watermark_at or seen.now)} since"
            f" {say.count(len(same))} batches, {say.duration(stood.total_seconds() * 1000)}: no window closes and no"
            " state is removed",
            "rows with newer event times are needed in every source, because the slowest source holds the watermark",
        )


def _of_state(seen: _Seen) -> Iterator[Finding]:
    """Compare the partitions and versions of the state, unless files of it may not have been read."""
    if seen.folder.files.is_cut:
        return
    for operator in seen.folder.operators.values():
        parts = operator.partitions
        if not parts:
            continue
        name = _operator(operator)
        yield from _unversioned(seen, name, parts)
        lags = {n: p.version - (p.snapshot_version or 0) for n, p in parts.items() if p.version is not None}
        if lags and max(lags.values()) >= _SNAPSHOT_LAG:
            worst = max(lags, key=lags.__getitem__)
            yield Finding(
                Level.TROUBLE,
                f"partition {worst} of {name} has no snapshot in its newest {say.count(lags[worst])} versions: a"
                " restart replays the changes of all of them",
                "a smaller spark.sql.streaming.stateStore.minDeltasForSnapshot, or what keeps the executors from"
                " uploading",
            )
        largest = max(parts, key=lambda n: parts[n].size_bytes)
        size, usual = parts[largest].size_bytes, median([p.size_bytes for p in parts.values()])
        if len(parts) > 2 and size >= _SKEW_BYTES and size >= _SKEW * usual:
            yield Finding(
                Level.TROUBLE,
                f"partition {largest} of {name} has {say.size(size)}, the median of its partitions {say.size(usual)}",
                "a key that is less skewed: more partitions do not divide one key",
            )
        yield from _growth(name, parts)


def _unversioned(seen: _Seen, name: str, parts: Mapping[int, Partition]) -> Iterator[Finding]:
    newest = seen.folder.newest_commit
    if newest is None or seen.is_skipping:
        return
    behind = [n for n, p in sorted(parts.items()) if p.version is not None and p.version < newest.number + 1]
    if behind and len(behind) < len(parts):
        yield Finding(
            Level.BLOCKS,
            f"{_numbered('partition', behind)} of {name} {'has' if len(behind) == 1 else 'have'} no file of version"
            f" {newest.number + 1}, which a restart after batch {newest.number} reads",
            "restore the files from a copy, or start the query with a new checkpoint folder",
        )


def _growth(name: str, parts: Mapping[int, Partition]) -> Iterator[Finding]:
    stores = [s for p in parts.values() for s in p.snapshots.values() if len(s) > 1]
    first, last = (sum(s[pick(s)] for s in stores) for pick in (min, max))
    if first > 0 and last >= _GROWTH * first and last - first >= SMALL_BYTES:
        versions = [pick(s) for s in stores for pick in (min, max)]
        yield Finding(
            Level.TROUBLE,
            f"the state of {name} grows: its snapshots take {say.size(last)} now and took {say.size(first)} before, in"
            f" versions {min(versions)} to {max(versions)}",
            "a watermark on the column by which the query groups, joins or deduplicates, if rows are never removed; the"
            " listener reports whether they are",
        )


def _of_files(seen: _Seen) -> Iterator[Finding]:
    files = seen.folder.files
    if files.is_cut or files.count >= _FILES_MANY:
        more = "more than " if files.is_cut else ""
        yield Finding(
            Level.TROUBLE,
            f"the folder has {more}{say.count(files.count)} files: each start of the query lists them, and so does"
            " each look for old files",
            "fewer partitions (they are set by the first start) and a smaller spark.sql.streaming.minBatchesToRetain",
        )


def _facts(seen: _Seen) -> Iterator[Fact]:
    folder = seen.folder
    yield Fact("batches with offsets", _span(seen.offsets, folder.offsets_count))
    yield Fact("committed batches", _span(seen.commits, folder.commits_count))
    newest = folder.newest_offsets
    if newest is not None and newest.triggered_at is not None:
        yield Fact("newest trigger", f"{say.utc_minute(newest.triggered_at)}, batch {newest.number}")
    if newest is not None and newest.watermark_at is not None:
        behind = "" if newest.triggered_at is None else (
            f", {say.duration(abs((newest.triggered_at - newest.watermark_at).total_seconds()) * 1000)}"
            f" {'before' if newest.triggered_at >= newest.watermark_at else 'after'} the trigger"
        )  # fmt: skip
        yield Fact("watermark", f"{say.utc_minute(newest.watermark_at)}{behind}")
    if newest is not None and newest.source_count is not None:
        logs = ", ".join(f"{say.count(n)} log files of source {s}" for s, n in sorted(folder.source_files.items()))
        yield Fact("sources", f"{newest.source_count}{f': {logs}' if logs else ''}")
    yield from _paces(seen)
    for operator in folder.operators.values():
        yield _state_fact(operator, is_cut=folder.files.is_cut)
    settings = {} if newest is None else newest.settings
    if PARTITIONS in settings or PROVIDER in settings:
        parts = [f"{settings[PARTITIONS]} partitions"] if PARTITIONS in settings else []
        parts += [settings[PROVIDER].rpartition(".")[2]] if PROVIDER in settings else []
        yield Fact("set by the first start", ", ".join(parts))
    yield _files_fact(seen)


def _span(numbers: Sequence[int], file_count: int) -> str:
    """Return which batches a log has. Of a log with very many, only the numbers of the newest are known."""
    if len(numbers) < 2:
        return str(*numbers) or "none"
    first = f"{numbers[0]} to" if file_count == len(numbers) else "up to"
    return f"{first} {numbers[-1]}, {say.count(file_count)} files"


def _paces(seen: _Seen) -> Iterator[Fact]:
    folder = seen.folder
    entries = list(folder.offsets.values())[-_NEWEST - 1 :]
    pauses = [
        (second.triggered_at - first.triggered_at).total_seconds() * 1000
        for first, second in pairwise(entries)
        if first.triggered_at is not None and second.triggered_at is not None and second.number == first.number + 1
    ]
    if pauses:
        yield Fact("from trigger to trigger", _spread(pauses))
    took = _durations_ms(seen)
    if took:
        text = f"{_spread(took)}: from the trigger to the time of the file in commits"
        yield Fact("duration of a batch", text, "reconstructed")


def _durations_ms(seen: _Seen) -> list[float]:
    """Return how long the newest batches took, if the times of the files are known."""
    folder = seen.folder
    return [
        (folder.commits[entry.number].written_at - entry.triggered_at).total_seconds() * 1000
        for entry in list(folder.offsets.values())[-_NEWEST - 1 :]
        if entry.number in folder.commits and entry.triggered_at is not None and seen.has_times
    ]


def _spread(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{say.duration(values[0])}, the newest batch"
    return (
        f"{say.duration(median(values))} in the median of the newest {len(values)}, at most {say.duration(max(values))}"
    )


def _pairs(values: Sequence[float]) -> str:
    return f"{len(values)} batch{'' if len(values) == 1 else 'es'}"


def _state_fact(operator: Operator, *, is_cut: bool) -> Fact:
    parts = operator.partitions
    if not parts:
        return Fact(f"state of {_operator(operator)}", "no files")
    sizes = [p.size_bytes for p in parts.values()]
    versions = [p.version for p in parts.values() if p.version is not None]
    newest = f", version {max(versions)}" if versions else ""
    largest = max(parts, key=lambda n: parts[n].size_bytes)
    if is_cut:
        text = f"at least {say.size(sum(sizes))} in {say.count(len(parts))} or more partitions"
        return Fact(f"state of {_operator(operator)}", text)
    text = (
        f"{say.size(sum(sizes))} in {say.count(sum(p.file_count for p in parts.values()))} files of"
        f" {say.count(len(parts))} partition{'' if len(parts) == 1 else 's'}{newest}; the largest is {largest} with"
        f" {say.size(max(sizes))}"
    )
    return Fact(f"state of {_operator(operator)}", text)


def _files_fact(seen: _Seen) -> Fact:
    files = seen.folder.files
    own = files.count - files.checksum_count
    small = f"{say.count(files.small_count)} of them below {say.size(SMALL_BYTES)}"
    text = f"{'at least ' if files.is_cut else ''}{say.count(own)} with {say.size(files.size_bytes)}, {small}"
    if files.checksum_count:
        text += f"; {say.count(files.checksum_count)} checksums"
    if files.temporary_count:
        text += f"; {say.count(files.temporary_count)} of a write that did not end"
    return Fact("files", text)


def _operator(operator: Operator) -> str:
    return f"operator {operator.number}" + (f" ({operator.name})" if operator.name else "")


def _batches(numbers: Sequence[int]) -> str:
    return _numbered("batch", numbers, "batches")


def _numbered(word: str, numbers: Sequence[int], plural: str | None = None) -> str:
    shown = [str(n) for n in numbers[:_SHOWN]]
    if len(numbers) == 1:
        return f"{word} {shown[0]}"
    more = f" and {say.count(len(numbers) - _SHOWN)} more" if len(numbers) > _SHOWN else ""
    listed = ", ".join(shown) + more if more else say.listed(shown)
    return f"{plural or f'{word}s'} {listed}"


def _holes(numbers: Sequence[int]) -> list[int]:
    """Return the numbers between the first and the last one that are missing, at most a thousand."""
    found: list[int] = []
    for first, second in pairwise(numbers):
        found += range(first + 1, min(second, first + 1_001))
    return found[:1_000]
