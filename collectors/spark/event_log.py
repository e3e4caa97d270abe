"""Diagnoses the queries in event logs of Spark (``spark.eventLog.enabled``), as if their listener had sent the events.

An event log has each event of a query as the listener gets it, among many others that are left out. A rolling log is a
folder of files. The events are parsed by the parser of the ingest API, and judged by the same rules.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson
from pydantic import TypeAdapter, ValidationError

from backend.advisor import advise
from backend.analysis.assembling import EVIDENCE_COUNT, RunAt
from backend.analysis.measures.evidence import OtherRun
from backend.analysis.verdict.verdict import considered_count, diagnose
from backend.contracts import spark as wire
from backend.domain.engines import SPARK
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.observation import JobObservation, JobState
from backend.domain.text import clean
from backend.domain.topology import Topology
from backend.domain.urgency import urgency_key
from collectors.diagnosis_print import Answer, JobAnswer
from collectors.file_blocks import blocks, files_of, long_lines
from collectors.step_line import StepLine

OPTION: Final = "--event-log"
Observe = Callable[[wire.SparkPushIn], list[JobObservation]]
"""Parses the events of a listener's push: one observation for each run of a query."""

EVENTS_KEPT: Final = 2_000
"""So many events of a run are kept, the newest."""
_RUNS_KEPT: Final = 1_000
OTHER_RUNS_MAX: Final = 12
_EXCEPTION_MAX: Final = 20_000
_NAME_MAX: Final = 200
_QUERY: Final = b"StreamingQueryListener$Query"
_TEXTS: Final = (_QUERY, b'"SparkListenerLogStart"', b'"SparkListenerApplicationStart"')
_OFFSETS: Final = ("startOffset", "endOffset", "latestOffset")
_SUMS: Final = ("numInputRows", "processedRowsPerSecond")
_INDEX: Final = re.compile(r"events_(\d+)_")
_EVENT: Final[TypeAdapter[wire.SparkEvent]] = TypeAdapter(wire.SparkEvent)
_Run = tuple[str, str]


@dataclass(slots=True)
class _Read:
    """What was read of the files. A run is named by the ids of the query and of the run."""

    runs: dict[_Run, deque[wire.SparkEvent]] = field(default_factory=dict)
    ends: dict[_Run, datetime] = field(default_factory=dict)
    version: str | None = None
    applications: list[str] = field(default_factory=list)
    broken_count: int = 0

    def add(self, event: wire.SparkEvent) -> None:
        """Add an event to its run."""
        of = event.progress if isinstance(event, wire.ProgressEventIn) else event
        key = (of.id, of.run_id)
        at = event.seen_at
        if isinstance(event, wire.ProgressEventIn):
            # A broken duration may be too long for a time, so this comes before the event is kept.
            at += timedelta(milliseconds=event.progress.batch_duration or 0)
        end = max(at, self.ends.get(key, at))
        if key not in self.runs and len(self.runs) >= _RUNS_KEPT:
            del self.runs[next(iter(self.runs))]
        self.runs.setdefault(key, deque(maxlen=EVENTS_KEPT)).append(event)
        self.ends[key] = end


def is_event_log(path: Path) -> bool:
    """Return whether a file in a folder may be an event log: not a checksum, and not the status of a rolling log."""
    return not path.name.startswith((".", "appstatus", "_")) and path.suffix != ".crc"


def read_event_logs(names: Sequence[str], observe: Observe, *, job: str | None) -> Answer:
    """Read the event logs, and diagnose the newest run of each query.

    Raises:
        InvalidInputError: a file cannot be read, or no query has the name or id ``job``.
    """
    began_s = time.monotonic()
    files = sorted(files_of(names, option=OPTION, wanted=is_event_log), key=_order)
    read = _Read()
    with StepLine() as show_step:
        for name in files:
            show_step(f"reading {Path(name).name}")
            for line in long_lines(blocks(name, lambda *_: None), _TEXTS):
                _read_line(read, line)
    runs = [o for key, events in read.runs.items() for o in observe(_push(read, key, events))]
    chosen = _chosen(runs, job)
    jobs = tuple(sorted((_answer(read, run, runs) for run in chosen), key=_worst_first))
    broken = read.broken_count
    return Answer(
        url=", ".join(read.applications[:3]) or Path(files[0]).name,
        engine=" ".join(w for w in (SPARK.name, read.version) if w),
        jobs=jobs,
        problems=(f"{broken} event{'' if broken == 1 else 's'} could not be read and are left out",) if broken else (),
        request_count=0,
        took_s=time.monotonic() - began_s,
        as_of=max(read.ends.values(), default=datetime.fromtimestamp(0, UTC)),
    )


