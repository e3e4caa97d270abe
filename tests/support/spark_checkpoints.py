"""Makes checkpoint folders of Spark queries as the versions from 3.5 on write them, with the times of their files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

BEGAN = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
QUERY = "549eeb1a-d762-420c-bb44-3fd6d73a5268"
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
}


@dataclass
class MadeCheckpoint:
    """A checkpoint folder. Batch N begins N intervals after ``BEGAN``, and takes ``took_s``."""

    path: Path
    interval_s: float = 10.0
    took_s: float = 4.0

    def __post_init__(self) -> None:
        self.write("metadata", json.dumps({"id": QUERY}))

    def at(self, number: int) -> datetime:
        """Return when batch ``number`` begins."""
        return BEGAN + timedelta(seconds=self.interval_s * number)

    def write(self, name: str, content: str | bytes, at: datetime = BEGAN) -> Path:
        """Write a file of the folder with this time."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        os.utime(file, (at.timestamp(), at.timestamp()))
        return file

    def begin(
        self, number: int, *, watermark_ms: int = 0, conf: Mapping[str, str] = SETTINGS, version: str = "v1"
    ) -> None:
        """Write the offsets of a batch."""
        head: dict[str, Any] = {
            "batchWatermarkMs": watermark_ms,
            "batchTimestampMs": int(self.at(number).timestamp() * 1000),
            "conf": dict(conf),
        }
        text = f"{version}\n{json.dumps(head)}\n{number}"
        self.write(f"offsets/{number}", text, self.at(number) + timedelta(seconds=0.1))

    def commit(self, number: int) -> None:
        """Write the commit of a batch."""
        self.write(
            f"commits/{number}", 'v1\n{"nextBatchWatermarkMs":0}', self.at(number) + timedelta(seconds=self.took_s)
        )

    def run(self, numbers: range) -> MadeCheckpoint:
        """Write whole batches."""
        for number in numbers:
            self.begin(number)
            self.commit(number)
        return self

    def state(self, name: str, size: int = 10) -> None:
        """Write a file of the state."""
        self.write(f"state/{name}", b"x" * size)
