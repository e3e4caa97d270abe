"""Tests of the choice of tests for a change: the nearest that execute its line, from records of unchanged sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import mutant_reach
from tests.support.mutant_reach import Reached, Records, reaching, spans_around, within

_SOURCE = """import os
LIMIT = 3
class A:
    size: int = 4
    def f(self, n):
        if n > (
            2
        ):
            return n
        return 0
"""
_MODULE = Path("backend/m.py")
_UNIT = "tests/unit/backend/test_m.py"


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(mutant_reach, "ROOT", tmp_path)
    monkeypatch.setattr(mutant_reach, "unit_test_of", lambda _: Path(_UNIT))
    for file, text in {"backend/m.py": _SOURCE, "backend/other.py": "", "tests/a.py": ""}.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    return tmp_path


def _reached(cpu_s: float, *lines: int, module: str = "backend/m.py") -> Reached:
    return Reached(cpu_s, {module: frozenset(lines)} if lines else {})


@pytest.mark.parametrize(
    ("line", "spans"),
    [
        (9, [(9, 9), (9, 9), (6, 10)]),
        (7, [(7, 7), (6, 8), (6, 10)]),
        (4, [(4, 4), (4, 4)]),
        (2, [(2, 2), (2, 2)]),
    ],
    ids=["a statement in a function", "a condition of several lines", "a field of a class", "a constant"],
)
def test_what_contains_a_line_is_its_statement_and_its_function(line, spans):
    assert spans_around(_SOURCE, line) == spans


def test_the_tests_of_a_line_are_those_that_execute_it_the_unit_tests_first_and_then_the_shortest_of_each_file():
    tests = {
        "tests/a.py::long": _reached(3.0, 10),
        "tests/a.py::short": _reached(1.0, 10),
        "tests/b.py::middle": _reached(2.0, 10),
        f"{_UNIT}::unit": _reached(4.0, 10),
        "tests/b.py::elsewhere": _reached(0.1, 9),
        "tests/b.py::other": _reached(0.1, 10, module="backend/other.py"),
    }
    assert reaching(tests, _MODULE, 10) == (
        [f"{_UNIT}::unit", "tests/a.py::short", "tests/b.py::middle", "tests/a.py::long"],
        True,
    )


def test_a_line_that_no_test_executes_gets_the_tests_around_it_and_is_said_not_to_be_executed():
    tests = {"tests/a.py::around": _reached(1.0, 6), "tests/a.py::module": _reached(1.0, 2)}
    assert reaching(tests, _MODULE, 9) == (["tests/a.py::around"], False)


def test_a_line_that_runs_at_the_import_gets_all_tests_of_the_module():
    tests = {"tests/a.py::function": _reached(1.0, 6), "tests/a.py::none": _reached(1.0)}
    assert reaching(tests, _MODULE, 2) == (["tests/a.py::function"], True)


def test_tests_are_chosen_within_a_time_but_at_least_one():
    tests = {"a": _reached(5.0), "b": _reached(1.0), "c": _reached(1.0)}
    assert within(["a", "b"], tests, 2.0) == ["a"]
    assert within(["b", "c", "a"], tests, 2.0) == ["b", "c"]
    assert within([], tests, 2.0) == []


@pytest.mark.parametrize(
    ("edited", "is_valid"),
    [(None, True), ("tests/a.py", False), ("backend/m.py", False), ("backend/other.py", True)],
)
def test_a_record_is_valid_while_its_test_and_the_modules_to_change_are_as_they_were(root, edited, is_valid):
    traced = [_MODULE, Path("backend/other.py")]
    Records(root / "kept", traced=traced, changed=[]).keep(
        "tests/a.py", {"tests/a.py::one": {"cpu_s": 0.5, "lines": {"backend/m.py": [6, 9]}}}
    )
    if edited:
        (root / edited).write_text("# edited")
    records = Records(root / "kept", traced=traced, changed=[_MODULE])
    assert records.missing(["tests/a.py"]) == ([] if is_valid else ["tests/a.py"])
    assert records.tests(["tests/a.py"]) == ({"tests/a.py::one": _reached(0.5, 6, 9)} if is_valid else {})
