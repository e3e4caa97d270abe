"""Reads a real history server of Spark: logs of both forms, which grow and end while it runs."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pyspark
import pytest

from backend.domain.connection import ANYWHERE
from backend.domain.observation import JobState
from backend.pipeline.java import JavaRuntime, find_java
from collectors.base import Collector
from collectors.spark.kind import SPARK
from tests.support.collector_targets import Row
from tests.support.spark_history import batch_of, recorded, text_of, zstd
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

_OPENS = ("java.lang", "java.lang.invoke", "java.net", "java.nio", "java.util", "sun.nio.ch")
NOW_MS = round(time.time() * 1000)


def moved(app_id: str, version: str) -> list[dict[str, object]]:
    """The recorded events of an application as one that has just started, under another id."""
    events = recorded(version)
    for event in events:
        if event["Event"] == "SparkListenerApplicationStart":
            event |= {"App ID": app_id, "Timestamp": NOW_MS}
    return events


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    java = find_java(os.environ, tmp_path / "java")
    assert isinstance(java, JavaRuntime)
    logs = tmp_path / "logs"
    logs.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    jars = Path(pyspark.__file__).parent / "jars"
    command = [
        *(f"{java.home}/bin/java", "-Xmx400m", "-cp", f"{jars}/*"),
        *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENS),
        *(f"-Dspark.history.fs.logDirectory=file://{logs}", f"-Dspark.history.ui.port={port}"),
        *("-Dspark.history.fs.update.interval=1s", "org.apache.spark.deploy.history.HistoryServer"),
    ]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    with (tmp_path / "server.log").open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield logs, f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


async def numbers_until(collector: Collector, wanted: int, jobs: dict[str, JobState]) -> dict[str, list[int]]:
    """Poll until ``wanted`` batches were read, and return their numbers by job."""
    found: dict[str, list[int]] = {}
    end_s = time.monotonic() + PATIENCE_S
    while sum(map(len, found.values())) < wanted and time.monotonic() < end_s:
        for job in (await collector.collect(datetime.fromtimestamp(time.time(), UTC))).jobs:
            jobs[job.name] = job.state
            found.setdefault(job.name, []).extend(c.header.checkpoint_id for c in job.checkpoints)
    return {name: sorted(numbers) for name, numbers in found.items()}


async def test_logs_of_a_real_history_server_are_read_while_they_grow(served):
    logs, url = served
    plain = text_of(moved("local-35", "35"))
    events = moved("local-43", "43")
    early = [e for e in events if batch_of(e) < 4 and not e["Event"].endswith("TerminatedEvent")]
    late = [e for e in events if batch_of(e) >= 4]
    rolling = logs / "eventlog_v2_local-43"
    rolling.mkdir()
    (rolling / "appstatus_local-43.inprogress").touch()
    (rolling / "events_1_local-43.zstd").write_bytes(zstd(text_of(early)))
    end = {"Event": "SparkListenerApplicationEnd", "Timestamp": NOW_MS + 60_000}
    (logs / "local-35").write_bytes(plain + orjson.dumps(end) + b"\n")
    jobs: dict[str, JobState] = {}
    assert SPARK.open is not None
    assert SPARK.probe is not None
    end_s = time.monotonic() + PATIENCE_S
    summary = None
    while not summary or "2 applications" not in summary:
        assert time.monotonic() < end_s, summary
        try:
            summary = (await SPARK.probe(url, 5.0, reach=ANYWHERE)).summary
        except Exception as error:  # noqa: BLE001 -- the server is starting
            summary = str(error)

    async with SPARK.open(Row("spark", url), {}, reach=ANYWHERE) as collector:
        first = await numbers_until(collector, sum(batch_of(e) >= 0 for e in [*early, *recorded("35")]), jobs)
        assert jobs["orders-app: orders-files"] is not None
        (rolling / "events_2_local-43.zstd").write_bytes(zstd(text_of(late)))
        second = await numbers_until(collector, len(late), jobs)

    assert summary.startswith(f"Spark history server {pyspark.__version__}, 2 applications ")
    assert summary.endswith("2 with streaming queries")
    assert first["orders-app: orders-failing"] == [0, 0, 1]
    assert {n for numbers in second.values() for n in numbers} == {batch_of(e) for e in late}
