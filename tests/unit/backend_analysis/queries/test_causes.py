"""Tests of the causes of a query that are neither growth nor rhythm, and of the queries that are well."""

from __future__ import annotations

from datetime import timedelta

import pytest

from backend.analysis.assembling import EVIDENCE_COUNT
from backend.analysis.queries.causes import CAUSES
from backend.analysis.queries.series import WINDOW_COUNT
from backend.analysis.verdict.verdict import checkpoint_verdict, diagnose
from tests.support.made_up_queries import NOW, events, evidence_of, operator, progress

NUMBERS = range(60, 90)
FALSE = "lacks capacity for its input"


def judged(made, *, interval_ms=None, **more):
    return diagnose(evidence_of(events(made, **more), interval_ms=interval_ms))


def statements(found, metric):
    return [e.statement for e in found.verdict.evidence if e.metric == metric]


def test_as_many_batches_are_compared_as_are_evidence():
    assert WINDOW_COUNT == EVIDENCE_COUNT


def test_each_cause_has_a_name_of_its_own_and_its_condition_in_words():
    assert len({c.name for c in CAUSES}) == len(CAUSES)
    assert all(c.condition for c in CAUSES)


# --- the log of offsets and commits ---


def relay(*, log=80, took=228, **more):
    parts = {"walCommit": log, "commitOffsets": log, "latestOffset": 0, "queryPlanning": 9}
    more = {"sink": "KafkaTable", **more}
    return [progress(n, took_ms=took, rows=300, parts_ms=parts, **more) for n in NUMBERS]


@pytest.mark.parametrize(
    ("made", "at"),
    [
        (relay(), {"pause_ms": 0}),
        (relay(sink="org.apache.spark.sql.kafka010.KafkaSink@7af1"), {"pause_ms": 0}),
        (relay(log=300, took=900), {"pause_ms": 5}),
        (relay(log=37, took=130), {"every_ms": 1_000}),
        (relay(log=700, took=1_900), {"every_ms": 10_000}),
    ],
)
def test_a_query_whose_time_goes_to_the_log_is_well_and_told_of_asynchronous_tracking(made, at):
    found = judged(made, **at)

    assert (found.health, found.verdict.kind) == ("healthy", "none")
    assert "of the time goes to writing the checkpoint log" in found.verdict.sentence
    assert any("asynchronous progress tracking" in text for text in statements(found, "cure"))
    assert "another state store" in " ".join(statements(found, "no cure"))


def test_a_query_with_state_is_not_told_of_asynchronous_tracking():
    found = judged(relay(state=operator(500)), pause_ms=0)

    assert "goes to writing the checkpoint log" in found.verdict.sentence
    assert "asynchronous" not in str(found.verdict)


@pytest.mark.parametrize("sink", ["DeltaSink[s3://x/kafka]", "FileSink[/out]", "ForeachBatchSink", None])
def test_a_query_that_does_not_write_to_kafka_is_not_told_of_asynchronous_tracking(sink):
    found = judged(relay(sink=sink), pause_ms=0)
    late = judged(relay(log=4_000, took=9_000, sink=sink), interval_ms=5_000)

    assert "goes to writing the checkpoint log" in found.verdict.sentence
    assert "a longer interval of the trigger" in " ".join(statements(found, "cure"))
    assert "the checkpoint store is slow" in late.verdict.sentence
    assert "asynchronous" not in f"{found} {late}"


def test_a_query_with_state_that_is_late_because_of_its_log_is_not_told_of_asynchronous_tracking():
    found = judged(relay(log=4_000, took=9_000, state=operator(500)), interval_ms=5_000)

    assert "the checkpoint store is slow" in found.verdict.sentence
    assert "asynchronous" not in str(found)


def test_a_log_that_takes_a_part_of_the_time_only_is_not_told():
    assert "checkpoint log (offsets" not in judged(relay(log=30), pause_ms=0).verdict.sentence


def test_a_query_that_is_late_because_of_its_log_has_the_store_as_its_cause():
    found = judged(relay(log=4_000, took=9_000), interval_ms=5_000)

    assert (found.health, found.verdict.kind) == ("slow", "store")
    assert "the checkpoint store is slow" in found.verdict.sentence
    assert any("asynchronous progress tracking" in text for text in statements(found, "cure"))


