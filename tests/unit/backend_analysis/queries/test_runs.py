"""Tests of a query that ends with an error again and again, and of two runs of it that are active at the same time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.analysis.measures.evidence import OtherRun
from backend.analysis.verdict.verdict import diagnose
from tests.support.made_up_queries import NOW, ended, events, evidence_of, progress

CONFLICT = (
    "io.delta.exceptions.ConcurrentAppendException: Files were added to the root of the table by a concurrent update."
)
COMMIT = "org.apache.iceberg.exceptions.CommitFailedException: Requirement failed: branch main has changed"
OTHER = "java.lang.IllegalStateException: something"


def run(began_min, ended_min=None, error=None, *, heard_min=None):
    """Return another run. The times are minutes before the present run began."""
    began, end = NOW - timedelta(minutes=began_min), ended_min and NOW - timedelta(minutes=ended_min)
    heard = NOW - timedelta(minutes=heard_min) if heard_min is not None else end or began
    return OtherRun(began, heard, end, error)


def running(*others, count=10, after_min=3):
    evidence = evidence_of(events([progress(n, took_ms=900) for n in range(40, 40 + count)]))
    return diagnose(replace(evidence, other_runs=others, now=NOW + timedelta(minutes=after_min), started_at=NOW))


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([run(10, 1, CONFLICT), run(20, 11, CONFLICT), run(30, 21, CONFLICT)], "conflict with another writer"),
        ([run(10, 1, COMMIT), run(300, 12, COMMIT)], "conflict with another writer"),
        ([run(10, 1, COMMIT), run(20, 11, CONFLICT)], "conflict with another writer"),
        ([run(5, 1, OTHER), run(12, 7, OTHER), run(20, 14, "ValueError: row 62")], "The newest error"),
        ([run(9, 2, "batch 12 doesn't exist"), run(12, 10, "batch 12 doesn't exist")], "batch 12 is missing"),
    ],
)
def test_a_query_that_ends_again_and_again_is_restarting_with_the_error_explained(others, said):
    found = running(*others)

    assert (found.health, found.verdict.kind) == ("restarting", "restarts")
    assert f"ended with an error {len(others)} times within" in found.verdict.sentence
    assert said in found.verdict.sentence
    assert "lacks capacity" not in str(found.verdict)


def test_the_same_error_each_time_is_said_to_be_the_same_and_has_its_cure():
    found = running(run(10, 1, CONFLICT), run(20, 11, CONFLICT), run(30, 21, CONFLICT))

    assert "each time with the same error" in found.verdict.sentence
    said = [e.statement for e in found.verdict.evidence]
    assert any("name the partition" in text for text in said)
    assert any("what does not help: a restart" in text for text in said)


def test_a_query_that_just_failed_once_more_is_failing_and_says_how_often():
    evidence = evidence_of(ended(events([progress(n, took_ms=900) for n in range(10)]), CONFLICT))
    found = diagnose(replace(evidence, other_runs=(run(10, 1, CONFLICT), run(20, 11, CONFLICT))))

    assert found.health == "failing"
    assert "conflict with another writer" in found.verdict.sentence
    assert "ended with an error 3 times within" in found.verdict.sentence


@pytest.mark.parametrize(
    ("others", "after_min"),
    [
        # One error is an incident.
        ([run(10, 1, CONFLICT)], 3),
        # Runs that ended by themselves or were stopped.
        ([run(10, 9), run(20, 19), run(30, 29)], 3),
        # Different errors far apart.
        ([run(100, 60, OTHER), run(300, 200, CONFLICT), run(900, 600, OTHER)], 3),
        # The query has run for long since.
        ([run(10, 1, CONFLICT), run(20, 11, CONFLICT), run(30, 21, CONFLICT)], 90),
        ([], 3),
    ],
)
def test_ends_that_are_no_pattern_or_are_over_are_not_told(others, after_min):
    found = running(*others, after_min=after_min)

    assert (found.health, found.verdict.kind) == ("healthy", "none")


def test_two_runs_that_report_at_the_same_time_share_a_checkpoint_folder():
    found = running(run(10, heard_min=-3), count=100)

    assert (found.health, found.verdict.kind) == ("intermittent", "store")
    assert "Two runs of the query are active at the same time" in found.verdict.sentence
    assert "same checkpoint folder" in found.verdict.sentence


SILENT = replace(run(10, heard_min=-3), is_silent=True)


@pytest.mark.parametrize("other", [run(10, heard_min=0.5), run(10, 2), run(10, heard_min=-0.2), run(10, -1), SILENT])
def test_a_run_that_ended_or_fell_silent_before_is_not_active_beside(other):
    found = running(other, count=100)

    assert found.health == "healthy"


def test_an_error_that_only_the_table_of_messages_knows_is_explained_by_it():
    text = "org.apache.kafka.common.errors.RecordTooLargeException: The message is 2000000 bytes when serialized"
    found = diagnose(evidence_of(ended(events([progress(n, took_ms=900) for n in range(14, 20)]), text)))

    assert found.health == "failing"
    assert "ended in batch 20 with org.apache.kafka" in found.verdict.sentence


def busy(*others, began_min=0):
    """Judge a run of 3 minutes that never pauses, with a backlog that stays; it began ``began_min`` minutes before."""
    latest = {"endOffset": {"orders": {"0": 1_000}}, "latestOffset": {"orders": {"0": 90_000}}}
    made = [progress(n, took_ms=9_000, latest=latest) for n in range(40, 60)]
    began_at = NOW - timedelta(minutes=began_min)
    return diagnose(replace(evidence_of(events(made, pause_ms=2)), other_runs=others, started_at=began_at))


def every_hour(count, *, took_min):
    """Return runs of ``took_min`` minutes that ended 50 minutes, 110 minutes and so on before the present one."""
    return [run(50 + 60 * n + took_min, 50 + 60 * n) for n in range(count)]


def test_a_query_that_is_started_from_time_to_time_and_ends_by_itself_need_not_pause():
    assert busy(*every_hour(2, took_min=10)).health == "healthy"
    assert busy(*every_hour(9, took_min=1)).health == "healthy"


@pytest.mark.parametrize(
    ("others", "began_min"),
    [
        ([], 0),
        (every_hour(1, took_min=10), 0),
        # Two deployments of a query that runs always: today, and some weeks ago.
        ([run(28_800, 14_400), run(43_200, 28_800)], 0),
        ([run(14_500, 100), run(98, 5)], 0),
        (every_hour(3, took_min=600), 0),
        # Short runs, as of a test, before one that has run for hours.
        ([run(612, 610), run(609, 607), run(606, 604)], 600),
        ([run(5_010, 5_000), run(9_010, 9_000), run(20, 10)], 0),
    ],
)
def test_runs_that_are_long_or_long_ago_are_no_reason_for_a_query_to_be_busy(others, began_min):
    found = busy(*others, began_min=began_min)

    assert (found.health, found.verdict.kind) == ("slow", "capacity")


def test_a_run_under_another_name_is_named_and_its_errors_are_not_those_of_the_query():
    other = replace(run(10, heard_min=-3), query="clicks-copy")
    found = running(other, count=100)
    assert "The query and clicks-copy are active at the same time and use the same checkpoint folder" in (
        found.verdict.sentence
    )

    failed = [replace(run(10 * n, 10 * n - 9, CONFLICT), query="clicks-copy") for n in (1, 2, 3)]
    assert running(*failed).health == "healthy"
