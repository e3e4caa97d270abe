"""Modules of the runtime import only lower packages and form no cycle. Imports for type checking count as well."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.packaging.wheel_environment import ROOT

_PACKAGE = "backend.runtime"
_CONTRACT = "runtime: imports go down only"


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def _imports() -> dict[str, set[str]]:
    """Return, for each module of the runtime, the runtime modules that it imports anywhere in its text."""
    paths = {_name(path): path for path in (ROOT / _PACKAGE.replace(".", "/")).rglob("*.py")}
    found: dict[str, set[str]] = {}
    for module, path in paths.items():
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{module} has a relative import"
                names.add(node.module or "")
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
        found[module] = names & paths.keys()
    return found


def _cycle(imports: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_modules_of_the_runtime_have_no_import_cycle() -> None:
    imports = _imports()
    assert sum(map(len, imports.values())) > 200
    assert _cycle(imports) == []


def test_modules_of_the_runtime_import_only_lower_wings() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = [c for c in settings["tool"]["importlinter"]["contracts"] if c["name"] == _CONTRACT]
    floor = {wing: number for number, wing in enumerate(contract["layers"])}
    upward = [
        f"{module} -> {imported}"
        for module, names in _imports().items()
        for imported in sorted(names)
        if (wing := _wing(module)) in floor and (below := _wing(imported)) in floor and floor[below] < floor[wing]
    ]
    assert upward == []


def _wing(module: str) -> str:
    return module.removeprefix(_PACKAGE).lstrip(".").partition(".")[0]


@pytest.mark.parametrize(
    ("imports", "is_cycle"),
    [({"a": {"b"}, "b": {"c"}, "c": set()}, False), ({"a": {"b"}, "b": {"c"}, "c": {"a"}}, True)],
)
def test_the_search_finds_a_cycle(imports: dict[str, set[str]], is_cycle: bool) -> None:
    assert bool(_cycle(imports)) is is_cycle
