"""Tests of R-REC-1: whether a checkpoint completes between two failures, and what that limits."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.advisor.advice import Interval, NoAdvice, Recommendation
from backend.advisor.rules.spiral import conditions, growth, until_next_checkpoint_ms
from backend.advisor.situation import situation
from backend.domain.checkpoint import CheckpointKind, CheckpointStatus
from backend.domain.engines import RUNTIME
from tests.support.advised_jobs import (
    UNALIGNED,
    advised,
    in_flight_of,
    persisting,
    readings,
    recommended,
    slow_run,
)
from tests.support.handwritten_jobs import START, job, quick


def failing_every(seconds):
    """Return the exceptions of a job that fails every ``seconds``."""
    return tuple((START - timedelta(seconds=seconds * n), "lost") for n in reversed(range(9)))


def test_the_next_checkpoint_needs_the_restart_the_restore_the_replay_and_its_own_duration():
    found = until_next_checkpoint_ms(Interval(1_000, 500, 2_000), Interval(4_000, 2_000, 8_000), 10_000)

    assert found == Interval(3_000 + 4_000 + 5_000 + 2_000, 1_000 + 2_000 + 1_000, 15_000 + 8_000 + 10_000 + 4_000)


@pytest.mark.parametrize(("seconds", "is_met"), [(600, True), (5, False)])
def test_r_rec_1_is_a_condition_of_unaligned_checkpoints_if_the_failures_are_known(seconds, is_met):
    found = recommended(advised(slow_run(), exceptions=failing_every(seconds)))
    (condition,) = [p for p in found.preconditions if "between two failures" in p.text]

    assert condition.is_met is is_met
    assert ("now it fails every 5.0 s" in condition.text) is not is_met
    assert not any("between two failures" in p.text for p in recommended(advised(slow_run())).preconditions)


@pytest.mark.parametrize(("seconds", "speaks"), [(60, False), (11, True)])
def test_r_rec_1_limits_in_flight_data_whose_restore_leaves_no_time_for_a_checkpoint(seconds, speaks):
    """Reading and processing 24 MB takes 7 s, less than the ten seconds that R-CAP-1 allows."""
    config = replace(UNALIGNED, timeout_ms=60_000)
    run = [persisting(quick(n, 50), 2_000_000, 600) for n in range(1, 9)]
    known = readings(rate_bytes_per_s=1_000_000)
    found = in_flight_of(advised(run, known, config=config, engine=RUNTIME, exceptions=failing_every(seconds)))

    assert isinstance(found, Recommendation) is speaks, found
    if speaks:
        assert found.rules == ("R-CAP-1", "R-REC-1")
        assert "fails again before it has completed a checkpoint" in found.reason


def test_a_limit_does_not_help_a_job_that_fails_too_often_without_in_flight_data():
    config = replace(UNALIGNED, timeout_ms=60_000)
    known = readings(rate_bytes_per_s=1_000_000)

    def found(bytes_, seconds):
        run = [persisting(quick(n, 50), bytes_, 600) for n in range(1, 9)]
        return in_flight_of(advised(run, known, config=config, engine=RUNTIME, exceptions=failing_every(seconds)))

    small = found(2_000_000, 4)
    assert isinstance(small, NoAdvice)
    assert small.rule == "R-REC-1"
    assert "fails every 4.0 s, too often for a checkpoint even without in-flight data" in small.reason
    # Too much in-flight data is limited all the same, and the risks say that this does not suffice.
    large = found(8_000_000, 4)
    assert large.rules == ("R-CAP-1",)
    assert "it does not suffice: the job fails every 4.0 s" in large.risks[-1]
    assert not any("suffice" in risk for risk in found(8_000_000, 600).risks)
    # How often the job fails is not known.
    unknown = in_flight_of(
        advised([persisting(quick(n, 50), 2_000_000, 600) for n in range(1, 9)], known, config=config)
    )
    assert isinstance(unknown, NoAdvice)
    assert unknown.rule == "R-CAP-1"


def test_unaligned_checkpoints_of_a_job_that_fails_too_often_for_any_are_not_cured_by_less_in_flight_data():
    def condition(seconds):
        found = recommended(advised(slow_run(), exceptions=failing_every(seconds)))
        return next(p.text for p in found.preconditions if "between two failures" in p.text)

    assert condition(3).endswith("now it fails every 3.0 s: add capacity or cure the failures")


def restarting(sizes, *, per_restart=2):
    """Return checkpoints and restarts: after every few checkpoints, the job restarts from one with this much data."""
    run, failures = [], []
    for number, subtask_bytes in enumerate(sizes):
        for i in range(per_restart):
            n = number * per_restart + i + 1
            run.append(persisting(quick(n, 50), subtask_bytes if i == per_restart - 1 else 100_000))
        failures.append((run[-1].header.triggered_at + timedelta(seconds=3), "lost"))
    return run, tuple(failures)


def limited(sizes, *, per_restart=2):
    run, failures = restarting(sizes, per_restart=per_restart)
    config = replace(UNALIGNED, timeout_ms=60_000)
    known = readings(rate_bytes_per_s=100_000_000)
    return in_flight_of(advised(run, known, config=config, engine=RUNTIME, exceptions=failures))


def test_r_rec_1_limits_in_flight_data_that_grows_from_restore_to_restore():
    found = limited([200_000, 260_000, 340_000, 450_000])

    assert isinstance(found, Recommendation), found
    assert found.rules == ("R-CAP-1", "R-REC-1")
    assert "it grew from 2.4 MB to 5.4 MB over 4 restores" in found.reason
    # Down to what the first of these restores read.
    assert found.proposed.inflight_cap_bytes == 200_000
    (row,) = [e for e in found.evidence if "newest restore" in e.statement]
    assert (row.value, row.checkpoint_ids) == (5_400_000, (2, 4, 6, 8))


@pytest.mark.parametrize("per_restart", [4, 5])
def test_r_rec_1_finds_growth_over_more_checkpoints_than_those_that_the_other_rules_judge(per_restart):
    sizes = [200_000, 260_000, 340_000, 450_000, 600_000]
    run, failures = restarting(sizes, per_restart=per_restart)
    known = situation(job(run, readings(), config=UNALIGNED, exceptions=failures), engine=RUNTIME, version=None)

    found = growth(known)
    assert found is not None
    assert found.checkpoint_ids == tuple(per_restart * n for n in range(1, 6))
    assert limited(sizes, per_restart=per_restart).rules == ("R-CAP-1", "R-REC-1")


def test_growth_under_earlier_settings_does_not_count():
    run, failures = restarting([200_000, 260_000, 340_000, 450_000], per_restart=4)
    evidence = job(run, readings(), config=UNALIGNED, exceptions=failures)

    def found(first):
        return growth(situation(evidence, engine=RUNTIME, version=None, settings_since=run[first].header.triggered_at))

    assert found(3) is not None
    assert found(4) is None


@pytest.mark.parametrize(
    "change",
    [
        {"kind": CheckpointKind.SAVEPOINT},
        {"status": CheckpointStatus.FAILED},
        {"status": CheckpointStatus.IN_PROGRESS, "end_to_end_duration_ms": None},
    ],
)
def test_savepoints_and_checkpoints_that_did_not_complete_are_not_restored(change):
    run, failures = restarting([200_000, 260_000, 340_000, 450_000], per_restart=4)
    run[7] = replace(run[7], header=replace(run[7].header, **change))

    evidence = job(run, readings(), config=UNALIGNED, exceptions=failures)
    assert growth(situation(evidence, engine=RUNTIME, version=None)) is None


@pytest.mark.parametrize(
    "sizes",
    [
        # Three restores, one step that is too small, one that falls, and no growth.
        [200_000, 260_000, 340_000],
        [200_000, 260_000, 320_000, 450_000],
        [200_000, 300_000, 250_000, 450_000, 600_000],
        [450_000, 340_000, 260_000, 200_000],
        [200_000] * 5,
    ],
)
def test_in_flight_data_that_grows_over_few_restores_or_by_little_is_not_limited(sizes):
    found = limited(sizes)

    assert isinstance(found, NoAdvice), found.reason
    assert "within the limits" in found.reason


def test_a_checkpoint_from_which_the_job_restarts_twice_is_restored_once():
    run, failures = restarting([200_000, 260_000, 340_000])
    twice = tuple((at + timedelta(milliseconds=10), why) for at, why in failures)
    known = situation(
        job(run, readings(), config=UNALIGNED, exceptions=(*failures, *twice)), engine=RUNTIME, version=None
    )

    assert growth(known) is None


def test_growing_in_flight_data_is_a_condition_of_unaligned_checkpoints():
    run, failures = restarting([200_000, 260_000, 340_000, 450_000])
    evidence = job(run, readings(), config=UNALIGNED, exceptions=failures)
    known = situation(evidence, engine=RUNTIME, version=None)
    (grows, *_) = conditions(known, Interval(50, 50, 50), None, None)

    assert not grows.is_met
    assert "it grew from 2.4 MB to 5.4 MB over 4 restores: limit the in-flight data" in grows.text
