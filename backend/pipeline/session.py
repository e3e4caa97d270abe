"""Builds the Spark session: the only place that does. One session a process, few jobs, ended with its block.

Nothing of it is reachable from another machine, nor is its web page served. The database's URL holds a password, so it
is no option of any reader (plans, logs and errors show those): it is handed over in a file without a name, which
Spark's workers open while this process lives.
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
    # Two threads leave a small machine usable; a task that fails is tried three times.
    "spark.master": "local[2,3]",
    "spark.driver.memory": "1g",
    # A run is over before the second compiler pays off, and a small heap needs no collector with threads of its own:
    # a third less CPU for the hours of a small fleet.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # An hour of a thousand jobs is some megabytes: more partitions than this cost more than they share out.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.log.level": "ERROR",
}


@contextmanager
def spark_session(runtime: SparkRuntime, *, app_name: str = "barrierscope") -> Iterator[SparkSession]:
    """A session on ``runtime``; this process's environment becomes what Spark needs, and stays so."""
    os.environ.clear()
    os.environ.update(runtime.environment)
    with tempfile.TemporaryDirectory(prefix="barrierscope-spark-") as folder:
        builder = SparkSession.Builder().appName(app_name)
        # The warehouse is made at the first table, and there is none; a relative one would point into any folder.
        for key, value in (_SETTINGS | {"spark.local.dir": folder, "spark.sql.warehouse.dir": folder}).items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        try:
            register(session)
            yield session
        finally:
            session.stop()


def register(session: SparkSession) -> None:
    """Make the store's data sources known to a session."""
    session.dataSource.register(CheckpointSource)
    session.dataSource.register(StagingSink)


@contextmanager
def translated() -> Iterator[None]:
    """Whatever Spark raises within the block is one error, of one line.

    Raises:
        PipelineFailedError: Spark did not start, or a job of it failed.

    """
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise PipelineFailedError(_one_line(error)) from error


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Spark quotes the worker's traceback; its last line is what went wrong there.
    quoted = [line for line in lines if line.startswith("RuntimeError: ")]
    chosen = quoted[-1].removeprefix("RuntimeError: ") if quoted else (lines[0] if lines else type(error).__name__)
    return chosen[:300]


@contextmanager
def handed_over(secret: str) -> Iterator[str]:
    """A path at which processes of this user read ``secret`` while the block lasts; no file is left by a kill."""
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
