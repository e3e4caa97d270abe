"""The product asks an engine what it can do; it never compares the engine with a name."""

from __future__ import annotations

import ast

import pytest

from tests.support.clusters import ROOT

_ENGINES = {"flink", "runtime", "spark"}
_FILES = [p for folder in ("backend", "collectors", "dashboard") for p in sorted((ROOT / folder).rglob("*.py"))]


def _compared(tree: ast.AST) -> list[int]:
    """The lines that compare something with an engine's word or with an engine itself."""
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
def test_such_a_comparison_is_found(line):
    assert _compared(ast.parse(line)) == [1]
