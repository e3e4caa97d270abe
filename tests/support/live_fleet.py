"""Write a fleet of many live jobs directly into the tables, and change some of its jobs as a collector would.

The number of a job determines its kind (``KINDS``) and its values, so every fill with the same ``now`` is the same.
Each job that runs triggers a checkpoint every minute, at its own second of the minute.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from backend.domain.ids import VertexId
from backend.domain.topology import Edge, Topology, Vertex
from backend.store.checkpoints.progress_writer import PRESSURE_ARRAYS
from backend.store.postgres.connections import create_store_engine
from backend.store.schema.documents import config_document, topology_document
from backend.store.schema.partitions import Partitions, day_of
from tests.support.observations import CONFIG, NOW

_SUBTASKS = 10
_NAMES = ("Source: orders", "enrich", "aggregate", "Sink: ledger")
_VERTICES = tuple(Vertex(VertexId(f"v{i}"), name, _SUBTASKS, 128) for i, name in enumerate(_NAMES))
TOPOLOGY = Topology(_VERTICES, tuple(Edge(VertexId(f"v{i}"), VertexId(f"v{i + 1}"), "HASH") for i in range(3)))
_HEADERS = 120
_DETAILED = 16
_JOBS_PER_TARGET = 20


class Kind(StrEnum):
    """What the checkpoints of a job do. ``LONG`` and ``STUCK`` jobs have an open checkpoint at nearly all times."""

    WELL = "well"
    FAILING = "failing"
    """Every third checkpoint expires."""
    LONG = "long"
    """Each checkpoint takes half of its interval, behind a vertex with backpressure."""
    STUCK = "stuck"
    """As ``LONG``, and every second checkpoint expires at one subtask that its barrier reaches late."""
    ENDED = "ended"


KINDS = (
    *[Kind.FAILING],
    *[Kind.LONG] * 5,
    *[Kind.STUCK],
    *[Kind.ENDED],
    *[Kind.WELL] * 12,
)
"""The kinds of 20 successive jobs."""

_OPENING = f"({', '.join(str(i) for i, kind in enumerate(KINDS) if kind in (Kind.LONG, Kind.STUCK))})"
_PER = len(KINDS)


def _of(kind: Kind) -> str:
    """Return the SQL condition that job ``j`` is of this kind."""
    return f"(j %% {_PER} IN ({', '.join(str(i) for i, k in enumerate(KINDS) if k is kind)}))"


# Of the jobs in ``jobs``, write the checkpoints from ``first`` to ``last``. If a job has an open checkpoint at nearly
# all times, its newest one is in progress.
_HEADER = f"""
INSERT INTO checkpoints (run_id, checkpoint_id, triggered_on, job_id, kind, status, is_unaligned, triggered_at,
  latest_ack_at, end_to_end_duration_ms, checkpointed_size_bytes, full_state_size_bytes, subtask_count,
  acknowledged_count, failure_reason, failure_message, failed_at, start_delay_max_ms, alignment_max_ms, sync_max_ms,
  async_max_ms, observed_at)
SELECT 'r' || j, n, (at AT TIME ZONE 'UTC')::date, 'j' || j, 'checkpoint', status, false, at,
  CASE WHEN status = 'completed' THEN at + ms * interval '1 ms' END, CASE WHEN status <> 'in-progress' THEN ms END,
  100000 + j, 1000000 + j, 40, CASE status WHEN 'completed' THEN 40 WHEN 'failed' THEN 39 ELSE 20 END,
  CASE WHEN status = 'failed' THEN 'expired' END,
  CASE WHEN status = 'failed' THEN 'Checkpoint expired before completing.' END,
  CASE WHEN status = 'failed' THEN at + ms * interval '1 ms' END,
  CASE WHEN status <> 'in-progress' THEN ms / 8 END, CASE WHEN status <> 'in-progress' THEN ms / 10 END,
  CASE WHEN status <> 'in-progress' THEN 5 END, CASE WHEN status <> 'in-progress' THEN ms / 2 END,
  least(at + ms * interval '1 ms', %(now)s)
