"""Reads the checkpoint folder of one query as a target: what its files show, without a server.

A folder has no runs, so a poll returns no jobs. What it holds is kept beside the jobs of the query. A reading lists
all files of the folder, so it is repeated after ``READ_EVERY_S``, or later if it takes long. A poll does not wait long
for it: the reading goes on, and a later poll takes what it found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
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
from backend.domain.spelling import duration
from collectors.spark.checkpoint_findings import times_fit
from collectors.spark.checkpoint_folder import (
    SMALL_BYTES,
    CheckpointFolder,
    Operator,
    is_checkpoint_folder,
    read_folder,
)
from collectors.spark.folder_threads import AtMostOne, FolderThreads, MountHangsError

_THREADS: Final = FolderThreads("checkpoint-folder")
_KINDS: Final = FolderThreads("folder-kind")
"""Apart from the readings, so that long readings of other folders keep no short question waiting."""

READ_EVERY_S: Final = 30.0
_PAUSE_TIMES: Final = 20.0
"""After a reading, the folder is left alone for this many times as long as the reading took."""
_PROBLEMS_MAX: Final = 10
_WAIT_S: Final = 20.0
"""A poll waits so long for the folder. It is less than a poll may take."""
_LATE_S: Final = 600.0
"""A reading that takes longer counts as one that does not end."""


@dataclass(slots=True)
class CheckpointCollector:
    """Implements ``Collector`` for the checkpoint folder at ``path``."""

    path: Path
    target_id: TargetId
    monotonic_s: Callable[[], float]
    _due_s: float = -math.inf
    _began_s: float | None = None
    """When the reading began that runs now, or whose result is not taken yet."""
    _is_checkpoint: bool | None = None
    """Remembered once it is known. A folder that is empty or missing may become either."""
    _kind: AtMostOne[bool] = field(init=False)
    _reading: AtMostOne[tuple[CheckpointFiles, float]] = field(init=False)

    def __post_init__(self) -> None:
        self._kind = AtMostOne(_KINDS, self.path)
        self._reading = AtMostOne(_THREADS, self.path)

    @property
    def poll_within_s(self) -> float | None:
        """None: what the folder drops, Spark has counted out."""
        return None

    def forget(self) -> None:
        """Read the folder again at the next poll."""
        self._due_s = -math.inf

    async def is_checkpoint(self) -> bool:
        """Return whether the folder is that of a query, and not one of event logs.

        Raises:
            TargetUnavailableError: the folder does not answer.
        """
        if self._is_checkpoint is None:
            try:
                # That it is one is remembered. Whether it is a folder of logs, those who list it know.
                self._is_checkpoint = (
                    await self._kind.result(lambda: is_checkpoint_folder(self.path), wait_s=_WAIT_S) or None
                )
            except MountHangsError as error:
                raise self._unavailable(error.reason) from None
            except TimeoutError:
                raise self._unavailable(f"the folder has not answered within {_WAIT_S:g} s") from None
            except OSError as error:
                raise self._unavailable(f"the folder cannot be asked ({error.strerror})") from None
        return self._is_checkpoint or False

    def has_logs(self, *, is_known: bool) -> None:
        """Remember that the folder is one of event logs, or that this is not known, or not any more."""
        self._is_checkpoint = False if is_known else None

    async def collect(self, now: datetime) -> Observation:
        """Read the folder if it is due, or take what a reading found that took longer than an earlier poll.

        Raises:
            TargetUnavailableError: the folder cannot be read.
            TargetProtocolError: it is no checkpoint folder of a query that has an id.
        """
        polled_s = self.monotonic_s()
        if self._began_s is None and polled_s >= self._due_s:
            self._began_s = polled_s
        found = None if self._began_s is None else await self._found(self._began_s)
        cost = PollCost(0, 0, round((self.monotonic_s() - polled_s) * 1000))
        return Observation(self.target_id, now, SPARK_CHECKPOINT, None, (), cost, folder=found)

    async def _found(self, began_s: float) -> CheckpointFiles | None:
        """Return what the reading found, or None if it has not ended yet."""
        try:
            found, ended_s = await self._reading.result(self._kept, wait_s=_WAIT_S)
        except MountHangsError as error:
            raise self._unavailable(error.reason) from None
        except TimeoutError:
            if (for_s := self.monotonic_s() - began_s) >= _LATE_S:
                raise self._unavailable(f"a reading of the folder has not ended for {duration(for_s * 1000)}") from None
            return None
        except Exception as error:
            # Another folder may be there by the next poll.
            self._began_s = self._is_checkpoint = None
            if isinstance(error, OSError):
                raise self._unavailable(f"the folder cannot be read ({error.strerror})") from None
            raise
        self._began_s = None
        self._due_s = began_s + max(READ_EVERY_S, _PAUSE_TIMES * (ended_s - began_s))
        return found

    def _kept(self) -> tuple[CheckpointFiles, float]:
        return files_of(self._read()), self.monotonic_s()

    def _unavailable(self, reason: str) -> TargetUnavailableError:
        return TargetUnavailableError(url=f"file://{self.path}", reason=reason)

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
        offsets_count=folder.offsets_count,
        commits_count=folder.commits_count,
        batches=_batches(folder),
        watermark_at=None if newest is None else newest.watermark_at,
        file_count=files.count - files.checksum_count,
        small_count=files.small_count,
        small_bytes=SMALL_BYTES,
        size_bytes=files.size_bytes,
        checksum_count=files.checksum_count,
        temporary_count=files.temporary_count,
        is_cut=files.is_cut,
        operators=tuple(_operator(o, is_cut=files.is_cut) for o in list(folder.operators.values())[:OPERATORS_MAX]),
        operator_count=len(folder.operators),
        source_logs=tuple(
            SourceLog(number, count, *((None, None) if files.is_cut else folder.compacted.get(number, (None, None))))
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


def _operator(operator: Operator, *, is_cut: bool) -> OperatorFiles:
    """Return what is kept of an operator. If files are missing (``is_cut``), no median and no newest file is known."""
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
        median_bytes=round(median(sizes)) if sizes and not is_cut else None,
        version=None if is_cut else max(versions, default=None),
        snapshot_lag=None if is_cut else max(lags, default=None),
        partitions=tuple(
            PartitionFiles(
                number=number,
                size_bytes=parts[number].size_bytes,
                file_count=parts[number].file_count,
                delta_count=parts[number].delta_count,
                snapshot_count=parts[number].snapshot_count,
                version=None if is_cut else parts[number].version,
                snapshot_version=None if is_cut else parts[number].snapshot_version,
            )
            for number in largest
        ),
    )