# --- batches that take the same time whatever their rows ---


def varied(took=20_000, factors=(1, 2, 6, 9, 3), **more):
    return [progress(n, took_ms=took + 200 * (n % 3), rows=2_000 * factors[n % len(factors)], **more) for n in NUMBERS]


@pytest.mark.parametrize(
    ("made", "interval_ms"),
    [
        (varied(), 10_000),
        (varied(took=4_000, sink="ForeachBatchSink"), 2_000),
        (varied(factors=(1, 40)), 15_000),
        (varied(took=300_000, sink="hudi"), 60_000),
        (varied(took=1_500), 1_000),
    ],
)
def test_time_that_does_not_go_to_the_rows_is_no_lack_of_capacity(made, interval_ms):
    found = judged(made, interval_ms=interval_ms)

    assert (found.health, found.verdict.kind) == ("slow", "undecided")
    assert "the time does not go to the rows" in found.verdict.sentence
    assert FALSE not in str(found.verdict)
    assert "Spark jobs" in found.verdict.would_decide[0]


def test_batches_that_take_longer_for_more_rows_lack_capacity():
    made = [progress(n, took_ms=4_000 * (1 + n % 4), rows=2_000 * (1 + n % 4)) for n in NUMBERS]

    assert judged(made, interval_ms=3_000).verdict.kind == "capacity"


# --- the listing of the input, and rows that come late ---


@pytest.mark.parametrize(("took", "share"), [(20_000, 0.9), (9_000, 0.7), (60_000, 0.95)])
def test_a_query_that_is_late_because_it_lists_its_input_has_the_listing_as_its_cause(took, share):
    parts = {"latestOffset": int(took * share)}
    made = [progress(n, took_ms=took, parts_ms=parts, source="FileStreamSource[s3a://in]") for n in NUMBERS]
    found = judged(made, interval_ms=5_000)

    assert (found.health, found.verdict.kind) == ("slow", "late-input")
    assert "the driver lists the input folder" in found.verdict.sentence
    assert FALSE not in str(found.verdict)


def test_a_listing_within_the_interval_of_the_trigger_is_no_cause():
    parts = {"latestOffset": 4_000}
    made = [progress(n, took_ms=5_000, parts_ms=parts, source="FileStreamSource[s3a://in]") for n in NUMBERS]

    assert judged(made, every_ms=20_000).health == "healthy"


def dropping(dropped, *, ahead):
    found = []
    for i, n in enumerate(NUMBERS):
        at = NOW + timedelta(seconds=30 * i) + (timedelta(days=300) if ahead else timedelta(minutes=-10))
        state = operator(5_000, numRowsDroppedByWatermark=dropped)
        found.append(progress(n, took_ms=900, state=state, watermark=at))
    return found


@pytest.mark.parametrize(
    ("dropped", "ahead", "said"),
    [
        (1_000, True, "rows with event times in the future have moved it"),
        (400, True, "40 % as many as are read"),
        (250, False, "25 % as many as are read"),
    ],
)
def test_rows_that_are_dropped_because_they_are_late_are_told(dropped, ahead, said):
    found = judged(dropping(dropped, ahead=ahead), every_ms=30_000)

    assert (found.health, found.verdict.kind) == ("healthy", "late-input")
    assert said in found.verdict.sentence


def test_some_late_rows_are_the_usual_course_of_things():
    assert judged(dropping(20, ahead=False), every_ms=30_000).verdict.kind == "none"


def test_a_spiral_gets_a_limit_of_the_batch_and_is_not_told_that_it_does_not_help():
    made = [progress(n, took_ms=int(2_000 * 1.5**i), rows=int(8_000 * 1.5**i)) for i, n in enumerate(range(60, 70))]
    found = judged(made)

    assert any("maxOffsetsPerTrigger" in text for text in statements(found, "cure"))
    assert statements(found, "no cure") == []


# --- snapshots of the state ---


def with_lag(lag_of, *, took=900):
    """Return batches of which the newest snapshot is as old as ``lag_of`` says; None for no snapshot."""
    found = []
    for n in NUMBERS:
        lag = lag_of(n)
        version = -1 if lag is None else n + 1 - lag
        metrics = {"SnapshotLastUploaded.partition_0_default": version, "rocksdbCommitFileSyncLatencyMs": 30}
        found.append(progress(n, took_ms=took, state=operator(50_000, customMetrics=metrics)))
    return found