def _order(name: str) -> tuple[str, int, str]:
    """Return the sort key of a file: those of a rolling log by their number."""
    found = _INDEX.match(Path(name).name)
    return str(Path(name).parent), int(found[1]) if found else 0, name


def _read_line(read: _Read, line: bytes) -> None:
    try:
        document = orjson.loads(line)
        kind = document["Event"]
        if not isinstance(kind, str):
            raise TypeError("the kind of an event is a text")
        if kind == "SparkListenerLogStart":
            read.version = clean(str(document.get("Spark Version") or ""), length_max=_NAME_MAX) or read.version
        elif kind == "SparkListenerApplicationStart":
            read.applications.append(clean(str(document.get("App Name") or ""), length_max=_NAME_MAX))
        elif "StreamingQueryListener$Query" in kind:
            for event in _events(read, kind, document):
                read.add(_EVENT.validate_python(event))
    except (ValidationError, AttributeError, KeyError, OverflowError, TypeError, ValueError):
        # Any part of a damaged document may have another type than that of an event.
        read.broken_count += 1


def _events(read: _Read, kind: str, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
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
        at = read.ends.get((of["id"], of["run_id"]))
        exception = document.get("exception")
        yield {
            **of,
            "event": "terminated",
            "seen_at": document.get("timestamp") or at or datetime.fromtimestamp(0, UTC),
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


def _push(read: _Read, key: _Run, events: Sequence[wire.SparkEvent]) -> wire.SparkPushIn:
    # The events are valid already, and their number is that of a file, not of a request.
    return wire.SparkPushIn.model_construct(
        deployment="event log",
        sent_at=read.ends[key],
        spark_version=read.version,
        dropped_count=0,
        trigger_interval_ms=None,
        events=list(events),
    )


def _chosen(runs: Sequence[JobObservation], job: str | None) -> list[JobObservation]:
    """Return the newest run of each query, or of the queries with this name or id."""
    named = [r for r in runs if job is None or job in (r.name, r.engine_run_id, _query(r))]
    if job is not None and not named:
        names = ", ".join(sorted({r.name for r in runs})[:20]) or "there is no query at all"
        raise InvalidInputError([FieldProblem("--job", f"no query is called {job!r}", names)], what="option")
    newest: dict[str, JobObservation] = {}
    for run in sorted(named, key=lambda r: r.started_at):
        newest[_query(run)] = run
    return list(newest.values())


def _query(run: JobObservation) -> str:
    return run.engine_run_id.partition("/")[0]


def _answer(read: _Read, run: JobObservation, runs: Sequence[JobObservation]) -> JobAnswer:
    now = _heard(read, run)
    known = RunAt(
        topology=Topology(()),
        config=run.config,
        exceptions=run.exceptions,
        other_runs=tuple(_other(read, other) for other in _others(run, runs)),
        state=run.state,
        engine_state=run.engine_state,
        started_at=run.started_at,
        engine=SPARK,
        engine_version=read.version,
    )
    checkpoints = sorted(run.checkpoints, key=lambda c: c.header.checkpoint_id)
    evidence = known.evidence_on_job(now=now, checkpoints=checkpoints[-EVIDENCE_COUNT:])
    return JobAnswer(
        name=run.name,
        engine_state=run.engine_state,
        diagnosis=diagnose(evidence),
        considered_count=considered_count(evidence),
        as_of=now,
        advice=advise(evidence, engine=SPARK, version=read.version),
        has_ended=run.state is JobState.ENDED,
        is_micro_batched=True,
    )


def _heard(read: _Read, run: JobObservation) -> datetime:
    query, run_id = run.engine_run_id.split("/", 1)
    return read.ends[(query, run_id)]


def _others(run: JobObservation, runs: Sequence[JobObservation]) -> list[JobObservation]:
    """Return the newest other runs of the query, newest first."""
    others = [o for o in runs if _query(o) == _query(run) and o.engine_run_id != run.engine_run_id]
    return sorted(others, key=lambda o: o.started_at, reverse=True)[:OTHER_RUNS_MAX]


def _other(read: _Read, run: JobObservation) -> OtherRun:
    error = max(run.exceptions)[1] if run.exceptions else None
    return OtherRun(run.started_at, _heard(read, run), run.ended_at, error)


def _worst_first(job: JobAnswer) -> tuple[int, str]:
    """Return the sort key of a job: the order of the fleet."""
    found = job.diagnosis
    return urgency_key(found.health, found.verdict.kind, debt_ms=None, has_ended=job.has_ended), job.name
