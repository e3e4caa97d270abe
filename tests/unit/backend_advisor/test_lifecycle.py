"""Tests that every proposed setting is compared with the one that the engine reports, and is part of the API.

Then tests of the watch over an applied change: when it is measured again, and when it made the checkpoints worse.
"""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest

from backend.advisor.advice import Interval, Setting
from backend.advisor.engine_settings import changes_of
from backend.advisor.lifecycle import (
    IN_FORCE,
    LOOKS,
    WATCHED_FOR,
    Card,
    Observed,
    SentRollBack,
    is_in_force,
    next_step,
    watched,
)
from backend.analysis.measures.windows import Direction, Tally
from backend.contracts.advice import SettingOut
from backend.domain.advice import AdviceState, Metric, Mode
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.engines import EngineCapabilities, SettingKeys
from tests.support.handwritten_jobs import failed, quick

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
    "max_concurrent": (
        Setting(max_concurrent=1),
        CheckpointConfig(max_concurrent=1),
        CheckpointConfig(max_concurrent=3),
    ),
    # No engine reports this, so only the mode counts.
    "is_unaligned_forced": (
        Setting(mode=Mode.UNALIGNED, is_unaligned_forced=True),
        _UNALIGNED,
        CheckpointConfig(is_unaligned_enabled=False),
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
    "changelog_directory": (Setting(has_changelog=True, changelog_directory="file:/c"), None, None),
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


# --- advice about settings that changed -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "is_given", "config", "is_expired"),
    [
        (AdviceState.NEW, False, CheckpointConfig(is_unaligned_enabled=True, aligned_timeout_ms=0), True),
        # The job still has the settings, or does not report them: the rules may give the advice again.
        (AdviceState.NEW, False, CheckpointConfig(is_unaligned_enabled=False), False),
        (AdviceState.NEW, False, None, False),
        (AdviceState.NEW, True, CheckpointConfig(is_unaligned_enabled=True, aligned_timeout_ms=0), False),
        (AdviceState.ACCEPTED, False, CheckpointConfig(is_unaligned_enabled=True, aligned_timeout_ms=0), False),
    ],
)
def test_new_advice_about_settings_that_are_not_in_force_any_more_expires_at_once(state, is_given, config, is_expired):
    """After an automatic roll back to unaligned, the advice to leave aligned was open for ten minutes."""
    proposed = Setting(mode=Mode.ALIGNED_WITH_TIMEOUT, aligned_timeout_ms=200)
    card = replace(_VERIFIED, state=state, applied_at=None, proposed=proposed)
    seen = replace(_seen([]), now=_APPLIED_AT + timedelta(minutes=1), config=config, is_given=is_given)

    step = next_step(card, seen)

    assert (step is not None and step.state is AdviceState.EXPIRED) == is_expired


# --- the watch over an applied change ---------------------------------------------------------------------------------

_APPLIED_AT = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
_BEFORE_MS = tuple(1_000.0 + 10 * (i % 4) for i in range(20))
_VERIFIED = Card(
    state=AdviceState.VERIFIED,
    created_at=_APPLIED_AT,
    last_given_at=_APPLIED_AT,
    applied_at=_APPLIED_AT,
    current=Setting(mode=Mode.ALIGNED),
    proposed=Setting(mode=Mode.UNALIGNED),
    expected=((Metric.DURATION, Interval(300.0, 200.0, 500.0)), (Metric.EXPIRED, Interval(0.0, 0.0, 0.05))),
    before_ms=_BEFORE_MS,
    before=Tally(20, 0),
    measured_count=5,
)


def _seen(checkpoints, *, is_on=True, after=timedelta(minutes=5)):
    return Observed(
        now=_APPLIED_AT + after,
        config=CheckpointConfig(is_unaligned_enabled=is_on, aligned_timeout_ms=0),
        settings_since=_APPLIED_AT,
        checkpoints=[c.header for c in checkpoints],
        is_given=False,
    )


def _taking(duration_ms, count):
    return [quick(n, duration_ms + 10 * (n % 3)) for n in range(1, count + 1)]


def test_a_change_that_made_checkpoints_clearly_longer_than_before_and_than_predicted_is_a_regression():
    step = next_step(_VERIFIED, _seen(_taking(3_000, 10)))

    assert step.state is AdviceState.REGRESSED
    assert step.reason == (
        "checkpoints take 3.0 s after the change, 1.0 s before it (+2.0 s, 95 % interval +2.0 s to +2.0 s)"
    )
    assert step.effect.direction is Direction.HIGHER
    assert len(step.checkpoint_ids) == 10
    # It stays one until the engine reports other settings.
    regressed = replace(_VERIFIED, state=step.state, measured_count=10)
    assert next_step(regressed, _seen(_taking(300, 20))) is None
    assert next_step(regressed, _seen([], is_on=False)).state is AdviceState.ROLLED_BACK


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (None, "undone outside of Barrierscope"),
        (SentRollBack(is_automatic=False), "rolled back by a person in Barrierscope"),
        (
            SentRollBack(is_automatic=True, reason="4 of 9 expired"),
            "rolled back automatically by Barrierscope, because 4 of 9 expired",
        ),
    ],
)
def test_a_card_that_was_undone_says_by_whom_and_why(sent, words):
    card = replace(_VERIFIED, roll_back=sent)

    step = next_step(card, _seen([], is_on=False))

    assert step.reason.startswith(f"{words}; " if sent else f"{words}: ")
    assert step.reason.endswith("the engine reports the earlier settings again")


