"""Tests of the measurements of a checkpoint and of a subtask's time, computed from handwritten values."""

from __future__ import annotations

from typing import Any

from backend.runtime.core.elements import Alignment, Barrier
from backend.runtime.job.graph import Graph
from backend.runtime.measure.measures import (
    Ack,
    MeasuredCheckpoint,
    SubtaskCheckpoint,
    TaskKey,
    TimeAccount,
    Usage,
)

# --- one checkpoint ---------------------------------------------------------------------------------------------------


def _measured(first_barrier_us: int = 130, **values: Any) -> SubtaskCheckpoint:
    return SubtaskCheckpoint(checkpoint_id=7, triggered_at_us=100, first_barrier_us=first_barrier_us, **values)


def _record(acks: dict[TaskKey, Ack]) -> MeasuredCheckpoint:
    return MeasuredCheckpoint(7, 100, Barrier(7, 100, Alignment.ALIGNED), 3, Graph((), ()), acks=acks)


def test_the_start_delay_counts_from_the_trigger_and_is_never_negative() -> None:
    """ME-1: a subtask's clock may be behind the coordinator's clock. Then the delay is 0."""
    assert [_measured(at).start_delay_us for at in (130, 101, 100, 90)] == [30, 1, 0, 0]


def test_a_checkpoint_lasts_until_its_last_acknowledgement_and_a_failed_one_until_its_failure() -> None:
    """ME-9, ME-10, ME-13: before the first acknowledgement, the duration is None, not zero."""
    record = _record({})
    assert (record.latest_ack_us, record.end_to_end_us, record.critical_path) == (None, None, None)
    record.acks[0, 0] = Ack(400, _measured())
    record.acks[1, 0] = Ack(350, _measured())
    assert (record.latest_ack_us, record.end_to_end_us) == (400, 300)
    record.failed_at_us = 900
    assert (record.latest_ack_us, record.end_to_end_us) == (400, 800)


def test_the_critical_path_is_that_of_the_last_acknowledgement_and_its_parts_add_up() -> None:
    """ME-11, ME-13: time outside the phases is the residual. In a tie, the subtask furthest downstream counts."""
    slow = _measured(130, before_snapshot_us=40, sync_us=5, async_us=50)
    path = _record({(1, 1): Ack(240, slow), (0, 0): Ack(239, _measured())}).critical_path
    assert path == ((1, 1), 140, 30, 40, 5, 50, 15)
    tied = {(0, 1): Ack(240, _measured()), (2, 0): Ack(240, slow), (1, 5): Ack(240, _measured())}
    path = _record(tied).critical_path
    assert path is not None
    assert path.task == (2, 0)
    early = _record({(0, 0): Ack(90, _measured())}).critical_path
    assert early is not None
    assert early.end_to_end_us == 0
    unknown = _record({(0, 0): Ack(150, _measured(sync_us=None, async_us=None))}).critical_path
    assert unknown == ((0, 0), 50, 30, 0, 0, 0, 20)


def test_sums_are_over_the_subtasks_that_acknowledged_and_unknown_values_add_nothing() -> None:
    """ME-3, ME-4, ME-13, ALO-5: processed bytes, persisted bytes, state bytes and repeatable records are summed."""
    one = _measured(processed_bytes=None, persisted_bytes=3, state_bytes=20, repeatable_records=1)
    two = _measured(processed_bytes=11, persisted_bytes=4, state_bytes=30, repeatable_records=6)
    record = _record({(0, 0): Ack(200, one), (0, 1): Ack(200, two)})
    assert (record.processed_bytes, record.persisted_bytes) == (11, 7)
    assert (record.state_bytes, record.repeatable_records) == (50, 7)


# --- a subtask's time -------------------------------------------------------------------------------------------------


def test_time_is_accounted_by_usage_and_averaged_over_the_window() -> None:
    """ME-19: a subtask begins idle. Busy time is the part of a second that is neither idle nor backpressured."""
    account = TimeAccount(1_000, samples=3)
    assert account.ms_per_s() == (0, 0, 0, 0), "nothing was sampled"
    account.turn(Usage.BUSY, 1_100)
    account.turn(Usage.BUSY, 1_150)
    account.turn(Usage.SOFT, 1_400)
    account.turn(Usage.HARD, 1_700)
    assert account.settle(1_800) == (300, 100, 300, 100)
    assert account.settle(1_800) == (300, 100, 300, 100), "the same instant twice"
    account.turn(Usage.SOFT, 1_850)
    account.sample(2_000)
    assert account.settle(2_000) == (300, 100, 450, 150)
    assert account.ms_per_s() == (300, 100, 450, 150)


def test_periods_that_left_the_window_no_longer_count() -> None:
    """ME-19: the window has one period per sample."""
    account = TimeAccount(0, samples=2)
    account.turn(Usage.BUSY, 0)
    for at_us in (1_000, 2_000):
        account.sample(at_us)
    account.turn(Usage.IDLE, 2_000)
    account.sample(3_000)
    assert account.ms_per_s() == (500, 500, 0, 0)
    for at_us in (4_000, 5_000):
        account.sample(at_us)
        assert account.ms_per_s() == (0, 1_000, 0, 0)


def test_shares_are_rounded_down_to_milliseconds_and_busy_gets_the_rest() -> None:
    """ME-19: the four shares add up to 1000 within rounding."""
    account = TimeAccount(0, samples=1)
    account.turn(Usage.SOFT, 1)
    account.turn(Usage.HARD, 2)
    account.sample(3)
    assert account.ms_per_s() == (1, 333, 333, 333)
