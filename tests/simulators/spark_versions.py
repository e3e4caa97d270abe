"""Runs the same queries on several versions of Spark, and compares what the listeners in Python and in the jar send.

``make test-spark-versions [SPARK="3.5 4.1"]`` does it; without a version it runs those of ``VERSIONS``. For each it
installs pyspark into an environment of its own in ``build/spark``, which takes half a gigabyte, and runs
``spark_query.py`` there: two queries in two sessions, of which one fails. It prints a table of all values that the two
listeners share, and ends with code 1 if two values differ or an event is missing or doubled. The checkpoint folders of
the queries must have the same batches, watermarks, sources and operators, and times that fit the triggers.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from backend.contracts.spark import ProgressIn, SparkPushIn
from collectors.spark import listener
from collectors.spark.checkpoint_folder import CheckpointFolder, Entry, read_folder
from collectors.spark.jar import path
from tests.simulators import spark_query
from tests.support.pushing import accepting_pushes

VERSIONS = ("3.4", "3.5", "4.0", "4.1", "4.3")
_FOLDER = Path(__file__).resolve().parents[2] / "build" / "spark"
TIMEOUT_S = 900
QUERY = Path(spark_query.__file__ or "")
# The listeners are called one after the other, so these instants differ by right.
_OWN = ("seen_at",)
# Every version knows these. Two listeners that both leave out a value would be equal too.
_REQUIRED = ("progress.batch_duration", "progress.batch_id", "progress.num_input_rows", "progress.duration_ms.addBatch")
Values = dict[str, Any]
"""The values of an event by their path in the event."""


@dataclass
class Compared:
    """What the comparison of one version found: the values by path, and what is wrong."""

    version: str
    event_count: int
    counts: Counter[str]
    unequal: list[str]

    @property
    def is_good(self) -> bool:
        return self.event_count > 0 and not self.unequal


def compared(version: str, of_python: Sequence[bytes], of_jar: Sequence[bytes]) -> Compared:
    """Compare what the two listeners sent, value by value."""
    ours, theirs = _events(of_python), _events(of_jar)
    result = Compared(version, len(theirs), Counter(), [])
    for key in ours.keys() | theirs.keys():
        found = [ours.get(key, []), theirs.get(key, [])]
        if [len(events) for events in found] != [1, 1]:
            result.unequal.append(f"{' '.join(key)}: {len(found[0])} by Python, {len(found[1])} by the jar")
            continue
        left, right = found[0][0], found[1][0]
        for name in left.keys() | right.keys():
            result.counts[_generic(name)] += 1
            is_missing = name in _REQUIRED and right.get(name) is None
            if left.get(name) != right.get(name) or is_missing:
                result.unequal.append(f"{' '.join(key)} {name}: {left.get(name)!r} and {right.get(name)!r}")
    return result


def of_folders(folders: Sequence[CheckpointFolder], bodies: Sequence[bytes]) -> list[str]:
    """Compare checkpoint folders with what a listener sent of their queries. Return what differs."""
    found = []
    pushes = [SparkPushIn.model_validate_json(body) for body in bodies]
    events = [event for push in pushes for event in push.events]
    failed = {event.id for event in events if event.event == "terminated" and event.exception is not None}
    for folder in folders:
        batches = {
            e.progress.batch_id: e.progress
            for e in events
            if e.event == "progress" and e.progress.id == folder.query_id
        }
        # A batch that failed, or in which the query was stopped, has offsets and no commit, and is not reported.
        allowed = (1,) if folder.query_id in failed else (0, 1)
        open_count = len(folder.offsets) - len(folder.commits)
        if sorted(batches) != sorted(folder.commits) or open_count not in allowed or folder.problems:
            found.append(f"folder: batches {sorted(folder.commits)}, {open_count} open, {folder.problems}")
        for number, batch in batches.items():
            entry = folder.offsets[number]
            watermark = None if batch.event_time is None else batch.event_time.watermark
            if watermark is not None and watermark.timestamp() == 0:
                watermark = None
            operators = len(folder.operators)
            shared = {
                "trigger": (_is_of(entry, batch), True),
                "watermark": (entry.watermark_at, watermark),
                "sources": (entry.source_count, len(batch.sources)),
                "operators": (operators, len(batch.state_operators)),
            }
            found += [f"folder: batch {number} {name}: {a} and {b}" for name, (a, b) in shared.items() if a != b]
    return found


def _is_of(entry: Entry, batch: ProgressIn) -> bool:
    """Return whether the time in the offsets fits the trigger. Spark takes it when it has asked the sources."""
    later_ms = batch.duration_ms.get("triggerExecution", 0)
    at = entry.triggered_at
    return at is not None and timedelta(0) <= at - batch.timestamp <= timedelta(milliseconds=later_ms)


def _events(bodies: Sequence[bytes]) -> dict[tuple[str, ...], list[Values]]:
    """Return the events by kind, run and batch. An event that was sent twice is in the list twice."""
    found: dict[tuple[str, ...], list[Values]] = {}
    for body in bodies:
        push = SparkPushIn.model_validate_json(body)
        head = push.model_dump(mode="json", include={"deployment", "spark_version", "trigger_interval_ms"})
        for event in push.events:
            if event.event in ("alive", "idle"):
                continue
            values = event.model_dump(mode="json")
            about = values.get("progress") or values
            key = (event.event, about["run_id"], str(about.get("batch_id", "")))
            found.setdefault(key, []).append(dict(_flat({**head, **values})))
    return found


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            if key not in _OWN:
                yield from _flat(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{name}[{number}]")
    else:
        yield name, value


def _generic(name: str) -> str:
    """Return the path without the number of the operator or source."""
    return "".join(part if at % 2 == 0 else "[]" for at, part in enumerate(name.replace("]", "[").split("[")))


def table(results: Sequence[Compared]) -> str:
    """Return the number of equal values of each path in each version, as a table."""
    paths = sorted({name for result in results for name in result.counts})
    wide = max(map(len, paths), default=5)
    unequal = [{_generic(line.split(": ")[0].rsplit(" ", 1)[-1]) for line in r.unequal} for r in results]
    lines = [f"{'value':{wide}}" + "".join(f"  {result.version:>7}" for result in results)]
    for name in paths:
        cells = (
            "UNEQUAL" if name in bad else str(r.counts[name] or "-") for r, bad in zip(results, unequal, strict=True)
        )
        lines.append(f"{name:{wide}}" + "".join(f"  {cell:>7}" for cell in cells))
    lines.append(f"{'events':{wide}}" + "".join(f"  {result.event_count:>7}" for result in results))
    return "\n".join(lines)


def run(version: str, python: Path) -> Compared:
    """Run the queries with this Python, and compare what the listeners sent and what is in the checkpoint folders.

    Raises:
        RuntimeError: the application failed; the message is the end of its log.
    """
    with accepting_pushes() as (python_url, of_python), accepting_pushes() as (jar_url, of_jar):
        with tempfile.TemporaryDirectory(prefix=f"spark-{version}-") as folder:
            command = [python, QUERY, listener.__file__, path(), python_url, jar_url, folder]
            said = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=TIMEOUT_S)
            if said.returncode:
                raise RuntimeError(f"Spark {version} failed:\n{said.stderr[-3000:]}")
            folders = [read_folder(f"{folder}/{name}") for name in ("stateful", "stateless")]
        result = compared(version, of_python, of_jar)
        result.unequal += of_folders(folders, of_jar)
        return result


def environment(version: str) -> Path:
    """Return the Python of an environment with this version of pyspark, which is made if it is missing."""
    python = _FOLDER / version / "bin" / "python"
    if not (_FOLDER / version / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(_FOLDER / version)], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"pyspark=={version}.*"]
        subprocess.run([str(word) for word in install], check=True)
        (_FOLDER / version / ".ready").touch()
    return python


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the versions, and return 0 if all values of all versions are equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    results = []
    for version in parser.parse_args(arguments).versions:
        began_s = time.monotonic()
        try:
            result = run(version, environment(version))
        except (RuntimeError, subprocess.SubprocessError) as error:
            result = Compared(version, 0, Counter(), [str(error)])
        results.append(result)
        state = "equal" if result.is_good else "NOT EQUAL"
        print(
            f"Spark {version}: {state}, {sum(result.counts.values())} values, {time.monotonic() - began_s:.0f} s",
            flush=True,
        )
        for line in result.unequal:
            print(f"  {line}", flush=True)
    print(table(results))
    return 0 if results and all(result.is_good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
