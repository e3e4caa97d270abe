"""Tests of the card that says what differs in the settings of two sides."""

from __future__ import annotations

from backend.contracts.comparing import SettingPairOut
from dashboard.components import compared_settings
from tests.support.api_examples import example
from tests.support.dash_calls import texts

JOB = example("checkpoint_comparison").a.job


def _said(*pairs, a=JOB, b=JOB):
    return texts(compared_settings.card(pairs, ("#411", "#398"), (a, b), hint="as they were"))


def _pair(name, a, b, *, is_known=True):
    return SettingPairOut(name=name, a=a, b=b, is_different=is_known and a != b, is_known=is_known)


def test_settings_that_differ_come_first_and_a_missing_one_is_off_and_not_zero():
    assert _said(
        _pair("interval_ms", 10_000, 10_000),
        _pair("aligned_timeout_ms", 500, None),
        _pair("is_unaligned_enabled", True, False),
        _pair("tolerable_failed_count", 2**31 - 1, 0),
        _pair("parallelism of map", 4, 8),
    ) == (
        "Settings as they were 4 settings differ Setting #411 #398 Aligned timeout 500 ms off Unaligned enabled "
        "disabled Tolerable failures unlimited 0 Parallelism of map 4 8 1 setting is the same Setting #411 "
        "#398 Interval 10.0 s 10.0 s"
    )


def test_equal_settings_are_said_to_be_the_same():
    assert "same settings 1 setting is the same" in _said(_pair("interval_ms", 10_000, 10_000))


def test_settings_that_are_not_stored_are_not_known_and_no_difference():
    said = _said(
        _pair("interval_ms", None, 10_000, is_known=False), a=JOB.model_copy(update={"are_settings_known": False})
    )

    assert "settings of #411 not known" in said
    assert "1 is not known on one side Setting #411 #398 Interval not known 10.0 s" in said
    assert "differ" not in said


def test_vertices_that_only_one_side_has_are_named():
    b = JOB.model_copy(update={"only_vertices": ["filter", "sink"], "only_vertex_count": 12})

    assert "Only #398 has 12 vertices: filter, sink and 10 others." in _said(b=b)
