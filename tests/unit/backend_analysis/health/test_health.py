"""Tests of a job's health: healthy, slow, failing, or unknown because there are too few checkpoints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.analysis.health.health import report
from backend.domain.checkpoint import CheckpointConfig, CheckpointKind
from backend.domain.failure import FailureReason
from backend.domain.verdict import Health
from tests.support.handwritten_jobs import ALIGNED, LAST, completed, detail, failed, in_progress


def taking(*durations_ms):
    return [completed(n, detail(LAST, first=[ms])) for n, ms in enumerate(durations_ms, start=1)]


@pytest.mark.parametrize(
    ("durations", "health"),
    [
        ((50, 60, 55), Health.HEALTHY),
        ((2_400, 2_450, 2_400), Health.HEALTHY),
        ((2_600, 2_600, 2_600), Health.SLOW),
        ((50, 60), Health.TOO_FEW),
        ((), Health.TOO_FEW),
    ],
)
def test_half_of_the_interval_is_slow(durations, health):
    assert report(taking(*durations), ALIGNED).health is health


def compacting(every=5, took_ms=1_500, size=6_000_000, count=25, start=1):
    """Return checkpoints of which each n-th writes more and takes longer."""
    found = []
    for number in range(start, start + count):
        is_large = number % every == 0
        checkpoint = completed(number, detail(LAST, first=[took_ms if is_large else 250]))
        header = replace(checkpoint.header, checkpointed_size_bytes=size if is_large else 1_000_000)
        found.append(replace(checkpoint, header=header))
    return found


def test_compaction_at_every_fifth_checkpoint_is_healthy():
    found = report(compacting(), ALIGNED)

    assert (found.health, found.struck) == (Health.HEALTHY, ())


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(compacting(took_ms=2_600), id="slow by itself"),
        pytest.param(compacting(size=1_000_000), id="longer, and no larger"),
        pytest.param(compacting(took_ms=2_400, size=1_600_000), id="longer than in proportion"),
        pytest.param([*compacting(count=12), *compacting(every=4, count=13, start=13)], id="at no regular distance"),
    ],
)
def test_what_is_not_just_larger_at_every_nth_checkpoint_is_intermittent(run):
    assert report(run, ALIGNED).health is Health.INTERMITTENT


def test_a_third_of_a_short_timeout_is_slow():
    config = CheckpointConfig(interval_ms=60_000, timeout_ms=9_000)

    assert report(taking(3_100, 3_100, 3_100), config).health is Health.SLOW
    assert report(taking(2_900, 2_900, 2_900), config).health is Health.HEALTHY


def test_below_a_second_nothing_is_slow_even_with_a_short_interval():
    config = CheckpointConfig(interval_ms=100, timeout_ms=600_000)

    assert report(taking(900, 900, 900), config).health is Health.HEALTHY


def test_a_barrier_that_travels_ten_seconds_is_slow_even_if_the_interval_is_an_hour():
    config = CheckpointConfig(interval_ms=3_600_000, timeout_ms=3_600_000)

    assert report(taking(11_000, 11_000, 11_000), config).health is Health.SLOW


def test_one_failure_in_ten_is_not_failing_but_two_are():
    good = taking(*[50] * 10)

    assert report([*good[:9], *good[9:], failed(11)][-10:], ALIGNED).health is Health.HEALTHY
    assert report([*good[:4], failed(5), *good[5:8], failed(9), good[9]], ALIGNED).health is Health.FAILING


def test_two_failures_in_a_row_are_failing_even_after_many_successes():
    assert report([*taking(*[50] * 20), failed(21), failed(22)], ALIGNED).health is Health.FAILING


def test_an_abort_by_the_user_is_no_failure_and_a_suspension_by_restarts_is():
    suspended = [failed(n, reason=FailureReason.COORDINATOR_SUSPENDED) for n in (4, 5)]

    assert report([*taking(50, 50, 50), *suspended], ALIGNED).health is Health.HEALTHY
    assert report([*taking(50, 50, 50), *suspended], ALIGNED, has_restarts=True).health is Health.FAILING


def test_savepoints_and_open_checkpoints_are_left_out():
    slow = completed(9, detail(LAST, first=[60_000]))
    savepoint = replace(slow, header=replace(slow.header, kind=CheckpointKind.SAVEPOINT))
    found = report([*taking(50, 50, 50), savepoint, in_progress(10, detail(LAST, first=[None]))], ALIGNED)

    assert (found.health, found.judged_count, found.duration_median_ms) == (Health.HEALTHY, 3, 50)


def test_without_settings_only_failures_and_travel_time_count():
    assert report(taking(5_000, 5_000, 5_000), None).health is Health.HEALTHY
    assert report([failed(1), failed(2)], None).health is Health.FAILING
