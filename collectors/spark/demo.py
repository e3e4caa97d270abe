"""The demo query that ``make up`` starts: a small streaming query with state, which reports through our listener.

The query uses few resources: one thread, at most half a gigabyte of memory, no web page, and only the loopback
interface. Its checkpoint folder survives a stop, so the next start is a new run of the same query.
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
    # There are few partitions, because each has its own state store with its own files.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.log.level": "ERROR",
}

_log = logging.getLogger(__name__)


def run(
    *,
    api_url: str,
    token: str | None,
    folder: Path,
    stop: threading.Event,
    on_started: Callable[[], None],
    java_options: str = "",
) -> None:
    """Run the query until ``stop`` is set. Spark must be able to start in this environment.

    Args:
        api_url: Barrierscope's address, to which the listener posts.
        token: The API token of Barrierscope, if it needs one.
        folder: The folder for the query's checkpoints and Spark's own files.
        stop: Stops the query when it is set.
        on_started: Called once the query runs.
        java_options: Further options of the JVM.

    Raises:
        RuntimeError: Spark did not start, or the query ended by itself. The message is one line with the reason.
    """
    try:
        with _session(folder, java_options) as session:
            _run(session, api_url, token, folder, stop, on_started)
    except (Py4JError, PySparkException) as error:
        if stop.is_set():
            # This is not an error: ``stop`` was set while Spark started.
            return
        raise RuntimeError(_line(error)) from None


def _run(
    session: SparkSession,
    api_url: str,
    token: str | None,
    folder: Path,
    stop: threading.Event,
    on_started: Callable[[], None],
) -> None:
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
        # Spark reports the end a moment later. If the listener did not receive that report, the query would look as
        # if it had been killed.
        listener.ended.wait(_END_S)
        listener.close()


class _Listener(BarrierscopeListener):
    """A listener that sets ``ended`` when Spark has reported the end of the query."""

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
def _session(folder: Path, java_options: str) -> Iterator[SparkSession]:
    scratch = folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    builder = SparkSession.Builder().appName(DEMO_DEPLOYMENT)
    places = {"spark.local.dir": str(scratch), "spark.sql.warehouse.dir": str(scratch)}
    if java_options:
        places["spark.driver.extraJavaOptions"] = java_options
    for key, value in (_SETTINGS | places).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _first_timestamp_ms(folder: Path) -> int:
    """Return the time of the first row, as stored at the first start. The source cannot continue from another time."""
    kept = folder / "first-timestamp-ms"
    try:
        return int(kept.read_text())
    except (OSError, ValueError):
        # The time is unknown, so the query cannot continue from its checkpoint. The checkpoint is removed, and the
        # query starts from the beginning.
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)
        first_ms = int(time.time() * 1000)
        kept.write_text(str(first_ms))
        return first_ms


def _start(session: SparkSession, folder: Path) -> StreamingQuery:
    rows = (
        # This source has a fixed number of rows per batch, so that a long pause leaves no backlog.
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
