"""The product decides by an engine's capabilities, and never compares an engine with a name."""

from __future__ import annotations

import ast

import pytest

from tests.support.clusters import ROOT

_ENGINES = {"flink", "runtime", "spark"}
_FILES = [p for folder in ("backend", "collectors", "dashboard") for p in sorted((ROOT / folder).rglob("*.py"))]


def _compared(tree: ast.AST) -> list[int]:
    """Return the lines that compare a value with an engine's name or with an engine constant."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            words = {o.value for o in operands if isinstance(o, ast.Constant)}
            names = {o.id for o in operands if isinstance(o, ast.Name)} | {
                o.attr for o in operands if isinstance(o, ast.Attribute)
            }
            if words & _ENGINES or names & {"FLINK", "RUNTIME", "SPARK"}:
                found.append(node.lineno)
    return found


def test_no_product_file_compares_an_engine_with_a_name():
    found = {str(p.relative_to(ROOT)): lines for p in _FILES if (lines := _compared(ast.parse(p.read_text())))}

    assert len(_FILES) > 200
    assert found == {}


@pytest.mark.parametrize("line", ["x is Engine.SPARK", "engine.kind == 'flink'", "kind in ('a',) or k != RUNTIME"])
def test_the_search_finds_a_comparison_with_an_engine(line):
    assert _compared(ast.parse(line)) == [1]
