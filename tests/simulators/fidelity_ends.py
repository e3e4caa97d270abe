"""How jobs end on a real Flink and on the runtime: finished tasks, final checkpoints, and stops with a savepoint.

Both have the same REST API, so one function watches both. ``benchmarks/fidelity/record_ends.py`` records Flink in
``tests/conformance/flink_running/ends.json``, together with the sizes of incremental checkpoints.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from backend.runtime.engine.jobfile import JobSpec, load_job_document
from tests.simulators.fidelity import PASS_US, WIRE_BYTES, Scenario

RECORDED = Path(__file__).parents[1] / "conformance" / "flink_running" / "ends.json"
_INSTANTS = ("ack_timestamp", "end_to_end_duration")
_ENDED = ("FINISHED", "FAILED", "CANCELED")
_COMMON = {"parallelism": "4", "payload-bytes": "971", "keys": "4000", "interval": "3s", "unaligned": "false"}
_STATE = {
    **_COMMON,
    "stages": "1",
    "parallelism": "2",
    "cost-us": "100",
    "rate": "500",
    "keys": "20000",
    "state-bytes": "1000",
    "interval": "6s",
    # The managed memory of a slot may be too small for RocksDB's buffers.
    "conf.state.backend.rocksdb.memory.managed": "false",
}

# 30 s in which nearly all keys get a value, and then 26 records a second.
_FILL = {
    "rate": "100",
    "burst-period-s": "600",
    "burst-ratio": "0.05",
    "burst-factor": "15",
    "burst-from-start": "true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingRun:
    """A run that is watched until its end, or for ``seconds``.

    After ``stop_at_s`` seconds it is stopped with a savepoint. If ``is_drained``, the stop ends the data first.
    """

    arguments: Mapping[str, str]
    seconds: float = 60
    stop_at_s: float | None = None
    is_drained: bool = False


_ENDS = {**_COMMON, "stages": "2", "cost-us": "500"}
_FULL_QUEUES = {**_COMMON, "stages": "2", "cost-us": "2000"}
RUNS: Mapping[str, EndingRun] = {
    "bounded": EndingRun(arguments={**_ENDS, "rate": "400", "records": "4000"}),
    "bounded-apart": EndingRun(arguments={**_ENDS, "rate": "800", "second-rate": "200", "records": "4000"}),
    "stop": EndingRun(arguments={**_ENDS, "rate": "800"}, stop_at_s=10),
    "stop-with-drain": EndingRun(arguments={**_ENDS, "rate": "800"}, stop_at_s=10, is_drained=True),
    "stop-full-queues": EndingRun(arguments=_FULL_QUEUES, stop_at_s=20),
    "stop-full-queues-with-drain": EndingRun(arguments=_FULL_QUEUES, stop_at_s=20, is_drained=True),
    "rocksdb-incremental": EndingRun(arguments={**_STATE, "backend": "rocksdb", "incremental": "true"}, seconds=150),
    "rocksdb-full": EndingRun(arguments={**_STATE, "backend": "rocksdb"}, seconds=150),
    "hashmap": EndingRun(arguments=_STATE, seconds=150),
    "rocksdb-little-changes": EndingRun(
        arguments={**_STATE, **_FILL, "backend": "rocksdb", "incremental": "true"}, seconds=150
    ),
}


def twin(name: str, run: EndingRun, seed: int = 1) -> JobSpec:
    """Return the equivalent job for the runtime."""
    given = run.arguments
    shape = {"parallelism": int(given["parallelism"]), "record_bytes": int(given["payload-bytes"]) + WIRE_BYTES}
    bounds = {"limit": int(given["records"])} if "records" in given else {}
    rates = {"source": given.get("rate", "0")}
    if "second-rate" in given:
        rates["second-source"] = given["second-rate"]
    # Sizes depend on the number of keys, and queues on how unevenly they are spread.
    keys = int(given["keys"]) if "state-bytes" in given else Scenario(name, given, {}).twin_keys()
    vertices: list[dict[str, Any]] = [
        {"id": v, "kind": "source", "cost_us": PASS_US, "keys": keys, "rate": float(rate)} | bounds | shape
        for v, rate in rates.items()
    ]
    edges = []
    stages = int(given["stages"])
    for stage in range(1, stages + 1):
        is_last = stage == stages
        kind = "keyed" if "state-bytes" in given else "map"
        vertex = {"id": f"stage-{stage}", "kind": f"{kind}+sink" if is_last else "map"}
        vertex["cost_us"] = int(given["cost-us"]) if is_last else PASS_US
        if "state-bytes" in given:
            vertex["state_bytes"] = int(given["state-bytes"])
        hashed = {"partitioner": "hash", "hash_by": "key" if is_last else "origin"}
        before = list(rates) if stage == 1 else [f"stage-{stage - 1}"]
        edges += [{"from": v, "to": vertex["id"], **hashed} for v in before]
        vertices.append(vertex | shape)
    config: dict[str, object] = {
        "execution.checkpointing.interval": given["interval"],
        "execution.checkpointing.incremental": given.get("incremental") == "true",
        "web.checkpoints.history": 100,
    }
    if given.get("incremental") == "true":
        config["runtime.state-backend"] = "sst"
    return load_job_document({"name": name, "seed": seed, "config": config, "vertex": vertices, "edge": edges})


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingCheckpoint:
    """One checkpoint as the REST shows it at last. Times are milliseconds since the start of the job.

    ``acknowledged`` has, for each vertex, the number of subtasks that acknowledged and the number of all subtasks that
    the REST counts.
    """

    checkpoint_id: int
    status: str
    kind: str
    is_savepoint: bool
    savepoint_format: str | None
    triggered_ms: int
    latest_ack_ms: int | None
    subtask_count: int
    acknowledged_count: int
    acknowledged: tuple[tuple[int, int], ...]
    checkpointed_bytes: int
    state_bytes: int
    failure_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What was seen of one run. Times are milliseconds since the start of the job.

    ``vertex_ends_ms`` has the end of each vertex, or None. ``states`` are the states of the job in their order, each
    once. ``stop`` is the final status of the stop request, and ``stopped_ms`` the time of the request.
    """

    state: str
    ended_ms: int | None
    vertex_ends_ms: tuple[int | None, ...]
    checkpoints: tuple[EndingCheckpoint, ...]
    states: tuple[str, ...]
    stop: str | None = None
    has_savepoint: bool | None = None
    stopped_ms: int | None = None
    first_subtask: dict[str, Any] | None = None
    """What the REST shows of the first vertex's subtask 0 in the newest completed checkpoint, without instants."""
    flink: str = ""
    load_1min: float | None = None

    def completed(self) -> tuple[EndingCheckpoint, ...]:
        """Return the completed checkpoints, oldest first."""
        return tuple(c for c in self.checkpoints if c.status == "COMPLETED")


