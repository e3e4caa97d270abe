"""Record what a collector asks a Flink cluster, in the format of ``tests/contract/recordings``."""

from __future__ import annotations

import gzip
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from backend.domain.errors import TargetProtocolError
from collectors.base import FlinkTransport

Row = dict[str, Any]

_SETTINGS = (
    "metrics.",
    "web.",
    "taskmanager.numberOfTaskSlots",
    "taskmanager.memory.",
    "taskmanager.network.",
    "execution.checkpointing.",
)
"""The settings of the cluster that a recording keeps. Others contain addresses and folders of the machine."""


class RecordingTransport:
    """A ``FlinkTransport`` that keeps every answer of the one that it wraps. ``poll`` is the number of the round."""

    def __init__(self, transport: FlinkTransport) -> None:
        self._transport = transport
        self._began_s = time.time()
        self.poll = 1
        self.rows: list[Row] = []

    @property
    def url(self) -> str:
        """The target's address."""
        return self._transport.url

    async def get(self, path: str) -> bytes:
        """Return the answer of the wrapped transport, and keep it."""
        sent_s = time.time()
        try:
            body = await self._transport.get(path)
        except TargetProtocolError as error:
            self._keep(path, sent_s, error.status or 0, {"errors": [error.reason]})
            raise
        self._keep(path, sent_s, 200, _json(body))
        return body

    def _keep(self, path: str, sent_s: float, status: int, body: Any) -> None:
        self.rows.append({
            "t": round(sent_s, 3),
            "dt": round(sent_s - self._began_s, 3),
            "poll": self.poll,
            "ms": round((time.time() - sent_s) * 1000, 1),
            "phase": "run",
            "path": path,
            "status": status,
            "body": body,
        })  # fmt: skip


def _json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode("utf-8", "replace")


def written(rows: Sequence[Row], run: Mapping[str, Any], folder: Path, *, replaced: Mapping[str, str]) -> int:
    """Write a recording, and return its size in bytes. ``replaced`` are texts such as folders of this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    text = b"\n".join(orjson.dumps(row) for row in kept(rows, run["jobs"])).decode()
    for own, common in replaced.items():
        text = text.replace(own, common)
    # Without a time of writing, the same answers give the same file.
    (folder / "rest.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    (folder / "run.json").write_bytes(orjson.dumps(run, option=orjson.OPT_INDENT_2))
    return sum(path.stat().st_size for path in folder.iterdir())


def kept(rows: Sequence[Row], jobs: Mapping[str, str]) -> list[Row]:
    """Return the answers without settings that contain addresses, and without other jobs than the one asked about.

    ``jobs`` has the id of each job by its name.
    """
    return [{**row, "body": _public(row, jobs[row["job"]])} for row in rows]


def _public(row: Row, job_id: str) -> Any:
    if row["path"] == "/jobmanager/config" and row["status"] == 200:
        return [setting for setting in row["body"] if setting["key"].startswith(_SETTINGS)]
    if row["path"] == "/jobs/overview" and row["status"] == 200:
        return {"jobs": [job for job in row["body"]["jobs"] if job["jid"] == job_id]}
    return row["body"]
