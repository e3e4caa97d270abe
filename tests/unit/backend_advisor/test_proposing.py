"""Tests of the hard bounds that no advice breaks, and of the interval of a share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.advisor.advice import Setting
from backend.advisor.proposing import broken_bound, share_interval
from backend.domain.advice import Mode
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.topology import Topology, Vertex

NOW = CheckpointConfig(
    interval_ms=10_000, timeout_ms=60_000, aligned_timeout_ms=5_000, is_unaligned_enabled=True, max_concurrent=1
)
GRAPH = Topology((Vertex("v", "v", 4, max_parallelism=8),))


@pytest.mark.parametrize(
    ("allowed", "broken", "words"),
    [
        (Setting(interval_ms=10_000), Setting(interval_ms=9_999), "half of the interval"),
        (Setting(interval_ms=60_000), Setting(interval_ms=60_001), "shorter than the interval"),
        (Setting(timeout_ms=10_000), Setting(timeout_ms=9_999), "shorter than the interval"),
        (
            Setting(mode=Mode.ALIGNED_WITH_TIMEOUT, aligned_timeout_ms=5_000),
            Setting(mode=Mode.ALIGNED_WITH_TIMEOUT, aligned_timeout_ms=5_001),
            "half of the interval",
        ),
        (Setting(parallelism=8, vertex_id="v"), Setting(parallelism=9, vertex_id="v"), "max parallelism of 8"),
    ],
)
def test_a_setting_just_beyond_a_bound_breaks_it(allowed, broken, words):
    assert broken_bound(NOW, GRAPH, allowed) is None
    assert words in broken_bound(NOW, GRAPH, broken)


def test_the_timeout_stays_above_twice_the_aligned_timeout():
    config = replace(NOW, interval_ms=None)
    assert broken_bound(config, GRAPH, Setting(timeout_ms=10_000)) is None
    assert "twice the aligned timeout" in broken_bound(config, GRAPH, Setting(timeout_ms=9_999))


def test_a_pause_needs_one_checkpoint_at_a_time():
    assert broken_bound(NOW, GRAPH, Setting(min_pause_ms=1)) is None
    assert "one checkpoint may run" in broken_bound(replace(NOW, max_concurrent=2), GRAPH, Setting(min_pause_ms=1))


def test_a_bound_that_is_broken_already_does_not_prevent_other_advice():
    broken = replace(NOW, timeout_ms=5_000)
    assert broken_bound(broken, GRAPH, Setting(tolerable_failed_count=3)) is None


def test_the_interval_of_a_share_contains_it_and_shrinks_with_more_values():
    few, many = share_interval(1, 10), share_interval(10, 100)
    assert few.low < 0.1 < few.high
    assert few.high - few.low > many.high - many.low
    assert (share_interval(0, 10).low, share_interval(10, 10).high) == (0.0, 1.0)
    # Wilson's interval of 0 of 10 at 90 %.
    assert share_interval(0, 10).high == pytest.approx(0.2130, abs=1e-3)
