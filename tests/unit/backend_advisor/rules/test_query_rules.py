"""Tests of R-MB: the settings of a micro-batched query that are advised, and the reasons for none."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from backend.advisor import advise
from backend.advisor.advice import NoAdvice, Recommendation
from backend.analysis.measures.evidence import JobEvidence
from backend.domain.advice import Metric, Topic
from backend.domain.checkpoint import Checkpoint, CheckpointConfig, CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.engines import SPARK
from backend.domain.micro_batch import BatchPhase, BatchState, MicroBatch, SourceProgress
from backend.domain.topology import Topology
from tests.support.advised_jobs import expected, on

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
KAFKA = SourceProgress("KafkaV2[Subscribe[orders]]")


def batch(number, *, took_ms=1_000, log_ms=0, rows=100, rate=None, state=None, sources=(), every_s=10.0):
    header = CheckpointHeader(
        checkpoint_id=number,
        kind=CheckpointKind.CHECKPOINT,
        status=CheckpointStatus.COMPLETED,
        triggered_at=NOW + timedelta(seconds=every_s * number),
        end_to_end_duration_ms=took_ms,
    )
    phases = ((BatchPhase.WAL_COMMIT, log_ms), (BatchPhase.ADD_BATCH, took_ms - log_ms))
    told = MicroBatch(phases, input_row_count=rows, processed_rows_per_s=rate, state=state, sources=sources)
    return Checkpoint(header, batch=told)


def answer(topic, batches, interval_ms=10_000):
    config = CheckpointConfig(interval_ms=interval_ms)
    evidence = JobEvidence(
        topology=Topology(()), now=NOW, config=config, checkpoints=tuple(batches), is_micro_batched=True
    )
    return on(topic, advise(evidence, engine=SPARK, version="4.3.0"))


def steady(count=8, **more):
    return [batch(n, **more) for n in range(2, count + 2)]


def test_below_five_micro_batches_there_is_no_advice():
    found = answer(Topic.INTERVAL, steady(4))
    assert (found.rule, "only 4 micro-batches have completed" in found.reason) == ("AD-3", True)


# --- R-MB-1 ---


@pytest.mark.parametrize(
    ("took_ms", "log_ms", "speaks"),
    [(1_000, 400, True), (1_000, 290, False), (2_900, 1_200, True), (3_100, 1_200, False)],
)
def test_r_mb_1_raises_the_trigger_interval_if_logs_take_a_third_of_batches_that_leave_room(took_ms, log_ms, speaks):
    found = answer(Topic.INTERVAL, steady(took_ms=took_ms, log_ms=log_ms))

    assert isinstance(found, Recommendation) is speaks, found
    if speaks:
        assert found.proposed.interval_ms == 20_000
        assert found.how_to.lines == ('.trigger(processingTime="20000 milliseconds")',)
        assert expected(found, Metric.OPEN_RATIO).predicted.value < expected(found, Metric.OPEN_RATIO).before


def test_r_mb_1_does_not_delay_batches_that_overrun():
    found = answer(Topic.INTERVAL, steady(took_ms=15_000, log_ms=9_000))
    assert "would only delay them" in found.reason


@pytest.mark.parametrize(("log_ms", "every_s", "speaks"), [(200, 0.5, True), (140, 0.5, False), (200, 1.0, False)])
def test_r_mb_1_proposes_an_interval_to_a_query_that_starts_its_batches_at_once(log_ms, every_s, speaks):
    """Batches of 500 ms follow each other without a pause, or every second."""
    batches = steady(took_ms=500, log_ms=log_ms, every_s=every_s, sources=(replace(KAFKA, backlog=20),))
    found = answer(Topic.INTERVAL, batches, interval_ms=None)

    assert isinstance(found, Recommendation) is speaks, found
    if speaks:
        assert found.proposed.interval_ms == 1_000
        assert found.how_to.lines == ('.trigger(processingTime="1000 milliseconds")',)
        load = expected(found, Metric.OPEN_RATIO)
        # 200 ms of logs in each second, and 300 ms for the rows of every 500 ms.
        assert (load.before, load.predicted.value) == (pytest.approx(1.0), pytest.approx(0.8))
        assert load.predicted.low <= load.predicted.value <= load.predicted.high


@pytest.mark.parametrize("source", [KAFKA, replace(KAFKA, backlog=5_000)])
@pytest.mark.parametrize("took_ms", [500, 4_000])
def test_r_mb_1_proposes_no_interval_to_a_query_of_which_it_is_not_known_whether_it_keeps_up(source, took_ms):
    batches = steady(took_ms=took_ms, log_ms=took_ms * 2 // 5, every_s=took_ms / 1_000, sources=(source,))
    found = answer(Topic.INTERVAL, batches, interval_ms=None)

    assert isinstance(found, NoAdvice), found
    assert "whether the query keeps up is not known" in found.reason


# --- R-MB-2 ---


def growing(sources=(KAFKA,), factor=2.0):
    """Return batches in which rows and durations double, at 2,000 rows in a second."""
    rows = [int(1_000 * factor**n) for n in range(8)]
    return [
        batch(n + 2, took_ms=count // 2, rows=count, rate=2_000.0, sources=sources, every_s=600)
        for n, count in enumerate(rows)
    ]


def test_r_mb_2_limits_the_batches_of_a_kafka_source_that_grow():
    found = answer(Topic.BATCH_SIZE, growing())

    assert isinstance(found, Recommendation), found
    assert found.proposed.batch_offset_count == 20_000
    assert found.how_to.lines == ('.option("maxOffsetsPerTrigger", 20000)',)
    assert any("backlog" in p.text for p in found.preconditions)


def test_r_mb_2_says_why_it_limits_no_other_source_and_no_steady_batches():
    files = answer(Topic.BATCH_SIZE, growing((SourceProgress("FileStreamSource[file:/in]"),)))
    other = answer(Topic.BATCH_SIZE, growing((SourceProgress("RateStreamV2"),)))

    assert "the rows of a file are not reported" in files.reason
    assert "no limit is known" in other.reason
    assert "do not grow" in answer(Topic.BATCH_SIZE, growing(factor=1.1)).reason


# --- R-MB-3 and R-MB-4 ---

ON_HEAP = BatchState(row_count=10**6, memory_bytes=600_000_000, store_count=8, commit_ms=100, commit_total_ms=800)
ROCKS = replace(ON_HEAP, upload_total_ms=900, commit_ms=400, snapshot_lag=0)


def test_r_mb_3_moves_large_state_off_the_heap():
    found = answer(Topic.STATE, steady(state=ON_HEAP))

    assert isinstance(found, Recommendation), found
    assert found.rules == ("R-MB-3",)
    assert found.how_to.lines[0].startswith("--conf spark.sql.streaming.stateStore.providerClass=")
    assert any("new checkpoint folder" in p.text for p in found.preconditions)
    small = answer(Topic.STATE, steady(state=replace(ON_HEAP, memory_bytes=200_000_000)))
    assert "which the heap can hold" in small.reason


@pytest.mark.parametrize(("commit_ms", "speaks"), [(290, False), (310, True)])
def test_r_mb_4_proposes_a_changelog_if_the_commit_takes_a_third(commit_ms, speaks):
    found = answer(Topic.STATE, steady(state=replace(ROCKS, commit_ms=commit_ms)))

    assert isinstance(found, Recommendation) is speaks, found
    if speaks:
        assert found.rules == ("R-MB-4",)
        after = expected(found, Metric.DURATION).predicted
        assert (after.low, after.high) == (pytest.approx(690), pytest.approx(1_000))


def test_r_mb_4_sees_that_a_changelog_is_on_already():
    assert "is on already" in answer(Topic.STATE, steady(state=replace(ROCKS, snapshot_lag=5))).reason
    assert isinstance(answer(Topic.STATE, steady()), NoAdvice)


# --- R-MB-5 ---


@pytest.mark.parametrize(
    ("stores", "rows", "partitions"), [(200, 4_000, 8), (200, 150_000, 15), (200, 250_000, None), (40, 4_000, None)]
)
def test_r_mb_5_proposes_fewer_partitions_for_many_small_stores(stores, rows, partitions):
    found = answer(Topic.PARALLELISM, steady(state=replace(ON_HEAP, store_count=stores, row_count=rows)))

    if partitions is None:
        assert isinstance(found, NoAdvice), found
        return
    assert found.proposed.parallelism == partitions
    assert found.how_to.lines == (f"--conf spark.sql.shuffle.partitions={partitions}",)
