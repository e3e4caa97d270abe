"""What a failure would read again: now by Flink's rule, and at a random moment against a small simulation."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.analysis.measures.replay_debt import Cadence, RunFacts, debt_of
from backend.domain.checkpoint import (
    CheckpointConfig,
    CheckpointCounts,
    CheckpointHeader,
    CheckpointKind,
    CheckpointStatus,
)
from backend.domain.engines import flink
from backend.domain.replay_debt import DebtOrigin

START = datetime(2026, 11, 29, 8, 0, tzinfo=UTC)
NONE = CheckpointCounts(restored=0, total=0, in_progress=0, completed=0, failed=0)


def header(
    number: int,
    *,
    status: CheckpointStatus = CheckpointStatus.COMPLETED,
    kind: CheckpointKind = CheckpointKind.CHECKPOINT,
) -> CheckpointHeader:
    return CheckpointHeader(
        checkpoint_id=number, kind=kind, status=status, triggered_at=START + timedelta(minutes=number)
    )


def facts(**changes: object) -> RunFacts:
    return replace(RunFacts(started_at=START, counts=NONE), **changes)


# --- now --------------------------------------------------------------------------------------------------------------


def test_a_failure_restores_the_newest_completed_checkpoint_and_no_failed_or_open_one():
    failed, opened = header(3, status=CheckpointStatus.FAILED), header(4, status=CheckpointStatus.IN_PROGRESS)
    found = debt_of(facts(headers=(header(1), header(2), failed, opened)))

    assert found is not None
    assert (found.origin, found.checkpoint_id, found.is_at_least) == (DebtOrigin.CHECKPOINT, 2, False)
    assert found.age_ms(START + timedelta(minutes=37)) == 35 * 60_000


@pytest.mark.parametrize("kind", [CheckpointKind.SAVEPOINT, CheckpointKind.SYNC_SAVEPOINT])
def test_a_younger_savepoint_does_not_count_because_flink_restores_the_checkpoint(kind):
    found = debt_of(facts(headers=(header(1), header(2, kind=kind))))

    assert found is not None
    assert found.checkpoint_id == 1
    assert facts(headers=(header(2, kind=kind),)).newest is None


@pytest.mark.parametrize(("version", "restored"), [("1.13.6", 2), ("1.14.6", 2), ("1.15.4", 1), ("2.3.0", 1)])
def test_before_1_15_flink_restores_a_younger_savepoint(version, restored):
    run = facts(headers=(header(1), header(2, kind=CheckpointKind.SAVEPOINT)))
    found = debt_of(replace(run, restores_savepoints=flink(version).restores_savepoints))

    assert found is not None
    assert found.checkpoint_id == restored


def test_the_newest_completed_checkpoint_that_the_engine_reports_counts_if_the_history_has_dropped_it():
    counts = replace(NONE, completed=1, newest_completed_id=7, newest_triggered_at=START + timedelta(minutes=7))
    failed = header(8, status=CheckpointStatus.FAILED)
    found, younger = (
        debt_of(facts(counts=counts, headers=(failed,))),
        debt_of(facts(counts=counts, headers=(header(9),))),
    )

    assert found is not None
    assert younger is not None
    assert (found.origin, found.checkpoint_id, found.is_at_least) == (DebtOrigin.CHECKPOINT, 7, False)
    assert younger.checkpoint_id == 9


def test_a_run_that_was_started_from_a_savepoint_replays_at_least_what_it_read_since():
    counts = replace(NONE, restored=1, restored_at=START + timedelta(seconds=5))
    found = debt_of(facts(counts=counts))

    assert found is not None
    assert (found.origin, found.since, found.is_at_least) == (
        DebtOrigin.RESTORED,
        START + timedelta(seconds=5),
        True,
    )
    assert debt_of(facts(counts=replace(counts, restored_at=None))) is None


def test_a_run_that_was_restored_from_nothing_begins_again():
    found = debt_of(facts(counts=replace(NONE, total=7, failed=7)))

    assert found is not None
    assert (found.origin, found.since, found.is_at_least) == (DebtOrigin.START, START, False)


def test_a_checkpoint_that_completed_before_the_first_known_one_is_older_than_that_one():
    counts = replace(NONE, completed=4, restored=1, restored_at=START)
    found = debt_of(facts(counts=counts, headers=(header(60, status=CheckpointStatus.FAILED),)))

    assert found is not None
    assert (found.origin, found.since, found.is_at_least) == (DebtOrigin.UNSEEN, START + timedelta(hours=1), True)
    assert debt_of(facts(counts=counts)) is None


def test_nothing_is_claimed_of_a_job_without_checkpoints_or_without_counters():
    assert debt_of(facts(config=CheckpointConfig(is_off=True))) is None
    assert debt_of(facts(counts=None)) is None


def test_an_engine_whose_clock_is_behind_gives_no_negative_age():
    found = debt_of(facts(headers=(header(0),)))

    assert found is not None
    assert found.age_ms(START - timedelta(seconds=3)) == 0


# --- at a random moment -----------------------------------------------------------------------------------------------


def even(completed_ratio: float) -> Cadence:
    return Cadence(completed_ratio=completed_ratio, period_ms=1000.0, failed_period_ms=1000.0)


def test_if_every_checkpoint_completes_a_random_moment_is_half_an_interval_after_the_newest():
    assert even(1.0).mean_wait_ms() == 500.0
    assert [even(1.0).wait_quantile_ms(q) for q in (0.0, 0.5, 1.0)] == [0.0, 500.0, 1000.0]


@pytest.mark.parametrize(("share", "intervals"), [(0.5, 1.5), (0.1, 9.5), (0.9, 1 / 0.9 - 0.5)])
def test_if_a_share_completes_the_mean_is_one_over_the_share_minus_a_half_intervals(share, intervals):
    assert even(share).mean_wait_ms() == pytest.approx(intervals * 1000.0)


def test_if_none_completes_the_age_grows_without_end():
    assert even(0.0).is_endless
    assert even(0.0).mean_wait_ms() is None
    assert even(0.0).wait_quantile_ms(0.95) is None


def test_the_largest_age_of_all_moments_is_endless_as_soon_as_one_checkpoint_may_fail():
    assert even(0.99).wait_quantile_ms(1.0) is None


def simulated(cadence: Cadence, rnd: Random, moments: int) -> list[float]:
    """Return the time since the newest completion at random moments of a long row of checkpoints."""
    completions, at = [0.0], 0.0
    for _ in range(moments):
        while rnd.random() >= cadence.completed_ratio:
            at += cadence.failed_period_ms
        at += cadence.period_ms
        completions.append(at)
    drawn = sorted(rnd.uniform(0.0, at) for _ in range(moments))
    waits, index = [], 0
    for moment in drawn:
        while completions[index + 1] <= moment:
            index += 1
        waits.append(moment - completions[index])
    return sorted(waits)


@given(
    share=st.floats(0.1, 1.0),
    held_back=st.floats(1.0, 10.0),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=25, deadline=None)
def test_the_mean_and_the_tail_are_those_of_simulated_checkpoints(share, held_back, seed):
    cadence = Cadence(completed_ratio=share, period_ms=1000.0, failed_period_ms=1000.0 * held_back)
    waits = simulated(cadence, Random(seed), 20_000)
    mean = sum(waits) / len(waits)

    assert cadence.mean_wait_ms() == pytest.approx(mean, rel=0.1), f"seed {seed}"
    for q in (0.05, 0.5, 0.9, 0.95):
        expected = cadence.wait_quantile_ms(q)
        assert expected is not None
        # Compared as shares: where the density is low, a small share is a long time.
        below = sum(w <= expected for w in waits) / len(waits)
        assert below == pytest.approx(q, abs=0.03), f"seed {seed}, quantile {q}"


@given(share=st.floats(0.05, 0.99), better=st.floats(0.0, 1.0))
@settings(max_examples=100, deadline=None)
def test_the_more_checkpoints_complete_the_less_a_failure_replays(share, better):
    more = share + (1 - share) * better
    worse_mean, better_mean = even(share).mean_wait_ms(), even(more).mean_wait_ms()
    worse_tail, better_tail = even(share).wait_quantile_ms(0.95), even(more).wait_quantile_ms(0.95)

    assert None not in (worse_mean, better_mean, worse_tail, better_tail)
    assert better_mean <= worse_mean + 1e-6
    assert better_tail <= worse_tail + 1e-6
