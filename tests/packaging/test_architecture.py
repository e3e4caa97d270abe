"""``docs/dev/ARCHITECTURE.md`` lists all package folders, and its diagram shows the layers of the import contracts."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.packaging.wheel_environment import ROOT
from tests.support.waiting import PATIENCE_S

_TEXT = (ROOT / "docs" / "dev" / "ARCHITECTURE.md").read_text(encoding="utf-8")

_SQL = re.compile(
    r"\b(?:SELECT (?:\w+[.(]|\w+,|\w+ FROM|\*|DISTINCT|EXISTS|[\d'])|INSERT INTO \w|UPDATE \w+ SET|DELETE FROM \w"
    r"|(?:CREATE|ALTER|DROP) (?:TABLE|DATABASE|INDEX|ROLE|SCHEMA|SEQUENCE|SYSTEM) |TRUNCATE \w"
    # Spark has a statement of this form too, for settings whose names have no underscore.
    r"|SET (?:LOCAL )?(?:\w+_\w+|timezone) (?:=|TO) "
    r"|(?:FROM|JOIN|INTO) (?:jobs|runs|checkpoints|pressure|targets|rollups|verdicts)\b|ON CONFLICT |RETURNING \w)"
)

# A module in which none of these occurs has no match of ``_SQL``, no import of SQLAlchemy and no evidence.
_MAY_CONTAIN = re.compile(
    r"\b(?:SELECT|INTO|UPDATE|FROM|CREATE|ALTER|DROP|TRUNCATE|SET|JOIN|CONFLICT|RETURNING)\b|sqlalchemy|JobEvidence"
)


def _layers(container: str) -> list[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    found = [c["layers"] for c in contracts if c["type"] == "layers" and container in c["containers"]]
    assert len(found) == 1, container
    return [" · ".join(re.split(r" [|:] ", layer)) for layer in found[0]]


def _shown(first: str, last: str) -> list[str]:
    """Return the node labels of the first diagram in the order of its text, from ``first`` to ``last`` inclusive."""
    labels = re.findall(r'[LDR]\d*\["([^"]+)"\]', _TEXT.split("```mermaid")[1].split("```")[0])
    return labels[labels.index(first) : labels.index(last) + 1]


def test_the_table_lists_the_package_folders_once_each():
    listed = re.findall(r"^\| `([\w/]+)` \|", _TEXT, re.M)
    # In backend, the folders of the first two levels are packages; elsewhere, only those of the first level. Deeper
    # folders are parts of these packages.
    packages = [
        folder.relative_to(ROOT).as_posix()
        for pattern in ("backend/*", "backend/*/*", "collectors", "collectors/*", "dashboard", "dashboard/*")
        for folder in ROOT.glob(pattern)
        if (folder / "__init__.py").is_file()
    ]

    assert sorted(listed) == sorted(packages)


def test_the_diagram_shows_the_layers_of_the_backend_in_the_order_of_the_contract():
    assert _shown("cli · settings", "domain") == _layers("backend")


def test_the_diagram_shows_the_layers_of_the_runtime_in_the_order_of_the_contract():
    assert _shown("engine", "core") == _layers("backend.runtime")


@dataclass(frozen=True)
class _Module:
    """What a module of the product contains of that which only one place may contain."""

    name: str
    statements: list[tuple[int, str]]
    sql_imports: list[str]
    """Imports of what builds SQL, each with its line. Types of connections and errors do not build any."""
    builds_evidence: bool


@cache
def _modules() -> list[_Module]:
    """Read each module of the product once. All syntax trees together would fill the memory.

    Only modules that may contain something of it are parsed, because parsing all of them takes seconds.
    """
    read = []
    for package in ("backend", "collectors", "dashboard"):
        for path in sorted(Path(ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            nodes = list(ast.walk(ast.parse(text))) if _MAY_CONTAIN.search(text) else []
            imports = [n for n in nodes if isinstance(n, ast.ImportFrom)]
            read.append(
                _Module(
                    path.relative_to(ROOT).as_posix(),
                    _statements(nodes),
                    [
                        f"{node.lineno} import of {alias.name} from {node.module}"
                        for node in imports
                        if (node.module or "").split(".")[0] == "sqlalchemy"
                        for alias in node.names
                        if not alias.name.startswith("Async") and not alias.name.endswith("Error")
                    ],
                    any(isinstance(n, ast.Call) and _called(n) == "JobEvidence" for n in nodes),
                )
            )
    return read


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def test_the_evidence_on_a_job_is_put_together_in_one_module():
    assert [m.name for m in _modules() if m.builds_evidence] == ["backend/analysis/assembling.py"]


def _written(node: ast.AST) -> str | None:
    """Return the text of a literal. The values in an f-string are left out, and sums of texts are joined."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_written(value) or "x" for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            found = _written(left), _written(right)
            return None if found == (None, None) else "x".join(text or "" for text in found)
        case _:
            return None


def _statements(nodes: Sequence[ast.AST]) -> list[tuple[int, str]]:
    """Return the line and the text of each literal that has SQL, apart from docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    found = []
    for node in nodes:
        text = None if id(node) in docstrings else _written(node)
        if text is not None and _SQL.search(text):
            found.append((getattr(node, "lineno", 0), text))
    return found


def test_only_the_store_contains_sql():
    """Goal: someone who changes a table finds all statements on it in one package."""
    found, in_store = [], 0
    for module in _modules():
        if module.name.startswith("backend/store/"):
            in_store += len(module.statements)
        else:
            found += [f"{module.name}:{line} {text[:60]}" for line, text in module.statements]
            found += [f"{module.name}:{one}" for one in module.sql_imports]

    assert found == []
    assert in_store > 150, "the statements of the store are recognized"


@pytest.mark.parametrize(
    ("code", "is_sql"),
    [
        ("x = 'SELECT 1 FROM runs'", True),
        ("x = f'DELETE FROM {table} WHERE id = {n}'", True),
        ("x = 'SELECT a, ' + ', '.join(b)", True),
        ("x = 'SET statement_timeout = 10'", True),
        ("x = 'Select a job from the list'", False),
        ("def f():\n    'Runs SELECT 1 FROM runs.'", False),
    ],
)
def test_sql_is_told_from_other_texts(code, is_sql):
    assert bool(_statements(list(ast.walk(ast.parse(code))))) is is_sql


def test_what_a_task_of_spark_runs_needs_no_driver_but_adbc():
    """Goal: an executor on another machine, which has only the packages of the archive, can run every task."""
    code = (
        "import sys\n"
        "for name in ('psycopg', 'sqlalchemy', 'pydantic', 'numba'): sys.modules[name] = None\n"
        "import backend.store.pipeline.of_tasks, backend.backtest.jobs, backend.pipeline.newest\n"
    )

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)

    assert done.returncode == 0, done.stderr
