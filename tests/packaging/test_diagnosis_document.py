"""``docs/diagnosis.md`` and its thresholds agree with the rules of the diagnosis in the code."""

from __future__ import annotations

import re

import pytest

from backend.analysis.verdict.rules import RULES
from backend.analysis.words import thresholds
from backend.domain.verdict import Health, VerdictKind
from tests.packaging.wheel_environment import ROOT

DOCUMENT = (ROOT / "docs" / "diagnosis.md").read_text()
TABLE = (ROOT / "docs" / "reference" / "verdict-rules.md").read_text()
CONSTANTS = {name: getattr(thresholds, name) for name in thresholds.__annotations__}
ROWS = dict(re.findall(r"^\| `([A-Z_]+)` \| ([\d.]+) \|", TABLE, re.M))


def test_every_threshold_is_in_the_table_and_nothing_else_is():
    assert ROWS.keys() == CONSTANTS.keys()


@pytest.mark.parametrize("name", sorted(CONSTANTS))
def test_the_table_has_the_value_that_the_rules_use(name):
    assert float(ROWS[name]) == pytest.approx(CONSTANTS[name], abs=5e-4)


def test_every_kind_of_verdict_and_every_health_is_explained():
    assert set(re.findall(r"^\| `([a-z-]+)` \|", DOCUMENT, re.M)) == {kind.value for kind in VerdictKind}
    words = set(re.findall(r"^\| (healthy|slow|failing|restarting|intermittent|too-few|off) \|", DOCUMENT, re.M))
    assert words == {h.value for h in Health}


def test_the_table_of_rules_is_the_list_in_the_code():
    section = TABLE.split("## The rules in their order")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", section, re.M)[1:]

    needs = ["; ".join(need.text for need in rule.needs) or "nothing" for rule in RULES]
    assert rows == [(rule.name, rule.explains, need) for rule, need in zip(RULES, needs, strict=True)]
