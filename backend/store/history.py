"""Reads what is stored of jobs as the backtest needs it: runs, ended checkpoints, and readings of back-pressure.

Each statement returns one column of JSON texts. So the values are the same without Spark, where psycopg reads them, and
with it, where each task reads its jobs over ADBC. This module imports neither pyspark nor a driver, because a task on
another machine has none but ADBC.
"""

# ruff: noqa: S608  the statements hold this module's own names, whole numbers, and quoted ids.

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from backend.analysis.assembling import READ_WITHIN
from backend.analysis.health.struck_spans import READ_AFTER, READ_BEFORE, READ_FOR
from backend.backtest.stored import PLAIN_COLUMNS, PRESSURE_ARRAYS, Chunk, StoredCheckpoint, StoredRun, reading_of
from backend.domain.checkpoint import DETAIL_ARRAYS
from backend.domain.observation import JobState
from backend.domain.pressure import VertexPressure

Texts = Callable[[str], Iterable[str]]
"""Runs a statement, and returns the texts of its only column."""

_INT8_MAX: Final = 2**63 - 1
CHUNK_COUNT: Final = 200
"""So many checkpoints of a job are read at once."""
ENDED: Final = "c.status IN ('completed', 'failed')"
"""The condition for checkpoints ``c`` that have ended."""
_NOT_ENDED: Final = f"r.state <> '{JobState.ENDED.value}'"
IS_RUNNING: Final = f" AND EXISTS (SELECT FROM runs r WHERE r.job_id = j.id AND {_NOT_ENDED})"
"""The condition for jobs ``j`` with a run that has not ended."""
_RUNNING: Final = (
    f"SELECT r.id FROM runs r WHERE r.job_id = {{job}} AND {_NOT_ENDED} ORDER BY r.started_at DESC, r.id DESC LIMIT 1"
)


def _ms(column: str) -> str:
    return f"(extract(epoch FROM {column}) * 1000)::int8"


