"""Start a standalone Spark cluster on this machine: a master and two workers, each with one core.

The installed PySpark contains the programs. All ports are on 127.0.0.1.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from backend.pipeline.java import SparkRuntime
from tests.support.waiting import until

_PACKAGE = "org.apache.spark.deploy"
_EXECUTOR = "CoarseGrainedExecutorBackend"
_URL = re.compile(r"spark://127\.0\.0\.1:\d+")


@dataclass(frozen=True, slots=True)
class StandaloneCluster:
    """A running cluster."""

    url: str
    workers: Sequence[psutil.Process]
    folder: Path
    """The folder with the logs of master and workers and the working folders of executors."""

    def executors(self) -> list[psutil.Process]:
        """Return the executors that run now."""
        return [p for p in self.processes() if _EXECUTOR in _command(p)]

    def processes(self) -> list[psutil.Process]:
        """Return the running workers, with all processes that they started, such as executors and their Python."""
        found = []
        for worker in self.workers:
            try:
                found += [worker, *worker.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
        return [p for p in found if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


@contextmanager
def standalone_cluster(runtime: SparkRuntime, folder: Path) -> Iterator[StandaloneCluster]:
    """Start a master and two workers, and end them, with all processes that they started, after the block."""
    environment = {
        **runtime.environment,
        "SPARK_DAEMON_MEMORY": "192m",
        "SPARK_LOG_DIR": str(folder),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }
    # The master needs no port for submitting applications.
    environment["SPARK_DAEMON_JAVA_OPTS"] = "-Dspark.master.rest.enabled=false -XX:TieredStopAtLevel=1"
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH"):
        environment.pop(name, None)
    with ExitStack() as stack:
        web = ("--webui-port", "0", "--host", "127.0.0.1")
        stack.enter_context(_daemon(environment, folder / "master.log", "master.Master", "--port", "0", *web))
        until(lambda: "Starting Spark master at" in _text(folder / "master.log"), "the master starts")
        found = _URL.search(_text(folder / "master.log"))
        assert found is not None
        workers = []
        for name in ("worker-1", "worker-2"):
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / name))
            log = folder / f"{name}.log"
            workers.append(stack.enter_context(_daemon(environment, log, "worker.Worker", *size, *web, found[0])))
        for name in ("worker-1", "worker-2"):
            log = folder / f"{name}.log"
            until(lambda log=log: "Successfully registered" in _text(log), "the worker registers")
        yield StandaloneCluster(found[0], workers, folder)


@contextmanager
def _daemon(environment: Mapping[str, str], log: Path, name: str, *arguments: str) -> Iterator[psutil.Process]:
    program = Path(environment["SPARK_HOME"]) / "bin" / "spark-class"
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(program), f"{_PACKAGE}.{name}", *arguments],
            env=dict(environment),
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    started = psutil.Process(process.pid)
    try:
        yield started
    finally:
        family = started.children(recursive=True) if process.poll() is None else []
        process.kill()
        process.wait()
        for member in family:
            if member.is_running():
                member.kill()


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