FROM (SELECT j, n, at, CASE WHEN n = %(last)s AND j %% {_PER} IN {_OPENING} THEN 'in-progress'
    WHEN is_failed THEN 'failed' ELSE 'completed' END AS status,
    CASE WHEN is_failed THEN 60000 WHEN j %% {_PER} IN {_OPENING} THEN 25000 + (j * 7 + n * 13) %% 10000
      ELSE 400 + (j * 7 + n * 13) %% 300 END AS ms
  FROM (SELECT j, n, %(now)s - (%(last)s - n) * interval '1 minute' - %(phase)s * (j %% 60) * interval '1 s'
      - CASE WHEN {_of(Kind.ENDED)} THEN interval '1 hour' ELSE interval '0' END AS at,
      ({_of(Kind.FAILING)} AND n %% 3 = 0) OR ({_of(Kind.STUCK)} AND n %% 2 = 0) AS is_failed
    FROM unnest(%(jobs)s::int[]) j, generate_series(%(first)s::int, %(last)s::int) n) i) g
"""
_DETAIL = f"""
INSERT INTO checkpoint_details (run_id, checkpoint_id, vertex_id, triggered_on, subtask_count, start_delay_ms,
  alignment_duration_ms, sync_duration_ms, async_duration_ms, ack_delay_ms, checkpointed_size_bytes,
  full_state_size_bytes, unaligned)
SELECT c.run_id, c.checkpoint_id, 'v' || v, c.triggered_on, {_SUBTASKS},
  ARRAY(SELECT (start_delay_max_ms * (v + 1) * i / {4 * _SUBTASKS})::int FROM generate_series(1, {_SUBTASKS}) i),
  ARRAY(SELECT (alignment_max_ms * (v + 1) * i / {4 * _SUBTASKS})::int FROM generate_series(1, {_SUBTASKS}) i),
  ARRAY[5], ARRAY(SELECT (async_max_ms * i / {_SUBTASKS})::int FROM generate_series(1, {_SUBTASKS}) i),
  ARRAY(SELECT CASE WHEN c.status = 'failed' AND v = 3 AND i = 3 THEN NULL
    ELSE (end_to_end_duration_ms * (v + 1) * i / {4 * _SUBTASKS})::int END FROM generate_series(1, {_SUBTASKS}) i),
  ARRAY[1000], ARRAY[10000], ARRAY[0]::smallint[]
FROM checkpoints c, generate_series(0, 3) v
WHERE c.job_id = ANY(%(ids)s) AND c.checkpoint_id > %(after)s AND c.status <> 'in-progress'
ON CONFLICT DO NOTHING
"""
_RATIOS = "busy_ratio, backpressured_ratio, idle_ratio"
_PRESSURE = f"""
INSERT INTO pressure (run_id, observed_at, vertex_id, observed_on, subtask_count, {_RATIOS}, records_in_count, asked)
SELECT 'r' || j, at, 'v' || v, (at AT TIME ZONE 'UTC')::date, {_SUBTASKS},
  ARRAY(SELECT busy + 0.001 * i FROM generate_series(1, {_SUBTASKS}) i),
  ARRAY(SELECT held - 0.001 * i FROM generate_series(1, {_SUBTASKS}) i), ARRAY[0.05::real],
  ARRAY(SELECT (extract(epoch FROM at) * 1000)::bigint + i FROM generate_series(1, {_SUBTASKS}) i), %(asked)s
FROM (SELECT j, v, at, CASE WHEN is_held THEN 0.1 ELSE 0.4 END AS busy,
    CASE WHEN is_held THEN 0.85 ELSE 0.02 + j %% 7 * 0.01 END AS held
  FROM (SELECT j, v, at, v < 2 AND j %% {_PER} IN {_OPENING} AS is_held
    FROM unnest(%(jobs)s::int[]) j, generate_series(0, 3) v, unnest(%(instants)s::timestamptz[]) at) i) p
