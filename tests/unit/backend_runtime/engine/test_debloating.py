"""Tests of the buffer size under debloating: reference vectors (DB-7, DB-8) and announcements to senders (DB-6).

With fake gates, they also test what a gate measures (DB-1, DB-2) and when each gate is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from backend.runtime.core.scheduler import Scheduler
from backend.runtime.engine.debloating import Debloating, Estimator, GateDebloater, Limits, limits_of, next_size
from backend.runtime.job.config import RuntimeConfig
from backend.runtime.measure.measures import TimeAccount, Usage
from backend.runtime.network.channel import ChannelKey
from backend.runtime.task.task import TaskStatus


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


def test_the_size_shrinks_and_grows_in_the_reference_steps() -> None:
    limits = _limits()
    size = 32_768
    shrunk = [size := next_size(size, 0, limits) for _ in range(5)]
    assert shrunk == [29_647, 26_823, 24_268, 21_956, 19_864]
    # The instantaneous value is at most twice the last size (DB-3), so the size does not grow faster than it shrinks.
    estimator = Estimator(19_864)
    grown = []
    for _ in range(6):
        estimator.update(10**12, 1, limits)
        grown.append(estimator.size_bytes)
    assert grown == [21_755, 23_826, 26_095, 28_580, 31_301, 32_768]


def test_the_size_never_leaves_its_bounds_whatever_is_measured() -> None:
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


def test_a_size_is_announced_if_it_changed_by_a_quarter_or_reached_a_bound() -> None:
    limits = _limits(samples=1)
    estimator = Estimator(32_768)
    assert estimator.update(10**9, 1, limits) is None, "the size is already at the maximum"
    assert estimator.update(20_000, 1, limits) == 20_000
    assert estimator.update(15_001, 1, limits) is None
    assert estimator.size_bytes == 15_001
    assert estimator.announced_bytes == 20_000
    assert estimator.update(15_000, 1, limits) == 15_000
    assert estimator.update(18_750, 1, limits) == 18_750
    assert estimator.update(30_000, 1, limits) == 30_000
    assert estimator.update(10**9, 1, limits) == 32_768, "a bound is announced even if the change is small"
    assert estimator.update(300, 1, limits) == 300
    assert estimator.update(0, 1, limits) == 256
    assert estimator.update(0, 1, limits) is None


# --- a gate -----------------------------------------------------------------------------------------------------------


class _Channel:
    """A fake channel: the counters that a gate reads, and the sizes that were announced to the channel's sender."""

    def __init__(self, edge: int = 0) -> None:
        self.key = ChannelKey(edge, 0, 0)
        self.bytes_received = 0
        self.buffers_in_use = 0
        self.told: list[int] = []

    def announce_buffer_bytes(self, size_bytes: int) -> None:
        self.told.append(size_bytes)


class _Job:
    """A fake subtask with fake channels, in virtual time."""

    def __init__(self, *edges: int, **settings: Any) -> None:
        self.channels = [_Channel(edge) for edge in edges]
        self.account = TimeAccount(0, samples=1)
        self.status = TaskStatus.RUNNING
        self.gate, self.key = self, (0, 0)
        self.scheduler = Scheduler()
        settings = {"is_debloating": True, "debloat_samples": 1} | settings
        self.env: Any = SimpleNamespace(scheduler=self.scheduler, config=RuntimeConfig(**settings), now=0)

    def mail(self, action: Callable[[object], None], argument: object) -> None:
        self.env.now = self.scheduler.now
        action(argument)

    def gate_of_all(self) -> GateDebloater:
        task: Any = self
        channels: Any = self.channels
        return GateDebloater(task, 0, channels)

    def begun(self) -> Debloating:
        debloating, tasks = Debloating(self.env), [self]
        debloating.begin(tasks)  # type: ignore[arg-type]
        return debloating


def test_a_gates_throughput_counts_only_busy_time_and_stays_if_there_was_none() -> None:
    """DB-1, DB-2: throughput is in bytes per second over all channels. A period begins at the last measurement."""
    job = _Job(0, 0)
    one, other = job.channels
    one.bytes_received = 700
    gate = job.gate_of_all()
    one.buffers_in_use, other.buffers_in_use = 3, 4
    assert gate.buffers_in_use == 7
    # The period lasts 200 ms, of which the subtask is idle for 50 ms.
    job.account.turn(Usage.BUSY, 50_000)
    one.bytes_received, other.bytes_received = 1_000, 1_200
    job.env.now = 200_000
    gate.recalculate()
    assert gate.throughput_bytes_per_s == 1_500 * 1_000_000 // 150_000 == 10_000
    assert gate.estimator.size_bytes == 10_000 // 7
    assert one.told == other.told == [10_000 // 7]
    # The next period begins at the end of the previous one, and has the same rate and no idle time. The unchanged
    # size is not announced again.
    one.bytes_received += 2_000
    job.env.now = 400_000
    gate.recalculate()
    assert gate.throughput_bytes_per_s == 10_000
    assert len(one.told) == 1
    # In the last period, the subtask is idle all the time.
    job.account.turn(Usage.IDLE, 400_000)
    job.env.now = 600_000
    gate.recalculate()
    assert gate.throughput_bytes_per_s == 10_000
    gate.switch_off()
    assert (one.told[-1], other.told[-1], gate.estimator.size_bytes) == (32_768, 32_768, 32_768)


def test_each_gate_is_measured_every_period_while_debloating_is_on_and_its_subtask_runs() -> None:
    """DB-1: there is one timer, however often debloating is switched on and off.

    A recovering subtask is not measured.
    """
    job = _Job(2, 1, 2, debloat_period_us=1_000, debloat_samples=2)
    debloating = job.begun()
    assert [gate.edge for gate in debloating.gates(job.key)] == [1, 2]
    assert debloating.gates((5, 5)) == ()
    job.account.turn(Usage.BUSY, 0)
    told = job.channels[1].told

    def told_by(at_us: int) -> list[int]:
        job.scheduler.run_until(at_us)
        return told

    job.status = TaskStatus.INITIALIZING
    assert told_by(2_500) == []
    job.status = TaskStatus.RUNNING
    assert told_by(2_999) == []
    assert told_by(3_500) == [10_922], "no data: a third of the maximum"
    debloating.reconfigured()
    for is_on in (False, True):
        job.env.config = replace(job.env.config, is_debloating=is_on)
        debloating.reconfigured()
        assert bool(debloating.gates(job.key)) == is_on
    assert told_by(3_500) == [10_922, 32_768], "switched off: whole segments again"
    assert told_by(4_499) == [10_922, 32_768], "the earlier timer is gone"
    assert told_by(4_500) == [10_922, 32_768, 10_922]
    debloating.begin([])
    assert debloating.gates(job.key) == ()
    assert len(told_by(20_000)) == 3


@pytest.mark.parametrize(
    ("settings", "limits"),
    [
        ({}, Limits(256, 32_768, 1_000, 20, 25)),
        ({"segment_bytes": 128, "debloat_target_us": 700}, Limits(128, 128, 1, 20, 25)),
        ({"debloat_target_us": 2_999, "segment_bytes_min": 300}, Limits(300, 32_768, 2, 20, 25)),
    ],
)
def test_the_limits_follow_from_the_settings_and_are_flinks_by_default(
    settings: dict[str, int], limits: Limits
) -> None:
    """The settings determine the limits that DB-3, DB-4 and DB-6 use."""
    assert limits_of(RuntimeConfig(**settings)) == limits  # type: ignore[arg-type]
