"""Options that several commands share: formats, durations, ``key=value`` pairs, jobs, and the help of a group."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from backend.domain.errors import FieldProblem, InvalidInputError

if TYPE_CHECKING:
    from backend.runtime.engine.jobfile import JobSpec

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATIONS_ALLOWED = "a number with a unit: 500ms, 120s, 2min, 1h, 1d"


class OutputFormat(StrEnum):
    """Output format of a command."""

    TEXT = "text"
    JSON = "json"


class ReportFormat(StrEnum):
    """Output format of a report."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


def help_without_command(context: typer.Context) -> None:
    """Print the help of a group that was called without a subcommand, and exit with code 0."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


def seconds(text: str, *, option: str, least: float = 0.0, most: float = 86_400.0 * 3660) -> float:
    """Parse a duration; returns seconds.

    Raises:
        InvalidInputError: ``text`` is not a number with a unit, or is out of bounds.

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


def pairs(texts: Sequence[str], *, option: str) -> dict[str, str]:
    """``key=value`` texts as a dict, in order; the last value of a repeated key is used.

    Raises:
        InvalidInputError: a text without ``=`` or with an empty key.

    """
    result = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise InvalidInputError(
                [FieldProblem(option, f"{text!r} is not a key=value pair", "key=value")], what="option"
            )
        result[key.strip()] = value.strip()
    return result


def job_spec(text: str) -> JobSpec:
    """The job with the name of a demo, or with the path of a job file.

    Raises:
        InvalidInputError: it is neither, or the file is malformed.
        PlanError: the job cannot run.

    """
    from backend.runtime.demo import demo_names, demo_path
    from backend.runtime.engine.jobfile import load_job

    if text in demo_names():
        return load_job(demo_path(text))
    if not Path(text).exists():
        allowed = "a job file (TOML), or one of " + ", ".join(demo_names())
        raise InvalidInputError(
            [FieldProblem("JOB", f"no demo job or file has the name {text!r}", allowed)], what="option"
        )
    return load_job(Path(text))
