"""What is measured of a checkpoint, of a subtask's time and of a restart: the arithmetic, by hand-made values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from backend.runtime.core.elements import Alignment, Barrier
from backend.runtime.job.graph import Graph
from backend.runtime.measure.measures import (
    Ack,
    ChannelState,
    CheckpointRecord,
    SubtaskCheckpoint,
    SubtaskSnapshot,
    TaskKey,
    TimeAccount,
    Usage,
)
from backend.runtime.network.channel import ChannelKey
from backend.runtime.operators.state import OperatorSnapshot, OperatorState, StateMode
from backend.runtime.task.restarts import Initialization, Restart, initialization

# --- one checkpoint ---------------------------------------------------------------------------------------------------


def _measured(first_barrier_us: int = 130, **values: Any) -> SubtaskCheckpoint:
    return SubtaskCheckpoint(checkpoint_id=7, triggered_at_us=100, first_barrier_us=first_barrier_us, **values)


def _record(acks: dict[TaskKey, Ack]) -> CheckpointRecord:
    return CheckpointRecord(7, 100, Barrier(7, 100, Alignment.ALIGNED), 3, Graph((), ()), acks=acks)


def test_the_start_delay_is_counted_from_the_trigger_and_never_below_nothing() -> None:
    """ME-1: a subtask's clock may be behind that of the coordinator."""
    assert [_measured(at).start_delay_us for at in (130, 101, 100, 90)] == [30, 1, 0, 0]


def test_a_checkpoint_lasts_to_its_last_acknowledgement_and_a_failed_one_to_its_failure() -> None:
    """ME-9, ME-13, ME-10: none yet is not zero."""
    record = _record({})
    assert (record.latest_ack_us, record.end_to_end_us, record.critical_path) == (None, None, None)
    record.acks[0, 0] = Ack(400, _measured())
    record.acks[1, 0] = Ack(350, _measured())
    assert (record.latest_ack_us, record.end_to_end_us) == (400, 300)
    record.failed_at_us = 900
    assert (record.latest_ack_us, record.end_to_end_us) == (400, 800)


def test_the_critical_path_is_of_the_last_acknowledgement_and_its_parts_add_up() -> None:
    """ME-11, ME-13: what is between the phases is the residual; of equal ones it is the subtask further down."""
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


def test_sums_are_over_the_subtasks_that_acknowledged_and_what_is_unknown_adds_nothing() -> None:
    """ME-3, ME-4, ME-13, ALO-5."""
    one = _measured(processed_bytes=None, persisted_bytes=3, state_bytes=20, repeatable_records=1)
    two = _measured(processed_bytes=11, persisted_bytes=4, state_bytes=30, repeatable_records=6)
    record = _record({(0, 0): Ack(200, one), (0, 1): Ack(200, two)})
    assert (record.processed_bytes, record.persisted_bytes) == (11, 7)
    assert (record.state_bytes, record.repeatable_records) == (50, 7)


# --- a subtask's time -------------------------------------------------------------------------------------------------


def test_time_goes_to_what_the_subtask_was_at_and_is_shared_out_over_the_window() -> None:
    """ME-19: a subtask begins idle; busy is what idle and backpressured leave of a second."""
    account = TimeAccount(1_000, samples=3)
    assert account.ms_per_s() == (0, 0, 0, 0), "nothing was looked at"
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


def test_what_left_the_window_counts_no_more() -> None:
    """ME-19: as many periods as there are samples, and no more."""
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


def test_shares_are_cut_to_whole_milliseconds_and_busy_takes_the_rest() -> None:
    """ME-19: the sum is 1000 within rounding."""
    account = TimeAccount(0, samples=1)
    account.turn(Usage.SOFT, 1)
    account.turn(Usage.HARD, 2)
    account.sample(3)
    assert account.ms_per_s() == (1, 333, 333, 333)


# --- a restart --------------------------------------------------------------------------------------------------------

_UNION = OperatorState("transactions", StateMode.UNION, (b"x" * 30, b"y" * 20))
_SNAPSHOT = SubtaskSnapshot(
    (OperatorSnapshot({3: b"k" * 10}), OperatorSnapshot({}, (_UNION,))),
    ChannelState({ChannelKey(0, 0, 0): [b"i" * 70]}, {ChannelKey(1, 0, 0): [b"o" * 60, b"o" * 40]}),
    watermark_us=-1,
    state_bytes=250,
    persisted_bytes=170,
)


