"""Recordings of real Spark queries as a listener saw them, and their conversion to the body that our listener posts.

The recordings were made with Spark 4.3.0 on a two-core host. Each file has the events of one query, one per line:
``{t, event, ...}``, with ``t`` in Unix seconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "contract" / "recordings_spark"
NAMES = sorted(path.stem for path in FOLDER.glob("[abd]*.jsonl"))
FAILING = "f_failing_udf"
"""The name of a recording of two runs of one query. Each run ends with an error in the same batch."""
# This instant is after the last event of all recordings, but no event is so old that the store would drop it.
NOW = datetime(2026, 11, 21, 13, 0, tzinfo=UTC)

Event = dict[str, Any]


def recorded(name: str) -> list[Event]:
    """Return the events of one recording, unchanged."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]


def batches(name: str) -> list[Event]:
    """Return the progress objects of one recording."""
    return [e["progress"] for e in recorded(name) if e["event"] == "progress"]


def event(line: Event) -> Event:
    """Convert a recorded event to the form that our listener sends."""
    known = {key: value for key, value in line.items() if key not in ("t", "errorClassOnException")}
    if line["event"] == "terminated":
        known["error_class"] = line["errorClassOnException"]
    if "runId" in known:
        known["run_id"] = known.pop("runId")
    return {**known, "seen_at": datetime.fromtimestamp(line["t"], UTC).isoformat()}


def push(events: Sequence[Event], **more: object) -> dict[str, object]:
    """Build the body that our listener posts for ``events`` (recorded lines)."""
    body = {"deployment": "lab", "sent_at": NOW.isoformat(), "spark_version": "4.3.0"}
    return body | {"events": [event(line) for line in events]} | more
