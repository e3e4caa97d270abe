"""Checks the prose of the documents and of the product's strings with proselint and our own rules.

``python -m tests.prose`` exits with 1 if a rule reports a finding. ``python -m tests.prose --comments FILE``
checks the docstrings and comments of modules, and ``--strings FILE`` checks their strings.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from proselint.checks import __register__ as builtin
from proselint.config import DEFAULT, Config
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

from tests.prose.style import RULES
from tests.prose.text import Passage, comment_passages, docstring_passages, markdown_passages, string_passages

ROOT = Path(__file__).resolve().parents[2]
CONFIG: Config = {
    "max_errors": 1000,
    "checks": {"misc.phrasal_adjectives.ly": False}
    | DEFAULT["checks"]
    | {"barrierscope": True, "typography": False, "lexical_illusions": False},
}
"""The checks that run. More specific names come first.

Three checks are off: ``typography``, because straight quotes and three dots are intended,
``lexical_illusions``, because text repeats words once its code is removed, and ``misc.phrasal_adjectives.ly``,
because *exactly-once* is a term.
"""

_DOCUMENTS = ("README.md", "CHANGELOG.md", "docs/**/*.md", "helm/**/README.md", "migrations/README.md")
# This folder quotes its sources, and the code cites it by id, so its words must not change.
_NOT_OURS = ("docs/dev/spec/",)


def documents() -> list[Path]:
    """Return the documents whose prose is checked."""
    found = {path for pattern in _DOCUMENTS for path in ROOT.glob(pattern)}
    return sorted(p for p in found if not p.relative_to(ROOT).as_posix().startswith(_NOT_OURS))


def modules() -> list[Path]:
    """Return the modules whose strings are checked. Any such string may reach a page, a response, an error or a log."""
    return sorted(
        path for package in ("backend", "collectors", "dashboard") for path in ROOT.glob(f"{package}/**/*.py")
    )


def findings(passages: Iterable[Passage]) -> Iterator[str]:
    """Yield one line for each finding, with its file, line, rule and message."""
    registry = CheckRegistry()
    if not registry.checks:
        registry.register_many((*builtin, *RULES))
    for path, of_file in groupby(passages, key=attrgetter("path")):
        text, lines = "", list[int]()
        for passage in of_file:
            text += passage.text + "\n\n"
            # A string that starts on one source line may contain several lines of text.
            lines += [passage.line + n for n in range(passage.text.count("\n") + 2)]
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        for found in LintFile(str(path), text).lint(CONFIG) if text else ():
            # The linter adds an empty line before the text, so positions are shifted by one character.
            line = lines[text[: max(0, found.check_result.span[0] - 1)].count("\n")]
            yield f"{name}:{line}: {found.check_result.check_path}: {found.check_result.message}"


def _module(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not a file")
    return path.resolve()


def main(arguments: list[str]) -> int:
    """Print every finding. Return 1 if there is at least one, otherwise 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.prose")
    parser.add_argument("--strings", nargs="+", type=_module, default=[], metavar="FILE", help="strings of modules")
    parser.add_argument(
        "--comments", nargs="+", type=_module, default=[], metavar="FILE", help="docstrings and comments"
    )
    options = parser.parse_args(arguments)
    read: list[tuple[Callable[[Path], Iterator[Passage]], list[Path]]] = [
        (string_passages, options.strings),
        (docstring_passages, options.comments),
        (comment_passages, options.comments),
    ]
    if not any(paths for _, paths in read):
        read = [(markdown_passages, documents()), (string_passages, modules())]
    lines = list(findings(p for passages, paths in read for path in paths for p in passages(path)))
    print("\n".join(lines) or "prose: nothing found")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
