"""Tests of the measurements of a restart: loading, replay, catching up and losses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.runtime.measure.measures import (
    ChannelState,
    SubtaskSnapshot,
)
from backend.runtime.network.channel import ChannelKey
from backend.runtime.operators.state import OperatorSnapshot, OperatorState, StateMode
from backend.runtime.task.restarts import Initialization, Restart, initialization

# --- a restart --------------------------------------------------------------------------------------------------------

_UNION = OperatorState("transactions", StateMode.UNION, (b"x" * 30, b"y" * 20))
_SNAPSHOT = SubtaskSnapshot(
    (OperatorSnapshot({3: b"k" * 10}), OperatorSnapshot({}, (_UNION,))),
    ChannelState({ChannelKey(0, 0, 0): [b"i" * 70]}, {ChannelKey(1, 0, 0): [b"o" * 60, b"o" * 40]}),
    watermark_us=-1,
    state_bytes=250,
    persisted_bytes=170,
)


def test_a_subtask_loads_output_then_state_then_input_at_the_recovery_bandwidth() -> None:
    """ME-17, RC-11: the parts are loaded one after the other, and together take the time for all bytes."""
    nothing = initialization(None, now_us=9, bytes_per_s=1)
    assert (nothing.deployed_at_us, nothing.mailbox_start_us, nothing.records_filtered) == (9, 0, 0)
    loaded = initialization(_SNAPSHOT, now_us=9, bytes_per_s=1_000_000)
    assert (loaded.read_output_us, loaded.initialize_state_us, loaded.read_input_us) == (100, 250, 70)
    assert (loaded.state_bytes, loaded.channel_bytes, loaded.local_bytes) == (250, 170, 0)
    assert loaded.mailbox_start_us == 420
    cut = initialization(_SNAPSHOT, now_us=0, bytes_per_s=300_000_000)
    assert (cut.read_output_us, cut.initialize_state_us, cut.read_input_us) == (0, 1, 0), "420 bytes take 1.4 us"
    # Times are exact to the microsecond: 250 bytes at 3 bytes per second.
    slow = initialization(replace(_SNAPSHOT, channels=ChannelState(), persisted_bytes=0), now_us=0, bytes_per_s=3)
    assert slow.initialize_state_us == slow.mailbox_start_us == 83_333_333


def test_a_local_copy_saves_the_transfer_of_keyed_state_but_not_of_operator_state() -> None:
    """RC-10: a local copy has the keyed state only. The entries of operator state come from the store."""
    loaded = initialization(_SNAPSHOT, now_us=0, bytes_per_s=1_000_000, has_local_copy=True)
    assert (loaded.state_bytes, loaded.local_bytes, loaded.initialize_state_us) == (250, 200, 50)
    shared = initialization(replace(_SNAPSHOT, state_bytes=45), now_us=0, bytes_per_s=1_000_000, has_local_copy=True)
    assert (shared.local_bytes, shared.initialize_state_us) == (0, 45)


def test_instants_of_a_restart_become_durations_once_they_are_reached() -> None:
    """ME-17, RC-11: a duration is None until its instant is reached.

    The gate's restore counts from the end of the loads, and the time until running counts from the deployment.
    """
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
    assert (restart.running_at_us, restart.channel_replay_us) == (None, None), "only one of two runs"
    other.running_at_us = 1_300
    assert (restart.running_at_us, restart.channel_replay_us) == (1_500, 1_500 - 1_093)


def test_sources_replay_up_to_their_offsets_and_catch_up_when_nothing_is_due() -> None:
    """RC-11: replay ends with the last source. A source that waits for new data has finished its replay."""
    restart = Restart(400, "a cause", {(0, 0): 10, (0, 1): 20}, deployed_at_us=1_000)
    assert restart.emitted((0, 0), 9, 1_100)
    assert restart.replayed == {}
    assert restart.emitted((0, 0), 10, 1_200)
    assert restart.emitted((0, 0), 11, 1_250)
    assert restart.replayed == {(0, 0): 1_200}
    assert restart.source_replay_us is None, "the other source is not back"
    restart.waits((0, 1), 20, 1_300)
    restart.waits((0, 1), 20, 1_400)
    assert (restart.source_replay_us, restart.catch_up_us) == (300, None)
    assert not restart.emitted((0, 1), 21, 1_450), "this source needs no further reports"
    restart.waits((0, 0), 30, 1_500)
    assert restart.catch_up_us == 500


@pytest.mark.parametrize("deployed_at_us", [None, 1_000])
def test_a_job_whose_sources_had_no_offsets_has_nothing_to_replay(deployed_at_us: int | None) -> None:
    restart = Restart(400, "a cause", {}, deployed_at_us=deployed_at_us)
    assert (restart.source_replay_us, restart.catch_up_us) == (None, None)


def test_the_losses_and_repetitions_of_a_restart_are_shown_with_its_durations() -> None:
    restart = Restart(0, "a failure", {}, lost_channel_bytes=700, repeated_records=30)

    assert {k: v for k, v in restart.costs.items() if v} == {"lost_channel_bytes": 700, "repeated_records": 30}


def test_records_met_another_watermark_unless_the_operator_had_stored_it_and_are_not_known_before_it_is_reached() -> (
    None
):
    """RC-9: a subtask counts the records that it took before its watermark was again that of the checkpoint."""
    stored, plain, other = (Initialization(0, records_before_watermark=n) for n in (30, 12, 0))
    stored.has_stored_watermark = True
    restart = Restart(0, "a failure", {}, subtasks={(1, 0): stored, (1, 1): plain, (0, 0): other})
    assert (restart.records_before_watermark, restart.records_with_other_watermark) == (42, 12)
    stored.records_before_watermark = None
    assert (restart.records_before_watermark, restart.records_with_other_watermark) == (None, 12)
    plain.records_before_watermark = None
    assert restart.records_with_other_watermark is None
