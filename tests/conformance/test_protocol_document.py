"""Checks PROTOCOL.md, which lists each rule's state, module and tests: the modules and tests must exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import backend.advisor.twin.fast
import backend.runtime
from backend.runtime.engine.jobfile import FIELDS
from backend.runtime.job.config import KEYS

_RUNTIME = Path(backend.runtime.__file__).parent
# The fast tier of the twin follows the same rules.
_FAST = Path(backend.advisor.twin.fast.__file__).parent
_TESTS = Path(__file__).parents[1]
_RULE = re.compile(r"\b[A-Z]{1,4}-\d+\b")
_STATES = ("built", "part", "not built")


def _rows() -> list[list[str]]:
    lines = (_RUNTIME / "PROTOCOL.md").read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if _is_rule(line)]


def _is_rule(line: str) -> bool:
    return line.startswith("| ") and bool(_RULE.match(line[2:])) and not line.startswith("| T-")


def _groups() -> list[list[str]]:
    return _proved(r"\| T-")


def _features() -> list[list[str]]:
    return _proved(r"\| \d+(, \d+| to \d+)? \|")


def _proved(beginning: str) -> list[list[str]]:
    lines = (_RUNTIME / "PROTOCOL.md").read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if re.match(beginning, line)]


def _ids(cell: str) -> list[str]:
    first, _, last = cell.partition(" to ")
    if last:
        prefix, _, low = first.rpartition("-")
        return [f"{prefix}-{n}" for n in range(int(low), int(last.rpartition("-")[2]) + 1)]
    return [part.strip() for part in cell.split(",")]


def _short_names() -> dict[str, str]:
    text = (_RUNTIME / "PROTOCOL.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| ([a-z-]+) \| `([a-z_/]+\.py)` \|", text, re.MULTILINE))


def test_every_rule_is_listed_once_with_a_state() -> None:
    ids = [rule for row in _rows() for rule in _ids(row[0])]
    assert len(ids) == len(set(ids)), sorted({i for i in ids if ids.count(i) > 1})
    assert len(ids) > 250
    for row in _rows():
        assert len(row) == 5, row
        assert row[2].startswith(_STATES), row


def test_every_built_rule_names_an_existing_module_and_test() -> None:
    names = _short_names()
    assert len(names) > 10
    for path in names.values():
        assert (_TESTS / path).is_file(), path
    for rule, _, state, module, test in _rows():
        if state.startswith("not built"):
            assert (module, test) == ("", ""), rule
            continue
        assert (_RUNTIME / module.strip("`")).is_file(), f"{rule}: {module}"
        assert test in names, f"{rule}: {test}"


def test_every_rule_named_in_the_code_is_listed_as_built() -> None:
    states = {rule: row[2] for row in _rows() for rule in _ids(row[0])}
    families = {rule.partition("-")[0] for rule in states}
    for path in [*sorted(_RUNTIME.rglob("*.py")), *sorted(_FAST.glob("*.py"))]:
        for rule in _RULE.findall(path.read_text(encoding="utf-8")):
            # Matches such as "M-1" and "UTF-8" are skipped, because no id of a rule begins with these letters.
            if rule.partition("-")[0] in families:
                assert states.get(rule, "not listed").startswith(("built", "part")), f"{path.name}: {rule}"


def test_the_module_of_a_rule_contains_its_id() -> None:
    named = {path: _named(path.read_text(encoding="utf-8")) for path in _RUNTIME.rglob("*.py")}
    rows = [row for row in _rows() if not row[2].startswith("not built")]
    wrong = [(rule, row[3]) for row in rows for rule in _ids(row[0]) if rule not in named[_RUNTIME / row[3].strip("`")]]
    assert wrong == [], "the module of a rule must contain the rule's id"


def _named(text: str) -> set[str]:
    """Return the rules that a text names, including those in a range such as "BUF-1 to BUF-4"."""
    found = set(_RULE.findall(text))
    for first, last in re.findall(r"\b([A-Z]{1,4}-\d+) to ([A-Z]{1,4}-\d+)\b", text):
        found.update(_ids(f"{first} to {last}"))
    return found


def test_every_option_belongs_to_a_built_rule() -> None:
    lines = (_RUNTIME / "PROTOCOL.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    states = {row[0]: row[2] for row in _groups()} | {rule: row[2] for row in _rows() for rule in _ids(row[0])}
    options = [name for row in rows for name in re.findall(r"`([^`]+)`", row[0])]
    fields = [f"{table}.{name}" if table else name for table, names in FIELDS.items() for name in names]

    assert sorted(options) == sorted([*KEYS, *fields])
    for names, rule, _ in rows:
        assert states.get(rule, "not listed").startswith(("built", "part")), f"{names}: {rule}"


@cache
def _tests_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_feature_of_the_checklist_is_listed_once() -> None:
    numbers: list[int] = []
    for first, *_ in _features():
        low, *more = (int(n) for n in re.findall(r"\d+", first))
        numbers += range(low, more[-1] + 1) if " to " in first else [low, *more]
    assert numbers == list(range(1, 143))


def test_every_group_and_feature_names_existing_tests_that_prove_it() -> None:
    groups = _groups()
    assert [group[0] for group in groups] == [f"T-{n}" for n in range(1, 26)]
    for group, _, state, proof in [*groups, *_features()]:
        assert state.startswith(_STATES), group
        named = re.findall(r"`([a-z_/]+\.py)::(test_[a-z0-9_]+)`", proof)
        assert proof == ", ".join(f"`{path}::{name}`" for path, name in named), f"{group}: {proof}"
        assert bool(named) != state.startswith("not built"), f"{group}: {state}, but it names {len(named)} tests"
        for path, name in named:
            assert (_TESTS / path).is_file(), f"{group}: {path}"
            assert name in _tests_of(_TESTS / path), f"{group}: {path} has no {name}"
