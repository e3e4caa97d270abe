"""The checkpoints of a job that a case describes in a few numbers, in the form of Flink's REST responses.

Each checkpoint of a description has ``id``, ``ago_s`` and, by vertex or ``*``, the numbers of its subtasks: ``start``,
``align``, ``sync``, ``async`` and ``wait`` (from the end of the asynchronous part to the acknowledgement) in
milliseconds, ``size``, ``state``, ``persisted`` and ``processed`` in bytes, ``pending`` (the subtasks without an
acknowledgement, or "all") and ``finished``. A number holds for all subtasks, a list has one for each subtask.
``repeat`` makes several of a checkpoint, the newest at ``ago_s``.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

Document = dict[str, Any]

_NUMBERS: Final = ("start", "align", "sync", "async", "wait", "size", "state", "persisted", "processed")
_TIMES: Final = ("start", "align", "sync", "async", "wait")
_CLASS_NAMES: Final = {"COMPLETED": "completed", "FAILED": "failed", "IN_PROGRESS": "in_progress"}
_EXPIRED: Final = "Checkpoint expired before completing."
_JITTER_SEED: Final = 7


def hex_id(*parts: object) -> str:
    """Return an id in the form of Flink's ids, which is the same in each run."""
    return hashlib.md5("/".join(map(str, parts)).encode()).hexdigest()


def each(value: Any, count: int, default: Any = 0) -> list[Any]:
    """Return one value for each of ``count`` subtasks. The last one of a shorter list holds for the others."""
    given = default if value is None else value
    if isinstance(given, list):
        return [given[min(n, len(given) - 1)] for n in range(count)]
    return [given] * count


@dataclass(frozen=True, slots=True)
class DescribedVertex:
    """One vertex of a described job."""

    name: str
    parallelism: int
    told: Document
    """The vertex as the case describes it."""

    @property
    def vertex_id(self) -> str:
        return hex_id("vertex", self.name)

    def each(self, key: str, default: Any = 0) -> list[Any]:
        """Return one value for each subtask of what the case tells under ``key``."""
        return each(self.told.get(key), self.parallelism, default)

    def statuses(self) -> list[str]:
        return self.each("status", "RUNNING")


@dataclass(frozen=True, slots=True)
class DescribedCheckpoint:
    """One checkpoint: its header, and by vertex id the sums of the vertex and the rows of its subtasks."""

    header: Document
    vertices: dict[str, Document]
    subtasks: dict[str, list[Document]]


def checkpoints_of(
    told: Sequence[Document], vertices: Sequence[DescribedVertex], now_ms: int
) -> dict[int, DescribedCheckpoint]:
    """Return the described checkpoints by their ids. ``now_ms`` is the instant to which ``ago_s`` refers."""
    return {one["id"]: _checkpoint(one, vertices, now_ms) for one in _repeated(told)}


def _repeated(told: Sequence[Document]) -> Iterator[Document]:
    rng = random.Random(_JITTER_SEED)
    for one in told:
        repeat = one.get("repeat", {"times": 1, "every_s": 0})
        for back in reversed(range(repeat["times"])):
            made = {**one, "id": one["id"] - back, "ago_s": one["ago_s"] + back * repeat["every_s"]}
            jitter = repeat.get("jitter", 0)
            if jitter:
                made["v"] = _stretched(one["v"], 1 + jitter * (2 * rng.random() - 1))
            yield made


def _stretched(told: Document, factor: float) -> Document:
    """Return the numbers of a checkpoint with all its times multiplied by ``factor``."""

    def times(value: Any) -> Any:
        return [round(one * factor) for one in value] if isinstance(value, list) else round(value * factor)

    return {
        name: {key: times(value) if key in _TIMES else value for key, value in numbers.items()}
        for name, numbers in told.items()
    }


def _checkpoint(told: Document, vertices: Sequence[DescribedVertex], now_ms: int) -> DescribedCheckpoint:
    triggered_ms = now_ms - int(told["ago_s"] * 1000)
    by_name = told.get("v", {})
    subtasks = {}
    for vertex in vertices:
        numbers = {**by_name.get("*", {}), **by_name.get(vertex.name, {})}
        numbers.setdefault("unaligned", told.get("type") == "UNALIGNED_CHECKPOINT")
        subtasks[vertex.vertex_id] = _subtasks(numbers, vertex.parallelism, triggered_ms)
    sums = {key: {"id": told["id"], **_status(told), **_sums(rows)} for key, rows in subtasks.items()}
    return DescribedCheckpoint(_header(told, triggered_ms, list(sums.values())), sums, subtasks)