def test_other_settings_than_the_earlier_ones_are_not_called_earlier_ones():
    seen = replace(_seen([]), config=_AFTER_10_S)

    assert next_step(_VERIFIED, seen).reason.endswith("the engine reports other settings")


@pytest.mark.parametrize("is_automatic", [True, False])
def test_settings_that_are_neither_the_proposed_nor_the_earlier_ones_were_not_rolled_back(is_automatic):
    card = replace(_VERIFIED, roll_back=SentRollBack(is_automatic, "4 of 9 expired"))

    step = next_step(card, replace(_seen([]), config=_AFTER_10_S))

    assert step.reason == "undone outside of Barrierscope: the engine reports other settings"


@pytest.mark.parametrize(
    ("duration_ms", "interval"),
    [
        # As predicted, although longer than before: a person accepted that.
        (3_000, Interval(3_000.0, 2_000.0, 4_000.0)),
        # Longer than predicted, but not than before.
        (900, Interval(300.0, 200.0, 500.0)),
        # Longer than both, by less than a tenth.
        (1_060, Interval(300.0, 200.0, 500.0)),
    ],
)
def test_what_was_predicted_or_is_no_worse_than_before_is_no_regression(duration_ms, interval):
    card = replace(_VERIFIED, expected=((Metric.DURATION, interval),))

    step = next_step(card, _seen(_taking(duration_ms, 10)))

    assert (step.state, step.effect is not None) == (AdviceState.VERIFIED, True)


def test_a_change_after_which_more_checkpoints_expire_is_a_regression():
    expired = [failed(n, after_ms=1_000) for n in range(1, 9)] + _taking(300, 4)

    step = next_step(_VERIFIED, _seen(expired))

    assert step.state is AdviceState.REGRESSED
    assert step.reason == "8 of 12 checkpoints expired after the change, 0 of 20 before it"


def test_five_checkpoints_that_all_expire_are_a_regression_already():
    applied = replace(_VERIFIED, state=AdviceState.APPLIED, measured_count=0)

    step = next_step(applied, _seen([failed(n, after_ms=1_000) for n in range(1, 6)]))

    assert (step.state, step.reason) == (
        AdviceState.REGRESSED,
        "5 of 5 checkpoints expired after the change, 0 of 20 before it",
    )


def test_one_of_five_checkpoints_that_expires_is_no_regression_yet():
    applied = replace(_VERIFIED, state=AdviceState.APPLIED, measured_count=0)

    step = next_step(applied, _seen([failed(1, after_ms=1_000), *_taking(300, 4)]))

    assert step.state is AdviceState.VERIFIED


def test_a_verified_change_is_measured_again_at_each_look_and_not_in_between_nor_for_ever():
    looked = []
    card = _VERIFIED
    for count in range(5, 26):
        step = next_step(card, _seen(_taking(300, count)))
        if step is not None:
            looked.append(count)
            card = replace(card, measured_count=len(step.checkpoint_ids))
    assert looked == list(LOOKS)
    assert next_step(_VERIFIED, _seen(_taking(3_000, 10), after=WATCHED_FOR + timedelta(seconds=1))) is None
    assert next_step(replace(_VERIFIED, before_ms=_BEFORE_MS[:9]), _seen(_taking(3_000, 10))) is None


def test_a_change_that_is_measured_late_can_be_a_regression_at_once():
    applied = replace(_VERIFIED, state=AdviceState.APPLIED, measured_count=0)

    assert next_step(applied, _seen(_taking(3_000, 4))) is None
    assert next_step(applied, _seen(_taking(3_000, 5))).state is AdviceState.VERIFIED
    assert next_step(applied, _seen(_taking(3_000, 12))).state is AdviceState.REGRESSED


@pytest.mark.parametrize(
    ("changes", "ended_count", "watched_as"),
    [
        ({"state": AdviceState.APPLIED, "measured_count": 0}, 3, (3, 20, False)),
        ({"state": AdviceState.APPLIED, "measured_count": 0, "before_ms": _BEFORE_MS[:9]}, 3, (3, 5, False)),
        ({"measured_count": 5, "before_ms": _BEFORE_MS[:9]}, 9, (5, 5, True)),
        ({"measured_count": 10}, 12, (12, 20, False)),
        # The older ones of the checkpoints on which it was measured are not read any more.
        ({"measured_count": 10}, 2, (10, 20, False)),
        ({"measured_count": 20}, 40, (20, 20, True)),
        ({"state": AdviceState.REGRESSED, "measured_count": 10}, 12, (12, 20, True)),
    ],
)
def test_a_change_in_force_says_how_many_of_its_checkpoints_were_watched(changes, ended_count, watched_as):
    found = watched(replace(_VERIFIED, **changes), _seen(_taking(300, ended_count)))

    assert (found.checkpoint_count, found.of_count, found.is_over) == watched_as


def test_watching_ends_after_a_day_and_not_before_the_first_judgement():
    late = _seen(_taking(300, 3), after=WATCHED_FOR + timedelta(seconds=1))

    assert watched(replace(_VERIFIED, measured_count=5), late).is_over
    assert not watched(replace(_VERIFIED, state=AdviceState.APPLIED, measured_count=0), late).is_over


@pytest.mark.parametrize("state", [s for s in AdviceState if not s.is_in_force])
def test_a_change_that_is_not_in_force_is_not_watched(state):
    assert watched(replace(_VERIFIED, state=state), _seen([])) is None
