"""Change one operator of the product at a time and see whether the tests notice: ``make mutants``.

``tests/mutants.toml`` names the areas, the modules of each, and the tests that must notice a change. Before the first
change each of these test files is run once, to record which lines each test executes. The records are kept below
``build/mutants`` until the sources change. A change is tried with the tests that execute its line, nearest first: the
unit tests of the module, then the shortest of each file. The first test that fails ends it.

A change that no test notices is a survivor. It is a hole in the tests, unless the list ``kept`` of that file says why
no test can notice it. Cosmic Ray makes the changes, each in a copy of the repository. The sample is the same for the
same ``--seed``. What becomes of a change is printed when it is known, and the counts at the end, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from difflib import unified_diff
from itertools import islice, zip_longest
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from cosmic_ray.commands.init import _all_work_items
from cosmic_ray.mutating import use_mutation
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_item import MutationSpec
from rich.console import Console
from rich.progress import Progress

from tests.support.mutant_reach import Reached, Records, reaching, within
from tests.support.mutant_table import ROOT, Area, Found, Kept, line_of, report, table

RECORDS = ROOT / "build" / "mutants"

_Work = TypeVar("_Work")
_Done = TypeVar("_Done")

_NEAR_CPU_S, _REST_CPU_S = 20, 100
"""Recorded processor time of the tests that run first, and of those that run if these notice nothing. Recording takes
about 2.5 times as long as the tests themselves."""
_RECORD_CPU_S = 900
_WAIT_S = 900.0
"""A change can make a test wait for ever. It is ended after this time, and counts as noticed."""
_PASSED = (0, 5)
"""The exit statuses of pytest if the tests passed, and if all are excluded as slow."""
_OUT_OF_TIME = (-signal.SIGXCPU, -signal.SIGKILL)

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
        # Cosmic Ray takes the mark of keyword-only parameters for a multiplication.
        is_mark = text == "*" and lines[line - 1][spec.end_pos[1] :].startswith(",")
        if line not in ignored and _SLIPS.fullmatch(name) and not is_large and not is_mark:
            places.setdefault((line, column), []).append(spec)
    return list(places.values())


@dataclass(frozen=True)
class Drawn:
    """A change to try."""

    area: Area
    module: Path
    spec: MutationSpec


def sample(areas: Sequence[Area], count: int, seed: int) -> list[Drawn]:
    """Draw changes: the areas in turn, then a place of the area, then a change at that place. None is drawn twice."""
    draw = random.Random(seed)
    waiting: list[tuple[Area, list[tuple[Path, list[MutationSpec]]]]] = []
    for area in areas:
        places = [(module, specs) for module in area.modules for specs in changes_of(module)]
        draw.shuffle(places)
        waiting.append((area, places))
    turns = (
        Drawn(area, module, draw.choice(specs))
        for turn in zip_longest(*([(area, place) for place in places] for area, places in waiting))
        for area, (module, specs) in filter(None, turn)
    )
    return list(islice(turns, count))


class Stopped(Exception):
    """The run was ended while tests ran."""


class Copy:
    """A copy of the repository's own files, in which one change at a time is made and tested."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: subprocess.Popen[str] | None = None
        self._is_stopped = False
        self._checked: set[tuple[str, ...]] = set()
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

    def record(self, test_file: str, records: Records, traced: Sequence[Path]) -> bool:
        """Record what the tests of a file execute, and return whether each of them passed."""
        written, names = self.folder / "record.json", self.folder / "traced.txt"
        written.unlink(missing_ok=True)
        names.write_text("\n".join(str(self.folder / module) for module in traced))
        given = {"MUTANTS_RECORD": str(written), "MUTANTS_TRACED": str(names)}
        code, output = self._run(["-p", "tests.simulators.mutant_recorder", test_file], _RECORD_CPU_S, given)
        if not written.is_file():
            raise RuntimeError(f"{test_file} could not be recorded: {output[-3000:]}")
        records.keep(test_file, _relative(json.loads(written.read_text()), self.folder))
        return code in _PASSED

    def try_change(self, drawn: Drawn, tests: Mapping[str, Reached]) -> Found:
        """Return what becomes of a change. The nearest tests run first, and the first that fails ends it.

        Raises:
            RuntimeError: if a test that noticed the change fails without it too, or Cosmic Ray cannot make the change.
            Stopped: if ``stop`` was called.
        """
        line = drawn.spec.start_pos[0]
        names, is_executed = reaching(tests, drawn.module, line)
        near = within(names, tests, _NEAR_CPU_S)
        rest = within(names[len(near) :], tests, _REST_CPU_S)
        operator = get_operator(drawn.spec.operator_name)(**drawn.spec.operator_args)
        by = ""
        with use_mutation(self.folder / drawn.module, operator, drawn.spec.occurrence) as (before, after):
            if after is None:
                raise RuntimeError(f"{drawn.module}: {drawn.spec.operator_name} could not be applied")
            ended: list[tuple[list[str], int, str]] = []
            for chosen in filter(None, (near, rest)):
                code, output = self._run(chosen, _cpu_limit_s(chosen, tests))
                if code not in _PASSED:
                    ended.append((chosen, code, output))
                    break
        for chosen, code, output in ended:
            failed = _failed(chosen, output)
            by = failed[0] if failed else "an endless loop" if code in _OUT_OF_TIME else "the start of the tests"
            self._check(failed[:1] or chosen, output)
        seen = f"{len(near) + len(rest)} of {len(names)} tests" if is_executed else "no test executes it"
        return Found(
            drawn.area.name, str(drawn.module), line, *_changed(before, after), survived=not ended, by=by or seen
        )

    def stop(self) -> None:
        """End the tests that run, and let none begin."""
        self._is_stopped = True
        if (running := self._running) and running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)

    def _check(self, failed: Sequence[str], with_change: str) -> None:
        """Check that the tests which noticed the change pass without it."""
        if tuple(failed) in self._checked:
            return
        code, without = self._run(failed, _RECORD_CPU_S)
        if code not in _PASSED:
            output = without[-3000:] or with_change[-3000:]
            raise RuntimeError(f"{failed[0]} fails without a change, or cannot run by itself:\n{output}")
        self._checked.add(tuple(failed))

    def _run(self, tests: Sequence[str], cpu_s: int, given: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Return the exit status and the output of the tests. The limit counts processor time, not waiting."""
        run = [
            sys.executable,
            "-m",
            "pytest",
            "-x" if given is None else "--maxfail=1000",
            "-q",
            "-m",
            "not slow",
            *tests,
        ]
        limited = ["sh", "-c", f'ulimit -t {cpu_s}; exec "$@"', "sh", *run]
        environment = {**os.environ, "PYTHONPATH": str(self.folder), **(given or {})}
        with subprocess.Popen(
            limited,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as self._running:
            if self._is_stopped:
                os.killpg(self._running.pid, signal.SIGKILL)
            try:
                output, _ = self._running.communicate(timeout=_WAIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._running.pid, signal.SIGKILL)
                output, _ = self._running.communicate()
        if self._is_stopped:
            raise Stopped
        return self._running.returncode, output


def _failed(chosen: Sequence[str], output: str) -> list[str]:
    """Return those of the tests that failed. The name of a test may contain spaces."""
    told = [line.partition(" ")[2] for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return [name for name in chosen if any(one == name or one.startswith(f"{name} - ") for one in told)]


def _relative(recorded: dict, folder: Path) -> dict:
    """Return the record with the paths of modules relative to the copy."""
    for of in recorded.values():
        of["lines"] = {str(Path(module).relative_to(folder)): lines for module, lines in of["lines"].items()}
    return recorded


def _cpu_limit_s(chosen: Sequence[str], tests: Mapping[str, Reached]) -> int:
    """Return the processor time, in seconds, after which a change is taken for an endless loop."""
    return 15 + round(1.5 * sum(tests[name].cpu_s for name in chosen))


def _changed(before: str, after: str) -> tuple[str, str]:
    """Return the changed lines before and after, each joined to one."""
    diff = unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    lines = [line for line in diff if line[:1] in ("+", "-") and line[:3] not in ("+++", "---")]
    was, now = (" ".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+")
    return was, now


class Run:
    """One run: it records what is not recorded yet, and tries the drawn changes in copies of the repository."""

    def __init__(self, copies: Sequence[Copy], records: Records, traced: Sequence[Path], progress: Progress) -> None:
        self._copies = copies
        self._records = records
        self._traced = traced
        self._progress = progress
        self.found: list[Found] = []

    def record(self, test_files: Sequence[str]) -> None:
        """Record the test files that have no record of these sources."""
        missing = self._records.missing(test_files)
        for file, has_passed in self._in_turn("test files recorded", missing, self._record):
            if not has_passed:
                self._say(f"{file}: a test fails or is skipped without a change; only those that pass are used")

    def _record(self, copy: Copy, file: str) -> bool:
        return copy.record(file, self._records, self._traced)

    def try_changes(self, drawn: Sequence[Drawn], kept: Sequence[Kept]) -> None:
        """Try the changes, and print what became of each when it is known."""
        tests = {
            area.name: self._records.tests(area.tests) for area in {one.area.name: one.area for one in drawn}.values()
        }

        def tried(copy: Copy, one: Drawn) -> Found:
            return copy.try_change(one, tests[one.area.name])

        for _, found in self._in_turn("changes tried", drawn, tried):
            self.found.append(found)
            self._say(line_of(found, kept))

    def _in_turn(
        self, words: str, work: Sequence[_Work], do: Callable[[Copy, _Work], _Done]
    ) -> Iterator[tuple[_Work, _Done]]:
        """Yield each piece of work with its result when it is done. Each copy does one at a time."""
        free: SimpleQueue[Copy] = SimpleQueue()
        for copy in self._copies:
            free.put(copy)

        def done(one: _Work) -> _Done:
            copy = free.get()
            try:
                return do(copy, one)
            finally:
                free.put(copy)

        task = self._progress.add_task(words, total=len(work), visible=bool(work))
        with ThreadPoolExecutor(len(self._copies)) as pool:
            waiting = {pool.submit(done, one): one for one in work}
            try:
                for future in as_completed(waiting):
                    yield waiting[future], future.result()
                    self._progress.advance(task)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for copy in self._copies:
                    copy.stop()
                raise

    def _say(self, line: str) -> None:
        print(line, flush=True)


def _options(argv: Sequence[str] | None, areas: Sequence[Area]) -> tuple[argparse.Namespace, list[Area]]:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=40, metavar="CHANGES")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--only", action="append", metavar="AREA", help="an area of tests/mutants.toml; may be repeated"
    )
    parser.add_argument("--module", action="append", metavar="FILE", help="only changes of this file; may be repeated")
    parser.add_argument("--workers", type=int, default=2, help="copies of the repository that run tests at once")
    options = parser.parse_args(argv)
    if unknown := set(options.only or ()) - {area.name for area in areas}:
        parser.error(f"there is no area {min(unknown)}; the areas are {', '.join(area.name for area in areas)}")
    chosen = [area for area in areas if not options.only or area.name in options.only]
    if options.module:
        wanted = set(map(Path, options.module))
        if unknown := wanted - {module for area in chosen for module in area.modules}:
            parser.error(
                f"{min(map(str, unknown))} is in none of these areas: {', '.join(area.name for area in chosen)}"
            )
        chosen = [replace(area, modules=of) for area in chosen if (of := tuple(m for m in area.modules if m in wanted))]
    return options, chosen


def main(argv: Sequence[str] | None = None) -> int:
    """Try a sample of changes, print what becomes of each, and return 1 if one survived that is not kept.

    Ctrl-C and SIGTERM end it. It then prints the counts of the changes that were tried until then, and returns 130.
    """
    areas, kept = table()
    options, chosen = _options(argv, areas)
    drawn = sample(chosen, options.count, options.seed)
    test_files = sorted({test for area in chosen for test in area.tests})
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.default_int_handler)
    is_stopped = False
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        Progress(console=Console(stderr=True), redirect_stdout=sys.stdout.isatty()) as progress,
    ):
        copies = [Copy(Path(folder, str(n))) for n in range(options.workers)]
        traced = sorted({module for area in areas for module in area.modules})
        changed = [module for area in chosen for module in area.modules]
        run = Run(copies, Records(RECORDS, traced=traced, changed=changed), traced, progress)
        try:
            run.record(test_files)
            run.try_changes(drawn, kept)
        except KeyboardInterrupt:
            is_stopped = True
    text, left = report(run.found, kept)
    print(text)
    if is_stopped:
        print(f"stopped after {len(run.found)} of {len(drawn)} changes")
        return 130
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
