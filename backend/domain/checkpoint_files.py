"""What the checkpoint folder of a Spark query holds: newest batches, offsets, files, and state by partition.

A channel of its own: it shows a query's batches and state without a server, and it knows no run, no rows and no phases.
So it belongs to a query by the query's id, and its batches to those of the other channels by their numbers. Only names,
sizes and times of files are read of the state. None means *not known*, never zero. Units are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

BATCHES_MAX: Final = 5
"""So many batches of a folder are kept, the newest ones."""
OPERATORS_MAX: Final = 20
PARTITIONS_MAX: Final = 8
"""So many partitions of an operator are kept, those with most bytes."""
SOURCES_MAX: Final = 20
OFFSET_MAX: Final = 300
"""Offsets longer than this are cut."""


@dataclass(frozen=True, slots=True)
class FolderBatch:
    """A batch of the folder. ``offsets`` has one text for each source, None if the source had none yet.

    ``offsets_at`` and ``committed_at`` are the times of the files. ``committed_at`` is None if the batch is not
    committed, and both are None if the times of the files are not those of the query.
    """

    number: int
    is_committed: bool
    triggered_at: datetime | None = None
    offsets_at: datetime | None = None
    committed_at: datetime | None = None
    offsets: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The files of one partition of a stateful operator, over all of its stores.

    A delta has the changes of one version, a snapshot the whole state. ``version`` is the newest of either, and
    ``snapshot_version`` that of the newest snapshot.
    """

    number: int
    size_bytes: int
    file_count: int
    delta_count: int
    snapshot_count: int
    version: int | None = None
    snapshot_version: int | None = None


@dataclass(frozen=True, slots=True)
class OperatorFiles:
    """The files of one stateful operator, and its ``PARTITIONS_MAX`` largest partitions, the largest one first.

    ``snapshot_lag`` is the number of versions after the newest snapshot, for the partition that is furthest behind.
    """

    number: int
    name: str | None
    partition_count: int
    file_count: int
    size_bytes: int
    delta_count: int
    snapshot_count: int
    median_bytes: int | None = None
    version: int | None = None
    snapshot_lag: int | None = None
    partitions: tuple[PartitionFiles, ...] = ()

    @property
    def skew_ratio(self) -> float | None:
        """How many times as many bytes as the median partition the largest one has; None if that is not known."""
        if self.partition_count < 2 or not self.median_bytes or not self.partitions:
            return None
        return self.partitions[0].size_bytes / self.median_bytes


@dataclass(frozen=True, slots=True)
class SourceLog:
    """The log of the files that a file source has read, in the folder ``sources``.

    Every n-th batch writes the whole log as one file (``N.compact``): ``compact_number`` is the N of the newest one,
    ``compact_bytes`` its size. Both are None if the folder has none.
    """

    number: int
    file_count: int
    compact_number: int | None = None
    compact_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """What one reading of a checkpoint folder found.

    ``batches`` are the newest, the oldest of them first. Checksums, which Hadoop writes beside a file on a local disk,
    are counted apart: ``file_count`` and ``small_count`` are without them, ``size_bytes`` is with them. If there are
    more files than are read (``is_cut``), each count and size is a lower bound. The medians and the newest files of
    the state and of the sources are then not known.
    """

    query_id: str
    offsets_count: int
    commits_count: int
    batches: tuple[FolderBatch, ...]
    watermark_at: datetime | None
    file_count: int
    small_count: int
    small_bytes: int
    """A file below this size is small."""
    size_bytes: int
    checksum_count: int
    temporary_count: int
    is_cut: bool
    operators: tuple[OperatorFiles, ...] = ()
    operator_count: int = 0
    source_logs: tuple[SourceLog, ...] = ()
    problems: tuple[str, ...] = ()
