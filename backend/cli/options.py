"""What several commands share: options for formats, durations, ``key=value`` pairs and jobs, help, and output."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.text import printable

if TYPE_CHECKING:
    from backend.runtime.engine.jobfile import JobSpec

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_INSTANT_ALLOWED = "an instant with an offset, such as 2026-11-20T00:00:00Z"
# The same bounds as in the API. Instants at the ends of the calendar have no equivalent in UTC, and no neighbours.
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(2200, 1, 1, tzinfo=UTC)
_DURATIONS_ALLOWED = "a number with a unit: 500ms, 120s, 2min, 1h, 1d"


class OutputFormat(StrEnum):
    """The output formats of a command."""

    TEXT = "text"
    JSON = "json"


class ReportFormat(StrEnum):
    """The output formats of a report."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


TargetsFile = Annotated[
    str | None,
    typer.Option(
        "--targets", metavar="FILE", help="File targets.yaml with targets to read; it is read again when it changes."
    ),
]


def file_of(text: str | None) -> Path | None:
    """Return the path of an option that names a file, or None if the option is not used.

    Raises:
        InvalidInputError: ``text`` is empty.
    """
    if text is None:
        return None
    if not text.strip():
        raise InvalidInputError([FieldProblem("--targets", "is empty", "the path of a file")], what="option")
    return Path(text).expanduser()


def help_without_command(context: typer.Context) -> None:
    """Print the help of a group that was called without a subcommand, and exit with code 0."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


def seconds(text: str, *, option: str, least: float = 0.0, most: float = 86_400.0 * 3660) -> float:
    """Parse a duration such as ``500ms`` and return it in seconds.

    Raises:
        InvalidInputError: ``text`` is not a number with a unit, or is outside ``least`` to ``most`` seconds.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InvalidInputError(
            [FieldProblem(option, f"{text!r} is not a duration", _DURATIONS_ALLOWED)], what="option"
        )
    value = float(match[1]) * _SECONDS[match[2]]
    if not least <= value <= most:
        allowed = f"{least:g}s to {most:g}s"
        raise InvalidInputError([FieldProblem(option, f"{text!r} is out of bounds", allowed)], what="option")
    return value


def instant(text: str, *, option: str) -> datetime:
    """Parse an instant with an offset, such as ``2026-11-20T00:00:00Z``, and return it in UTC.

    Raises:
        InvalidInputError: ``text`` is not an instant, has no offset, or is not in the years 1970 to 2199.
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInputError(
            [FieldProblem(option, f"{text!r} is not an instant", _INSTANT_ALLOWED)], what="option"
        ) from None
    if found.tzinfo is None:
        raise InvalidInputError([FieldProblem(option, f"{text!r} has no offset", _INSTANT_ALLOWED)], what="option")
    if not _EARLIEST <= found <= _LATEST:
        problem = FieldProblem(option, f"{text!r} is out of bounds", "an instant in the years 1970 to 2199")
        raise InvalidInputError([problem], what="option")
    return found.astimezone(UTC)


@contextmanager
def stopped_by_signal() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C within the block, so that the work ends in an orderly way."""

    def stop(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def pairs(texts: Sequence[str], *, option: str, is_once: bool = False) -> dict[str, str]:
    """Parse ``key=value`` texts into a dict, in order. If a key is repeated, its last value is used.

    Raises:
        InvalidInputError: a text has no ``=``, or its key is empty. If ``is_once``, also if a key is repeated.
    """
    result: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise InvalidInputError(
                [FieldProblem(option, f"{text!r} is not a key=value pair", "key=value")], what="option"
            )
        if is_once and key.strip() in result:
            raise InvalidInputError([FieldProblem(option, f"{key.strip()} is set twice", "one value")], what="option")
        result[key.strip()] = value.strip()
    return result


def job_spec(text: str) -> JobSpec:
    """Load a job. ``text`` is the name of a demo job or the path of a job file.

    Raises:
        InvalidInputError: ``text`` is neither of these, or the file is malformed.
        PlanError: the job cannot run.
    """
    from backend.runtime.engine.jobfile import load_job

    return load_job(job_file(text))


def job_file(text: str) -> Path:
    """Return the job file of the demo job with this name, or else the path that ``text`` is.

    Raises:
        InvalidInputError: ``text`` is neither a demo job nor an existing file.
    """
    from backend.runtime.demo import demo_path, job_names

    if text in job_names():
        return demo_path(text)
    if not Path(text).exists():
        allowed = "a job file (TOML), or one of " + ", ".join(job_names())
        raise InvalidInputError(
            [FieldProblem("JOB", f"no demo job or file has the name {text!r}", allowed)], what="option"
        )
    return Path(text)


def folder_of(text: str) -> Path:
    """Return the folder that the option ``--data-dir`` names.

    Raises:
        InvalidInputError: the option is empty.
    """
    if not text.strip():
        # An empty option is probably an unset shell variable. Path("") would be the current folder.
        raise InvalidInputError([FieldProblem("--data-dir", "it is empty", "a folder")], what="option")
    return Path(text).expanduser().absolute()


def say(*lines: str) -> None:
    """Print lines on standard output. Control characters in them, such as those in a name, are shown as escapes."""
    for line in lines:
        typer.echo(printable(line))