def test_the_load_of_a_subtask_is_output_then_state_then_input_at_the_bandwidth_of_recovery() -> None:
    """ME-17, RC-11: the parts are one behind the other, and add up to what all bytes take."""
    nothing = initialization(None, now_us=9, bytes_per_s=1)
    assert (nothing.deployed_at_us, nothing.mailbox_start_us, nothing.records_filtered) == (9, 0, 0)
    loaded = initialization(_SNAPSHOT, now_us=9, bytes_per_s=1_000_000)
    assert (loaded.read_output_us, loaded.initialize_state_us, loaded.read_input_us) == (100, 250, 70)
    assert (loaded.state_bytes, loaded.channel_bytes, loaded.local_bytes) == (250, 170, 0)
    assert loaded.mailbox_start_us == 420
    cut = initialization(_SNAPSHOT, now_us=0, bytes_per_s=300_000_000)
    assert (cut.read_output_us, cut.initialize_state_us, cut.read_input_us) == (0, 1, 0), "420 bytes take 1.4 us"
    # To the byte and the microsecond: 250 bytes at 3 a second.
    slow = initialization(replace(_SNAPSHOT, channels=ChannelState(), persisted_bytes=0), now_us=0, bytes_per_s=3)
    assert slow.initialize_state_us == slow.mailbox_start_us == 83_333_333


def test_a_workers_own_copy_spares_the_transfer_of_keyed_state_and_not_of_what_all_share() -> None:
    """RC-10: the entries of operator state come from the store."""
    loaded = initialization(_SNAPSHOT, now_us=0, bytes_per_s=1_000_000, has_local_copy=True)
    assert (loaded.state_bytes, loaded.local_bytes, loaded.initialize_state_us) == (250, 200, 50)
    shared = initialization(replace(_SNAPSHOT, state_bytes=45), now_us=0, bytes_per_s=1_000_000, has_local_copy=True)
    assert (shared.local_bytes, shared.initialize_state_us) == (0, 45)


def test_instants_of_a_restart_become_durations_once_they_are_reached() -> None:
    """ME-17, RC-11: from the deployment, behind the loads; not reached is not zero."""
    one = Initialization(1_000, read_output_us=10, initialize_state_us=40, read_input_us=5)
    assert (one.mailbox_start_us, one.gate_restore_us, one.until_running_us) == (55, None, None)
    one.gate_restored_at_us, one.running_at_us = 1_200, 1_500
    assert (one.gate_restore_us, one.until_running_us) == (145, 500)

    restart = Restart(400, "a cause", {})
    assert (restart.restart_us, restart.running_at_us, restart.state_load_us, restart.channel_load_us) == (
        None,
        None,
        0,
        0,
    )
    restart.deployed_at_us = 1_000
    other = Initialization(1_000, read_output_us=1, initialize_state_us=90, read_input_us=2)
    restart.subtasks = {(0, 0): one, (1, 0): other}
    assert (restart.restart_us, restart.state_load_us, restart.channel_load_us) == (600, 90, 15)
    assert (restart.running_at_us, restart.channel_replay_us) == (None, None), "one of two runs"
    other.running_at_us = 1_300
    assert (restart.running_at_us, restart.channel_replay_us) == (1_500, 1_500 - 1_093)


def test_sources_replay_up_to_where_they_were_and_catch_up_when_nothing_is_due() -> None:
    """RC-11: of all sources the last; one that waits has replayed all the same."""
    restart = Restart(400, "a cause", {(0, 0): 10, (0, 1): 20}, deployed_at_us=1_000)
    assert restart.emitted((0, 0), 9, 1_100)
    assert restart.replayed == {}
    assert restart.emitted((0, 0), 10, 1_200)
    assert restart.emitted((0, 0), 11, 1_250)
    assert restart.replayed == {(0, 0): 1_200}
    assert restart.source_replay_us is None, "the other is not back"
    restart.waits((0, 1), 20, 1_300)
    restart.waits((0, 1), 20, 1_400)
    assert (restart.source_replay_us, restart.catch_up_us) == (300, None)
    assert not restart.emitted((0, 1), 21, 1_450), "it has told all there is to tell"
    restart.waits((0, 0), 30, 1_500)
    assert restart.catch_up_us == 500


@pytest.mark.parametrize("deployed_at_us", [None, 1_000])
def test_a_job_without_sources_that_were_anywhere_has_nothing_to_replay(deployed_at_us: int | None) -> None:
    restart = Restart(400, "a cause", {}, deployed_at_us=deployed_at_us)
    assert (restart.source_replay_us, restart.catch_up_us) == (None, None)


def test_what_a_restart_lost_and_repeats_is_shown_with_its_durations() -> None:
    restart = Restart(0, "a failure", {}, lost_channel_bytes=700, repeated_records=30)

    assert {k: v for k, v in restart.costs.items() if v} == {"lost_channel_bytes": 700, "repeated_records": 30}