def _status(told: Document) -> Document:
    return {"status": told.get("status", "COMPLETED")}


def _subtasks(numbers: Document, count: int, triggered_ms: int) -> list[Document]:
    pending = numbers.get("pending", [])
    columns = {key: each(numbers.get(key), count) for key in (*_NUMBERS, "unaligned")}
    rows = []
    for index in range(count):
        if pending == "all" or index in pending:
            rows.append({"className": "pending", "index": index, "status": "pending_or_failed"})
        elif index in numbers.get("finished", []):
            rows.append(_acknowledged(index, dict.fromkeys(columns, 0), triggered_ms, took_ms=1))
        else:
            own = {key: column[index] for key, column in columns.items()}
            aligned_ms = 0 if own["unaligned"] else own["align"]
            took_ms = own["start"] + aligned_ms + own["sync"] + own["async"] + own["wait"]
            rows.append(_acknowledged(index, own, triggered_ms, took_ms=took_ms))
    return rows


def _acknowledged(index: int, own: Document, triggered_ms: int, *, took_ms: int) -> Document:
    return {
        "className": "completed",
        "index": index,
        "status": "completed",
        "ack_timestamp": triggered_ms + took_ms,
        "end_to_end_duration": took_ms,
        "checkpointed_size": own["size"],
        "state_size": own["state"] or own["size"],
        "checkpoint": {"sync": own["sync"], "async": own["async"]},
        "alignment": {
            "buffered": 0,
            "processed": own["processed"],
            "persisted": own["persisted"],
            "duration": own["align"],
        },
        "start_delay": own["start"],
        "unaligned_checkpoint": bool(own["unaligned"]),
        "aborted": False,
    }


def _sums(rows: Sequence[Document]) -> Document:
    done = [row for row in rows if row["className"] == "completed"]
    return {
        "latest_ack_timestamp": max((row["ack_timestamp"] for row in done), default=-1),
        "checkpointed_size": sum(row["checkpointed_size"] for row in done),
        "state_size": sum(row["state_size"] for row in done),
        "end_to_end_duration": max((row["end_to_end_duration"] for row in done), default=-1),
        "alignment_buffered": 0,
        "processed_data": sum(row["alignment"]["processed"] for row in done),
        "persisted_data": sum(row["alignment"]["persisted"] for row in done),
        "num_subtasks": len(rows),
        "num_acknowledged_subtasks": len(done),
    }


def _header(told: Document, triggered_ms: int, sums: Sequence[Document]) -> Document:
    status, is_savepoint = told.get("status", "COMPLETED"), bool(told.get("savepoint"))
    last_ms = max(one["latest_ack_timestamp"] for one in sums)
    took_ms = last_ms - triggered_ms if last_ms > 0 else -1
    if status != "IN_PROGRESS":
        took_ms = told.get("duration_ms", took_ms)

    def total(key: str) -> int:
        return sum(one[key] for one in sums)

    header = {
        "className": _CLASS_NAMES[status],
        "id": told["id"],
        "status": status,
        "is_savepoint": is_savepoint,
        "savepointFormat": "CANONICAL" if is_savepoint else None,
        "trigger_timestamp": triggered_ms,
        "latest_ack_timestamp": last_ms,
        "checkpointed_size": told.get("size", total("checkpointed_size")),
        "state_size": told.get("state", total("state_size")),
        "end_to_end_duration": took_ms,
        "alignment_buffered": 0,
        "processed_data": total("processed_data"),
        "persisted_data": told.get("persisted", total("persisted_data")),
        "num_subtasks": total("num_subtasks"),
        "num_acknowledged_subtasks": total("num_acknowledged_subtasks"),
        "checkpoint_type": told.get("type", "SAVEPOINT" if is_savepoint else "CHECKPOINT"),
        "tasks": {},
    }
    return header | _ending(told, status, triggered_ms, took_ms)


def _ending(told: Document, status: str, triggered_ms: int, took_ms: int) -> Document:
    if status == "COMPLETED":
        return {"external_path": f"file:/ck/chk-{told['id']}", "discarded": told.get("discarded", False)}
    if status == "FAILED":
        return {
            "failure_timestamp": triggered_ms + max(took_ms, 0),
            "failure_message": told.get("message", _EXPIRED),
        }
    return {}
