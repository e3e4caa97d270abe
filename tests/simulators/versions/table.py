"""The results of ``make test-versions`` as a table, and the part of ``docs/support.md`` that holds it.

Pure functions, except that ``read`` and ``write`` keep one file for each version, so that versions can be run one by
one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from tests.simulators.versions.jars import VERSIONS, minor
from tests.simulators.versions.jobs import JOBS
from tests.simulators.versions.judging import Judged, Outcome

BEGIN = "<!-- make test-versions: begin -->"
END = "<!-- make test-versions: end -->"
WORDS = {
    Outcome.RIGHT: "right",
    Outcome.NOT_DECIDED: "open",
    Outcome.WRONG: "wrong",
    Outcome.UNREAD: "unread",
    Outcome.NOT_RUN: "-",
}
_FIRST = "job"


@dataclass(frozen=True, slots=True)
class Applied:
    """One recommended change that was made on a new run of the job.

    ``refusal`` is the reason if Flink refused it, or if it had no effect. ``predicted`` is (low, value, high) of
    ``metric``.
    """

    job: str
    kind: str
    changes: tuple[tuple[str, str], ...]
    refusal: str = ""
    metric: str = ""
    predicted: tuple[float, float, float] | None = None
    measured: float | None = None

    @property
    def is_inside(self) -> bool | None:
        """Whether the measured value is in the predicted interval; None if it was not predicted or not measured."""
        if self.predicted is None or self.measured is None:
            return None
        return self.predicted[0] <= self.measured <= self.predicted[2]


@dataclass(frozen=True, slots=True)
class Result:
    """What one version gave. ``proxied`` has what differs behind each kind of proxy from what is told without one."""

    version: str
    verdicts: tuple[Judged, ...]
    compared_count: int = 0
    differences: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    applied: tuple[Applied, ...] = ()
    proxied: dict[str, tuple[str, ...]] = field(default_factory=dict)
    recording_bytes: int = 0
    load_ratio: float | None = None
    """The mean load of the machine for each of its cores, in the minute before the jobs were diagnosed."""

    @property
    def wrong_and_sure(self) -> tuple[Judged, ...]:
        """The verdicts that are wrong although their confidence is high."""
        return tuple(found for found in self.verdicts if found.is_wrong_and_sure)

    @property
    def is_faulty(self) -> bool:
        """Whether something is wrong with high confidence, could not be read, or differs from Flink's values."""
        return bool(
            self.wrong_and_sure or self.differences or any(found.outcome is Outcome.UNREAD for found in self.verdicts)
        )


_RESULT = TypeAdapter(Result)


def write(result: Result, folder: Path) -> None:
    """Keep the result of one version."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{result.version}.json").write_bytes(_RESULT.dump_json(result, indent=1))


def read(folder: Path) -> list[Result]:
    """Return the kept results, oldest version first."""
    paths = [folder / f"{version}.json" for version in VERSIONS]
    return [_RESULT.validate_json(path.read_bytes()) for path in paths if path.exists()]


def cell(found: Judged | None) -> str:
    """Return one cell of the table."""
    if found is None or found.outcome is Outcome.NOT_RUN:
        return "-"
    word = WORDS[found.outcome]
    return f"{word} ({found.confidence})" if found.outcome is Outcome.WRONG else word


def table(results: Sequence[Result]) -> str:
    """Return the table as Markdown: a line for each job, and a column for each version."""
    head = [_FIRST, *(minor(r.version) for r in results)]
    rows = [[job.name, *(cell(_of(r, job.name)) for r in results)] for job in JOBS]
    rows += [
        ["values compared with Flink's", *(f"{r.compared_count:,}" for r in results)],
        ["values that differ", *(str(len(r.differences)) for r in results)],
        ["load per core", *("-" if r.load_ratio is None else f"{r.load_ratio:.1f}" for r in results)],
        ["advised changes accepted", *(_accepted(r) for r in results)],
        ["predictions that held", *(_inside(r) for r in results)],
        *(
            [f"behind a proxy: {kind}", *(_proxy_word(r, kind) for r in results)]
            for kind in dict.fromkeys(kind for r in results for kind in r.proxied)
        ),
    ]
    return "\n".join(_line(row) for row in (head, ["---"] * len(head), *rows))


def _of(result: Result, job: str) -> Judged | None:
    return next((found for found in result.verdicts if found.job == job), None)


def _accepted(result: Result) -> str:
    if not result.applied:
        return "-"
    return f"{sum(not one.refusal for one in result.applied)}/{len(result.applied)}"


def _inside(result: Result) -> str:
    known = [one.is_inside for one in result.applied if one.is_inside is not None]
    if not known:
        return "-"
    return f"{sum(known)}/{len(known)}"


def _proxy_word(result: Result, kind: str) -> str:
    if kind not in result.proxied:
        return "-"
    return "right" if not result.proxied[kind] else f"{len(result.proxied[kind])} differ"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def parsed(text: str) -> list[list[str]]:
    """Return the cells of a table that ``table`` wrote: the head, and a list for each line below.

    Raises:
        ValueError: the lines do not form such a table.
    """
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[word.strip() for word in line.strip("|").split("|")] for line in lines]
    if len(rows) < 3 or rows[0][0] != _FIRST or set(rows[1]) != {"---"}:
        raise ValueError("not a table of versions")
    if any(len(row) != len(rows[0]) for row in rows):
        raise ValueError("the lines of the table have different lengths")
    return [rows[0], *rows[2:]]


def notes(results: Sequence[Result]) -> Iterator[str]:
    """Return a line for everything in the table that is not right."""
    seen: dict[str, list[str]] = {}
    for result in results:
        for found in result.verdicts:
            if found.outcome is not Outcome.RIGHT:
                word = "not run" if found.outcome is Outcome.NOT_RUN else cell(found)
                seen.setdefault(f"`{found.job}`, {word}: {found.why}", []).append(minor(result.version))
        for one in result.applied:
            if one.refusal:
                keys = ", ".join(f"`{key}: {value}`" for key, value in one.changes)
                seen.setdefault(f"advice for `{one.job}`, {keys}: {one.refusal}", []).append(minor(result.version))
            elif one.is_inside is False and one.predicted is not None and one.measured is not None:
                low, value, high = one.predicted
                text = f"{one.measured:.6g} measured, {value:.6g} ({low:.6g} to {high:.6g}) predicted"
                seen.setdefault(f"advice for `{one.job}`, {one.metric}: {text}", []).append(minor(result.version))
        for kind, lines in result.proxied.items():
            for line in lines:
                seen.setdefault(f"behind a proxy, {kind}: {line}", []).append(minor(result.version))
    for text, versions in seen.items():
        yield f"- {text} ({', '.join(versions)})"


def section(results: Sequence[Result]) -> str:
    """Return the generated part of ``docs/support.md``, with its markers."""
    found = list(notes(results))
    below = "\n".join(["What is not right in the table, and what was not run:", "", *found]) if found else ""
    return "\n\n".join(part for part in (BEGIN, table(results), below, END) if part)


def replaced(document: str, results: Sequence[Result]) -> str:
    """Return the document with a new part between the markers.

    Raises:
        ValueError: the document has no such markers.
    """
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(document):
        raise ValueError("the document has no markers")
    return pattern.sub(lambda _: section(results), document)
