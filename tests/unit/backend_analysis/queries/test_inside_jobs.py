"""Tests of the causes that Spark jobs and stages show, against their neighbours, with drawn variants."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from backend.analysis.queries.causes import found_causes
from backend.analysis.queries.facts import facts_of
from backend.analysis.queries.micro_batches import report
from backend.analysis.verdict.verdict import checkpoint_verdict, diagnose
from backend.domain.batch_work import BatchWork, StageWork
from tests.support.made_up_queries import events, evidence_of, progress

NUMBERS = range(60, 86)
MB = 2**20


def stage(**changed) -> StageWork:
    """A stage of 200 even tasks that takes 3.5 s."""
    made = StageWork(
        stage_id=7, attempt=0, name="start", task_count=200, failed_task_count=0, duration_ms=3_500, task_median_ms=130,
        task_max_ms=200, rows_median=5_000, rows_max=5_400, run_ms=26_000, gc_ms=300, memory_spill_bytes=0,
        disk_spill_bytes=0, input_bytes=0, shuffle_read_bytes=60 * MB, shuffle_write_bytes=0,
    )  # fmt: skip
    return replace(made, **changed)


def work(*stages: StageWork, jobs_ms: int | None = 3_600) -> BatchWork:
    return BatchWork("app-1", None, 40, (11,), 1, len(stages), jobs_ms, stages)


SKEWED = work(stage(task_max_ms=3_400, rows_max=900_000))
COSTLY = work(stage(task_max_ms=3_400))
UNKNOWN = work(stage(task_max_ms=3_400, rows_median=None, rows_max=None))
SPILLING = work(stage(disk_spill_bytes=900 * MB, memory_spill_bytes=4_000 * MB))
GARBAGE = work(stage(gc_ms=11_000))
IN_DRIVER = work(stage(duration_ms=400), jobs_ms=450)
EVEN = work(stage())


def evidence(
    known: Callable[[int], BatchWork | None],
    *,
    took_ms: int | Callable[[int], int] = 4_000,
    interval_ms: int = 3_000,
):
    """A query whose batches follow each other, or come at the interval. ``known`` returns what a batch did."""
    took = took_ms if callable(took_ms) else lambda number: took_ms
    made = [progress(n, took_ms=took(n), rows=1_000_000) for n in NUMBERS]
    at = {"pause_ms": 5} if max(map(took, NUMBERS)) > interval_ms else {"every_ms": interval_ms}
    found = evidence_of(events(made, **at), interval_ms=interval_ms)
    checkpoints = tuple(
        replace(c, batch=replace(c.batch, work=known(c.header.checkpoint_id))) for c in found.checkpoints if c.batch
    )
    return replace(found, checkpoints=checkpoints)


def some(of: BatchWork, every: int = 6):
    return lambda number: of if number % every == 0 else None


def names(found) -> list[str]:
    return [c.name for c in found_causes(facts_of(found.checkpoints, report(found.checkpoints, found.config)))]


def test_one_task_with_most_rows_is_skew_with_high_confidence():
    found = diagnose(evidence(some(SKEWED))).verdict
    assert (found.kind, found.confidence) == ("skew", "high")
    assert "One of 200 tasks of stage 7 takes 3.4 s of the 4.0 s of batch 84, the median task 130 ms" in found.sentence
    assert "one task reads 900\u202f000 rows, the median one 5\u202f000" in found.sentence
    assert any("more executors" in e.statement for e in found.evidence if e.metric == "no cure")


def test_with_two_batches_the_confidence_is_medium():
    found = diagnose(evidence(lambda n: SKEWED if n in (75, 80) else None)).verdict
    assert (found.kind, found.confidence) == ("skew", "medium")


def test_one_slow_task_with_the_rows_of_the_others_is_a_straggler():
    found = diagnose(evidence(some(COSTLY))).verdict
    assert (found.kind, found.confidence) == ("straggler", "medium")
    assert "its executor is slow, or some rows cost more" in found.sentence
    assert any("on which executor" in text for text in found.would_decide)


def test_one_slow_task_whose_rows_are_not_reported_is_not_decided():
    found = diagnose(evidence(some(UNKNOWN))).verdict
    assert (found.kind, found.confidence) == ("undecided", "medium")
    assert "whether by its rows or by its executor is not decided" in found.sentence


@pytest.mark.parametrize(
    "of",
    [
        stage(task_median_ms=5, task_max_ms=3_400, rows_median=0, rows_max=2),
        stage(task_median_ms=50, task_max_ms=3_400, rows_median=5_000, rows_max=10_000),
        stage(task_count=3, task_median_ms=500, task_max_ms=3_400, rows_median=10, rows_max=20),
        stage(task_median_ms=900, task_max_ms=3_400, rows_median=10, rows_max=999),
        stage(task_median_ms=100, task_max_ms=3_400, rows_median=1_000, rows_max=16_900),
    ],
)
def test_rows_that_do_not_explain_the_time_are_no_skew(of):
    found = diagnose(evidence(some(work(of)))).verdict
    assert (found.kind, found.confidence) == ("undecided", "medium")
    assert found.headline == "One task takes most of the batch"
    assert any("rows in the median, and at most" in e.statement for e in found.evidence)


@pytest.mark.parametrize(
    "of",
    [
        stage(task_median_ms=900, task_max_ms=3_400, rows_median=10, rows_max=1_000),
        stage(task_median_ms=100, task_max_ms=3_400, rows_median=1_000, rows_max=17_000),
    ],
)
def test_rows_just_above_a_limit_are_skew(of):
    found = diagnose(evidence(some(work(of)))).verdict
    assert (found.kind, found.confidence) == ("skew", "high")
    assert found.headline == "One task takes most of the batch, because it has most rows"


def test_rows_between_even_and_uneven_decide_nothing():
    found = diagnose(evidence(some(work(stage(task_max_ms=3_400, rows_max=8_000))))).verdict
    assert found.kind == "undecided"


@pytest.mark.parametrize(
    ("of", "name"),
    [
        (SKEWED, "one-task"),
        (SPILLING, "spill"),
        (GARBAGE, "garbage-collection"),
        (IN_DRIVER, "outside-jobs"),
        (EVEN, None),
    ],
)
def test_each_is_told_from_its_neighbours(of, name):
    assert names(evidence(some(of))) == ([] if name is None else [name])


def test_a_query_of_which_no_job_is_known_lacks_capacity_as_before():
    known, unknown = diagnose(evidence(some(EVEN))), diagnose(evidence(lambda n: None))
    assert known == unknown
    assert known.verdict.kind == "capacity"


@pytest.mark.parametrize(
    "of",
    [
        work(stage(task_max_ms=380)),  # below three times the median
        work(stage(task_max_ms=2_000, rows_max=900_000)),  # less than half of the batch beyond the median
        work(stage(task_count=1, task_max_ms=3_400, task_median_ms=3_400, rows_max=900_000)),
        work(stage(disk_spill_bytes=63 * MB)),
        work(stage(disk_spill_bytes=900 * MB, duration_ms=1_900)),
        work(stage(gc_ms=5_000)),
        work(stage(gc_ms=11_000), jobs_ms=1_900),
        work(stage(gc_ms=11_000, run_ms=0)),
        work(stage(), jobs_ms=None),
        work(stage(), jobs_ms=2_100),
    ],
)
def test_below_a_limit_nothing_is_named(of):
    assert names(evidence(some(of))) == []


def test_what_no_longer_shows_in_the_newest_batch_or_in_half_of_them_is_not_named():
    assert names(evidence(lambda n: SKEWED if n < 80 else EVEN)) == []
    assert names(evidence(lambda n: SKEWED if n in (85, 70) else EVEN if n % 2 else None)) == []


@pytest.mark.parametrize("of", [SKEWED, SPILLING, GARBAGE, IN_DRIVER])
def test_one_batch_or_old_ones_decide_nothing_for_the_query(of):
    without = diagnose(evidence(lambda n: None))
    assert diagnose(evidence(lambda n: of if n == 62 else None)) == without
    assert diagnose(evidence(lambda n: of if n == 85 else None)) == without
    assert diagnose(evidence(lambda n: of if n in (62, 66, 72) else None)) == without
    assert names(evidence(lambda n: of if n in (62, 73) else None))


@pytest.mark.parametrize("of", [SKEWED, SPILLING, GARBAGE, IN_DRIVER])
def test_batches_that_are_slower_than_the_others_do_not_say_why_those_are_slow(of):
    slow = (64, 71, 79, 84)
    found = evidence(lambda n: of if n in slow else None, took_ms=lambda n: 4_000 if n in slow else 2_660)
    assert names(found) == []
    assert names(evidence(lambda n: of if n in slow else None, took_ms=lambda n: 4_000 if n in slow else 2_670))


def test_if_the_newest_batches_all_take_longer_they_stand_for_the_query():
    found = evidence(
        lambda n: SKEWED if n > 81 else None, took_ms=lambda n: 4_000 if n > 81 else 3_100 if n % 2 else 2_000
    )
    assert "one-task" in names(found)


def test_time_in_the_driver_is_named_and_planning_is_not_counted_to_it():
    found = diagnose(evidence(some(IN_DRIVER))).verdict
    assert "no Spark job of it runs" in found.sentence
    assert (found.kind, found.confidence) == ("undecided", "medium")
    made = [progress(n, took_ms=4_000, parts_ms={"queryPlanning": 3_000, "addBatch": 600}) for n in NUMBERS]
    planning = evidence_of(events(made, pause_ms=5), interval_ms=3_000)
    batches = tuple(replace(c, batch=replace(c.batch, work=IN_DRIVER)) for c in planning.checkpoints if c.batch)
    assert "outside-jobs" not in names(replace(planning, checkpoints=batches))


def test_a_query_that_keeps_up_stays_healthy_and_the_note_is_said():
    found = diagnose(evidence(some(SKEWED), interval_ms=10_000))
    assert found.health == "healthy"
    assert found.verdict.kind == "none"
    assert "One of 200 tasks" in found.verdict.sentence


def test_the_verdict_on_a_batch_uses_its_own_jobs():
    found = evidence(lambda n: SKEWED if n == 84 else EVEN if n % 2 else None)
    by_number = {c.header.checkpoint_id: c for c in found.checkpoints}
    assert "tasks of stage 7" in checkpoint_verdict(by_number[84], found).sentence
    assert "tasks of stage 7" not in checkpoint_verdict(by_number[85], found).sentence


@pytest.mark.parametrize("seed", range(40))
def test_drawn_queries_with_an_uneven_stage_are_skewed(seed):
    rng = random.Random(seed)
    took = round(2_000 * 10 ** rng.uniform(0, 2))
    median_ms = round(took * rng.uniform(0.001, 0.1))
    task_max_ms = round(median_ms + took * rng.uniform(0.55, 0.85))
    rows = rng.randrange(1, 100_000)
    rows_median = rows if rng.random() < 0.8 else 0
    # A task has a part of its time for whatever rows, so the rows are further apart than the times.
    rows_max = max(1_000, round(rows * rng.uniform(1, 50) * task_max_ms / max(1, median_ms)))
    count = rng.choice([2, 3, 8, 200, 2_000])
    lone = stage(
        task_count=count, duration_ms=round(0.9 * took), task_median_ms=median_ms,
        task_max_ms=task_max_ms, rows_median=rows_median, rows_max=rows_max, run_ms=3 * took,
        gc_ms=round(took * rng.uniform(0, 0.3)),
    )  # fmt: skip
    of = work(
        stage(duration_ms=round(0.05 * took), task_max_ms=30, task_median_ms=20), lone, jobs_ms=round(0.95 * took)
    )
    found = diagnose(evidence(some(of, rng.choice([1, 3, 6])), took_ms=took, interval_ms=round(took * 0.7))).verdict
    assert (found.kind, found.confidence) == ("skew", "high"), seed


@pytest.mark.parametrize("seed", range(40))
def test_drawn_queries_with_even_stages_are_not(seed):
    rng = random.Random(1_000 + seed)
    took = round(2_000 * 10 ** rng.uniform(0, 2))
    median_ms = round(took * rng.uniform(0.01, 0.8))
    of = work(
        stage(
            task_count=rng.choice([2, 8, 200]), duration_ms=round(0.9 * took), task_median_ms=median_ms,
            task_max_ms=round(median_ms * rng.uniform(1, 2.9)), rows_max=round(5_000 * rng.uniform(1, 300)),
            gc_ms=round(26_000 * rng.uniform(0, 0.19)), disk_spill_bytes=rng.randrange(64 * MB),
        ),
        jobs_ms=round(took * rng.uniform(0.55, 0.97)),
    )  # fmt: skip
    found = evidence(some(of, rng.choice([1, 3, 6])), took_ms=took, interval_ms=round(took * 0.7))
    assert names(found) == [], seed
    assert diagnose(found).verdict.kind == "capacity"
