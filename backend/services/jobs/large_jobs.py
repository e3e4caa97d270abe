"""Bounds what is read of a job with many subtasks, and reads it a few rows at a time.

The values of a checkpoint of 100,000 subtasks take 40 MB of memory. So of such a job, fewer checkpoints are read with
details, and fewer readings of backpressure, than the rules can use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from backend.analysis.assembling import NEWEST_READINGS
from backend.domain.topology import Topology
from backend.store.checkpoints.reader import CheckpointRecord
from backend.store.jobs.pressure import Readings, readings_between, readings_since, since_within

LARGE: Final = 10_000
"""The values of a job with more subtasks than this are read in turns, and some of its readings are left out."""
SUBTASKS_MAX: Final = 300_000
"""Subtasks of all checkpoints of one job whose details are read. A checkpoint with more has none.

It also bounds the subtasks of all readings of backpressure that are read at once.
"""


def is_large_job(topology: Topology) -> bool:
    """Return whether a job has so many subtasks that its values are read in turns."""
    return sum(v.parallelism for v in topology.vertices) > LARGE


def with_details(records: Sequence[CheckpointRecord]) -> list[CheckpointRecord]:
    """Return the newest of these checkpoints of one run, whose details are read. ``records`` are oldest first.

    The details of a subtask take 400 bytes of memory. So of a job with more than 11,000 subtasks, fewer checkpoints are
    read with details than the rules can use, and all with their headers.
    """
    checkpoint_records: list[CheckpointRecord] = []
    count = 0
    for record in reversed(records):
        count += record.header.subtask_count
        if count > SUBTASKS_MAX:
            break
        checkpoint_records.append(record)
    return checkpoint_records[::-1]


async def read_between(
    connection: AsyncConnection, run_id: str, since: datetime, until: datetime, *, is_large: bool
) -> Readings:
    """Return the readings of backpressure of this time, and fewer of a job that is large: the newest ones."""
    if is_large:
        since = await since_within(connection, run_id, since, until, most=SUBTASKS_MAX)
    return (await readings_between(connection, [run_id], since, until, is_large=is_large)).get(run_id, ())


async def read_newest(
    connection: AsyncConnection, read_at: Mapping[str, datetime], large: Set[str]
) -> Mapping[str, Readings]:
    """Return the readings of the newest ``NEWEST_READINGS`` of each run, and fewer of the runs that are ``large``."""
    since = {run: at - NEWEST_READINGS for run, at in read_at.items()}
    for run in large & since.keys():
        since[run] = await since_within(connection, run, since[run], read_at[run], most=SUBTASKS_MAX)
    return await readings_since(connection, since, is_large=bool(large))
