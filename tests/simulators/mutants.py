"""Change one operator of the product at a time and see whether the tests notice: ``make mutants``.

``tests/mutants.toml`` names the areas, the modules of each, and the tests that must notice a change. The unit test file
of a module runs first, and the tests of its area run only if that file noticed nothing. A change that no test notices
is a survivor. It is a hole in the tests, unless the list ``kept`` of that file says why no test can notice it.

Cosmic Ray makes the changes, each in a copy of the repository. The sample is the same for the same ``--seed``.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, zip_longest
from pathlib import Path
from queue import SimpleQueue

from cosmic_ray.commands.init import _all_work_items
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.testing import run_tests
from cosmic_ray.work_item import MutationSpec, TestOutcome
from rich.console import Console
from rich.progress import Progress

from tests.support.mutant_table import ROOT, Area, Found, report, table, unit_test_of

_UNIT_CPU_S, _AREA_CPU_S, _TIMEOUT_S = 60, 400, 3600.0
"""Tests that need more processor time are ended, and the change counts as noticed: it made an endless loop."""

_SLIPS = re.compile(
    "Replace(ComparisonOperator_(Eq|NotEq|Lt|LtE|Gt|GtE)_(Eq|NotEq|Lt|LtE|Gt|GtE)|ComparisonOperator_Is(Not)?_Is(Not)?"
    "|BinaryOperator_(Add|Sub|Mul|Div|FloorDiv|Mod)_(Add|Sub|Mul|Div|FloorDiv)|UnaryOperator_Delete_(Not|USub)"
    "|AndWithOr|OrWithAnd|TrueWithFalse|FalseWithTrue|BreakWithContinue|ContinueWithBreak)"
    "|AddNot|NumberReplacer|ZeroIterationForLoop|ExceptionReplacer"
)
"""The changes that a person might make by mistake. Most of the others end in a TypeError, which every test notices."""
_LARGE_NUMBER = 3
"""One more or less of a larger number is a matter of choice. The thresholds have tests of their own."""


def _ignored_lines(source: str) -> set[int]:
    """Return the lines that are never executed as they stand: annotations, decorators and imports for types."""
    ignored: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        parts: list[ast.expr | ast.stmt | None] = list(getattr(node, "decorator_list", ()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts.append(node.returns)
        elif isinstance(node, ast.arg | ast.AnnAssign):
            parts.append(node.annotation)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            parts.append(node)
        ignored.update(n for part in parts if part for n in range(part.lineno, (part.end_lineno or part.lineno) + 1))
    return ignored


def changes_of(module: Path) -> list[list[MutationSpec]]:
    """Return the changes that can be made in a module, relative to the root, in one list for each place."""
    source = (ROOT / module).read_text()
    lines, ignored = source.splitlines(), _ignored_lines(source)
    places: dict[tuple[int, int], list[MutationSpec]] = {}
    for item in _all_work_items([ROOT / module], {}):
        (spec,) = item.mutations
        line, column = spec.start_pos
        name = spec.operator_name.rpartition("/")[2]
        text = lines[line - 1][column : spec.end_pos[1]]
        is_large = name == "NumberReplacer" and not (text.isdigit() and int(text) < _LARGE_NUMBER)
        if line not in ignored and _SLIPS.fullmatch(name) and not is_large:
            places.setdefault((line, column), []).append(spec)
    return list(places.values())


def sample(areas: Sequence[Area], count: int, seed: int) -> list[tuple[Area, Path, MutationSpec]]:
    """Draw changes: the areas in turn, then a place of the area, then a change at that place. None is drawn twice."""
    draw = random.Random(seed)
    waiting: list[tuple[Area, list[tuple[Path, list[MutationSpec]]]]] = []
    for area in areas:
        places = [(module, specs) for module in area.modules for specs in changes_of(module)]
        draw.shuffle(places)
        waiting.append((area, places))
    turns = (
        (area, module, draw.choice(specs))
        for turn in zip_longest(*([(area, place) for place in places] for area, places in waiting))
        for area, (module, specs) in filter(None, turn)
    )
    return list(islice(turns, count))


class Copy:
    """A copy of the repository's own files, in which one change at a time is made and tested."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._checked: set[str] = set()
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, folder / name)

    def try_change(self, area: Area, module: Path, spec: MutationSpec) -> Found:
        """Return whether the change survives the unit tests of its module and then the tests of its area.

        Raises:
            RuntimeError: if a test that noticed the change fails without it too, or Cosmic Ray cannot make the change.
        """
        unit = unit_test_of(module)
        selections = [(_UNIT_CPU_S, [str(unit)])] if unit else []
        selections.append((_AREA_CPU_S, [test for test in area.tests if test != str(unit)]))
        line, before, after = spec.start_pos[0], "", ""
        for cpu_s, tests in selections:
            here = MutationSpec(
                self.folder / module,
                spec.operator_name,
                spec.occurrence,
                spec.start_pos,
                spec.end_pos,
                spec.operator_args,
            )
            done = mutate_and_test([here], self._command(tests, cpu_s), _TIMEOUT_S)
            if done.test_outcome is None or done.diff is None:
                raise RuntimeError(f"{module}: {spec.operator_name} could not be applied: {done.output}")
            before, after = _changed(done.diff)
            if done.test_outcome is not TestOutcome.SURVIVED:
                self._check(done.output or "")
                return Found(area.name, str(module), line, before, after, survived=False)
        return Found(area.name, str(module), line, before, after, survived=True)

    def _check(self, output: str) -> None:
        """Check that the test which noticed the change passes without it."""
        for test in re.findall(r"^(?:FAILED|ERROR) (\S+?)(?: - |$)", output, re.M):
            if test not in self._checked:
                outcome, without = run_tests(self._command([test], _AREA_CPU_S), _TIMEOUT_S)
                if outcome is not TestOutcome.SURVIVED:
                    raise RuntimeError(f"{test} fails without a change, or cannot run by itself:\n{without[-3000:]}")
                self._checked.add(test)

    def _command(self, tests: Sequence[str], cpu_s: int) -> str:
        run = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", *tests]
        return shlex.join(
            ["sh", "-c", f'ulimit -t {cpu_s}; cd "$0"; PYTHONPATH="$0" exec "$@"', str(self.folder), *run]
        )