_AHEAD = "CASE WHEN t.origin = 'push' THEN 0 ELSE coalesce(r.clock_offset_ms, h.clock_offset_ms, 0) END"
_VERSIONS = (
    f"SELECT json_agg(json_build_array(v.kind, {_ms('v.since')}, v.document) ORDER BY v.kind, v.since)"
    " FROM run_versions v WHERE v.run_id = r.id"
)
_EVENTS = (
    f"SELECT json_agg(json_build_array({_ms('e.at')}, e.kind, e.key, e.text) ORDER BY e.at, e.kind, e.key)"
    " FROM job_events e WHERE e.run_id = r.id AND e.kind IN ('restarted', 'exception', 'rows-lost', 'pod-ended')"
)
_RUNS = (
    "SELECT json_build_object('id', r.id, 'engine', r.engine, 'capabilities', r.capabilities,"
    f" 'engine_version', h.engine_version, 'started_ms', {_ms('r.started_at')}, 'ahead_ms', {_AHEAD},"
    " 'placements', r.placements,"
    f" 'versions', ({_VERSIONS}), 'events', ({_EVENTS}))::text"
    " FROM runs r JOIN targets t ON t.id = r.target_id LEFT JOIN target_health h ON h.target_id = t.id"
)
_DETAILS = (
    "SELECT json_agg(json_build_array(d.vertex_id, d.subtask_count, "
    + ", ".join(f"d.{name}" for name in DETAIL_ARRAYS)
    + ") ORDER BY d.vertex_id) FROM checkpoint_details d"
    " WHERE d.run_id = c.run_id AND d.checkpoint_id = c.checkpoint_id AND d.triggered_on = c.triggered_on"
)
_LATE = (
    f"SELECT json_agg(json_build_array(l.vertex_id, l.subtask, l.start_delay_ms, {_ms('l.seen_at')}, l.resolution_ms)"
    " ORDER BY l.vertex_id, l.subtask) FROM late_barriers l"
    " WHERE l.run_id = c.run_id AND l.checkpoint_id = c.checkpoint_id"
)
_BATCH = (
    "SELECT json_build_object('phases_ms', b.phases_ms, 'input_row_count', b.input_row_count,"
    f" 'processed_rows_per_s', b.processed_rows_per_s, 'watermark_ms', {_ms('b.watermark_at')}, 'state', b.state,"
    " 'sources', b.sources, 'number_basis', b.number_basis, 'work', b.work) FROM micro_batches b"
    " WHERE b.run_id = c.run_id AND b.checkpoint_id = c.checkpoint_id AND b.triggered_on = c.triggered_on"
)
_PLAIN = ("run_id", "checkpoint_id", "kind", "status", "is_unaligned", "failure_reason", "savepoint_format", "protocol")
_NAMED = ", ".join(f"'{name}', c.{name}" for name in (*_PLAIN, *PLAIN_COLUMNS))
_CHECKPOINTS = (
    f"SELECT json_build_object({_NAMED}, 'triggered_ms', {_ms('c.triggered_at')},"
    f" 'latest_ack_ms', {_ms('c.latest_ack_at')}, 'failed_ms', {_ms('c.failed_at')},"
    f" 'at_us', (extract(epoch FROM c.triggered_at) * 1000000)::int8,"
    f" 'details', ({_DETAILS}), 'late', ({_LATE}), 'batch', ({_BATCH}),"
    " 'judged_kind', v.document -> 'verdict' ->> 'kind',"
    " 'judged_vertex', v.document -> 'verdict' ->> 'vertex_id')::text"
    " FROM checkpoints c LEFT JOIN verdicts v ON v.run_id = c.run_id AND v.checkpoint_id = c.checkpoint_id"
    f" AND v.triggered_on = c.triggered_on WHERE {ENDED}"
)
# The day comes before the time, so that PostgreSQL reads the partitions in this order and stops as soon as it can.
_IN_ORDER = f" ORDER BY c.triggered_on, c.triggered_at, c.checkpoint_id, c.run_id LIMIT {CHUNK_COUNT}"
_READINGS = (
    f"SELECT json_build_array({_ms('p.observed_at')}, p.vertex_id, p.subtask_count, p.asked, "
    + ", ".join(f"p.{name}" for name in PRESSURE_ARRAYS)
    + ")::text FROM (VALUES {spans}) s(since, until) JOIN pressure p ON p.run_id = {run}"
    " AND p.observed_at BETWEEN s.since AND s.until AND p.observed_on BETWEEN {first} AND {last}"
    " ORDER BY p.observed_at, p.vertex_id"
)


