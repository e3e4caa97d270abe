"""Values that were read, beside the answers of Flink."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from backend.domain.checkpoint import Checkpoint, CheckpointCounts, CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.ids import EngineRunId, VertexId
from backend.domain.observation import JobObservation, JobState
from backend.domain.pressure import VertexPressure
from tests.simulators.versions.comparison import Compared, compare, is_of

TRIGGERED_MS = 1_800_000_000_000
TRIGGERED_AT = datetime.fromtimestamp(TRIGGERED_MS / 1000, UTC)


def observed(**given: Any) -> JobObservation:
    return JobObservation(
        engine_run_id=EngineRunId("a1"),
        name="a job",
        state=JobState.RUNNING,
        engine_state="RUNNING",
        started_at=TRIGGERED_AT,
        **given,
    )


def row(path: str, body: Any) -> dict[str, Any]:
    return {"path": path, "status": 200, "body": body}


def compared(job: JobObservation, *rows: dict[str, Any]) -> Compared:
    found = Compared()
    compare(job, rows, found)
    return found


def test_counts_are_compared_with_flinks():
    counts = {"restored": 0, "total": 7, "in_progress": 1, "completed": 5, "failed": 1}
    answer = row("/jobs/a1/checkpoints", {"counts": counts, "history": []})

    assert compared(observed(counts=CheckpointCounts(**counts)), answer).lines == ()
    differing = compared(observed(counts=CheckpointCounts(**(counts | {"failed": 0}))), answer)
    assert differing.lines == ("count failed: ours 0, Flink's 1",)
    assert differing.count == 5


def header(**given: Any) -> CheckpointHeader:
    return CheckpointHeader(
        checkpoint_id=3,
        kind=CheckpointKind.CHECKPOINT,
        status=CheckpointStatus.COMPLETED,
        triggered_at=TRIGGERED_AT,
        latest_ack_at=TRIGGERED_AT,
        end_to_end_duration_ms=12,
        subtask_count=2,
        acknowledged_count=2,
        **given,
    )


ENTRY = {
    "id": 3,
    "status": "COMPLETED",
    "trigger_timestamp": TRIGGERED_MS,
    "latest_ack_timestamp": TRIGGERED_MS,
    "end_to_end_duration": 12,
    "num_subtasks": 2,
    "num_acknowledged_subtasks": 2,
    "state_size": 50,
    "checkpointed_size": 40,
}


def checkpoints(entry: dict[str, Any]) -> dict[str, Any]:
    counts = {"restored": 0, "total": 3, "in_progress": 0, "completed": 3, "failed": 0}
    return row("/jobs/a1/checkpoints", {"counts": counts, "history": [entry]})


def test_a_value_that_flink_sent_must_be_there_and_one_that_it_did_not_send_must_be_missing():
    own = header(full_state_size_bytes=50, checkpointed_size_bytes=40)

    assert compared(observed(checkpoints=(Checkpoint(own),)), checkpoints(ENTRY)).lines == ()
    without = replace(own, checkpointed_size_bytes=None)
    assert compared(observed(checkpoints=(Checkpoint(without),)), checkpoints(ENTRY)).lines == (
        "checkpointed_size of a checkpoint: ours None, Flink's 40",
    )
    invented = replace(own, persisted_bytes=0)
    assert compared(observed(checkpoints=(Checkpoint(invented),)), checkpoints(ENTRY)).lines == (
        "persisted_data of a checkpoint: ours 0, Flink's None",
    )


def test_before_1_15_the_two_sizes_of_a_checkpoint_are_not_compared_because_flink_has_one_name_only():
    old = {name: value for name, value in ENTRY.items() if name != "checkpointed_size"}

    assert compared(observed(checkpoints=(Checkpoint(header()),)), checkpoints(old)).lines == ()


def test_readings_of_time_are_compared_with_the_metrics_of_the_same_poll_and_nan_is_missing():
    vertex = VertexId("b2")
    reading = VertexPressure(vertex, TRIGGERED_AT, (None, 0.5), (1.0, 0.25), (0.0, 0.25), records_in_count=(7, 9))
    metrics = [
        *({"id": f"0.{n}", "value": v} for n, v in (("busyTimeMsPerSecond", "NaN"), ("idleTimeMsPerSecond", "0"))),
        *({"id": f"1.{n}", "value": v} for n, v in (("busyTimeMsPerSecond", "500"), ("idleTimeMsPerSecond", "250"))),
        {"id": "0.backPressuredTimeMsPerSecond", "value": "1000.4"},
        {"id": "1.backPressuredTimeMsPerSecond", "value": "250"},
        {"id": "0.numRecordsIn", "value": "7"},
        {"id": "1.numRecordsIn", "value": "9"},
    ]
    answer = row("/jobs/a1/vertices/b2/metrics?get=0.busyTimeMsPerSecond", metrics)

    assert compared(observed(pressure=(reading,)), answer).lines == ()
    filled = replace(reading, busy_ratio=(0.0, 0.5))
    assert compared(observed(pressure=(filled,)), answer).lines == ("busyTimeMsPerSecond: ours 0.0, Flink's None",)


def test_an_answer_from_the_cache_that_flinks_jobs_share_may_be_of_another_job():
    entry = {"id": 3, "trigger_timestamp": TRIGGERED_MS}
    own = {"index": 0, "status": "completed", "ack_timestamp": TRIGGERED_MS + 12, "end_to_end_duration": 12}
    pending = {"index": 1, "status": "pending_or_failed"}

    assert is_of(entry, {"subtasks": [own, pending]})
    assert not is_of(entry, {"subtasks": [own | {"ack_timestamp": TRIGGERED_MS + 13}, pending]})
