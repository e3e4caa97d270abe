"""Turns the lines of an event log of Spark into the events that a listener would have sent. Does no I/O.

An event log has each event of a query as the listener gets it, among many others that are left out. The events are
checked by the parser of the ingest API.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson
from pydantic import TypeAdapter, ValidationError

from backend.contracts import spark as wire
from backend.domain.text import clean
from collectors.spark.stage_events import BEGIN, KINDS, Run

_QUERY: Final = b"StreamingQueryListener$Query"
TEXTS: Final = (_QUERY, b'"SparkListenerLogStart"', b'"SparkListenerApplicationStart"')
"""A line without any of these texts has nothing of a query but, maybe, of its Spark jobs."""
_CORE_KINDS: Final = (*KINDS, b'LogStart"', b'ApplicationStart"')
_EVENT_BEGIN: Final = b'{"Event":"'
_KIND_MAX: Final = 120
_EXCEPTION_MAX: Final = 20_000
_NAME_MAX: Final = 200
_OFFSETS: Final = ("startOffset", "endOffset", "latestOffset")
_SUMS: Final = ("numInputRows", "processedRowsPerSecond")
_EVENT: Final[TypeAdapter[wire.SparkEvent]] = TypeAdapter(wire.SparkEvent)
_NEVER: Final = datetime.fromtimestamp(0, UTC)


def wanted(data: bytes, end: int) -> list[tuple[int, int]]:
    """Return the bounds of the lines that are read, among the whole lines before ``end``.

    Spark begins a line with the kind of its event, so most lines need no more than a look at their begin.
    """
    found, at, length = [], 0, len(BEGIN)
    find, starts = data.find, data.startswith
    while at < end:
        last = find(b"\n", at, end)
        if starts(BEGIN, at):
            is_wanted = starts(_CORE_KINDS, at + length)
        elif starts(_EVENT_BEGIN, at):
            is_wanted = find(_QUERY, at, min(at + _KIND_MAX, last)) >= 0
        else:
            is_wanted = any(find(text, at, last) >= 0 for text in TEXTS)
        if is_wanted:
            found.append((at, last))
        at = last + 1
    return found


def run_of(event: wire.SparkEvent) -> Run:
    """Return the run to which an event belongs."""
    of = event.progress if isinstance(event, wire.ProgressEventIn) else event
    return of.id, of.run_id


@dataclass(slots=True)
class LogParser:
    """Parses the lines of event logs in their order, and keeps what later lines need.

    ``ends`` has the time of the newest event of each run. ``broken_count`` counts the events that could not be read.
    ``app_id`` and ``attempt_id`` are those of the application that began last.
    """

    ends: dict[Run, datetime] = field(default_factory=dict)
    version: str | None = None
    applications: list[str] = field(default_factory=list)
    app_id: str | None = None
    attempt_id: str | None = None
    broken_count: int = 0

    def events_in(self, line: bytes) -> list[wire.SparkEvent]:
        """Return the events in a line: one, or none."""
        found: list[wire.SparkEvent] = []
        try:
            document = orjson.loads(line)
            kind = document["Event"]
            if not isinstance(kind, str):
                raise TypeError("the kind of an event is a text")
            if kind == "SparkListenerLogStart":
                self.version = clean(str(document.get("Spark Version") or ""), length_max=_NAME_MAX) or self.version
            elif kind == "SparkListenerApplicationStart":
                self.applications.append(clean(str(document.get("App Name") or ""), length_max=_NAME_MAX))
                self.app_id = clean(str(document.get("App ID") or ""), length_max=_NAME_MAX) or None
                self.attempt_id = clean(str(document.get("App Attempt ID") or ""), length_max=_NAME_MAX) or None
            elif "StreamingQueryListener$Query" in kind:
                for raw in _sent(self, kind, document):
                    event = _EVENT.validate_python(raw)
                    self._note(event)
                    found.append(event)
        except (ValidationError, AttributeError, KeyError, OverflowError, TypeError, ValueError):
            # Any part of a damaged document may have another type than that of an event.
            self.broken_count += 1
        return found

    def _note(self, event: wire.SparkEvent) -> None:
        key, at = run_of(event), event.seen_at
        if isinstance(event, wire.ProgressEventIn):
            # A broken duration may be too long for a time, so this comes before the event is kept.
            at += timedelta(milliseconds=event.progress.batch_duration or 0)
        self.ends[key] = max(at, self.ends.get(key, at))


def _sent(parser: LogParser, kind: str, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the event in the form in which the listener sends it."""
    if kind.endswith("QueryProgressEvent"):
        progress = document["progress"]
        sources = progress.get("sources") or []
        for source in sources:
            for key in _OFFSETS:
                source[key] = _offset(source.get(key))
        for key in _SUMS:
            # Spark's progress object has these as sums over its sources. An event log has only the sources.
            values = [source.get(key) for source in sources]
            if progress.get(key) is None and values and None not in values:
                progress[key] = sum(values)
        yield {"event": "progress", "seen_at": progress["timestamp"], "progress": progress}
        return
    of = {"id": document["id"], "run_id": document["runId"], "name": document.get("name")}
    if kind.endswith("QueryTerminatedEvent"):
        # The event has no time of its own, so the end is not before the newest event of the run.
        at = parser.ends.get((of["id"], of["run_id"]))
        exception = document.get("exception")
        yield {
            **of,
            "event": "terminated",
            "seen_at": document.get("timestamp") or at or _NEVER,
            "exception": None if exception is None else str(exception)[:_EXCEPTION_MAX],
            "error_class": document.get("errorClassOnException"),
        }
        return
    what = "started" if kind.endswith("QueryStartedEvent") else "idle" if kind.endswith("QueryIdleEvent") else None
    if what is not None:
        yield {**of, "event": what, "seen_at": document["timestamp"], "timestamp": document["timestamp"]}


def _offset(value: object) -> object:
    """Return an offset as the listener has it. The event log writes it as text."""
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value
