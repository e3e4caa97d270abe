"""Runs the queries of one application, seen by the listener in Python and by the jar.

It runs in the environment of any pyspark and imports nothing of this project:
``python spark_query.py LISTENER JAR URL_OF_PYTHON URL_OF_JAR FOLDER [PORT [MASTER [JAVA]]]``.
``tests.simulators.spark_versions`` calls it. With PORT, the driver's REST API is there, and the event log is in
FOLDER/events (``spark_channels``).

Without MASTER there are two sessions. The first query keeps state and fails in its sixth batch, the second one has no
state and is stopped, and the third one runs until the application is stopped.

With MASTER, the address of a cluster or ``local[2]``, the queries are those of many real applications: a join of two
streams, ``foreachBatch``, files that are read one in each batch and written, and a query that fails and is started
again. JAVA is a jar with the class of ``transformWithState``, which only Spark 4 has. All run at once.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

ROWS = 10
GOOD_BATCHES = 5
WAIT_S = 600
ALIVE_S = 15
READ_S = 3
FILES = 8
COMPACTED = 3
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main(
    listener: str,
    jar: str,
    python_url: str,
    jar_url: str,
    folder: str,
    port: str = "",
    master: str = "",
    java: str = "",
) -> None:
    settings = {
        "spark.jars": f"{jar},{java}" if java else jar,
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
    if master:
        settings |= {
            "spark.sql.streaming.fileSource.log.compactInterval": str(COMPACTED),
            "spark.sql.streaming.fileSink.log.compactInterval": str(COMPACTED),
        }
    if java:
        settings["spark.sql.streaming.stateStore.providerClass"] = ROCKSDB
    builder = SparkSession.builder.appName("two queries").master(master or "local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if master:
        heard = [_heard(listener, spark, python_url)]
        _shapes(spark, f"{folder}/checkpoints", folder, has_transform=bool(java))
    else:
        heard = _usual(spark, listener, python_url, folder, stays=bool(port))
    spark.stop()
    time.sleep(ALIVE_S)
    for one in heard:
        one.close()


def _usual(spark: SparkSession, listener: str, python_url: str, folder: str, *, stays: bool) -> list:
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
    if stays:
        # Nobody can read the REST API after the end, so it stays for a few polls.
        time.sleep(READ_S)
        left.stop()
        time.sleep(READ_S)
    return heard


def _shapes(spark: SparkSession, checkpoints: str, folder: str, *, has_transform: bool) -> None:
    failing = _started(_failing(_rows(spark)), "restarted", f"{checkpoints}/restarted", "append")
    started = [
        _started(_joined(spark), "joined", f"{checkpoints}/joined", "append"),
        _each_batch(spark, f"{checkpoints}/each"),
        _files(spark, folder, f"{checkpoints}/files"),
    ]
    if has_transform:
        counts = DataFrame(spark._jvm.shapes.Counting.counts(_rows(spark)._jdf), spark)
        started.append(_started(counts, "transformed", f"{checkpoints}/transformed", "update"))
    try:
        failing.awaitTermination(WAIT_S)
    except Exception as error:  # noqa: BLE001  its class differs between the versions
        print(f"failed as it should: {type(error).__name__}", flush=True)
    started.append(_started(_rows(spark).select("value"), "restarted", f"{checkpoints}/restarted", "append"))
    for query in started:
        least = GOOD_BATCHES + 3 if query.name == "restarted" else FILES - 1
        _until(lambda query=query, least=least: query.lastProgress and query.lastProgress["batchId"] >= least)
    time.sleep(READ_S)
    for query in started:
        print(f"{query.name}: {query.lastProgress['batchId']}, {query.exception()}", flush=True)
        query.stop()
    time.sleep(READ_S)


def _rows(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()


def _failing(rows: DataFrame) -> DataFrame:
    is_good = F.col("value") < ROWS * GOOD_BATCHES
    return rows.select(F.when(is_good, F.col("value")).otherwise(F.expr("raise_error('no')")).alias("value"))


def _joined(spark: SparkSession) -> DataFrame:
    left, right = (
        _rows(spark)
        .withWatermark("timestamp", "2 seconds")
        .select(F.col("value").alias(f"{side}_value"), F.col("timestamp").alias(f"{side}_at"))
        for side in ("left", "right")
    )
    is_near = F.expr("left_value = right_value AND right_at BETWEEN left_at - INTERVAL 1 SECOND AND left_at")
    return left.join(right, is_near, "inner")


def _each_batch(spark: SparkSession, checkpoint: str):
    def write(rows: DataFrame, number: int) -> None:
        rows.persist()
        rows.count()
        rows.write.format("noop").mode("overwrite").save()
        rows.unpersist()

    writer = _rows(spark).writeStream.foreachBatch(write).queryName("each")
    return writer.option("checkpointLocation", checkpoint).trigger(processingTime="100 milliseconds").start()


def _files(spark: SparkSession, folder: str, checkpoint: str):
    for number in range(FILES):
        spark.range(number * ROWS, (number + 1) * ROWS, 1, 1).write.mode("append").parquet(f"{folder}/read")
    rows = spark.readStream.schema("id LONG").option("maxFilesPerTrigger", 1).parquet(f"{folder}/read")
    writer = rows.writeStream.format("parquet").queryName("files").option("path", f"{folder}/written")
    return writer.option("checkpointLocation", checkpoint).trigger(processingTime="100 milliseconds").start()


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
    rows = _rows(spark)
    fails = F.when(F.col("value") < ROWS * GOOD_BATCHES, F.col("value")).otherwise(F.expr("raise_error('no')"))
    counts = (
        rows.withWatermark("timestamp", "1 second")
        .groupBy(F.window("timestamp", "1 second"), (fails % 3).alias("key"))
        .count()
    )
    return _started(counts, "counts", checkpoint, "update")


def _stateless(spark: SparkSession, checkpoint: str, name: str):
    return _started(_rows(spark), name, checkpoint, "append")


def _started(rows, name: str, checkpoint: str, mode: str):
    writer = rows.writeStream.format("noop").outputMode(mode).queryName(name)
    return writer.option("checkpointLocation", checkpoint).trigger(processingTime="100 milliseconds").start()


def _until(met) -> None:
    end_s = time.monotonic() + WAIT_S
    while not met() and time.monotonic() < end_s:
        time.sleep(0.05)


if __name__ == "__main__":
    main(*(str(Path(a).resolve()) if i in (0, 1, 4) or (i == 7 and a) else a for i, a in enumerate(sys.argv[1:])))
