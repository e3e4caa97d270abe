"""Reads the same queries through all channels at once, and compares every value that two channels share.

``make test-spark-channels [SPARK="3.5 4.3"]`` does it. It runs the queries of ``spark_query.py`` as ``spark_versions``
does, in ``build/spark``: the usual ones, and those of many real applications, with two threads and on a cluster with
two workers (``ARGS="--where usual"``, ``local`` or ``cluster`` runs one of the three). The channels are the listener in
Python, the jar, the driver's REST API while it runs, a history server that is started afterwards, the folder of event
logs, and the checkpoint folders. It prints a table of the values by channel: how many equal those of the listener in
Python and, if any, how many differ. It ends with code 1 if one differs.

The driver has the SQL execution of a batch, which must lie within the batch. The checkpoint folder has the watermark
and the number of batches that were committed. Its offsets must have been written while the batch ran.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from backend.analysis.queries.joining import comparable, joined, values_of
from backend.contracts.spark import SparkPushIn
from backend.contracts.spark_events import job_observation, runs_of
from backend.domain.channel import BatchReport, Channel
from backend.domain.checkpoint import Checkpoint
from backend.domain.connection import ANYWHERE
from backend.domain.errors import BarrierscopeError
from backend.domain.micro_batch import MicroBatch
from backend.domain.target import TargetOrigin
from backend.pipeline.java import JavaRuntime, SparkRuntime, find_java
from collectors.spark import listener
from collectors.spark.checkpoint_folder import CheckpointFolder, read_folder
from collectors.spark.jar import path
from collectors.spark.kind import SPARK
from tests.simulators.spark_versions import QUERY, TIMEOUT_S, environment
from tests.support.collector_targets import Row
from tests.support.pushing import accepting_pushes
from tests.support.spark_cluster import standalone_cluster

VERSIONS = ("3.5", "4.3")
PYTHON, JAR, HISTORY, LOGS, DRIVER, FOLDER = "Python", "jar", "history", "logs", "driver", "folder"
CHANNELS = (PYTHON, JAR, HISTORY, LOGS, DRIVER, FOLDER)
USUAL, LOCAL, CLUSTER = "usual", "local", "cluster"
"""The usual queries, and those of many real applications with two threads and on a cluster with two workers."""
_USUAL = ("stateful", "stateless", "left")
_TRANSFORM = Path(__file__).parent / "java" / "shapes" / "Counting.java"
_OF_CHANNEL = {PYTHON: Channel.LISTENER, JAR: Channel.LISTENER, HISTORY: Channel.HISTORY_SERVER}
_OPENS = ("java.lang", "java.lang.invoke", "java.net", "java.nio", "java.util", "sun.nio.ch")
_WITHIN = "execution within the batch"
_OFFSETS = "offsets written in the batch"
_READ_S = 600.0

Batches = dict[tuple[str, int], Checkpoint]
"""The batches that a channel reported, by the run's id at its engine and the number."""


@dataclass
class Shared:
    """What was compared in one version: the equal values of each channel by name, and those that differ."""

    version: str
    equal: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    different: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    lines: list[str] = field(default_factory=list)

    def note(self, name: str, channel: str, *, is_equal: bool, line: str) -> None:
        """Count one value."""
        (self.equal if is_equal else self.different)[name][channel] += 1
        if not is_equal:
            self.lines.append(line)

    @property
    def is_good(self) -> bool:
        """Whether every channel had batches, and no value differs."""
        return not self.lines and set(CHANNELS) <= set(self.equal["batch"])


def pushed(bodies: Sequence[bytes]) -> Batches:
    """Return the batches that a listener sent, in the way of the ingest."""
    pushes = [SparkPushIn.model_validate_json(body) for body in bodies]
    if not pushes:
        return {}
    found: Batches = {}
    for run in runs_of([event for push in pushes for event in push.events]):
        job = job_observation(run, pushes[0], None)
        found |= {(job.engine_run_id, c.header.checkpoint_id): c for c in job.checkpoints}
    return found


def compare(version: str, known: Mapping[str, Batches], folders: Sequence[CheckpointFolder]) -> Shared:
    """Compare the batches of all channels with those of the listener in Python."""
    result = Shared(version)
    first = known[PYTHON]
    for batch in first.values():
        result.note("batch", PYTHON, is_equal=True, line="")
        for name in values_of(batch).keys() - {"end"}:
            result.note(_generic(name), PYTHON, is_equal=True, line="")
    for channel in (JAR, HISTORY, LOGS, DRIVER):
        _compare_batches(result, channel, first, known[channel])
    for folder in folders:
        _compare_folder(result, folder, first)
    return result


