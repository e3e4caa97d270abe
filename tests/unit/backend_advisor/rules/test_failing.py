"""Tests of R-TO, R-TOL and R-RET: the timeout, the tolerated failures and the retained checkpoints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.advisor.advice import NoAdvice, Recommendation
from backend.advisor.rules.failing import advise_timeout, failovers_per_day
from backend.advisor.situation import situation
from backend.domain.advice import Metric, Topic
from backend.domain.engines import flink
from backend.domain.failure import FailureReason
from backend.domain.verdict import VerdictKind
from tests.support.advised_jobs import EXACTLY_ONCE, advised, expected, expired_run, on, readings
from tests.support.handwritten_jobs import START, failed, job, quick

IDLE = readings(held=0.0, busy=0.3)
TOLERANT = replace(EXACTLY_ONCE, tolerable_failed_count=1)
KEPT = (("execution.checkpointing.num-retained", "1"),)


def run(took_ms=900, failures=(), reason=FailureReason.EXPIRED, count=10, after_ms=600_000):
    return [
        failed(n, reason=reason, after_ms=after_ms) if n in failures else quick(n, took_ms) for n in range(1, count + 1)
    ]


# --- R-TO-1 ---


@pytest.mark.parametrize(("timeout_ms", "speaks"), [(2_600, True), (2_700, False), (60_000, False)])
def test_r_to_1_raises_a_timeout_below_three_times_the_longest_duration(timeout_ms, speaks):
    config = replace(EXACTLY_ONCE, interval_ms=2_500, timeout_ms=timeout_ms)
    found = on(Topic.TIMEOUT, advised(run(), IDLE, config=config))

    assert isinstance(found, Recommendation) is speaks, found
    if speaks:
        assert found.proposed.timeout_ms == 5_000
        assert expected(found, Metric.EXPIRED).predicted.value == 0.0
        assert expected(found, Metric.EXPIRED).predicted.high > 0.0


@pytest.mark.parametrize(("timeout_ms", "words"), [(10_000, " times the longest"), (3_600_000, "more than 100 times")])
def test_a_timeout_with_much_room_is_not_compared_to_four_digits(timeout_ms, words):
    found = on(Topic.TIMEOUT, advised(run(), IDLE, config=replace(EXACTLY_ONCE, timeout_ms=timeout_ms)))
    assert words in found.reason


def test_r_to_1_lowers_a_timeout_that_held_a_stuck_checkpoint():
    found = on(Topic.TIMEOUT, advised(run(failures=(4,)), IDLE))

    assert isinstance(found, Recommendation), found
    assert found.proposed.timeout_ms == 10_000
    assert found.kind == "timeout/lower"
    assert found.unpredicted


def test_r_to_1_never_raises_the_timeout_of_checkpoints_that_expire():
    most = on(Topic.TIMEOUT, advised(expired_run(), IDLE, config=replace(EXACTLY_ONCE, timeout_ms=3_000)))
    some = run(failures=(4,), after_ms=3_000)
    few = on(Topic.TIMEOUT, advised(some, IDLE, config=replace(EXACTLY_ONCE, timeout_ms=3_000)))

    assert "would not remove the cause" in most.reason
    assert "find the cause before" in few.reason


def test_a_timeout_is_not_lowered_if_the_checkpoints_after_the_expired_ones_did_not_complete():
    """A new attempt would not have completed, so a shorter timeout only makes more of them fail."""
    lasting = on(Topic.TIMEOUT, advised(run(failures=(9, 10)), IDLE))
    passing = on(Topic.TIMEOUT, advised(run(failures=(4, 9)), IDLE))

    assert isinstance(lasting, NoAdvice)
    assert "no checkpoint completed next" in lasting.reason
    assert passing.kind == "timeout/lower"


@pytest.mark.parametrize("kind", [VerdictKind.CALLBACK, VerdictKind.COMMIT])
def test_a_timeout_must_cover_the_longest_piece_of_work_so_it_is_not_lowered(kind):
    evidence = job(run(failures=(4, 9)), IDLE, config=EXACTLY_ONCE)
    known = situation(evidence, engine=flink("1.20.5"), version="1.20.5")
    verdict = replace(known.diagnosis.verdict, kind=kind)
    found = advise_timeout(replace(known, diagnosis=replace(known.diagnosis, verdict=verdict)))

    assert advise_timeout(known).kind == "timeout/lower"
    assert isinstance(found, NoAdvice)
    assert "cover the work that the verdict names" in found.reason


def test_a_lowered_timeout_stays_above_the_interval():
    config = replace(EXACTLY_ONCE, interval_ms=60_000)
    found = on(Topic.TIMEOUT, advised(run(failures=(4,)), IDLE, config=config))

    assert found.proposed.timeout_ms >= 60_000


# --- R-TOL ---


def test_more_tolerated_failures_restart_the_job_less_often():
    rates = [failovers_per_day(1_000, 0.1, n) for n in range(4)]
    assert rates == sorted(rates, reverse=True)
    # Without tolerance, every failed checkpoint restarts the job.
    assert rates[0] == pytest.approx(1_000 * 0.1)


def test_failures_one_after_the_other_up_to_now_are_not_by_chance():
    config = replace(TOLERANT, tolerable_failed_count=0, timeout_ms=10_000)
    lasting = run(failures=(9, 10), reason=FailureReason.DECLINED, after_ms=20)
    found = on(Topic.TOLERANCE, advised(lasting, IDLE, config=config))

    assert isinstance(found, NoAdvice)
    assert "the newest 2 checkpoints failed one after the other" in found.reason


def test_r_tol_1_proposes_the_smallest_number_within_the_budget():
    config = replace(TOLERANT, tolerable_failed_count=0, timeout_ms=10_000)
    advice = advised(run(failures=(4,), reason=FailureReason.DECLINED, after_ms=20), IDLE, config=config)
    found = on(Topic.TOLERANCE, advice)

    assert isinstance(found, Recommendation), found
    after = expected(found, Metric.FAILOVERS).predicted
    assert after.low <= after.value <= 0.033 < expected(found, Metric.FAILOVERS).before
    assert failovers_per_day(17_280, 0.1, found.proposed.tolerable_failed_count - 1) > 0.033
    assert [lint.code for lint in advice.lints if lint.code == "tolerable-0"] == []


def test_r_tol_1_bounds_the_number_by_the_input_to_replay():
    config = replace(TOLERANT, timeout_ms=1_200_000)
    found = on(
        Topic.TOLERANCE, advised(run(failures=(4,), reason=FailureReason.DECLINED, after_ms=20), IDLE, config=config)
    )

    assert isinstance(found, NoAdvice)
    assert "shorten the timeout first" in found.reason


@pytest.mark.parametrize(
    ("config", "failures", "words"),
    [
        (EXACTLY_ONCE, (4,), "not known"),
        (replace(EXACTLY_ONCE, tolerable_failed_count=2**31 - 1), (4,), "any number of failures is tolerated"),
        (TOLERANT, (), "failed in a way that counts"),
        (replace(TOLERANT, tolerable_failed_count=9), (4,), "9 tolerable failures suffice"),
        (TOLERANT, (1, 2, 4, 5, 7, 8), "which is not by chance"),
    ],
)
def test_r_tol_1_gives_the_reason_for_no_other_number(config, failures, words):
    found = on(
        Topic.TOLERANCE,
        advised(run(failures=failures, reason=FailureReason.DECLINED, after_ms=20), IDLE, config=config),
    )

    assert isinstance(found, NoAdvice), found
    assert words in found.reason


def test_r_tol_2_does_not_count_failures_that_the_engine_does_not_count():
    some = run(failures=(4, 6), reason=FailureReason.NOT_ALL_TASKS_RUNNING, after_ms=20)
    assert "in a way that counts" in on(Topic.TOLERANCE, advised(some, IDLE, config=TOLERANT)).reason


# --- R-RET-1 ---


def test_r_ret_1_keeps_a_second_checkpoint_of_a_job_that_restarts():
    advice = advised(run(), IDLE, cluster_settings=KEPT, exceptions=((START, "lost"),), restart_count=1)
    found = on(Topic.RETENTION, advice)

    assert isinstance(found, Recommendation), found
    assert found.proposed.retained_count == 2
    assert found.how_to.lines == ("execution.checkpointing.num-retained: 2",)
    assert "retained-1" not in {lint.code for lint in advice.lints}


def test_r_ret_1_leaves_it_to_the_lint_if_the_job_never_restarted():
    advice = advised(run(), IDLE, cluster_settings=KEPT)

    assert isinstance(on(Topic.RETENTION, advice), NoAdvice)
    assert "retained-1" in {lint.code for lint in advice.lints}
    assert "does not report" in on(Topic.RETENTION, advised(run(), IDLE)).reason
    three = (("execution.checkpointing.num-retained", "3"),)
    restarted = advised(run(), IDLE, cluster_settings=three, restart_count=1)
    assert "3 checkpoints are kept" in on(Topic.RETENTION, restarted).reason


def test_the_key_of_the_retained_checkpoints_depends_on_the_version():
    found = on(Topic.RETENTION, advised(run(), IDLE, version="1.18.1", cluster_settings=KEPT, restart_count=1))
    assert found.how_to.lines == ("state.checkpoints.num-retained: 2",)
