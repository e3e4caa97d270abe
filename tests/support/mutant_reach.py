"""Finds the tests that execute a line of the product, nearest first, in what ``mutant_recorder`` recorded."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from tests.support.mutant_table import ROOT, unit_test_of


@dataclass(frozen=True)
class Reached:
    """What one test executes: its processor time in seconds as recorded, and the lines of each module."""

    cpu_s: float
    lines: Mapping[str, frozenset[int]]


_OF_FUNCTION = 3
"""A line of a function is in so many spans or more: itself, its statements, and the function."""


class Records:
    """A folder with one record for each test file.

    A record is valid while the test file and each module of ``changed`` are as they were. ``traced`` are all modules
    that a new record covers.
    """

    def __init__(self, folder: Path, *, traced: Sequence[Path], changed: Sequence[Path]) -> None:
        self.folder = folder
        self._digests = {str(module): _digest(module) for module in traced}
        self._changed = {str(module) for module in changed}

    def path_of(self, test_file: str) -> Path:
        """Return where the record of a test file is kept."""
        return self.folder / (test_file.replace("/", "+") + ".json")

    def missing(self, test_files: Iterable[str]) -> list[str]:
        """Return the test files without a valid record."""
        return [file for file in test_files if self._read(file) is None]

    def keep(self, test_file: str, tests: object) -> None:
        """Keep what the recorder wrote about a test file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        of = {"test": _digest(Path(test_file)), "modules": self._digests, "tests": tests}
        partly = self.path_of(test_file).with_suffix(".part")
        partly.write_text(json.dumps(of))
        partly.replace(self.path_of(test_file))

    def tests(self, test_files: Iterable[str]) -> dict[str, Reached]:
        """Return what each test of the files executes. A file without a valid record is left out."""
        found: dict[str, Reached] = {}
        for file in test_files:
            for name, of in (self._read(file) or {}).items():
                lines = {module: frozenset(numbers) for module, numbers in of["lines"].items()}
                found[name] = Reached(of["cpu_s"], lines)
        return found

    def _read(self, test_file: str) -> dict | None:
        try:
            kept = json.loads(self.path_of(test_file).read_text())
        except FileNotFoundError:
            return None
        is_valid = all(kept["modules"].get(module) == self._digests[module] for module in self._changed)
        return kept["tests"] if is_valid and kept["test"] == _digest(Path(test_file)) else None


def _digest(file: Path) -> str:
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()


def spans_around(source: str, line: int) -> list[tuple[int, int]]:
    """Return the first and last lines of what contains the line: itself, its statements, and its function.

    The innermost is first. A class and what a compound statement contains are no spans.
    """
    spans: list[tuple[int, int]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and not isinstance(node, ast.ClassDef):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            body = getattr(node, "body", None)
            first = body[0].lineno if is_function else node.lineno
            last = body[0].lineno - 1 if body and not is_function else node.end_lineno or node.lineno
            if node.lineno <= line <= last:
                spans.append((first, last))
    return [(line, line), *sorted(spans, key=lambda span: span[1] - span[0])]


def reaching(tests: Mapping[str, Reached], module: Path, line: int) -> tuple[list[str], bool]:
    """Return the tests that execute a line of a module, nearest first, and whether the line itself is executed.

    The tests of a line that runs when the module is imported are those that execute any line of the module. If no test
    executes the line, they are those of the smallest span around it that some test executes.
    """
    of = {name: lines for name, test in tests.items() if (lines := test.lines.get(str(module)))}
    spans = spans_around((ROOT / module).read_text(), line)
    for first, last in spans:
        span = set(range(first, last + 1))
        if found := [name for name, lines in of.items() if lines & span]:
            return _nearest_first(found, tests, module), (first, last) != spans[-1] or len(spans) < _OF_FUNCTION
    is_imported = len(spans) < _OF_FUNCTION
    return _nearest_first(list(of), tests, module), is_imported and bool(of)


def _nearest_first(names: Sequence[str], tests: Mapping[str, Reached], module: Path) -> list[str]:
    """Return the tests in turns of their files, the unit tests of the module first and then the shortest first."""
    unit = str(unit_test_of(module))
    files: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: (tests[name].cpu_s, name)):
        files.setdefault(name.partition("::")[0], []).append(name)
    turns = zip_longest(*(of for file, of in files.items() if file != unit))
    return [*files.get(unit, ()), *filter(None, chain.from_iterable(turns))]


def within(names: Sequence[str], tests: Mapping[str, Reached], cpu_s: float) -> list[str]:
    """Return the first of the tests, at least one, that take no more processor time together."""
    chosen: list[str] = []
    for name in names:
        cpu_s -= tests[name].cpu_s
        if chosen and cpu_s < 0:
            break
        chosen.append(name)
    return chosen