"""
_OPEN = """
SELECT run_id, checkpoint_id, triggered_at, substring(run_id FROM 2)::int AS j FROM checkpoints
WHERE status = 'in-progress' AND triggered_on >= (%(now)s AT TIME ZONE 'UTC')::date - 1
"""
# Ten of the 40 subtasks have not acknowledged: those of the last vertex.
_PROGRESS = f"""
INSERT INTO live_progress (run_id, checkpoint_id, observed_at, acknowledged_count, subtask_count, document)
SELECT run_id, checkpoint_id, %(now)s, 20 + extract(epoch FROM %(now)s - triggered_at)::int %% 10, 40, %(document)s
FROM ({_OPEN}) o
ON CONFLICT (run_id, checkpoint_id) DO UPDATE
SET observed_at = excluded.observed_at, acknowledged_count = excluded.acknowledged_count
"""
_POINTS = f"""
INSERT INTO progress_points (run_id, checkpoint_id, observed_at, acknowledged_count)
SELECT run_id, checkpoint_id, %(now)s, 20 + extract(epoch FROM %(now)s - triggered_at)::int %% 10 FROM ({_OPEN}) o
"""
_LATE = f"""
INSERT INTO late_barriers (run_id, checkpoint_id, vertex_id, subtask, start_delay_ms, seen_at, resolution_ms)
SELECT run_id, checkpoint_id, 'v3', 2, 9000, %(now)s, 2000 FROM ({_OPEN}) o WHERE {_of(Kind.STUCK)}
ON CONFLICT DO NOTHING
"""
# End the open checkpoints of the jobs in ``jobs``. The next checkpoint of each of these jobs begins at the same time.
_END = f"""
UPDATE checkpoints c SET status = CASE WHEN is_failed THEN 'failed' ELSE 'completed' END,
  end_to_end_duration_ms = ms, start_delay_max_ms = ms / 8, alignment_max_ms = ms / 10, sync_max_ms = 5,
  async_max_ms = ms / 2, acknowledged_count = CASE WHEN is_failed THEN 39 ELSE 40 END,
  failure_reason = CASE WHEN is_failed THEN 'expired' END, failed_at = CASE WHEN is_failed THEN %(now)s END,
  latest_ack_at = CASE WHEN NOT is_failed THEN %(now)s END, observed_at = %(now)s
FROM (SELECT o.*, {_of(Kind.STUCK)} AND checkpoint_id %% 2 = 0 AS is_failed,
    greatest(1, extract(epoch FROM %(now)s - triggered_at) * 1000)::bigint AS ms FROM ({_OPEN}) o) e
WHERE c.run_id = e.run_id AND c.checkpoint_id = e.checkpoint_id AND c.status = 'in-progress' AND e.j = ANY(%(jobs)s)
"""
# As the collector's writer does, raise the revision of a run with an open checkpoint when the checkpoint is read again,
# but only every 20 seconds.
_SEEN = f"""
WITH seen AS (
  UPDATE checkpoints c SET observed_at = %(now)s FROM (SELECT o.*, c.observed_at AS before FROM ({_OPEN}) o
    JOIN checkpoints c USING (run_id, checkpoint_id)) o
  WHERE c.run_id = o.run_id AND c.checkpoint_id = o.checkpoint_id
  RETURNING c.run_id, (extract(epoch FROM before)::bigint + j) / 20 <> (extract(epoch FROM %(now)s)::bigint + j) / 20
    AS is_step)
