"""Rollups on a standalone Spark cluster with two workers equal those of PostgreSQL, also if its processes are killed.

The executors run a Python without any packages of ours: they get these from the archive of ``barrierscope pipeline
pack``. They read the URL of the database, which has a password, from a file of their own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self, TextIO
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest

from backend.domain.rollup import hour_of
from backend.pipeline.archive import write_archive
from backend.pipeline.jobs.rollups import RollupRun
from backend.pipeline.scratch import sweep
from backend.store.wall_clock import WallClock
from tests.support.databases import Databases
from tests.support.many_checkpoints import fill
from tests.support.observations import SteppingClock
from tests.support.running_up import free_port
from tests.support.spark_cluster import StandaloneCluster, standalone_cluster
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

SEED = 20261122
# All hours are over, so the result does not depend on the time of a run.
_NOW = hour_of(WallClock().now())
_FIRST = _NOW - timedelta(hours=6)
_TABLES = ("rollups", "rollup_measures")
# Six JVMs start one after the other, which takes minutes on a machine with other load.
_LONG_S = 900.0


@pytest.fixture(scope="module")
def filled(databases: Databases) -> Iterator[str]:
    """Yield a database with random checkpoints of six hours. The tests only copy it."""
    with databases.migrated() as url:
        fill(url, SEED, _FIRST, _NOW, count=1200, jobs=9)
        yield url


@pytest.fixture
def url(filled: str, databases: Databases) -> Iterator[str]:
    with databases.copy_of(filled) as copied:
        yield copied


@pytest.fixture(scope="module")
def expected(filled: str, databases: Databases) -> dict[str, list[str]]:
    """Return the rollups that PostgreSQL computes."""
    with databases.copy_of(filled) as copied:
        RollupRun(copied, lambda: None, SteppingClock(_NOW)).do()
        return _contents(copied)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "executors.tar.gz"
    assert write_archive(path) > 10_000_000
    return path


@pytest.fixture(scope="module")
def cluster(spark_runtime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with standalone_cluster(spark_runtime, tmp_path_factory.mktemp("cluster")) as started:
        yield started


class _Run:
    """A run of ``barrierscope pipeline rollups`` on the cluster, in a process of its own."""

    def __init__(self, url: str, cluster: StandaloneCluster, archive: Path, folder: Path, **more: str) -> None:
        self.password = urlsplit(url).password
        (folder / "url").write_text(url + "\n")
        self.events = folder / "events"
        self.events.mkdir()
        conf = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self.events.as_uri(),
            "spark.default.parallelism": "16",
        } | more
        base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.files = folder / "temporary files"
        self.files.mkdir()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "backend.cli", "pipeline", "rollups", "--format", "json"),
                *("--master", cluster.url, "--archive", str(archive), "--executor-python", str(base)),
                *("--executor-url-file", str(folder / "url")),
                *(option for name, value in conf.items() for option in ("--conf", f"{name}={value}")),
            ],
            env=os.environ
            | {
                "BARRIERSCOPE_DATABASE_URL": url,
                "BARRIERSCOPE_DATA_DIR": str(folder / "data"),
                "TMPDIR": str(self.files),
                "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.communicate()

    def finish(self) -> None:
        out, err = self.process.communicate()
        assert self.process.returncode == 0, err
        assert '"hours_done": 6' in out, out


@contextmanager
def _held_at_staging(url: str, run: _Run) -> Iterator[None]:
    """Wait until executors are about to write rows, and hold them there during the block."""
    with psycopg.connect(url, autocommit=True) as watcher, psycopg.connect(url) as holder:
        planned = "SELECT 1 FROM pipeline_runs WHERE state = 'running' AND hours_total > 0"
        until(
            lambda: run.process.poll() is not None or watcher.execute(planned).fetchone(),
            "the run is planned",
            timeout_s=_LONG_S,
        )
        holder.execute("LOCK TABLE rollup_staging IN EXCLUSIVE MODE")
        waiting = (
            "SELECT count(*) > 0 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation"
            " WHERE c.relname = 'rollup_staging' AND NOT l.granted"
        )
        until(
            lambda: run.process.poll() is not None or watcher.execute(waiting).fetchone() == (True,),
            "they write",
            timeout_s=_LONG_S,
        )
        assert run.process.poll() is None, run.process.stderr.read()
        yield


def _contents(url: str) -> dict[str, list[str]]:
    with psycopg.connect(url) as connection:
        connection.execute("SET timezone = 'UTC'")
        return {
            table: [text for (text,) in connection.execute(f"SELECT t::text FROM {table} t ORDER BY 1")]
            for table in _TABLES
        }


def _staged(url: str) -> int:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT count(*) FROM rollup_staging").fetchone()[0]


def _assert_secret(cluster: StandaloneCluster, run: _Run) -> None:
    """Check that no process of the cluster or of the driver's Spark has the password, and no log has it."""
    family = psutil.Process(run.process.pid).children(recursive=True)
    assert run.password
    assert any("java" in p.name() for p in family)
    for process in (*cluster.processes(), *family):
        try:
            told = " ".join([*process.cmdline(), *process.environ().values()])
        except psutil.Error:
            continue
        assert run.password not in told, process
    logs = [
        p for folder in (run.events, cluster.folder) for p in folder.rglob("*") if p.is_file() and p.suffix != ".so"
    ]
    assert any(p.is_relative_to(run.events) for p in logs)
    assert [p for p in logs if run.password.encode() in p.read_bytes()] == []


