"""Tests the connection to a target of kind ``spark``: lists its applications, and reads logs for a while.

Stores nothing. The test uses the collector with the same limits. So the collector can also read what passes the test.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final

from backend.domain.checkpoint_files import CheckpointFiles
from backend.domain.connection import Reach
from backend.domain.errors import TargetUnavailableError
from backend.domain.ids import target_id
from backend.domain.observation import JobState
from collectors.base import Probed
from collectors.spark.applications import counted
from collectors.spark.collector import LogOptions
from collectors.spark.opening import SparkCollector, opened
from collectors.spark.remote_folder import RemoteFolder

_JOBS_MAX: Final = 50
_READING_SHARE: Final = 0.5


async def probe(url: str, timeout_s: float, *, reach: Reach) -> Probed:
    """Test the target at ``url``. Each request takes at most ``timeout_s`` seconds, and all logs half of that.

    Raises:
        InvalidInputError: ``url`` is not an http(s) address, nor that of a folder.
        TargetUnavailableError: the target did not answer in time.
        TargetProtocolError: the response is not one that Spark sends.
    """
    options = LogOptions(wait_s=_READING_SHARE * timeout_s, is_dated_by_list=True)
    # The API takes no address of a folder, so such an address is the operator's.
    try:
        async with opened(
            url, target_id(url=url), {}, timeout_s=timeout_s, reach=reach, may_be_folder=True, options=options
        ) as collector:
            return await _probed(collector)
    except OSError as error:
        raise TargetUnavailableError(url=url, reason=type(error).__name__) from None


async def _probed(collector: SparkCollector) -> Probed:
    found = await collector.collect(datetime.fromtimestamp(time.time(), UTC))
    names = sorted({job.name for job in found.jobs if job.state is not JobState.ENDED})
    summary = _summary(collector, found.engine_version, found.folder)
    return Probed(found.engine, found.engine_version, tuple(names[:_JOBS_MAX]), summary)


def _summary(collector: SparkCollector, version: str | None, folder: CheckpointFiles | None) -> str:
    logs = collector.logs
    if folder is not None:
        newest = f"batch {folder.batches[-1].number} is the newest" if folder.batches else "no batch has begun"
        return f"Checkpoint folder of the query {folder.query_id}; {newest}"
    if logs is None:
        count = 0 if collector.driver is None else collector.driver.query_count
        return f"Spark driver {version}, {count} streaming {'query' if count == 1 else 'queries'} in its list"
    unread = f", {logs.unread_count} not read yet" if logs.unread_count else ""
    problem = None if collector.folder is None else collector.folder.problem
    left_out = f"; {problem}" if problem else ""
    if isinstance(collector.folder, RemoteFolder) and collector.folder.is_partial:
        left_out += (
            "; one poll does not list the whole folder, so new logs may be seen some polls late. Later polls read the"
            " rest of the list: it is not known yet what the rest of the list leaves out"
        )
    what = "Folder of Spark event logs" if version is None else f"Spark history server {version}"
    return (
        f"{what}, {counted(logs.application_count)} running or ended within an hour,"
        f" {logs.streaming_count} with streaming queries{unread}{left_out}"
    )
