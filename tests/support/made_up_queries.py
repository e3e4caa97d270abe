"""Spark queries as documents: what a listener posts for batches that a test describes, and the evidence from it.

The documents take the way of real ones: through the contract and the conversion of the ingest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from backend.analysis.assembling import EVIDENCE_COUNT
from backend.analysis.measures.evidence import JobEvidence
from backend.contracts import spark as wire
from backend.contracts.spark_events import job_observation, runs_of
from backend.domain.topology import Topology

NOW: Final = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
QUERY_ID: Final = "0b0b0b0b-0000-4000-8000-000000000000"
RUN_ID: Final = "0c0c0c0c-0000-4000-8000-000000000000"
_FIXED_MS: Final = {"latestOffset": 40, "walCommit": 60, "getBatch": 2, "queryPlanning": 30, "commitOffsets": 50}

Document = dict[str, Any]


def progress(
    number: int,
    *,
    took_ms: int,
    rows: int | None = 1_000,
    parts_ms: Document | None = None,
    state: Document | None = None,
    sink: str | None = "NoopTable",
    source: str = "KafkaV2[Subscribe[orders]]",
    latest: Document | None = None,
    watermark: datetime | None = None,
) -> Document:
    """Return Spark's report on a batch. What ``parts_ms`` does not name takes little, and ``addBatch`` has the rest.

    ``latest`` has the offsets of the source: ``endOffset`` and ``latestOffset``.
    """
    parts = _FIXED_MS | (parts_ms or {})
    parts.setdefault("addBatch", max(0, took_ms - sum(parts.values())))
    found: Document = {
        "id": QUERY_ID,
        "runId": RUN_ID,
        "name": "made-up",
        "batchId": number,
        "batchDuration": took_ms,
        "durationMs": {**parts, "triggerExecution": took_ms},
        "numInputRows": rows,
        "stateOperators": [state] if state else [],
        "sources": [{"description": source, "numInputRows": rows, **(latest or {})}],
    }
    if sink is not None:
        found["sink"] = {"description": sink, "numOutputRows": -1}
    if watermark is not None:
        found["eventTime"] = {"watermark": watermark.isoformat()}
    return found


def operator(rows: int, *, removed: int | None = 0, name: str = "stateStoreSave", **more: Any) -> Document:
    """Return Spark's report on one stateful operator with 8 state stores."""
    known = {
        "operatorName": name,
        "numRowsTotal": rows,
        "numRowsUpdated": 500,
        "numRowsRemoved": removed,
        "numRowsDroppedByWatermark": 0,
        "commitTimeMs": 80,
        "memoryUsedBytes": 200 * rows,
        "numStateStoreInstances": 8,
        "customMetrics": {},
        **more,
    }
    return {key: value for key, value in known.items() if value is not None}


def events(batches: Iterable[Document], *, pause_ms: int = 500, every_ms: int | None = None) -> list[Document]:
    """Return the listener's events. Batches begin ``pause_ms`` after each other, or on a trigger every ``every_ms``."""
    at, found = timedelta(0), []
    for batch in batches:
        took = timedelta(milliseconds=batch["batchDuration"])
        begin = NOW + at
        report = {**batch, "timestamp": begin.isoformat()}
        found.append({"event": "progress", "progress": report, "seen_at": (begin + took).isoformat()})
        at += took + timedelta(milliseconds=pause_ms)
        if every_ms is not None:
            at = max(at - timedelta(milliseconds=pause_ms), begin - NOW + timedelta(milliseconds=every_ms))
    return found


def ended(after: Sequence[Document], exception: str, error_class: str | None = None) -> list[Document]:
    """Return the events with the end of the query by an error, 3 s after the last one."""
    at = datetime.fromisoformat(after[-1]["seen_at"]) + timedelta(seconds=3)
    ids = {"id": QUERY_ID, "run_id": RUN_ID, "name": "made-up"}
    end = {"event": "terminated", **ids, "exception": exception, "error_class": error_class, "seen_at": at.isoformat()}
    return [*after, end]


def evidence_of(posted: Sequence[Document], *, interval_ms: int | None = None) -> JobEvidence:
    """Return the evidence on the one run of these events, as the store returns it."""
    body = {"deployment": "tests", "sent_at": NOW.isoformat(), "events": posted, "trigger_interval_ms": interval_ms}
    push = wire.SparkPushIn.model_validate(body)
    (run,) = runs_of(push.events)
    job = job_observation(run, push, None)
    return JobEvidence(
        topology=Topology(()),
        now=NOW,
        config=job.config,
        checkpoints=job.checkpoints[-EVIDENCE_COUNT:],
        exceptions=job.exceptions,
        state=job.state,
        engine_state=job.engine_state,
        started_at=job.started_at,
        is_micro_batched=True,
    )
