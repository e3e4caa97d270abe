"""House rules that a test can check: imports between layers, sizes, names, and no paths of one machine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.packaging.wheel_environment import ROOT
from tests.support.waiting import PATIENCE_S

_FILE_LINES_ASK = 600
# Number of files that may exceed ``_FILE_LINES_ASK`` lines. It must not grow.
_LONG_FILES_MAX = 0
_FUNCTION_LINES_ASK = 70
# Number of functions that may exceed ``_FUNCTION_LINES_ASK`` lines. It must not grow.
_LONG_FUNCTIONS_MAX = 12

# The forbidden words are split, so that this file does not contain them.
_INDEX_ADDRESS = re.compile(
    r"https?://[\w.-]*(?:" + "|".join(["py" + "pi", "python" + "hosted"]) + r")[\w.-]*|/sim" + "ple/"
)
_MACHINE_PATH = re.compile(
    r"(?<![\w./-])/(?:" + "|".join(["wo" + "rk", "ro" + "ot", "ho" + "me/\\w+", "Us" + "ers/\\w+"]) + r")/\w"
)


def _tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


@cache
def _texts() -> list[tuple[Path, str]]:
    found = []
    for path in _tracked():
        try:
            found.append((path.relative_to(ROOT), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return found


@dataclass(frozen=True, slots=True)
class _Module:
    path: Path
    is_empty: bool
    docstring: str | None
    functions: list[tuple[str, int, int]]
    """Name, first line and number of lines of each function."""


@cache
def _modules() -> list[_Module]:
    # The syntax trees are not kept: each later pass of the garbage collector would look through millions of nodes.
    found = []
    for path, text in _texts():
        if path.suffix == ".py":
            tree = ast.parse(text)
            functions = [
                (node.name, node.lineno, node.end_lineno - node.body[0].lineno + 1)
                for node in ast.walk(tree)
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
            ]
            found.append(_Module(path, not text.strip(), ast.get_docstring(tree), functions))
    return found


def test_the_import_contracts_hold():
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_the_count_of_long_files_does_not_grow():
    long = [
        f"{path} ({lines} lines)"
        for path, text in _texts()
        if path.suffix in (".py", ".js", ".css") and "vendor" not in path.parts
        if (lines := text.count("\n")) > _FILE_LINES_ASK
    ]

    assert len(long) <= _LONG_FILES_MAX, "\n".join(long)


def test_the_count_of_long_functions_does_not_grow():
    long = [
        f"{module.path}:{line} {name} ({count} lines)"
        for module in _modules()
        for name, line, count in module.functions
        if count > _FUNCTION_LINES_ASK
    ]

    assert len(long) <= _LONG_FUNCTIONS_MAX, "\n".join(long)


def test_every_module_has_a_docstring():
    silent = [str(m.path) for m in _modules() if not m.is_empty and m.docstring is None]

    assert silent == []


def test_no_module_has_a_catch_all_name():
    drawers = {"utils", "util", "helpers", "common", "misc"}

    assert [str(m.path) for m in _modules() if drawers & {m.path.stem, m.path.parent.name}] == []


def test_no_folder_of_tests_is_a_package():
    assert [str(p) for p, _ in _texts() if p.parts[0] == "tests" and p.name == "__init__.py"] == []


@pytest.mark.parametrize("pattern", [_INDEX_ADDRESS, _MACHINE_PATH], ids=["index-address", "machine-path"])
def test_no_file_has_a_path_of_one_machine_or_an_index_address(pattern):
    found = [f"{path}: {hit[0]}" for path, text in _texts() for hit in pattern.finditer(text)]

    assert found == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (_INDEX_ADDRESS, "--index-url https://py" + "pi.org/sim" + "ple/"),
        (_INDEX_ADDRESS, "https://files.python" + "hosted.org/packages/x.whl"),
        (_MACHINE_PATH, "see /wo" + "rk/main/x.py"),
        (_MACHINE_PATH, "'/ho" + "me/ann/x'"),
    ],
)
def test_the_patterns_find_what_they_forbid(pattern, text):
    assert pattern.search(text)


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_a_lock_file_pins_every_package_by_hash_and_has_no_address(name):
    text = (ROOT / name).read_text()
    pins = re.findall(r"^([A-Za-z0-9][\w.-]*)(?:\[[\w,-]+\])?==\S+.*?(?=^\S|\Z)", text, re.M | re.S)
    blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.M)[1:]

    assert len(pins) == len(blocks) > 30
    assert [b.split("==")[0] for b in blocks if "--hash=sha256:" not in b] == []
    assert re.findall(r"://|^-|^\s*--(?!hash)", text, re.M) == []


def test_the_lock_files_pin_the_same_versions():
    pins = [
        dict(re.findall(r"^([A-Za-z0-9][\w.-]*)(?:\[[\w,-]+\])?==(\S+)", (ROOT / name).read_text(), re.M))
        for name in ("requirements.txt", "requirements-dev.txt", "requirements-spark.txt", "requirements-s3.txt")
    ]

    assert {k: (v, of[k]) for of in pins[1:] for k, v in pins[0].items() if of.get(k, v) != v} == {}
    assert {k: (v, pins[1].get(k)) for of in pins[2:] for k, v in of.items() if pins[1].get(k) != v} == {}
