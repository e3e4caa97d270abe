"""The events that the Spark listener posts for the queries that a case describes in a few numbers.

The member ``spark`` of a case has ``version``, ``trigger_interval_ms`` and ``runs``. Each run has ``query``,
``batches`` and, if it ended, ``end``. Times are in seconds before the present: ``at_s`` is negative.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

Document = dict[str, Any]

NOW: Final = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
_EVENTS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class DescribedRun:
    """One run of a described query."""

    told: Document
    query_id: str
    run_id: str

    def events(self) -> Iterator[Document]:
        """Return the events of the run. They are not sorted."""
        ids = {"id": self.query_id, "run_id": self.run_id}
        batches, end = self.told.get("batches", []), self.told.get("end")
        started = _at(self.told.get("started_s", batches[0]["at_s"] - 5 if batches else -60))
        yield {"event": "started", **ids, "name": self.told["query"], "timestamp": started, "seen_at": started}
        for batch in batches:
            ended_s = batch["at_s"] + max(0.001, batch["ms"] / 1000)
            yield {"event": "progress", "progress": self._progress(batch), "seen_at": _at(ended_s)}
        if end:
            error = {"exception": end.get("exception"), "error_class": end.get("error_class")}
            yield {"event": "terminated", **ids, **error, "seen_at": _at(end["at_s"])}
        else:
            yield {"event": "alive", **ids, "seen_at": _at(0)}

    def _progress(self, batch: Document) -> Document:
        rows, took_s = batch.get("rows", 0), max(0.001, batch["ms"] / 1000)
        progress = {
            "id": self.query_id,
            "runId": self.run_id,
            "name": self.told["query"],
            "timestamp": _at(batch["at_s"]),
            "batchId": batch["n"],
            "batchDuration": batch["ms"],
            "numInputRows": rows,
            "inputRowsPerSecond": round(batch.get("in_per_s", rows / took_s), 1),
            "processedRowsPerSecond": round(rows / took_s, 1),
            "durationMs": {**batch["phases"], "triggerExecution": batch["ms"]},
            "stateOperators": batch.get("state", []),
            "sources": batch.get("sources", []),
            "sink": {"description": batch.get("sink", "sink"), "numOutputRows": -1},
        }
        watermark = batch.get("watermark")
        return progress | ({"eventTime": {"watermark": watermark}} if watermark else {})


def posts(case: Document) -> list[Document]:
    """Return the bodies that the listener posts for a case, one after the other."""
    told = case["spark"]
    runs = [_run(case["name"], number, run) for number, run in enumerate(told["runs"])]
    events = sorted((event for run in runs for event in run.events()), key=lambda event: event["seen_at"])
    body = {"deployment": case["name"], "sent_at": _at(0), "spark_version": told.get("version", "3.5.1")}
    if told.get("trigger_interval_ms"):
        body["trigger_interval_ms"] = told["trigger_interval_ms"]
    return [{**body, "events": events[n : n + _EVENTS_MAX]} for n in range(0, len(events), _EVENTS_MAX)]


def _run(name: str, number: int, told: Document) -> DescribedRun:
    query_id = told.get("id") or str(uuid.uuid5(uuid.NAMESPACE_URL, name + told["query"]))
    return DescribedRun(told, query_id, str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name} {number}")))


def _at(seconds: float) -> str:
    return (NOW + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
