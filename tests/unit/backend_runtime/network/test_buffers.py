"""Tests of the sender's buffers: pool, overdraft, segments and the flush (BUF-1 to BUF-4)."""

from __future__ import annotations

import pytest

from backend.runtime.core.scheduler import Scheduler
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.network.buffers import DataBuffer, OutputPool, Subpartition
from tests.support.remote_link import SEGMENT_BYTES, Link
from tests.support.runtime_jobs import small_job


def test_the_pool_ends_at_its_overdraft_and_reports_unavailable_before() -> None:
    link = Link(exclusive=1, floating=0, overdraft=2)
    subpartition: Subpartition = link.pool.subpartitions[0]
    available: list[bool] = []
    for _ in range(23):
        available.append(link.pool.is_available)
        if subpartition.append(bytes(SEGMENT_BYTES)) < SEGMENT_BYTES:
            break
    assert link.pool.requested == 22
    assert (link.pool.requested, link.pool.size) == (22, 20)
    # The output is unavailable as soon as one channel has reached its limit of 10, before the pool is empty (MB-3).
    assert available.count(True) == 10
    assert subpartition.append(bytes(SEGMENT_BYTES)) == 0


def test_a_partly_filled_segment_is_sent_at_the_flush() -> None:
    link = Link()
    link.pool.subpartitions[0].append(b"abc")
    link.settle(500)
    assert link.channels[0].queued[0] == 0
    link.settle(1_000)
    assert link.channels[0].queued == (1, 3)


def test_a_record_may_span_segments_and_start_in_the_middle_of_one() -> None:
    link = Link(exclusive=8, floating=0)
    stream = bytes(range(200))
    subpartition = link.pool.subpartitions[0]
    assert subpartition.append(stream[:50]) == 50
    assert subpartition.append(stream[50:]) == 150
    link.settle(5_000)
    sizes: list[int] = []
    received = b""
    while isinstance(item := link.take(), DataBuffer):
        sizes.append(len(item.data))
        received += item.data
    assert received == stream
    assert sizes == [64, 64, 64, 8]


def _nothing() -> None:
    return None


def _pool(scheduler: Scheduler, *, flush_phase_us: int = 0) -> OutputPool:
    return OutputPool(
        scheduler,
        channels=1,
        segment_bytes=SEGMENT_BYTES,
        size=8,
        max_per_channel=8,
        max_overdraft=0,
        flush_timeout_us=1_000,
        flush_phase_us=flush_phase_us,
        on_change=_nothing,
    )


@pytest.mark.parametrize(("phase_us", "flushed_us"), [(0, 2_000), (300, 1_300), (999, 1_999)])
def test_a_writer_flushes_at_its_own_phase(phase_us: int, flushed_us: int) -> None:
    scheduler = Scheduler()
    pool = _pool(scheduler, flush_phase_us=phase_us)
    scheduler.run_until(1_000)
    pool.subpartitions[0].append(b"x")
    scheduler.run_until(flushed_us - 1)
    assert not pool.subpartitions[0].is_readable
    scheduler.run_until(flushed_us)
    assert pool.subpartitions[0].is_readable


def test_every_writer_of_a_job_has_a_different_flush_phase() -> None:
    engine = JobEngine(small_job("aligned", parallelism=4))
    engine.run_until(1)
    phases = [output.pool._flush_phase_us for task in engine.tasks for output in task.outputs]
    assert len(set(phases)) == len(phases) == 8
    assert all(0 <= phase_us < engine.config.flush_timeout_us for phase_us in phases)
