"""Tests the connection to a history server of Spark: lists its applications, and reads logs for a while.

Stores nothing. The test uses the collector with the same limits. So the collector can also read what passes the test.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final

from backend.domain.clock import from_epoch_ms
from backend.domain.connection import Reach
from backend.domain.engines import SPARK_HISTORY
from backend.domain.errors import TargetUnavailableError
from backend.domain.ids import target_id
from backend.domain.observation import JobState
from collectors.base import Probed
from collectors.flink.client import open_transport
from collectors.spark import applications
from collectors.spark.collector import HistoryCollector, HistoryOptions, tasks

ENGINE: Final = "Spark"
_JOBS_MAX = 50
_READING_SHARE = 0.5


async def probe(url: str, timeout_s: float, *, reach: Reach) -> Probed:
    """Test the target at ``url``. Each request takes at most ``timeout_s`` seconds, and all logs half of that.

    Raises:
        InvalidInputError: ``url`` is not an http(s) address.
        TargetUnavailableError: the target did not answer in time.
        TargetProtocolError: the response is not one that Spark sends.
    """
    try:
        async with (
            open_transport(url, timeout_s=timeout_s, reach=reach, engine=ENGINE) as transport,
            tasks() as start,
        ):
            options = HistoryOptions(wait_s=_READING_SHARE * timeout_s)
            target = target_id(url=transport.url)
            collector = HistoryCollector(transport, target, {}, time.monotonic, start, options)
            try:
                return await _probed(collector)
            finally:
                collector.close()
    except OSError as error:
        raise TargetUnavailableError(url=url, reason=type(error).__name__) from None


async def _probed(collector: HistoryCollector) -> Probed:
    listed = await collector.list_since(datetime.fromtimestamp(time.time(), UTC) - timedelta(hours=1))
    # The times in the list are of the server's clock.
    newest_ms = max((a.updated_ms for a in listed), default=0)
    found = await collector.observe(listed, from_epoch_ms(max(0, newest_ms)), time.monotonic())
    names = sorted({job.name for job in found.jobs if job.state is not JobState.ENDED})
    unread = f", {collector.unread_count} not read yet" if collector.unread_count else ""
    count = len({a.app_id for a in listed})
    summary = (
        f"Spark history server {found.engine_version}, {applications.counted(count)} running or ended within an hour,"
        f" {collector.streaming_count} with streaming queries{unread}"
    )
    return Probed(SPARK_HISTORY, found.engine_version, tuple(names[:_JOBS_MAX]), summary)
