"""Tests of the plans of faults: the name of a run identifies the run, and a seed determines its plan."""

from __future__ import annotations

import pytest

from tests.simulators.fault_plans import KINDS, MODES, Case


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_leads_back_to_its_run_and_a_seed_fixes_its_plan(kind):
    for number, protocol in enumerate(MODES):
        case = Case(protocol, kind, 10 + number, is_plain=bool(number % 2))

        assert Case.of(str(case)) == case
        assert case.spec() == Case.of(str(case)).spec()


@pytest.mark.parametrize(
    "name", ["aligned", "aligned/storm", "nonsense/storm/1", "aligned/nonsense/1", "aligned/storm/x"]
)
def test_any_other_name_is_refused(name):
    with pytest.raises(ValueError):
        Case.of(name)
