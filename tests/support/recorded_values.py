"""Read the values in a recording without code of the collectors, to compare them with what collectors read.

Values are as Flink printed them, except that a negative timestamp and a pending subtask become None. Nothing is
computed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from tests.support.recorded_flink import Recording

Document: TypeAlias = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def recorded_histories(recording: Recording) -> list[Document]:
    """Return every response of ``/checkpoints``, oldest first."""
    return [body for _, body in recording.answers[f"/jobs/{recording.job_id}/checkpoints"]]


def recorded_entries(recording: Recording) -> dict[int, Document]:
    """Return the last recorded history entry of each checkpoint, by checkpoint id."""
    return {entry["id"]: entry for body in recorded_histories(recording) for entry in body["history"]}


def recorded_subtasks(recording: Recording) -> dict[tuple[int, str], Document]:
    """Return the final response for each (checkpoint, vertex)."""
    found: dict[tuple[int, str], Document] = {}
    for path, answers in recording.answers.items():
        parts = path.split("/")
        if parts[:4] == ["", "jobs", recording.job_id, "checkpoints"] and "subtasks" in parts:
            for status, body in answers:
                if status == 200 and body["status"] != "IN_PROGRESS":
                    found[int(parts[5]), parts[7]] = body
    return found


DETAIL_PATHS = {
    "start_delay_ms": ("start_delay",),
    "alignment_duration_ms": ("alignment", "duration"),
    "sync_duration_ms": ("checkpoint", "sync"),
    "async_duration_ms": ("checkpoint", "async"),
    "ack_delay_ms": ("end_to_end_duration",),
    "checkpointed_size_bytes": ("checkpointed_size",),
    "full_state_size_bytes": ("state_size",),
    "processed_bytes": ("alignment", "processed"),
    "persisted_bytes": ("alignment", "persisted"),
    "unaligned": ("unaligned_checkpoint",),
}
"""The path to each value of ``VertexDetail`` in a row of Flink's answer about the subtasks of a vertex."""


def expected_columns(body: Document) -> dict[str, tuple[Any, ...]]:
    """Return one response of ``/details/:cid/subtasks/:vid`` under the names of ``VertexDetail``.

    Flink reports a subtask that had finished before the checkpoint as acknowledged up to some milliseconds after the
    trigger, with zeros that nobody measured. It is kept as acknowledged at the trigger, without other values.
    """
    rows: list[dict[str, Any]] = [dict.fromkeys(DETAIL_PATHS)] * body["num_subtasks"]
    for row in body["subtasks"]:
        if row["className"] == "completed":
            values = {name: _at(row, path) for name, path in DETAIL_PATHS.items()}
            has_finished = not any(v for name, v in values.items() if name != "ack_delay_ms")
            rows[row["index"]] = dict.fromkeys(values) | {"ack_delay_ms": 0} if has_finished else values
    return {name: tuple(row[name] for row in rows) for name in DETAIL_PATHS}


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def expected_header(entry: Document) -> dict[str, object]:
    """Return one entry of a history under the names of ``CheckpointHeader``."""
    return {
        "checkpoint_id": entry["id"],
        "status": entry["status"].lower().replace("_", "-"),
        "is_unaligned": entry["checkpoint_type"] == "UNALIGNED_CHECKPOINT",
        "triggered_at": instant(entry["trigger_timestamp"]),
        "latest_ack_at": instant(entry["latest_ack_timestamp"]),
        "end_to_end_duration_ms": entry["end_to_end_duration"],
        "checkpointed_size_bytes": entry["checkpointed_size"],
        "full_state_size_bytes": entry["state_size"],
        "processed_bytes": entry["processed_data"],
        "persisted_bytes": entry["persisted_data"],
        "subtask_count": entry["num_subtasks"],
        "acknowledged_count": entry["num_acknowledged_subtasks"],
        "failure_message": entry.get("failure_message"),
        "failed_at": instant(entry.get("failure_timestamp", -1)),
        "external_path": entry.get("external_path"),
        "is_discarded": entry.get("discarded"),
        "savepoint_format": (entry.get("savepointFormat") or "").lower() or None,
    }


def instant(epoch_ms: int) -> datetime | None:
    """Return the instant, exact to the millisecond, or None for a negative timestamp, Flink's sentinel."""
    return None if epoch_ms < 0 else _EPOCH + timedelta(milliseconds=epoch_ms)
