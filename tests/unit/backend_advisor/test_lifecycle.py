"""Tests that every proposed setting is compared with the one that the engine reports, and is part of the API."""

from __future__ import annotations

from dataclasses import fields

import pytest

from backend.advisor.advice import Setting
from backend.advisor.lifecycle import is_in_force
from backend.contracts.advice import SettingOut
from backend.domain.advice import Mode
from backend.domain.checkpoint import CheckpointConfig

_UNALIGNED = CheckpointConfig(is_unaligned_enabled=True, aligned_timeout_ms=0)
_AFTER_10_S = CheckpointConfig(is_unaligned_enabled=True, aligned_timeout_ms=10_000)

# For each field of Setting: a proposal that contains the field, what the engine reports when the proposal is in
# force, and what it reports when the proposal is not in force.
_CASES: dict[str, tuple[Setting, CheckpointConfig | None, CheckpointConfig | None]] = {
    "mode": (Setting(mode=Mode.UNALIGNED), _UNALIGNED, CheckpointConfig(is_unaligned_enabled=False)),
    "aligned_timeout_ms": (
        Setting(mode=Mode.ALIGNED_WITH_TIMEOUT, aligned_timeout_ms=10_000),
        _AFTER_10_S,
        _UNALIGNED,
    ),
    "inflight_cap_bytes": (
        Setting(inflight_cap_bytes=1 << 20),
        CheckpointConfig(inflight_cap_bytes=1 << 20),
        CheckpointConfig(inflight_cap_bytes=1 << 21),
    ),
    "debloat_target_ms": (
        Setting(debloat_target_ms=1_000),
        CheckpointConfig(debloat_target_ms=1_000),
        CheckpointConfig(debloat_target_ms=500),
    ),
    "interval_ms": (
        Setting(interval_ms=5_000),
        CheckpointConfig(interval_ms=5_000),
        CheckpointConfig(interval_ms=10_000),
    ),
    "min_pause_ms": (
        Setting(min_pause_ms=100),
        CheckpointConfig(min_pause_ms=100),
        CheckpointConfig(min_pause_ms=0),
    ),
    "timeout_ms": (
        Setting(timeout_ms=60_000),
        CheckpointConfig(timeout_ms=60_000),
        CheckpointConfig(timeout_ms=600_000),
    ),
    "is_uncapped": (
        Setting(is_uncapped=True),
        CheckpointConfig(inflight_cap_bytes=None),
        CheckpointConfig(inflight_cap_bytes=1 << 20),
    ),
    "is_debloat_off": (
        Setting(is_debloat_off=True),
        CheckpointConfig(debloat_target_ms=None),
        CheckpointConfig(debloat_target_ms=500),
    ),
}


def test_every_setting_has_a_case_here_and_a_field_in_the_api():
    names = {f.name for f in fields(Setting)}

    assert names == set(_CASES)
    assert names == set(SettingOut.model_fields)


@pytest.mark.parametrize("name", _CASES)
def test_a_proposed_setting_is_in_force_when_the_engine_reports_it(name):
    wanted, holding, other = _CASES[name]

    assert getattr(wanted, name) is not None
    if holding is None:
        assert is_in_force(wanted, _UNALIGNED) is None
    else:
        assert (is_in_force(wanted, holding), is_in_force(wanted, other)) == (True, False)
    assert is_in_force(wanted, None) is None
