"""The JSON of the checkpoint folders of a Spark query in our API."""

from __future__ import annotations

from datetime import datetime

from backend.contracts.model import Model


class FolderBatchOut(Model):
    """A batch of a checkpoint folder. It has no run: the number says which batch of the query it is."""

    number: int
    is_committed: bool
    triggered_at: datetime | None
    """As the file of its offsets says: later than the trigger by the time to ask the sources."""
    offsets_at: datetime | None
    """When the file of its offsets was written; null if the times of the files are not those of the query."""
    committed_at: datetime | None
    """When its commit was written; null if it is not committed, or if the times are not known."""
    offsets: list[str | None]
    """The end of the batch in each source, as the source's own text, cut. Null is a source that had none yet."""


class PartitionFilesOut(Model):
    """The files of one partition of a stateful operator."""

    number: int
    size_bytes: int
    file_count: int
    delta_count: int
    """Files with the changes of one version."""
    snapshot_count: int
    """Files with the whole state."""
    version: int | None
    """The newest version. Batch N writes version N + 1."""
    snapshot_version: int | None


class OperatorFilesOut(Model):
    """The files of one stateful operator, over its partitions."""

    number: int
    name: str | None
    """Spark writes it since 4.0."""
    partition_count: int
    file_count: int
    size_bytes: int
    delta_count: int
    snapshot_count: int
    median_bytes: int | None
    """The size of the median partition."""
    skew_ratio: float | None
    """How many times as many bytes as the median partition the largest one has."""
    version: int | None
    snapshot_lag: int | None
    """Number of versions since the newest snapshot, for the partition that is furthest behind."""
    partitions: list[PartitionFilesOut]
    """The largest partitions, the largest one first."""


class SourceLogOut(Model):
    """The log of the files that a file source has read."""

    number: int
    file_count: int
    compact_number: int | None
    """The number of the newest file that has the whole log, which every n-th batch writes; null if there is none."""
    compact_bytes: int | None


class CheckpointFolderOut(Model):
    """The newest reading of a checkpoint folder, measured from names, sizes and times of files and from its logs."""

    target_id: str
    target_name: str
    url: str
    observed_at: datetime
    """When it was read, on the clock of Barrierscope."""
    query_id: str
    offsets_count: int
    """Files of offsets, one for each batch that is kept."""
    commits_count: int
    batches: list[FolderBatchOut]
    """The newest batches, the oldest of them first."""
    watermark_at: datetime | None
    """The watermark of the newest batch; null if it has none."""
    file_count: int
    """Files without checksums. Like each count, a lower bound if ``is_cut``."""
    small_count: int
    small_bytes: int
    """A file below this size is small."""
    size_bytes: int
    checksum_count: int
    """Files that Hadoop writes beside each file on a local disk."""
    temporary_count: int
    """Files of a write that did not end."""
    is_cut: bool
    """Whether the folder has more files than are read. Medians and newest versions of the state are then null."""
    operators: list[OperatorFilesOut]
    operator_count: int
    source_logs: list[SourceLogOut]
    problems: list[str]
    """What of the folder could not be read."""