def test_an_executor_that_is_killed_while_it_writes_loses_and_duplicates_nothing(
    cluster, url, archive, expected, tmp_path
):
    with _Run(url, cluster, archive, tmp_path) as run:
        with _held_at_staging(url, run):
            _assert_secret(cluster, run)
            (victim, *_) = cluster.executors()
            victim.kill()
            until(lambda: not victim.is_running() or victim.status() == psutil.STATUS_ZOMBIE, "it is gone")
        run.finish()

    assert _contents(url) == expected, f"seed {SEED}"
    assert len(expected["rollups"]) > 40
    assert _staged(url) == 0
    assert list(run.files.iterdir()) == []
    until(lambda: len(cluster.processes()) == 2, "no executor is left")


def test_a_killed_driver_leaves_nothing_and_the_next_run_survives_the_loss_of_a_worker(
    cluster, url, archive, expected, tmp_path
):
    (tmp_path / "killed").mkdir()
    with _Run(url, cluster, archive, tmp_path / "killed") as killed, _held_at_staging(url, killed):
        family = psutil.Process(killed.process.pid).children(recursive=True)
        killed.process.kill()
        until(lambda: not any(p.is_running() for p in family), "its JVM is gone")
    until(lambda: len(cluster.processes()) == 2, "its executors are gone")
    assert _contents(url) == {table: [] for table in _TABLES}
    assert (sweep(killed.files), list(killed.files.iterdir())) == (1, [])

    (tmp_path / "next").mkdir()
    with _Run(url, cluster, archive, tmp_path / "next") as run:
        with _held_at_staging(url, run):
            cluster.workers[0].kill()
            cluster.workers[0].wait()
        run.finish()

    assert _contents(url) == expected, f"seed {SEED}"
    assert _staged(url) == 0
    with psycopg.connect(url) as connection:
        states = connection.execute("SELECT state FROM pipeline_runs ORDER BY started_at").fetchall()
    assert states == [("interrupted",), ("done",)]


def test_an_executor_that_starts_as_in_a_pod_of_kubernetes_does_the_tasks(cluster, url, archive, expected, tmp_path):
    port = free_port()
    # No worker has room for such an executor, so the only executor is the one of the pod.
    settings = {"spark.executor.memory": "4g", "spark.driver.port": str(port)}
    described = {
        "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_APPLICATION_ID": "app-of-the-test",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_EXECUTOR_POD_NAME": "executor-1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_JAVA_OPT_0": "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "SPARK_JAVA_OPT_1": "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
        "SPARK_JAVA_OPT_2": "--add-modules=jdk.incubator.vector",
        "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
        "BARRIERSCOPE_DATA_DIR": str(tmp_path / "data"),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    pod = tmp_path / "pod"
    pod.mkdir()
    with _Run(url, cluster, archive, tmp_path, **settings) as run:
        until(lambda: run.process.poll() is not None or _is_open(port), "the driver listens", timeout_s=_LONG_S)
        with (pod / "log").open("w") as log:
            executor = _start_pod(run, log, env=os.environ | described, cwd=pod)
        try:
            run.finish()
            executor.wait(timeout=PATIENCE_S)
        finally:
            executor.kill()
            executor.wait()

    assert _contents(url) == expected, f"seed {SEED}"
    assert (pod / "barrierscope" / "backend" / "pipeline" / "source.py").is_file(), (pod / "log").read_text()


def _start_pod(run: _Run, log: TextIO, env: Mapping[str, str], cwd: Path) -> subprocess.Popen[bytes]:
    """Start executors until one is known to the driver, as Kubernetes replaces pods that fail.

    The driver listens before its scheduler is registered, and an executor that asks in between ends.
    """
    command = [sys.executable, "-m", "backend.cli", "executor"]
    while True:
        executor = subprocess.Popen(command, env=env, cwd=cwd, stdout=log, stderr=log)
        settled = partial(_is_registered_or_over, cwd / "log", executor, run.process)
        until(settled, "an executor is registered", timeout_s=_LONG_S)
        if executor.poll() is None or run.process.poll() is not None:
            return executor


def _is_registered_or_over(log: Path, *processes: subprocess.Popen[Any]) -> bool:
    return any(p.poll() is not None for p in processes) or "Starting executor ID" in log.read_text()


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
