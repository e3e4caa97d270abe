"""Serve a job of Flink that a case describes in a few numbers, as a ``FlinkTransport`` in virtual time or over HTTP.

The member ``flink`` of a case has:

* ``version``, ``cluster`` (the settings of the cluster), ``config`` (what differs from ``_CONFIG``), ``state``,
  ``started_ago_s``, ``restarts``, ``restored_ago_s``, ``counts``, ``exceptions``;
* ``vertices``: ``name``, ``p`` (the parallelism), ``busy`` and ``bp`` (shares from 0 to 1; a busy share "NaN" is that
  of a source of the old interface), ``in`` and ``out`` (records per second), ``before`` (records read earlier),
  ``bytes`` of a record, the pools and queues, ``hosts``, ``status``;
* ``edges``: from, to, ship strategy;
* ``checkpoints``: see ``described_checkpoints``;
* ``old_metrics``: no busy, back-pressured and idle time, as in Flink 1.12 and before; ``shape`` "old": the shorter
  documents of Flink 1.9.

Ages refer to ``at_s`` 0. Only the counters of records and Flink's own clock move with ``at_s``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import unquote

import orjson

from backend.domain.errors import TargetProtocolError
from tests.support.described_checkpoints import DescribedVertex, Document, checkpoints_of, hex_id
from tests.support.recorded_flink import Answer

BEGAN_AT: Final = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

_RUN_BEFORE_S: Final = 3600
_DAY_S: Final = 86_400
_HISTORY_COUNT: Final = 10
_HIGH_PRESSURE: Final = 0.5
_RATE_MEAN_S: Final = 60
_STATES: Final = [
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "INITIALIZING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
]
_CONFIG: Final[Document] = {
    "mode": "exactly_once",
    "interval": 60_000,
    "timeout": 600_000,
    "min_pause": 0,
    "max_concurrent": 1,
    "externalization": {"enabled": True, "delete_on_cancellation": True},
    "state_backend": "EmbeddedRocksDBStateBackend",
    "checkpoint_storage": "FileSystemCheckpointStorage",
    "unaligned_checkpoints": False,
    "tolerable_failed_checkpoints": 0,
    "aligned_checkpoint_timeout": 0,
    "checkpoints_after_tasks_finish": True,
    "state_changelog_enabled": False,
    "changelog_periodic_materialization_interval": 600_000,
    "changelog_storage": "memory",
}
_NOT_IN_OLD: Final = frozenset(
    [
        "checkpointed_size",
        "processed_data",
        "persisted_data",
        "checkpoint_type",
        "savepointFormat",
        "start_delay",
        "unaligned_checkpoint",
        "aborted",
        "unaligned_checkpoints",
        "aligned_checkpoint_timeout",
        "tolerable_failed_checkpoints",
        "checkpoints_after_tasks_finish",
        "state_backend",
        "checkpoint_storage",
        "state_changelog_enabled",
        "changelog_periodic_materialization_interval",
        "changelog_storage",
        "exceptionHistory",
    ]
)


class DescribedFlink:
    """A ``FlinkTransport`` over a described job. Move ``at_s`` to let time pass."""

    def __init__(self, case: Document) -> None:
        self.told: Document = case["flink"]
        self.name = f"job-{hex_id(case['name'])[:6]}"
        self.job_id = hex_id("job", self.name)
        self.at_s = 0.0
        self.asked: list[str] = []
        self.url = f"described://{case['name']}"
        self.vertices = [DescribedVertex(v["name"], v["p"], v) for v in self.told["vertices"]]
        self._by_id = {v.vertex_id: v for v in self.vertices}
        self._began_ms = int(BEGAN_AT.timestamp() * 1000)
        self._started_ms = self._ago_ms(self.told.get("started_ago_s", _DAY_S))
        self._checkpoints = checkpoints_of(self.told.get("checkpoints", []), self.vertices, self._began_ms)

    # --- the clock, also that of ``diagnose`` ---

    def now(self) -> datetime:
        return BEGAN_AT + timedelta(seconds=self.at_s)

    def monotonic_s(self) -> float:
        return self.at_s

    async def sleep(self, seconds: float) -> None:
        self.at_s += seconds

    def _ago_ms(self, seconds: float) -> int:
        return self._began_ms - int(seconds * 1000)

    # --- the responses ---

    async def get(self, path: str) -> bytes:
        self.asked.append(path)
        status, body = self.answer(path)
        if status != 200:
            raise TargetProtocolError(url=self.url + path, reason=f"HTTP {status}: {body['errors'][0]}", status=status)
        return orjson.dumps(body)

    def answer(self, path: str) -> Answer:
        """Return the status and the JSON body of the response at ``path``."""
        bare, _, query = path.removeprefix("/v1").partition("?")
        body = self._body(bare.strip("/").split("/"), query)
        if body is None:
            return 404, {"errors": [f"Not found: {bare}"]}
        return 200, _in_old_shape(body) if self.told.get("shape") == "old" else body

    def _body(self, segments: list[str], query: str) -> Any:
        match segments:
            case ["config"]:
                return {"refresh-interval": 3000, "flink-version": self.told["version"], "features": {}}
            case ["overview"]:
                return {"taskmanagers": 1, "slots-total": 8, "flink-version": self.told["version"]}
            case ["jobmanager", "config"]:
                return [{"key": key, "value": str(value)} for key, value in self.told.get("cluster", {}).items()]
            case ["jobs", "overview"]:
                return {"jobs": [self._overview_row()]}
            case ["jobs"]:
                return {"jobs": [{"id": self.job_id, "status": self._state}]}
            case ["jobs", self.job_id, *rest]:
                return self._of_job(rest, query)
            case _:
                return None

    def _of_job(self, segments: list[str], query: str) -> Any:
        match segments:
            case []:
                return self._job()
            case ["checkpoints"]:
                return self._history()
            case ["checkpoints", "config"]:
                config = _CONFIG | self.told.get("config", {})
                return {key: value for key, value in config.items() if value is not None}
            case ["checkpoints", "details", number, *rest]:
                return self._details(int(number), rest)
            case ["exceptions"]:
                return self._exceptions()
            case ["metrics"]:
                restarts = str(self.told.get("restarts", 0))
                return _metrics({"numRestarts": restarts, "fullRestarts": restarts}, query)
            case ["vertices", vertex_id, *rest] if vertex_id in self._by_id:
                return self._of_vertex(self._by_id[vertex_id], rest, query)
            case _:
                return None

    def _of_vertex(self, vertex: DescribedVertex, segments: list[str], query: str) -> Any:
        match segments:
            case []:
                return self._vertex(vertex)
            case ["subtasks", "metrics"]:
                return [{"id": name} for name in sorted({key.partition(".")[2] for key in self._measured(vertex)})]
            case ["metrics"]:
                return _metrics(self._measured(vertex), query)
            case _:
                return None

    # --- the job ---

    @property
    def _state(self) -> str:
        return str(self.told.get("state", "RUNNING"))

    def _run(self) -> Document:
        return {
            "jid": self.job_id,
            "name": self.name,
            "state": self._state,
            "start-time": self._started_ms,
            "end-time": -1,
            "duration": self._began_ms - self._started_ms,
        }

    def _overview_row(self) -> Document:
        count = sum(vertex.parallelism for vertex in self.vertices)
        changed_ms = max([self._started_ms, *(self._ago_ms(one["ago_s"]) for one in self.told.get("exceptions", []))])
        return {**self._run(), "last-modification": changed_ms, "tasks": {"total": count, "running": count}}

    def _job(self) -> Document:
        plan = {"jid": self.job_id, "name": self.name, "nodes": [self._node(vertex) for vertex in self.vertices]}
        return {
            **self._run(),
            "isStoppable": False,
            "maxParallelism": -1,
            "now": self._now_ms,
            "timestamps": {},
            "vertices": [self._vertex_row(vertex) for vertex in self.vertices],
            "status-counts": {},
            "plan": {**plan, "type": "STREAMING"},
        }

    @property
    def _now_ms(self) -> int:
        return self._began_ms + int(self.at_s * 1000)

    def _node(self, vertex: DescribedVertex) -> Document:
        own = [edge for edge in self.told["edges"] if edge[1] == vertex.name]
        inputs = [
            {"num": n, "id": hex_id("vertex", edge[0]), "ship_strategy": edge[2], "exchange": "pipelined_bounded"}
            for n, edge in enumerate(own)
        ]
        node = {"id": vertex.vertex_id, "parallelism": vertex.parallelism, "description": vertex.name}
        return node | ({"inputs": inputs} if inputs else {})

    def _vertex_row(self, vertex: DescribedVertex) -> Document:
        statuses = vertex.statuses()
        return {
            "id": vertex.vertex_id,
            "name": vertex.name,
            "maxParallelism": vertex.told.get("max_p", 128),
            "parallelism": vertex.parallelism,
            "status": "FINISHED" if set(statuses) == {"FINISHED"} else "RUNNING",
            "start-time": self._started_ms,
            "end-time": -1,
            "duration": self._began_ms - self._started_ms,
            "tasks": {state: statuses.count(state) for state in _STATES},
            "metrics": {},
        }

    def _vertex(self, vertex: DescribedVertex) -> Document:
        hosts, attempt = vertex.each("hosts", "host-1"), vertex.told.get("attempt", self.told.get("restarts", 0))
        rows = [
            {
                "subtask": index,
                "status": status,
                "attempt": attempt,
                "host": hosts[index],
                "endpoint": f"{hosts[index]}:4000",
                "start-time": self._started_ms,
                "end-time": -1,
                "duration": 1,
                "metrics": {},
                "taskmanager-id": f"tm-{hosts[index]}",
            }
            for index, status in enumerate(vertex.statuses())
        ]
        row = {"id": vertex.vertex_id, "name": vertex.name, "parallelism": vertex.parallelism, "now": self._now_ms}
        return row | {"maxParallelism": vertex.told.get("max_p", 128), "subtasks": rows}

    def _exceptions(self) -> Document:
        told = sorted(self.told.get("exceptions", []), key=lambda one: one["ago_s"])
        rows = [
            {
                "exceptionName": one["name"],
                "stacktrace": one.get("trace", one["name"]),
                "timestamp": self._ago_ms(one["ago_s"]),
                "taskName": one.get("task"),
                "endpoint": None,
                "failureLabels": {},
                "concurrentExceptions": [],
            }
            for one in told
        ]
        return {
            "root-exception": rows[0]["stacktrace"] if rows else None,
            "timestamp": rows[0]["timestamp"] if rows else None,
            "all-exceptions": [],
            "truncated": False,
            "exceptionHistory": {"entries": rows, "truncated": False},
        }

    # --- the checkpoints ---

    def _history(self) -> Document:
        headers = [self._checkpoints[number].header for number in sorted(self._checkpoints, reverse=True)]
        is_normal = [h for h in headers if not h["is_savepoint"]]
        restored_ago_s = self.told.get("restored_ago_s")
        latest = {
            "completed": next((h for h in is_normal if h["status"] == "COMPLETED"), None),
            "savepoint": next((h for h in headers if h["is_savepoint"]), None),
            "failed": next((h for h in headers if h["status"] == "FAILED"), None),
            "restored": None if restored_ago_s is None else self._restored(restored_ago_s),
        }
        shown = headers[: self.told.get("history", _HISTORY_COUNT)]
        return {"counts": self._counts(headers), "summary": {}, "history": shown, "latest": latest}

    def _restored(self, ago_s: float) -> Document:
        restored = {"id": 1, "restore_timestamp": self._ago_ms(ago_s), "is_savepoint": False}
        return restored | {"external_path": "file:/ck/chk-1"}

    def _counts(self, headers: Iterable[Document]) -> Document:
        statuses = [header["status"] for header in headers]
        total = max(self._checkpoints, default=0)
        failed, running = statuses.count("FAILED"), statuses.count("IN_PROGRESS")
        changed: Document = self.told.get("counts", {})
        counts = {"restored": self.told.get("restarts", 0), "total": total, "in_progress": running, "failed": failed}
        return counts | {"completed": total - failed - running} | changed

    def _details(self, number: int, segments: list[str]) -> Document | None:
        found = self._checkpoints.get(number)
        match segments:
            case [] if found is not None:
                return {**found.header, "tasks": found.vertices}
            case ["subtasks", vertex_id] if found is not None and vertex_id in found.vertices:
                return {**found.vertices[vertex_id], "summary": {}, "subtasks": found.subtasks[vertex_id]}
            case _:
                return None

    # --- the metrics ---

    def _measured(self, vertex: DescribedVertex) -> dict[str, str]:
        """Return every metric of the vertex's running subtasks, as ``0.numRecordsIn``."""
        columns = self._counters(vertex) | self._buffers(vertex) | self._shares(vertex)
        return {
            f"{index}.{key}": str(column[index])
            for index, status in enumerate(vertex.statuses())
            if status != "FINISHED"
            for key, column in columns.items()
        }

    def _counters(self, vertex: DescribedVertex) -> dict[str, list[Any]]:
        run_s, size = self.at_s + _RUN_BEFORE_S, vertex.told.get("bytes", 300)
        before = vertex.each("before")
        received = [rate * run_s + more for rate, more in zip(vertex.each("in"), before, strict=True)]
        rates = vertex.each("out", vertex.told.get("in") or 0)
        sent = [rate * run_s + more for rate, more in zip(rates, before, strict=True)]
        columns = {
            "numRecordsIn": [int(count) for count in received],
            "numRecordsOut": [int(count) for count in sent],
            "numBytesIn": [int(count * size) for count in received],
            "numRecordsInPerSecond": [_mean_rate(rate) for rate in vertex.each("in")],
            "numRecordsOutPerSecond": [_mean_rate(rate) for rate in rates],
            "checkpointStartDelayNanos": [int(ms * 1e6) for ms in vertex.each("gauge_start_ms")],
        }
        if any(edge[1] == vertex.name for edge in self.told["edges"]):
            columns["checkpointAlignmentTime"] = [int(ms * 1e6) for ms in vertex.each("gauge_align_ms")]
        return columns

    def _buffers(self, vertex: DescribedVertex) -> dict[str, list[Any]]:
        is_pressed = [share > _HIGH_PRESSURE for share in vertex.each("bp")]
        full = [1.0 if pressed else 0.0 for pressed in is_pressed]
        return {
            "buffers.outPoolUsage": vertex.each("out_pool", full),
            "buffers.inPoolUsage": vertex.each("in_pool"),
            "buffers.inputQueueSize": vertex.each("in_queue"),
            "buffers.outputQueueSize": vertex.each("out_queue"),
        }

    def _shares(self, vertex: DescribedVertex) -> dict[str, list[Any]]:
        busy, pressed = vertex.each("busy"), vertex.each("bp")
        if self.told.get("old_metrics"):
            return {"isBackPressured": ["true" if share > _HIGH_PRESSURE else "false" for share in pressed]}
        rest = [0 if b == "NaN" else max(0, 1 - b - p) for b, p in zip(busy, pressed, strict=True)]
        return {
            "busyTimeMsPerSecond": ["NaN" if share == "NaN" else share * 1000 for share in busy],
            "backPressuredTimeMsPerSecond": [int(share * 1000) for share in pressed],
            "idleTimeMsPerSecond": [int(share * 1000) for share in vertex.each("idle", rest)],
        }


def _mean_rate(rate: float) -> float:
    """Return the engine's rate, a mean over a minute. Of rarer records, the newest minute may have none."""
    return rate if rate * _RATE_MEAN_S >= 1 else 0.0


def _metrics(measured: dict[str, str], query: str) -> list[Document]:
    wanted = [name for name in unquote(query).removeprefix("get=").split(",") if name]
    if not wanted:
        return [{"id": name} for name in measured]
    return [{"id": name, "value": measured[name]} for name in wanted if name in measured]


def _in_old_shape(body: Any) -> Any:
    if isinstance(body, list):
        return [_in_old_shape(one) for one in body]
    if not isinstance(body, dict):
        return body
    old = {key: _in_old_shape(value) for key, value in body.items() if key not in _NOT_IN_OLD}
    if isinstance(old.get("alignment"), dict):
        old["alignment"] = {key: old["alignment"][key] for key in ("buffered", "duration")}
    return old
