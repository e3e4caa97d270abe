"""The card of the Spark jobs and stages of a micro-batch."""

from __future__ import annotations

from datetime import UTC, datetime

from backend.contracts.micro_batches import BatchWorkOut, MicroBatchOut, StageWorkOut
from backend.domain.verdict import Basis
from dashboard.components import batch_work
from tests.support.dash_calls import texts


def stage(**changed) -> StageWorkOut:
    values = {
        "stage_id": 7, "attempt": 0, "name": "start", "task_count": 200, "failed_task_count": 0, "duration_ms": 3_500,
        "task_median_ms": 130, "task_max_ms": 3_400, "task_ratio": 26.2, "rows_median": 5_000, "rows_max": 900_000,
        "rows_ratio": 180.0, "run_ms": 26_000, "gc_ms": 260, "gc_ratio": 0.01, "memory_spill_bytes": 0,
        "disk_spill_bytes": 0, "input_bytes": 0, "shuffle_read_bytes": 62_914_560, "shuffle_write_bytes": 0,
    }  # fmt: skip
    return StageWorkOut.model_validate(values | changed)


def batch(*stages: StageWorkOut, known: bool = True, **changed) -> MicroBatchOut:
    values = {
        "app_id": "app-1", "attempt_id": None, "execution_id": 40, "job_ids": [11], "job_count": 1,
        "stage_count": len(stages), "jobs_ms": 3_600, "outside_ms": 400, "stages": list(stages),
    }  # fmt: skip
    return MicroBatchOut(
        checkpoint_id=12, run_id="r1", triggered_at=datetime(2026, 11, 30, tzinfo=UTC), duration_ms=4_000,
        number_basis=Basis.MEASURED, phases=[], other_ms=None, input_row_count=None, processed_rows_per_s=None,
        watermark_at=None, state=None, sources=[],
        work=BatchWorkOut.model_validate(values | changed) if known else None,
    )  # fmt: skip


def shown(of: MicroBatchOut) -> str:
    return texts(batch_work.card(of))


def test_the_stage_shows_its_longest_and_its_median_task_and_their_rows():
    said = shown(batch(stage()))
    for words in ("3.5 s", "200", "3.4 s", "130 ms", "62.9 MB", "26×"):
        assert words in said, (words, said)
    assert "900 000 / 5 000" in said


def test_a_stage_has_its_name_and_says_which_retry_it_is_as_spark_does():
    assert "Stage 7 save at Clicks.scala:52" in shown(batch(stage(name="save at Clicks.scala:52")))
    assert "Stage 7 (retry 1) start" in shown(batch(stage(attempt=1)))


def test_the_time_without_a_spark_job_is_said_as_reconstructed():
    said = shown(batch(stage()))
    assert "At least one of them ran for 3.6 s. For 400 ms (10 %) none ran" in said
    assert "reconstructed" in said


def test_a_time_that_is_not_known_is_not_zero():
    said = shown(batch(stage(task_max_ms=None, task_median_ms=None, task_ratio=None, gc_ratio=None), jobs_ms=None))
    assert "For how long at least one of them ran is not known" in said
    assert "none ran" not in said
    assert said.count("–") >= 4 or said.count("—") >= 4


def test_stages_that_are_not_kept_are_counted():
    assert "3 shorter stages left out" in shown(batch(stage(), stage_count=4))
    assert "left out" not in shown(batch(stage()))


def test_a_batch_without_known_jobs_says_which_batches_have_them():
    assert "the listener does not" in shown(batch(known=False))


def test_the_channel_that_reported_the_jobs_is_named_and_a_missing_one_is_missing():
    assert "Reported by: event logs" in shown(batch(stage(), channel="event logs"))
    assert "Reported by: driver eu-1" in shown(batch(stage(), channel="driver", target_name="eu-1"))
    assert "Reported by: –" in shown(batch(stage()))
