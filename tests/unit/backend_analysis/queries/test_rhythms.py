"""Tests of batches that are slow every n-th time: which log is rewritten, and what must not be taken for it."""

from __future__ import annotations

import pytest

from backend.advisor import advise
from backend.analysis.verdict.verdict import checkpoint_verdict, diagnose
from backend.domain.engines import SPARK
from tests.support.made_up_queries import events, evidence_of, operator, progress

FILES, OUT = "FileStreamSource[file:/in]", "FileSink[file:/out]"
RANGE = range(30, 60)


def batches(
    numbers=RANGE,
    *,
    period=10,
    remainder=9,
    usual=10_000,
    slow=38_000,
    part="addBatch",
    rows=1_000,
    more_rows=1,
    **more,
):
    """Return batches of about ``usual`` ms; those of ``remainder`` take ``slow`` ms, in ``part``."""
    found = []
    for n in numbers:
        is_slow = n % period == remainder
        took = slow if is_slow else usual + 40 * (n * 7 % 5)
        parts = {part: slow - usual} if is_slow and part != "addBatch" else {}
        found.append(progress(n, took_ms=took, rows=rows * (more_rows if is_slow else 1), parts_ms=parts, **more))
    return found


def judged(made, **more):
    return diagnose(evidence_of(events(made, **more.pop("at", {})), **more))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (batches(sink=OUT), "the log of the file sink (the folder _spark_metadata) is rewritten whole"),
        (batches(range(21_330, 21_361), sink=OUT, source=FILES), "_spark_metadata"),
        (batches(range(102, 128), usual=2_000, slow=9_000, sink=OUT), "_spark_metadata"),
        (batches(source=FILES, part="latestOffset"), "the log of the file source"),
        (batches(sink="DeltaSink[/t]", remainder=4), "the Delta table's log"),
        (batches(period=5, remainder=4, sink=OUT), "Every 5th batch takes 38.0 s instead of 10.1 s"),
        (batches(period=7, remainder=2, sink=OUT), "Every 7th batch"),
    ],
)
def test_a_log_that_is_rewritten_every_nth_batch_is_named(made, said):
    found = judged(made)

    assert found.health == "intermittent"
    assert found.verdict.kind == "store"
    assert said in found.verdict.sentence
    cures = [e.statement for e in found.verdict.evidence if e.metric == "cure"]
    assert cures
    assert any("more executors" in e.statement for e in found.verdict.evidence if e.metric == "no cure")


def test_the_logs_of_the_sink_and_of_the_source_are_both_named_if_both_take_time():
    made = batches(sink=OUT, source=FILES)
    for one in made:
        if one["batchId"] % 10 == 9:
            one["durationMs"] |= {"latestOffset": 4_000, "addBatch": 33_800}
    found = judged(made)

    assert (
        "the log of the file sink (the folder _spark_metadata) and the log of the file source" in found.verdict.sentence
    )
    assert "are rewritten whole" in found.verdict.sentence


def test_without_a_sink_that_is_known_it_is_not_decided_which_log_it_is():
    found = judged(batches(sink=None))

    assert (found.verdict.kind, found.verdict.confidence) == ("undecided", "low")
    assert "which, is not decided" in found.verdict.sentence
    assert "the query's sink, which is not reported" in found.verdict.would_decide[0]


def test_code_of_the_query_that_does_more_every_nth_batch_is_not_called_a_log():
    found = judged(batches(sink="ForeachBatchSink", period=6, remainder=1))

    assert found.verdict.kind == "undecided"
    assert "what ForeachBatchSink does then" in found.verdict.would_decide[0]


