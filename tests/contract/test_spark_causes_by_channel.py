"""What one channel alone decides: a driver knows jobs and no phases, rows or state, and a listener knows no jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.analysis.queries.causes import found_causes
from backend.analysis.queries.facts import facts_of
from backend.analysis.queries.micro_batches import report
from backend.analysis.verdict.verdict import diagnose
from backend.domain.batch_work import BatchWork, StageWork
from backend.domain.micro_batch import MicroBatch
from tests.support.made_up_queries import events, evidence_of, operator, progress

NUMBERS = range(60, 86)
SKEWED = BatchWork(
    job_count=1,
    stage_count=1,
    jobs_ms=3_600,
    stages=(
        StageWork(
            7, 0, "start", 200, duration_ms=3_500, task_median_ms=130, task_max_ms=3_400, rows_median=5_000,
            rows_max=900_000,
        ),
    ),
)  # fmt: skip
IN_DRIVER = BatchWork(job_count=1, stage_count=1, jobs_ms=450, stages=(StageWork(7, 0, "start", 2, duration_ms=400),))
COMPACTING = [progress(n, took_ms=38_000 if n % 10 == 9 else 10_000 + 40 * (n * 7 % 5), sink="FileSink[file:/out]",
                       source="FileStreamSource[file:/in]", rows=1_000) for n in NUMBERS]  # fmt: skip
UNCLEANED = [progress(n, took_ms=4_000, state=operator(9_000 * (n - 50)), rows=9_000) for n in NUMBERS]
STEADY = [progress(n, took_ms=4_000, rows=1_000_000) for n in NUMBERS]


def read(posted, *, by_driver: bool, work: BatchWork | None = None, interval_ms: int | None = 3_000):
    """The evidence as a driver or a listener gives it. ``work`` is what the driver knows of each batch."""
    found = evidence_of(events(posted, pause_ms=5 if interval_ms else 500), interval_ms=interval_ms)
    if not by_driver:
        return found
    kept = (
        replace(c, header=replace(c.header, full_state_size_bytes=None), batch=MicroBatch(work=work))
        for c in found.checkpoints
    )
    return replace(found, checkpoints=tuple(kept), config=None)


def names(found) -> set[str]:
    return {c.name for c in found_causes(facts_of(found.checkpoints, report(found.checkpoints, found.config)))}


@pytest.mark.parametrize(
    ("posted", "work", "name", "knows"),
    [
        (UNCLEANED, None, "uncleaned-state", "listener"),
        (STEADY, SKEWED, "one-task", "driver"),
        (STEADY, IN_DRIVER, "outside-jobs", "driver"),
    ],
)
def test_a_cause_is_found_by_the_channel_that_knows_it_and_by_no_other(posted, work, name, knows):
    assert (name in names(read(posted, by_driver=True, work=work))) is (knows == "driver")
    assert (name in names(read(posted, by_driver=False))) is (knows == "listener")


def test_which_log_is_compacted_is_not_decided_by_a_driver_and_it_says_what_would_decide():
    by_listener = diagnose(read(COMPACTING, by_driver=False, interval_ms=None)).verdict
    by_driver = diagnose(read(COMPACTING, by_driver=True, interval_ms=None)).verdict

    assert (by_listener.kind, by_driver.kind) == ("store", "undecided")
    assert by_driver.sentence.startswith("Every 10th batch takes 38.0 s instead of 10.1 s")
    assert any("N.compact" in text for text in by_driver.would_decide)
    assert any(row.metric == "batchDuration" for row in by_driver.evidence)


@pytest.mark.parametrize(("work", "kind"), [(SKEWED, "skew"), (IN_DRIVER, "undecided")])
def test_what_the_jobs_show_has_one_sentence_and_evidence(work, kind):
    verdict = diagnose(read(STEADY, by_driver=True, work=work)).verdict

    assert verdict.kind == kind
    assert verdict.sentence.count(". ") <= 1
    assert any(row.metric in ("task duration", "time outside Spark jobs") for row in verdict.evidence)


def test_a_query_without_any_of_it_is_said_to_be_not_decided():
    verdict = diagnose(read(UNCLEANED, by_driver=True)).verdict

    assert verdict.kind == "undecided"
    assert verdict.would_decide
