"""Reads the checkpoint folder of one query as a target: what its files show, without a server.

A folder has no runs, so a poll returns no jobs. What it holds is kept beside the jobs of the query. A reading lists
all files of the folder, so it is repeated after ``READ_EVERY_S``, or later if it takes long.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Final

from backend.domain.checkpoint_files import (
    BATCHES_MAX,
    OPERATORS_MAX,
    PARTITIONS_MAX,
    SOURCES_MAX,
    CheckpointFiles,
    FolderBatch,
    OperatorFiles,
    PartitionFiles,
    SourceLog,
)
from backend.domain.engines import SPARK_CHECKPOINT
from backend.domain.errors import InvalidInputError, TargetProtocolError, TargetUnavailableError
from backend.domain.ids import TargetId
from backend.domain.observation import Observation, PollCost
from collectors.spark.checkpoint_findings import times_fit
from collectors.spark.checkpoint_folder import SMALL_BYTES, CheckpointFolder, Operator, read_folder

READ_EVERY_S: Final = 30.0
_PAUSE_TIMES: Final = 20.0
"""After a reading, the folder is left alone for this many times as long as the reading took."""
_PROBLEMS_MAX: Final = 10


@dataclass(slots=True)
class CheckpointCollector:
    """Implements ``Collector`` for the checkpoint folder at ``path``."""

    path: Path
    target_id: TargetId
    monotonic_s: Callable[[], float]
    _due_s: float = -math.inf

    @property
    def poll_within_s(self) -> float | None:
        """None: what the folder drops, Spark has counted out."""
        return None

    def forget(self) -> None:
        """Read the folder again at the next poll."""
        self._due_s = -math.inf

    async def collect(self, now: datetime) -> Observation:
        """Read the folder if it is due.

        Raises:
            TargetUnavailableError: the folder cannot be read.
            TargetProtocolError: it is no checkpoint folder of a query that has an id.
        """
        began_s = self.monotonic_s()
        found = None
        if began_s >= self._due_s:
            found = files_of(await asyncio.to_thread(self._read))
            took_s = self.monotonic_s() - began_s
            self._due_s = began_s + max(READ_EVERY_S, _PAUSE_TIMES * took_s)
        cost = PollCost(0, 0, round((self.monotonic_s() - began_s) * 1000))
        return Observation(self.target_id, now, SPARK_CHECKPOINT, None, (), cost, folder=found)

    def _read(self) -> CheckpointFolder:
        url = f"file://{self.path}"
        try:
            folder = read_folder(str(self.path))
        except InvalidInputError as error:
            reason = error.problems[0].problem
            raise TargetUnavailableError(url=url, reason=reason) from error
        if folder.query_id is None:
            raise TargetProtocolError(url=url, reason=folder.problems[0])
        return folder


def files_of(folder: CheckpointFolder) -> CheckpointFiles:
    """Return what is kept of a reading. The folder must have the id of its query."""
    files = folder.files
    newest = folder.newest_offsets
    return CheckpointFiles(
        query_id=folder.query_id or "",
        offsets_count=len(folder.offsets),
        commits_count=len(folder.commits),
        batches=_batches(folder),
        watermark_at=None if newest is None else newest.watermark_at,
        file_count=files.count - files.checksum_count,
        small_count=files.small_count,
        small_bytes=SMALL_BYTES,
        size_bytes=files.size_bytes,
        checksum_count=files.checksum_count,
        temporary_count=files.temporary_count,
        is_cut=files.is_cut,
        operators=tuple(_operator(o) for o in list(folder.operators.values())[:OPERATORS_MAX]),
        operator_count=len(folder.operators),
        source_logs=tuple(
            SourceLog(number, count, *folder.compacted.get(number, (None, None)))
            for number, count in sorted(folder.source_files.items())[:SOURCES_MAX]
        ),
        problems=tuple(folder.problems[:_PROBLEMS_MAX]),
    )


def _batches(folder: CheckpointFolder) -> tuple[FolderBatch, ...]:
    has_times = times_fit(folder)
    found = []
    for number in sorted(folder.offsets)[-BATCHES_MAX:]:
        begun, commit = folder.offsets[number], folder.commits.get(number)
        found.append(
            FolderBatch(
                number=number,
                is_committed=commit is not None,
                triggered_at=begun.triggered_at,
                offsets_at=begun.written_at if has_times else None,
                committed_at=commit.written_at if has_times and commit is not None else None,
                offsets=begun.offsets[:SOURCES_MAX],
            )
        )
    return tuple(found)


def _operator(operator: Operator) -> OperatorFiles:
    parts = operator.partitions
    sizes = [part.size_bytes for part in parts.values()]
    versions = [part.version for part in parts.values() if part.version is not None]
    lags = [p.version - (p.snapshot_version or 0) for p in parts.values() if p.version is not None]
    largest = sorted(parts, key=lambda number: (-parts[number].size_bytes, number))[:PARTITIONS_MAX]
    return OperatorFiles(
        number=operator.number,
        name=operator.name,
        partition_count=len(parts),
        file_count=sum(part.file_count for part in parts.values()),
        size_bytes=sum(sizes),
        delta_count=sum(part.delta_count for part in parts.values()),
        snapshot_count=sum(part.snapshot_count for part in parts.values()),
        median_bytes=round(median(sizes)) if sizes else None,
        version=max(versions, default=None),
        snapshot_lag=max(lags, default=None),
        partitions=tuple(
            PartitionFiles(
                number=number,
                size_bytes=parts[number].size_bytes,
                file_count=parts[number].file_count,
                delta_count=parts[number].delta_count,
                snapshot_count=parts[number].snapshot_count,
                version=parts[number].version,
                snapshot_version=parts[number].snapshot_version,
            )
            for number in largest
        ),
    )
