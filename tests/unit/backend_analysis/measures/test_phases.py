"""Tests of when each phase of a subtask begins and ends, and of the values that stay unknown."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta

import pytest

from backend.analysis.measures.phases import SubtaskPhases, checkpoint_phases, longest_ms
from backend.contracts.api import SubtaskPhasesOut
from backend.domain.checkpoint import CheckpointKind, LateBarrier
from backend.domain.verdict import Basis, Phase
from tests.support.handwritten_jobs import ALIGNED, LAST, MIDDLE, START, completed, detail, failed, subtask_phases

ROW = detail(LAST, first=[1_000], alignment=600, sync=5, async_=200)
HEADER = completed(1, ROW).header


def test_the_fields_are_those_of_the_api_without_the_host():
    assert {f.name for f in fields(SubtaskPhases)} == set(SubtaskPhasesOut.model_fields) - {"host"}


def test_an_aligned_snapshot_begins_at_the_last_barrier():
    (phases,) = subtask_phases(HEADER, ROW, None, False)

    assert (phases.alignment_end_ms, phases.snapshot_at_ms) == (1_600, 1_600)
    assert (phases.sync_end_ms, phases.async_end_ms, phases.ack_ms, phases.ack_wait_ms) == (1_605, 1_805, 1_805, 0)
    assert not phases.is_alignment_overlaid


def test_an_unaligned_snapshot_begins_at_the_first_barrier_with_the_alignment_inside_async():
    row = detail(LAST, first=[1_000], alignment=600, sync=5, async_=800, ack=[1_810])

    (phases,) = subtask_phases(HEADER, row, 0, True)

    assert phases.snapshot_at_ms == 1_000
    assert phases.alignment_end_ms == 1_600
    assert phases.is_alignment_overlaid
    assert phases.async_end_ms == 1_805
    assert phases.own_async_ms == 800 - (1_600 - 1_005)


@pytest.mark.parametrize(
    ("timeout", "snapshot"),
    [
        pytest.param(500, 1_000, id="the timeout was over before the first barrier came"),
        pytest.param(1_200, 1_200, id="it was over while aligning"),
        pytest.param(5_000, 1_600, id="alignment ended first"),
    ],
)
def test_under_an_aligned_timeout_the_snapshot_begins_at_the_timeout_counted_from_the_trigger(timeout, snapshot):
    (phases,) = subtask_phases(HEADER, ROW, timeout, True)

    assert phases.snapshot_at_ms == snapshot
    assert phases.is_alignment_overlaid == (snapshot < 1_600)


def test_a_savepoint_is_aligned_under_all_settings():
    header = replace(HEADER, kind=CheckpointKind.SAVEPOINT)

    (phases,) = subtask_phases(header, ROW, 0, True)

    assert phases.snapshot_at_ms == 1_600


@pytest.mark.parametrize(("is_unaligned", "snapshot"), [(True, 1_000), (False, 1_600), (None, 1_600)])
def test_if_the_settings_are_not_known_the_type_of_the_checkpoint_decides(is_unaligned, snapshot):
    (phases,) = subtask_phases(replace(HEADER, is_unaligned=is_unaligned), ROW, None, None)

    assert phases.snapshot_at_ms == snapshot


def test_a_pending_subtask_has_only_the_value_of_its_gauge():
    row = detail(LAST, first=[None, 100])
    late = LateBarrier(LAST, 0, 3_200, START + timedelta(seconds=9), 2_000)
    elsewhere = LateBarrier(MIDDLE, 1, 9_999, START, 1)

    pending, acknowledged = subtask_phases(failed(1, row).header, row, None, False, [late, elsewhere])

    assert not pending.is_acknowledged
    assert (pending.first_barrier_ms, pending.first_barrier_resolution_ms) == (3_200, 2_000)
    assert pending.first_barrier_basis is Basis.MEASURED
    assert [pending.snapshot_at_ms, pending.ack_ms, pending.ack_wait_ms, pending.sync_duration_ms] == [None] * 4
    assert acknowledged.first_barrier_ms == 100


def test_a_first_barrier_after_the_acknowledgement_is_clock_skew_and_is_not_corrected():
    row = detail(LAST, first=[900, -40], ack=[500, 10])

    ahead, behind = subtask_phases(HEADER, row, None, False)

    assert ahead.has_clock_skew
    assert ahead.first_barrier_ms == 900
    assert behind.has_clock_skew
    assert behind.first_barrier_ms == -40


def test_rounding_of_the_parts_is_no_clock_skew():
    row = detail(LAST, first=[10], alignment=1, sync=1, async_=1, ack=[11])

    (phases,) = subtask_phases(HEADER, row, None, False)

    assert not phases.has_clock_skew
    assert phases.ack_wait_ms == 0


def test_a_finished_subtask_has_zeros_and_no_badge():
    row = detail(LAST, first=[0, 0], ack=[0, 1], size_bytes=0)

    for phases in subtask_phases(HEADER, row, None, False):
        assert (phases.first_barrier_ms, phases.snapshot_at_ms, phases.has_clock_skew) == (0, 0, False)


def test_the_longest_phase_of_a_checkpoint_is_that_of_any_vertex():
    rows = (
        detail(START, first=[0, 0], sync=5, async_=200),
        detail(MIDDLE, first=[100], sync=50, async_=20, ack=[900]),
    )
    phases = checkpoint_phases(completed(1, *rows), ALIGNED)

    assert longest_ms(phases, Phase.SYNC) == 50
    assert longest_ms(phases, Phase.ASYNC) == 200
    assert longest_ms(phases, Phase.ACK_WAIT) == 900 - (100 + 50 + 20)
    assert longest_ms({}, Phase.SYNC) == 0
    assert longest_ms(checkpoint_phases(completed(1), ALIGNED), Phase.SYNC) == 0
