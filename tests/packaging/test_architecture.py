"""``docs/dev/ARCHITECTURE.md`` lists all package folders, and its diagram shows the layers of the import contracts."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.packaging.wheel_environment import ROOT

_TEXT = (ROOT / "docs" / "dev" / "ARCHITECTURE.md").read_text(encoding="utf-8")


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


def _trees() -> Iterator[tuple[str, ast.Module]]:
    """Yield each module of the product with its syntax tree."""
    for package in ("backend", "collectors", "dashboard"):
        for path in sorted(Path(ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def test_the_evidence_on_a_job_is_put_together_in_one_module():
    found = {
        name
        for name, tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "JobEvidence"
    }

    assert found == {"backend/analysis/assembling.py"}
