"""The Spark jobs and stages of nine micro-batches of a real application of 4.3.0, as its log and its driver have them.

Of its three queries, ``skewed`` has one key with most rows, ``spilling`` sorts with little memory and then waits in the
driver, and ``healthy`` does neither. Each has its first batch and two later ones. Events and fields that are not read
were left out, and paths were replaced.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import orjson

from backend.domain.batch_work import BatchWork
from backend.domain.observation import JobObservation
from collectors.spark.log_stream import read_file
from collectors.spark.read_application import ReadApplication

FOLDER = Path(__file__).resolve().parents[1] / "contract" / "recordings_spark_work"
BATCHES = {"skewed": (0, 10, 11), "spilling": (0, 10, 11), "healthy": (0, 10, 11)}


def log_lines() -> list[bytes]:
    """Return the recorded lines of the event log."""
    return gzip.decompress((FOLDER / "log_43.jsonl.gz").read_bytes()).splitlines(keepends=True)


def driver() -> dict[str, Any]:
    """Return what the driver answered: the application's id, and the lists ``sql``, ``jobs`` and ``stages``."""
    found: dict[str, Any] = orjson.loads(gzip.decompress((FOLDER / "driver_43.json.gz").read_bytes()))
    return found


def read_log(*files: tuple[int, list[bytes]], compacted: tuple[int, ...] = ()) -> ReadApplication:
    """Return the application after one reading of the files of its log: the number of each, and its lines."""
    app = ReadApplication("views")
    read = app.reading()
    for number, lines in files:
        content = b"".join(lines)
        place = [0]

        def pull(size: int, content: bytes = content, place: list[int] = place) -> bytes:
            piece = content[place[0] : place[0] + size]
            place[0] += len(piece)
            read.packed_bytes += len(piece)
            return piece

        read_file(pull, read, number, 0, is_compacted=number in compacted)
    app.take(read, is_whole=True)
    return app


def works_of(jobs: list[JobObservation]) -> dict[tuple[str, int], BatchWork]:
    """Return the works by the query's name and the number of the batch."""
    return {
        (job.name.removeprefix("views: "), c.header.checkpoint_id): c.batch.work
        for job in jobs
        for c in job.checkpoints
        if c.batch is not None and c.batch.work is not None
    }


def works_in_log(*files: tuple[int, list[bytes]], compacted: tuple[int, ...] = ()) -> dict[tuple[str, int], BatchWork]:
    """Return the works that one reading of the log finds, of all batches if the rule chooses all."""
    return works_of(read_log(*files, compacted=compacted).observed(ended_at=None))
