"""Tests of what grows: state that is never cleaned, and batches of the same rows that take longer and longer."""

from __future__ import annotations

from datetime import timedelta

import pytest

from backend.advisor import advise
from backend.analysis.verdict.verdict import diagnose
from backend.domain.engines import SPARK
from tests.support.made_up_queries import NOW, events, evidence_of, operator, progress

NUMBERS = range(60, 90)
FALSE = "lacks capacity for its input"


def judged(made, *, every_ms=None, interval_ms=None, pause_ms=500):
    return diagnose(evidence_of(events(made, every_ms=every_ms, pause_ms=pause_ms), interval_ms=interval_ms))


def longer(part="addBatch", *, first=30_000, step=7_000, numbers=NUMBERS, rows=lambda _: 100_000, **more):
    """Return batches of which each takes ``step`` ms longer than the one before, in ``part``."""
    found = []
    for i, n in enumerate(numbers):
        parts = {part: 500 + step * i} if part != "addBatch" else {}
        found.append(progress(n, took_ms=first + step * i, rows=rows(i), parts_ms=parts, **more))
    return found


@pytest.mark.parametrize(
    ("made", "kind", "said"),
    [
        (longer(sink="TableSink", source="TableSource"), "growth", "the table's metadata"),
        (longer(sink="DeltaSink[/t]", first=2_000, step=200), "growth", "the table's metadata"),
        (longer(sink="ForeachBatchSink", first=8_000, step=2_000, numbers=range(4_000, 4_012)), "growth", "merges"),
        (longer(sink="hudi", rows=lambda i: 90_000 + 5_000 * (i % 3)), "growth", "an index"),
        (
            longer("latestOffset", source="FileStreamSource[s3://in]", first=3_000, step=400),
            "late-input",
            "input folder",
        ),
        (longer("latestOffset", source="DeltaSource[s3://t]", first=3_000, step=400), "late-input", "commits"),
        (longer("queryPlanning", first=3_000, step=400), "growth", "planning takes longer"),
        (longer("walCommit", first=3_000, step=400), "store", "writing the checkpoint log takes longer"),
    ],
)
def test_batches_of_the_same_rows_that_grow_have_what_grows_as_their_cause(made, kind, said):
    found = judged(made, pause_ms=20)

    assert (found.health, found.verdict.kind) == ("slow", kind)
    assert "grew from" in found.verdict.sentence
    assert said in found.verdict.sentence
    assert FALSE not in str(found.verdict)
    assert any("more executors" in e.statement for e in found.verdict.evidence if e.metric == "no cure")


def test_what_grows_outside_the_phases_is_decided_by_the_time_of_the_spark_jobs():
    found = judged(longer(sink="TableSink"))

    assert "which one, is not decided" in found.verdict.sentence.lower()
    assert "Spark jobs" in found.verdict.would_decide[0]


def test_durations_that_wander_upwards_are_called_growth_with_a_low_confidence():
    wandering = [progress(n, took_ms=8_000 + 600 * i + 3_000 * (n % 3), rows=5_000) for i, n in enumerate(NUMBERS)]

    assert judged(wandering).verdict.confidence == "low"
    assert judged(longer(sink="TableSink")).verdict.confidence == "medium"


@pytest.mark.parametrize(
    "made",
    [
        # Rows that grow as the batches do: a backlog that spirals.
        longer(rows=lambda i: 10_000 + 2_400 * i),
        # A jump to a higher level, which stays.
        [progress(n, took_ms=9_000 if n < 75 else 25_000, rows=5_000 + n % 7) for n in NUMBERS],
        # Durations that go up and down.
        [progress(n, took_ms=9_000 + 9_000 * (n % 4), rows=5_000) for n in NUMBERS],
        # A start that is slow, and then steady.
        [progress(n, took_ms=max(3_000, 20_000 - 4_000 * i), rows=5_000) for i, n in enumerate(range(20))],
        # A growth of some hundred milliseconds.
        longer(first=300, step=25),
    ],
)
def test_batches_that_do_not_grow_by_themselves_are_not_said_to_grow(made):
    assert "longer and longer" not in (judged(made).verdict.headline or "")


def test_a_query_at_capacity_with_steady_batches_lacks_capacity():
    made = [progress(n, took_ms=12_000 + 30 * (n % 5), rows=400_000) for n in NUMBERS]
    found = judged(made, interval_ms=5_000)

    assert (found.verdict.kind, FALSE in found.verdict.sentence) == ("capacity", True)


