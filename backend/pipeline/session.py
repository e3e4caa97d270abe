"""Builds the pipeline's Spark session. No other module builds one.

A process has at most one session, which stops at the end of the ``with`` block. It serves no web page. On this machine
it opens no ports to other machines; on a cluster the executors connect to it.

The database's URL contains a password. It is not passed as an option of a reader, because plans, logs and errors show
options. It is passed in an unnamed file, which Spark's workers on this machine can open while this process runs.
Executors on other machines read the URL from a file of their own, or get it without the password.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from backend.domain.errors import PipelineFailedError
from backend.pipeline.archive import FOLDER
from backend.pipeline.cluster import Cluster
from backend.pipeline.java import LOCAL_VARIABLES, SparkRuntime
from backend.pipeline.jvm import java_options, jvm_of_this_process
from backend.pipeline.scratch import scratch_folder
from backend.pipeline.source import CheckpointSource, StagingSink

# A run is too short to profit from the second JIT compiler, and a small heap needs no concurrent garbage collector.
# These options save a third of the CPU time for a small fleet.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_THIS_MACHINE = Cluster()
_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.log.level": "ERROR",
}
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # The data of a thousand jobs in one hour is a few megabytes. More partitions would cost more time than they save.
    "spark.sql.shuffle.partitions": "4",
}


@contextmanager
def spark_session(
    runtime: SparkRuntime, cluster: Cluster = _THIS_MACHINE, *, app_name: str = "barrierscope"
) -> Iterator[SparkSession]:
    """Start a Spark session on ``runtime``, and stop it at the end of the block.

    The environment variables of this process are replaced by those of ``runtime`` and are not restored.
    """
    os.environ.clear()
    os.environ.update(_environment(runtime, cluster))
    with scratch_folder() as folder:
        builder = SparkSession.Builder().appName(app_name).master(cluster.master)
        options = f"{_JAVA_OPTIONS} {java_options(folder)}"
        own = _LOCAL_SETTINGS if cluster.is_local else _cluster_settings(cluster)
        # No table is created, so the warehouse folder stays empty. It is set to an absolute path because a relative
        # one would depend on the current folder.
        places = {"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder)}
        settings = {**_SETTINGS, **own, **places, "spark.driver.extraJavaOptions": options, **cluster.conf}
        for key, value in settings.items():
            builder = builder.config(key, value)
        with jvm_of_this_process(folder):
            session = builder.getOrCreate()
        try:
            register(session)
            yield session
        finally:
            session.stop()


def _environment(runtime: SparkRuntime, cluster: Cluster) -> Mapping[str, str]:
    if cluster.is_local:
        return runtime.environment
    kept = {name: value for name, value in runtime.environment.items() if name not in LOCAL_VARIABLES}
    if cluster.python is None:
        return kept
    # Spark also runs the executors' Python on this machine, to plan the reads and to accept the writes. So this Python
    # gets the module path of our process.
    return kept | {"PYSPARK_PYTHON": cluster.python, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def _cluster_settings(cluster: Cluster) -> Mapping[str, str]:
    settings = {"spark.sql.shuffle.partitions": str(cluster.tasks)}
    if cluster.archive is None:
        return settings
    packed = {"spark.archives": f"{cluster.archive.absolute()}#{FOLDER}", "spark.executorEnv.PYTHONPATH": FOLDER}
    return settings | packed


@contextmanager
def database_options(database_url: str, cluster: Cluster) -> Iterator[Mapping[str, str]]:
    """Yield the options with which the data sources of ``backend.pipeline.source`` find the database.

    The options contain no password.
    """
    with handed_over(database_url) as here:
        if cluster.is_local:
            yield {"url_file": here, "driver_url_file": here}
        elif cluster.url_file is not None:
            yield {"url_file": cluster.url_file, "driver_url_file": here}
        else:
            yield {"url": without_password(database_url), "driver_url_file": here}


def without_password(database_url: str) -> str:
    """Return the connection string of libpq for a URL, without the passwords in it."""
    parts = conninfo_to_dict(database_url)
    return make_conninfo("", **{name: str(parts[name]) for name in parts if name not in ("password", "sslpassword")})


def register(session: SparkSession) -> None:
    """Register the data sources for checkpoints and staged rollups with a session."""
    session.dataSource.register(CheckpointSource)
    session.dataSource.register(StagingSink)


@contextmanager
def translated() -> Iterator[None]:
    """Turn an exception of Spark within the block into an error with a message of one line.

    Raises:
        PipelineFailedError: Spark did not start, or a Spark job failed.
    """
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise PipelineFailedError(_one_line(error)) from error


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Spark's message quotes the traceback of the Python worker. The last line of that traceback contains the error.
    quoted = [line for line in lines if line.startswith("RuntimeError: ")]
    chosen = quoted[-1].removeprefix("RuntimeError: ") if quoted else (lines[0] if lines else type(error).__name__)
    return chosen[:300]


@contextmanager
def handed_over(secret: str) -> Iterator[str]:
    """Yield a path from which processes of this user can read ``secret`` within the block.

    On Linux the file at this path exists only in memory, so no file is left if this process is killed.
    """
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
