"""Tests of what a job loses to checkpoints and failures, and of the modes and intervals that are chosen by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from backend.advisor.advice import Interval, NoAdvice, Recommendation
from backend.advisor.losses import Loss, Losses
from backend.advisor.situation import situation
from backend.domain.advice import Metric, Mode, Topic
from backend.domain.checkpoint import Checkpoint, CheckpointConfig
from backend.domain.engines import flink
from tests.support.advised_jobs import EXACTLY_ONCE, advised, expected, expired_run, mode_of, on, readings, slow_run
from tests.support.handwritten_jobs import CHAIN, START, completed, detail, failed, job
from tests.support.handwritten_runs import CALM

HOUR_MS = 3_600_000


def failures(every_s: float) -> tuple[tuple[object, str], ...]:
    """Return nine failures on record, ``every_s`` apart."""
    return tuple((START - timedelta(seconds=every_s * n), "lost") for n in range(9, 0, -1))


def taking(number: int, duration_ms: int, *, sync: int = 0, every_s: float = 10) -> Checkpoint:
    """Return a checkpoint of this duration, of which ``sync`` is its longest sync part."""
    rows = (detail(v, first=[duration_ms - sync] * 4, sync=sync, size_bytes=0) for v in CHAIN)
    return completed(number, *rows, every_s=every_s)


def expiring(number: int, after_ms: int, *, every_s: float = 10) -> Checkpoint:
    """Return a checkpoint that expired."""
    return failed(number, *(detail(v, first=[5] * 4, size_bytes=0) for v in CHAIN), after_ms=after_ms, every_s=every_s)


def losses_of(checkpoints: Sequence[Checkpoint], config: CheckpointConfig, every_s: float = 3_600) -> Losses:
    evidence = job(checkpoints, CALM, config=config, exceptions=failures(every_s))
    found = Losses.of_job(situation(evidence, engine=flink("1.20.5"), version="1.20.5"))
    assert found is not None
    return found


EVERY_10_S = replace(EXACTLY_ONCE, interval_ms=10_000, timeout_ms=60_000)


# --- what is lost ---


def test_the_newest_checkpoint_is_half_of_an_interval_and_a_duration_old():
    found = losses_of([taking(n, 1_000, sync=200) for n in range(8)], EVERY_10_S).now

    assert found.ratio.value == pytest.approx(200 / 10_000 + (5_000 + 1_000) / HOUR_MS, rel=1e-3)
    assert (found.open_ratio, found.expired_ratio, found.heavy_ratio) == (pytest.approx(0.1), 0.0, 0.0)
    assert found.ratio.low < found.ratio.value < found.ratio.high


def test_a_checkpoint_that_takes_longer_than_the_interval_delays_the_next_one():
    found = losses_of([taking(n, 16_000, sync=160) for n in range(8)], EVERY_10_S).now

    assert found.ratio.value == pytest.approx(160 / 16_000 + (8_000 + 16_000) / HOUR_MS, rel=1e-3)
    assert found.open_ratio == pytest.approx(1.0)


def test_after_an_expired_checkpoint_the_one_before_stays_the_newest():
    run = [taking(n, 1_000) if n % 2 else expiring(n, 5_000) for n in range(8)]
    found = losses_of(run, replace(EVERY_10_S, timeout_ms=10_000)).now

    assert found.ratio.value == pytest.approx((10_000 + 1_000) / HOUR_MS, rel=1e-3)
    assert found.expired_ratio == 0.5


def test_without_any_completed_checkpoint_a_failure_loses_everything():
    assert losses_of([expiring(n, 5_000) for n in range(8)], EVERY_10_S).now.ratio.value == 1.0


def test_a_few_long_sync_parts_count_with_their_mean():
    run = [taking(n, 3_000, sync=2_000 if n % 4 == 0 else 0) for n in range(8)]

    assert losses_of(run, EVERY_10_S).now.ratio.value == pytest.approx(500 / 10_000 + 8_000 / HOUR_MS, rel=1e-3)


def test_losses_are_not_known_without_failures_or_an_interval():
    run = [taking(n, 1_000) for n in range(8)]
    for config, more in ((EVERY_10_S, ()), (replace(EVERY_10_S, interval_ms=None), failures(60))):
        known = situation(job(run, CALM, config=config, exceptions=more), engine=flink("1.20.5"), version="1.20.5")
        assert Losses.of_job(known) is None


# --- the interval ---


def test_no_interval_within_the_bounds_loses_less_than_the_best():
    losses = losses_of([taking(n, 1_000, sync=500) for n in range(8)], EVERY_10_S)
    best = losses.best(None)

    assert best is not None
    assert best.interval_ms == 60_000
    longer = losses_of([taking(n, 1_000, sync=500) for n in range(8)], replace(EVERY_10_S, timeout_ms=600_000))
    best = longer.best(None)
    assert best is not None
    # Young: the root of 2 x 500 ms x an hour is 60 s.
    assert best.interval_ms == 60_000
    for factor in (0.5, 0.8, 1.25, 2.0):
        other = longer.of(None, round(best.interval_ms * factor))
        assert other is not None
        assert other.ratio.value > best.ratio.value


def test_an_interval_leaves_half_of_the_time_without_a_checkpoint():
    losses = losses_of([taking(n, 8_000) for n in range(8)], EVERY_10_S, every_s=60)
    best = losses.best(None)

    assert best is not None
    assert best.interval_ms == 20_000


def test_no_longer_interval_is_chosen_while_some_checkpoints_expire():
    run = [taking(n, 1_000, sync=500) for n in range(7)]
    config = replace(EVERY_10_S, timeout_ms=30_000)
    longer, same = losses_of(run, config).best(None), losses_of([*run, expiring(7, 30_000)], config).best(None)

    assert longer is not None
    assert longer.interval_ms == 30_000
    assert same is not None
    assert same.interval_ms == 10_000


@pytest.mark.parametrize(("async_ms", "price_ms"), [(120, 5.0), (22, 0.075)])
def test_without_large_writes_what_takes_longer_than_small_ones_shows_the_speed_of_the_store(async_ms, price_ms):
    """The last vertex writes 120 kB, and the others next to nothing, in 20 ms."""
    rows = [detail(v, first=[5] * 4, async_=20, size_bytes=10) for v in CHAIN[:2]]
    last = detail(CHAIN[2], first=[5] * 4, async_=async_ms, size_bytes=30_000)
    run = [completed(n, *rows, last, every_s=10) for n in range(8)]
    sized = [replace(c, header=replace(c.header, checkpointed_size_bytes=120_000)) for c in run]

    # A twentieth of the 100 ms beyond the latency. With 2 ms beyond it, 40 MB/s is assumed, and the least cost is 1 ms.
    assert losses_of(sized, EVERY_10_S).cost_ms == pytest.approx(max(1.0, price_ms))


def test_a_change_is_worth_it_if_it_saves_enough_of_the_loss_and_of_the_time():
    now = Loss(10_000, None, Interval(0.02, 0.01, 0.03), 0.1, 0.0, 0.0)

    assert replace(now, ratio=Interval(0.019, 0.01, 0.03)).is_worth(now)
    assert not replace(now, ratio=Interval(0.0195, 0.01, 0.03)).is_worth(now)
    small = replace(now, ratio=Interval(0.0003, 0.0, 0.001))
    assert not replace(now, ratio=Interval(0.0002, 0.0, 0.001)).is_worth(small)


def test_a_bound_is_broken_if_more_checkpoints_expire_or_are_too_heavy():
    now = Loss(10_000, None, Interval(0.02, 0.01, 0.03), 0.1, 0.2, 0.0)

    assert replace(now, expired_ratio=0.24).keeps_bounds(now)
    assert not replace(now, expired_ratio=0.3).keeps_bounds(now)
    assert not replace(now, heavy_ratio=0.2).keeps_bounds(now)


def test_with_known_failures_no_pause_is_advised_that_would_add_to_their_loss():
    took_ms = [9_000 if n % 3 == 0 else 2_000 for n in range(9)]
    run = [taking(n, ms, sync=ms, every_s=5) for n, ms in enumerate(took_ms)]
    config = replace(EXACTLY_ONCE, interval_ms=5_000)

    assert isinstance(on(Topic.MIN_PAUSE, advised(run, CALM, config=config)), Recommendation)
    silent = on(Topic.MIN_PAUSE, advised(run, CALM, config=config, exceptions=failures(600)))
    assert isinstance(silent, NoAdvice)
    assert silent.rule == "R-INT-1"


# --- the mode ---

TRAVEL = tuple(zip(CHAIN, (5, 1_500, 4_800), strict=True))
CALM_SETTINGS = replace(EXACTLY_ONCE, interval_ms=60_000)


def test_healthy_checkpoints_become_unaligned_if_failures_make_their_travel_costly():
    found = mode_of(advised(slow_run(), config=CALM_SETTINGS, exceptions=failures(600)))

    assert isinstance(found, Recommendation), found
    assert found.proposed.mode in (Mode.UNALIGNED, Mode.ALIGNED_WITH_TIMEOUT)
    assert found.proposed.interval_ms is not None
    assert found.proposed.interval_ms < 60_000
    assert "execution.checkpointing.interval" in {c.key for c in found.changes}
    assert {"R-UC-1", "R-INT-1"} <= set(found.rules)
    lost = expected(found, Metric.LOST)
    assert lost.before is not None
    assert lost.predicted.value < lost.before
    assert lost.predicted.low <= lost.predicted.value <= lost.predicted.high
    assert {"exceptions", "syncDuration"} <= {r.metric for r in found.evidence}
    assert any("transactional sinks wait" in p.text for p in found.preconditions)
    assert found.withdrawn_if[0].startswith("the time between failures changes")


@pytest.mark.parametrize(
    ("more", "pressure"),
    [
        ({}, readings()),
        ({"exceptions": failures(100_000)}, readings()),
        ({"exceptions": failures(600)}, readings(held=0.1)),
    ],
)
def test_healthy_checkpoints_stay_aligned_without_costly_failures_or_without_back_pressure(more, pressure):
    found = mode_of(advised(slow_run(), pressure, config=CALM_SETTINGS, **more))

    assert isinstance(found, NoAdvice)
    assert found.rule == "R-UC-12"


@pytest.mark.parametrize(("hung_ms", "speaks"), [(5_000, True), (11_000, False)])
def test_healthy_checkpoints_stay_aligned_if_the_store_hangs_now_and_then(hung_ms, speaks):
    """A quarter of the checkpoints waits for the store. Unaligned ones write more, so they would wait more often."""
    rows = [[detail(v, first=[ms] * 4, async_=5 if n % 4 else hung_ms) for v, ms in TRAVEL] for n in range(1, 9)]
    run = [completed(n, *details) for n, details in enumerate(rows, start=1)]
    found = mode_of(advised(run, config=CALM_SETTINGS, exceptions=failures(600)))

    assert isinstance(found, Recommendation) is speaks, found


def test_a_quicker_mode_is_not_advised_if_writing_the_queues_costs_more_than_failures():
    few = readings(queued_bytes=400_000)
    much = readings(queued_bytes=4_000_000, rate_bytes_per_s=2_500_000)

    assert isinstance(mode_of(advised(slow_run(), few, exceptions=failures(3_600))), Recommendation)
    assert isinstance(mode_of(advised(slow_run(), much)), Recommendation)
    found = mode_of(advised(slow_run(), much, exceptions=failures(3_600)))
    assert isinstance(found, NoAdvice)
    assert found.rule == "R-INT-1"


# --- queues behind a hot key ---


@pytest.mark.parametrize(("queued_bytes", "speaks"), [(400_000, True), (50_000, False)])
def test_checkpoints_that_expire_behind_a_long_queue_become_unaligned_although_little_is_back_pressured(
    queued_bytes, speaks
):
    """The queues of 1.6 MB drain at 1 MB/s, which is more than half of the timeout; those of 0.2 MB are not."""
    config = replace(EXACTLY_ONCE, timeout_ms=3_000)
    found = mode_of(advised(expired_run(), readings(held=0.4, queued_bytes=queued_bytes), config=config))

    assert isinstance(found, Recommendation) is speaks, found
