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
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from backend.contracts import spark as wire
from backend.domain.connection import ANYWHERE, Reach
from backend.domain.engines import SPARK
from backend.domain.observation import JobObservation
from backend.domain.target_url import is_store
from collectors.diagnosis_print import Answer
from collectors.file_blocks import blocks, files_of, long_lines
from collectors.spark.judged import chosen, judged
from collectors.spark.log_events import LogParser, run_of, wanted
from collectors.spark.log_stream import is_compacted
from collectors.spark.stage_events import Run, WorkReader, is_of_work
from collectors.spark.stored_logs import stored_logs
from collectors.spark.works import Works, with_works
from collectors.step_line import StepLine

OPTION: Final = "--event-log"
Observe = Callable[[wire.SparkPushIn], list[JobObservation]]
"""Parses the events of a listener's push: one observation for each run of a query."""

EVENTS_KEPT: Final = 2_000
"""So many events of a run are kept, the newest."""
_RUNS_KEPT: Final = 1_000
OTHER_RUNS_MAX: Final = 12
_INDEX: Final = re.compile(r"events_(\d+)_")


@dataclass(slots=True)
class _Read:
    """What was read of the files. A run is named by the ids of the query and of the run."""

    parser: LogParser = field(default_factory=LogParser)
    runs: dict[Run, deque[wire.SparkEvent]] = field(default_factory=dict)
    works: Works = field(default_factory=Works)
    place: tuple[str, int, str] | None = None

    def begin(self, name: str) -> None:
        """Begin with a file. One that does not follow the file before it in a rolling log begins anew."""
        folder, index, _ = place = _order(name)
        before, self.place = self.place, place
        if index <= 1:
            self.works.reader = WorkReader()
        elif before is None or (folder, index - 1) != before[:2]:
            self.works.reader.gap()

    def file(self, name: str, parts: Iterator[bytes]) -> None:
        """Read a file, whose unpacked content ``parts`` are."""
        self.begin(name)
        for line in long_lines(parts, wanted):
            self.take(line)
        if is_compacted(name):
            self.works.reader.gap()

    def take(self, line: bytes) -> None:
        """Take what a line has."""
        if is_of_work(line):
            self.works.reader.read(line)
            return
        for event in self.parser.events_in(line):
            self.add(event)
            self.works.note(event)

    def add(self, event: wire.SparkEvent) -> None:
        """Add an event to its run."""
        key = run_of(event)
        if key not in self.runs and len(self.runs) >= _RUNS_KEPT:
            del self.runs[next(iter(self.runs))]
        self.runs.setdefault(key, deque(maxlen=EVENTS_KEPT)).append(event)


def is_event_log(path: Path) -> bool:
    """Return whether a file in a folder may be an event log: not a checksum, and not the status of a rolling log."""
    return not path.name.startswith((".", "appstatus", "_")) and path.suffix != ".crc"


def read_event_logs(names: Sequence[str], observe: Observe, *, job: str | None, reach: Reach = ANYWHERE) -> Answer:
    """Read the event logs, and diagnose the newest run of each query. ``reach`` is for those in S3 and HDFS.

    Raises:
        InvalidInputError: a file cannot be read, or no query has the name or id ``job``.
        TargetUnavailableError, TargetProtocolError: a store does not answer, or not as it should.
    """
    began_s = time.monotonic()
    read = _Read()
    damages: list[str] = []
    request_count = 0
    local = [name for name in names if not is_store(name)]
    files = sorted(files_of(local, option=OPTION, wanted=is_event_log), key=_order) if local else []
    with StepLine() as show_step:
        for name in files:
            show_step(f"reading {Path(name).name}")
            read.file(name, blocks(name, lambda *_: None, damages))
        for name in names:
            if not is_store(name):
                continue
            show_step("listing event logs")
            with stored_logs(name, option=OPTION, reach=reach) as logs:
                for log in sorted(logs, key=lambda log: _order(log.name)):
                    show_step(f"reading {Path(log.name).name}")
                    read.file(log.name, log.blocks())
                request_count += logs[0].files.cost.request_count
    runs = [
        with_works(o, read.works.chosen.get(key, {}), read.parser)
        for key, events in read.runs.items()
        for o in observe(_push(read, key, events))
    ]
    jobs = judged(runs, chosen(runs, job), heard=partial(_heard, read), version=read.parser.version)
    if broken := read.parser.broken_count:
        said = "1 event could not be read and is" if broken == 1 else f"{broken} events could not be read and are"
        damages.append(f"{said} left out")
    return Answer(
        url=", ".join(read.parser.applications[:3]) or Path([*files, *names][0]).name,
        engine=" ".join(w for w in (SPARK.name, read.parser.version) if w),
        jobs=jobs,
        problems=tuple(damages),
        request_count=request_count,
        took_s=time.monotonic() - began_s,
        as_of=max(read.parser.ends.values(), default=datetime.fromtimestamp(0, UTC)),
    )


def _order(name: str) -> tuple[str, int, str]:
    """Return the sort key of a file: those of a rolling log by their number."""
    match = _INDEX.match(Path(name).name)
    return str(Path(name).parent), int(match[1]) if match else 0, name


def _push(read: _Read, key: Run, events: Sequence[wire.SparkEvent]) -> wire.SparkPushIn:
    # The events are valid already, and their number is that of a file, not of a request.
    return wire.SparkPushIn.model_construct(
        deployment="event log",
        sent_at=read.parser.ends[key],
        spark_version=read.parser.version,
        dropped_count=0,
        trigger_interval_ms=None,
        events=list(events),
    )


def _heard(read: _Read, run: JobObservation) -> datetime:
    query, run_id = run.engine_run_id.split("/", 1)
    return read.parser.ends[(query, run_id)]
