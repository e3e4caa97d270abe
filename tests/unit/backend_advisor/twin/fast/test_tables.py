"""The tables of a fast simulation: their columns are the annotations of a class, and name their units."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest

from backend.advisor.twin.fast import tables
from backend.advisor.twin.fast.tables import table
from tests.packaging.wheel_environment import ROOT

ROWS = [c for c in vars(tables).values() if inspect.isclass(c) and c.__annotations__ and c is not tables.Sim]
UNITS = ("_ms", "_bytes", "_ratio", "_per_ms", "_records", "_samples", "_factor")
SOURCE = ast.parse(inspect.getsource(tables))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_a_table_has_an_aligned_column_of_its_own_type_for_each_annotation(row: type):
    made = table(row, 3)

    hints = get_type_hints(row)
    assert made.dtype.names == tuple(hints)
    assert made.dtype.isalignedstruct
    kinds = {int: np.int64, float: np.float64, bool: np.bool_}
    assert [made.dtype[name] for name in hints] == [np.dtype(kinds[kind]) for kind in hints.values()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_a_float_ends_with_its_unit_and_a_flag_begins_as_one(row: type):
    for name, kind in get_type_hints(row).items():
        if kind is float:
            assert name.endswith(UNITS) or name == "deficit", name
        if kind is bool:
            assert name.startswith(("is_", "has_", "can_", "waits")), name


def test_all_tables_of_a_simulation_are_checked_here():
    simulation = next(node for node in SOURCE.body if isinstance(node, ast.ClassDef) and node.name == "Sim")
    named = {node.id for node in ast.walk(simulation) if isinstance(node, ast.Name)}

    assert {row.__name__ for row in ROWS} <= named
    assert len(ROWS) == 11


def test_a_row_is_a_view_of_its_table():
    channels = table(tables.Channel, 2)
    row = channels[1]

    row.queued_bytes = 5.0

    assert channels["queued_bytes"].tolist() == [0.0, 5.0]


def test_every_rule_that_the_fast_tier_names_is_one_of_the_runtime():
    known = set(re.findall(r"\b[A-Z]{1,4}-\d+\b", (ROOT / "docs/dev/spec/runtime.md").read_text()))
    folder = Path(tables.__file__).parent
    cited = {
        rule: file.name for file in folder.glob("*.py") for rule in re.findall(r"\b[A-Z]{1,4}-\d+\b", file.read_text())
    }

    assert len(cited) > 50
    assert {rule: name for rule, name in cited.items() if rule not in known} == {}
