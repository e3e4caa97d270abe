"""Tests of the checkpoint modes: settings select a mode, and a task recognizes the mode by its barrier.

Each mode states its properties.
"""

from __future__ import annotations

import pytest

from backend.runtime.core.elements import SnapshotType
from backend.runtime.job.config import RuntimeConfig, StartsWith
from backend.runtime.protocols.base import Snapshot
from backend.runtime.protocols.mode import Cap, InFlight, TaskView
from backend.runtime.protocols.registry import MODES, barrier_of, commands_at_source, mode_of

_CONFIGS = {
    "at least once": RuntimeConfig(is_exactly_once=False),
    "Chandy-Lamport": RuntimeConfig(is_chandy_lamport=True),
    "unaligned with a cap": RuntimeConfig(is_unaligned=True, cap_bytes=1000),
    "unaligned on the last barrier": RuntimeConfig(is_unaligned=True, starts_with=StartsWith.LAST_BARRIER),
    "unaligned": RuntimeConfig(is_unaligned=True),
    "aligned with timeout": RuntimeConfig(is_unaligned=True, aligned_timeout_us=1_000),
    "aligned": RuntimeConfig(),
}


def test_every_registered_mode_is_tested_here() -> None:
    assert [mode.name for mode in MODES] == list(_CONFIGS)


@pytest.mark.parametrize("name", _CONFIGS)
def test_settings_select_the_mode_and_a_task_finds_it_by_the_barrier(name: str) -> None:
    config = _CONFIGS[name]
    mode = mode_of(config)
    barrier = barrier_of(config, 7, 1_000, SnapshotType.CHECKPOINT)

    assert mode.name == name
    assert next(m for m in MODES if m.handles(barrier)) is mode
    assert mode.has_channel_state is barrier.needs_channel_state
    assert (barrier.checkpoint_id, barrier.triggered_at_us) == (7, 1_000)


@pytest.mark.parametrize("name", _CONFIGS)
def test_no_savepoint_has_channel_state(name: str) -> None:
    kind = SnapshotType.SAVEPOINT
    config = _CONFIGS[name]

    assert not mode_of(config, kind).has_channel_state
    assert barrier_of(config, 1, 0, kind).snapshot_type is kind


@pytest.mark.parametrize("name", _CONFIGS)
def test_a_source_with_empty_outputs_takes_its_snapshot_at_once(name: str) -> None:
    config = _CONFIGS[name]
    barrier = barrier_of(config, 1, 0, SnapshotType.CHECKPOINT)
    cap = Cap(lambda: config.cap_bytes, lambda: InFlight(0, 0), lambda: config.on_cap, lambda _: None, lambda: 0)

    assert commands_at_source(barrier, TaskView(cap=cap)) == [Snapshot(barrier)]
