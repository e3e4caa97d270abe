"""Tests of R-AT: which aligned timeout is advised, within which bounds, and when none is advised."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.advisor.advice import NoAdvice, Recommendation
from backend.advisor.rules.aligned_timeout import nice_ms
from backend.domain.advice import Mode
from tests.support.advised_jobs import (
    EXACTLY_ONCE,
    UNALIGNED,
    advised,
    expired_run,
    mode_of,
    persisting,
    readings,
    recommended,
    slow_run,
    with_timeout,
)
from tests.support.handwritten_jobs import LAST, MIDDLE, SOURCE, chain, completed, detail, quick
from tests.support.handwritten_runs import CALM

# --- R-AT ---


@pytest.mark.parametrize(("value", "nice"), [(0.5, 1), (1, 1), (150, 200), (200, 200), (201, 500), (501, 1_000)])
def test_proposed_timeouts_are_round(value, nice):
    assert nice_ms(value) == nice


def test_r_at_1_keeps_the_timeout_above_the_travel_time_of_healthy_barriers():
    """The barriers of healthy checkpoints travel for 600 ms.

    With a timeout below 900 ms, such checkpoints might persist data without need.
    """
    calm = [
        replace(r, observed_at=r.observed_at.replace(minute=0, second=s))
        for s, r in zip([10] * 3, CALM[::2], strict=False)
    ]
    healthy = [quick(n, 600, every_s=1) for n in range(6, 12)]
    slow = [c for c in slow_run(20) if c.header.checkpoint_id >= 16]
    config = replace(EXACTLY_ONCE, interval_ms=8_000)
    found = recommended(advised([*healthy, *slow], [*calm, *_later(readings())], config=config))

    assert "R-AT-1" in found.rules
    assert found.proposed.aligned_timeout_ms == 1_000
    assert any("without back-pressure (p99 of " in r.statement for r in found.evidence)


def _later(rows):
    return [replace(r, observed_at=r.observed_at + timedelta(seconds=45)) for r in rows]


def test_r_at_1_without_a_healthy_checkpoint_states_the_assumed_travel_time():
    found = recommended(advised(slow_run()))

    assert found.proposed.aligned_timeout_ms == 200
    assert any("no checkpoint without back-pressure was recorded" in r.statement for r in found.evidence)


@pytest.mark.parametrize(("timeout_ms", "proposed"), [(20, 1_000), (900, None)])
def test_r_at_1_raises_a_timeout_that_makes_healthy_checkpoints_persist(timeout_ms, proposed):
    run = [persisting(quick(n, 400, every_s=1), 1_000) for n in range(48, 56)]
    found = mode_of(
        advised(run, [replace(r, queued_out_bytes=(500,) * 4) for r in CALM], config=with_timeout(timeout_ms))
    )

    assert isinstance(found, Recommendation) is (proposed is not None), found
    if proposed is not None:
        assert found.proposed.aligned_timeout_ms == proposed
        assert found.changes[0].key == "execution.checkpointing.aligned-checkpoint-timeout"


@pytest.mark.parametrize(("interval_ms", "timeout_ms", "bound"), [(5_000, 600_000, 2_500), (60_000, 3_000, 1_500)])
def test_r_at_2_keeps_the_timeout_below_the_limits_of_interval_and_checkpoint_timeout(interval_ms, timeout_ms, bound):
    config = replace(EXACTLY_ONCE, interval_ms=interval_ms, timeout_ms=timeout_ms)
    found = recommended(advised(expired_run() if timeout_ms == 3_000 else slow_run(), config=config))

    assert "R-AT-2" in found.rules
    timeouts = [c.aligned_timeout_ms for c in found.candidates if c.aligned_timeout_ms is not None]
    assert max(timeouts) <= bound
    assert found.proposed.aligned_timeout_ms < bound


def test_r_at_3_shows_what_each_candidate_would_have_done():
    found = recommended(advised(slow_run()))
    by_timeout = {c.aligned_timeout_ms: c for c in found.candidates}

    assert by_timeout[None].is_current
    assert by_timeout[200].is_proposed
    timed = [by_timeout[t] for t in sorted(t for t in by_timeout if t is not None)]
    durations = [c.duration_ms.value for c in timed]
    persisted = [c.persisted_bytes.value for c in timed]
    assert durations == sorted(durations)
    assert persisted == sorted(persisted, reverse=True)
    # After 2 s, the barrier has passed the first exchange. Of the 3.3 s at the second exchange, 2.8 s are left.
    assert by_timeout[2_000].persisted_bytes.value == pytest.approx(1.1 * 1_600_000 * 2_800 / 3_300, rel=0.01)


@pytest.mark.parametrize(("interval_ms", "crossed"), [(300, True), (500, False)])
def test_r_at_4_chooses_0_under_constant_back_pressure_if_no_timeout_fits(interval_ms, crossed):
    config = replace(EXACTLY_ONCE, interval_ms=interval_ms)
    found = recommended(advised(slow_run(), config=config))

    assert ("R-AT-4" in found.rules) is crossed
    assert (found.proposed.mode is Mode.UNALIGNED) is crossed


def test_r_at_5_states_for_deep_graphs_only_that_the_timeout_counts_from_the_trigger():
    assert "R-AT-5" in recommended(advised(slow_run())).rules
    two = chain(SOURCE, LAST)
    run = [completed(n, detail(SOURCE, first=[5] * 4), detail(LAST, first=[4_800] * 4)) for n in range(1, 9)]
    found = recommended(advised(run, [r for r in readings() if r.vertex_id != MIDDLE], topology=two))
    assert "R-AT-5" not in found.rules


def test_r_at_6_explains_what_0_means():
    found = recommended(advised(slow_run(), config=replace(EXACTLY_ONCE, interval_ms=300)))

    assert "R-AT-6" in found.rules
    assert any("0 means that every checkpoint is unaligned" in r.statement for r in found.evidence)
    assert isinstance(mode_of(advised(slow_run(), config=UNALIGNED)), NoAdvice)


def test_a_timeout_near_the_natural_duration_is_lowered():
    run = [persisting(c, 100_000) for c in slow_run(8, last_ms=4_200)]
    found = recommended(advised(run, config=with_timeout(4_000)))

    assert found.proposed.aligned_timeout_ms == 200
    assert [c.key for c in found.changes] == ["execution.checkpointing.aligned-checkpoint-timeout"]


@pytest.mark.parametrize(
    ("version", "key"),
    [
        ("1.13.6", "execution.checkpointing.alignment-timeout"),
        ("1.14.6", "execution.checkpointing.aligned-checkpoint-timeout"),
        ("1.15.4", "execution.checkpointing.aligned-checkpoint-timeout"),
    ],
)
def test_before_1_16_only_a_timeout_of_0_is_proposed_because_no_other_reaches_the_senders(version, key):
    found = recommended(advised(slow_run(), version=version))

    assert found.how_to.lines == ("execution.checkpointing.unaligned: true", f"{key}: 0 ms")
    assert found.proposed.mode is Mode.UNALIGNED
    assert any("FLINK-27251" in row.statement for row in found.evidence)
    assert {c.aligned_timeout_ms for c in found.candidates} == {None, 0}
    later = recommended(advised(slow_run(), version="1.16.3"))
    assert later.proposed.aligned_timeout_ms == 200
    assert not any("FLINK-27251" in row.statement for row in later.evidence)


def test_before_1_16_a_timeout_that_is_set_is_lowered_to_0():
    run = [persisting(c, 100_000) for c in slow_run(8, last_ms=4_200)]
    found = recommended(advised(run, config=with_timeout(4_000), version="1.15.4"))

    assert found.headline == "Change the aligned timeout from 4000 ms to 0 ms"
    assert found.how_to.lines == ("execution.checkpointing.aligned-checkpoint-timeout: 0 ms",)
    # The same job gets no advice to raise a timeout while it is healthy.
    calm = [persisting(quick(n), 400_000) for n in range(1, 9)]
    assert isinstance(mode_of(advised(calm, [], config=with_timeout(1), version="1.15.4")), NoAdvice)


def test_nothing_ever_raises_the_checkpoint_timeout():
    for config in (EXACTLY_ONCE, replace(EXACTLY_ONCE, timeout_ms=3_000)):
        for run in (slow_run(), expired_run()):
            for found in advised(run, config=config).recommendations:
                assert not any(c.key == "execution.checkpointing.timeout" for c in found.changes)
