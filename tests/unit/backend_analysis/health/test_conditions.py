"""Tests of intermittent causes: which jobs have one, what explains the struck checkpoints, and when it strikes."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from backend.analysis.health.conditions import rate_around, rate_at
from backend.analysis.verdict.verdict import diagnose
from backend.domain.checkpoint import Checkpoint, CheckpointKind
from backend.domain.verdict import Health, Phase, VerdictKind
from tests.support.handwritten_jobs import SOURCE, START, job, quick, reading
from tests.support.handwritten_runs import CALM, snapshotting


def mixed(struck, count=12, sync=4_000):
    return [snapshotting(n, sync=sync if n in struck else 30) for n in range(1, count + 1)]


def test_a_cause_that_strikes_some_checkpoints_is_found_by_what_differs_in_them():
    found = diagnose(job(mixed({2, 3, 7, 10}), CALM))

    assert found.health is Health.INTERMITTENT
    verdict = found.verdict
    assert (verdict.kind, verdict.vertex, verdict.phase) == (VerdictKind.SYNC, "last", Phase.SYNC)
    assert verdict.sentence.startswith(
        "4 of the last 12 checkpoints took 4.0 s (the others: 50 ms) because the sync part"
    )
    assert verdict.intermittence is not None
    assert (verdict.intermittence.struck_count, verdict.intermittence.checkpoint_count) == (4, 12)
    assert verdict.intermittence.since == START + timedelta(seconds=10)
    assert verdict.intermittence.condition is None


@pytest.mark.parametrize("struck", [{7}, {3, 4, 5}, {11, 12}, {1, 3}])
def test_a_single_incident_leaves_the_job_healthy(struck):
    found = diagnose(job(mixed(struck), CALM))

    assert (found.health, found.verdict.kind) == (Health.HEALTHY, VerdictKind.NONE)
    assert found.verdict.intermittence is None


def test_two_thirds_struck_are_slow_and_judged_by_the_struck_ones():
    found = diagnose(job(mixed({1, 2, 4, 5, 7, 8, 10, 11}), CALM))

    assert (found.health, found.verdict.kind) == (Health.SLOW, VerdictKind.SYNC)
    assert found.verdict.intermittence is not None


def _assert_says(verdict, words):
    """Assert that the sentence states the condition, and that no text has two marks in a row or ends with one."""
    assert f", {words}, because " in verdict.sentence
    for text in (verdict.sentence, verdict.headline, verdict.detail):
        assert not re.search(r"[,;:] *[,;:.(]|[,;:]$", text), text


@pytest.mark.parametrize(
    ("struck", "words"), [({1, 4, 7, 10}, "every third time"), ({2, 4, 6, 8, 10, 12}, "every second time")]
)
def test_a_cause_that_strikes_every_nth_checkpoint_says_so(struck, words):
    verdict = diagnose(job(mixed(struck), CALM)).verdict

    assert verdict.intermittence is not None
    assert verdict.intermittence.condition == words
    _assert_says(verdict, words)


STRUCK = {2, 3, 7, 10}


def test_checkpoints_that_write_more_when_they_are_long_say_so():
    run = [
        replace(
            c, header=replace(c.header, checkpointed_size_bytes=9_000 if c.header.checkpoint_id in STRUCK else 3_000)
        )
        for c in mixed(STRUCK)
    ]

    verdict = diagnose(job(run, CALM)).verdict
    assert verdict.intermittence is not None
    assert verdict.intermittence.condition == "whenever a checkpoint writes 3.0 times as much"


def emitted(struck, times):
    """Build a reading of the source for each second. It emits more in the second before a struck checkpoint."""
    found, total = [], 0
    for second in range(66):
        total += 100 * (times if any(5 * n - 4 <= second <= 5 * n for n in struck) else 1)
        found.append(replace(reading(SOURCE, [0.1] * 4, at_s=second), records_out_count=(total,) * 4))
    return found


def test_a_cause_that_strikes_when_more_input_comes_says_so():
    verdict = diagnose(job(mixed(STRUCK), [*emitted(STRUCK, 2), *CALM[2:]])).verdict
    assert verdict.intermittence is not None
    assert verdict.intermittence.condition == "whenever the input doubles"

    others = diagnose(job(mixed(STRUCK), [*emitted({1, 5, 7}, 2), *CALM[2:]])).verdict
    assert others.intermittence is not None
    assert others.intermittence.condition is None


@pytest.mark.parametrize(
    ("times", "words"),
    [(3, "whenever the input is 3.0 times as high"), (999, "whenever input arrives after a time with nearly none")],
)
def test_the_input_at_which_a_cause_strikes_is_put_into_words(times, words):
    verdict = diagnose(job(mixed(STRUCK), [*emitted(STRUCK, times), *CALM[2:]])).verdict
    assert verdict.intermittence is not None
    assert verdict.intermittence.condition == words
    _assert_says(verdict, words)


def test_rates_of_far_readings_are_those_around_a_checkpoint_but_separate_no_checkpoints():
    """Of quick checkpoints next to a struck one, they contain the input that struck it."""
    checkpoint = quick(4, every_s=10)

    def rates(*ends_s):
        ends = [checkpoint.header.triggered_at + timedelta(seconds=s) for s in ends_s]
        return [(a, b, float(10 * n)) for n, (a, b) in enumerate(pairwise(ends), 1)]

    assert rate_at(checkpoint, rates(-7, -3, 7)) == rate_around(checkpoint, rates(-7, -3, 7)) == 10.0
    assert rate_at(checkpoint, rates(-13, -3, 7)) is None
    assert rate_around(checkpoint, rates(-13, -3, 7)) == 20.0
    # Readings may be far apart if their middle is near the trigger, or if a quarter of their time is.
    assert rate_around(checkpoint, rates(-32, 28)) == 10.0
    long = replace(checkpoint, header=replace(checkpoint.header, end_to_end_duration_ms=9_000))
    assert rate_around(long, rates(-35, 5)) == 10.0
    assert rate_around(long, rates(-36, 5)) is None
    # A gap between readings, and readings that cover too little.
    assert rate_around(checkpoint, rates(-40, 20)) is None
    assert rate_around(checkpoint, rates(-12, -3)) is None


def test_a_cause_that_strikes_after_restarts_says_so():
    broken = tuple((START + timedelta(seconds=5 * n - 1), "java.io.IOException: gone") for n in (2, 7, 10))
    run = mixed({2, 7, 10})

    verdict = diagnose(job(run, CALM, exceptions=broken, restart_count=3)).verdict
    assert "each time after a restart" in verdict.sentence or verdict.kind is VerdictKind.RESTARTS


def _savepoint_before(checkpoint, number):
    header = replace(
        checkpoint.header,
        checkpoint_id=number,
        kind=CheckpointKind.SAVEPOINT,
        triggered_at=checkpoint.header.triggered_at - timedelta(seconds=2),
        end_to_end_duration_ms=500,
    )
    return Checkpoint(header)


@pytest.mark.parametrize(("large", "words"), [(True, ", writing 6.0 times as much"), (False, "")])
def test_a_cause_that_strikes_after_savepoints_says_so(large, words):
    run = []
    for n, checkpoint in enumerate(mixed({2, 7, 10}), start=1):
        is_struck = n in {2, 7, 10}
        if is_struck:
            run.append(_savepoint_before(checkpoint, 100 + n))
        size = 6_000_000 if is_struck and large else 1_000_000
        run.append(replace(checkpoint, header=replace(checkpoint.header, checkpointed_size_bytes=size)))

    _assert_says(diagnose(job(run, CALM)).verdict, f"each time after a savepoint{words}")


def test_savepoints_after_which_checkpoints_stay_quick_are_no_condition():
    run = []
    for n, checkpoint in enumerate(mixed({3, 6, 11}), start=1):
        if n in {2, 4, 8, 10}:
            run.append(_savepoint_before(checkpoint, 100 + n))
        run.append(checkpoint)

    assert "savepoint" not in diagnose(job(run, CALM)).verdict.sentence


def test_a_healthy_job_says_what_takes_the_time():
    verdict = diagnose(job([snapshotting(n, sync=380) for n in range(1, 9)], CALM)).verdict

    assert verdict.kind is VerdictKind.NONE
    assert verdict.sentence.endswith("; 95 % of the 400 ms of checkpoint 8 is the sync part of last subtask 0.")
    assert "%" not in diagnose(job([quick(n) for n in range(1, 9)], CALM)).verdict.sentence.partition("; ")[2]
