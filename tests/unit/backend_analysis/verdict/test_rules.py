"""Tests of the list of rules: it is complete, its order is the order of the parts, and its last rule always applies."""

from __future__ import annotations

import importlib
import pkgutil

from backend.analysis import verdict
from backend.analysis.verdict import case as cases
from backend.analysis.verdict.rule import PARTS, Explains, Rule
from backend.analysis.verdict.rules import FULL_RULES, RULES, rules_of
from tests.support.handwritten_jobs import chain, job, quick


def test_every_rule_of_a_module_is_in_the_list():
    """Goal: a rule that was written and not listed is found, because no verdict would ever ask it."""
    written = [
        f"{module.name}.{name}"
        for module in pkgutil.iter_modules(verdict.__path__)
        for name, value in vars(importlib.import_module(f"backend.analysis.verdict.{module.name}")).items()
        if isinstance(value, Rule) and value not in RULES
    ]

    assert written == []
    assert set(FULL_RULES) < set(RULES)


def test_rules_are_told_apart_by_their_names():
    names = [rule.name for rule in RULES]

    assert len(set(names)) == len(names) == len(RULES)


def test_the_list_is_in_the_order_in_which_the_rules_are_asked():
    kinds = [Explains.EVERYTHING, *PARTS, Explains.THE_REST]

    assert [rule for kind in kinds for rule in rules_of(kind)] == list(RULES)
    assert all(rules_of(kind) for kind in Explains)


def test_the_last_rule_applies_to_every_case():
    last = RULES[-1]
    of_one = quick(1)

    assert last.needs == ()
    assert last.verdict_of(cases.of_job(job([], topology=chain()))) is not None
    assert last.verdict_of(cases.of_checkpoint(of_one, job([of_one], topology=chain()))) is not None
