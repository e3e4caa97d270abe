"""The demo query of ``up``: one small streaming query with state, which reports through our listener.

It limits its own size: one thread, at most half a gigabyte, no web page, loopback only. Its checkpoint folder is kept,
so the next start is a new run of the same query.
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
    # Each partition has a state store with files of its own.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.log.level": "ERROR",
}

_log = logging.getLogger(__name__)


def run(
    *, api_url: str, token: str | None, folder: Path, stop: threading.Event, on_started: Callable[[], None]
) -> None:
    """Run the query until ``stop`` is set; Spark must be able to start in this environment.

    Args:
        api_url: Root of Barrierscope, to which the listener posts.
        token: Its API token, if it needs one.
        folder: For the query's checkpoints and Spark's own files.
        stop: Ends the query when it is set.
        on_started: Called once the query runs.

    Raises:
        RuntimeError: Spark did not start, or the query ended by itself; one line says why.

    """
    try:
        _run(api_url, token, folder, stop, on_started)
    except (Py4JError, PySparkException) as error:
        if stop.is_set():
            # ``stop`` was set during the start.
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
            # Spark reports the end a moment later. Without that report the query would look as if it was killed.
            listener.ended.wait(_END_S)
            listener.close()


class _Listener(BarrierscopeListener):
    """The listener; ``ended`` is set when Spark has reported the end of the query."""

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
    """Return the time of the first row, kept from the first start: the source cannot continue from another."""
    kept = folder / "first-timestamp-ms"
    try:
        return int(kept.read_text())
    except (OSError, ValueError):
        # Without this time the checkpoint cannot be continued.
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)
        first_ms = int(time.time() * 1000)
        kept.write_text(str(first_ms))
        return first_ms


def _start(session: SparkSession, folder: Path) -> StreamingQuery:
    rows = (
        # Every batch has the same number of rows, so after a long pause there is nothing to catch up on.
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
