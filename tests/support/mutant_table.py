"""The table of ``make mutants``: what is changed, which tests must notice it, and what cannot be noticed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests" / "mutants.toml"


@dataclass(frozen=True)
class Area:
    """Modules, relative to the root, and the tests that must notice a change in them."""

    name: str
    modules: tuple[Path, ...]
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Kept:
    """A survivor that no test can notice: the changed lines of the module before and after, and the reason."""

    module: str
    before: str
    after: str
    why: str


@dataclass(frozen=True)
class Found:
    """What became of one change. ``before`` and ``after`` are the changed lines, joined.

    ``by`` is the test that noticed it, or how many tests did not.
    """

    area: str
    module: str
    line: int
    before: str
    after: str
    survived: bool
    by: str = ""


def table(path: Path = TABLE) -> tuple[list[Area], list[Kept]]:
    """Return the areas and the kept survivors of ``tests/mutants.toml``.

    Raises:
        ValueError: if a pattern of an area finds no file.
    """
    read = tomllib.loads(path.read_text())
    areas = [
        Area(
            name,
            tuple(file for file in _files(of["modules"]) if file.name != "__init__.py"),
            tuple(map(str, _files(_written_out(of["tests"], read.get("named", {}))))),
        )
        for name, of in read["area"].items()
    ]
    return areas, [Kept(**kept) for kept in read.get("kept", [])]


def _written_out(patterns: Sequence[str], named: Mapping[str, Sequence[str]]) -> list[str]:
    return [one for pattern in patterns for one in (named[pattern[1:]] if pattern.startswith("@") else [pattern])]


def _files(patterns: Sequence[str]) -> list[Path]:
    """Return the files that the patterns find, relative to the root. A pattern with a first ``!`` takes files away."""
    files: dict[Path, None] = {}
    for pattern in patterns:
        found = [file.relative_to(ROOT) for file in sorted(ROOT.glob(pattern.removeprefix("!")))]
        if not found:
            raise ValueError(f"{pattern} finds no file")
        for file in found:
            if pattern.startswith("!"):
                files.pop(file, None)
            else:
                files[file] = None
    return list(files)


def unit_test_of(module: Path) -> Path | None:
    """Return the unit test file of a module, both relative to the root, if there is one."""
    package, *folders = module.with_suffix("").parts
    for first in ("_".join([package, *folders[:1]]), package):
        rest = folders[1:] if first != package else folders
        if rest:
            test = Path("tests", "unit", first, *rest[:-1], f"test_{rest[-1]}.py")
            if (ROOT / test).is_file():
                return test
    return None


def report(found: Sequence[Found], kept: Sequence[Kept]) -> tuple[str, list[Found]]:
    """Return a text with a line for each area and each survivor, and the survivors that are not kept."""
    lines = [f"{'area':12} {'changes':>8} {'noticed':>8} {'kept':>6} {'survived':>9}"]
    left = [f for f in found if f.survived and not _is_kept(f, kept)]
    for area in dict.fromkeys(f.area for f in found):
        of = [f for f in found if f.area == area]
        survived, open_ = sum(f.survived for f in of), sum(f in left for f in of)
        lines.append(f"{area:12} {len(of):8} {len(of) - survived:8} {survived - open_:6} {open_:9}")
    lines += [f"\n{f.module}:{f.line}\n- {f.before}\n+ {f.after}" for f in left]
    return "\n".join(lines), left


def line_of(found: Found, kept: Sequence[Kept]) -> str:
    """Return one line on a change: its fate, where it is, the lines before and after, and by which tests."""
    fate = "noticed" if not found.survived else "kept" if _is_kept(found, kept) else "SURVIVED"
    return f"{fate:8} {found.module}:{found.line}  {found.before}  ->  {found.after}  [{found.by}]"


def _is_kept(found: Found, kept: Sequence[Kept]) -> bool:
    return any((one.module, one.before, one.after) == (found.module, found.before, found.after) for one in kept)
