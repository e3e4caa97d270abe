"""Compare what Barrierscope read of a job with what Flink answered, value by value. Pure functions.

The answers are read here without code of the collectors. A value that Flink did not send must be None. A value that
Flink sent must be there, and equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from backend.domain.checkpoint import DETAIL_ARRAYS, Checkpoint, CheckpointHeader, VertexDetail
from backend.domain.observation import JobObservation
from backend.domain.pressure import VertexPressure
from tests.support.recorded_values import DETAIL_PATHS

Document = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OFF = 2**63 - 1
_HEADER = {
    "end_to_end_duration_ms": "end_to_end_duration",
    "full_state_size_bytes": "state_size",
    "checkpointed_size_bytes": "checkpointed_size",
    "processed_bytes": "processed_data",
    "persisted_bytes": "persisted_data",
    "subtask_count": "num_subtasks",
    "acknowledged_count": "num_acknowledged_subtasks",
    "failure_message": "failure_message",
    "external_path": "external_path",
    "is_discarded": "discarded",
}
_CONFIG = {
    "mode": "mode",
    "interval_ms": "interval",
    "timeout_ms": "timeout",
    "min_pause_ms": "min_pause",
    "max_concurrent": "max_concurrent",
    "is_unaligned_enabled": "unaligned_checkpoints",
    "tolerable_failed_count": "tolerable_failed_checkpoints",
    "state_backend": "state_backend",
    "checkpoint_storage": "checkpoint_storage",
}
_SHARES = {
    "busy_ratio": "busyTimeMsPerSecond",
    "backpressured_ratio": "backPressuredTimeMsPerSecond",
    "idle_ratio": "idleTimeMsPerSecond",
}
_AMOUNTS = {
    "queued_in_bytes": ("buffers.inputQueueSize", "Shuffle.Netty.Input.Buffers.inputQueueSize"),
    "queued_out_bytes": ("buffers.outputQueueSize", "Shuffle.Netty.Output.Buffers.outputQueueSize"),
    "records_in_count": ("numRecordsIn",),
    "records_out_count": ("numRecordsOut",),
}


@dataclass(slots=True)
class Compared:
    """How many values were compared, and a line for each that differs."""

    count: int = 0
    differences: dict[str, None] | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for each kind of difference, in the order in which they were found."""
        return tuple(self.differences or ())

    def check(self, what: str, ours: object, flinks: object) -> None:
        """Compare one value with Flink's."""
        self.count += 1
        if ours != flinks and not _are_close(ours, flinks):
            self.differences = {**(self.differences or {}), f"{what}: ours {ours!r}, Flink's {flinks!r}"[:300]: None}


def compare(job: JobObservation, rows: Sequence[Mapping[str, Any]], into: Compared) -> None:
    """Compare a poll's observation of a job with the answers ``rows`` of the same poll."""
    root = f"/jobs/{job.engine_run_id}"
    answers = {row["path"]: row["body"] for row in rows if row["status"] == 200}
    _compare_graph(job, answers.get(root), into)
    _compare_counts(job, answers.get(f"{root}/checkpoints"), into)
    _compare_config(job, answers.get(f"{root}/checkpoints/config"), into)
    for checkpoint in job.checkpoints:
        _compare_checkpoint(checkpoint, root, answers, into)
    for reading in job.pressure:
        _compare_pressure(reading, _metrics(rows, f"{root}/vertices/{reading.vertex_id}/metrics"), into)


def _compare_graph(job: JobObservation, answer: Document | None, into: Compared) -> None:
    if job.topology is None or answer is None:
        return
    into.check("name of the job", job.name, answer["name"])
    ours = sorted((v.id, v.name, v.parallelism) for v in job.topology.vertices)
    into.check("vertices", ours, sorted((v["id"], v["name"], v["parallelism"]) for v in answer["vertices"]))
    edges = {(i["id"], node["id"]) for node in answer["plan"].get("nodes", ()) for i in node.get("inputs", ())}
    into.check("edges", sorted((e.source, e.target) for e in job.topology.edges), sorted(edges))


def _compare_counts(job: JobObservation, answer: Document | None, into: Compared) -> None:
    if job.counts is None or answer is None:
        return
    for name in ("restored", "total", "in_progress", "completed", "failed"):
        into.check(f"count {name}", getattr(job.counts, name), answer["counts"][name])


def _compare_config(job: JobObservation, answer: Document | None, into: Compared) -> None:
    if job.config is None or answer is None:
        return
    for ours, name in _CONFIG.items():
        # An interval of the largest number means that checkpointing is off. It is no interval.
        if (flinks := answer.get(name)) != _OFF:
            into.check(f"setting {name}", getattr(job.config, ours), flinks)
    timeout = answer.get("aligned_checkpoint_timeout") if answer.get("unaligned_checkpoints") else None
    into.check("setting aligned_checkpoint_timeout", job.config.aligned_timeout_ms, timeout)


def _compare_checkpoint(checkpoint: Checkpoint, root: str, answers: Mapping[str, Any], into: Compared) -> None:
    own = checkpoint.header
    listed = answers.get(f"{root}/checkpoints", {"history": ()})["history"]
    entries = [entry for entry in listed if entry["id"] == own.checkpoint_id]
    detail = answers.get(f"{root}/checkpoints/details/{own.checkpoint_id}")
    entries += [detail] if detail is not None else []
    # Between the two requests, the checkpoint may have gone on. One of the two answers must be what we read.
    tried = [_compared_header(own, entry) for entry in entries]
    if tried:
        best = min(tried, key=lambda one: len(one.lines))
        into.count += best.count
        into.differences = {**(into.differences or {}), **(best.differences or {})}
    for vertex in checkpoint.details:
        answer = answers.get(f"{root}/checkpoints/details/{own.checkpoint_id}/subtasks/{vertex.vertex_id}")
        if answer is not None:
            _compare_detail(vertex, answer, into)


