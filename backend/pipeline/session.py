"""The only module that builds a Spark session. A process has one, which stops at the end of the ``with`` block.

The session opens no ports to other machines and serves no web page. The database's URL contains a password, so it is
not an option of a reader, because plans, logs and errors show options. It is passed in an unnamed file, which Spark's
workers can open while this process runs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from backend.domain.errors import PipelineFailedError
from backend.pipeline.java import SparkRuntime
from backend.pipeline.source import CheckpointSource, StagingSink

_SETTINGS = {
    # Two threads leave a small machine usable. A task has three attempts.
    "spark.master": "local[2,3]",
    "spark.driver.memory": "1g",
    # A run is too short to profit from the second compiler, and a small heap needs no concurrent collector. This saves
    # a third of the CPU time for a small fleet.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # An hour of a thousand jobs has a few megabytes; more partitions would cost more than they save.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.log.level": "ERROR",
}


@contextmanager
def spark_session(runtime: SparkRuntime, *, app_name: str = "barrierscope") -> Iterator[SparkSession]:
    """A session on ``runtime``. It replaces the environment of this process permanently."""
    os.environ.clear()
    os.environ.update(runtime.environment)
    with tempfile.TemporaryDirectory(prefix="barrierscope-spark-") as folder:
        builder = SparkSession.Builder().appName(app_name)
        # No table is created, so the warehouse stays empty. A relative path would depend on the current folder.
        for key, value in (_SETTINGS | {"spark.local.dir": folder, "spark.sql.warehouse.dir": folder}).items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        try:
            register(session)
            yield session
        finally:
            session.stop()


def register(session: SparkSession) -> None:
    """Register the store's data sources with a session."""
    session.dataSource.register(CheckpointSource)
    session.dataSource.register(StagingSink)


@contextmanager
def translated() -> Iterator[None]:
    """Turn an exception of Spark within the block into one error with one line.

    Raises:
        PipelineFailedError: Spark did not start, or a job of it failed.

    """
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise PipelineFailedError(_one_line(error)) from error


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Spark quotes the worker's traceback, whose last line has the error.
    quoted = [line for line in lines if line.startswith("RuntimeError: ")]
    chosen = quoted[-1].removeprefix("RuntimeError: ") if quoted else (lines[0] if lines else type(error).__name__)
    return chosen[:300]


@contextmanager
def handed_over(secret: str) -> Iterator[str]:
    """A path from which processes of this user can read ``secret`` within the block. A kill leaves no file."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("barrierscope")
        try:
            os.write(descriptor, secret.encode())
            yield f"/proc/{os.getpid()}/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile("w", prefix="barrierscope-") as file:
        file.write(secret)
        file.flush()
        yield file.name