def _compare_batches(result: Shared, channel: str, first: Batches, other: Batches) -> None:
    # A driver also has the batch in which its query was stopped, of which no listener hears.
    for key in sorted(other.keys() if channel == DRIVER else first.keys() | other.keys()):
        mine, theirs = first.get(key), other.get(key)
        if mine is None and theirs is not None and not (channel == DRIVER and _is_stopped(first, key)):
            result.note("batch", channel, is_equal=False, line=f"{channel} {key}: Python has no such batch")
        if mine is None or theirs is None:
            if theirs is None:
                result.note("batch", channel, is_equal=False, line=f"{channel} {key}: {channel} has no such batch")
            continue
        result.note("batch", channel, is_equal=True, line="")
        kind = Channel.DRIVER if channel == DRIVER else _OF_CHANNEL.get(channel, Channel.EVENT_LOGS)
        reports = (BatchReport("1", Channel.LISTENER, mine), BatchReport("2", kind, theirs))
        wrong = {d.name: d for d in joined(reports).disagreements}
        names = comparable(reports[0]).keys() & comparable(reports[1]).keys()
        if channel == DRIVER and mine.batch is not None and mine.batch.phases_ms:
            names |= {"time"}
        error = mine.header.failure_message
        if channel != DRIVER and error is not None:
            line = f"{channel} {key} error: {error} and {theirs.header.failure_message}"
            result.note("error", channel, is_equal=error == theirs.header.failure_message, line=line)
        for name in names:
            line = f"{channel} {key} {name}: " + ", ".join(v.text for v in wrong[name].values) if name in wrong else ""
            shown = _WITHIN if name == "time" else _generic(name)
            result.note(shown, channel, is_equal=name not in wrong, line=line)


def _is_stopped(first: Batches, key: tuple[str, int]) -> bool:
    return key[1] == max((number for run, number in first if run == key[0]), default=-1) + 1


def _compare_folder(result: Shared, folder: CheckpointFolder, first: Batches) -> None:
    # A query that was started again repeats the batch in which it failed, and keeps the offsets that it wrote before.
    own = [(n, c) for (run, n), c in first.items() if run.partition("/")[0] == folder.query_id]
    mine = dict(sorted(own, key=lambda one: one[1].header.triggered_at))
    repeated = {number for number, count in Counter(number for number, _ in own).items() if count > 1}
    for number, checkpoint in sorted(mine.items()):
        header, batch = checkpoint.header, checkpoint.batch or MicroBatch()
        where = f"{FOLDER} {folder.query_id} {number}"
        is_committed = number in folder.commits
        is_equal = is_committed == (header.status.value == "completed")
        result.note("batch", FOLDER, is_equal=number in folder.offsets, line=f"{where}: not in the folder")
        result.note("status", FOLDER, is_equal=is_equal, line=f"{where}: committed is {is_committed}")
        entry = folder.offsets.get(number)
        if entry is None or not is_committed:
            continue
        watermark = batch.watermark_at if batch.watermark_at and batch.watermark_at.timestamp() else None
        if watermark is not None or entry.watermark_at is not None:
            line = f"{where}: watermark {entry.watermark_at} and {watermark}"
            result.note("watermark", FOLDER, is_equal=entry.watermark_at == watermark, line=line)
        if entry.triggered_at is not None and number not in repeated:
            after = entry.triggered_at - header.triggered_at
            is_within = timedelta(0) <= after <= timedelta(milliseconds=header.end_to_end_duration_ms or 0)
            result.note(_OFFSETS, FOLDER, is_equal=is_within, line=f"{where}: offsets {after} after the trigger")


def _generic(name: str) -> str:
    """Return the name without the number of the source."""
    return " ".join(word for word in name.split() if not word.isdigit())


def table(result: Shared) -> str:
    """Return the number of equal values by channel and, after a slash, that of different ones."""
    names = sorted(result.equal.keys() | result.different.keys(), key=lambda n: (n != "batch", n))
    wide = max(map(len, names))
    lines = [f"{'Spark ' + result.version:{wide}}" + "".join(f"  {channel:>8}" for channel in CHANNELS)]
    total = Counter[str]()
    for name in names:
        equal, bad = result.equal[name], result.different[name]
        total += equal
        cells = (f"{equal[c]}/{bad[c]}" if bad[c] else str(equal[c] or "-") for c in CHANNELS)
        lines.append(f"{name:{wide}}" + "".join(f"  {cell:>8}" for cell in cells))
    lines.append(f"{'values':{wide}}" + "".join(f"  {total[channel]:>8}" for channel in CHANNELS))
    return "\n".join(lines)


async def _polled(url: str, until_ended: subprocess.Popen[bytes] | None, wanted: int = 0) -> Batches:
    """Return the batches that a collector reads at ``url``: until the program ends, or until there are ``wanted``."""
    found: Batches = {}
    if SPARK.open is None:
        raise RuntimeError("the kind spark has a collector")
    end_s = time.monotonic() + (TIMEOUT_S if until_ended else _READ_S)
    async with SPARK.open(Row("spark", url, origin=TargetOrigin.CONFIGURATION), {}, reach=ANYWHERE) as collector:
        while time.monotonic() < end_s and (until_ended.poll() is None if until_ended else len(found) < wanted):
            try:
                observation = await collector.collect(datetime.fromtimestamp(time.time(), UTC))
            except BarrierscopeError:
                observation = None
            for job in observation.jobs if observation is not None else ():
                ended = (c for c in job.checkpoints if c.header.status.is_terminal)
                found |= {(job.engine_run_id, c.header.checkpoint_id): c for c in ended}
            await asyncio.sleep(0.5)
    return found