def _compared_header(own: CheckpointHeader, entry: Document) -> Compared:
    found = Compared()
    found.check("status", own.status.value, entry["status"].lower().replace("_", "-"))
    found.check("trigger_timestamp", own.triggered_at, _instant(entry["trigger_timestamp"]))
    found.check("latest_ack_timestamp", own.latest_ack_at, _instant(entry["latest_ack_timestamp"]))
    for ours, name in header_names(entry).items():
        if name in ("state_size", "checkpointed_size", "processed_data", "persisted_data"):
            # Before an acknowledgement, the sums have no meaning.
            flinks = entry.get(name) if entry["num_acknowledged_subtasks"] else None
        elif name == "end_to_end_duration":
            flinks = entry[name] if entry["status"] != "IN_PROGRESS" else None
        else:
            flinks = entry.get(name)
        found.check(f"{name} of a checkpoint", getattr(own, ours), flinks)
    return found


def header_names(entry: Document) -> Mapping[str, str]:
    """Return the name in Flink's answer of each value of a checkpoint, by the name of ours."""
    # Before 1.15, Flink had one size only: the bytes that a checkpoint wrote, under the name of the state's size.
    # Under which of our two names they are read is the collector's to decide.
    if "checkpointed_size" in entry:
        return _HEADER
    return {ours: name for ours, name in _HEADER.items() if name not in ("state_size", "checkpointed_size")}


def _compare_detail(own: VertexDetail, answer: Document, into: Compared) -> None:
    known = detail_of(answer)
    names, rows = detail_names(answer), [known.get(i) for i in range(answer.get("num_subtasks", len(known)))]
    for name in names:
        expected = tuple(None if row is None else row[name] for row in rows)
        into.check(f"{name} of subtasks", tuple(getattr(own, name)), expected)


def detail_names(answer: Document) -> list[str]:
    """Return the names of the values of a subtask that Flink sends under the same meaning."""
    is_old = all("checkpointed_size" not in row for row in answer["subtasks"])
    return [n for n in DETAIL_ARRAYS if not (is_old and n in ("checkpointed_size_bytes", "full_state_size_bytes"))]


def detail_of(answer: Document) -> dict[int, dict[str, Any]]:
    """Return what Flink says of each acknowledged subtask of a vertex, by the names of our values."""
    found = {}
    for row in answer["subtasks"]:
        if _status(row) == "completed":
            values = {name: _known(_at(row, path)) for name, path in DETAIL_PATHS.items()}
            sent = [v for name, v in values.items() if name != "ack_delay_ms"]
            # A subtask that had finished before is listed with zeros that nobody measured.
            found[row["index"]] = values if any(sent) else dict.fromkeys(values) | {"ack_delay_ms": 0}
    return found


def is_of(entry: Document, answer: Document) -> bool:
    """Return whether the subtasks in the answer are of the checkpoint in the list.

    If a job no longer has a checkpoint, Flink answers with the checkpoint of the same number of another job, from a
    cache that its jobs share. In SQL jobs, even the vertices have the same ids.
    """
    times = (
        row["ack_timestamp"] - row["end_to_end_duration"] for row in answer["subtasks"] if _status(row) == "completed"
    )
    return all(at == entry["trigger_timestamp"] for at in times)


def _status(row: Document) -> Any:
    # Before 1.15 the kind of a row is under the name that Jackson gives it by default.
    return row.get("status") or row.get("className") or row.get("@class")


def _known(value: Any) -> Any:
    """Return a value as Flink means it: a negative number stands for one that it does not know."""
    return None if isinstance(value, int) and value < 0 else value


def _at(row: Any, path: Iterable[str]) -> Any:
    for key in path:
        row = row.get(key) if isinstance(row, dict) else None
    return row


def _compare_pressure(own: VertexPressure, metrics: Mapping[str, float | None], into: Compared) -> None:
    for ours, name in _SHARES.items():
        for n, value in enumerate(getattr(own, ours)):
            into.check(name, value, _share(metrics.get(f"{n}.{name}")))
    for ours, names in _AMOUNTS.items():
        for n, value in enumerate(getattr(own, ours)):
            sent = [metrics[f"{n}.{name}"] for name in names if f"{n}.{name}" in metrics]
            # Flink 1.15 sometimes sends a negative size of a queue. That is no size.
            into.check(names[0], value, sent[0] if sent and (sent[0] or 0) >= 0 else None)


def _share(value: float | None) -> float | None:
    return None if value is None or value < 0 else min(value / 1000, 1.0)


def _metrics(rows: Sequence[Mapping[str, Any]], path: str) -> dict[str, float | None]:
    return dict(_sent(row for row in rows if row["path"].startswith(f"{path}?get=") and row["status"] == 200))


def _sent(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, float | None]]:
    for row in rows:
        for metric in row["body"]:
            try:
                value = float(metric["value"])
            except ValueError:
                value = float("nan")
            yield metric["id"], None if value != value else value


def _instant(epoch_ms: int) -> datetime | None:
    return None if epoch_ms < 0 else _EPOCH + timedelta(milliseconds=epoch_ms)


def _are_close(one: object, other: object) -> bool:
    return isinstance(one, (int, float)) and isinstance(other, (int, float)) and abs(one - other) < 1e-9