@pytest.mark.parametrize(
    ("made", "every_ms", "said"),
    [
        (with_lag(lambda n: n - 20), 30_000, "would replay 69 batches (34 min 30 s)"),
        (with_lag(lambda n: n - 55), 60_000, "would replay 34 batches"),
        (with_lag(lambda n: n - 30, took=8_000), 10_000, "The state's snapshots lag"),
        (with_lag(lambda _: None), 30_000, "No snapshot of the state was uploaded in 26 batches"),
        (with_lag(lambda n: n - 10, took=4_000), 15_000, "would replay 79 batches"),
    ],
)
def test_snapshots_that_are_not_taken_are_told_with_what_a_recovery_replays(made, every_ms, said):
    evidence = evidence_of(events(made, every_ms=every_ms), interval_ms=every_ms)
    found = diagnose(evidence)

    # That is a note only: a large minDeltasForSnapshot has the same lag by design.
    assert (found.health, found.verdict.kind) == ("healthy", "none")
    assert said in found.verdict.sentence
    assert "spark.sql.streaming.stateStore.minDeltasForSnapshot" in found.verdict.would_decide[0]
    assert "maintenance" in found.verdict.would_decide[1]


@pytest.mark.parametrize(
    ("made", "every_ms"),
    [
        # A snapshot after each ten batches.
        (with_lag(lambda n: 2 + n % 10), 30_000),
        # Quick batches, with a snapshot once a minute.
        (with_lag(lambda n: 1 + n % 60, took=200), 1_000),
        (with_lag(lambda n: n - 58, took=200), 1_000),
        (with_lag(lambda _: 1), 30_000),
        (with_lag(lambda n: 20 + n % 13), 30_000),
    ],
)
def test_snapshots_that_are_taken_are_no_cause(made, every_ms):
    found = judged(made, every_ms=every_ms)

    assert (found.health, found.verdict.kind) == ("healthy", "none")
    assert "snapshots lag" not in found.verdict.sentence


# --- queries that are well ---


def offsets(n, *, backlog=0, rows=1_000):
    return {"endOffset": {"orders": {"0": rows * n}}, "latestOffset": {"orders": {"0": rows * n + backlog}}}


