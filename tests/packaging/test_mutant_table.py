"""The table of ``make mutants`` names files that exist, and a survivor counts unless it is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mutant_table import ROOT, Found, Kept, line_of, report, table, unit_test_of


def test_each_area_has_modules_and_tests_and_each_kept_line_is_still_there():
    areas, kept = table()

    assert all(area.modules and area.tests for area in areas)
    assert {"protocols", "snapshot", "backends", "task", "analysis", "parse", "alerting"} <= {a.name for a in areas}
    sources = {one.module: " ".join((ROOT / one.module).read_text().split()) for one in kept}
    assert [one for one in kept if one.before not in sources[one.module]] == []
    assert [one for one in kept if len(one.why) < 20] == []


def test_a_pattern_that_finds_no_file_is_refused(tmp_path):
    path = tmp_path / "mutants.toml"
    path.write_text('[area.a]\nmodules = ["backend/nowhere/*.py"]\ntests = []\n')

    with pytest.raises(ValueError, match=r"backend/nowhere/\*\.py finds no file"):
        table(path)


@pytest.mark.parametrize(
    ("module", "test"),
    [
        ("collectors/flink/parse.py", "tests/unit/collectors_flink/test_parse.py"),
        ("backend/runtime/task/ending.py", "tests/unit/backend_runtime/task/test_ending.py"),
        ("backend/settings.py", "tests/unit/backend/test_settings.py"),
        ("backend/runtime/task/ports.py", None),
    ],
)
def test_the_unit_tests_of_a_module_mirror_its_path(module, test):
    assert unit_test_of(Path(module)) == (Path(test) if test else None)


def test_a_survivor_that_is_not_kept_is_reported_with_its_lines():
    found = [
        Found("task", "m.py", 3, "a < b", "a <= b", survived=True),
        Found("task", "m.py", 4, "a + b", "a - b", survived=True),
        Found("task", "m.py", 5, "not a", "a", survived=False),
    ]

    text, left = report(found, [Kept("m.py", "a + b", "a - b", "b is always 0 here")])

    assert left == found[:1]
    assert text.splitlines()[1].split() == ["task", "3", "1", "1", "1"]
    assert "m.py:3\n- a < b\n+ a <= b" in text


@pytest.mark.parametrize(
    ("survived", "after", "fate"), [(False, "a - b", "noticed"), (True, "a - b", "kept"), (True, "a * b", "SURVIVED")]
)
def test_the_line_on_a_change_begins_with_its_fate(survived, after, fate):
    found = Found("task", "m.py", 4, "a + b", after, survived=survived, by="test_m.py::test_a")

    line = line_of(found, [Kept("m.py", "a + b", "a - b", "b is always 0 here")])

    assert line.split() == [fate, "m.py:4", "a", "+", "b", "->", *after.split(), "[test_m.py::test_a]"]


def test_an_area_may_name_patterns_that_several_areas_share(tmp_path):
    path = tmp_path / "mutants.toml"
    path.write_text(
        '[named]\nboth = ["tests/conftest.py"]\n[area.a]\nmodules = ["tests/areas.py"]\ntests = ["@both"]\n'
    )

    ((area,), _) = table(path)

    assert area.tests == ("tests/conftest.py",)