def _changed(diff: str) -> tuple[str, str]:
    """Return the changed lines before and after, each joined to one."""
    lines = [line for line in diff.splitlines() if line[:1] in ("+", "-") and line[:3] not in ("+++", "---")]
    before, after = (" ".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+")
    return before, after


def _results(
    drawn: Sequence[tuple[Area, Path, MutationSpec]], copies: Sequence[Copy], progress: Progress
) -> Iterator[Found]:
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)
    task = progress.add_task("changes tried", total=len(drawn))

    def tried(one: tuple[Area, Path, MutationSpec]) -> Found:
        copy = free.get()
        try:
            return copy.try_change(*one)
        finally:
            free.put(copy)
            progress.advance(task)

    with ThreadPoolExecutor(len(copies)) as pool:
        yield from pool.map(tried, drawn)


def main(argv: Sequence[str] | None = None) -> int:
    """Try a sample of changes, print what became of them, and return 1 if one survived that is not kept."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=40, metavar="CHANGES")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--only", action="append", metavar="AREA", help="an area of tests/mutants.toml; may be repeated"
    )
    parser.add_argument("--workers", type=int, default=2, help="copies of the repository that run tests at once")
    options = parser.parse_args(argv)
    areas, kept = table()
    chosen = [area for area in areas if not options.only or area.name in options.only]
    if not chosen:
        parser.error(f"there is no area {options.only[0]}; the areas are {', '.join(area.name for area in areas)}")
    drawn = sample(chosen, options.count, options.seed)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, Progress(console=Console(stderr=True)) as progress:
        copies = [Copy(Path(folder, str(n))) for n in range(options.workers)]
        found = list(_results(drawn, copies, progress))
    text, left = report(found, kept)
    print(text)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