def test_a_backlog_that_spirals_is_told_by_its_rows():
    made = [progress(n, took_ms=int(2_000 * 1.5**i), rows=int(8_000 * 1.5**i)) for i, n in enumerate(range(60, 70))]
    found = judged(made)

    assert found.verdict.kind == "capacity"
    assert "Each batch reads what came during the one before it" in found.verdict.sentence


# --- state ---


def stateful(
    *, first=1_000_000, step=300_000, added=None, removed=0, took=lambda i: 4_000, moved=None,
    lag=timedelta(minutes=10), numbers=NUMBERS, every_s=30, name="stateStoreSave",
):  # fmt: skip
    """Return batches of which each adds ``step`` rows to the state and moves the watermark by ``moved``."""
    found = []
    for i, n in enumerate(numbers):
        watermark = None if moved is None else NOW - lag + i * moved
        rows = first + (step * i if added is None else int(added(i)))
        state = operator(rows, removed=removed, name=name, numRowsUpdated=step)
        found.append(progress(n, took_ms=took(i), rows=90_000, state=state, watermark=watermark))
    return events(found, every_ms=every_s * 1_000)


def of(posted, interval_ms=30_000):
    return diagnose(evidence_of(posted, interval_ms=interval_ms))


STEP = timedelta(seconds=30)


@pytest.mark.parametrize(
    ("posted", "said"),
    [
        (stateful(), "the query reports no watermark"),
        (stateful(took=lambda i: 4_000 + 170 * i), "the query reports no watermark"),
        (stateful(first=5_000, step=900, name="dedupe"), "the query reports no watermark"),
        (stateful(moved=timedelta(0), every_s=120), "the watermark stands still at"),
        (stateful(first=90_000_000, step=20_000, moved=STEP), "the watermark moves"),
        (stateful(moved=timedelta(hours=2)), "the watermark is set on another column"),
        (stateful(first=9_000_000, step=60_000, moved=STEP, name="symmetricHashJoin"), "the watermark moves"),
    ],
)
def test_state_that_is_never_cleaned_is_told_with_its_watermark(posted, said):
    found = of(posted)

    assert "The state grew from" in str(found.verdict)
    assert "no row was removed" in str(found.verdict)
    assert said in str(found.verdict)
    assert FALSE not in str(found.verdict)


def test_state_without_a_watermark_is_a_cause_and_gets_no_advice_that_only_delays_it():
    evidence = evidence_of(stateful(took=lambda i: 4_000 + 170 * i), interval_ms=30_000)
    found = diagnose(evidence)
    advice = advise(evidence, engine=SPARK, version="3.5.1", diagnosis=found)

    assert (found.health, found.verdict.kind, found.verdict.headline) == (
        "healthy",
        "growth",
        "The state is never cleaned",
    )
    assert advice.recommendations == ()
    assert any("the state" in s.reason for s in advice.silences)


def test_state_that_makes_a_query_late_is_its_cause_and_not_its_input():
    found = of(stateful(took=lambda i: 15_000 + 1_500 * i), interval_ms=20_000)

    assert (found.health, found.verdict.kind) == ("slow", "growth")
    assert "The query is behind. The state grew from" in found.verdict.sentence


def test_state_that_is_never_cleaned_is_the_cause_of_a_query_that_is_busy_all_the_time():
    made = [progress(n, took_ms=2_000, rows=500, state=operator(1_000 * n)) for n in NUMBERS]
    found = judged(made, pause_ms=2)

    assert (found.health, found.verdict.kind) == ("healthy", "growth")
    assert "whether it keeps up with its input is not known. The state" in found.verdict.sentence
    assert "the trigger's interval" in " ".join(found.verdict.would_decide)


def test_state_under_a_watermark_that_moves_is_not_decided_before_a_day():
    found = of(stateful(moved=STEP))

    assert (found.health, found.verdict.kind) == ("healthy", "none")
    assert "state" not in found.verdict.sentence
    assert any("another column" in text for text in found.verdict.would_decide)


@pytest.mark.parametrize(
    "posted",
    [
        # Rows are removed, and others come.
        stateful(removed=40_000, moved=STEP),
        # The state does not grow.
        stateful(step=0),
        # The keys are nearly all known: the growth ends.
        stateful(first=1_000_000, added=lambda i: 60_000 * (1 - 0.8**i)),
        stateful(first=100, step=10),
        # Windows that end: the state falls again and again.
        events([progress(n, took_ms=900, state=operator(5_000 + 1_000 * (n % 6), removed=6_000 * (n % 6 == 0)))
                for n in NUMBERS]),
    ],
)  # fmt: skip
def test_state_that_is_cleaned_or_bounded_is_not_said_to_grow(posted):
    found = of(posted)

    assert (found.health, found.verdict.kind) == ("healthy", "none")
    assert "The state grew" not in str(found.verdict)


