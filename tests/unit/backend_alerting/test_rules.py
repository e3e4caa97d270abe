"""Tests of the alert rules: each has a runbook and defaults within its bounds. An error names the invalid field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backend.alerting.rules import RULES, RuleChange, RuleName, changed, rule_of, shipped
from backend.analysis.words.thresholds import FINISH_WARN_AGAIN_RATIO
from backend.domain.errors import InvalidInputError

ROOT = Path(__file__).resolve().parents[3]
_IN_WORDS = {"expired_min_count", "window_count", "confidence_min_ratio", "timeout_within_s"}


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_every_rule_has_defaults_within_its_bounds_and_a_runbook_with_its_thresholds(rule):
    values = shipped(rule)
    assert changed(values, RuleChange(thresholds=dict(values.thresholds))).thresholds == values.thresholds

    text = (ROOT / rule.runbook).read_text(encoding="utf-8")
    assert text.startswith(f"# {rule.name}\n")
    assert {"## When it fires", "## What to do"} <= set(text.splitlines())
    assert [t.name for t in rule.thresholds if f"`{t.name}`" not in text] == []
    # A number in parentheses after a threshold's name is its default.
    stated = dict(re.findall(r"`(\w+)` \((\d+(?:\.\d+)?)", text))
    in_digits = [t for t in rule.thresholds if t.name not in _IN_WORDS]
    assert {t.name: float(stated.get(t.name, "nan")) for t in in_digits} == {t.name: t.default for t in in_digits}


def test_every_rule_exists_once_and_is_found_by_name():
    assert [r.name for r in RULES] == list(RuleName)
    assert rule_of("CheckpointStuck") is not None
    assert rule_of("nonsense") is None


@pytest.mark.parametrize(
    ("rule", "change", "field"),
    [
        ("CheckpointExpired", RuleChange(thresholds={"window_count": 0}), "thresholds.window_count"),
        ("CheckpointExpired", RuleChange(thresholds={"window_count": 2.5}), "thresholds.window_count"),
        ("CheckpointExpired", RuleChange(thresholds={"nonsense": 1}), "thresholds.nonsense"),
        (
            "CheckpointWillTimeOut",
            RuleChange(thresholds={"confidence_min_ratio": 1.0}),
            "thresholds.confidence_min_ratio",
        ),
        ("CheckpointStuck", RuleChange(for_s=-1), "for_s"),
        ("CheckpointStuck", RuleChange(keep_firing_for_s=float("nan")), "keep_firing_for_s"),
        ("CheckpointStuck", RuleChange(thresholds={"silence_min_s": float("nan")}), "thresholds.silence_min_s"),
        ("Watchdog", RuleChange(is_enabled=False), "is_enabled"),
    ],
)
def test_an_invalid_change_is_refused_with_the_field_and_the_allowed_values(rule, change, field):
    with pytest.raises(InvalidInputError) as refused:
        changed(shipped(rule_of(rule)), change)

    (problem,) = refused.value.problems
    assert problem.field == field
    assert problem.allowed


def test_the_refusal_of_an_unknown_threshold_names_those_of_the_rule():
    def allowed(rule):
        with pytest.raises(InvalidInputError) as refused:
            changed(shipped(rule_of(rule)), RuleChange(thresholds={"nonsense": 1}))
        (problem,) = refused.value.problems
        return problem.allowed

    assert allowed("CheckpointExpired") == "expired_min_count, window_count"
    assert allowed("Watchdog") == "none: Watchdog has no thresholds"


def test_a_change_sets_only_its_own_values_and_raises_the_version():
    before = shipped(rule_of("CheckpointExpired"))

    after = changed(before, RuleChange(for_s=30, thresholds={"window_count": 5}))

    assert (after.for_s, after["window_count"], after["expired_min_count"]) == (30, 5, 1)
    assert (after.is_enabled, after.version) == (True, 1)


def test_the_help_of_the_required_probability_says_what_is_enough_after_an_expired_checkpoint():
    rule = next(r for r in RULES if r.name is RuleName.CHECKPOINT_WILL_TIME_OUT)
    meaning = next(t.meaning for t in rule.thresholds if t.name == "confidence_min_ratio")
    assert f"{FINISH_WARN_AGAIN_RATIO:g} is enough" in meaning
    assert meaning.endswith("and 0.85 after 95 % of the timeout")