UPDATE runs SET revision = revision + 1 FROM seen WHERE id = run_id AND is_step
"""


class LiveFleet:
    """A fleet of ``size`` jobs in the migrated, empty store at ``url``, as of ``now``."""

    def __init__(self, url: str, size: int, now: datetime = NOW) -> None:
        self._url = url
        self._size = size
        self._now = now
        self._last = _HEADERS
        self._polls = 0
        self._live = [j for j in range(size) if KINDS[j % _PER] is not Kind.ENDED]

    def fill(self) -> None:
        """Write the targets, jobs, runs, graphs, settings, two hours of checkpoints, and what is open."""
        asyncio.run(_make_partitions(self._url, self._now))
        targets = (self._size - 1) // _JOBS_PER_TARGET + 1
        values = {"now": self._now, "size": self._size, "targets": targets, "per": _JOBS_PER_TARGET}
        with psycopg.connect(self._url) as connection, connection.cursor() as cursor:
            for statement in _FLEET:
                cursor.execute(statement, values)
            for kind, document in (("topology", topology_document(TOPOLOGY)), ("config", config_document(CONFIG))):
                cursor.execute(
                    "INSERT INTO run_versions SELECT id, %s, started_at, %s FROM runs", (kind, Jsonb(document))
                )
            every = list(range(self._size))
            self._checkpoints(cursor, self._now, every, 1, phase=1)
            instants = [self._now - timedelta(seconds=10 * i) for i in range(15)]
            self._readings(cursor, self._live, instants)
            self._progress(cursor, self._now)
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("ANALYZE")

    def poll(self, at: datetime, share: int | None) -> None:
        """Record that every running job was observed at ``at``.

        One job in ``share`` then has one more ended checkpoint. A job that has an open checkpoint at nearly all times
        opens the next one. Without ``share``, only the open checkpoints progress. One job in five has a new reading of
        its backpressure.
        """
        with psycopg.connect(self._url) as connection, connection.cursor() as cursor:
            cursor.execute("UPDATE runs SET observed_at = %s WHERE ended_at IS NULL", (at,))
            cursor.execute("UPDATE target_health SET last_attempt_at = %s, last_success_at = %s", (at, at))
            self._polls += 1
            self._readings(cursor, [j for j in self._live if j % 5 == self._polls % 5], [at])
            cursor.execute(_SEEN, {"now": at})
            if share is not None:
                self._last += 1
                changed = [j for j in self._live if j % share == self._polls % share]
                cursor.execute(_END, {"now": at, "jobs": changed})
                self._checkpoints(cursor, at, changed, self._last, phase=0)
                ids = [f"j{j}" for j in changed]
                cursor.execute("UPDATE runs SET revision = revision + 1 WHERE job_id = ANY(%s)", (ids,))
            self._progress(cursor, at)

    def _checkpoints(
        self, cursor: psycopg.Cursor[Any], at: datetime, jobs: list[int], first: int, *, phase: int
    ) -> None:
        values = {"now": at, "jobs": jobs, "first": first, "last": self._last, "phase": phase}
        cursor.execute(_HEADER, values)
        ids = [f"j{j}" for j in jobs]
        cursor.execute(_DETAIL, {"ids": ids, "after": (_HEADERS if first > 1 else _HEADERS - _DETAILED) - 1})

    def _readings(self, cursor: psycopg.Cursor[Any], jobs: list[int], instants: list[datetime]) -> None:
        read = ("busy_ratio", "backpressured_ratio", "idle_ratio", "records_in_count")
        asked = sum(1 << PRESSURE_ARRAYS.index(name) for name in read)
        cursor.execute(_PRESSURE, {"jobs": jobs, "instants": instants, "asked": asked})

    def _progress(self, cursor: psycopg.Cursor[Any], at: datetime) -> None:
        document = {
            "details": [],
            "by_vertex": [["v0", 10, 10], ["v1", 10, 10], ["v2", 5, 10], ["v3", 0, 10]],
            "pending": [["v2", [5, 6, 7, 8, 9]], ["v3", list(range(10))]],
            "aligning": [],
        }
        for statement in (_PROGRESS, _POINTS, _LATE):
            cursor.execute(statement, {"now": at, "document": Jsonb(document)})


_FLEET = (
    "INSERT INTO targets (id, url, name, origin, added_at, labels) SELECT 't' || t, 'http://flink-' || t || ':8081',"
    " 'flink-' || t, 'api', %(now)s, jsonb_build_object('team', "
    " (ARRAY['payments', 'search', 'ads', 'risk'])[1 + t %% 4],"
    " 'env', CASE WHEN t %% 5 = 0 THEN 'staging' ELSE 'production' END) FROM generate_series(0, %(targets)s - 1) t",
    "INSERT INTO target_health (target_id, state, since, last_success_at, last_attempt_at, engine, engine_version,"
    " clock_offset_ms) SELECT id, 'ok', %(now)s, %(now)s, %(now)s, 'flink', '1.20.0', 0 FROM targets",
    "INSERT INTO jobs SELECT 'j' || j, 'fleet', 'job-' || j, %(now)s FROM generate_series(0, %(size)s - 1) j",
    "INSERT INTO runs (id, job_id, target_id, engine_run_id, engine, started_at, state, engine_state, restart_count,"
    " counts, checkpoint_count, first_observed_at, observed_at, ended_at)"
    " SELECT 'r' || j, 'j' || j, 't' || (j / %(per)s), 'e' || j, 'flink', %(now)s - interval '4 hours',"
    " CASE WHEN is_ended THEN 'ended' ELSE 'running' END, CASE WHEN is_ended THEN 'FINISHED' ELSE 'RUNNING' END, 0,"
    ' \'{"restored": 0, "total": 120, "in_progress": 0, "completed": 120, "failed": 0}\', 120,'
    " %(now)s - interval '4 hours', at, CASE WHEN is_ended THEN at END"
    " FROM (SELECT j, is_ended, %(now)s - CASE WHEN is_ended THEN interval '50 minutes' ELSE interval '0' END AS at"
    f" FROM (SELECT j, {_of(Kind.ENDED)} AS is_ended FROM generate_series(0, %(size)s - 1) j) i) g",
)


async def _make_partitions(url: str, now: datetime) -> None:
    engine = create_store_engine(url)
    try:
        await Partitions(engine).ensure({day_of(now + timedelta(hours=h)) for h in (-24, -4, 0, 3)})
    finally:
        await engine.dispose()