def test_rows_that_are_not_reported_as_removed_are_not_taken_for_none():
    found = of(stateful(removed=None, moved=STEP))

    assert found.verdict.kind == "none"
    assert "no row was removed" not in str(found.verdict)
    assert any("numRowsRemoved" in text for text in found.verdict.would_decide)


def minutely(every_s, step=100):
    """Return batches whose watermark stands still, because event times are cut, while a window of minutes fills."""
    return stateful(first=5_000, step=step, moved=timedelta(0), every_s=every_s, took=lambda i: 300)


@pytest.mark.parametrize("every_s", [1, 20, 60])
def test_a_watermark_that_stands_for_less_than_half_an_hour_is_not_said_to_be_held(every_s):
    found = of(minutely(every_s), interval_ms=every_s * 1_000)

    assert (found.health, found.verdict.kind) == ("healthy", "none")
    assert "never cleaned" not in str(found.verdict)
    assert "multipleWatermarkPolicy" not in str(found.verdict)
    assert any("cut to the same minute" in text for text in found.verdict.would_decide)


@pytest.mark.parametrize(("every_s", "confidence"), [(90, "medium"), (300, "high")])
def test_a_watermark_that_stands_still_is_only_sure_after_two_hours(every_s, confidence):
    found = of(minutely(every_s, step=500), interval_ms=every_s * 1_000)

    assert (found.verdict.headline, found.verdict.confidence) == ("The state is never cleaned", confidence)


@pytest.mark.parametrize("source_count", [1, 2])
def test_the_policy_of_several_watermarks_is_named_only_with_several_sources_and_with_its_risk(source_count):
    posted = stateful(moved=timedelta(0), every_s=300)
    for event in posted:
        event["progress"]["sources"] *= source_count
    found = of(posted, interval_ms=300_000)
    cures = [e.statement for e in found.verdict.evidence if e.metric == "cure"]

    assert found.verdict.kind == "growth"
    assert [("dropped as late" in c) for c in cures if "multipleWatermarkPolicy" in c] == [True] * (source_count - 1)


@pytest.mark.parametrize(
    "posted",
    [
        # The removal of duplicates with a watermark of seven days, on its second day.
        stateful(first=14_400_000, step=5_000, moved=timedelta(minutes=1), lag=timedelta(days=7), every_s=60,
                 name="dedupe"),
        # A window of twelve hours in its tenth, when less comes than before.
        stateful(first=2_400_000, step=250, moved=timedelta(minutes=1), lag=timedelta(hours=2), every_s=60),
        stateful(first=3_000_000, step=1_500, moved=timedelta(minutes=1), lag=timedelta(hours=2), every_s=60),
    ],
)  # fmt: skip
def test_a_long_window_that_is_not_over_is_not_called_uncleaned_for_its_many_rows(posted):
    found = of(posted, interval_ms=60_000)

    assert (found.health, found.verdict.kind) == ("healthy", "none")
    assert "never cleaned" not in str(found.verdict)
    assert "the state does not follow it" not in str(found.verdict)


def test_a_watermark_that_moved_by_more_than_a_day_leaves_open_that_the_window_is_longer():
    found = of(stateful(moved=timedelta(hours=2)))

    assert (found.verdict.kind, found.verdict.headline, found.verdict.confidence) == (
        "growth",
        "The state grows",
        "low",
    )
    assert "Unless the window or the delay is longer" in found.verdict.sentence


def test_the_watermark_that_spark_reports_before_the_first_event_time_has_not_moved_by_decades():
    posted = stateful(moved=STEP, numbers=range(60, 80))
    for event in posted[:4]:
        event["progress"]["eventTime"]["watermark"] = "1970-01-01T00:00:00.000Z"

    assert "another column" not in of(posted).verdict.sentence
    assert "another column" in of(stateful(moved=timedelta(hours=2), numbers=range(60, 80))).verdict.sentence


@pytest.mark.parametrize("moved", [None, timedelta(0)])
def test_without_a_watermark_that_moves_no_row_is_removed_even_if_the_number_is_not_reported(moved):
    found = of(stateful(removed=None, moved=moved, every_s=120))

    assert found.verdict.kind == "growth"
    assert "how many rows were removed is not reported" in found.verdict.sentence
    assert "watermark" in found.verdict.sentence


def test_an_own_function_that_keeps_state_may_have_timeouts():
    found = of(stateful(name="flatMapGroupsWithState"))

    assert found.verdict.kind == "none"
    assert any("timeouts of the function" in text for text in found.verdict.would_decide)
