"""Tests of what is read of Spark's reports: rows that leave the state, the sink, and the phases of older versions."""

from __future__ import annotations

from dataclasses import asdict

from backend.domain.micro_batch import BatchPhase, BatchState, MicroBatch
from backend.domain.stored_form import batch_from
from tests.support.made_up_queries import events, evidence_of, operator, progress


def batch_of(report):
    return evidence_of(events([report])).checkpoints[0].batch


def test_the_rows_that_leave_the_state_are_summed_over_the_operators():
    report = progress(7, took_ms=900, state=operator(4_000, removed=30, numRowsDroppedByWatermark=4))
    report["stateOperators"].append(operator(100, removed=5, name="dedupe", numRowsDroppedByWatermark=1))

    state = batch_of(report).state
    assert (state.row_count, state.removed_row_count, state.dropped_row_count) == (4_100, 35, 5)
    assert state.operators == ("stateStoreSave", "dedupe")


def test_rows_that_an_older_listener_does_not_report_are_missing_and_not_zero():
    report = progress(7, took_ms=900, sink=None, state={"numRowsTotal": 10, "numRowsUpdated": 1})

    batch = batch_of(report)
    assert (batch.state.removed_row_count, batch.state.dropped_row_count, batch.sink) == (None, None, None)
    assert batch.state.operators == ()


def test_the_phases_of_spark_2_are_summed_to_the_time_of_asking_the_sources():
    report = progress(7, took_ms=900)
    del report["durationMs"]["latestOffset"]
    report["durationMs"] |= {"getOffset": 30, "setOffsetRange": 5, "getEndOffset": 2}

    assert batch_of(report).phase_ms(BatchPhase.LATEST_OFFSET) == 37


def test_the_state_is_kept_of_each_operator_and_what_one_does_not_report_is_missing():
    report = progress(7, took_ms=900)
    report["stateOperators"] = [
        {"operatorName": "stateStoreSave", "numRowsTotal": 5, "customMetrics": {"rocksdbSstFileSize": 800}},
        {"operatorName": "dedupe", "numRowsRemoved": 2, "memoryUsedBytes": 64, "commitTimeMs": 9},
    ]
    first, second = batch_of(report).state.by_operator

    assert (first.name, first.row_count, first.size_bytes, first.removed_row_count) == ("stateStoreSave", 5, 800, None)
    assert (second.name, second.row_count, second.removed_row_count) == ("dedupe", None, 2)
    # Without files, the size is that in memory.
    assert (second.size_bytes, second.commit_total_ms) == (64, 9)


def test_a_stored_batch_has_its_sink_and_operators_again_and_one_of_an_older_version_has_none():
    made = batch_of(progress(7, took_ms=900, sink="FileSink[/out]", state=operator(10)))
    row = {
        "phases_ms": [ms for _, ms in made.phases_ms],
        "input_row_count": made.input_row_count,
        "processed_rows_per_s": None,
        "watermark_at": None,
        "state": {**asdict(made.state), "operators": list(made.state.operators)},
        "sources": [{**asdict(s), "sink": made.sink} for s in made.sources],
        "number_basis": "measured",
    }
    assert batch_from(row) == made

    older = batch_from(row | {"state": {"row_count": 10}, "sources": [{"description": "rate"}]})
    assert isinstance(older, MicroBatch)
    assert (older.sink, older.state) == (None, BatchState(row_count=10))