@pytest.mark.parametrize(
    "made",
    [
        # No interval of the trigger: each batch takes what came during the one before.
        [progress(n, took_ms=3_000, latest=offsets(n)) for n in NUMBERS],
        # A run that reads all there is and then ends (AvailableNow): the backlog shrinks.
        [progress(n, took_ms=9_000, latest=offsets(n, backlog=200_000 - 2_000 * (n - 60))) for n in NUMBERS],
        [progress(n, took_ms=9_000, latest=offsets(n, backlog=90_000 // (n - 59))) for n in range(60, 72)],
        # The first batches are cold.
        [progress(n, took_ms=20_000 if n < 2 else 700, latest=offsets(n)) for n in range(20)],
        [progress(n, took_ms=2_500, rows=1_000 + n % 9, latest=offsets(n, backlog=400)) for n in NUMBERS],
    ],
)
def test_a_query_that_never_pauses_keeps_up_if_no_more_waits_at_its_sources(made):
    found = judged(made, pause_ms=2)

    assert (found.health, found.verdict.kind) == ("healthy", "none")


@pytest.mark.parametrize(
    "made",
    [
        [progress(n, took_ms=3_000, latest=offsets(n, backlog=50_000)) for n in NUMBERS],
        [progress(n, took_ms=3_000, latest=offsets(n, backlog=50_000 + 500 * (n - 60))) for n in NUMBERS],
        # Each batch reads more than the one before, and takes longer for it.
        [progress(n, took_ms=int(2_000 * 1.04**i), rows=int(500 * 1.06**i)) for i, n in enumerate(NUMBERS)],
    ],
)
def test_a_query_that_never_pauses_with_a_backlog_that_stays_or_ever_more_rows_is_slow(made):
    found = judged(made, pause_ms=2)

    assert (found.health, found.verdict.kind) == ("slow", "capacity")


DELTA = {"source": "DeltaSource[s3://in]", "sink": "DeltaSink[s3://out]"}


@pytest.mark.parametrize(
    "made",
    [
        [progress(n, took_ms=3_000) for n in NUMBERS],
        [progress(n, took_ms=2_000, rows=90 + 10 * (n % 3), **DELTA) for n in NUMBERS],
        # Rows that vary have more in the newest batches by chance.
        varied(took=2_000, factors=(1, 2, 6, 9, 3), **DELTA),
        varied(took=60_000, factors=(1, 18, 2), source="FileStreamSource[s3a://in]"),
        [progress(n, took_ms=2_000, rows=50 if n < 83 else 100, **DELTA) for n in NUMBERS],
        # The driver lists the input folder for most of the time.
        [progress(n, took_ms=5_000, parts_ms={"latestOffset": 4_000}, source="FileStreamSource[/in]") for n in NUMBERS],
        # Less than a batch waits at the source, and its rows vary.
        [
            progress(n, took_ms=2_000, rows=r, latest=offsets(n, backlog=1))
            for n, r in enumerate((3, 1, 2, 1, 3, 1, 6, 2, 9, 8), 60)
        ],
    ],
)
def test_a_query_that_is_busy_all_the_time_without_a_known_interval_or_backlog_is_not_said_to_be_behind(made):
    found = judged(made, pause_ms=2)

    assert (found.health, found.verdict.kind, found.verdict.confidence) == ("healthy", "undecided", "low")
    assert "busy all the time, and whether it keeps up with its input is not known" in found.verdict.sentence
    assert "trigger_interval_ms" in found.verdict.would_decide[0]
    assert statements(found, "cure") == statements(found, "no cure") == []
    assert FALSE not in str(found.verdict)


def test_the_verdict_on_a_batch_of_a_query_that_is_busy_all_the_time_does_not_say_that_it_was_behind():
    evidence = evidence_of(events([progress(n, took_ms=3_000, **DELTA) for n in NUMBERS], pause_ms=2))
    said = checkpoint_verdict(evidence.checkpoints[-1], evidence)

    assert said.sentence.startswith("Batch 89 took 3.0 s: the query is busy all the time, and whether it keeps up")
    assert said.kind == "undecided"


def test_the_interval_of_the_trigger_decides_whether_a_query_that_is_busy_all_the_time_is_behind():
    made = [progress(n, took_ms=3_000, **DELTA) for n in NUMBERS]

    assert judged(made, pause_ms=2, interval_ms=1_000).health == "slow"
    assert judged(made, every_ms=4_000, interval_ms=4_000).health == "healthy"


def test_batches_that_grow_make_a_query_that_is_busy_all_the_time_slow():
    made = [progress(n, took_ms=3_000 + 400 * (n - 60), **DELTA) for n in NUMBERS]
    found = judged(made, pause_ms=2)

    assert (found.health, found.verdict.kind) == ("slow", "growth")


@pytest.mark.parametrize(
    ("rows", "health", "kind"),
    [
        # The rows of each third are above those of the one before: the query does not keep up.
        ([100 + 40 * n for n in range(10)], "slow", "capacity"),
        # They vary, with more in the last third by chance.
        ([100, 90, 300, 110, 300, 310, 100, 320, 330, 310], "healthy", "undecided"),
        ([100, 110, 90] * 3, "healthy", "none"),
    ],
)
def test_a_backlog_of_0_throughout_does_not_shrink(rows, health, kind):
    """A source that gives a batch all it has reports that nothing waits. What came meanwhile is in the next batch."""
    made = [progress(n, took_ms=10 * r, rows=r, latest=offsets(n, backlog=0)) for n, r in enumerate(rows, 60)]
    found = judged(made, pause_ms=2)

    assert (found.health, found.verdict.kind) == (health, kind), found.verdict.sentence


def test_a_backlog_that_is_known_is_not_asked_for():
    made = [progress(n, took_ms=3_000, latest=offsets(n, backlog=50_000)) for n in NUMBERS]
    found = judged(made, pause_ms=2)

    assert [text[:22] for text in found.verdict.would_decide] == ["the trigger's interval"]


def test_a_backlog_that_grows_is_told_in_the_sentence():
    made = [progress(n, took_ms=3_000, latest=offsets(n, backlog=50_000 + 500 * (n - 60))) for n in NUMBERS]

    assert "The backlog at the sources is 64500, +500 a batch" in judged(made, pause_ms=2).verdict.sentence
