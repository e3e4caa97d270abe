"""Goal: a person who reads a sentence of the product never meets the id of a rule.

Method: no string with a space in it, apart from docstrings, contains such an id. The ids of the runtime's errors are
fields of their own and are not in these packages.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("backend/advisor", "backend/alerting", "backend/analysis", "backend/services", "collectors", "dashboard")
_ID = re.compile(r"\b(?:R-[A-Z]{2,4}|[A-Z]{2,3})-\d+\b")
# Names of the world outside that look like the id of a rule.
_FOREIGN = re.compile(r"\b(?:UTF|SHA|RFC|ISO|TLS)-\d+\b")


def _sentences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    # A string that is a statement is a docstring, or documents the attribute above it.
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.lineno, node.value


def _found(text: str) -> bool:
    return " " in text.strip() and _ID.search(_FOREIGN.sub("", text)) is not None


def test_no_sentence_contains_the_id_of_a_rule():
    paths = [path for package in _PACKAGES for path in sorted((_ROOT / package).rglob("*.py"))]
    assert len(paths) > 300
    lines = [
        f"{path.relative_to(_ROOT)}:{number}: {text!r}"
        for path in paths
        for number, text in _sentences(ast.parse(path.read_text(encoding="utf-8")))
        if _found(text)
    ]

    assert lines == []


def test_an_id_in_a_sentence_is_found():
    tree = ast.parse('"""R-UC-8 may stand here."""\nx = f"no tool reads them (R-UC-8), {1}"\n"""Or here: GR-1."""\n')

    assert [n for n, text in _sentences(tree) if _found(text)] == [2]
