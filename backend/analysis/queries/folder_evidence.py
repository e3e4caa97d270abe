"""What the checkpoint folder of a query adds to the verdict on it: rows of evidence, never another cause.

The folder shows the sizes of the state by partition, its snapshots, the number of files, and batches without a commit.
It does not show what takes the time of a batch, so no row names a cause. Two folders with the id of one query are
copies, and it is not known which of them the query uses, so neither is evidence. If files of the folder were not read,
a size that is compared is not known. A folder is read less often than its query, so each row names the time of reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.words import sentences as say
from backend.domain.checkpoint_files import CheckpointFiles, OperatorFiles
from backend.domain.verdict import Diagnosis, Evidence

SKEW_MIN_RATIO: Final = 5.0
SKEW_MIN_BYTES: Final = 10 << 20
"""State is skewed if its largest partition has this size, and this many times the bytes of the median one."""
SNAPSHOT_LAG_MIN_COUNT: Final = 30
"""A snapshot is old if a restart would replay so many versions after it."""
FILES_MIN_COUNT: Final = 50_000
"""A folder has many files from here on: each start of the query lists them."""


def with_folder(diagnosis: Diagnosis, evidence: JobEvidence) -> Diagnosis:
    """Return the diagnosis with what the checkpoint folder of the query shows, as the last rows of its evidence."""
    if len(evidence.folders) != 1:
        return diagnosis
    ((read_at, folder),) = evidence.folders
    when = f" (folder read at {say.utc_minute(read_at)})"
    rows = tuple(replace(row, statement=f"{row.statement}{when}") for row in _rows(folder, evidence))
    if not rows:
        return diagnosis
    return replace(diagnosis, verdict=replace(diagnosis.verdict, evidence=(*diagnosis.verdict.evidence, *rows)))


def _rows(folder: CheckpointFiles, evidence: JobEvidence) -> Iterator[Evidence]:
    for operator in folder.operators:
        yield from _of_state(operator)
    if folder.file_count >= FILES_MIN_COUNT:
        small = f"{say.count(folder.small_count)} of them below {say.size(folder.small_bytes)}"
        least = "at least " if folder.is_cut else ""
        statement = f"the checkpoint folder has {least}{say.count(folder.file_count)} files, {small}"
        yield Evidence(statement, "files of the folder", value=float(folder.file_count), unit="count")
    yield from _of_batches(folder, evidence)
    yield from (Evidence(f"the checkpoint folder: {problem}", "folder") for problem in folder.problems[:1])


def _of_state(operator: OperatorFiles) -> Iterator[Evidence]:
    name = f"operator {operator.number}" if operator.name is None else f"{operator.name} ({operator.number})"
    ratio, largest = operator.skew_ratio, next(iter(operator.partitions), None)
    if largest is not None and ratio is not None and ratio >= SKEW_MIN_RATIO and largest.size_bytes >= SKEW_MIN_BYTES:
        yield Evidence(
            f"the files of partition {largest.number} of {name} have {say.size(largest.size_bytes)}, those of the"
            f" median partition {say.size(operator.median_bytes or 0)}",
            "state of a partition",
            value=ratio,
            unit="ratio",
        )
    lag = operator.snapshot_lag
    if lag is not None and lag >= SNAPSHOT_LAG_MIN_COUNT:
        yield Evidence(
            f"{name} has {say.count(lag)} versions of its state after the newest snapshot in the folder: a restart"
            " replays them",
            "snapshot lag",
            value=float(lag),
            unit="count",
        )


def _of_batches(folder: CheckpointFiles, evidence: JobEvidence) -> Iterator[Evidence]:
    """Say that a restart repeats the batch that failed. A query that runs always has a batch without a commit."""
    newest = folder.batches[-1] if folder.batches else None
    failed = {c.header.checkpoint_id for c in evidence.checkpoints[-1:] if c.header.failed_at is not None}
    if newest is not None and newest.number in failed and not newest.is_committed:
        statement = f"the folder has the offsets of batch {newest.number} and no commit: the next start repeats it"
        yield Evidence(statement, "commit", value=float(newest.number), unit="count")
