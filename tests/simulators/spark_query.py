"""Runs two queries in two sessions of one application, seen by the listener in Python and by the jar.

It runs in the environment of any pyspark and imports nothing of this project:
``python spark_query.py LISTENER JAR URL_OF_PYTHON URL_OF_JAR FOLDER [PORT]``. ``tests.simulators.spark_versions`` calls
it. With PORT, the driver's REST API is there, and the event log is in FOLDER/events (``spark_channels``).
The first query keeps state and fails in its sixth batch, the second one has no state and is stopped, and the third one
runs until the application is stopped.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

ROWS = 10
GOOD_BATCHES = 5
WAIT_S = 120
ALIVE_S = 15
READ_S = 3


def main(listener: str, jar: str, python_url: str, jar_url: str, folder: str, port: str = "") -> None:
    settings = {
        "spark.jars": jar,
        "spark.sql.streaming.streamingQueryListeners": "barrierscope.spark.BarrierscopeListener",
        "spark.barrierscope.url": jar_url,
        "spark.barrierscope.triggerIntervalMs": "100",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": f"{folder}/local",
        "spark.sql.warehouse.dir": f"{folder}/local",
    }
    if port:
        settings |= {
            "spark.ui.enabled": "true",
            "spark.ui.port": port,
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{folder}/events",
        }
    builder = SparkSession.builder.appName("two queries").master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    other = spark.newSession()
    heard = [_heard(listener, session, python_url) for session in (spark, other)]
    failing = _stateful(spark, f"{folder}/stateful")
    copied = _stateless(other, f"{folder}/stateless", "copy of 'rows' \"ü\"")
    try:
        failing.awaitTermination(WAIT_S)
    except Exception as error:  # noqa: BLE001  its class differs between the versions
        print(f"failed as it should: {type(error).__name__}", flush=True)
    _until(lambda: copied.lastProgress and copied.lastProgress["batchId"] >= 2)
    copied.stop()
    for one in heard:
        # Spark reports the end of a query from another thread.
        one.ended.wait(WAIT_S)
    # Spark does not report the end of this one. The listeners find it before their next sign of life.
    left = _stateless(spark, f"{folder}/left", "left")
    _until(lambda: left.lastProgress)
    if port:
        # Nobody can read the REST API after the end, so it stays for a few polls.
        time.sleep(READ_S)
        left.stop()
        time.sleep(READ_S)
    spark.stop()
    time.sleep(ALIVE_S)
    for one in heard:
        one.close()


def _heard(path: str, session: SparkSession, url: str):
    spec = importlib.util.spec_from_file_location("barrierscope_listener", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    class Listener(module.BarrierscopeListener):
        def __init__(self) -> None:
            super().__init__(url, trigger_interval_ms=100)
            self.ended = threading.Event()

        def onQueryTerminated(self, event) -> None:
            super().onQueryTerminated(event)
            self.ended.set()

    made = Listener()
    session.streams.addListener(made)
    return made


def _stateful(spark: SparkSession, checkpoint: str):
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    fails = F.when(F.col("value") < ROWS * GOOD_BATCHES, F.col("value")).otherwise(F.expr("raise_error('no')"))
    counts = (
        rows.withWatermark("timestamp", "1 second")
        .groupBy(F.window("timestamp", "1 second"), (fails % 3).alias("key"))
        .count()
    )
    return _started(counts, "counts", checkpoint, "update")


def _stateless(spark: SparkSession, checkpoint: str, name: str):
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    return _started(rows, name, checkpoint, "append")


def _started(rows, name: str, checkpoint: str, mode: str):
    writer = rows.writeStream.format("noop").outputMode(mode).queryName(name)
    return writer.option("checkpointLocation", checkpoint).trigger(processingTime="100 milliseconds").start()


def _until(met) -> None:
    end_s = time.monotonic() + WAIT_S
    while not met() and time.monotonic() < end_s:
        time.sleep(0.05)


if __name__ == "__main__":
    main(*(str(Path(a).resolve()) if i in (0, 1, 4) else a for i, a in enumerate(sys.argv[1:])))