class StoredJobHistory:
    """What is stored of one job; see ``JobHistory``. With ``since_s``, earlier checkpoints are left out."""

    def __init__(
        self,
        texts: Texts,
        job_id: str,
        since_s: int | None = None,
        newest_max: int | None = None,
        *,
        is_running: bool = False,
    ) -> None:
        """With ``newest_max``, at most so many of the newest checkpoints are read.

        If ``is_running``, those of the newest run that has not ended are read.
        """
        self._texts = texts
        self._job = _quoted(job_id)
        self._since = since_condition(since_s)
        if is_running:
            self._since += f" AND c.run_id = ({_RUNNING.format(job=self._job)})"
        if newest_max is not None:
            self._since += self._newest(newest_max)
        documents = (json.loads(text) for text in texts(f"{_RUNS} WHERE r.job_id = {self._job} ORDER BY r.id"))
        self.runs: Mapping[str, StoredRun] = {d["id"]: StoredRun.of(d) for d in documents}
        # Up to when readings were read, by run.
        self._read_until: dict[str, datetime] = {}

    def chunks(self) -> Iterator[Chunk]:
        """Yield the checkpoints that have ended, in the order of their triggers, with their readings."""
        after = ""
        while True:
            query = f"{_CHECKPOINTS} AND c.job_id = {self._job}{self._since}{after}{_IN_ORDER}"
            rows = [json.loads(text) for text in self._texts(query)]
            if rows:
                checkpoints = [StoredCheckpoint.of(row) for row in rows]
                yield Chunk(checkpoints, self._readings(checkpoints))
                after = _after(rows[-1])
            if len(rows) < CHUNK_COUNT:
                return

    def _newest(self, count: int) -> str:
        query = (
            "SELECT coalesce(min(n.s), 0)::text FROM (SELECT floor(extract(epoch FROM c.triggered_at))::int8 AS s"
            f" FROM checkpoints c WHERE {ENDED} AND c.job_id = {self._job}{self._since}"
            f" ORDER BY c.triggered_on DESC, c.triggered_at DESC LIMIT {int(count)}) n"
        )
        return since_condition(int(next(iter(self._texts(query)))))

    def _readings(self, checkpoints: Sequence[StoredCheckpoint]) -> dict[str, list[VertexPressure]]:
        """Return the readings that are evidence at the ends of these checkpoints, and that were not read before."""
        wanted: dict[str, list[tuple[datetime, datetime]]] = {}
        for stored in checkpoints:
            run = self.runs.get(stored.run_id)
            if run is None or run.engine.is_micro_batched:
                continue
            begin, end = stored.header.triggered_at, stored.ended_at
            spans = wanted.setdefault(stored.run_id, [])
            # Readings from around a checkpoint may be evidence for a later one.
            spans.append((begin - READ_BEFORE, min(end, begin + READ_FOR) + READ_AFTER))
            spans.append((end - READ_WITHIN, end))
        readings: dict[str, list[VertexPressure]] = {}
        for run_id, spans in wanted.items():
            ahead = self.runs[run_id].ahead
            merged = _merged([(since - ahead, until - ahead) for since, until in spans], self._read_until.get(run_id))
            if not merged:
                continue
            self._read_until[run_id] = merged[-1][1]
            values = ", ".join(f"({_instant(since)}, {_instant(until)})" for since, until in merged)
            first, last = (f"'{at.date().isoformat()}'::date" for at in (merged[0][0], merged[-1][1]))
            query = _READINGS.format(spans=values, run=_quoted(run_id), first=first, last=last)
            readings[run_id] = [reading_of(json.loads(text), ahead) for text in self._texts(query)]
        return readings


def _merged(spans: Iterable[tuple[datetime, datetime]], after: datetime | None) -> list[tuple[datetime, datetime]]:
    """Return the spans without overlaps, oldest first. What is not after ``after`` is left out."""
    merged: list[tuple[datetime, datetime]] = []
    for since, until in sorted(spans):
        begin = since if after is None else max(since, after + timedelta(microseconds=1))
        if begin > until:
            continue
        if merged and begin <= merged[-1][1] + timedelta(microseconds=1):
            merged[-1] = merged[-1][0], max(merged[-1][1], until)
        else:
            merged.append((begin, until))
    return merged


def _after(row: Mapping[str, Any]) -> str:
    """Return the condition for the checkpoints that follow this one in the order of the triggers."""
    at = f"timestamptz 'epoch' + {int(row['at_us'])} * interval '1 microsecond'"
    key = f"({at}, {int(row['checkpoint_id'])}::int8, {_quoted(row['run_id'])}::text)"
    day = f"c.triggered_on >= (({at}) AT TIME ZONE 'UTC')::date"
    return f" AND {day} AND (c.triggered_at, c.checkpoint_id, c.run_id) > {key}"


def _instant(at: datetime) -> str:
    return f"'{at.isoformat()}'::timestamptz"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def since_condition(since_s: int | None) -> str:
    """Return the condition for checkpoints that were triggered at or after ``since_s`` (seconds since the epoch)."""
    if since_s is None:
        return ""
    instant = f"to_timestamp({int(since_s)})"
    return f" AND c.triggered_at >= {instant} AND c.triggered_on >= ({instant} AT TIME ZONE 'UTC')::date"