@contextmanager
def history_server(python: Path, logs: Path) -> Iterator[str]:
    """Run the history server of an environment over a folder of event logs, and yield its address."""
    java = find_java(os.environ, logs.parent / "java")
    if not isinstance(java, JavaRuntime):
        raise RuntimeError("there is no Java runtime")
    port = free_port()
    command = [
        *(f"{java.home}/bin/java", "-Xmx400m", "-cp", f"{_home(python)}/jars/*"),
        *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENS),
        *(f"-Dspark.history.fs.logDirectory=file://{logs}", f"-Dspark.history.ui.port={port}"),
        *("-Dspark.history.fs.update.interval=1s", "org.apache.spark.deploy.history.HistoryServer"),
    ]
    process = subprocess.Popen(
        command, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def compiled(python: Path, folder: Path) -> Path:
    """Compile the class of ``transformWithState`` against the jars of this Python, and return its jar."""
    command = ["javac", "-nowarn", "-cp", f"{_home(python)}/jars/*", "-d", str(folder / "classes"), str(_TRANSFORM)]
    subprocess.run(command, check=True)
    jar = folder / "transform.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for one in sorted((folder / "classes").rglob("*.class")):
            archive.write(one, one.relative_to(folder / "classes"))
    return jar


@contextmanager
def master(where: str, python: Path, folder: Path) -> Iterator[str]:
    """Yield the address at which the application runs: empty for the usual queries."""
    if where != CLUSTER:
        yield "local[2]" if where == LOCAL else ""
        return
    java = find_java(os.environ, folder / "java")
    if not isinstance(java, JavaRuntime):
        raise RuntimeError("there is no Java runtime")
    environment = {
        **os.environ,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": _home(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with standalone_cluster(SparkRuntime(java, environment), folder) as cluster:
        yield cluster.url


def _home(python: Path) -> str:
    command = [str(python), "-c", "import pyspark; print(pyspark.__path__[0])"]
    return subprocess.check_output(command, text=True).strip()


def run(version: str, python: Path, where: str) -> Shared:
    """Run the queries with this Python, read them through all channels, and compare.

    Raises:
        RuntimeError: the application failed; the message is the end of its log.
    """
    with (
        tempfile.TemporaryDirectory(prefix=f"spark-{version}-") as folder,
        accepting_pushes() as (python_url, of_python),
        accepting_pushes() as (jar_url, of_jar),
        master(where, python, Path(folder)) as address,
    ):
        (Path(folder) / "events").mkdir()
        port = free_port()
        command = [python, QUERY, listener.__file__, path(), python_url, jar_url, folder, port]
        if address:
            has_transform = not version.startswith("3.")
            command += [address, *([compiled(python, Path(folder))] if has_transform else [])]
        with (Path(folder) / "log").open("wb") as log:
            program = subprocess.Popen([str(c) for c in command], stdout=log, stderr=log)
            try:
                of_driver = asyncio.run(_polled(f"http://127.0.0.1:{port}", program))
                if program.wait(TIMEOUT_S):
                    raise RuntimeError(f"Spark {version} failed:\n{(Path(folder) / 'log').read_text()[-3000:]}")
            finally:
                program.kill()
        known = {PYTHON: pushed(of_python), JAR: pushed(of_jar), DRIVER: of_driver}
        logs = Path(folder) / "events"
        known[LOGS] = asyncio.run(_polled(f"file://{logs}", None, len(known[PYTHON])))
        with history_server(python, logs) as url:
            known[HISTORY] = asyncio.run(_polled(url, None, len(known[PYTHON])))
        places = Path(folder, "checkpoints").iterdir() if address else (Path(folder, name) for name in _USUAL)
        return compare(version, known, [read_folder(str(place)) for place in places])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the versions, and return 0 if all shared values of all versions are equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--where", choices=(USUAL, LOCAL, CLUSTER), action="append", help="default: all three")
    given = parser.parse_args(arguments)
    is_good = True
    for version, where in itertools.product(given.versions, given.where or (USUAL, LOCAL, CLUSTER)):
        began_s = time.monotonic()
        result = run(version, environment(version), where)
        is_good &= result.is_good
        state = "equal" if result.is_good else "NOT EQUAL"
        print(f"Spark {version} {where}: {state}, {time.monotonic() - began_s:.0f} s\n{table(result)}\n", flush=True)
        for line in result.lines:
            print(f"  {line}", flush=True)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
