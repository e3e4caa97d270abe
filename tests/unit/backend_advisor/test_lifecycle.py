"""Tests that every proposed setting is compared with the one that the engine reports, and is part of the API."""

from __future__ import annotations

from dataclasses import fields

import pytest

from backend.advisor.advice import Setting
from backend.advisor.engine_settings import changes_of
from backend.advisor.lifecycle import IN_FORCE, is_in_force
from backend.contracts.advice import SettingOut
from backend.domain.advice import Mode
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.engines import EngineCapabilities, SettingKeys

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
        Setting(interval_ms=20_000),
        CheckpointConfig(interval_ms=20_000),
        CheckpointConfig(interval_ms=5_000),
    ),
    "min_pause_ms": (Setting(min_pause_ms=500), CheckpointConfig(min_pause_ms=500), CheckpointConfig(min_pause_ms=0)),
    "timeout_ms": (Setting(timeout_ms=60_000), CheckpointConfig(timeout_ms=60_000), CheckpointConfig(timeout_ms=1)),
    "tolerable_failed_count": (
        Setting(tolerable_failed_count=3),
        CheckpointConfig(tolerable_failed_count=3),
        CheckpointConfig(tolerable_failed_count=0),
    ),
    "state_backend": (
        Setting(state_backend="rocksdb"),
        CheckpointConfig(state_backend="EmbeddedRocksDBStateBackend"),
        CheckpointConfig(state_backend="HashMapStateBackend"),
    ),
    # The engine reports the parallelism with the graph and not with the settings.
    "parallelism": (Setting(parallelism=8, vertex_id="v"), None, None),
    "vertex_id": (Setting(parallelism=8, vertex_id="v"), None, None),
    # No engine reports these for a job.
    "debloat_period_ms": (Setting(debloat_period_ms=100), None, None),
    "floating_buffer_count": (Setting(floating_buffer_count=16), None, None),
    "retained_count": (Setting(retained_count=2), None, None),
    "is_incremental": (Setting(is_incremental=True), None, None),
    "has_changelog": (Setting(has_changelog=True), None, None),
    "batch_offset_count": (Setting(batch_offset_count=1_000), None, None),
    "batch_file_count": (Setting(batch_file_count=4), None, None),
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
_ALL_KEYS = EngineCapabilities(
    kind="all", name="All", source="a test", settings=SettingKeys(**{f.name: f.name for f in fields(SettingKeys)})
)


def test_every_setting_has_a_case_here_and_a_field_in_the_api():
    names = {f.name for f in fields(Setting)}

    assert names == set(_CASES)
    assert names == set(SettingOut.model_fields)
    assert names == set(IN_FORCE)


@pytest.mark.parametrize("name", _CASES)
def test_a_proposed_setting_is_stored_with_its_card_and_is_a_change_of_the_engines_settings(name):
    wanted, _, _ = _CASES[name]
    stored = SettingOut.model_validate(wanted).model_dump(mode="json")

    assert Setting(**SettingOut.model_validate(stored).model_dump()) == wanted
    if name in ("is_uncapped", "is_debloat_off"):
        return  # Only a what-if turns these off, and writes the change itself.
    value = str(getattr(wanted, name)).lower()
    written = " ".join(f"{c.key} {c.proposed}" for c in changes_of(_ALL_KEYS, Setting(), wanted))
    assert value in written or (name == "mode" and "unaligned true" in written), written


def test_a_new_parallelism_is_in_force_when_the_graph_has_it():
    wanted = Setting(parallelism=8, vertex_id="v")

    assert is_in_force(wanted, _UNALIGNED, {"v": 8}) is True
    assert is_in_force(wanted, _UNALIGNED, {"v": 4, "w": 8}) is False
    assert is_in_force(wanted, _UNALIGNED, {}) is None


def test_two_proposed_settings_are_in_force_only_together():
    wanted = Setting(interval_ms=20_000, timeout_ms=60_000)

    assert is_in_force(wanted, CheckpointConfig(interval_ms=20_000, timeout_ms=60_000)) is True
    assert is_in_force(wanted, CheckpointConfig(interval_ms=20_000, timeout_ms=1)) is False
    assert is_in_force(wanted, CheckpointConfig(interval_ms=20_000)) is None


@pytest.mark.parametrize("name", _CASES)
def test_a_proposed_setting_is_in_force_when_the_engine_reports_it(name):
    wanted, holding, other = _CASES[name]

    assert getattr(wanted, name) is not None
    if holding is None:
        assert is_in_force(wanted, _UNALIGNED) is None
    else:
        assert (is_in_force(wanted, holding), is_in_force(wanted, other)) == (True, False)
    assert is_in_force(wanted, None) is None
