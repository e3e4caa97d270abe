"""The demo query of ``up``: one small real streaming query with state, which tells of itself by our listener.

It decides nothing but its own size: one thread, half a gigabyte at most, no web page, loopback only. Its checkpoint
folder outlives it, so the next start is the same query in a new run.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name everybody gives it
from pyspark.sql.streaming.query import StreamingQuery

from backend.contracts.spark import DEMO_DEPLOYMENT
from collectors.spark.listener import BarrierscopeListener

NAME = "spark-windowed-count"
TRIGGER_MS = 5_000
_ROWS_PER_BATCH = 1_000
_KEYS = 200
_LOOK_S = 0.5
_END_S = 5.0
_SETTINGS = {
    "spark.master": "local[1]",
    # Spark refuses less than 450 MiB.
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Each one is a state store with files of its own.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.log.level": "ERROR",
}

_log = logging.getLogger(__name__)


def run(
    *, api_url: str, token: str | None, folder: Path, stop: threading.Event, on_started: Callable[[], None]
) -> None:
    """Run the query until ``stop``; its environment must be one that Spark starts with.

    Args:
        api_url: Root of Barrierscope, to which the listener posts.
        token: Its API token, where it needs one.
        folder: For the query's checkpoints and Spark's own files.
        stop: Set to end it in order.
        on_started: Told once the query runs.

    Raises:
        RuntimeError: Spark did not start, or the query ended by itself; one line says why.

    """
    try:
        _run(api_url, token, folder, stop, on_started)
    except (Py4JError, PySparkException) as error:
        if stop.is_set():
            # It was asked to stop while it started.
            return
        raise RuntimeError(_line(error)) from None


def _run(api_url: str, token: str | None, folder: Path, stop: threading.Event, on_started: Callable[[], None]) -> None:
    with _session(folder) as session:
        listener = _Listener(api_url, token, deployment=DEMO_DEPLOYMENT, trigger_interval_ms=TRIGGER_MS)
        session.streams.addListener(listener)
        query = _start(session, folder)
        _log.info("the demo query runs as %s", query.runId)
        on_started()
        try:
            while query.isActive and not stop.wait(_LOOK_S):
                pass
            if not stop.is_set():
                raise RuntimeError(f"the demo query ended: {_line(query.exception())}")
        finally:
            query.stop()
            # Its end is told a moment after it ended; untold, the query would look like one that was killed.
            listener.ended.wait(_END_S)
            listener.close()


class _Listener(BarrierscopeListener):
    """The listener, which also knows when the end of the query has been told to it."""

    def __init__(self, url: str, token: str | None, **given: Any) -> None:
        super().__init__(url, token, **given)
        self.ended = threading.Event()

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  Spark's name
        super().onQueryTerminated(event)
        self.ended.set()


def _line(error: BaseException | None) -> str:
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception).splitlines()[0]
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextmanager
def _session(folder: Path) -> Iterator[SparkSession]:
    scratch = folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    builder = SparkSession.Builder().appName(DEMO_DEPLOYMENT)
    for key, value in (_SETTINGS | {"spark.local.dir": str(scratch), "spark.sql.warehouse.dir": str(scratch)}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _first_timestamp_ms(folder: Path) -> int:
    """The time of the first row: of the first start, since the source goes on from it and takes no later one."""
    kept = folder / "first-timestamp-ms"
    try:
        return int(kept.read_text())
    except (OSError, ValueError):
        # What went on without it cannot be gone on with.
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)
        first_ms = int(time.time() * 1000)
        kept.write_text(str(first_ms))
        return first_ms


def _start(session: SparkSession, folder: Path) -> StreamingQuery:
    rows = (
        # As many rows each time, however long it was away: after a night there is nothing to catch up on.
        session.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", _ROWS_PER_BATCH)
        .option("numPartitions", 1)
        .option("startTimestamp", _first_timestamp_ms(folder))
        .option("advanceMillisPerBatch", TRIGGER_MS)
        .load()
    )
    counts = (
        rows.withWatermark("timestamp", "10 seconds")
        .groupBy(F.window("timestamp", "30 seconds"), (F.col("value") % _KEYS).alias("key"))
        .count()
    )
    return (
        counts.writeStream.format("noop")
        .outputMode("update")
        .queryName(NAME)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime=f"{TRIGGER_MS} milliseconds")
        .start()
    )
