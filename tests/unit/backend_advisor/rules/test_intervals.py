"""Tests of R-INT: when another interval or a pause is advised, and the optimum of Young and Daly."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.advisor import advise
from backend.advisor.advice import NoAdvice, Recommendation
from backend.advisor.rules.intervals import best_interval_ms, transaction_timeout_ms
from backend.analysis.verdict.verdict import diagnose
from backend.domain.advice import Metric, Topic
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.engines import RUNTIME, flink
from backend.domain.verdict import VerdictKind
from tests.support.advised_jobs import EXACTLY_ONCE, advised, expected, expired_run, on, readings, slow_run, writing
from tests.support.handwritten_jobs import MIDDLE, START, completed, detail, job

IDLE = readings(held=0.0, busy=0.3)


def taking(*durations_ms, every_s=5.0):
    return [writing(n, ms, every_s=every_s) for n, ms in enumerate(durations_ms, start=1)]


def interval_of(advice):
    return on(Topic.INTERVAL, advice)


def pause_of(advice):
    return on(Topic.MIN_PAUSE, advice)


# --- R-INT-3 and R-INT-5 ---


@pytest.mark.parametrize(("took_ms", "speaks"), [(2_400, False), (2_500, False), (2_600, True), (4_600, True)])
def test_r_int_3_raises_the_interval_if_checkpoints_run_for_more_than_half_of_the_time(took_ms, speaks):
    advice = advised(taking(*[took_ms] * 8), IDLE)
    found = interval_of(advice)

    assert isinstance(found, Recommendation) is speaks, found
    if speaks:
        assert found.rules == ("R-INT-3",)
        assert found.proposed.interval_ms == 10_000
        assert [(c.key, c.current, c.proposed) for c in found.changes] == [
            ("execution.checkpointing.interval", "5000 ms", "10000 ms")
        ]
        after = expected(found, Metric.OPEN_RATIO)
        assert after.before == pytest.approx(took_ms / 5_000, abs=0.01)
        assert after.predicted.value == pytest.approx(took_ms / 10_000)
        assert isinstance(pause_of(advice), NoAdvice)
        assert any("transactional sinks wait" in p.text for p in found.preconditions)
        assert any("interval during a backlog" in risk for risk in found.risks)


def test_the_time_to_recover_is_predicted_if_nothing_holds_the_job_back():
    found = interval_of(advised(taking(*[4_600] * 8), IDLE))
    recovery = expected(found, Metric.RECOVERY)

    # Half of 10 s and 4.6 s of input, and a restart of 3 s; a third of the time is busy, so half of that to catch up.
    assert recovery.predicted.value == pytest.approx(3_000 + (3_000 + 5_000 + 4_600) * 0.3 / 0.7, rel=0.01)
    assert recovery.before < recovery.predicted.value
    full = [r if r.vertex_id != "last" else replace(r, backpressured_ratio=(0.15,) * 4) for r in IDLE]
    held = interval_of(advised(taking(*[4_600] * 8), full))
    assert [e.metric for e in held.expected] == [Metric.OPEN_RATIO, Metric.REPLAYED]
    assert held.unpredicted[0].startswith("no prediction of the time to recover")


def test_r_int_5_proposes_a_pause_instead_if_durations_vary():
    advice = advised(taking(2_000, 2_000, 2_000, 9_000, 2_000, 2_000, 9_000, 2_000), IDLE)
    found = pause_of(advice)

    assert isinstance(found, Recommendation), found
    assert (found.rules, found.proposed.min_pause_ms) == (("R-INT-5",), 2_000)
    assert interval_of(advice).rule == "R-INT-5"
    assert expected(found, Metric.OPEN_RATIO).predicted.value < expected(found, Metric.OPEN_RATIO).before


@pytest.mark.parametrize(("version", "is_kept"), [("1.11.1", False), ("1.11.2", True)])
def test_r_int_5_proposes_no_pause_in_a_version_that_may_not_keep_it(version, is_kept):
    run = taking(2_000, 2_000, 2_000, 9_000, 2_000, 2_000, 9_000, 2_000)
    found = pause_of(advised(run, IDLE, version=version))

    assert isinstance(found, Recommendation) is is_kept
    if isinstance(found, NoAdvice):
        assert found.reason == "Flink 1.11.1 may not keep a minimum pause (FLINK-18856)"


def test_r_int_5_respects_that_a_pause_excludes_checkpoints_at_the_same_time():
    run = taking(2_000, 2_000, 2_000, 9_000, 2_000, 2_000, 9_000, 2_000)
    found = pause_of(advised(run, IDLE, config=replace(EXACTLY_ONCE, max_concurrent=2)))

    assert isinstance(found, NoAdvice)
    assert "only one checkpoint may run at a time; 2 may now" in found.reason


def test_a_raised_interval_never_exceeds_the_checkpoint_timeout():
    config = replace(EXACTLY_ONCE, timeout_ms=6_000)
    found = interval_of(advised(taking(*[4_600] * 8), IDLE, config=config))

    assert isinstance(found, NoAdvice)
    assert "shorter than the interval" in found.reason


@pytest.mark.parametrize(
    ("kind", "why_not"),
    [
        (VerdictKind.COORDINATOR, "wait for what the verdict names"),
        (VerdictKind.LATE_INPUT, "wait for what the verdict names"),
        (VerdictKind.CALLBACK, "wait for what the verdict names"),
        (VerdictKind.UNDECIDED, "what makes checkpoints long is not decided"),
        (VerdictKind.SYNC, None),
        (VerdictKind.STORE, None),
        # With fewer checkpoints, fewer commits follow them.
        (VerdictKind.COMMIT, None),
    ],
)
def test_no_interval_and_no_pause_are_advised_if_checkpoints_wait_for_the_cause_or_may_do_so(kind, why_not):
    even, varied = taking(*[4_600] * 8), taking(2_000, 2_000, 2_000, 9_000, 2_000, 2_000, 9_000, 2_000)
    for run, answer in ((even, interval_of), (varied, pause_of)):
        evidence = job(run, IDLE, config=EXACTLY_ONCE)
        named = diagnose(evidence)
        named = replace(named, verdict=replace(named.verdict, kind=kind))
        found = answer(advise(evidence, engine=flink("1.20.5"), version="1.20.5", diagnosis=named))

        assert isinstance(found, Recommendation) is (why_not is None), found
        if why_not is not None:
            assert why_not in found.reason


def test_the_interval_waits_for_advice_on_the_mode_which_changes_the_durations():
    found = interval_of(advised(slow_run(), readings()))

    assert isinstance(found, NoAdvice)
    assert found.reason.startswith("first follow the advice on the mode")


def test_no_interval_is_advised_without_what_the_rules_need():
    assert "not known" in interval_of(advised(taking(*[4_600] * 8), IDLE, config=CheckpointConfig())).reason
    assert "most checkpoints expire" in interval_of(advised(expired_run(), IDLE)).reason
    missing = taking(4_600, 4_600, 4_600, 4_600)
    later = taking(*[4_600] * 12)[8:]
    assert "missing from the history" in pause_of(advised([*missing, *later], IDLE)).reason


def test_the_runtime_takes_a_new_interval_while_it_runs():
    found = interval_of(advised(taking(*[4_600] * 8), IDLE, engine=RUNTIME))

    assert dict(found.how_to.patch) == {"execution.checkpointing.interval": "10000 ms"}
    assert dict(found.how_to.rollback_patch) == {"execution.checkpointing.interval": "5000 ms"}


def test_r_int_3_proposes_no_interval_after_which_a_failure_would_replay_more_than_the_budget():
    config = replace(EXACTLY_ONCE, interval_ms=1_000_000, timeout_ms=21_600_000)

    def answer(took_ms):
        return interval_of(advised(taking(*[took_ms] * 8, every_s=took_ms / 1000), IDLE, config=config))

    assert answer(900_000).proposed.interval_ms == 2_000_000
    longer = answer(1_500_000)
    assert (longer.rule, "replay more than 1 h" in longer.reason) == ("R-INT-3", True)


# --- R-INT-1 ---


def failing_every(minutes, count=9):
    """Return the exceptions of a job that fails every ``minutes``."""
    return tuple((START - timedelta(minutes=minutes * n), "lost") for n in reversed(range(count)))


def syncing(sync_ms, count=8):
    rows = [detail(v, first=[10] * 4, sync=sync_ms if v is MIDDLE else 1) for v in ("source", MIDDLE, "last")]
    return [completed(n, *rows) for n in range(1, count + 1)]


def test_young_and_daly_agree_for_long_times_between_failures():
    assert best_interval_ms(1_000, 10**9) == pytest.approx((2 * 1_000 * 10**9) ** 0.5, rel=0.01)
    # A checkpoint that costs more than two times the time between failures is never worth it (Daly).
    assert best_interval_ms(5_000, 2_000) == 2_000


def test_r_int_1_raises_the_interval_if_checkpoints_cost_more_than_failures_would():
    """Sync takes 1 s of every 5 s, and the job fails once in an hour: the optimum is above a minute."""
    found = interval_of(advised(syncing(1_000), IDLE, exceptions=failing_every(60)))

    assert isinstance(found, Recommendation), found
    assert found.rules[0] == "R-INT-1"
    assert found.proposed.interval_ms == 80_000
    loss = expected(found, Metric.LOST)
    assert loss.predicted.high < loss.before
    assert found.kind == "interval/raise"


def test_r_int_1_keeps_an_interval_and_a_checkpoint_within_the_budget_of_input_to_replay():
    """Sync takes a minute, and the job fails every five days: without the budget, the optimum is above an hour."""
    config = replace(EXACTLY_ONCE, interval_ms=300_000, timeout_ms=21_600_000)
    run = [
        replace(c, header=replace(c.header, triggered_at=START + timedelta(minutes=5 * n)))
        for n, c in enumerate(syncing(60_000))
    ]
    found = interval_of(advised(run, IDLE, config=config, exceptions=failing_every(5 * 24 * 60)))

    assert isinstance(found, Recommendation), found
    assert 1_800_000 <= found.proposed.interval_ms <= 3_600_000 - 60_000


def test_r_int_1_lowers_an_interval_that_loses_more_to_failures():
    config = replace(EXACTLY_ONCE, interval_ms=600_000, timeout_ms=600_000)
    run = [
        replace(c, header=replace(c.header, triggered_at=START + timedelta(minutes=10 * n)))
        for n, c in enumerate(syncing(20))
    ]
    found = interval_of(advised(run, IDLE, config=config, exceptions=failing_every(30)))

    assert isinstance(found, Recommendation), found
    assert found.proposed.interval_ms < 60_000
    assert found.kind == "interval/lower"


def test_r_int_1_says_nothing_near_the_optimum_or_without_enough_failures():
    near = replace(EXACTLY_ONCE, interval_ms=100_000)
    run = [
        replace(c, header=replace(c.header, triggered_at=START + timedelta(seconds=100 * n)))
        for n, c in enumerate(syncing(1_000))
    ]
    assert "loses hardly more" in interval_of(advised(run, IDLE, config=near, exceptions=failing_every(60))).reason
    few = interval_of(advised(syncing(1_000), IDLE, exceptions=failing_every(60, count=2)))
    assert "2 failures are known (3 are needed)" in few.reason


def test_r_int_4_counts_the_tolerated_failures_into_the_transaction_timeout():
    config = CheckpointConfig(timeout_ms=60_000, tolerable_failed_count=2)
    assert transaction_timeout_ms(config, 10_000, 1_000) == 10_000 + 1_000 + 2 * 70_000
    assert transaction_timeout_ms(replace(config, tolerable_failed_count=2**31 - 1), 10_000, 1_000) is None
