"""``docs/reference/advice-rules.md`` agrees with the rules of the advice in the code."""

from __future__ import annotations

import re

import pytest

from backend.advisor import thresholds
from tests.packaging.wheel_environment import ROOT

DOCUMENT = (ROOT / "docs" / "reference" / "advice-rules.md").read_text()
CONSTANTS = {name: getattr(thresholds, name) for name in thresholds.__annotations__}
ROWS = dict(re.findall(r"^\| `([A-Z_]+)` \| ([\d.]+) \|", DOCUMENT, re.M))
RULES = {"R-UC-1", "R-UC-2", *(f"R-AT-{n}" for n in range(1, 7)), "R-CAP-1"}
RULES |= {"R-PAR-1", "R-PAR-2", "R-ST-1", "R-ST-2", "R-DB-1", "R-DB-2", "R-DB-3", "R-BUF-1", "R-NET-1", "R-RET-1"}
RULES |= {"R-REC-1", "R-REC-2"}
RULES |= {"R-TO-1", "R-TOL-1", "R-TOL-2", *(f"R-INT-{n}" for n in range(1, 7)), *(f"R-MB-{n}" for n in range(1, 7))}


def test_every_threshold_is_in_the_table_and_nothing_else_is():
    assert ROWS.keys() == CONSTANTS.keys()


@pytest.mark.parametrize("name", sorted(CONSTANTS))
def test_the_table_has_the_value_that_the_rules_use(name):
    assert float(ROWS[name]) == pytest.approx(CONSTANTS[name])


def test_every_rule_has_its_row():
    assert set(re.findall(r"^\| (R-[A-Z]+-\d+) \|", DOCUMENT, re.M)) == RULES


def test_every_rule_of_the_specification_is_in_the_document():
    """A rule without a row is told in a sentence: where it is applied, or why it cannot be."""
    specification = (ROOT / "docs" / "dev" / "spec" / "runtime.md").read_text()
    section = re.split(r"^## 10\.", re.split(r"^## 9\.", specification, flags=re.M)[1], flags=re.M)[0]
    asked = set(re.findall(r"^- (R-[A-Z]+-\d+) ", section, re.M))
    told = set(re.findall(r"R-[A-Z]+-\d+", DOCUMENT))
    spans = re.findall(r"(R-[A-Z]+-)(\d+) to R-[A-Z]+-(\d+)", DOCUMENT)
    told |= {f"{name}{n}" for name, first, last in spans for n in range(int(first), int(last) + 1)}

    assert len(asked) > 40
    assert asked <= told, sorted(asked - told)