@dataclass(slots=True)
class Watch:
    """Watches one job through its REST. ``get`` returns the JSON at a path relative to the job."""

    get: Callable[[str], Awaitable[Any]]
    _details: dict[int, Any] = field(default_factory=dict)
    _job: Any = None
    _states: list[str] = field(default_factory=list)
    _first: Any = None
    stop_id: str | None = None
    _stop: Any = None
    stopped_ms: int | None = None

    async def look(self) -> bool:
        """Read everything once. Return whether the job has ended."""
        self._job = job = await self.get("")
        if not self._states or self._states[-1] != job["state"]:
            self._states.append(job["state"])
        history = (await self.get("/checkpoints"))["history"]
        for row in history:
            known = self._details.get(row["id"])
            if known is None or known["status"] == "IN_PROGRESS":
                self._details[row["id"]] = await self.get(f"/checkpoints/details/{row['id']}")
                if self._details[row["id"]]["status"] == "COMPLETED":
                    vertex = job["vertices"][0]["id"]
                    rows = await self.get(f"/checkpoints/details/{row['id']}/subtasks/{vertex}")
                    self._first = rows["subtasks"][0]
        if self.stop_id is not None:
            self._stop = await self.get(f"/savepoints/{self.stop_id}")
        return job["state"] in _ENDED

    def ending(self, *, flink: str = "", load_1min: float | None = None) -> Ending:
        """Return what was seen."""
        job = self._job
        began_ms = job["start-time"]
        order = [vertex["id"] for vertex in job["vertices"]]
        status = None if self._stop is None else self._stop["status"]["id"]
        return Ending(
            state=job["state"],
            ended_ms=None if job["end-time"] < 0 else job["end-time"] - began_ms,
            vertex_ends_ms=tuple(None if v["end-time"] < 0 else v["end-time"] - began_ms for v in job["vertices"]),
            checkpoints=tuple(_checkpoint(row, began_ms, order) for _, row in sorted(self._details.items())),
            states=tuple(self._states),
            stop=status,
            has_savepoint=None if status is None else "location" in (self._stop.get("operation") or {}),
            stopped_ms=None if self.stopped_ms is None else self.stopped_ms - began_ms,
            first_subtask=None if self._first is None else {k: v for k, v in self._first.items() if k not in _INSTANTS},
            flink=flink,
            load_1min=load_1min,
        )


def _checkpoint(row: Any, began_ms: int, order: list[str]) -> EndingCheckpoint:
    tasks = row["tasks"]
    return EndingCheckpoint(
        checkpoint_id=row["id"],
        status=row["status"],
        kind=row["checkpoint_type"],
        is_savepoint=row["is_savepoint"],
        savepoint_format=row.get("savepointFormat"),
        triggered_ms=row["trigger_timestamp"] - began_ms,
        latest_ack_ms=row["latest_ack_timestamp"] - began_ms if row["latest_ack_timestamp"] >= 0 else None,
        subtask_count=row["num_subtasks"],
        acknowledged_count=row["num_acknowledged_subtasks"],
        acknowledged=tuple(
            (tasks[v]["num_acknowledged_subtasks"], tasks[v]["num_subtasks"]) if v in tasks else (0, 0) for v in order
        ),
        checkpointed_bytes=row["checkpointed_size"],
        state_bytes=row["state_size"],
        failure_message=row.get("failure_message"),
    )


_JSON = TypeAdapter(dict[str, list[Ending]])


def read(path: Path = RECORDED) -> dict[str, list[Ending]]:
    """Return the recorded endings by the name of the run, one for each version of Flink."""
    return _JSON.validate_json(path.read_bytes())


def write(endings: dict[str, list[Ending]], path: Path = RECORDED) -> None:
    """Write the endings."""
    path.write_bytes(_JSON.dump_json(endings) + b"\n")
