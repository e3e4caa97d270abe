"""The size of a buffer under debloating: the reference vectors of DB-7 and DB-8, and when senders are told (DB-6)."""

from __future__ import annotations

import pytest

from backend.runtime.debloating import Estimator, Limits, next_size


def _limits(
    low: int = 256, high: int = 32_768, *, target_ms: int = 1000, samples: int = 20, threshold: int = 25
) -> Limits:
    return Limits(low, high, target_ms, samples, threshold)


@pytest.mark.parametrize(
    ("target_ms", "low", "high", "in_use", "throughput", "size"),
    [(1000, 50, 2400, 0, 1200, 1200), (1200, 50, 1100, 16, 3333, 249), (1200, 250, 1100, 16, 3333, 250)],
)
def test_the_size_follows_throughput_target_and_buffers_in_use(
    target_ms: int, low: int, high: int, in_use: int, throughput: int, size: int
) -> None:
    limits = _limits(low, high, target_ms=target_ms, samples=1)
    estimator = Estimator(high)
    assert estimator.update(throughput, in_use, limits) == size
    assert estimator.size_bytes == size


def test_it_shrinks_and_grows_in_the_reference_steps() -> None:
    limits = _limits()
    size = 32_768
    shrunk = [size := next_size(size, 0, limits) for _ in range(5)]
    assert shrunk == [29_647, 26_823, 24_268, 21_956, 19_864]
    # The instant value is at most twice the last size, so that it grows no faster than it shrinks.
    estimator = Estimator(19_864)
    grown = []
    for _ in range(6):
        estimator.update(10**12, 1, limits)
        grown.append(estimator.size_bytes)
    assert grown == [21_755, 23_826, 26_095, 28_580, 31_301, 32_768]


def test_it_never_leaves_its_bounds_whatever_is_measured() -> None:
    limits = _limits(300, 5_000, samples=3)
    estimator = Estimator(5_000)
    for throughput in (0, 0, 0, 0, 0, 0, 0, 0, 10**15, 10**15, 10**15, 10**15, 1, 10**15, 10**15):
        estimator.update(throughput, 3, limits)
        assert 300 <= estimator.size_bytes <= 5_000


def test_the_time_to_consume_is_set_at_each_calculation() -> None:
    limits = _limits(samples=1)
    estimator = Estimator(32_768)
    estimator.update(40_000, 10, limits)
    assert estimator.time_to_consume_ms == 4_000 * 10 * 1000 // 40_000
    estimator.update(0, 10, limits)
    assert estimator.time_to_consume_ms == 256 * 10 * 1000


def test_senders_are_told_of_a_quarter_more_or_less_or_of_a_bound_and_never_of_the_same() -> None:
    limits = _limits(samples=1)
    estimator = Estimator(32_768)
    assert estimator.update(10**9, 1, limits) is None, "it is at the maximum already"
    assert estimator.update(20_000, 1, limits) == 20_000
    assert estimator.update(15_001, 1, limits) is None
    assert estimator.size_bytes == 15_001
    assert estimator.announced_bytes == 20_000
    assert estimator.update(15_000, 1, limits) == 15_000
    assert estimator.update(18_750, 1, limits) == 18_750
    assert estimator.update(30_000, 1, limits) == 30_000
    assert estimator.update(10**9, 1, limits) == 32_768, "a bound is told, however near"
    assert estimator.update(300, 1, limits) == 300
    assert estimator.update(0, 1, limits) == 256
    assert estimator.update(0, 1, limits) is None
