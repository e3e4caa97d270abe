"""Tests of one rule: it looks for its cause only if what it needs is known."""

from __future__ import annotations

import pytest

from backend.analysis.verdict import case as cases
from backend.analysis.verdict.draft import draft
from backend.analysis.verdict.rule import JOB, SUFFERING, WELL, Explains, Need, Rule
from backend.domain.verdict import VerdictKind
from tests.support.handwritten_jobs import ALIGNED, chain, job, quick

CASE = cases.of_job(job([quick(n) for n in (1, 2, 3)], topology=chain(), config=ALIGNED))


def rule(needs, find):
    return Rule(
        "a rule",
        Explains.WAY,
        needs,
        find,
        lambda case, found: draft(case, VerdictKind.NONE, f"found {found}", evidence=[]),
    )


def test_a_rule_whose_needs_are_met_tells_what_it_found():
    found = rule((JOB, WELL), lambda _: "a queue").verdict_of(CASE)

    assert found is not None
    assert found.sentence.endswith("found a queue.")


@pytest.mark.parametrize("needs", [(SUFFERING,), (JOB, SUFFERING), (Need("never", lambda _: False), JOB)])
def test_a_rule_with_a_need_that_is_not_met_does_not_look_for_its_cause(needs):
    def find(_):
        raise AssertionError("not asked")

    assert rule(needs, find).verdict_of(CASE) is None


def test_a_rule_that_finds_nothing_has_no_verdict():
    assert rule((), lambda _: None).verdict_of(CASE) is None


def test_what_was_found_may_be_empty():
    """Goal: only None means that a cause does not apply; nothing that is empty or zero does."""
    assert rule((), lambda _: 0.0).verdict_of(CASE) is not None