@pytest.mark.parametrize(
    "made",
    [
        # Two slow batches that are by chance some batches apart.
        [progress(n, took_ms=30_000 if n in (41, 52) else 9_000, sink=OUT) for n in RANGE],
        # Slow batches that read more rows.
        batches(more_rows=4, sink=OUT),
        # Slow batches at no regular distance.
        [progress(n, took_ms=30_000 if n in (36, 40, 47, 55) else 9_000, sink=OUT) for n in RANGE],
        # Slow batches that are by chance as far apart, but lose very different times.
        [progress(n, took_ms={39: 38_000, 49: 16_000, 59: 62_000}.get(n, 8_000), sink=OUT) for n in RANGE],
        # Durations that vary widely, of which each third is above the rest by chance.
        [
            progress(n, took_ms=took, sink=OUT)
            for n, took in enumerate(
                (50_837, 40_578, 52_536, 95_967, 22_122, 46_358, 82_490, 37_370, 47_296, 77_863, 51_111, 57_095), 30
            )
        ],
        # A batch of the period that is quick.
        [progress(n, took_ms=30_000 if n in (39, 59) else 9_000, sink=OUT) for n in RANGE],
    ],
)
def test_slow_batches_without_a_rhythm_of_their_own_are_not_called_compaction(made):
    found = judged(made)

    assert "Every " not in found.verdict.sentence
    assert "rewritten" not in str(found.verdict)


@pytest.mark.parametrize(
    ("made", "at"),
    [
        # A second more every tenth batch.
        (batches(usual=10_000, slow=11_000, sink="DeltaSink[/t]", remainder=4), {"pause_ms": 3_000}),
        # Three times as long, but quick all the same.
        (batches(usual=900, slow=2_700, sink=OUT), {}),
        # Longer, but within the interval of the trigger.
        (batches(usual=10_000, slow=25_000, sink=OUT), {"every_ms": 30_000}),
        (batches(range(26), usual=1_200, slow=4_000, sink=OUT), {}),
        (batches(usual=8_000, slow=13_500, sink="IcebergSink", remainder=3), {"every_ms": 60_000}),
    ],
)
def test_compaction_that_costs_little_leaves_the_query_healthy(made, at):
    found = judged(made, at=at)

    assert (found.health, found.verdict.kind) == ("healthy", "none")
    assert "keeps up with its input" in found.verdict.sentence


def test_a_query_that_lacks_capacity_and_compacts_lacks_capacity_first():
    made = batches(sink=OUT, rows=50_000)
    found = judged(made, interval_ms=5_000)

    assert (found.health, found.verdict.kind) == ("slow", "capacity")
    assert "Every 10th batch" in found.verdict.second.sentence


def test_batches_that_grow_hide_no_rhythm():
    made = [progress(n, took_ms=(10_000 + 900 * i) * (3 if n % 10 == 9 else 1), sink=OUT) for i, n in enumerate(RANGE)]
    found = judged(made)

    assert found.verdict.kind == "growth"
    assert "Every 10th batch" in found.verdict.second.sentence


def test_a_slow_batch_of_the_rhythm_says_so_and_its_neighbours_do_not():
    evidence = evidence_of(events(batches(sink=OUT)))
    said = {c.header.checkpoint_id: checkpoint_verdict(c, evidence).sentence for c in evidence.checkpoints[-3:]}

    assert "Every 10th batch takes" in said[59]
    assert "Every" not in said[58]


def test_nothing_is_advised_that_does_not_touch_the_log():
    made = batches(sink=OUT, state=operator(60, numStateStoreInstances=200))
    evidence = evidence_of(events(made))
    advice = advise(evidence, engine=SPARK, version="3.5.1", diagnosis=diagnose(evidence))

    assert advice.recommendations == ()


@pytest.mark.parametrize("remainder", [9, 3])
@pytest.mark.parametrize(
    "sink", ["IcebergWrite(table=db.t, format=PARQUET)", "IcebergWrite(table=delta.t)", "HoodieStreamingSink[db.t]"]
)
def test_a_table_that_is_not_a_delta_table_is_not_said_to_write_a_checkpoint_of_its_log(sink, remainder):
    found = judged(batches(range(1_000, 1_026), sink=sink, remainder=remainder))

    assert (found.health, found.verdict.kind, found.verdict.confidence) == ("intermittent", "undecided", "low")
    assert "Every 10th batch takes 38.0 s" in found.verdict.sentence
    assert "which, is not decided" in found.verdict.sentence
    assert sink[:40] in found.verdict.would_decide[0]
    assert "delta.logRetentionDuration" not in str(found.verdict)
